// Texts for people and for string fields of messages: what other programs wrote, made fit for one,
// and times.
#ifndef CXLPOOL_PROTO_SUPPORT_TEXT_H_
#define CXLPOOL_PROTO_SUPPORT_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cxlpool {

// The beginning of `text`, of at most `max_bytes`, and never half a UTF-8 character: a string field
// of a message that ends in half of one makes the whole message unreadable for everybody.
std::string CutText(absl::string_view text, size_t max_bytes);

// `text` with a '?' for each byte that is no part of a UTF-8 character: a message with such a
// string cannot be read again.
std::string Utf8Text(absl::string_view text);
void MakeUtf8(std::string& text);  // The same in place.

// "2026-11-26T22:10:15Z" (RFC 3339, whole seconds).
std::string UtcText(absl::Time time);

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_TEXT_H_
