// How the example programs end, and what they print on the way.
#ifndef CXLPOOL_LIBPOOL_EXAMPLES_OUTCOME_H_
#define CXLPOOL_LIBPOOL_EXAMPLES_OUTCOME_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "cxlpool/pool.h"
#include "libpool/examples/pattern.h"

namespace cxlpool::examples {

// Exit codes.
inline constexpr int kOk = 0;
inline constexpr int kMismatch = 1;  // Bytes, or pages, are not as they should be.
inline constexpr int kUsage = 2;
inline constexpr int kRefused = 3;  // The pool, the agent or the kernel said no.

inline constexpr char kExitCodes[] =
    "Exit codes: 0 ok, 1 bytes or pages are not as expected, 2 usage, 3 refused.";

// The value of a flag that has seconds.
inline std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// What is wrong with a number of bytes for CLI11, which has read it: the pattern is made of words,
// and what is behind the last whole one would neither be written nor verified.
inline std::string CheckWholeWords(const std::string& bytes) {
  return std::stoull(bytes) % sizeof(uint64_t) == 0 ? "" : "give a multiple of 8";
}

class Stopwatch {
 public:
  double Seconds() const;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// "pool-write: " and the error on stderr. Returns kRefused.
int Refuse(const char* program, const Error& error);

// "<what> 536870912 bytes of regions/kv in 3.400 s (157.9 MB/s)" on stdout.
void PrintRate(const char* what, uint64_t bytes, const std::string& where, double seconds);

// Says on stderr what differs, if something does. Returns kOk or kMismatch.
int Judge(const char* program, const Mismatches& mismatches, uint64_t bytes);

// Says that it holds, then sleeps. 0 seconds: neither.
void HoldFor(double seconds);

}  // namespace cxlpool::examples

#endif  // CXLPOOL_LIBPOOL_EXAMPLES_OUTCOME_H_
