#include "tools/cli/render/printable.h"

#include <cstdint>

#include "absl/strings/str_format.h"

namespace cxlpool::cli {
namespace {

bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; }

// Bytes of the well-formed UTF-8 sequence that `in` begins with; 0 if there is none.
size_t Sequence(absl::string_view in) {
  const auto lead = static_cast<uint8_t>(in[0]);
  const size_t size = lead < 0x80   ? 1
                      : lead < 0xc2 ? 0
                      : lead < 0xe0 ? 2
                      : lead < 0xf0 ? 3
                      : lead < 0xf5 ? 4
                                    : 0;
  if (size == 0 || in.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if (!IsContinuation(in[i])) return 0;
  }
  return size;
}

bool IsControl(absl::string_view sequence) {
  const auto lead = static_cast<uint8_t>(sequence[0]);
  if (sequence.size() == 1) return lead < 0x20 || lead == 0x7f;
  return lead == 0xc2 && static_cast<uint8_t>(sequence[1]) < 0xa0;
}

}  // namespace

std::string Printable(absl::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t size = Sequence(text);
    const absl::string_view head = text.substr(0, size == 0 ? 1 : size);
    if (size == 0 || IsControl(head)) {
      for (char c : head) absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint8_t>(c));
    } else {
      out.append(head.data(), head.size());
    }
    text.remove_prefix(head.size());
  }
  return out;
}

size_t Width(absl::string_view text) {
  size_t width = 0;
  for (char c : text) width += IsContinuation(c) ? 0 : 1;
  return width;
}

}  // namespace cxlpool::cli
