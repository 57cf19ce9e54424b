#include "libpool/src/region_name.h"

#include <sys/random.h>

#include <algorithm>
#include <array>

#include "libpool/src/text.h"

namespace cxlpool::libpool {
namespace {

constexpr std::string_view kCollection = "regions/";
constexpr size_t kMaxId = 63;
constexpr size_t kQuoted = 80;
constexpr size_t kUuidText = 36;

bool IsDash(size_t i) { return i == 8 || i == 13 || i == 18 || i == 23; }

// The dot is that of TENANT.NAME.
bool IsIdCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
}

// What a terminal can show of what a caller gave.
std::string Quoted(std::string_view text) {
  std::string quoted(text.substr(0, kQuoted));
  std::replace_if(
      quoted.begin(), quoted.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return quoted;
}

// A random (version 4) UUID (RFC 9562, section 5.4), from the kernel.
StatusOr<std::string> NewUuid() {
  std::array<unsigned char, 16> bytes;
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return Refuse(Code::kInternal, "NO_RANDOM", "the kernel gave no random bytes",
                  "let the seccomp filter pass getrandom");
  }
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3f) | 0x80);
  std::string text;
  for (const unsigned char byte : bytes) {
    if (IsDash(text.size())) text += '-';
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace

StatusOr<std::string> RegionIdOf(std::string_view name) {
  const std::string_view id =
      name.starts_with(kCollection) ? name.substr(kCollection.size()) : name;
  if (!id.empty() && id.size() <= kMaxId && std::all_of(id.begin(), id.end(), IsIdCharacter)) {
    return std::string(id);
  }
  return Refuse(Code::kInvalidArgument, "BAD_NAME",
                Concat("'", Quoted(name), "' is no Region's name"),
                "name a Region NAME or TENANT.NAME: 1 to 63 of a-z, 0-9 and '-', each part "
                "beginning with a letter and not ending in '-'");
}

StatusOr<std::string> RegionNameOf(std::string_view name) {
  StatusOr<std::string> id = RegionIdOf(name);
  if (!id.ok()) return id;
  return Concat(kCollection, *id);
}

StatusOr<std::string> RequestIdOf(std::string_view given) {
  if (given.empty()) return NewUuid();
  std::string id(given);
  bool is_uuid = id.size() == kUuidText;
  for (size_t i = 0; is_uuid && i < id.size(); ++i) {
    char& c = id[i];
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
    is_uuid = IsDash(i) ? c == '-' : (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  }
  if (is_uuid) return id;
  return BadArgument("request_id is no UUID", "give 36 characters, as `uuidgen` writes them");
}

}  // namespace cxlpool::libpool
