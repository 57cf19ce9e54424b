#include "proto/support/names.h"

#include <sys/random.h>

#include <array>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/refusal.h"

namespace cxlpool {
namespace {

constexpr size_t kMaxIdLength = 63;
constexpr size_t kUuidBytes = 16;
constexpr size_t kUuidText = 36;

bool IsLowerOrDigit(char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c); }

std::string Quote(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, 80)), text.size() > 80 ? "..." : "",
                      "\"");
}

absl::Status BadName(absl::string_view name, absl::string_view why, absl::string_view remedy) {
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_NAME",
                absl::StrCat("name ", Quote(name), " ", why), std::string(remedy));
}

bool IsWellFormed(absl::string_view id) {
  bool good = !id.empty() && id.size() <= kMaxIdLength && absl::ascii_islower(id.front()) &&
              IsLowerOrDigit(id.back());
  for (char c : id) good = good && (IsLowerOrDigit(c) || c == '-');
  return good;
}

bool IsDash(size_t i) { return i == 8 || i == 13 || i == 18 || i == 23; }

}  // namespace

absl::Status CheckResourceId(absl::string_view id) {
  if (IsWellFormed(id)) return absl::OkStatus();
  return BadName(id, "is not well formed",
                 "use 1 to 63 of a-z, 0-9 and '-', beginning with a letter and not ending in '-'");
}

// A UUID has to be in lower case, as it is printed: with capitals it would be another name.
absl::Status CheckRegionId(absl::string_view id, bool allow_uuid) {
  if (allow_uuid && id.size() == kUuidText && ParseUuid(id).ok() &&
      absl::AsciiStrToLower(id) == id) {
    return absl::OkStatus();
  }
  const size_t dot = id.find('.');
  if (dot == absl::string_view::npos) return CheckResourceId(id);
  if (id.size() <= kMaxIdLength && IsWellFormed(id.substr(0, dot)) &&
      IsWellFormed(id.substr(dot + 1))) {
    return absl::OkStatus();
  }
  return BadName(id, "is not well formed",
                 "name a Region NAME or TENANT.NAME: 1 to 63 of a-z, 0-9 and '-', each part "
                 "beginning with a letter and not ending in '-'");
}

absl::string_view TenantOfRegionId(absl::string_view id) {
  const size_t dot = id.find('.');
  return dot == absl::string_view::npos ? absl::string_view() : id.substr(0, dot);
}

absl::StatusOr<std::string> ParseResourceName(absl::string_view collection,
                                              absl::string_view name) {
  absl::string_view id = name;
  if (!absl::ConsumePrefix(&id, collection) || !absl::ConsumePrefix(&id, "/")) {
    return BadName(name, absl::StrCat("is not in ", collection),
                   absl::StrCat("write it as ", collection, "/NAME"));
  }
  if (absl::Status status = collection == "regions" ? CheckRegionId(id, true) : CheckResourceId(id);
      !status.ok()) {
    return status;
  }
  return std::string(id);
}

std::string ResourceName(absl::string_view collection, absl::string_view id) {
  return absl::StrCat(collection, "/", id);
}

// Digits of either case; dashes where they belong and nowhere else.
bool ParseUuid(absl::string_view text, Uuid& uuid) {
  if (text.size() != kUuidText) return false;
  std::array<char, kUuidBytes> bytes = {};
  size_t digits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (IsDash(i)) {
      if (c != '-') return false;
      continue;
    }
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return false;
    const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    char& byte = bytes[digits++ / 2];
    byte = static_cast<char>(byte << 4 | digit);
  }
  uuid = Uuid(absl::string_view(bytes.data(), bytes.size()));
  return true;
}

absl::StatusOr<std::string> ParseUuid(absl::string_view text) {
  if (Uuid uuid; ParseUuid(text, uuid)) return uuid.str();
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_UUID",
                absl::StrCat(Quote(text), " is not a UUID"),
                "write 36 characters like 0f8fad5b-d9cb-469f-a165-70867728950e");
}

std::string FormatUuid(absl::string_view bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text(kUuidText, '-');
  size_t at = 0;
  for (const char byte : bytes.substr(0, kUuidBytes)) {
    if (IsDash(at)) ++at;
    text[at++] = kHex[static_cast<unsigned char>(byte) >> 4];
    text[at++] = kHex[byte & 0xf];
  }
  text.resize(at);
  return text;
}

// RFC 4122, version 4. From the kernel, so that no two hosts or restarts make the same one.
std::string RandomUuid() {
  // 64 at a time: a system call would cost more than all the rest of making one.
  thread_local std::array<char, 64 * kUuidBytes> pool;
  thread_local size_t used = pool.size();
  if (used == pool.size()) {
    size_t have = 0;
    while (have < pool.size()) {
      const ssize_t got = getrandom(pool.data() + have, pool.size() - have, 0);
      if (got > 0) have += static_cast<size_t>(got);
    }
    used = 0;
  }
  std::string bytes(pool.data() + used, kUuidBytes);
  used += kUuidBytes;
  bytes[6] = static_cast<char>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<char>((bytes[8] & 0x3f) | 0x80);
  return bytes;
}

}  // namespace cxlpool
