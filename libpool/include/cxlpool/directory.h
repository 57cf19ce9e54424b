/* Named, sealed objects in a Region that several processes and hosts share: weights that are
 * written once, blocks of a key-value cache, indexes.
 *
 *   cxlpool_directory_options own = CXLPOOL_DIRECTORY_OPTIONS_INIT;
 *   own.partition = 0;
 *   cxlpool_directory_create(map, NULL, &error);             one process, once
 *   cxlpool_directory_open(map, &own, &directory, &error);   each process
 *   cxlpool_directory_put(directory, "layer-0", bytes, size, &error);
 *   cxlpool_directory_borrow(directory, "layer-0", &object, &error);
 *
 * An object never changes once it is sealed: who finds it finds it whole, and as it was put, on any
 * host. A second put of the name makes another object in its place; readers have the old one or the
 * new one.
 *
 * A Directory has partitions. Each is written by one process, its owner, which claims it when it
 * opens the Directory; every process may read all of them. There is no lock and no server. Give
 * each host partitions of its own: two hosts must not open the same one, and within a host the
 * second process is refused (PARTITION_TAKEN). When an owner has died, a process of the same host
 * that opens the partition takes it over: objects that were sealed stay, what was not is gone, and
 * what the dead one had borrowed is given back.
 *
 * Fabrics whose caches are not coherent are served too (docs/libpool.md, "Between hosts"): objects
 * are published and refreshed as they need it, and have a CRC-32C there.
 *
 * Loads and stores of lost bytes end no process: DATA_LOSS/DATA_LOST, or
 * FAILED_PRECONDITION/REVOKED, as in cxlpool_guard. The caller has to guard its own accesses to
 * bytes that were borrowed.
 *
 * Reasons of this part:
 *
 *   reason              code                 what happened
 *   NOT_A_DIRECTORY     FAILED_PRECONDITION  the map does not begin with one, or with a damaged one
 *   DIRECTORY_EXISTS    ALREADY_EXISTS       there is one already
 *   DIRECTORY_REPLACED  FAILED_PRECONDITION  somebody made another in its place
 *   PARTITION_TAKEN     FAILED_PRECONDITION  another process, or another host, owns it
 *   NO_PARTITION        FAILED_PRECONDITION  this needs a partition of one's own
 *   OBJECT_UNKNOWN      NOT_FOUND            no object has that name
 *   NOT_OWNER           FAILED_PRECONDITION  the object is in another's partition
 *   OBJECTS_STAY        FAILED_PRECONDITION  a Directory that keeps its objects removes none
 *   OBJECT_TOO_LARGE    OUT_OF_RANGE         it does not fit into the buffer
 *   DIRECTORY_FULL      RESOURCE_EXHAUSTED   no room, or no entry, for one more
 *   TOO_MANY_BORROWED   RESOURCE_EXHAUSTED   all pins of the own partition are used
 *   OBJECT_CHANGES      ABORTED              it was replaced each time it was looked at
 *   NOT_VISIBLE         UNAVAILABLE          its bytes are not (yet) those that were put
 *   OBJECT_SEALED       FAILED_PRECONDITION  it is sealed already
 *   LOCK_FAILED         INTERNAL             the kernel refuses a lock on the descriptor
 *
 * Threads: any number may use a Directory and its objects at once. Handles are freed in any order:
 * an object keeps its Directory, and that its map.
 */
#ifndef CXLPOOL_DIRECTORY_H_
#define CXLPOOL_DIRECTORY_H_

#include "cxlpool/cxlpool.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cxlpool_directory cxlpool_directory;
typedef struct cxlpool_object cxlpool_object;

/* Bytes of a name, at most. Names are UTF-8, and not empty. */
#define CXLPOOL_MAX_OBJECT_NAME 1023

typedef struct cxlpool_directory_create_options {
  size_t size;
  uint32_t partitions; /* 1 to 1024: at least as many as processes that put. Each gets an equal part
                          of the map. */
  uint32_t entries;    /* Of each partition: a power of two, 8 to 2^28. Twice the objects that it
                          is to hold is enough. 64 bytes each. */
  uint32_t pins;       /* Of each partition: how many objects its owner may have borrowed at one
                          time. A multiple of 8, 8 to 65536. A process that removes an object reads
                          the pins of all partitions. */
  int32_t keeps_objects; /* 1: nothing is ever removed or replaced, so that processes without a
                            partition, on hosts that only read, may borrow. For weights. */
  int32_t replace; /* 1: also where a Directory is already; its objects are gone. The caller has to
                      know that no process has it open. */
} cxlpool_directory_create_options;
#define CXLPOOL_DIRECTORY_CREATE_OPTIONS_INIT \
  { sizeof(cxlpool_directory_create_options), 1, 65536, 64, 0, 0 }

/* Makes a Directory of all of the map, which is writable. Of several processes, one does this.
 * ALREADY_EXISTS/DIRECTORY_EXISTS; INVALID_ARGUMENT/BAD_ARGUMENT: also where the map is too small
 * for so many entries. */
CXLPOOL_API int cxlpool_directory_create(const cxlpool_map *map,
                                         const cxlpool_directory_create_options *options,
                                         cxlpool_error *error);

typedef struct cxlpool_directory_options {
  size_t size;
  int32_t partition; /* That this process owns from now on, and writes; -1: it only reads. */
  int32_t take_over; /* 1: also a partition that another host owned. Only when that host has the
                        Region no longer (`cxlpool region show`): it may still be writing, or
                        have lines of it in its caches. Where caches are coherent, a partition
                        that was closed can be owned without this. */
} cxlpool_directory_options;
#define CXLPOOL_DIRECTORY_OPTIONS_INIT \
  { sizeof(cxlpool_directory_options), -1, 0 }

/* Opens the Directory that the map begins with. Who only reads may have the map read-only.
 * FAILED_PRECONDITION: NOT_A_DIRECTORY, PARTITION_TAKEN (the message says by whom).
 * INVALID_ARGUMENT/BAD_ARGUMENT: there is no such partition, or the map is read-only. */
CXLPOOL_API int cxlpool_directory_open(const cxlpool_map *map,
                                       const cxlpool_directory_options *options,
                                       cxlpool_directory **directory, cxlpool_error *error);
CXLPOOL_API void cxlpool_directory_close(cxlpool_directory *directory);

/* Puts an object into the own partition. When it returns, every host finds it, and an object of
 * that name that was in this partition is gone as if removed. FAILED_PRECONDITION: NO_PARTITION,
 * OBJECTS_STAY (the name is there). RESOURCE_EXHAUSTED/DIRECTORY_FULL. */
CXLPOOL_API int cxlpool_directory_put(cxlpool_directory *directory, const char *name,
                                      const void *bytes, size_t size, cxlpool_error *error);

/* The same in two steps: room for an object, which no one else sees, and which the caller fills;
 * cxlpool_object_seal makes it visible. One that is freed without is gone.
 * FAILED_PRECONDITION/NO_PARTITION; RESOURCE_EXHAUSTED/DIRECTORY_FULL. */
CXLPOOL_API int cxlpool_directory_create_object(cxlpool_directory *directory, const char *name,
                                                size_t size, cxlpool_object **object,
                                                cxlpool_error *error);
/* After it nothing stores to its bytes, and they are the Directory's: cxlpool_object_bytes is NULL;
 * borrow the object to look at it. FAILED_PRECONDITION: OBJECT_SEALED, OBJECTS_STAY (the name is
 * there). RESOURCE_EXHAUSTED/DIRECTORY_FULL: no entry; it can be sealed later. */
CXLPOOL_API int cxlpool_object_seal(cxlpool_object *object, cxlpool_error *error);

/* Copies the object of that name to `into`, and its size to `size`, which may be NULL, and is
 * filled also where the object is larger than `room` (OUT_OF_RANGE/OBJECT_TOO_LARGE). Where several
 * partitions have one, it is the own partition's, or else that of the lowest number; one that moves
 * from one partition to another meanwhile may be missed.
 * NOT_FOUND/OBJECT_UNKNOWN; ABORTED/OBJECT_CHANGES; UNAVAILABLE/NOT_VISIBLE. */
CXLPOOL_API int cxlpool_directory_get(const cxlpool_directory *directory, const char *name,
                                      void *into, size_t room, size_t *size, cxlpool_error *error);

/* The object in place. Its bytes stay as they are until it is freed, even if it is removed. Needs a
 * partition of one's own, in which its owner notes what it looks at, or a Directory that keeps its
 * objects: FAILED_PRECONDITION/NO_PARTITION. RESOURCE_EXHAUSTED/TOO_MANY_BORROWED. */
CXLPOOL_API int cxlpool_directory_borrow(cxlpool_directory *directory, const char *name,
                                         cxlpool_object **object, cxlpool_error *error);

/* The object's bytes, at a multiple of 64; writable if it was made by create_object. NULL, and a
 * size of 0, once that is sealed. */
CXLPOOL_API void *cxlpool_object_bytes(const cxlpool_object *object);
CXLPOOL_API size_t cxlpool_object_size(const cxlpool_object *object);
/* Gives back what was borrowed. Pointers into its bytes are dead. */
CXLPOOL_API void cxlpool_object_free(cxlpool_object *object);

/* Removes an object of the own partition: it is found no more. Its bytes are used again once no one
 * has it borrowed. NOT_FOUND/OBJECT_UNKNOWN; FAILED_PRECONDITION: NOT_OWNER, OBJECTS_STAY. */
CXLPOOL_API int cxlpool_directory_remove(cxlpool_directory *directory, const char *name,
                                         cxlpool_error *error);

typedef struct cxlpool_object_info {
  size_t size; /* sizeof(cxlpool_object_info) when the caller was compiled. */
  uint64_t size_bytes;
  uint64_t generation; /* No other object of the partition ever has it. */
  uint32_t partition;
  uint32_t reserved; /* 0 */
} cxlpool_object_info;
#define CXLPOOL_OBJECT_INFO_INIT \
  { sizeof(cxlpool_object_info), 0, 0, 0, 0 }

/* Whether there is an object of that name, and which. NOT_FOUND/OBJECT_UNKNOWN. */
CXLPOOL_API int cxlpool_directory_find(const cxlpool_directory *directory, const char *name,
                                       cxlpool_object_info *info, cxlpool_error *error);

typedef struct cxlpool_directory_info {
  size_t size; /* sizeof(cxlpool_directory_info) when the caller was compiled. */
  uint32_t partitions;
  uint32_t entries; /* Of each partition. */
  int32_t keeps_objects;
  int32_t partition; /* The own; -1: none. All that follows is of it, and 0 without one. */
  uint64_t objects;
  uint64_t object_bytes; /* Their room, with names and rounding. */
  uint64_t free_bytes;
  uint64_t largest_free_bytes;
  uint64_t removed_objects; /* Removed, and borrowed by somebody. */
  uint64_t removed_bytes;
  uint64_t borrowed_objects; /* By this process, of all partitions; 0 with keeps_objects. */
} cxlpool_directory_info;
#define CXLPOOL_DIRECTORY_INFO_INIT \
  { sizeof(cxlpool_directory_info), 0, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0 }

CXLPOOL_API int cxlpool_directory_describe(const cxlpool_directory *directory,
                                           cxlpool_directory_info *info, cxlpool_error *error);

/* 0 while the Directory is the one that was opened, in the Region that was opened.
 * FAILED_PRECONDITION: DIRECTORY_REPLACED, STALE_GENERATION, or what cxlpool_region_check says. */
CXLPOOL_API int cxlpool_directory_check(const cxlpool_directory *directory, cxlpool_error *error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CXLPOOL_DIRECTORY_H_ */
