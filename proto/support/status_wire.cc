#include "proto/support/status_wire.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cxlpool/v1/resources.pb.h"
#include "proto/support/refusal.h"

namespace cxlpool {
namespace {

constexpr size_t kMaxMessageBytes = 2048;
constexpr size_t kMaxInfoBytes = 3072;
constexpr size_t kMaxTakenInfoBytes = 16384;  // From a peer.

// At most `limit` bytes of `text`, never half a UTF-8 character.
std::string Cut(absl::string_view text, size_t limit) {
  if (text.size() <= limit) return std::string(text);
  size_t end = limit - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return absl::StrCat(text.substr(0, end), "...");
}

std::string WireMessage(const absl::Status& status, const Refusal& refusal) {
  if (refusal.reason.empty()) return Cut(status.message(), kMaxMessageBytes);
  const std::string remedy =
      refusal.remedy.empty() ? ""
                             : absl::StrCat(" (", Cut(refusal.remedy, kMaxMessageBytes / 2), ")");
  return absl::StrCat(Cut(refusal.message, kMaxMessageBytes - remedy.size()), remedy);
}

void FillInfo(const Refusal& refusal, v1::ErrorInfo* info) {
  info->set_reason(Cut(refusal.reason, 128));
  info->set_remedy(Cut(refusal.remedy, kMaxMessageBytes / 2));
  for (const auto& [key, value] : refusal.metadata) {
    (*info->mutable_metadata())[key] = value;
    if (info->ByteSizeLong() > kMaxInfoBytes) info->mutable_metadata()->erase(key);
  }
}

std::string WireInfo(const Refusal& refusal) {
  v1::ErrorInfo info;
  FillInfo(refusal, &info);
  return info.SerializeAsString();
}

// The gRPC library's own failures, in the operator's words.
absl::Status TransportStatus(absl::StatusCode code, const std::string& message,
                             absl::string_view peer) {
  Refusal refusal{code, "", message, "", {}};
  if (code == absl::StatusCode::kUnavailable) {
    const std::string lower = absl::AsciiStrToLower(message);
    const bool tls = absl::StrContains(lower, "handshake") ||
                     absl::StrContains(lower, "certificate") ||
                     absl::StrContains(lower, "hostname verification");
    refusal.reason = "MANAGER_UNREACHABLE";
    refusal.message = absl::StrCat("cannot reach the fabric manager at ", peer, ": ", message);
    refusal.remedy = tls ? "check tls.ca, tls.cert, tls.key and tls.server_name on both sides"
                         : "check that cxlpool-fm runs there, and that both sides use TLS or "
                           "neither";
  } else if (code == absl::StatusCode::kDeadlineExceeded) {
    refusal.reason = "NO_ANSWER";
    refusal.message = absl::StrCat("the fabric manager at ", peer, " has not answered in time");
    refusal.remedy = "try again, or allow more time";
  } else {
    return absl::Status(code, message);
  }
  return refusal.ToStatus();
}

}  // namespace

grpc::Status ToWire(const absl::Status& status, grpc::ServerContextBase& context) {
  if (status.ok()) return grpc::Status::OK;
  const Refusal refusal = RefusalOf(status).value_or(Refusal{});
  if (!refusal.reason.empty()) context.AddTrailingMetadata(kErrorInfoKey, WireInfo(refusal));
  // The two enumerations are the same canonical codes, number by number.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), WireMessage(status, refusal));
}

void FillOutcome(const absl::Status& status, std::string* message, v1::ErrorInfo* info) {
  const Refusal refusal = RefusalOf(status).value_or(Refusal{});
  *message = WireMessage(status, refusal);
  if (!refusal.reason.empty()) FillInfo(refusal, info);
}

absl::Status FromWire(const grpc::Status& status, const grpc::ClientContext& context,
                      absl::string_view peer) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(kErrorInfoKey);
  v1::ErrorInfo info;
  if (found == trailers.end() || found->second.size() > kMaxTakenInfoBytes ||
      !info.ParseFromArray(found->second.data(), static_cast<int>(found->second.size())) ||
      info.reason().empty()) {
    return TransportStatus(code, status.error_message(), peer);
  }
  Refusal refusal{code, info.reason(), "", info.remedy(), {}};
  const std::string suffix = absl::StrCat(" (", info.remedy(), ")");
  refusal.message =
      std::string(absl::StripSuffix(status.error_message(), info.remedy().empty() ? "" : suffix));
  refusal.metadata.assign(info.metadata().begin(), info.metadata().end());
  std::sort(refusal.metadata.begin(), refusal.metadata.end());  // The map has no order.
  return refusal.ToStatus();
}

}  // namespace cxlpool
