// What this process does with its Regions, counted on a page that the host agent reads when it
// likes (proto/support/usage_page.h). A change is a store or an addition to memory: no message, no
// thread, no system call.
//
// A client has one page. The 65th and further Regions that it has open are not reported, and none
// is where there is no page. A forked child has the page too and never writes to it, so that the
// page stays the parent's: a second page, which the kernel wipes at fork, shows the child that it
// is one.
//
// Thread-safe.
#ifndef CXLPOOL_LIBPOOL_SRC_USAGE_H_
#define CXLPOOL_LIBPOOL_SRC_USAGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "proto/support/mutant.h"
#include "proto/support/mutex.h"
#include "proto/support/unique_fd.h"
#include "proto/support/usage_page.h"

namespace cxlpool::libpool {

// The page of one client.
class UsageCounters {
 public:
  // Null: there is none to be had, and the client goes without.
  static std::shared_ptr<UsageCounters> Make();
  UsageCounters(const UsageCounters&) = delete;
  UsageCounters& operator=(const UsageCounters&) = delete;
  ~UsageCounters();

  int fd() const { return fd_.get(); }
  bool forked() const { return *is_parent_ == 0 && !CXLPOOL_MUTANT("child-writes-to-the-page"); }

  // The Region's entry, which all who claim it share, until each has ended it. Null: 64 others have
  // an entry, or the tag is no UUID.
  UsageEntry* Claim(std::string_view tag);
  void End(UsageEntry* entry);

 private:
  UsageCounters(UniqueFd fd, UsagePage* page, uint64_t* is_parent)
      : fd_(std::move(fd)), page_(page), is_parent_(is_parent) {}

  const UniqueFd fd_;
  UsagePage* const page_;
  uint64_t* const is_parent_;  // 0 in a forked child.
  Mutex mutex_;
  uint32_t uses_[kMaxUsageEntries] ABSL_GUARDED_BY(mutex_) = {};
};

// What is counted of one open Region. It ends with the object.
class RegionUsage {
 public:
  RegionUsage(std::shared_ptr<UsageCounters> counters, std::string_view tag);
  RegionUsage(const RegionUsage&) = delete;
  RegionUsage& operator=(const RegionUsage&) = delete;
  ~RegionUsage();

  // Adds, or takes away what was added before.
  void AddMap(int64_t maps, int64_t bytes) const;
  void AddPins(int64_t pins) const;
  void AddLive(int64_t bytes) const;
  // Replaces what was reported before for this object.
  void Report(uint64_t live_bytes, uint64_t slack_bytes) const;

  uint32_t maps() const { return maps_.load(std::memory_order_relaxed); }
  uint32_t pins() const { return pins_.load(std::memory_order_relaxed); }

 private:
  bool counts() const { return entry_ != nullptr && !counters_->forked(); }

  const std::shared_ptr<UsageCounters> counters_;
  UsageEntry* const entry_;  // Null: it is not reported.
  mutable std::atomic<uint32_t> maps_ = 0;
  mutable std::atomic<uint32_t> pins_ = 0;
  mutable std::atomic<uint64_t> reported_live_ = 0;
  mutable std::atomic<uint64_t> reported_slack_ = 0;
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_USAGE_H_
