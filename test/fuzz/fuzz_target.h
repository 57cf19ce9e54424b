// The frame of the fuzzers of what others send us. A parser's target is one source and one folder:
//
//   test/fuzz/NAME_fuzz.cc     CXLPOOL_FUZZ(NAME) { ... bytes ... Require(what must hold); }
//   test/fuzz/testdata/NAME    inputs that it begins with, and every one that once made it fail
//
// and its name in CMakeLists.txt. The sanitizers see reads out of bounds, leaks and undefined
// behaviour. The target itself says what must hold of whatever was read: mostly that it is what
// one reads again of what is printed of it.
//
// In the preset `fuzz` all targets are one program of libFuzzer (fuzz_main.cc). Everywhere else
// they are one test, which gives each what is in its folder (replay_test.cc).
#ifndef CXLPOOL_TEST_FUZZ_FUZZ_TARGET_H_
#define CXLPOOL_TEST_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace cxlpool::fuzz {

using Target = void (*)(const std::string& bytes);

// All that this program has, by name.
inline std::map<std::string, Target>& Targets() {
  static auto* const targets = new std::map<std::string, Target>;
  return *targets;
}

// Ends the program, and says where, if a promise does not hold.
inline void Require(bool holds, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%d: what must hold does not\n", file, line);
  std::abort();
}

// Takes the first line off the front of `bytes`: for targets that need several inputs.
inline std::string TakeLine(std::string& bytes) {
  const size_t end = bytes.find('\n');
  std::string line = bytes.substr(0, end);
  bytes.erase(0, end == std::string::npos ? end : end + 1);
  return line;
}

}  // namespace cxlpool::fuzz

#define CXLPOOL_FUZZ(name)                                                                        \
  static void Fuzz_##name(const std::string& bytes);                                              \
  static const bool kFuzz_##name = ::cxlpool::fuzz::Targets().emplace(#name, Fuzz_##name).second; \
  static void Fuzz_##name(const std::string& bytes)

#endif  // CXLPOOL_TEST_FUZZ_FUZZ_TARGET_H_
