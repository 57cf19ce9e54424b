#include "proto/support/byte_size.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/refusal.h"

namespace cxlpool {

// "4G", "4GB" and "4GiB" are the same. A fraction of a unit is rounded up to whole bytes.
absl::StatusOr<uint64_t> ParseByteSize(absl::string_view text) {
  const auto bad = [&] {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_SIZE",
                  absl::StrCat("\"", text.substr(0, 40), "\" is not a size in whole bytes"),
                  "write bytes or a number with K, M, G or T (powers of 1024), like 512MiB");
  };
  absl::string_view number = absl::StripAsciiWhitespace(text);
  size_t end = 0;
  while (end < number.size() && (absl::ascii_isdigit(number[end]) || number[end] == '.')) ++end;
  const std::string unit = absl::AsciiStrToUpper(absl::StripAsciiWhitespace(number.substr(end)));
  number = number.substr(0, end);
  int shift = 0;
  if (!unit.empty() && unit != "B") {
    const size_t power = absl::string_view("KMGTP").find(unit[0]);
    const absl::string_view rest = absl::string_view(unit).substr(1);
    if (power == absl::string_view::npos || !(rest.empty() || rest == "B" || rest == "IB")) {
      return bad();
    }
    shift = static_cast<int>(power + 1) * 10;
  }
  uint64_t whole = 0;
  if (absl::SimpleAtoi(number, &whole)) {
    if (shift > 0 && whole > (UINT64_MAX >> shift)) return bad();
    return whole << shift;
  }
  double fraction = 0;
  if (!absl::SimpleAtod(number, &fraction)) return bad();
  if (shift == 0) return bad();  // There is no part of a byte.
  const double bytes = std::ceil(std::ldexp(fraction, shift));
  if (bytes >= 9e18) return bad();
  return static_cast<uint64_t>(bytes);
}

std::string FormatByteSize(uint64_t bytes) {
  // Unit n is 2^(10 n) bytes.
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (unit < 5 && bytes >> (10 * (unit + 1)) != 0) ++unit;
  const uint64_t scale = uint64_t{1} << (10 * unit);
  // Below 2^60: it cannot overflow.
  const uint64_t part = bytes % scale * 1000;
  const bool exact = part % scale == 0;
  const uint64_t thousandths = (part + scale / 2) / scale;
  std::string number = absl::StrCat(bytes / scale + thousandths / 1000);
  if (thousandths % 1000 != 0) {
    absl::StrAppendFormat(&number, ".%03d", thousandths % 1000);
    number.erase(number.find_last_not_of('0') + 1);
  }
  return absl::StrCat(exact ? "" : "~", number, " ", kUnits[unit]);
}

}  // namespace cxlpool
