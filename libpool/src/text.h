// Text for people and names, made without a stream.
#ifndef CXLPOOL_LIBPOOL_SRC_TEXT_H_
#define CXLPOOL_LIBPOOL_SRC_TEXT_H_

#include <concepts>
#include <string>
#include <string_view>

namespace cxlpool::libpool {

inline void AppendTo(std::string& text, std::string_view part) { text += part; }

template <std::integral Number>
requires(!std::same_as<Number, char> &&
         !std::same_as<Number, bool>) void AppendTo(std::string& text, Number number) {
  text += std::to_string(number);
}

// Strings and whole numbers, one after the other.
template <typename... Parts>
std::string Concat(const Parts&... parts) {
  std::string text;
  (AppendTo(text, parts), ...);
  return text;
}

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_TEXT_H_
