// bench-directory: how fast an object is got by its name out of a Directory, beside a copy out of a
// table in the program's own memory. docs/libpool-performance.md says how it measures.
//
// The Region is a file that no disk has, handed out by an agent for tests, on a fabric whose caches
// are coherent and on one where they are not. Names are taken in an order that no cache knows.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <unordered_map>
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

constexpr size_t kObjectBytes = 4096;
constexpr size_t kObjects = 16384;
constexpr size_t kRegionBytes = size_t{128} << 20;
constexpr double kByTheTable = 0.7;

// What a program would do without a pool: a table under a lock that readers share.
class Table {
 public:
  void Put(const std::string& name, std::span<const std::byte> bytes) {
    const std::unique_lock lock(mutex_);
    objects_[name].assign(bytes.begin(), bytes.end());
  }
  void Get(const std::string& name, std::span<std::byte> into) {
    const std::shared_lock lock(mutex_);
    const std::vector<std::byte>& object = objects_.at(name);
    std::memcpy(into.data(), object.data(), object.size());
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<std::string, std::vector<std::byte>> objects_;
};

Side Gets(std::string side, const std::vector<std::string>& names, absl::Duration measured,
          std::function<void(const std::string&)> get) {
  return {std::move(side),
          [&names, measured, get = std::move(get)]() -> absl::StatusOr<Sample> {
            uint64_t state = 1, done = 0;
            const double began = absl::ToDoubleSeconds(ThreadCpuTime());
            double spent = 0;
            do {
              for (int i = 0; i < 1000; ++i) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                get(names[(state >> 33) % names.size()]);
              }
              done += 1000;
              spent = absl::ToDoubleSeconds(ThreadCpuTime()) - began;
            } while (spent < absl::ToDoubleSeconds(measured));
            return Sample{.per_second = static_cast<double>(done) / spent};
          },
          [](const Sample& sample) { return sample.per_second; }};
}

Result<Directory> MakeDirectory(const Mapping& mapping) {
  const Result<void> made = Directory::Create(mapping, {.entries = 2 * kObjects});
  if (!made.ok()) return made.error();
  return Directory::Open(mapping, {.partition = 0});
}

absl::StatusOr<std::vector<Row>> Run(const BenchOptions& options) {
  ::setenv("TMPDIR", "/dev/shm", 1);  // Where the agent has the bytes of its Regions.
  libpool::FakeAgent agent;
  Table table;
  std::vector<std::string> names;
  const std::vector<std::byte> object(kObjectBytes, std::byte{1});
  for (size_t i = 0; i < kObjects; ++i) {
    names.push_back(absl::StrCat("model/layer-", i % 64, "/block-", i));
    table.Put(names.back(), object);
  }
  std::vector<std::byte> into(kObjectBytes);
  std::vector<Row> rows;
  for (const v1::Coherence coherence : {v1::HARDWARE, v1::SOFTWARE}) {
    const std::string region = absl::StrCat("kv-", coherence);
    agent.Add({.name = absl::StrCat("regions/", region),
               .coherence = coherence,
               .segment_bytes = {kRegionBytes}});
    Result<Pool> pool = Pool::Connect({.socket_path = agent.socket_path()});
    if (!pool.ok()) return absl::UnavailableError(pool.error().text());
    const Mapping mapping = pool->Open(region).value().Map({.populate = true}).value();
    Result<Directory> directory = MakeDirectory(mapping);
    if (!directory.ok()) return absl::UnavailableError(directory.error().text());
    for (const std::string& name : names) directory->Put(name, object).value();
    const bool coherent = coherence == v1::HARDWARE;
    Rounds rounds({Gets(coherent ? "directory" : "directory, not coherent", names, options.measured,
                        [&](const std::string& name) { directory->Get(name, into).value(); }),
                   Gets("table", names, options.measured,
                        [&](const std::string& name) { table.Get(name, into); })});
    if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
    if (coherent) {
      rows.push_back(MakeRow(17, "get of 4 KiB by name, by a table in DRAM", "1/s", kByTheTable,
                             Aim::kAtLeast, rounds.Compare(&Sample::per_second)));
    }
  }
  return rows;
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  return cxlpool::bench::RunBench(argc, argv,
                                  {.name = "bench-directory",
                                   .what = "how fast an object is got out of a Directory",
                                   .measure = cxlpool::bench::Run});
}
