#include "libpool/examples/outcome.h"

#include <cinttypes>
#include <cstdio>
#include <thread>

namespace cxlpool::examples {

double Stopwatch::Seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

int Refuse(const char* program, const Error& error) {
  std::fprintf(stderr, "%s: %s\n", program, error.text().c_str());
  return kRefused;
}

void PrintRate(const char* what, uint64_t bytes, const std::string& where, double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(bytes) / seconds / 1e6 : 0;
  std::printf("%s %" PRIu64 " bytes of %s in %.3f s (%.1f MB/s)\n", what, bytes, where.c_str(),
              seconds, rate);
  std::fflush(stdout);
}

int Judge(const char* program, const Mismatches& mismatches, uint64_t bytes) {
  if (mismatches.words == 0) return kOk;
  std::fprintf(stderr,
               "%s: %" PRIu64 " of %" PRIu64 " words differ; the first at byte %" PRIu64
               " is %016" PRIx64 " and should be %016" PRIx64 "\n",
               program, mismatches.words, bytes / sizeof(uint64_t), mismatches.first_offset,
               mismatches.found, mismatches.expected);
  return kMismatch;
}

void HoldFor(double seconds) {
  if (seconds <= 0) return;
  std::printf("holding for %g s\n", seconds);
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace cxlpool::examples
