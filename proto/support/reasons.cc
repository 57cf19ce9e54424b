#include <algorithm>
#include <array>
#include <iterator>

#include "absl/strings/string_view.h"
#include "proto/support/refusal.h"

namespace cxlpool {
namespace {

// In order, each once: the build makes it of docs/errors.md.
constexpr absl::string_view kReasons[] = {
#include "reasons.inc"
};

}  // namespace

bool IsReason(absl::string_view text) {
  return std::binary_search(std::begin(kReasons), std::end(kReasons), text);
}

}  // namespace cxlpool
