// The copies of cxlpool.h, on copy.h and copier.h. No exception leaves it.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>

#include "cxlpool/cxlpool.h"
#include "libpool/src/c_api.h"
#include "libpool/src/copier.h"
#include "libpool/src/copy.h"
#include "libpool/src/status.h"
#include "libpool/src/text.h"
#include "proto/support/mutant.h"

namespace lib = cxlpool::libpool;
using lib::CopyOut;
using lib::NotGiven;
using lib::Run;
using lib::Status;
using lib::StatusOr;

struct cxlpool_copier {
  std::shared_ptr<lib::Copier> copier;
};
struct cxlpool_op {
  std::shared_ptr<lib::Copier::Op> op;
};

namespace {

// Carries out a copy in the calling thread.
[[gnu::noinline]] int CopyNow(const cxlpool_map* map, const lib::Copy& copy, cxlpool_lost* lost,
                              cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (map == nullptr) return NotGiven("map");
    if (Status status = CheckCopy(*map->map, copy); !status.ok()) return status;
    cxlpool_lost filled = CXLPOOL_LOST_INIT;
    Status status = CarryOut(*map->map, copy, &filled);
    if (lost != nullptr && !status.ok()) CopyOut(filled, lost);
    return status;
  });
}

// By what the kernel calls it. Without /proc that is not known, and the caller is believed.
bool IsEventfd(int fd) {
  char link[32];
  char target[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, target, sizeof target);
  return length < 0 || CXLPOOL_MUTANT("any-descriptor-is-an-eventfd") ||
         std::string_view(target, static_cast<size_t>(length)) == "anon_inode:[eventfd]";
}

// Checks that the options name a way to notice the end of the copy, and that the descriptor is an
// eventfd. A prefetch needs no such way: it uses no memory of the caller's.
Status CheckEndIsNoticed(const cxlpool_copy_options& options, const lib::Copy& copy,
                         cxlpool_op** op) {
  if (op == nullptr && options.on_copied == nullptr && options.eventfd < 0 &&
      copy.what != lib::Copy::What::kPrefetch) {
    return lib::BadArgument("the caller would not learn when the memory is its own again",
                            "give op, on_copied or eventfd");
  }
  if (options.eventfd >= 0 && ::fcntl(options.eventfd, F_GETFD) < 0) {
    return lib::BadArgument(lib::Concat("eventfd ", options.eventfd, " is not open"),
                            "give one that is, or -1");
  }
  if (options.eventfd >= 0 && !IsEventfd(options.eventfd)) {
    return lib::BadArgument(lib::Concat("descriptor ", options.eventfd, " is no eventfd"),
                            "give one, or -1, and begin with CXLPOOL_COPY_OPTIONS_INIT");
  }
  return Status();
}

// Puts a copy into the queue of a copier.
int CopyLater(cxlpool_copier* copier, const cxlpool_map* map, const lib::Copy& copy,
              const cxlpool_copy_options* options, cxlpool_op** op, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (copier == nullptr || map == nullptr) return NotGiven("copier or map");
    const StatusOr<cxlpool_copy_options> read = lib::Read(options, CXLPOOL_COPY_OPTIONS_INIT);
    if (!read.ok()) return read.status();
    if (Status status = CheckEndIsNoticed(*read, copy, op); !status.ok()) return status;
    auto handle = std::make_unique<cxlpool_op>();
    lib::Copier::Request request = {
        .map = map->map, .copy = copy, .priority = read->priority, .eventfd = read->eventfd};
    if (CXLPOOL_MUTANT("copy-lets-its-map-go")) {
      request.map = std::shared_ptr<const lib::Map>(std::shared_ptr<void>(), map->map.get());
    }
    if (read->on_copied != nullptr) {
      request.on_end = [call = read->on_copied,
                        context = read->context](const lib::Copier::End& end) {
        cxlpool_error why = CXLPOOL_ERROR_INIT;
        call(Answer(end.status, &why) == CXLPOOL_OK ? nullptr : &why, context);
      };
    }
    // Before it can end, since the code that is notified of the end may free it.
    return copier->copier
        ->Submit(std::move(request),
                 [&](const std::shared_ptr<lib::Copier::Op>& queued) {
                   if (op == nullptr) return;
                   handle->op = queued;
                   *op = handle.release();
                 })
        .status();
  });
}

lib::Copy PutOf(uint64_t offset, const void* from, size_t bytes) {
  // It is only read.
  return {lib::Copy::What::kPut, offset, const_cast<void*>(from), bytes};
}

lib::Copy GetOf(uint64_t offset, void* into, size_t bytes) {
  return {lib::Copy::What::kGet, offset, into, bytes};
}

// What is not done in cxlpool_put and cxlpool_get themselves: kept out of them, so that these save
// no registers.
[[gnu::noinline]] int Put(const cxlpool_map* map, uint64_t offset, const void* from, size_t bytes,
                          cxlpool_lost* lost, cxlpool_error* error) {
  if (map != nullptr && PutCaught(*map->map, offset, from, bytes)) return CXLPOOL_OK;
  return CopyNow(map, PutOf(offset, from, bytes), lost, error);
}

[[gnu::noinline]] int Get(const cxlpool_map* map, uint64_t offset, void* into, size_t bytes,
                          cxlpool_lost* lost, cxlpool_error* error) {
  if (map != nullptr && GetCaught(*map->map, offset, into, bytes)) return CXLPOOL_OK;
  return CopyNow(map, GetOf(offset, into, bytes), lost, error);
}

}  // namespace

int cxlpool_put(const cxlpool_map* map, uint64_t offset, const void* from, size_t bytes,
                cxlpool_lost* lost, cxlpool_error* error) {
  if (map != nullptr && lib::PutFew(*map->map, offset, from, bytes)) return CXLPOOL_OK;
  return Put(map, offset, from, bytes, lost, error);
}

int cxlpool_get(const cxlpool_map* map, uint64_t offset, void* into, size_t bytes,
                cxlpool_lost* lost, cxlpool_error* error) {
  if (map != nullptr && lib::GetFew(*map->map, offset, into, bytes)) return CXLPOOL_OK;
  return Get(map, offset, into, bytes, lost, error);
}

int cxlpool_copier_start(const cxlpool_copier_options* options, cxlpool_copier** copier,
                         cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (copier == nullptr) return NotGiven("copier");
    const StatusOr<cxlpool_copier_options> read = lib::Read(options, CXLPOOL_COPIER_OPTIONS_INIT);
    if (!read.ok()) return read.status();
    if (read->threads < 1 || read->threads > CXLPOOL_MAX_COPIER_THREADS) {
      return lib::BadArgument(lib::Concat("threads is ", read->threads), "give 1 to 4");
    }
    if (read->max_waiting < 1 || read->max_waiting > CXLPOOL_MAX_WAITING_COPIES) {
      return lib::BadArgument(lib::Concat("max_waiting is ", read->max_waiting), "give 1 to 1024");
    }
    auto handle = std::make_unique<cxlpool_copier>();
    auto started = lib::Copier::Start({.threads = read->threads, .max_waiting = read->max_waiting});
    if (!started.ok()) return started.status();
    handle->copier = *std::move(started);
    *copier = handle.release();
    return Status();
  });
}

void cxlpool_copier_stop(cxlpool_copier* copier) {
  // A forked child has none of the threads, and a lock may be held for ever: it leaves all as it
  // is.
  if (copier == nullptr || copier->copier->Forked()) return;
  copier->copier->Stop();
  delete copier;
}

int cxlpool_put_async(cxlpool_copier* copier, const cxlpool_map* map, uint64_t offset,
                      const void* from, size_t bytes, const cxlpool_copy_options* options,
                      cxlpool_op** op, cxlpool_error* error) {
  return CopyLater(copier, map, PutOf(offset, from, bytes), options, op, error);
}

int cxlpool_get_async(cxlpool_copier* copier, const cxlpool_map* map, uint64_t offset, void* into,
                      size_t bytes, const cxlpool_copy_options* options, cxlpool_op** op,
                      cxlpool_error* error) {
  return CopyLater(copier, map, GetOf(offset, into, bytes), options, op, error);
}

int cxlpool_prefetch_async(cxlpool_copier* copier, const cxlpool_map* map, uint64_t offset,
                           size_t bytes, const cxlpool_copy_options* options, cxlpool_op** op,
                           cxlpool_error* error) {
  const lib::Copy copy = {lib::Copy::What::kPrefetch, offset, nullptr, bytes};
  return CopyLater(copier, map, copy, options, op, error);
}

int cxlpool_op_wait(cxlpool_op* op, uint32_t timeout_ms, cxlpool_lost* lost, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (op == nullptr) return NotGiven("op");
    const lib::Copier::End end = op->op->Wait(lib::Duration(timeout_ms));
    if (lost != nullptr && end.lost.length_bytes != 0) CopyOut(end.lost, lost);
    return end.status;
  });
}

int cxlpool_op_done(const cxlpool_op* op) { return op == nullptr || op->op->Ended() ? 1 : 0; }

void cxlpool_op_cancel(cxlpool_op* op) {
  if (op != nullptr) op->op->Cancel();
}

void cxlpool_op_free(cxlpool_op* op) {
  if (op == nullptr) return;
  op->op->CancelAndWait();
  delete op;
}
