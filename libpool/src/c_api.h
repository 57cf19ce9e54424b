// What the functions of cxlpool.h have in common: handles that several files use, options and
// structs that begin with their size, errors. No exception leaves Run.
//
// Pure functions, any thread.
#ifndef CXLPOOL_LIBPOOL_SRC_C_API_H_
#define CXLPOOL_LIBPOOL_SRC_C_API_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string_view>

#include "cxlpool/cxlpool.h"
#include "libpool/src/map.h"
#include "libpool/src/status.h"
#include "libpool/src/text.h"

struct cxlpool_map {
  // A copy that is under way keeps it after the handle is gone.
  std::shared_ptr<cxlpool::libpool::Map> map;
};

namespace cxlpool::libpool {

// Text as an array of the caller's, cut where it is longer; never within a character.
template <size_t size>
void CopyText(std::string_view text, char (&to)[size]) {
  size_t length = std::min(text.size(), size - 1);
  while (length < text.size() && length > 0 && (text[length] & 0xc0) == 0x80) --length;
  std::memcpy(to, text.data(), length);
  std::memset(to + length, 0, size - length);
}

// As much of `from` as the caller knows of: its struct begins with the size that it has there.
template <typename Struct>
void CopyOut(Struct from, Struct* to) {
  const size_t size = std::min<size_t>(to->size, sizeof from);
  from.size = to->size;
  std::memcpy(to, &from, size);
}

// The caller's options over the defaults. INVALID_ARGUMENT/BAD_ARGUMENT: they were never
// initialised, or ask for what this library does not know.
template <typename Options>
StatusOr<Options> Read(const Options* given, Options defaults) {
  if (given == nullptr) return defaults;
  const size_t size = given->size;
  if (size < sizeof(size_t)) {
    return BadArgument("the options do not begin with their size",
                       "initialise them with their ..._INIT");
  }
  const auto* const bytes = reinterpret_cast<const char*>(given);
  for (size_t i = sizeof defaults; i < size; ++i) {
    if (bytes[i] == 0) continue;
    return BadArgument("the options ask for what this libcxlpool does not know",
                       "install the libcxlpool that the program was compiled for");
  }
  std::memcpy(&defaults, given, std::min(size, sizeof defaults));
  return defaults;
}

// Fills the caller's error and returns `code`. Needs no memory.
inline int Fill(int code, int sys_errno, std::string_view reason, std::string_view message,
                std::string_view remedy, cxlpool_error* error) {
  if (error == nullptr || error->size < sizeof(uint32_t)) return code;
  cxlpool_error filled = CXLPOOL_ERROR_INIT;
  filled.code = code;
  filled.sys_errno = sys_errno;
  CopyText(reason, filled.reason);
  CopyText(message, filled.message);
  CopyText(remedy, filled.remedy);
  CopyOut(filled, error);
  return code;
}

inline int Answer(const Status& status, cxlpool_error* error) {
  if (status.ok()) return CXLPOOL_OK;
  const Failure& failure = status.failure();
  return Fill(static_cast<int>(failure.code), failure.sys_errno, failure.reason, failure.message,
              failure.remedy, error);
}

// Runs a call, which answers a Status.
template <typename Call>
int Run(cxlpool_error* error, const Call& call) {
  try {
    return Answer(call(), error);
  } catch (const std::bad_alloc&) {
    return Fill(CXLPOOL_RESOURCE_EXHAUSTED, 0, "NO_MEMORY", "this process has no memory left",
                "free some, or raise its limit (ulimit -v)", error);
  } catch (const std::exception& exception) {
    return Answer(Refuse(Code::kInternal, "UNEXPECTED", exception.what(),
                         "report this as a defect of libcxlpool"),
                  error);
  }
}

inline Status NotGiven(std::string_view what) {
  return BadArgument(Concat(what, " is NULL"), "give one");
}

inline std::string_view TextOf(const char* text) { return text == nullptr ? "" : text; }

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_C_API_H_
