#include "fabric-manager/service/explain_words.h"

#include "absl/strings/str_cat.h"
#include "proto/support/names.h"

namespace cxlpool::fm {

std::string RegionName(absl::string_view id) { return ResourceName("regions", id); }
std::string HostName(absl::string_view id) { return ResourceName("hosts", id); }
std::string DeviceName(absl::string_view id) { return ResourceName("devices", id); }

std::string OnHost(absl::string_view host, absl::string_view command) {
  return absl::StrCat("on ", host, ": ", command);
}
std::string RestartAgent(absl::string_view host) {
  return OnHost(host, "systemctl restart cxlpool-agent");
}
std::string CutOff(const FabricCapabilities& fabric, absl::string_view host) {
  if (!fabric.can_fence()) {
    return OnHost(host, "reboot it; to cut it off from afar, set fabric.fence_program");
  }
  return absl::StrCat("cxlpool host fence ", host, " --reason WHY");
}
std::string Detach(absl::string_view region, absl::string_view host) {
  return absl::StrCat("cxlpool region detach ", region, " --host ", host);
}
std::vector<std::string> EndQuarantine(const Region& region) {
  std::vector<std::string> commands;
  for (const Attachment& attachment : region.attachments) {
    if (attachment.settled().state == AttachmentState::kUnbound) continue;
    if (!attachment.settled().detaching) commands.push_back(Detach(region.id, attachment.host));
  }
  commands.push_back(
      absl::StrCat("cxlpool region release ", region.id, " --detach-all --force --reason WHY"));
  return commands;
}

std::string InBrackets(absl::string_view why) {
  return why.empty() ? std::string() : absl::StrCat(" (", why, ")");
}

const HostView* FindHost(const PoolView& view, absl::string_view id) {
  const auto host = view.hosts.find(id);
  return host == view.hosts.end() ? nullptr : host->second.get();
}

std::vector<std::string> LookOrFail(absl::string_view device) {
  return {absl::StrCat("cxlpool device show ", device),
          absl::StrCat("cxlpool device fail ", device, " --reason WHY")};
}

absl::Time SinceWhen(const std::map<std::string, absl::Time>& known, const std::string& what) {
  const auto since = known.find(what);
  return since == known.end() ? absl::InfinitePast() : since->second;
}

}  // namespace cxlpool::fm
