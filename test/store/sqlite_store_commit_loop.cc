// The kill test's child: commits the script from where the store stands and writes each
// acknowledged revision (8 bytes) to standard output. Never ends.
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"
#include "test/store/commit_script.h"

namespace cxlpool::fm {
namespace {

int RunForEver(const char* path) {
  SqliteStoreOptions options;
  options.path = path;
  options.checkpoint_pages = 50;  // So that a kill often meets a checkpoint.
  auto store = MakeSqliteStore(options);
  if (!store.ok()) return 1;

  std::mutex mutex;
  std::condition_variable changed;
  StoreImage image;
  bool open = false;
  uint64_t acknowledged = 0;
  (*store)->Open(nullptr, [&](absl::StatusOr<StoreImage> opened) {
    if (!opened.ok()) {
      std::fprintf(stderr, "%s\n", opened.status().ToString().c_str());
      _exit(2);
    }
    const std::lock_guard lock(mutex);
    image = *std::move(opened);
    open = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return open; });
  acknowledged = image.revision;
  for (uint64_t revision = image.revision + 1;; ++revision) {
    changed.wait(lock, [&] { return acknowledged == revision - 1; });
    lock.unlock();
    (*store)->Commit(ScriptedBatch(image.epoch, revision), [&, revision](absl::Status status) {
      if (!status.ok() || write(STDOUT_FILENO, &revision, sizeof(revision)) != sizeof(revision)) {
        _exit(3);
      }
      const std::lock_guard guard(mutex);
      acknowledged = revision;
      changed.notify_all();
    });
    lock.lock();
  }
}

}  // namespace
}  // namespace cxlpool::fm

int main(int argc, char** argv) { return argc == 2 ? cxlpool::fm::RunForEver(argv[1]) : 64; }
