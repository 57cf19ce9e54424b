// bench-copy: how fast libpool copies to and from a Region, beside memcpy and the fastest way of
// this machine. docs/libpool-performance.md says how it measures.
//
// The Region is a file that no disk has, mapped shared as a DAX device is, handed out by an agent
// for tests. Every copy is of other bytes of it, far more than caches have: those of a pool are
// cold as a rule. The program's own memory is small, and warm; what was got is read there, as a
// program would. Time is the thread's own, of its processor: other programs take none of it away.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cxlpool/copier.h"
#include "cxlpool/pool.h"
#include "libpool/src/copy_kernels.h"
#include "test/rigs/fake_agent.h"
#include "tools/benches/bench_main.h"
#include "tools/benches/rounds.h"

namespace cxlpool::bench {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kRegionBytes = 512 * kMiB;
constexpr size_t kLargest = 256 * kMiB;
constexpr double kNeverBelow = 0.98, kStores = 1.5, kOfTheBest = 0.95, kPublish = 0.95,
                 kOverlap = 1.10;

// Where in the Region the next copy is: all over it, the same in each run.
class Places {
 public:
  explicit Places(size_t bytes) : bytes_(bytes) {}
  size_t Next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    const size_t count = kRegionBytes / bytes_;
    return (state_ >> 20) % count * bytes_;
  }

 private:
  const size_t bytes_;
  uint64_t state_ = 1;
};

struct Rig {
  Rig() {
    for (const auto& [name, coherence] :
         {std::pair{"regions/hard", v1::HARDWARE}, std::pair{"regions/soft", v1::SOFTWARE}}) {
      agent.Add({.name = name, .coherence = coherence, .segment_bytes = {kRegionBytes}});
    }
    std::memset(own, 1, kLargest);
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;
  ~Rig() { std::free(own); }
  Result<Mapping> Map(const char* name) {
    Result<Pool> pool = Pool::Connect({.socket_path = agent.socket_path()});
    if (!pool.ok()) return pool.error();
    Result<Region> region = pool->Open(name);
    if (!region.ok()) return region.error();
    return region->Map({.populate = true});
  }

  libpool::FakeAgent agent;
  // At a page's beginning, as the places in the Region are: a fixed distance within the page would
  // favour some kernels.
  std::byte* const own = static_cast<std::byte*>(std::aligned_alloc(4096, kLargest));
};

// Copies one piece between the place in the Region and the program's memory.
using Work = std::function<void(size_t place, size_t bytes)>;

// GB a second of copies of `bytes` each, for about as long as `measured`.
Side Speed(std::string name, size_t bytes, absl::Duration measured, Work work) {
  return {std::move(name),
          [=]() -> absl::StatusOr<Sample> {
            Places places(bytes);
            const size_t batch = std::max<size_t>(1, kMiB / 4 / bytes);
            double copied = 0, spent = 0;
            const double began = absl::ToDoubleSeconds(ThreadCpuTime());
            do {
              for (size_t i = 0; i < batch; ++i) work(places.Next(), bytes);
              copied += static_cast<double>(batch * bytes);
              spent = absl::ToDoubleSeconds(ThreadCpuTime()) - began;
            } while (spent < absl::ToDoubleSeconds(measured));
            return Sample{.per_second = copied / spent / 1e9};
          },
          [](const Sample& sample) { return sample.per_second; }};
}

std::string SizeText(size_t bytes) {
  if (bytes >= kMiB) return absl::StrCat(bytes / kMiB, " MiB");
  return bytes >= 1024 ? absl::StrCat(bytes >> 10, " KiB") : absl::StrCat(bytes, " B");
}

// Puts or gets of one size: ours by memcpy, and by the kernel that was the fastest of all.
absl::Status CompareKernels(const BenchOptions& options, Rig& rig, const Mapping& map, bool put,
                            size_t bytes, std::vector<Row>& rows) {
  std::byte* const pool = map.data();
  std::byte* const own = rig.own;
  std::vector<Side> sides = {
      Speed(put ? "put" : "get", bytes, options.measured, [=, &map](size_t place, size_t size) {
        if (put) {
          map.Put(place, {own, size}).value();
        } else {
          map.Get(place, {own, size}).value();
          libpool::TouchLines(own, size);
        }
      })};
  for (const libpool::CopyKernel& kernel : libpool::CopyKernels()) {
    sides.push_back(Speed(kernel.name, bytes, options.measured, [=](size_t place, size_t size) {
      if (put) return kernel.copy(pool + place, own, size);
      kernel.copy(own, pool + place, size);
      libpool::TouchLines(own, size);
    }));
  }
  const size_t last = sides.size() - 1;
  Rounds rounds(std::move(sides));
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  const std::string what = absl::StrCat(put ? "put" : "get", " of ", SizeText(bytes));
  const bool stores = put && bytes >= kMiB && __builtin_cpu_supports("avx512f");
  rows.push_back(MakeRow(14, absl::StrCat(what, ", by memcpy"), "GB/s",
                         stores ? kStores : kNeverBelow, Aim::kAtLeast,
                         rounds.Compare(&Sample::per_second, 1)));
  // The one that was the fastest over all rounds: of a single one, luck would choose.
  size_t best = 1;
  const auto median = [&](size_t side) {
    return rounds.Median(Rounds::Of(side, &Sample::per_second));
  };
  for (size_t side = 2; side <= last; ++side) {
    if (median(side) > median(best)) best = side;
  }
  if (best != 1) {
    rows.push_back(MakeRow(14, absl::StrCat(what, ", by ", libpool::CopyKernels()[best - 1].name),
                           "GB/s", kOfTheBest, Aim::kAtLeast,
                           rounds.Compare(&Sample::per_second, best)));
  }
  return absl::OkStatus();
}

// Puts that end with their bytes published, by puts that need not.
absl::Status ComparePublish(const BenchOptions& options, Rig& rig, const Mapping& hard,
                            const Mapping& soft, size_t bytes, std::vector<Row>& rows) {
  const auto put = [&](const char* name, const Mapping& map) {
    return Speed(name, bytes, options.measured, [&rig, &map](size_t place, size_t size) {
      map.Put(place, {rig.own, size}).value();
    });
  };
  Rounds rounds({put("published", soft), put("coherent", hard)});
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  rows.push_back(MakeRow(
      14, absl::StrCat("published put of ", SizeText(bytes), ", by one where caches are coherent"),
      "GB/s", kPublish, Aim::kAtLeast, rounds.Compare(&Sample::per_second)));
  return absl::OkStatus();
}

// Work on a layer that takes its time in the processor and not in memory.
uint64_t Compute(const std::byte* layer, size_t turns) {
  uint64_t sum = std::to_integer<uint64_t>(*layer);
  for (size_t i = 0; i < turns; ++i) {
    sum = sum * 6364136223846793005u + 1442695040888963407u;
    asm volatile("" : "+r"(sum));
  }
  return sum;
}

double SecondsOf(const std::function<void()>& work) {
  const absl::Time began = absl::Now();
  work();
  return absl::ToDoubleSeconds(absl::Now() - began);
}

// A pass over all layers, the next being copied while one is computed, by the longer of the two
// alone.
absl::Status CompareOverlap(const BenchOptions& options, const Mapping& map,
                            std::vector<Row>& rows) {
  constexpr size_t kLayer = 8 * kMiB, kLayers = 16;
  std::vector<std::byte> layers[2] = {std::vector<std::byte>(kLayer),
                                      std::vector<std::byte>(kLayer)};
  Result<Copier> copier = Copier::Start();
  if (!copier.ok()) return absl::UnavailableError(copier.error().text());
  const auto get = [&](size_t i) {
    return copier->GetAsync(map, i * kLayer, layers[i % 2]).value();
  };
  const auto copy_all = [&] {
    for (size_t i = 0; i < kLayers; ++i) map.Get(i * kLayer, layers[i % 2]).value();
  };
  // As long as the copies, about.
  const double copy_seconds = std::min(SecondsOf(copy_all), SecondsOf(copy_all));
  const double turn_seconds = SecondsOf([&] { Compute(layers[0].data(), 10'000'000); }) / 1e7;
  const auto turns = static_cast<size_t>(copy_seconds / kLayers / turn_seconds);
  const auto compute_all = [&] {
    for (size_t i = 0; i < kLayers; ++i) Compute(layers[i % 2].data(), turns);
  };
  const auto both = [&] {
    std::optional<Copy> next = get(0);
    for (size_t i = 0; i < kLayers; ++i) {
      next->Wait(std::chrono::minutes(1)).value();
      if (i + 1 < kLayers) next = get(i + 1);
      Compute(layers[i % 2].data(), turns);
    }
  };
  const auto side = [](const char* name, std::function<double()> seconds) {
    return Side{name,
                [seconds = std::move(seconds)]() -> absl::StatusOr<Sample> {
                  return Sample{.seconds = seconds()};
                },
                [](const Sample& sample) { return sample.seconds; }};
  };
  Rounds rounds({side("overlapped", [&] { return SecondsOf(both); }), side("the longer", [&] {
                   return std::max(SecondsOf(copy_all), SecondsOf(compute_all));
                 })});
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  rows.push_back(MakeRow(14, "copies beside computing, by the longer of the two", "s", kOverlap,
                         Aim::kAtMost, rounds.Compare(&Sample::seconds)));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Row>> Run(const BenchOptions& given) {
  // There are some twenty comparisons: each gets a twentieth of the time of a slice.
  BenchOptions options = given;
  options.measured = given.measured / 20;
  ::setenv("TMPDIR", "/dev/shm", 1);  // Where the agent has the bytes of its Regions.
  Rig rig;
  Result<Mapping> hard = rig.Map("hard"), soft = rig.Map("soft");
  if (!hard.ok() || !soft.ok()) {
    return absl::UnavailableError((hard.ok() ? soft : hard).error().text());
  }
  std::vector<Row> rows;
  for (const bool put : {true, false}) {
    for (const size_t bytes : {size_t{64}, size_t{1} << 10, size_t{4} << 10, size_t{64} << 10,
                               size_t{256} << 10, kMiB, 16 * kMiB, kLargest}) {
      absl::Status status = CompareKernels(options, rig, *hard, put, bytes, rows);
      if (!status.ok()) return status;
    }
  }
  for (const size_t bytes : {size_t{256} << 10, kMiB, 16 * kMiB}) {
    absl::Status status = ComparePublish(options, rig, *hard, *soft, bytes, rows);
    if (!status.ok()) return status;
  }
  if (absl::Status status = CompareOverlap(options, *hard, rows); !status.ok()) return status;
  return rows;
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  return cxlpool::bench::RunBench(argc, argv,
                                  {.name = "bench-copy",
                                   .what = "how fast libpool copies to and from a Region",
                                   .measure = cxlpool::bench::Run});
}
