// Figures of the store on this disk, beside a bare append and fdatasync of the same bytes:
//   sqlite_store_bench DIR [SECONDS]
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "fabric-manager/adapters/store_sqlite/record_crc.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kValueBytes = 300;  // About a Region with an Attachment.

void Print(const std::string& name, uint64_t commits, uint64_t rows, absl::Duration took,
           std::vector<double>& micros) {
  std::sort(micros.begin(), micros.end());
  const double seconds = absl::ToDoubleSeconds(took);
  std::printf("%-34s %9.0f commits/s %10.0f rows/s   p50 %7.0f us   p99 %7.0f us\n", name.c_str(),
              commits / seconds, rows / seconds, micros[micros.size() / 2],
              micros[micros.size() * 99 / 100]);
}

void Bare(const std::string& dir, absl::Duration run) {
  const std::string path = dir + "/bare";
  const UniqueFd fd(open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600));
  const std::string bytes(2 * 4096, 'x');
  std::vector<double> micros;
  const absl::Time start = absl::Now();
  while (absl::Now() - start < run) {
    const absl::Time before = absl::Now();
    if (write(fd.get(), bytes.data(), bytes.size()) < 0 || fdatasync(fd.get()) != 0) break;
    micros.push_back(absl::ToDoubleMicroseconds(absl::Now() - before));
  }
  Print("append 8 KiB + fdatasync", micros.size(), micros.size(), absl::Now() - start, micros);
  unlink(path.c_str());
}

// What the calling thread has used. Completions run on the store's.
double CpuMicros() {
  timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return used.tv_sec * 1e6 + used.tv_nsec / 1e3;
}

// The least that a restart can do: read every byte of the file and check it.
double ReadAndCheckMillis(const std::string& path) {
  const absl::Time start = absl::Now();
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string piece(1 << 20, '\0');
  uint32_t crc = 0;
  ssize_t got = 0;
  while ((got = read(fd.get(), piece.data(), piece.size())) > 0) {
    crc = Crc32(crc, {piece.data(), static_cast<size_t>(got)});
  }
  return crc == 0 ? 0 : absl::ToDoubleMilliseconds(absl::Now() - start);
}

// Keeps `outstanding` commits of `rows` rows under way.
void Measure(const std::string& dir, absl::Duration run, uint64_t outstanding, uint64_t rows) {
  SqliteStoreOptions options;
  options.path = dir + "/bench.db";
  auto store = MakeSqliteStore(options);
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t epoch = 0, done = 0, failed = 0;
  std::vector<double> micros;
  double cpu_before = 0, cpu_after = 0;
  (*store)->Open([&](absl::StatusOr<StoreImage> image) {
    const std::lock_guard lock(mutex);
    epoch = image.ok() ? image->epoch : 0;
    done = 1;
    cpu_before = CpuMicros();
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done == 1; });
  done = 0;
  const absl::Time start = absl::Now();
  uint64_t asked = 0;
  while (absl::Now() - start < run) {
    changed.wait(lock, [&] { return asked - done < outstanding; });
    lock.unlock();
    StoreBatch batch{epoch, asked, asked + 1, {}, {}};
    for (uint64_t i = 0; i < rows; ++i) {
      batch.puts.push_back({asked * rows + i + 1, std::string(kValueBytes, 'v')});
    }
    ++asked;
    (*store)->Commit(std::move(batch), [&, before = absl::Now()](absl::Status status) {
      const std::lock_guard guard(mutex);
      micros.push_back(absl::ToDoubleMicroseconds(absl::Now() - before));
      ++done;
      cpu_after = CpuMicros();
      failed += status.ok() ? 0 : 1;
      changed.notify_all();
    });
    lock.lock();
  }
  changed.wait(lock, [&] { return asked == done; });
  const absl::Duration took = absl::Now() - start;
  lock.unlock();
  store->reset();
  const double bare_millis = ReadAndCheckMillis(options.path);
  const absl::Time reopen = absl::Now();
  Print(std::to_string(outstanding) + " outstanding x " + std::to_string(rows) + " rows", done,
        done * rows, took, micros);
  std::printf("  %.2f us of CPU a row on the store's thread\n",
              (cpu_after - cpu_before) / (done * rows));
  if (failed > 0) std::printf("  %lu failed\n", static_cast<unsigned long>(failed));
  store = MakeSqliteStore(options);
  size_t loaded = 0;
  bool opened = false;
  (*store)->Open([&](absl::StatusOr<StoreImage> image) {
    const std::lock_guard guard(mutex);
    loaded = image.ok() ? image->rows.size() : 0;
    opened = true;
    changed.notify_all();
  });
  lock.lock();
  changed.wait(lock, [&] { return opened; });
  std::printf("  reopened %zu rows in %.0f ms; its bytes read and checked in %.0f ms\n", loaded,
              absl::ToDoubleMilliseconds(absl::Now() - reopen), bare_millis);
  lock.unlock();
  store->reset();
  unlink(options.path.c_str());
}

}  // namespace
}  // namespace cxlpool::fm

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s DIR [SECONDS]\n", argv[0]);
    return 64;
  }
  const std::string dir = argv[1];
  const absl::Duration run = absl::Seconds(argc > 2 ? std::atof(argv[2]) : 2.0);
  cxlpool::fm::Bare(dir, run);
  for (const auto& [outstanding, rows] :
       {std::pair{1, 1}, {8, 1}, {64, 1}, {512, 1}, {1, 100}, {4, 1000}}) {
    cxlpool::fm::Measure(dir, run, outstanding, rows);
  }
  return 0;
}
