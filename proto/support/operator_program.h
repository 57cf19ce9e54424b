// A program of the operator's, run by itself for no longer than it may: the agent's drain hook, the
// manager's fence program.
//
// It gets what it must know in its arguments and environment, and nothing else but PATH. Its
// working directory is /, its input empty, it is the leader of a process group of its own; the
// first 4 KiB of its output go to the log. When it ends, or its time is up, what is left of its
// process group is killed.
//
// It runs with the rights of the user who runs it, so no one else may be able to change it.
#ifndef CXLPOOL_PROTO_SUPPORT_OPERATOR_PROGRAM_H_
#define CXLPOOL_PROTO_SUPPORT_OPERATOR_PROGRAM_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/support/unique_fd.h"

namespace cxlpool {

struct ProgramCall {
  std::string what;     // For messages: "the drain hook".
  std::string reason;   // Of what goes wrong in it: "DRAIN_HOOK".
  std::string subject;  // Of the log line with what it wrote: "drain-hook",
  std::string about;    // and whom it was about: "Region kv".
  std::string path;
  std::vector<std::string> arguments;    // Without its name.
  std::vector<std::string> environment;  // "NAME=value".
  absl::Duration timeout;
  int stop = -1;  // Readable: it is killed.
};

// The file that `path` leads to, if it is safe to run: a file that may be executed, which root or
// this user owns and no one else may write; and the same of each directory on the way to it (others
// may write in one that is sticky). FAILED_PRECONDITION/HOOK_UNSAFE.
absl::StatusOr<std::string> CheckProgram(const std::string& what, const std::string& path);

// One run. Blocking; one thread. Needs Linux 5.3.
class ProgramRun {
 public:
  // HOOK_UNSAFE as above. By `call.reason`: ABORTED (it failed), CANCELLED (`stop`),
  // DEADLINE_EXCEEDED, INTERNAL (it could not be run).
  absl::Status Run(const ProgramCall& call);

  // After Run: what it exited with; -1: it did not exit by itself.
  int exit_status() const { return exit_status_; }

  // After Run: waits for what does not even die of SIGKILL, until `stop` can be read.
  void AwaitDeath(int stop);

 private:
  int exit_status_ = -1;
  pid_t pid_ = -1;
  UniqueFd pidfd_;
  UniqueFd output_;  // The end of the pipe that it writes to.
};

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_OPERATOR_PROGRAM_H_
