// bench-scrub: how fast an agent flushes and clears bytes of a shared device, beside the fastest
// way in which this machine clears memory at all. docs/performance.md says how it measures.
//
// On memory of a file that no disk has, mapped shared as a DAX device is. What is set beside it
// does not flush.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "host-agent/support/device_memory.h"
#include "tools/benches/bench_main.h"
#include "tools/benches/rounds.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cxlpool::bench {
namespace {

constexpr size_t kBytes = size_t{256} << 20;  // More than any cache has.
constexpr double kTarget = 0.9;

#if defined(__x86_64__)
void ClearByString(char* at, size_t size) {
  asm volatile("rep stosb" : "+D"(at), "+c"(size) : "a"(0) : "memory");
}

void ClearAroundCaches(char* at, size_t size) {
  const __m128i zero = _mm_setzero_si128();
  for (const char* const end = at + size; at < end; at += 64) {
    auto* const line = reinterpret_cast<__m128i*>(at);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(line + i, zero);
  }
  _mm_sfence();
}

__attribute__((target("avx2"))) void ClearAroundCachesByHalves(char* at, size_t size) {
  const __m256i zero = _mm256_setzero_si256();
  for (const char* const end = at + size; at < end; at += sizeof(zero)) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(at), zero);
  }
  _mm_sfence();
}
#endif

class Mapping {
 public:
  Mapping() {
    const int fd = ::memfd_create("cxlpool-bench-scrub", MFD_CLOEXEC);
    if (fd < 0) return;
    if (::ftruncate(fd, kBytes) == 0) {
      void* at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
      if (at != MAP_FAILED) at_ = static_cast<char*>(at);
    }
    ::close(fd);
  }
  ~Mapping() {
    if (at_ != nullptr) ::munmap(at_, kBytes);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  char* at() const { return at_; }

 private:
  char* at_ = nullptr;
};

using Work = std::function<void(char*, size_t)>;

// GB a second, for as long as `measured`; every byte is dirty before each pass where `dirty`.
double Speed(char* at, absl::Duration measured, bool dirty, const Work& work) {
  absl::Duration spent;
  double bytes = 0;
  while (spent < measured) {
    if (dirty) std::memset(at, 1, kBytes);
    const absl::Time began = absl::Now();
    work(at, kBytes);
    spent += absl::Now() - began;
    bytes += kBytes;
  }
  return bytes / absl::ToDoubleSeconds(spent) / 1e9;
}

double Fastest(char* at, absl::Duration measured) {
  std::vector<Work> ways = {[](char* bytes, size_t size) { std::memset(bytes, 0, size); }};
#if defined(__x86_64__)
  ways.emplace_back(ClearByString);
  ways.emplace_back(ClearAroundCaches);
  if (__builtin_cpu_supports("avx2")) ways.emplace_back(ClearAroundCachesByHalves);
#endif
  double best = 0;
  for (const Work& way : ways) {
    best = std::max(best, Speed(at, measured / static_cast<int64_t>(ways.size()), false, way));
  }
  return best;
}

absl::StatusOr<std::vector<Row>> Run(const BenchOptions& options) {
  const Mapping mapping;
  char* const at = mapping.at();
  if (at == nullptr) return absl::UnavailableError("no memory to map");
  const absl::Duration slice = options.measured;
  const auto side = [&](std::string name, std::function<double()> speed) {
    return Side{std::move(name),
                [speed = std::move(speed)]() -> absl::StatusOr<Sample> {
                  return Sample{.per_second = speed()};
                },
                [](const Sample& sample) { return sample.per_second; }};
  };
  Rounds rounds({side("scrub", [=] { return Speed(at, slice, false, agent::ClearInMemory); }),
                 side("memset", [=] { return Fastest(at, slice); }), side("flush", [=] {
                   return Speed(at, slice, true, agent::WriteBackAndInvalidate);
                 })});
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  return std::vector<Row>{MakeRow(19, "clearing in memory, by the fastest memset", "GB/s", kTarget,
                                  Aim::kAtLeast, rounds.Compare(&Sample::per_second)),
                          MakeRow(19, "flushing what was just stored, by the fastest memset",
                                  "GB/s", kTarget, Aim::kAtLeast,
                                  rounds.Compare(Rounds::Of(2, &Sample::per_second),
                                                 Rounds::Of(1, &Sample::per_second)))};
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  return cxlpool::bench::RunBench(
      argc, argv,
      {.name = "bench-scrub",
       .what = "how fast bytes of a shared device are flushed and cleared",
       .measure = cxlpool::bench::Run});
}
