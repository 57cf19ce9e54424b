#include "fabric-manager/adapters/store_sqlite/fault_vfs.h"

#include <sqlite3.h>

#include <cstring>
#include <new>
#include <string>

namespace cxlpool::fm {
namespace {

Faults faults;
sqlite3_vfs* real_vfs = nullptr;

struct FaultFile {
  sqlite3_file base;
  bool is_log;
  sqlite3_file* real;  // In the memory after this struct.
};

sqlite3_file* Real(sqlite3_file* file) { return reinterpret_cast<FaultFile*>(file)->real; }

int Close(sqlite3_file* file) { return Real(file)->pMethods->xClose(Real(file)); }
int Read(sqlite3_file* file, void* to, int size, sqlite3_int64 at) {
  return Real(file)->pMethods->xRead(Real(file), to, size, at);
}
int Write(sqlite3_file* file, const void* from, int size, sqlite3_int64 at) {
  sqlite3_int64 end = 0;
  Real(file)->pMethods->xFileSize(Real(file), &end);
  const bool is_log = reinterpret_cast<FaultFile*>(file)->is_log;
  if (at + size > end && (faults.disk_is_full || (is_log && faults.log_is_full))) {
    return SQLITE_FULL;
  }
  return Real(file)->pMethods->xWrite(Real(file), from, size, at);
}
int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  return Real(file)->pMethods->xTruncate(Real(file), size);
}
int Sync(sqlite3_file* file, int flags) {
  ++faults.syncs;
  faults.sync_hangs.wait(true);
  if (faults.sync_fails) return SQLITE_IOERR_FSYNC;
  return Real(file)->pMethods->xSync(Real(file), flags);
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
  return Real(file)->pMethods->xFileControl(Real(file), op, argument);
}
int SectorSize(sqlite3_file* file) { return Real(file)->pMethods->xSectorSize(Real(file)); }
int DeviceCharacteristics(sqlite3_file* file) {
  return Real(file)->pMethods->xDeviceCharacteristics(Real(file));
}

const sqlite3_io_methods* Methods() {
  static const sqlite3_io_methods methods = [] {
    sqlite3_io_methods m;
    std::memset(&m, 0, sizeof(m));
    m.iVersion = 1;  // No shared memory: an exclusive lock needs none.
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
  auto* fault = reinterpret_cast<FaultFile*>(file);
  fault->real = reinterpret_cast<sqlite3_file*>(fault + 1);
  fault->is_log = (flags & SQLITE_OPEN_WAL) != 0;
  const int code = real_vfs->xOpen(real_vfs, name, fault->real, flags, out_flags);
  fault->base.pMethods = fault->real->pMethods == nullptr ? nullptr : Methods();
  return code;
}

}  // namespace

Faults& FaultVfs() {
  static sqlite3_vfs vfs;
  if (real_vfs == nullptr) {
    real_vfs = sqlite3_vfs_find(nullptr);
    vfs = *real_vfs;
    vfs.zName = kFaultVfs;
    vfs.szOsFile = static_cast<int>(sizeof(FaultFile)) + real_vfs->szOsFile;
    vfs.xOpen = Open;
    sqlite3_vfs_register(&vfs, 0);
  }
  faults.log_is_full = faults.disk_is_full = faults.sync_fails = faults.sync_hangs = false;
  faults.syncs = 0;
  return faults;
}

}  // namespace cxlpool::fm
