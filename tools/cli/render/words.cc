#include "tools/cli/render/words.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "proto/support/byte_size.h"
#include "proto/support/text.h"

namespace cxlpool::cli {

std::string ShortName(const std::string& name) {
  const size_t slash = name.find('/');
  return slash == std::string::npos ? name : name.substr(slash + 1);
}

// Here and below: "" for a value that is not set, or that this release does not know.
std::string Word(v1::AttachmentMode mode) {
  switch (mode) {
    case v1::DEVDAX:
      return "devdax";
    case v1::SYSTEM_RAM:
      return "system-ram";
    default:
      return "";
  }
}

std::string Word(v1::Access access) {
  switch (access) {
    case v1::READ_WRITE:
      return "rw";
    case v1::READ_ONLY:
      return "ro";
    default:
      return "";
  }
}

std::string Word(v1::Sharing sharing) {
  switch (sharing) {
    case v1::EXCLUSIVE:
      return "exclusive";
    case v1::SINGLE_WRITER:
      return "single-writer";
    case v1::MULTI_WRITER:
      return "multi-writer";
    default:
      return "";
  }
}

std::string Word(v1::Enforcer enforcer) {
  switch (enforcer) {
    case v1::FABRIC:
      return "fabric";
    case v1::AGENT:
      return "agent";
    default:
      return "";
  }
}

std::string Word(v1::Coherence coherence) {
  switch (coherence) {
    case v1::SOFTWARE:
      return "software";
    case v1::HARDWARE:
      return "hardware";
    default:
      return "";
  }
}

std::string Word(v1::PlacementPolicy policy) {
  if (policy == v1::PLACEMENT_POLICY_UNSPECIFIED || !v1::PlacementPolicy_IsValid(policy)) return "";
  return absl::AsciiStrToLower(v1::PlacementPolicy_Name(policy));
}

std::string LimitText(uint64_t bytes) { return bytes == 0 ? "-" : FormatByteSize(bytes); }

std::string FiguresText(uint32_t latency_ns, uint32_t bandwidth_mib_per_second) {
  std::string out;
  if (latency_ns != 0) absl::StrAppend(&out, latency_ns, " ns");
  if (bandwidth_mib_per_second != 0) {
    absl::StrAppend(&out, out.empty() ? "" : ", ", bandwidth_mib_per_second, " MiB/s");
  }
  return out;
}

std::string TimeText(bool is_set, const google::protobuf::Timestamp& time) {
  constexpr int64_t kLastSecond = 253402300799;  // 9999-12-31, as far as protobuf goes.
  if (!is_set || time.seconds() < 0 || time.seconds() > kLastSecond) return "";
  return UtcText(absl::FromUnixSeconds(time.seconds()));
}

std::string Hex(uint64_t value) { return absl::StrFormat("0x%x", value); }

// A read-only Attachment that root of the host can write through is marked so wherever it is
// listed.
std::string AttachmentText(const v1::Attachment& attachment) {
  const bool by_agent =
      attachment.access() == v1::READ_ONLY && attachment.enforced_by() == v1::AGENT;
  return absl::StrCat(ShortName(attachment.host()), " ",
                      v1::Attachment::State_Name(attachment.state()), " ", Word(attachment.mode()),
                      attachment.zone() == v1::KERNEL ? " kernel-zone" : "", " ",
                      Word(attachment.access()), by_agent ? " by agent" : "",
                      attachment.detaching() ? " detaching" : "");
}

std::string AttachmentsText(const v1::Region& region) {
  std::string out;
  for (const v1::Attachment& attachment : region.attachments()) {
    absl::StrAppend(&out, out.empty() ? "" : ", ", AttachmentText(attachment));
  }
  return out;
}

}  // namespace cxlpool::cli
