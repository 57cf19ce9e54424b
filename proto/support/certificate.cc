#include "proto/support/certificate.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/refusal.h"

namespace cxlpool {

bool HasDnsName(const CertificateFacts& facts, absl::string_view name) {
  for (const std::string& dns : facts.dns) {
    if (absl::EqualsIgnoreCase(dns, name)) return true;
    const size_t dot = name.find('.');
    if (absl::StartsWith(dns, "*.") && dot != absl::string_view::npos && dot > 0 &&
        absl::EqualsIgnoreCase(absl::string_view(dns).substr(1), name.substr(dot))) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<std::string> CanonicalSerial(absl::string_view text) {
  constexpr size_t kMaxSerialBytes = 20;
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, "0x")) absl::ConsumePrefix(&rest, "0X");
  std::string digits;
  bool good = true;
  for (const char c : rest) {
    if (c == ':') continue;
    good = good && absl::ascii_isxdigit(static_cast<unsigned char>(c));
    if (!digits.empty() || c != '0') digits += absl::ascii_tolower(static_cast<unsigned char>(c));
  }
  if (good && !digits.empty() && digits.size() <= 2 * kMaxSerialBytes) return digits;
  return Refuse(
      absl::StatusCode::kInvalidArgument, "BAD_SERIAL_NUMBER",
      absl::StrCat("\"", text.substr(0, 64), "\" is not the serial number of a certificate"),
      "give up to 40 hexadecimal digits, as `cxlpool pki show FILE` prints them");
}

std::string DateText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone());
}

std::string EndText(const CertificateFacts& facts, absl::Time now) {
  if (facts.ExpiredAt(now)) return absl::StrCat("EXPIRED on ", DateText(facts.not_after));
  const absl::Duration left = facts.not_after - now;
  const int64_t days = absl::ToInt64Hours(left) / 24, hours = absl::ToInt64Hours(left);
  return absl::StrCat("ends on ", DateText(facts.not_after), ", in ",
                      days > 1 ? absl::StrCat(days, " days") : absl::StrCat(hours, " hours"));
}

}  // namespace cxlpool
