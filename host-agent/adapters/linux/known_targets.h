// Remembers which memdevs each host region was made of, for after one was pulled out.
//
// A forced unplug leaves a region without targets: the kernel no longer says whose it was. Thread-
// safe. Memory only: after a restart such a region stays anonymous.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_KNOWN_TARGETS_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_KNOWN_TARGETS_H_

#include <map>
#include <string>
#include <vector>

#include "host-agent/adapters/linux/cxl_snapshot.h"
#include "proto/support/mutex.h"

namespace cxlpool::agent {

class KnownTargets {
 public:
  // Learns from `snapshot` and fills in the serials that it lacks. Regions that are gone are
  // forgotten; one with another address is another region.
  void Complete(CxlSnapshot& snapshot);

 private:
  struct Known {
    uint64_t hpa_bytes = 0;
    std::vector<uint64_t> serials;
  };
  Mutex mutex_;
  std::map<std::string, Known> regions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_KNOWN_TARGETS_H_
