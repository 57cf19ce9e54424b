#include "proto/support/check.h"

#include <cstdlib>
#include <cstring>

#include "proto/support/log.h"

namespace cxlpool {
namespace {

// A source as git names it: the compiler knows the whole path, of this file too.
absl::string_view PathInRepository(absl::string_view file) {
  constexpr absl::string_view kThis = "proto/support/check.cc";
  const absl::string_view mine = __FILE__;
  const absl::string_view root = mine.substr(0, mine.size() - kThis.size());
  return file.substr(0, root.size()) == root ? file.substr(root.size()) : file;
}

}  // namespace

void CheckFailed(const char* file, int line, absl::string_view condition,
                 absl::string_view message) {
  LogError("check", PathInRepository(file), ":", line, ": ", message,
           "; this must hold: ", condition);
  std::abort();
}

}  // namespace cxlpool
