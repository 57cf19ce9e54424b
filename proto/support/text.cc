#include "proto/support/text.h"

#include "proto/support/mutant.h"

namespace cxlpool {

std::string CutText(absl::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = max_bytes;
  // A byte 10xxxxxx goes on with the character before it.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80 &&
         !CXLPOOL_MUTANT("cut-by-bytes")) {
    --end;
  }
  return std::string(text.substr(0, end));
}

}  // namespace cxlpool
