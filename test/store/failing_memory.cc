#include "test/store/failing_memory.h"

#include <sqlite3.h>

#include <atomic>

namespace cxlpool::fm {
namespace {

sqlite3_mem_methods real;
std::atomic<uint64_t> made{0};
std::atomic<uint64_t> fails_at{0};  // 0: none.
std::atomic<bool> fails_after{false};

bool Fails() {
  const uint64_t number = ++made, at = fails_at;
  return at != 0 && (number == at || (number > at && fails_after));
}

void* Malloc(int size) { return Fails() ? nullptr : real.xMalloc(size); }
void* Realloc(void* old, int size) { return Fails() ? nullptr : real.xRealloc(old, size); }

}  // namespace

bool InstallFailingMemory() {
  if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real) != SQLITE_OK) return false;
  sqlite3_mem_methods failing = real;
  failing.xMalloc = Malloc;
  failing.xRealloc = Realloc;
  return sqlite3_config(SQLITE_CONFIG_MALLOC, &failing) == SQLITE_OK;
}

NthAllocationFails::NthAllocationFails(uint64_t number, bool lasting) : number_(number) {
  made = 0;
  fails_after = lasting;
  fails_at = number;
}

NthAllocationFails::~NthAllocationFails() { fails_at = 0; }

bool NthAllocationFails::hit() const { return made >= number_; }

}  // namespace cxlpool::fm
