#include "tools/cli/sizes.h"

#include "absl/strings/str_cat.h"

namespace cxlpool::cli {
namespace {

// Unit n is 2^(10 n) bytes.
constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
constexpr int kLargest = 5;

}  // namespace

std::string FormatSize(uint64_t bytes) {
  for (int unit = kLargest; unit > 0; --unit) {
    const uint64_t scale = uint64_t{1} << (10 * unit);
    const uint64_t whole = bytes / scale;
    const uint64_t rest = bytes % scale;
    if (whole == 0) continue;
    if (rest == 0) return absl::StrCat(whole, " ", kUnits[unit]);
    // What two decimals show exactly of a power of two are its quarters.
    if (whole >= 1024 || rest % (scale / 4) != 0) continue;
    const char* const decimals[] = {"", ".25", ".5", ".75"};
    return absl::StrCat(whole, decimals[rest / (scale / 4)], " ", kUnits[unit]);
  }
  return absl::StrCat(bytes, " B");
}

}  // namespace cxlpool::cli
