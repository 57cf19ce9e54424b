// jemalloc 5.3.0, as a private copy: its functions as cxlpool_je_*, and nothing else of it to be
// seen (CMakeLists.txt). The program's malloc stays what it is, and a jemalloc of the program's own
// shares nothing with this one: neither symbols, nor arenas, nor settings.
//
// It is set up when the library is loaded. Its functions may be called by any thread.
#ifndef CXLPOOL_LIBPOOL_HEAP_JEMALLOC_H_
#define CXLPOOL_LIBPOOL_HEAP_JEMALLOC_H_

#include <jemalloc/jemalloc.h>
#include <sys/types.h>

#include <cstddef>

extern "C" {

extern decltype(::mallocx) cxlpool_je_mallocx;
extern decltype(::rallocx) cxlpool_je_rallocx;
extern decltype(::dallocx) cxlpool_je_dallocx;
extern decltype(::mallctl) cxlpool_je_mallctl;

// What jemalloc asks its surroundings for, answered in jemalloc_settings.cc.
char* cxlpool_je_getenv(const char* name);
ssize_t cxlpool_je_readlink(const char* path, char* buffer, size_t size);

}  // extern "C"

namespace cxlpool::libpool {

// What experimental.arenas_create_ext takes (include/jemalloc/internal/arena_types.h of 5.3.0). It
// is in no public header, so the build insists on that version.
struct JemallocArenaConfig {
  extent_hooks_t* extent_hooks;
  bool metadata_use_hooks;
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_HEAP_JEMALLOC_H_
