// For people who look for leaks: which Regions, maps and pins a program has not given back when it
// ends. With CXLPOOL_LEAKS=1 in its environment each Region that is still open, mapped or pinned
// then is one line on standard error:
//
//   cxlpool: leak: region kv (2.0 GiB), opened, 1 map(s), 1 pin(s)
//
// Without it nothing is noted. The list is of the whole process, as its end is. Thread-safe.
#ifndef CXLPOOL_LIBPOOL_SRC_LEAKS_H_
#define CXLPOOL_LIBPOOL_SRC_LEAKS_H_

#include <sys/types.h>
#include <unistd.h>

#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "proto/support/mutex.h"

namespace cxlpool::libpool {

struct OpenedRegion;

class LeakList {
 public:
  // The process's list. Null: it is not wanted. The first call reads the environment, and arranges
  // for the report at the end of the process.
  static LeakList* Wanted();

  // In a forked child nothing: it tells nothing either, and the lock may be held for ever.
  void Add(const OpenedRegion* region);
  void Remove(const OpenedRegion* region);

  // The lines; "": nothing was left.
  std::string Report() const;

 private:
  LeakList() = default;
  static void ReportAtExit();
  bool Forked() const { return ::getpid() != process_; }

  const pid_t process_ = ::getpid();
  mutable Mutex mutex_;
  std::set<const OpenedRegion*> regions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_LEAKS_H_
