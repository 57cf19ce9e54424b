// DAX devices as paths, for users whose programs want to open a file by its name.
//
// A device is shown as FOLDER/DEVICE below one place of the host (/dev/cxlpool): a link to its
// node. The folder is a Region's id. Who may open the node by name is the host's matter and, while
// it is shown, that of the users named here besides. A process that has opened it keeps what is
// open.
//
// Invariant: a node that a user was let at by this port has a link there, also after a crash at any
// moment: the link comes before the right and goes after it. So TakeBackAll finds everything.
//
// Calls are quick, come one at a time, and are idempotent. The core's thread.
#ifndef CXLPOOL_HOST_AGENT_PORTS_DEVICE_PATHS_H_
#define CXLPOOL_HOST_AGENT_PORTS_DEVICE_PATHS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cxlpool::agent {

// A user who may open a device by its name: to read, and to write only if `writable`.
struct PathUser {
  uint32_t uid = 0;
  bool writable = false;
  friend bool operator==(const PathUser&, const PathUser&) = default;
};

class DevicePaths {
 public:
  virtual ~DevicePaths() = default;

  // Takes back whatever an agent before this one has shown. Call once, before anything is shown. An
  // error names the first that could not be taken back; the others are.
  virtual absl::Status TakeBackAll() = 0;

  // Whether paths mean to the process `pid` what they mean to the agent.
  // FAILED_PRECONDITION/OTHER_NAMESPACE: it has another /dev, or cannot be looked at.
  virtual absl::Status CheckCaller(int pid) const = 0;

  // Shows `node` (an absolute path) in `folder`, to exactly these users; there is at least one. The
  // answer is the path. INTERNAL/PATH_FAILED; UNIMPLEMENTED/PATH_UNSUPPORTED: the node's file
  // system has no access lists.
  virtual absl::StatusOr<std::string> Show(const std::string& folder, const std::string& node,
                                           const std::vector<PathUser>& users) = 0;

  // Takes rights away from users of `node`: of these users, those stay whom the node's list names
  // now, and none may more than it says now. So no user gets a right to another device that has the
  // node's name meanwhile. The node is gone: OK. INTERNAL/PATH_FAILED: call it again later.
  virtual absl::Status Narrow(const std::string& node, const std::vector<PathUser>& users) = 0;

  // Ends that. The node is gone, or was never shown: OK. INTERNAL/PATH_FAILED: the link stays, so
  // that the next TakeBackAll tries again.
  virtual absl::Status Hide(const std::string& folder, const std::string& node) = 0;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_PORTS_DEVICE_PATHS_H_
