// A program's page of counters (proto/support/usage_page.h), as the agent has it: a descriptor that
// the program gave.
//
// The program may do with its file what it likes, so nothing here maps it. It is read by pread,
// once it is known to be memory of the kernel's (a memfd) that keeps its size: then no read and no
// close waits for anybody. Its content is never relied on. Any thread, one at a time.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_USAGE_SOURCE_H_
#define CXLPOOL_HOST_AGENT_SERVICE_USAGE_SOURCE_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "proto/support/unique_fd.h"
#include "proto/support/usage_page.h"

namespace cxlpool::agent {

// Whether the descriptor is of such a page. Asks nothing that a file system of the program's own
// would have to answer.
bool IsUsagePage(int fd);

class UsageSource {
 public:
  // `page`: IsUsagePage.
  explicit UsageSource(UniqueFd page);

  // Which file it is, of all that there are now: connections of one program may give the same.
  uint64_t inode() const { return inode_; }

  // Nothing: it cannot be read.
  std::optional<UsagePage> Read() const;

 private:
  UniqueFd page_;
  uint64_t inode_ = 0;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_USAGE_SOURCE_H_
