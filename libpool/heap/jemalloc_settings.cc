// How the private jemalloc is set, whatever the program or the machine has set for others.

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "libpool/heap/jemalloc.h"

extern "C" {

// Read last, so that it holds. An extent that is not needed is given back to the heap's Regions and
// not kept (retain), and a freed block is not written (junk). The arenas that jemalloc has of its
// own serve only itself.
const char* cxlpool_je_malloc_conf_2_conf_harder =
    "retain:false,junk:false,zero:false,hpa:false,narenas:1,"
    "percpu_arena:disabled,background_thread:false";

// MALLOC_CONF is for the program's own jemalloc, where it has one. Ours has CXLPOOL_HEAP_CONF.
char* cxlpool_je_getenv(const char* name) {
  return ::secure_getenv(std::strcmp(name, "MALLOC_CONF") == 0 ? "CXLPOOL_HEAP_CONF" : name);
}

// As if there were no /etc/malloc.conf.
ssize_t cxlpool_je_readlink(const char*, char*, size_t) {
  errno = ENOENT;
  return -1;
}

}  // extern "C"
