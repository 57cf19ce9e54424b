// bench-heap: what a block of a heap costs whose bytes lie in a Region, beside the same jemalloc on
// ordinary memory, and beside the allocators that others would take. docs/libpool-performance.md
// says how it measures.
//
// The Region is a file in memory, from a host agent that is a fake: allocators are measured here,
// and no pool. memkind and mimalloc are found when it runs, where they are installed.

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cxlpool/pool_heap.h"
#include "libpool/heap/jemalloc.h"
#include "test/rigs/fake_agent.h"
#include "tools/benches/bench_main.h"
#include "tools/benches/rounds.h"

namespace cxlpool::bench {
namespace {

constexpr size_t kRegionBytes = size_t{128} << 20;
constexpr size_t kLive = 8192;
constexpr int kBatch = 4096;  // Between two looks at the clock.
constexpr double kOfDram = 0.95;
constexpr double kOfMemkind = 3;

// Frees one of the live blocks and allocates another, of 16 to 1039 bytes, until the time is over.
template <typename Allocate, typename Free>
absl::StatusOr<Sample> Churn(absl::Duration measured, Allocate&& allocate, Free&& free) {
  std::minstd_rand random(15);
  std::vector<void*> blocks(kLive, nullptr);
  const auto replace_one = [&] {
    const auto number = static_cast<size_t>(random());
    void*& block = blocks[number % kLive];
    if (block != nullptr) free(block);
    block = allocate(16 + (number >> 13) % 1024);
    return block != nullptr;
  };
  const auto run_for = [&](absl::Duration time) -> absl::StatusOr<double> {
    const absl::Duration began = ThreadCpuTime();
    int64_t done = 0;
    absl::Duration passed;
    do {
      for (int i = 0; i < kBatch; ++i) {
        if (!replace_one()) return absl::ResourceExhaustedError("an allocator has no room");
      }
      done += kBatch;
      passed = ThreadCpuTime() - began;
    } while (passed < time);
    return static_cast<double>(done) / absl::ToDoubleSeconds(passed);
  };
  absl::StatusOr<double> rate = run_for(measured / 4);  // To warm up.
  if (rate.ok()) rate = run_for(measured);
  for (void* const block : blocks) {
    if (block != nullptr) free(block);
  }
  if (!rate.ok()) return rate.status();
  return Sample{.per_second = *rate};
}

// The private jemalloc as the heap uses it, a manual arena and a cache, without hooks.
class OnDram {
 public:
  OnDram() {
    unsigned arena = 0, cache = 0;
    size_t size = sizeof arena;
    cxlpool_je_mallctl("arenas.create", &arena, &size, nullptr, 0);
    cxlpool_je_mallctl("tcache.create", &cache, &size, nullptr, 0);
    flags_ = MALLOCX_ARENA(arena) | MALLOCX_TCACHE(cache);
  }
  absl::StatusOr<Sample> Measure(absl::Duration measured) const {
    return Churn(
        measured, [this](size_t size) { return cxlpool_je_mallocx(size, flags_); },
        [this](void* block) { cxlpool_je_dallocx(block, flags_); });
  }

 private:
  int flags_ = 0;
};

// memkind's kind for memory that the caller has mapped.
class Memkind {
 public:
  static std::optional<Memkind> Find() {
    void* const library = ::dlopen("libmemkind.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return std::nullopt;
    Memkind memkind;
    const auto create =
        reinterpret_cast<int (*)(void*, size_t, void**)>(::dlsym(library, "memkind_create_fixed"));
    memkind.malloc_ =
        reinterpret_cast<void* (*)(void*, size_t)>(::dlsym(library, "memkind_malloc"));
    memkind.free_ = reinterpret_cast<void (*)(void*, void*)>(::dlsym(library, "memkind_free"));
    void* const memory = ::mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (create == nullptr || memory == MAP_FAILED ||
        create(memory, kRegionBytes, &memkind.kind_) != 0) {
      return std::nullopt;
    }
    return memkind;
  }
  absl::StatusOr<Sample> Measure(absl::Duration measured) const {
    return Churn(
        measured, [this](size_t size) { return malloc_(kind_, size); },
        [this](void* block) { free_(kind_, block); });
  }

 private:
  void* kind_ = nullptr;
  void* (*malloc_)(void*, size_t) = nullptr;
  void (*free_)(void*, void*) = nullptr;
};

// mimalloc as it is, on ordinary memory.
class Mimalloc {
 public:
  static std::optional<Mimalloc> Find() {
    void* const library = ::dlopen("libmimalloc.so.2.0", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return std::nullopt;
    Mimalloc mimalloc;
    mimalloc.malloc_ = reinterpret_cast<void* (*)(size_t)>(::dlsym(library, "mi_malloc"));
    mimalloc.free_ = reinterpret_cast<void (*)(void*)>(::dlsym(library, "mi_free"));
    if (mimalloc.malloc_ == nullptr || mimalloc.free_ == nullptr) return std::nullopt;
    return mimalloc;
  }
  absl::StatusOr<Sample> Measure(absl::Duration measured) const {
    return Churn(measured, malloc_, free_);
  }

 private:
  void* (*malloc_)(size_t) = nullptr;
  void (*free_)(void*) = nullptr;
};

absl::StatusOr<std::vector<Row>> Run(const BenchOptions& options) {
  ::setenv("TMPDIR", "/dev/shm", 1);  // Where the fake agent has its Regions.
  const libpool::FakeAgent agent;
  auto pool = Pool::Connect({.socket_path = agent.socket_path()});
  if (!pool.ok()) return absl::InternalError(pool.error().text());
  const auto heap = Heap::Create(*std::move(pool), {.size_bytes = kRegionBytes, .populate = true});
  if (!heap.ok()) return absl::InternalError(heap.error().text());
  cxlpool_heap* const handle = heap->handle();
  const OnDram dram;
  const std::optional<Memkind> memkind = Memkind::Find();
  const std::optional<Mimalloc> mimalloc = Mimalloc::Find();

  const absl::Duration measured = options.measured;
  std::vector<Side> sides = {
      {"in a Region",
       [&] {
         return Churn(
             measured, [handle](size_t size) { return cxlpool_heap_allocate(handle, size, 0); },
             [handle](void* block) { cxlpool_heap_free(handle, block); });
       },
       &Sample::per_second},
      {"on DRAM", [&] { return dram.Measure(measured); }, &Sample::per_second}};
  const size_t memkind_side = sides.size();
  if (memkind.has_value()) {
    sides.push_back({"memkind", [&] { return memkind->Measure(measured); }, &Sample::per_second});
  }
  const size_t mimalloc_side = sides.size();
  if (mimalloc.has_value()) {
    sides.push_back({"mimalloc", [&] { return mimalloc->Measure(measured); }, &Sample::per_second});
  }
  Rounds rounds(std::move(sides));
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;

  std::vector<Row> rows = {MakeRow(15, "free and malloc in a Region, by the same jemalloc on DRAM",
                                   "/s", kOfDram, Aim::kAtLeast,
                                   rounds.Compare(&Sample::per_second))};
  if (memkind.has_value()) {
    rows.push_back(MakeRow(15, "free and malloc in a Region, by memkind's fixed kind", "/s",
                           kOfMemkind, Aim::kAtLeast,
                           rounds.Compare(&Sample::per_second, memkind_side)));
  } else {
    std::cout << "  memkind is not installed: no row of it\n";
  }
  if (mimalloc.has_value()) {
    std::cout << absl::StrFormat("  mimalloc on DRAM, which has no target: %.0f/s\n",
                                 rounds.Median(Rounds::Of(mimalloc_side, &Sample::per_second)));
  }
  return rows;
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  return cxlpool::bench::RunBench(argc, argv,
                                  {.name = "bench-heap",
                                   .what = "what a block of a heap in a Region costs",
                                   .measure = cxlpool::bench::Run});
}
