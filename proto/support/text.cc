#include "proto/support/text.h"

#include <algorithm>

#include "proto/support/mutant.h"

namespace cxlpool {
namespace {

// How many bytes the character that `in` begins with has in UTF-8; 0: it is none (RFC 3629, which
// leaves out surrogates, what is beyond U+10FFFF, and characters that are longer than they need
// be).
size_t CharacterBytes(absl::string_view in) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(in[i]); };
  const unsigned char first = byte(0);
  const size_t size = first < 0x80   ? 1
                      : first < 0xc2 ? 0
                      : first < 0xe0 ? 2
                      : first < 0xf0 ? 3
                      : first < 0xf5 ? 4
                                     : 0;
  if (size > in.size()) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool no_character =
      size > 2 && ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f) ||
                   (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f));
  return no_character ? 0 : size;
}

}  // namespace

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

std::string Utf8Text(absl::string_view text) {
  std::string out(text);
  MakeUtf8(out);
  return out;
}

void MakeUtf8(std::string& text) {
  char any = 0;
  for (const char c : text) any = static_cast<char>(any | c);
  if (static_cast<unsigned char>(any) < 0x80) return;
  for (size_t at = 0; at < text.size();) {
    const size_t size = CharacterBytes(absl::string_view(text).substr(at));
    if (size == 0) text[at] = '?';
    at += std::max<size_t>(size, 1);
  }
}

std::string UtcText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

}  // namespace cxlpool
