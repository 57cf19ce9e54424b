#include "proto/support/refusal.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace cxlpool {
namespace {

constexpr char kPayloadUrl[] = "cxlpool.v1/refusal";

// In order, each once: the build makes it of docs/errors.md.
constexpr absl::string_view kReasons[] = {
#include "reasons.inc"
};

// Fields, each with a bar behind it: reason, message, remedy, then key and value of each metadata
// pair. A bar in a field is written "%7C", a percent sign "%25". Text, because printing a Status
// prints its payload. Private to this file and to one process.
constexpr char kBar = '|';

void Append(std::string& out, absl::string_view field) {
  if (field.find(kBar) == absl::string_view::npos && field.find('%') == absl::string_view::npos) {
    absl::StrAppend(&out, field);  // Nothing to escape, as nearly always.
  } else {
    out += absl::StrReplaceAll(field, {{"|", "%7C"}, {"%", "%25"}});
  }
  out += kBar;
}

bool Take(absl::string_view& in, std::string& field) {
  const size_t end = in.find(kBar);
  if (end == absl::string_view::npos) return false;
  absl::string_view rest = in.substr(0, end);
  field.clear();
  while (true) {
    const size_t escape = rest.find('%');
    absl::StrAppend(&field, rest.substr(0, escape));
    if (escape == absl::string_view::npos || escape + 2 >= rest.size()) break;
    field += rest[escape + 1] == '7' ? kBar : '%';
    rest.remove_prefix(escape + 3);
  }
  in.remove_prefix(end + 1);
  return true;
}

}  // namespace

absl::Status Refusal::ToStatus() const {
  absl::Status status(code, remedy.empty() ? message : absl::StrCat(message, " (", remedy, ")"));
  std::string payload;
  size_t size = reason.size() + message.size() + remedy.size() + 3;
  for (const auto& [key, value] : metadata) size += key.size() + value.size() + 2;
  payload.reserve(size);
  for (const std::string* field : {&reason, &message, &remedy}) Append(payload, *field);
  for (const auto& [key, value] : metadata) {
    Append(payload, key);
    Append(payload, value);
  }
  status.SetPayload(kPayloadUrl, absl::Cord(payload));
  return status;
}

absl::Status Refuse(absl::StatusCode code, std::string reason, std::string message,
                    std::string remedy, std::vector<std::pair<std::string, std::string>> metadata) {
  return Refusal{code, std::move(reason), std::move(message), std::move(remedy),
                 std::move(metadata)}
      .ToStatus();
}

absl::Status FailedPrecondition(std::string reason, std::string message, std::string remedy) {
  return Refuse(absl::StatusCode::kFailedPrecondition, std::move(reason), std::move(message),
                std::move(remedy));
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
    std::string reason;
    return Take(in, reason) ? reason : "";
  }
  const auto refusal = RefusalOf(status);
  return refusal.has_value() ? refusal->reason : "";
}

bool IsReason(absl::string_view text) {
  return std::binary_search(std::begin(kReasons), std::end(kReasons), text);
}

}  // namespace cxlpool
