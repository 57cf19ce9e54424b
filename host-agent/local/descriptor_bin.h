// Gets rid of descriptors that a peer has given, of whatever it likes.
//
// To close one may wait for the peer: a file of a file system that it serves (FUSE) is flushed, and
// a socket may linger. So each is closed by a thread of its own, which may stay there for ever.
// While kMaxUnderWay of them are, nothing more should be taken; the kernel drops what is not taken.
// Not thread-safe; owned by the I/O thread.
#ifndef CXLPOOL_HOST_AGENT_LOCAL_DESCRIPTOR_BIN_H_
#define CXLPOOL_HOST_AGENT_LOCAL_DESCRIPTOR_BIN_H_

#include <atomic>
#include <memory>

#include "proto/support/unique_fd.h"

namespace cxlpool::agent {

class DescriptorBin {
 public:
  static constexpr int kMaxUnderWay = 4;

  bool HasRoom() const { return *under_way_ < kMaxUnderWay; }

  // Not valid: no effect. Does not wait.
  void Drop(UniqueFd descriptor);

 private:
  const std::shared_ptr<std::atomic<int>> under_way_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_LOCAL_DESCRIPTOR_BIN_H_
