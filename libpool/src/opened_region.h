// What a Region's handle and its maps share: the agent's answer, the descriptors, the hold that
// keeps the agent informed of the use, and what is counted of it.
//
// Immutable except for the locks and the counts; any thread.
#ifndef CXLPOOL_LIBPOOL_SRC_OPENED_REGION_H_
#define CXLPOOL_LIBPOOL_SRC_OPENED_REGION_H_

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "libpool/src/leaks.h"
#include "libpool/src/reply.h"
#include "libpool/src/status.h"
#include "libpool/src/usage.h"
#include "proto/support/mutex.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::libpool {

class Session;

// While it lives, the agent counts a Region as used by this process.
class Hold {
 public:
  Hold(std::shared_ptr<Session> session, uint64_t id) : session_(std::move(session)), id_(id) {}
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold();

  Status Check() const;

  // The program that this process becomes by exec keeps it.
  Status KeepThroughExec() const;

 private:
  const std::shared_ptr<Session> session_;
  const uint64_t id_;
};

// Offsets of a Region that are locked by this handle (partition_lock.h).
class LockedOffsets {
 public:
  // False: it is there already.
  bool Add(uint64_t offset_bytes) {
    const MutexLock lock(mutex_);
    return offsets_.insert(offset_bytes).second;
  }
  void Remove(uint64_t offset_bytes) {
    const MutexLock lock(mutex_);
    offsets_.erase(offset_bytes);
  }

 private:
  Mutex mutex_;
  std::set<uint64_t> offsets_ ABSL_GUARDED_BY(mutex_);
};

struct OpenedRegion {
  OpenedRegion(std::shared_ptr<Session> session, uint64_t hold_id, OpenReply opened,
               std::vector<UniqueFd> fds, std::shared_ptr<UsageCounters> counters)
      : hold(std::move(session), hold_id),
        reply(std::move(opened)),
        descriptors(std::move(fds)),
        usage(std::move(counters), reply.tag) {
    if (LeakList* const leaks = LeakList::Wanted(); leaks != nullptr) leaks->Add(this);
  }
  OpenedRegion(const OpenedRegion&) = delete;
  OpenedRegion& operator=(const OpenedRegion&) = delete;
  ~OpenedRegion() {
    if (LeakList* const leaks = LeakList::Wanted(); leaks != nullptr) leaks->Remove(this);
  }

  // In a child that was forked: the descriptors are its parent's too.
  bool Forked() const { return ::getpid() != process; }

  const pid_t process = ::getpid();
  Hold hold;  // Ends after the descriptors are closed.
  OpenReply reply;
  std::vector<UniqueFd> descriptors;
  mutable LockedOffsets locked;  // Synchronises itself.
  const RegionUsage usage;
  mutable std::atomic<bool> has_handle = false;  // A caller's own, besides what is mapped.
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_OPENED_REGION_H_
