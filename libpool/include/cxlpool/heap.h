/* libcxlpool-heap: malloc in the rack's CXL pool.
 *
 *   cxlpool_heap *heap = NULL;
 *   cxlpool_heap_options options = CXLPOOL_HEAP_OPTIONS_INIT;
 *
 *   options.size_bytes = (uint64_t)1 << 30;
 *   options.max_bytes = (uint64_t)64 << 30;
 *   if (cxlpool_heap_create(pool, &options, &heap, &error) == 0) {
 *     void *block = cxlpool_heap_allocate(heap, 4096, 0);
 *     if (block != NULL) memset(block, 0, 4096);
 *     cxlpool_heap_free(heap, block);
 *     cxlpool_heap_destroy(heap, 0, &error);
 *   }
 *
 * A heap begins with one Region, takes others as it grows, and gives back those that are empty. Its
 * blocks lie in these Regions and nowhere else: where there is no room the answer is NULL, and
 * never memory of another kind. What it notes of its blocks is in ordinary memory, and nothing is
 * written into a block by the heap, freed or not. A program whose global operator new takes its
 * memory from this heap would deadlock: the heap itself uses operator new. Its Regions are owned by
 * this process, and go with it.
 *
 * The library has a private copy of jemalloc; the program's malloc stays what it is. It is for
 * programs that are linked with it: dlopen may fail with "cannot allocate memory in static TLS
 * block". Settings of jemalloc's are in the environment's CXLPOOL_HEAP_CONF; MALLOC_CONF means
 * nothing to it.
 *
 * Errors, options and handles are as in cxlpool.h; the reasons of its own:
 *
 *   reason              code                 what happened
 *   HEAP_FULL           RESOURCE_EXHAUSTED   its limit leaves no room for the block
 *   HEAP_IN_USE         FAILED_PRECONDITION  blocks of it were not freed
 *   HEAP_FAILED         INTERNAL             this process has no memory or no arena left for it
 *   NO_PROFILE          FAILED_PRECONDITION  the program was started without profiles
 *                       UNIMPLEMENTED        the library was built without
 *   PROFILE_FAILED      INTERNAL             a profile could not be written
 *
 * Sizes are in bytes. Threads: any number may use a heap at once, and free what another one
 * allocated; destroy it only when no call uses it. A thread has a cache for each heap that it uses,
 * which ends with it.
 *
 * Fork: in a child cxlpool_heap_allocate gives NULL, cxlpool_heap_free does nothing, the other
 * calls answer FORKED, and cxlpool_heap_destroy leaves the parent's heap as it is. What the parent
 * had allocated the child can read and write.
 */
#ifndef CXLPOOL_HEAP_H_
#define CXLPOOL_HEAP_H_

#include <stddef.h>
#include <stdint.h>

#include "cxlpool/cxlpool.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cxlpool_heap cxlpool_heap;

typedef struct cxlpool_heap_options {
  size_t size;
  const char *name_prefix; /* Its Regions are {name_prefix}-{8 hex digits}-{number}. At most 43
                              bytes. NULL or "": the manager names them. */
  uint64_t size_bytes;     /* It begins with so much, and keeps it. */
  uint64_t max_bytes;      /* It grows to so much; 0: it does not grow. The manager may round each
                              Region up, and what that gives is used, too. */
  uint64_t grow_bytes; /* The least that it grows by, as far as max_bytes allows; 0: size_bytes. At
                          most 256 Regions in all. */
  int32_t populate;    /* 1: every page of a Region is there from the beginning. */
  uint32_t wait_ms;    /* How long a Region may take to come online, while the thread that needs it
                          waits. At most 600000. */
} cxlpool_heap_options;
#define CXLPOOL_HEAP_OPTIONS_INIT \
  { sizeof(cxlpool_heap_options), NULL, 0, 0, 0, 0, 120000 }

/* Creates a heap with its first Region. All three sizes are rounded up to 2 MiB. The client is used
 * until the heap is destroyed: disconnect it afterwards. Where it fails the Region is released, as
 * far as the agent answers. INVALID_ARGUMENT/BAD_ARGUMENT; INTERNAL/HEAP_FAILED; errors as
 * cxlpool_allocate and cxlpool_map_region. */
CXLPOOL_API int cxlpool_heap_create(cxlpool_client *client, const cxlpool_heap_options *options,
                                    cxlpool_heap **heap, cxlpool_error *error);

/* Ends the heap and releases its Regions. A Region that cannot be released because the agent is
 * away is released when this process ends. FAILED_PRECONDITION/HEAP_IN_USE: blocks were not freed,
 * and the heap is as it was. With `force` not 0 it goes all the same, and pointers into it are
 * dead. */
CXLPOOL_API int cxlpool_heap_destroy(cxlpool_heap *heap, int force, cxlpool_error *error);

/* `bytes` (1 where it is 0) at a multiple of `alignment`: a power of two, or 0 for that of malloc.
 * What is in them is left open. Waits while the heap grows: for those that ask for a Region before
 * it, and for its own, each `wait_ms` and the client's timeout at most, or twice that where it is
 * not known of an earlier Region whether it was allocated, which is then asked for again. NULL:
 * there is no room, or no Region could be allocated (cxlpool_heap_check says why); or the alignment
 * is not possible. */
CXLPOOL_API void *cxlpool_heap_allocate(cxlpool_heap *heap, size_t bytes, size_t alignment);

/* The block with another size, and as much of its bytes as fits; it may move. A block that is NULL
 * is allocated. NULL: as above, and the block is as it was. */
CXLPOOL_API void *cxlpool_heap_reallocate(cxlpool_heap *heap, void *block, size_t bytes,
                                          size_t alignment);

/* Frees a block of this heap. NULL is nothing to free. */
CXLPOOL_API void cxlpool_heap_free(cxlpool_heap *heap, void *block);

/* 0, or why the last Region that the heap needed could not be had: RESOURCE_EXHAUSTED/HEAP_FULL, or
 * as cxlpool_allocate. 0 again when one was had. */
CXLPOOL_API int cxlpool_heap_check(const cxlpool_heap *heap, cxlpool_error *error);

/* Gives back what is free: empties the calling thread's cache, and releases the youngest Regions
 * that no block lies in, as long as the others have `size_bytes`. What other threads keep in their
 * caches (blocks of 32 KiB at most) holds its Regions until these threads end. Errors as
 * cxlpool_release; what could not be released is tried again by the next call. */
CXLPOOL_API int cxlpool_heap_trim(cxlpool_heap *heap, cxlpool_error *error);

typedef struct cxlpool_heap_info {
  size_t size;           /* sizeof(cxlpool_heap_info) when the caller was compiled. */
  uint64_t mapped_bytes; /* Of its Regions. */
  uint64_t live_bytes;   /* Of blocks, as the heap rounds their sizes, those in caches included. */
  uint64_t slack_bytes;  /* All else: mapped_bytes - live_bytes. */
  uint64_t free_bytes;   /* As much of the slack as no arena has: what a trim may give back. */
  uint32_t regions;
  uint32_t threads; /* Which have a cache. */
  uint32_t arenas;  /* One for every four of them. */
  uint32_t reserved;
} cxlpool_heap_info;
#define CXLPOOL_HEAP_INFO_INIT \
  { sizeof(cxlpool_heap_info), 0, 0, 0, 0, 0, 0, 0, 0 }

CXLPOOL_API int cxlpool_heap_describe(const cxlpool_heap *heap, cxlpool_heap_info *info,
                                      cxlpool_error *error);

/* Writes to the file `path` who allocated what is live, by stack, for `jeprof`: of all heaps of the
 * process together, a sample of the blocks. It is kept where the program was started with
 * CXLPOOL_HEAP_CONF=prof:true (prof:true,lg_prof_sample:0 samples every block).
 * FAILED_PRECONDITION or UNIMPLEMENTED/NO_PROFILE; INTERNAL/PROFILE_FAILED. */
CXLPOOL_API int cxlpool_heap_profile(const cxlpool_heap *heap, const char *path,
                                     cxlpool_error *error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CXLPOOL_HEAP_H_ */
