#include "proto/support/status_wire.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cxlpool/v1/resources.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "proto/support/refusal.h"
#include "proto/support/text.h"

namespace cxlpool {
namespace {

// Together, with the reason before the message, less than the 8 KiB of trailers that a peer takes,
// also where it wants binary values in base64.
constexpr size_t kMaxMessageBytes = 2048;  // As it is sent: other than plain ASCII is %XX.
constexpr size_t kMaxReasonBytes = 128;
constexpr size_t kMaxInfoBytes = 2816;
constexpr size_t kMaxDetailsBytes = 1536;
constexpr size_t kMaxTakenInfoBytes = 16384;  // From a peer.

size_t SentBytes(unsigned char c) { return c >= 0x20 && c < 0x7f && c != '%' ? 1 : 3; }

size_t SentBytes(absl::string_view text) {
  size_t size = 0;
  for (const char c : text) size += SentBytes(static_cast<unsigned char>(c));
  return size;
}

// The beginning of `text` that is sent as at most `limit` bytes, "..." included where it is cut.
std::string Cut(absl::string_view text, size_t limit) {
  if (SentBytes(text) <= limit) return std::string(text);
  size_t end = 0;
  for (size_t size = 3; end < text.size(); ++end) {
    size += SentBytes(static_cast<unsigned char>(text[end]));
    if (size > limit) break;
  }
  return absl::StrCat(CutText(text, end), "...");
}

// What stands before the message of a call's status: tools that do not know our details, or print
// them in base64, show the message, and so the reason.
std::string ReasonPrefix(absl::string_view reason) {
  return reason.empty() ? "" : absl::StrCat(Cut(reason, kMaxReasonBytes), ": ");
}

std::string WireMessage(const absl::Status& status, const Refusal& refusal) {
  if (refusal.reason.empty()) return Cut(status.message(), kMaxMessageBytes);
  const std::string remedy =
      refusal.remedy.empty() ? ""
                             : absl::StrCat(" (", Cut(refusal.remedy, kMaxMessageBytes / 2), ")");
  return absl::StrCat(Cut(refusal.message, kMaxMessageBytes - SentBytes(remedy)), remedy);
}

// Adds what fits of the refusal's metadata, so that `info` is no larger than `limit`.
template <typename Info>
void FillMetadata(const Refusal& refusal, size_t limit, Info* info) {
  for (const auto& [key, value] : refusal.metadata) {
    (*info->mutable_metadata())[key] = value;
    if (info->ByteSizeLong() > limit) info->mutable_metadata()->erase(key);
  }
}

void FillInfo(const Refusal& refusal, v1::ErrorInfo* info) {
  info->set_reason(Cut(refusal.reason, kMaxReasonBytes));
  info->set_remedy(Cut(refusal.remedy, kMaxMessageBytes / 2));
  FillMetadata(refusal, kMaxInfoBytes, info);
}

std::string WireInfo(const Refusal& refusal) {
  v1::ErrorInfo info;
  FillInfo(refusal, &info);
  return info.SerializeAsString();
}

// The same for tools that know gRPC's standard details only: google.rpc.Status with an ErrorInfo.
std::string WireDetails(const absl::Status& status, const std::string& message,
                        const Refusal& refusal) {
  google::rpc::ErrorInfo info;
  info.set_reason(Cut(refusal.reason, kMaxReasonBytes));
  info.set_domain("cxlpool");
  const size_t rest = kMaxDetailsBytes - std::min<size_t>(message.size(), 1024) - 128;
  FillMetadata({status.code(), "", "", "", {{"remedy", refusal.remedy}}}, rest, &info);
  FillMetadata(refusal, rest, &info);
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(message.size() <= 1024 ? message : Cut(message, 1024));
  details.add_details()->PackFrom(info);
  return details.SerializeAsString();
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
  const std::string message = ReasonPrefix(refusal.reason) + WireMessage(status, refusal);
  if (!refusal.reason.empty()) {
    context.AddTrailingMetadata(kErrorInfoKey, WireInfo(refusal));
    context.AddTrailingMetadata(kDetailsKey, WireDetails(status, message, refusal));
  }
  // The two enumerations are the same canonical codes, number by number.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message);
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
  // The Refusal has both in fields of its own, and they are not shown twice.
  const std::string prefix = ReasonPrefix(info.reason());
  const std::string suffix = info.remedy().empty() ? "" : absl::StrCat(" (", info.remedy(), ")");
  refusal.message =
      std::string(absl::StripSuffix(absl::StripPrefix(status.error_message(), prefix), suffix));
  refusal.metadata.assign(info.metadata().begin(), info.metadata().end());
  std::sort(refusal.metadata.begin(), refusal.metadata.end());  // The map has no order.
  return refusal.ToStatus();
}

}  // namespace cxlpool
