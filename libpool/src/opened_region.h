// What a Region's handle and its maps share: the agent's answer, the descriptors, and the hold that
// tells the agent of the use.
//
// Immutable; any thread.
#ifndef CXLPOOL_LIBPOOL_SRC_OPENED_REGION_H_
#define CXLPOOL_LIBPOOL_SRC_OPENED_REGION_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "libpool/src/reply.h"
#include "libpool/src/status.h"
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

 private:
  const std::shared_ptr<Session> session_;
  const uint64_t id_;
};

struct OpenedRegion {
  OpenedRegion(std::shared_ptr<Session> session, uint64_t hold_id, OpenReply opened,
               std::vector<UniqueFd> fds)
      : hold(std::move(session), hold_id), reply(std::move(opened)), descriptors(std::move(fds)) {}

  Hold hold;  // Ends after the descriptors are closed.
  OpenReply reply;
  std::vector<UniqueFd> descriptors;
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_OPENED_REGION_H_
