#include "fabric-manager/fsck/region_rules.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/model/pool/region.h"
#include "proto/support/cxl_host.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

namespace pb = store::v1;

template <typename Enum>
bool Is(uint32_t stored, Enum value) {
  return stored == static_cast<uint32_t>(value);
}

}  // namespace

Claim RequestClaim(const pb::RequestRecord& request) {
  return {Claim::Kind::kRequest,
          absl::StrCat("request ", absl::BytesToHexString(request.request_id()), " of ",
                       request.principal(), " to ", request.method())};
}

std::vector<Claim> ClaimsOf(const pb::RegionRecord& region) {
  std::vector<Claim> claims = {
      {Claim::Kind::kName, absl::StrCat("name \"", region.id(), "\"")},
      {Claim::Kind::kTag, absl::StrCat("tag ", absl::BytesToHexString(region.tag()))},
      {Claim::Kind::kGeneration, absl::StrCat("generation ", region.generation())}};
  for (const pb::AttachmentRecord& attachment : region.attachments()) {
    claims.push_back(
        {Claim::Kind::kGeneration, absl::StrCat("generation ", attachment.generation())});
    for (const pb::SegmentRecord& segment : attachment.segments()) {
      claims.push_back({Claim::Kind::kSerial, absl::StrCat("serial ", segment.serial())});
      if (Is(attachment.state(), AttachmentState::kUnbound) || attachment.has_tail()) continue;
      claims.push_back({Claim::Kind::kSlot,
                        absl::StrCat("slot ", segment.slot(), " of host ", attachment.host())});
    }
  }
  for (const pb::RequestRecord& request : region.requests()) {
    claims.push_back(RequestClaim(request));
  }
  return claims;
}

std::vector<std::string> BrokenRules(const pb::RegionRecord& region) {
  std::vector<std::string> broken;
  const auto attachments = region.attachments();
  // One on its way down may still be there while the next comes up.
  const auto users = std::count_if(attachments.begin(), attachments.end(),
                                   [](const auto& a) { return !a.detaching(); });
  const auto writers = std::count_if(attachments.begin(), attachments.end(), [](const auto& a) {
    return !a.detaching() && Is(a.access(), Access::kReadWrite);
  });
  if (Is(region.sharing(), Sharing::kExclusive) && users > 1) {
    broken.push_back(absl::StrCat("it is EXCLUSIVE and has ", users, " hosts"));
  }
  if (Is(region.sharing(), Sharing::kSingleWriter) && writers > 1) {
    broken.push_back(absl::StrCat("it is SINGLE_WRITER and ", writers, " hosts may write"));
  }
  for (const pb::AttachmentRecord& attachment : attachments) {
    if (Is(attachment.mode(), Mode::kSystemRam) && !Is(region.sharing(), Sharing::kExclusive)) {
      broken.push_back(
          absl::StrCat("it is system-ram on host ", attachment.host(), " and not EXCLUSIVE"));
    }
  }
  return broken;
}

uint64_t GreatestIdOf(const pb::RegionRecord& region) {
  uint64_t greatest = region.generation();
  for (const pb::AttachmentRecord& attachment : region.attachments()) {
    // Its ids are those that the fabric shows, and the manager gives them to nobody else.
    if (attachment.held() && !CXLPOOL_MUTANT("fsck-counts-from-strays")) continue;
    greatest = std::max(greatest, attachment.generation());
    for (const pb::SegmentRecord& segment : attachment.segments()) {
      // Hardware's own is no number of the pool's.
      if (IsPoolSerial(segment.serial())) {
        greatest = std::max(greatest, segment.serial() - kSerialBase);
      }
    }
  }
  return greatest;
}

}  // namespace cxlpool::fm
