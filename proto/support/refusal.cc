#include "proto/support/refusal.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace cxlpool {
namespace {

constexpr char kPayloadUrl[] = "cxlpool.v1/refusal";

// Fields as "<length>:<bytes>", one after another: reason, message, remedy, then key and value
// of each metadata pair. Private to this file.
void Append(std::string& out, absl::string_view field) {
  const absl::AlphaNum size(field.size());
  out.append(size.data(), size.size());
  out.push_back(':');
  out.append(field.data(), field.size());
}
constexpr size_t kMostBeforeField = 8;  // Of fields of sizes that there are.

bool Take(absl::string_view& in, absl::string_view& field) {
  const size_t colon = in.find(':');
  size_t size = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(in.substr(0, colon), &size) ||
      in.size() - colon - 1 < size) {
    return false;
  }
  field = in.substr(colon + 1, size);
  in.remove_prefix(colon + 1 + size);
  return true;
}

bool Take(absl::string_view& in, std::string& field) {
  absl::string_view view;
  if (!Take(in, view)) return false;
  field = std::string(view);
  return true;
}

}  // namespace

absl::Status Refusal::ToStatus() const {
  absl::Status status(code, remedy.empty() ? message : absl::StrCat(message, " (", remedy, ")"));
  std::string payload;
  size_t size = reason.size() + message.size() + remedy.size();
  for (const auto& [key, value] : metadata) size += key.size() + value.size();
  payload.reserve(size + (3 + 2 * metadata.size()) * kMostBeforeField);
  for (const std::string* field : {&reason, &message, &remedy}) Append(payload, *field);
  for (const auto& [key, value] : metadata) {
    Append(payload, key);
    Append(payload, value);
  }
  status.SetPayload(kPayloadUrl, absl::Cord(payload));
  return status;
}

std::optional<Refusal> RefusalOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayloadUrl);
  if (!payload.has_value()) return std::nullopt;
  const std::string bytes(*payload);
  absl::string_view in(bytes);
  Refusal refusal;
  refusal.code = status.code();
  if (!Take(in, refusal.reason) || !Take(in, refusal.message) || !Take(in, refusal.remedy)) {
    return std::nullopt;
  }
  std::string key, value;
  while (!in.empty()) {
    if (!Take(in, key) || !Take(in, value)) return std::nullopt;
    refusal.metadata.emplace_back(key, value);
  }
  return refusal;
}

std::string ReasonOf(const absl::Status& status) {
  if (status.ok()) return "";
  const auto payload = status.GetPayload(kPayloadUrl);
  if (!payload.has_value()) return "";
  // Asked for often, and the first field.
  if (const auto flat = payload->TryFlat()) {
    absl::string_view in = *flat;
    absl::string_view reason;
    return Take(in, reason) ? std::string(reason) : "";
  }
  const auto refusal = RefusalOf(status);
  return refusal.has_value() ? refusal->reason : "";
}

}  // namespace cxlpool
