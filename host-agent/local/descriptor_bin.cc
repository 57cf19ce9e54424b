#include "host-agent/local/descriptor_bin.h"

#include <system_error>
#include <thread>
#include <utility>

namespace cxlpool::agent {

// The thread has nothing of this object's but the count, and so may outlive it.
void DescriptorBin::Drop(UniqueFd descriptor) {
  if (!descriptor.valid()) return;
  ++*under_way_;
  const int fd = descriptor.Release();
  try {
    std::thread([fd, under_way = under_way_] {
      UniqueFd(fd).Reset();
      --*under_way;
    }).detach();
  } catch (const std::system_error&) {
    // No thread is to be had: it stays open, and counts, so that there are few of these.
  }
}

}  // namespace cxlpool::agent
