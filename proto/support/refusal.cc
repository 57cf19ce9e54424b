#include "proto/support/refusal.h"

#include <cstdint>
#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace cxlpool {
namespace {

constexpr char kPayloadUrl[] = "cxlpool.v1/refusal";

// Fields as length and bytes, one after another: reason, message, remedy, then key and value of
// each metadata pair. Private to this file and to one process.
using Length = uint64_t;

void Append(std::string& out, absl::string_view field) {
  const Length length = field.size();
  out.append(reinterpret_cast<const char*>(&length), sizeof(length));
  out.append(field.data(), field.size());
}

bool Take(absl::string_view& in, absl::string_view& field) {
  Length length = 0;
  if (in.size() < sizeof(length)) return false;
  std::memcpy(&length, in.data(), sizeof(length));
  in.remove_prefix(sizeof(length));
  if (in.size() < length) return false;
  field = in.substr(0, length);
  in.remove_prefix(length);
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
  payload.reserve(size + (3 + 2 * metadata.size()) * sizeof(Length));
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
