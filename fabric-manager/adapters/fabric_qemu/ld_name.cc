#include "fabric-manager/adapters/fabric_qemu/ld_name.h"

#include <cstring>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/support/names.h"

namespace cxlpool::fm {
namespace {

constexpr char kPrefix[] = "ld-";
constexpr size_t kUuidText = 36;

}  // namespace

std::string LdDeviceId(const LdKey& key) {
  return absl::StrCat(kPrefix, key.tag, "-", key.extent_index, "-", key.generation);
}

std::string LdBackendId(const LdKey& key, uint64_t nonce) {
  return absl::StrCat("be-", key.tag, "-", key.extent_index, "-", key.generation, "-",
                      absl::Hex(nonce, absl::kZeroPad16));
}

std::optional<LdKey> ParseLdDeviceId(absl::string_view id, absl::string_view host) {
  absl::string_view rest = id;
  if (!absl::ConsumePrefix(&rest, kPrefix) || rest.size() < kUuidText) return std::nullopt;
  const absl::string_view tag = rest.substr(0, kUuidText);
  const auto uuid = ParseUuid(tag);
  if (!uuid.ok() || FormatUuid(*uuid) != tag) return std::nullopt;
  const std::vector<absl::string_view> numbers = absl::StrSplit(rest.substr(kUuidText), '-');
  LdKey key{.host = std::string(host), .tag = std::string(tag), .generation = 0, .extent_index = 0};
  if (numbers.size() != 3 || !absl::SimpleAtoi(numbers[1], &key.extent_index) ||
      !absl::SimpleAtoi(numbers[2], &key.generation)) {
    return std::nullopt;
  }
  // Leading zeros, signs and spaces were not written by us.
  if (LdDeviceId(key) != id) return std::nullopt;
  return key;
}

std::optional<LdKey> ParseLdBackendId(absl::string_view id, absl::string_view host) {
  const size_t nonce = id.rfind('-');
  if (nonce == absl::string_view::npos || !absl::ConsumePrefix(&id, "be-")) return std::nullopt;
  return ParseLdDeviceId(absl::StrCat(kPrefix, id.substr(0, nonce - std::strlen("be-"))), host);
}

}  // namespace cxlpool::fm
