#include "test/store/watched_vfs.h"

#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "test/store/disk_calls.h"

namespace cxlpool::fm {
namespace {

std::atomic<DiskWatcher*> watcher{nullptr};
sqlite3_vfs* real_vfs = nullptr;
uint64_t random_seed = 0;

struct WatchedFile {
  sqlite3_file base;
  const char* path;     // SQLite's, for as long as the file is open. Null: a temporary file.
  int file;             // As the watcher names it.
  bool sync_directory;  // With the next sync.
  int last_errno;       // Of a read that failed, as the default VFS keeps it.
  sqlite3_file* real;   // In the memory after this struct.
};

WatchedFile* Watched(sqlite3_file* file) { return reinterpret_cast<WatchedFile*>(file); }
sqlite3_file* Real(sqlite3_file* file) { return Watched(file)->real; }

DiskCall CallOn(sqlite3_file* file, DiskOp op) {
  const WatchedFile* watched = Watched(file);
  DiskCall call;
  call.op = op;
  call.file = watched->file;
  if (watched->path != nullptr) call.path = watched->path;
  return call;
}

// The errno of `verdict` as the default VFS leaves it behind.
int Failed(const DiskVerdict& verdict, int code) {
  errno = verdict.error;
  return code;
}

int SyncDirectoryOf(const char* path) {
  std::string directory(path);
  directory.resize(directory.rfind('/'));
  DiskCall call;
  call.op = DiskOp::kSyncDirectory;
  call.path = directory;
  const DiskVerdict verdict = CurrentDiskWatcher().Before(call);
  if (verdict.error != 0) return Failed(verdict, SQLITE_IOERR_DIR_FSYNC);
  CurrentDiskWatcher().After(call);
  return SQLITE_OK;
}

int Close(sqlite3_file* file) { return Real(file)->pMethods->xClose(Real(file)); }

int Read(sqlite3_file* file, void* to, int size, sqlite3_int64 at) {
  const DiskVerdict verdict = CurrentDiskWatcher().Before(CallOn(file, DiskOp::kRead));
  if (verdict.error != 0) {
    Watched(file)->last_errno = verdict.error;
    return Failed(verdict, verdict.error == EIO ? SQLITE_IOERR_CORRUPTFS : SQLITE_IOERR_READ);
  }
  return Real(file)->pMethods->xRead(Real(file), to, size, at);
}

int Write(sqlite3_file* file, const void* from, int size, sqlite3_int64 at) {
  sqlite3_int64 end = 0;
  Real(file)->pMethods->xFileSize(Real(file), &end);
  DiskCall call = CallOn(file, DiskOp::kWrite);
  call.offset = static_cast<uint64_t>(at);
  call.bytes = {static_cast<const char*>(from), static_cast<size_t>(size)};
  call.end = static_cast<uint64_t>(end);
  const DiskVerdict verdict = CurrentDiskWatcher().Before(call);
  if (verdict.error != 0) call.bytes = call.bytes.substr(0, verdict.written);
  if (!call.bytes.empty()) {
    const int code = Real(file)->pMethods->xWrite(Real(file), call.bytes.data(),
                                                  static_cast<int>(call.bytes.size()), at);
    if (code != SQLITE_OK) return code;
    CurrentDiskWatcher().After(call);
  }
  if (verdict.error == 0) return SQLITE_OK;
  return Failed(verdict, verdict.error == ENOSPC ? SQLITE_FULL : SQLITE_IOERR_WRITE);
}

int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  DiskCall call = CallOn(file, DiskOp::kTruncate);
  call.offset = static_cast<uint64_t>(size);
  const DiskVerdict verdict = CurrentDiskWatcher().Before(call);
  if (verdict.error != 0) return Failed(verdict, SQLITE_IOERR_TRUNCATE);
  const int code = Real(file)->pMethods->xTruncate(Real(file), size);
  if (code == SQLITE_OK) CurrentDiskWatcher().After(call);
  return code;
}

int Sync(sqlite3_file* file, int) {
  const DiskCall call = CallOn(file, DiskOp::kSync);
  const DiskVerdict verdict = CurrentDiskWatcher().Before(call);
  if (verdict.error != 0) return Failed(verdict, SQLITE_IOERR_FSYNC);
  CurrentDiskWatcher().After(call);
  if (Watched(file)->sync_directory) {
    Watched(file)->sync_directory = false;
    SyncDirectoryOf(Watched(file)->path);  // The default VFS does not look whether it fails.
  }
  return SQLITE_OK;
}

int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  return Real(file)->pMethods->xFileSize(Real(file), size);
}
int Lock(sqlite3_file* file, int level) { return Real(file)->pMethods->xLock(Real(file), level); }
int Unlock(sqlite3_file* file, int level) {
  return Real(file)->pMethods->xUnlock(Real(file), level);
}
int CheckReservedLock(sqlite3_file* file, int* held) {
  return Real(file)->pMethods->xCheckReservedLock(Real(file), held);
}
int FileControl(sqlite3_file* file, int op, void* argument) {
  if (op == SQLITE_FCNTL_LAST_ERRNO && Watched(file)->last_errno != 0) {
    *static_cast<int*>(argument) = Watched(file)->last_errno;
    return SQLITE_OK;
  }
  return Real(file)->pMethods->xFileControl(Real(file), op, argument);
}
int SectorSize(sqlite3_file* file) { return Real(file)->pMethods->xSectorSize(Real(file)); }

// What holds on any file system. More (atomic writes of a batch) would change what is called.
int DeviceCharacteristics(sqlite3_file* file) {
  return Real(file)->pMethods->xDeviceCharacteristics(Real(file)) &
         SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

const sqlite3_io_methods* Methods() {
  static const sqlite3_io_methods methods = [] {
    sqlite3_io_methods m;
    std::memset(&m, 0, sizeof(m));
    m.iVersion = 1;  // No shared memory.
    m.xClose = Close;
    m.xRead = Read;
    m.xWrite = Write;
    m.xTruncate = Truncate;
    m.xSync = Sync;
    m.xFileSize = FileSize;
    m.xLock = Lock;
    m.xUnlock = Unlock;
    m.xCheckReservedLock = CheckReservedLock;
    m.xFileControl = FileControl;
    m.xSectorSize = SectorSize;
    m.xDeviceCharacteristics = DeviceCharacteristics;
    return m;
  }();
  return &methods;
}

int Open(sqlite3_vfs*, sqlite3_filename name, sqlite3_file* file, int flags, int* out_flags) {
  constexpr int kJournals = SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL | SQLITE_OPEN_WAL;
  WatchedFile* watched = Watched(file);
  watched->base.pMethods = nullptr;
  watched->path = name;
  watched->file = -1;
  watched->last_errno = 0;
  watched->sync_directory = (flags & SQLITE_OPEN_CREATE) != 0 && (flags & kJournals) != 0;
  watched->real = reinterpret_cast<sqlite3_file*>(watched + 1);
  DiskCall call;
  if (name != nullptr) call.path = name;
  const DiskVerdict verdict = CurrentDiskWatcher().Before(call);
  if (verdict.error != 0) return Failed(verdict, SQLITE_CANTOPEN);
  const bool made = name != nullptr && access(name, F_OK) != 0;
  const int code = real_vfs->xOpen(real_vfs, name, watched->real, flags, out_flags);
  if (watched->real->pMethods != nullptr) watched->base.pMethods = Methods();
  if (code == SQLITE_OK && name != nullptr) {
    watched->file = CurrentDiskWatcher().Opened(name, made);
  }
  return code;
}

int Delete(sqlite3_vfs*, const char* name, int sync_directory) {
  DiskCall call;
  call.op = DiskOp::kUnlink;
  call.path = name;
  const DiskVerdict verdict = CurrentDiskWatcher().Before(call);
  if (verdict.error != 0) return Failed(verdict, SQLITE_IOERR_DELETE);
  const int code = real_vfs->xDelete(real_vfs, name, 0);
  if (code != SQLITE_OK) return code;
  CurrentDiskWatcher().After(call);
  return sync_directory != 0 ? SyncDirectoryOf(name) : SQLITE_OK;
}

int Randomness(sqlite3_vfs*, int size, char* out) {
  std::memset(out, 0, static_cast<size_t>(size));
  std::memcpy(out, &random_seed, std::min(sizeof(random_seed), static_cast<size_t>(size)));
  return size;
}

}  // namespace

void WatchDisk(DiskWatcher* new_watcher) { watcher = new_watcher; }

DiskWatcher& CurrentDiskWatcher() {
  static DiskWatcher nobody;
  DiskWatcher* current = watcher;
  return current == nullptr ? nobody : *current;
}

void RegisterWatchedVfs(bool as_default) {
  static sqlite3_vfs vfs;
  if (real_vfs != nullptr) return;
  real_vfs = sqlite3_vfs_find(nullptr);
  vfs = *real_vfs;
  vfs.zName = kWatchedVfs;
  vfs.szOsFile = static_cast<int>(sizeof(WatchedFile)) + real_vfs->szOsFile;
  vfs.xOpen = Open;
  vfs.xDelete = Delete;
  if (as_default) vfs.xRandomness = Randomness;
  sqlite3_vfs_register(&vfs, as_default ? 1 : 0);
}

void SeedSqlite(uint64_t seed) {
  random_seed = seed;
  sqlite3_randomness(0, nullptr);
}

}  // namespace cxlpool::fm
