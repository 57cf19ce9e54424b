// bench-map: what it costs that libpool made a map: nothing, beside an mmap of the same descriptor.
// And what a map with every page there saves. docs/libpool-performance.md says how it measures.
//
// The Region is a file that no disk has, handed out by an agent for tests: its pages are 4 KiB,
// those of a DAX device 2 MiB.

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cxlpool/pool.h"
#include "test/rigs/fake_agent.h"
#include "tools/benches/bench_main.h"
#include "tools/benches/rounds.h"

namespace cxlpool::bench {
namespace {

constexpr size_t kBytes = size_t{256} << 20;
constexpr size_t kWords = kBytes / sizeof(uint64_t);
constexpr size_t kRecordBytes = 1024;  // YCSB's: ten fields of 100 bytes, about.
constexpr double kSame = 0.98, kPopulated = 0.5;

void Keep(uint64_t value) { asm volatile("" : : "r"(value)); }

// Every word, in order.
void Stream(const uint64_t* words) { Keep(std::accumulate(words, words + kWords, uint64_t{0})); }

// From word to word, each of which says which is next: nothing can be loaded ahead.
void Chase(const uint64_t* words) {
  uint64_t at = 0;
  for (int i = 0; i < 200'000; ++i) at = words[at];
  Keep(at);
}

// Reads of whole records, some far more often than others, as YCSB's workload C.
void ReadRecords(const uint64_t* words, const std::vector<uint32_t>& order) {
  uint64_t sum = 0;
  for (const uint32_t record : order) {
    const uint64_t* const begin = words + record * (kRecordBytes / sizeof(uint64_t));
    sum = std::accumulate(begin, begin + kRecordBytes / sizeof(uint64_t), sum);
  }
  Keep(sum);
}

// Record numbers, the nth as often as 1/n says.
std::vector<uint32_t> RecordOrder() {
  constexpr size_t kRecords = kBytes / kRecordBytes;
  std::vector<double> sums(kRecords);
  double sum = 0;
  for (size_t i = 0; i < kRecords; ++i) sums[i] = sum += 1.0 / static_cast<double>(i + 1);
  std::mt19937_64 random(13);
  std::uniform_real_distribution<double> until(0, sum);
  std::vector<uint32_t> order(100'000);
  for (uint32_t& record : order) {
    const auto rank = static_cast<uint64_t>(
        std::lower_bound(sums.begin(), sums.end(), until(random)) - sums.begin());
    record = static_cast<uint32_t>(rank * 2654435761u % kRecords);  // Not the first ones together.
  }
  return order;
}

// A ring through all lines, in an order that no prefetcher knows.
void StoreRing(uint64_t* words) {
  constexpr size_t kLine = 64 / sizeof(uint64_t);
  std::vector<uint32_t> lines(kWords / kLine);
  std::iota(lines.begin(), lines.end(), 0);
  std::shuffle(lines.begin() + 1, lines.end(), std::mt19937_64(13));
  for (size_t i = 0; i < lines.size(); ++i) {
    words[lines[i] * kLine] = uint64_t{lines[(i + 1) % lines.size()]} * kLine;
  }
}

// Times a second that `work` is done, for about as long as `measured`.
Side Times(std::string name, absl::Duration measured, std::function<void()> work) {
  return {std::move(name),
          [measured, work = std::move(work)]() -> absl::StatusOr<Sample> {
            double done = 0, spent = 0;
            const double began = absl::ToDoubleSeconds(ThreadCpuTime());
            do {
              work();
              done += 1;
              spent = absl::ToDoubleSeconds(ThreadCpuTime()) - began;
            } while (spent < absl::ToDoubleSeconds(measured));
            return Sample{.per_second = done / spent, .seconds = spent / done};
          },
          [](const Sample& sample) { return sample.per_second; }};
}

// The first load of each page of a map that was just made.
Side FirstTouch(std::string name, const Region& region, bool populate) {
  return {std::move(name),
          [&region, populate]() -> absl::StatusOr<Sample> {
            const Mapping mapping = region.Map({.populate = populate}).value();
            const double began = absl::ToDoubleSeconds(ThreadCpuTime());
            uint64_t sum = 0;
            for (size_t at = 0; at < kBytes; at += 4096) {
              sum += std::to_integer<uint64_t>(mapping.bytes()[at]);
            }
            Keep(sum);
            return Sample{.seconds = absl::ToDoubleSeconds(ThreadCpuTime()) - began};
          },
          [](const Sample& sample) { return sample.seconds; }};
}

absl::StatusOr<std::vector<Row>> Run(const BenchOptions& options) {
  ::setenv("TMPDIR", "/dev/shm", 1);  // Where the agent has the bytes of its Regions.
  libpool::FakeAgent agent;
  agent.Add({.name = "regions/kv", .segment_bytes = {kBytes}});
  Result<Pool> pool = Pool::Connect({.socket_path = agent.socket_path()});
  if (!pool.ok()) return absl::UnavailableError(pool.error().text());
  const Region region = pool->Open("kv").value();
  const Mapping mapping = region.Map({.populate = true}).value();
  void* const raw = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                           region.Extents().front().fd, 0);
  if (raw == MAP_FAILED) return absl::UnavailableError("the Region's descriptor cannot be mapped");
  StoreRing(static_cast<uint64_t*>(raw));
  const std::vector<uint32_t> order = RecordOrder();
  const auto read_records = [&order](const uint64_t* words) { ReadRecords(words, order); };
  std::vector<Row> rows;
  for (const auto& [name, work] :
       std::initializer_list<std::pair<const char*, std::function<void(const uint64_t*)>>>{
           {"stream", Stream}, {"chase", Chase}, {"records", read_records}}) {
    const auto side = [&, work = work](const char* of, const void* memory) {
      return Times(absl::StrCat(name, ", ", of), options.measured,
                   [work, memory] { work(static_cast<const uint64_t*>(memory)); });
    };
    Rounds rounds({side("libpool", mapping.data()), side("mmap", raw)});
    if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
    rows.push_back(MakeRow(13, absl::StrCat(name, ", by mmap of the same descriptor"), "1/s", kSame,
                           Aim::kAtLeast, rounds.Compare(&Sample::per_second)));
  }
  Rounds rounds({FirstTouch("populated", region, true), FirstTouch("unpopulated", region, false)});
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  rows.push_back(MakeRow(13, "first touch of a populated map, by one that is not", "s", kPopulated,
                         Aim::kAtMost, rounds.Compare(&Sample::seconds)));
  ::munmap(raw, kBytes);
  return rows;
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  return cxlpool::bench::RunBench(argc, argv,
                                  {.name = "bench-map",
                                   .what = "what a map costs beside an mmap",
                                   .measure = cxlpool::bench::Run});
}
