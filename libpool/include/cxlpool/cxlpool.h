/* libcxlpool: memory of the rack's CXL pool, for programs in C and for what binds to C.
 *
 *   cxlpool_client *pool = NULL;
 *   cxlpool_region *region = NULL;
 *   cxlpool_map *map = NULL;
 *   cxlpool_error error = CXLPOOL_ERROR_INIT;
 *   cxlpool_allocate_options options = CXLPOOL_ALLOCATE_OPTIONS_INIT;
 *
 *   options.size_bytes = (uint64_t)1 << 30;
 *   if (cxlpool_connect(NULL, &pool, &error) == 0 &&
 *       cxlpool_allocate(pool, &options, &region, &error) == 0 &&
 *       cxlpool_map_region(region, NULL, &map, &error) == 0) {
 *     memset(cxlpool_map_address(map), 0, cxlpool_map_size(map));
 *   } else {
 *     fprintf(stderr, "%s (%s)\n", error.message, error.remedy);
 *   }
 *
 * The library speaks with the host agent of this machine over a Unix socket, and maps the DAX
 * devices that the agent hands it. After that nothing is between the program and the memory.
 *
 * Calls that can fail return 0 or a code of cxlpool_code; `error`, which may be NULL, says more.
 * Every call ends by its deadline: the client's timeout, plus the call's own wait where it has one.
 * Within it a lost connection is made again, Regions still held are opened again, and the request
 * is sent again under the same request_id, so that one logical call never allocates twice. What
 * passes by itself (a manager that the agent cannot reach, an agent that has just started) is
 * waited for.
 *
 * Options are structs that begin with their size: initialise them with their ..._INIT. NULL in
 * their place means the defaults. A field that a later version adds means nothing when it is 0; a
 * library that does not know it refuses any other value. Handles are freed in any order: a map
 * keeps its Region in use, and a Region outlives its client. Freeing NULL does nothing. Strings are
 * UTF-8 and end with NUL.
 *
 * Named objects in a Region that hosts share have a header of their own: cxlpool/directory.h.
 *
 * Threads: any number may use a handle at once, and their calls run side by side (up to
 * CXLPOOL_MAX_CALLS, then in turn); free a handle only when no call uses it.
 *
 * Fork: a child has its parent's mappings, and may load from them and store to them, also by
 * cxlpool_put, cxlpool_get and cxlpool_guard. It must not use its parent's handles for more: calls
 * that ask the agent or that open, map, extend, check or change something answer
 * CXLPOOL_FAILED_PRECONDITION with reason FORKED, and freeing one has no effect outside the child.
 * As long as the child lives, what the parent had open stays in use. A program started by exec has
 * none of it.
 *
 * Signals: no call is made from a signal handler.
 */
#ifndef CXLPOOL_CXLPOOL_H_
#define CXLPOOL_CXLPOOL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CXLPOOL_API __attribute__((visibility("default")))

/* Calls of one client that run at once. */
#define CXLPOOL_MAX_CALLS 8

/* ---- What went wrong ------------------------------------------------------------------------ */

/* The numbers of google.rpc.Code. */
typedef enum cxlpool_code {
  CXLPOOL_OK = 0,
  CXLPOOL_CANCELLED = 1,
  CXLPOOL_UNKNOWN = 2,
  CXLPOOL_INVALID_ARGUMENT = 3,
  CXLPOOL_DEADLINE_EXCEEDED = 4,
  CXLPOOL_NOT_FOUND = 5,
  CXLPOOL_ALREADY_EXISTS = 6,
  CXLPOOL_PERMISSION_DENIED = 7,
  CXLPOOL_RESOURCE_EXHAUSTED = 8,
  CXLPOOL_FAILED_PRECONDITION = 9,
  CXLPOOL_ABORTED = 10,
  CXLPOOL_OUT_OF_RANGE = 11,
  CXLPOOL_UNIMPLEMENTED = 12,
  CXLPOOL_INTERNAL = 13,
  CXLPOOL_UNAVAILABLE = 14,
  CXLPOOL_DATA_LOSS = 15,
  CXLPOOL_UNAUTHENTICATED = 16
} cxlpool_code;

/* Filled by a call that fails, as far as its size says; untouched by one that succeeds. Reasons of
 * the host agent and of the fabric manager are passed on (docs/errors.md); the library's own:
 *
 *   reason              code                 what happened
 *   AGENT_NOT_RUNNING   UNAVAILABLE          nothing listens on the socket
 *   AGENT_LOST          UNAVAILABLE          the agent went away and did not come back in time
 *   AGENT_TIMEOUT       DEADLINE_EXCEEDED    the agent did not answer in time
 *   AGENT_TOO_OLD       FAILED_PRECONDITION  the agent does not know what was asked for
 *   CLIENT_BUSY         DEADLINE_EXCEEDED    other calls of this client took all the time
 *   SOCKET_DENIED       PERMISSION_DENIED    this user may not connect to the socket
 *   BAD_SOCKET          INVALID_ARGUMENT     the path is too long or is no agent's socket
 *   BAD_REPLY           INTERNAL             the agent's packet breaks the local protocol
 *   DESCRIPTORS_LOST    RESOURCE_EXHAUSTED   this process may open no more files
 *   NO_MEMORY           RESOURCE_EXHAUSTED   this process has no memory left
 *   BAD_NAME, BAD_ARGUMENT INVALID_ARGUMENT  the call's own arguments
 *   FORKED              FAILED_PRECONDITION  a forked child used its parent's handle
 *   STALE_GENERATION    FAILED_PRECONDITION  the name now means another Region
 *   SYSTEM_RAM          FAILED_PRECONDITION  a NUMA node has nothing to map
 *   BACKING_SHORT       FAILED_PRECONDITION  the bytes were taken back
 *   ADDRESS_TAKEN       ALREADY_EXISTS       something is mapped at the address that was wanted
 *   NO_RESERVE          FAILED_PRECONDITION  a map has no room for what its Region has got, and
 *                                            something else is mapped behind it
 *   DATA_LOST           DATA_LOSS            a guarded call, or populate, met bytes that are lost
 *   REVOKED             FAILED_PRECONDITION  a guarded call met memory that was taken away
 *   NO_HANDLER          INTERNAL             the handler of SIGBUS cannot be installed
 *   MAP_READ_ONLY       PERMISSION_DENIED    a put into a map that is not writable
 *   QUEUE_FULL          RESOURCE_EXHAUSTED   a copier has as many waiting copies as it may
 *   COPY_UNDER_WAY      DEADLINE_EXCEEDED    a copy has not ended in time; it goes on
 *   COPY_CANCELLED      CANCELLED            a copy was cancelled, or its copier stopped
 *   NO_THREAD           RESOURCE_EXHAUSTED   this process may have no more threads
 *   MAP_FAILED          (by errno)           mmap or madvise failed; see sys_errno. EACCES: the
 *                                            descriptor is read-only
 *   NUMA_FAILED         (by errno)           mbind or move_pages failed; see sys_errno
 *   PIN_FAILED          INTERNAL             an accelerator's runtime did not register a chunk
 *   UNPIN_FAILED        INTERNAL             it did not give one back
 *   NO_RANDOM           INTERNAL             getrandom failed
 *   UNEXPECTED          INTERNAL             a defect of the library
 */
typedef struct cxlpool_error {
  uint32_t size;     /* sizeof(cxlpool_error) when the caller was compiled. */
  int32_t code;      /* cxlpool_code. */
  int32_t sys_errno; /* Of the system call that failed, as in <errno.h>; 0: none did. */
  char reason[48];   /* For programs: UPPER_SNAKE, stable; "" if none was given. */
  char message[512]; /* For people: what and why. Cut where it is longer. */
  char remedy[256];  /* For people: one imperative sentence, or "". */
} cxlpool_error;
#define CXLPOOL_ERROR_INIT \
  { sizeof(cxlpool_error), 0, 0, "", "", "" }

/* ---- Words of a Region ---------------------------------------------------------------------- */

/* What this host may do with the bytes; enforced by the descriptor, and by the fabric where it can.
 */
typedef enum cxlpool_access { CXLPOOL_READ_WRITE = 1, CXLPOOL_READ_ONLY = 2 } cxlpool_access;

/* How this host uses a Region: memory that is mapped, or a NUMA node that ordinary memory is taken
 * from (exclusive Regions only). */
typedef enum cxlpool_mode { CXLPOOL_DEVDAX = 1, CXLPOOL_SYSTEM_RAM = 2 } cxlpool_mode;

/* Which hosts may be attached at one time: one; one that writes and any number that read; any
 * number, whose applications keep the bytes coherent. Fixed when the Region is allocated. */
typedef enum cxlpool_sharing {
  CXLPOOL_EXCLUSIVE = 1,
  CXLPOOL_SINGLE_WRITER = 2,
  CXLPOOL_MULTI_WRITER = 3
} cxlpool_sharing;

/* Whether loads on this host see another host's stores without help from software. SOFTWARE is also
 * what an agent that does not say means. */
typedef enum cxlpool_coherence {
  CXLPOOL_COHERENCE_SOFTWARE = 1,
  CXLPOOL_COHERENCE_HARDWARE = 2
} cxlpool_coherence;

/* How far this host's Attachment has come. */
typedef enum cxlpool_state {
  CXLPOOL_STATE_UNKNOWN = 0, /* One that this version of the library does not know. */
  CXLPOOL_WANTED = 1,
  CXLPOOL_BOUND = 2,
  CXLPOOL_ONLINE = 3, /* It can be opened. */
  CXLPOOL_OFFLINE = 4,
  CXLPOOL_EJECTING = 5,
  CXLPOOL_UNBOUND = 6,
  CXLPOOL_RELEASE_BLOCKED = 7
} cxlpool_state;

/* A Region as the library describes it: one that is open, or a line of a listing. */
typedef struct cxlpool_region_info {
  size_t size;              /* sizeof(cxlpool_region_info) when the caller was compiled. */
  char name[128];           /* regions/{region} */
  char tag[40];             /* A UUID as text. Identity: a name may be used again, a tag is not. */
  uint64_t generation;      /* Differs each time the Region is attached again; 0 in a listing. */
  uint64_t size_bytes;      /* Of what is open: from the Region's first byte on. */
  int32_t access;           /* cxlpool_access */
  int32_t mode;             /* cxlpool_mode */
  int32_t coherence;        /* cxlpool_coherence; 0 in a listing */
  int32_t numa_node;        /* Of a system-ram Region that is open, its first extent's
                               (cxlpool_region_nodes); -1: none. */
  uint64_t alignment_bytes; /* Maps begin at a multiple of it, and parts of the Region too: 2 MiB as
                               a rule. 0 in a listing. */
  /* In a listing only. */
  int32_t state;          /* cxlpool_state */
  int32_t detaching;      /* 1: it is being detached, and can be opened no more. */
  uint32_t opens;         /* Connections on this host that have it open. */
  uint32_t reserved;      /* 0 */
  char state_reason[256]; /* Why, and what to do, where a person is needed. */
} cxlpool_region_info;
#define CXLPOOL_REGION_INFO_INIT \
  { sizeof(cxlpool_region_info), "", "", 0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, "" }

/* ---- The way to the pool --------------------------------------------------------------------- */

typedef struct cxlpool_client cxlpool_client;
typedef struct cxlpool_region cxlpool_region;
typedef struct cxlpool_list cxlpool_list;
typedef struct cxlpool_map cxlpool_map;
typedef struct cxlpool_pin cxlpool_pin;
typedef struct cxlpool_fault_watch cxlpool_fault_watch;
typedef struct cxlpool_copier cxlpool_copier;
typedef struct cxlpool_op cxlpool_op;

typedef struct cxlpool_connect_options {
  size_t size;
  const char *socket_path; /* NULL or "": the environment's CXLPOOL_SOCKET (as secure_getenv(3)
                              has it), or else /run/cxlpool/agent.sock. */
  uint32_t timeout_ms; /* For connecting, and for each later call: how long the agent may take to
                          answer and, after it was there once, to come back. 1 to 3600000. */
} cxlpool_connect_options;
#define CXLPOOL_CONNECT_OPTIONS_INIT \
  { sizeof(cxlpool_connect_options), NULL, 30000 }

/* Connects to the host agent. Does not wait for one that is not running.
 * UNAVAILABLE/AGENT_NOT_RUNNING; PERMISSION_DENIED/SOCKET_DENIED; INVALID_ARGUMENT/BAD_SOCKET;
 * DEADLINE_EXCEEDED/AGENT_TIMEOUT. */
CXLPOOL_API int cxlpool_connect(const cxlpool_connect_options *options, cxlpool_client **client,
                                cxlpool_error *error);
CXLPOOL_API void cxlpool_disconnect(cxlpool_client *client);

typedef struct cxlpool_allocate_options {
  size_t size;
  const char *name;     /* {region} or regions/{region}. NULL or "": the manager names it. */
  uint64_t size_bytes;  /* Rounded up by the manager; cxlpool_region_describe says to what. */
  int32_t sharing;      /* cxlpool_sharing */
  int32_t mode;         /* cxlpool_mode */
  uint32_t max_extents; /* In how many pieces it may come. 0: the manager's default. */
  int32_t persistent;   /* 0: the Region lives as long as this process, and is released when it has
                           ended, in whatever way. exec keeps it; a child does not. 1: it stays until
                           somebody releases it, and comes back after a reboot of the host. */
  const uint32_t *open_to_uids; /* Which other users of this host may open it besides root: user */
  size_t open_to_uid_count;     /* ids, at most 64, */
  const uint32_t *open_to_gids; /* group ids (primary or supplementary), at most 64, */
  size_t open_to_gid_count;
  int32_t open_to_everybody; /* or 1: everybody who acts for the same tenant. They may read and
                                write it; only its maker releases it. */
  uint32_t wait_ms;          /* How long the memory may take to come online. At most 600000. */
  const char *request_id;    /* A UUID that names this allocation. NULL or "": a new one, which only
                                the retries of this call share. Give one to try again after a
                                failure, from another process as well, without making a second
                                Region: with the same id and the same arguments, by the same user (and
                                process, unless persistent), the Region that was made is opened. */
  int32_t as_file;           /* 1: as in cxlpool_open_options; then it comes in one piece. */
  int32_t reserved;          /* 0 */
} cxlpool_allocate_options;
#define CXLPOOL_ALLOCATE_OPTIONS_INIT                                                            \
  {                                                                                              \
    sizeof(cxlpool_allocate_options), NULL, 0, CXLPOOL_EXCLUSIVE, CXLPOOL_DEVDAX, 0, 0, NULL, 0, \
        NULL, 0, 0, 120000, NULL, 0, 0                                                           \
  }

/* Allocates a Region on this host, waits until it is online, and opens it for writing.
 * DEADLINE_EXCEEDED: it may be under way still; open it by name, or release it (so give a name).
 * ALREADY_EXISTS: the name is taken. RESOURCE_EXHAUSTED says what would fit, or that this user has
 * all that it may (USER_LIMIT). PERMISSION_DENIED: this user may not (ALLOCATE_NOT_ALLOWED,
 * PERSISTENT_NOT_ALLOWED). UNAVAILABLE/MANAGER_UNREACHABLE: the manager did not answer in time; it
 * may have been carried out: try again with the same request_id. FAILED_PRECONDITION/OWNER_UNKNOWN:
 * the agent cannot see this process (another PID namespace); allocate it persistent. */
CXLPOOL_API int cxlpool_allocate(cxlpool_client *client, const cxlpool_allocate_options *options,
                                 cxlpool_region **region, cxlpool_error *error);

typedef struct cxlpool_open_options {
  size_t size;
  int32_t access;   /* cxlpool_access */
  uint32_t wait_ms; /* For a Region that is attached but not online yet. At most 600000. */
  int32_t as_file;  /* 1: while it is open, every program of this user may open it by a path
                       (cxlpool_region_path), too: for writing only if it is open for that here. A
                       devdax Region of one extent. */
  int32_t reserved; /* 0 */
} cxlpool_open_options;
#define CXLPOOL_OPEN_OPTIONS_INIT \
  { sizeof(cxlpool_open_options), CXLPOOL_READ_WRITE, 0, 0, 0 }

/* Opens a Region that is attached to this host: {region}, regions/{region}, or its tag.
 * NOT_FOUND/NOT_ATTACHED: attach it first. PERMISSION_DENIED: it is attached READ_ONLY, or another
 * user made it and it is not open to this one (REGION_NOT_YOURS). UNAVAILABLE/NOT_ONLINE_YET: try
 * later, or give a wait. FAILED_PRECONDITION/REGION_RELEASING: it is being taken away.
 * With as_file: FAILED_PRECONDITION: NOT_DEVDAX, MANY_EXTENTS (allocate it with max_extents = 1),
 * OTHER_NAMESPACE (this process has another /dev than the agent: a container), AGENT_TOO_OLD
 * (nothing is open; what cxlpool_allocate made is released again, unless it was given a request_id:
 * then it stays, for it may be that of an earlier call). UNIMPLEMENTED/PATH_UNSUPPORTED: this host
 * cannot. INTERNAL/PATH_FAILED. Where a Region was allocated before, the message names it. */
CXLPOOL_API int cxlpool_open(cxlpool_client *client, const char *name,
                             const cxlpool_open_options *options, cxlpool_region **region,
                             cxlpool_error *error);

/* Starts the release of a Region that this host has and no other, by name or by tag. Returns once
 * that is durable; the memory goes when no one uses it, this process included: unmap and close
 * first. PERMISSION_DENIED/REGION_NOT_YOURS: another user made it. */
CXLPOOL_API int cxlpool_release(cxlpool_client *client, const char *name, cxlpool_error *error);

/* The Regions attached to this host. */
CXLPOOL_API int cxlpool_list_regions(cxlpool_client *client, cxlpool_list **list,
                                     cxlpool_error *error);
CXLPOOL_API size_t cxlpool_list_count(const cxlpool_list *list);
/* INVALID_ARGUMENT/BAD_ARGUMENT: there are not so many. */
CXLPOOL_API int cxlpool_list_describe(const cxlpool_list *list, size_t index,
                                      cxlpool_region_info *info, cxlpool_error *error);
CXLPOOL_API void cxlpool_list_free(cxlpool_list *list);

/* ---- An open Region -------------------------------------------------------------------------- */

/* While a Region is open, or a map of it lives, the agent counts it as used, and takes it away only
 * by force. Name and size are those of the moment it was opened: one that grows stays as it was
 * here. Closing is not releasing: the bytes stay. */

CXLPOOL_API int cxlpool_region_describe(const cxlpool_region *region, cxlpool_region_info *info,
                                        cxlpool_error *error);

/* 0 while the agent knows of this use. Otherwise why the Region could not be opened again after the
 * connection was lost; retried by each call of the client, except for STALE_GENERATION, which
 * stays. Does not ask the agent. */
CXLPOOL_API int cxlpool_region_check(const cxlpool_region *region, cxlpool_error *error);

/* A part of a Region, and where its bytes are in a descriptor: for interfaces that take descriptors
 * (io_uring, GPUDirect, NIXL, RDMA). A system-ram Region has none. */
typedef struct cxlpool_extent {
  size_t size;
  int32_t fd; /* The Region's own: valid while it is open, close-on-exec. dup it to keep it. */
  int32_t reserved;
  uint64_t offset_bytes; /* Of the descriptor. */
  uint64_t length_bytes;
  uint64_t region_offset_bytes;
  uint64_t alignment_bytes; /* Of the three above. */
} cxlpool_extent;
#define CXLPOOL_EXTENT_INIT \
  { sizeof(cxlpool_extent), -1, 0, 0, 0, 0, 0 }

CXLPOOL_API size_t cxlpool_region_extent_count(const cxlpool_region *region);
/* INVALID_ARGUMENT/BAD_ARGUMENT: there are not so many. */
CXLPOOL_API int cxlpool_region_extent(const cxlpool_region *region, size_t index,
                                      cxlpool_extent *extent, cxlpool_error *error);

/* The NUMA nodes of a system-ram Region, each once, that of the first extent first: how many there
 * are, of which `nodes` gets as many as it has room for. It may be NULL where `room` is 0. 0: it is
 * devdax. Of an agent of a release before this one: the first. */
CXLPOOL_API size_t cxlpool_region_nodes(const cxlpool_region *region, int *nodes, size_t room);

/* Where programs of this user may open an extent of a Region that is open as_file:
 * "/dev/cxlpool/kv/dax1.0". NULL: it is not, or there are not so many. It is a DAX device: mmap in
 * multiples of alignment_bytes, size_bytes at most; neither read, write nor ftruncate, and st_size
 * is 0. The text is the Region's. The path goes when it was closed by all that asked for it, or the
 * agent restarts (the client's next call makes it again); what was opened by it stays open and
 * counts as used. */
CXLPOOL_API const char *cxlpool_region_path(const cxlpool_region *region, size_t index);

/* For a program that is about to become another by exec: that one, and its children, keep the
 * Region open, and with it its path, until the last of them has ended. It has one descriptor more,
 * which it must not close: when it does, or when the agent restarts, the Region is closed. What
 * else is open on the connection stays open with it, so use a client of its own.
 * DEADLINE_EXCEEDED/CLIENT_BUSY: another call is under way. UNAVAILABLE/AGENT_LOST: it is not open
 * any more. */
CXLPOOL_API int cxlpool_keep_through_exec(const cxlpool_region *region, cxlpool_error *error);

/* For a program that hands out memory of the Region by itself: how many bytes hold something now,
 * and how many are kept ready for what comes. Operators see it where they ask who uses a Region,
 * beside what the library counts (maps, pins, a Directory's objects). Replaces what was given for
 * this handle before. Costs two stores to memory, and sends no message: call it as often as you
 * like. Has no effect for the 65th and further Regions that a client has open, nor in a forked
 * child.
 * INVALID_ARGUMENT/BAD_ARGUMENT: `region` is NULL. */
CXLPOOL_API int cxlpool_region_tell(const cxlpool_region *region, uint64_t live_bytes,
                                    uint64_t slack_bytes, cxlpool_error *error);

CXLPOOL_API void cxlpool_close(cxlpool_region *region);

/* ---- Its bytes ------------------------------------------------------------------------------- */

typedef enum cxlpool_writable {
  CXLPOOL_MAP_AS_OPENED = 0, /* As the Region's access allows. */
  CXLPOOL_MAP_WRITABLE = 1,
  CXLPOOL_MAP_READ_ONLY = 2
} cxlpool_writable;

typedef struct cxlpool_map_options {
  size_t size;
  int32_t writable; /* cxlpool_writable */
  int32_t populate; /* 1: every page is there when the call returns (MADV_POPULATE_*), and no
                       first load or store takes a fault. */
  void *address;    /* Where it must begin; NULL: anywhere. A multiple of alignment_bytes. Offsets
                       are the better way to point into a Region; where a program needs the same
                       address on every host, 0x200000000000 to 0x500000000000 is free as a rule. */
  uint64_t offset_bytes;  /* The part that is mapped: both multiples of alignment_bytes. */
  uint64_t length_bytes;  /* 0: to the end. */
  uint64_t reserve_bytes; /* Address space kept free for growth, as cxlpool_map_extend uses it: at
                             least the length; 0: none besides the length. */
} cxlpool_map_options;
#define CXLPOOL_MAP_OPTIONS_INIT \
  { sizeof(cxlpool_map_options), CXLPOOL_MAP_AS_OPENED, 0, NULL, 0, 0, 0 }

/* Maps a Region as one range, however many DAX devices hold it. Each call makes a range of its own,
 * of the same bytes. It is left out of core dumps.
 * PERMISSION_DENIED/MAP_FAILED, sys_errno EACCES: writable, but the Region is open READ_ONLY; it is
 * the kernel that refuses. FAILED_PRECONDITION: SYSTEM_RAM (bind memory of your own to its node),
 * BACKING_SHORT (released meanwhile). ALREADY_EXISTS/ADDRESS_TAKEN. RESOURCE_EXHAUSTED/MAP_FAILED:
 * no room in the address space. DATA_LOSS/DATA_LOST, sys_errno EHWPOISON: with populate, and bytes
 * are lost. */
CXLPOOL_API int cxlpool_map_region(const cxlpool_region *region, const cxlpool_map_options *options,
                                   cxlpool_map **map, cxlpool_error *error);

/* Maps all that the Region has behind what is mapped, in the reserve of the map, or behind that
 * where nothing else is mapped: `grown` is the same Region, opened again. What is mapped already
 * stays where it is, and the rest is mapped as it was (writable, populate, left out of core dumps).
 * A map of a part goes to the Region's end, too. From then on the map keeps both in use. Done
 * already where the map reaches the Region's end; an error leaves the map as it was. A guard that
 * is under way, and a pin, cover what was mapped when they began. FAILED_PRECONDITION: NO_RESERVE
 * (it does not fit: only with a large enough reserve_bytes can a program rely on growth),
 * STALE_GENERATION (another Region). Else as cxlpool_map_region. */
CXLPOOL_API int cxlpool_map_extend(cxlpool_map *map, const cxlpool_region *grown,
                                   cxlpool_error *error);

CXLPOOL_API void *cxlpool_map_address(const cxlpool_map *map);
CXLPOOL_API size_t cxlpool_map_size(const cxlpool_map *map);
CXLPOOL_API int cxlpool_map_writable(const cxlpool_map *map);

/* Pointers into the range are dead. */
CXLPOOL_API void cxlpool_unmap(cxlpool_map *map);

/* ---- For accelerators ------------------------------------------------------------------------ */

/* What registers a range with an accelerator's runtime, so that its devices reach it by DMA, and
 * what ends that: small functions of the caller's around cudaHostRegister and cudaHostUnregister,
 * ibv_reg_mr and ibv_dereg_mr, or their like. 0 is success; every other number is the runtime's
 * own, and one that failed has registered nothing. They must not throw. */
typedef int (*cxlpool_register_fn)(void *address, size_t bytes, int read_only, void *context);
typedef int (*cxlpool_unregister_fn)(void *address, size_t bytes, void *context);

typedef struct cxlpool_pin_options {
  size_t size;
  cxlpool_register_fn register_fn; /* Both are needed. */
  cxlpool_unregister_fn unregister_fn;
  void *context;        /* Handed to both. */
  uint64_t chunk_bytes; /* So much a call, the last one less: a multiple of 2 MiB. Runtimes fail
                           with one range of 512 GiB and more. */
  int32_t read_only;    /* 1: devices only read. So they do in any case where the map is not
                           writable. */
  int32_t reserved;     /* 0 */
} cxlpool_pin_options;
#define CXLPOOL_PIN_OPTIONS_INIT \
  { sizeof(cxlpool_pin_options), NULL, NULL, NULL, (uint64_t)256 << 30, 0, 0 }

/* Registers all that is mapped, chunk after chunk, in the order of their addresses. The pin keeps
 * the range mapped, also after cxlpool_unmap. What cxlpool_map_extend adds afterwards is not
 * registered. INTERNAL/PIN_FAILED: the runtime refused a chunk; its number is in the message, and
 * those before it were unregistered, the last one first. Where the message says that the runtime
 * refused that, too, the range stays mapped until the process ends. INVALID_ARGUMENT/BAD_ARGUMENT.
 * FAILED_PRECONDITION/FORKED. */
CXLPOOL_API int cxlpool_pin_map(const cxlpool_map *map, const cxlpool_pin_options *options,
                                cxlpool_pin **pin, cxlpool_error *error);

/* Unregisters the chunks, the last one first, and frees the pin. Where it fails the pin is not
 * freed and keeps the range mapped: call again, or leave it. INTERNAL/UNPIN_FAILED: the runtime
 * refused; the chunks from there to the first stay registered. FAILED_PRECONDITION/FORKED. */
CXLPOOL_API int cxlpool_unpin(cxlpool_pin *pin, cxlpool_error *error);

/* ---- Between hosts --------------------------------------------------------------------------- */

/* What this thread stored to [address, address + bytes) is visible to other hosts before anything
 * that it stores afterwards; what another host published is what is loaded from there afterwards.
 * Where the fabric is coherent (CXLPOOL_COHERENCE_HARDWARE) they are a release and an acquire
 * fence; elsewhere they write back, or throw away, every cache line that has a byte of the range.
 * Both are needed, in the order and under the rules of docs/libpool.md, "Between hosts": above all,
 * one host at a time stores to a line, and refreshing one that this host has stored to writes it
 * back. INVALID_ARGUMENT/BAD_ARGUMENT: a range that is not all in the map. */
CXLPOOL_API int cxlpool_publish(const cxlpool_map *map, const void *address, size_t bytes,
                                cxlpool_error *error);
CXLPOOL_API int cxlpool_refresh(const cxlpool_map *map, const void *address, size_t bytes,
                                cxlpool_error *error);

/* ---- Lost bytes, and sizes that change ------------------------------------------------------- */

/* Bytes of a Region that are lost: poison, an uncorrectable error. Where a Region is striped over
 * several devices it is the range from the first to the last of them, and bytes between may be
 * good. */
typedef struct cxlpool_fault {
  size_t size;
  const char *name; /* regions/{region}, when it was reported. */
  const char *tag;
  uint64_t region_offset_bytes;
  uint64_t length_bytes;
  const char *message; /* For people: what the device reported. */
} cxlpool_fault;

/* What a guarded call could not reach: the bytes that it met first, which need not be the first of
 * those that are lost. */
typedef struct cxlpool_lost {
  size_t size;
  uint64_t region_offset_bytes; /* As in cxlpool_fault. */
  uint64_t length_bytes;        /* As much as the kernel says: 2 MiB as a rule. */
} cxlpool_lost;
#define CXLPOOL_LOST_INIT \
  { sizeof(cxlpool_lost), 0, 0 }

/* Calls work(context), and comes back where a load or store of the map meets SIGBUS, instead of
 * ending the process: DATA_LOSS/DATA_LOST, or FAILED_PRECONDITION/REVOKED where the memory itself
 * was taken away; then `lost`, which may be NULL, is filled. What `work` had done till then is
 * done, and it is left as by longjmp: it holds no lock, and in C++ makes no object that has to be
 * destroyed. Guards nest. Other threads are not guarded by it, nor is memory that is not the map's.
 * The calling thread must not block SIGBUS: the kernel ends a process whose own fault is blocked.
 * The first call installs a handler of SIGBUS for the process; loading the library does not.
 * Whatever is not ours goes to the handler that was there. INTERNAL/NO_HANDLER: it cannot be
 * installed. */
CXLPOOL_API int cxlpool_guard(const cxlpool_map *map, void (*work)(void *context), void *context,
                              cxlpool_lost *lost, cxlpool_error *error);

/* How much of a Region an Open would give now. */
typedef struct cxlpool_region_size {
  size_t size;
  const char *name; /* regions/{region}, when it was reported. */
  const char *tag;
  uint64_t size_bytes; /* From the Region's first byte on. 0: nothing any more, as it is being taken
                          away, or its memory has gone. */
} cxlpool_region_size;

/* Called from a thread of the watch's own, one call at a time. What they are given is gone when
 * they return. They may use any client, and must not stop the watch. */
typedef void (*cxlpool_on_fault)(const cxlpool_fault *fault, void *context);
typedef void (*cxlpool_on_size)(const cxlpool_region_size *now, void *context);

typedef struct cxlpool_fault_watch_options {
  size_t size;
  cxlpool_on_fault on_fault; /* NULL: faults are not reported. One of the two is needed. */
  cxlpool_on_size on_size;   /* NULL: sizes are not reported. */
  void *context;             /* Handed to both. */
} cxlpool_fault_watch_options;
#define CXLPOOL_FAULT_WATCH_OPTIONS_INIT \
  { sizeof(cxlpool_fault_watch_options), NULL, NULL, NULL }

/* Starts to report lost bytes and sizes of every Region that this user may open, opened or not.
 *
 * Faults: those that were there before included, each once (after a restart of the agent some
 * again, where there are more than 16,000). A load of lost bytes may raise SIGBUS, or give wrong
 * bytes; a fault may come before a load does. Lost bytes stay lost until the Region is released.
 *
 * Sizes: that of each Region that can be opened when the watch starts or later, and again whenever
 * it has grown or shrunk. Of changes that follow each other closely only the last may be reported.
 * A Region that has grown is opened again and mapped behind what is there (cxlpool_map_extend).
 * Before a Region shrinks or is taken away the agent waits until no one has the bytes open: a
 * program that has mapped more than the size that is reported has to unmap and close. An agent of
 * a release that has no sizes reports none.
 *
 * Asks the agent once, to find out whether it can report. Errors as cxlpool_connect, and
 * PERMISSION_DENIED/USER_NOT_ALLOWED; RESOURCE_EXHAUSTED/NO_THREAD; an agent of a release that has
 * no faults: INVALID_ARGUMENT/BAD_REQUEST. */
CXLPOOL_API int cxlpool_fault_watch_start(const cxlpool_connect_options *connect,
                                          const cxlpool_fault_watch_options *options,
                                          cxlpool_fault_watch **watch, cxlpool_error *error);
/* 0 while the agent answers; else why it does not. The watch goes on trying. */
CXLPOOL_API int cxlpool_fault_watch_check(const cxlpool_fault_watch *watch, cxlpool_error *error);
/* Waits for a call of `on_fault` or `on_size` that is under way. In a forked child it does nothing.
 */
CXLPOOL_API void cxlpool_fault_watch_stop(cxlpool_fault_watch *watch);

/* ---- Copies ---------------------------------------------------------------------------------- */

/* Copies between a map and memory of the program's own. Large puts go past
 * the caches, which is faster than memcpy except where the bytes that they overwrite are in a cache
 * already (docs/libpool.md, "Copies"). Which instructions are used is measured once in a process,
 * for about 20 ms, in the first copy of 1 KiB or more.
 *
 * - `offset` is counted from the map's first byte. The memory must not overlap the part that is
 *   copied, and memory that is not the map's is not guarded.
 * - A put ends with its bytes published, and a get begins with a refresh (cxlpool_publish,
 *   cxlpool_refresh): neither has to be called besides.
 * - A copy that meets lost bytes, or memory that was taken away, does not end the process: it fails
 *   with DATA_LOSS/DATA_LOST or FAILED_PRECONDITION/REVOKED, and fills `lost`, which may be NULL.
 *   Then some of the bytes may have been copied. It is guarded as by cxlpool_guard, except for
 * this: a handler of SIGBUS that the program installs itself may come before ours for some
 * milliseconds, or for 63 copies of the thread. The calling thread must not block SIGBUS; the
 * threads of a copier never do.
 * - INVALID_ARGUMENT/BAD_ARGUMENT: a range that is not all in the map.
 *   PERMISSION_DENIED/MAP_READ_ONLY: a put into a map that is not writable. INTERNAL/NO_HANDLER.
 *
 * Two copies of the same bytes at one time have no order, as two calls of memcpy have none. */
CXLPOOL_API int cxlpool_put(const cxlpool_map *map, uint64_t offset, const void *from, size_t bytes,
                            cxlpool_lost *lost, cxlpool_error *error);
CXLPOOL_API int cxlpool_get(const cxlpool_map *map, uint64_t offset, void *into, size_t bytes,
                            cxlpool_lost *lost, cxlpool_error *error);

/* Copies in the background: threads that carry them out, and a queue of those that wait. */
#define CXLPOOL_MAX_COPIER_THREADS 4
#define CXLPOOL_MAX_WAITING_COPIES 1024

typedef struct cxlpool_copier_options {
  size_t size;
  uint32_t threads;     /* 1 to CXLPOOL_MAX_COPIER_THREADS. A copy is carried out by one of them. */
  uint32_t max_waiting; /* Copies that have not begun: 1 to CXLPOOL_MAX_WAITING_COPIES. */
} cxlpool_copier_options;
#define CXLPOOL_COPIER_OPTIONS_INIT \
  { sizeof(cxlpool_copier_options), 1, CXLPOOL_MAX_WAITING_COPIES }

/* RESOURCE_EXHAUSTED/NO_THREAD. */
CXLPOOL_API int cxlpool_copier_start(const cxlpool_copier_options *options, cxlpool_copier **copier,
                                     cxlpool_error *error);
/* Cancels every copy that has not ended, reports their ends as for every copy, and waits for the
 * threads, each of which finishes the MiB that it is at. Copies that are to be carried out have to
 * be waited for before.
 * Not from a callback. In a forked child it does nothing. */
CXLPOOL_API void cxlpool_copier_stop(cxlpool_copier *copier);

/* Called once when a copy has ended: `error` is NULL if it was carried out, and gone when the call
 * returns. By a thread of the copier, which copies nothing meanwhile: it has to be short. It may
 * submit and cancel copies, and free its own. It must not wait for others nor free them, which may
 * be this thread's to end, and not stop the copier. */
typedef void (*cxlpool_on_copied)(const cxlpool_error *error, void *context);

typedef struct cxlpool_copy_options {
  size_t size;
  int32_t priority;            /* The larger goes first; of equal ones the older. */
  int32_t eventfd;             /* Gets 1 when the copy has ended; -1: none. No other descriptor. */
  cxlpool_on_copied on_copied; /* NULL: none. */
  void *context;
} cxlpool_copy_options;
#define CXLPOOL_COPY_OPTIONS_INIT \
  { sizeof(cxlpool_copy_options), 0, -1, NULL, NULL }

/* Puts a copy into the queue. The memory, the context and the eventfd are the copy's until it has
 * ended (done, failed or cancelled) and its end was reported. The end is reported exactly once by
 * each way that the options name. The map's handle may be freed: a copy keeps what is mapped until
 * it has ended. `op` may be NULL where the options name a way, and for a prefetch; it is filled
 * before the copy can end.
 * A prefetch begins with a refresh as a get does, and loads each line of the part once: afterwards
 * its pages are there, and its lines in the caches as far as they have room.
 * RESOURCE_EXHAUSTED/QUEUE_FULL: try again when one has begun. Else as above; an error that
 * a copy meets while it is carried out is reported at its end. */
CXLPOOL_API int cxlpool_put_async(cxlpool_copier *copier, const cxlpool_map *map, uint64_t offset,
                                  const void *from, size_t bytes,
                                  const cxlpool_copy_options *options, cxlpool_op **op,
                                  cxlpool_error *error);
CXLPOOL_API int cxlpool_get_async(cxlpool_copier *copier, const cxlpool_map *map, uint64_t offset,
                                  void *into, size_t bytes, const cxlpool_copy_options *options,
                                  cxlpool_op **op, cxlpool_error *error);
CXLPOOL_API int cxlpool_prefetch_async(cxlpool_copier *copier, const cxlpool_map *map,
                                       uint64_t offset, size_t bytes,
                                       const cxlpool_copy_options *options, cxlpool_op **op,
                                       cxlpool_error *error);

/* Waits until the copy has ended and its callback has returned, and answers how it ended: 0, or as
 * above, or CANCELLED/COPY_CANCELLED. May be asked again. DEADLINE_EXCEEDED/COPY_UNDER_WAY: it has
 * not ended in time, and goes on. Within its own callback it does not wait for that. */
CXLPOOL_API int cxlpool_op_wait(cxlpool_op *op, uint32_t timeout_ms, cxlpool_lost *lost,
                                cxlpool_error *error);
/* 1: it has ended, and its memory is touched no more. */
CXLPOOL_API int cxlpool_op_done(const cxlpool_op *op);
/* Ends it before its next MiB, with COPY_CANCELLED; no effect on one that has ended. Does not wait.
 */
CXLPOOL_API void cxlpool_op_cancel(cxlpool_op *op);
/* Cancels it where it has not ended, and waits until its memory is touched no more. */
CXLPOOL_API void cxlpool_op_free(cxlpool_op *op);

/* ---- Memory of a system-ram Region ----------------------------------------------------------- */

/* Pages of [address, address + bytes) come from `node` only (MPOL_BIND) from now on; those that
 * are elsewhere already are moved. `address` is a multiple of the page size. When the node is full,
 * a touch of a new page ends in the kernel's OOM killer, as for any MPOL_BIND.
 * INVALID_ARGUMENT/BAD_ARGUMENT: address, size, or a node that is not there or has no memory.
 * RESOURCE_EXHAUSTED/NUMA_FAILED: pages did not move. UNIMPLEMENTED/NUMA_FAILED: a kernel without
 * NUMA. */
CXLPOOL_API int cxlpool_bind_to_node(void *address, size_t bytes, int node, cxlpool_error *error);

/* The node of each page of [address, address + bytes), in order; -1: it was never touched. `nodes`
 * has room for bytes / page size, rounded up. Errors as above. */
CXLPOOL_API int cxlpool_nodes_of_pages(const void *address, size_t bytes, int *nodes,
                                       cxlpool_error *error);

/* ---- The library itself ---------------------------------------------------------------------- */

/* "0.1.0" */
CXLPOOL_API const char *cxlpool_version(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CXLPOOL_CXLPOOL_H_ */
