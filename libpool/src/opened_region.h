// What a Region object and its Mappings share: the agent's answer, the descriptors, and the hold
// that tells the agent of the use.
//
// Immutable; any thread.
#ifndef CXLPOOL_LIBPOOL_SRC_OPENED_REGION_H_
#define CXLPOOL_LIBPOOL_SRC_OPENED_REGION_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "libpool/src/reply.h"
#include "proto/support/unique_fd.h"

namespace cxlpool {

namespace libpool {

class Session;

// While it lives, the agent counts a Region as used by this process.
class Hold {
 public:
  Hold(std::shared_ptr<Session> session, uint64_t id) : session_(std::move(session)), id_(id) {}
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold();

  absl::Status Check() const;

 private:
  const std::shared_ptr<Session> session_;
  const uint64_t id_;
};

}  // namespace libpool

struct OpenedRegion {
  OpenedRegion(std::shared_ptr<libpool::Session> session, uint64_t hold_id,
               libpool::OpenReply opened, std::vector<UniqueFd> fds)
      : hold(std::move(session), hold_id), reply(std::move(opened)), descriptors(std::move(fds)) {}

  libpool::Hold hold;  // Ends after the descriptors are closed.
  libpool::OpenReply reply;
  std::vector<UniqueFd> descriptors;
};

}  // namespace cxlpool

#endif  // CXLPOOL_LIBPOOL_SRC_OPENED_REGION_H_
