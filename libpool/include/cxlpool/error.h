// What a program reads out of a Status that libpool returned.
//
// Every error of libpool carries a stable reason (UPPER_SNAKE; the host agent's and the fabric
// manager's are passed on unchanged) and, where there is something to do, a remedy. The text of
// the Status says both to a person. libpool's own reasons:
//
//   reason                status               what happened
//   AGENT_NOT_RUNNING     UNAVAILABLE          nothing listens on the socket
//   AGENT_LOST            UNAVAILABLE          the agent went away and did not come back in time
//   AGENT_TIMEOUT         DEADLINE_EXCEEDED    the agent did not answer in time
//   CLIENT_BUSY           DEADLINE_EXCEEDED    other calls of this Client took all the time
//   SOCKET_DENIED         PERMISSION_DENIED    this user may not connect to the socket
//   BAD_SOCKET            INVALID_ARGUMENT     the path is too long or is no agent's socket
//   BAD_REPLY             INTERNAL             the agent's packet breaks the local protocol
//   DESCRIPTORS_LOST      RESOURCE_EXHAUSTED   this process may open no more files
//   BAD_NAME, BAD_ARGUMENT INVALID_ARGUMENT    the call's own arguments
//   FORKED                FAILED_PRECONDITION  a forked child used its parent's Client
//   STALE_GENERATION      FAILED_PRECONDITION  the name now means another Region
//   SYSTEM_RAM            FAILED_PRECONDITION  a NUMA node has nothing to map
//   BACKING_SHORT         FAILED_PRECONDITION  the bytes were taken back
//   MAP_FAILED            (by errno)           mmap failed; see ErrnoOf. EACCES and EPERM are
//                                              PERMISSION_DENIED: a read-only descriptor
//   NUMA_FAILED           (by errno)           mbind or move_pages failed; see ErrnoOf
//
// Pure functions, any thread.
#ifndef CXLPOOL_ERROR_H_
#define CXLPOOL_ERROR_H_

#include <string>

#include "absl/status/status.h"

namespace cxlpool {

// The reason, or "" for OK and for a Status that libpool did not make.
std::string ErrorReason(const absl::Status& status);

// One imperative sentence, or "".
std::string ErrorRemedy(const absl::Status& status);

// The errno of the system call that failed, as in <cerrno>; 0 where no system call did.
int ErrnoOf(const absl::Status& status);

}  // namespace cxlpool

#endif  // CXLPOOL_ERROR_H_
