// An application's connection to an agent's socket that asks and does not wait for the answer
// (proto/cxlpool/v1/local.proto).
#ifndef CXLPOOL_TEST_CRASH_LOCAL_CALLER_H_
#define CXLPOOL_TEST_CRASH_LOCAL_CALLER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cxlpool/v1/local.pb.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::crash {

class LocalCaller {
 public:
  // Tries until the agent listens. UNAVAILABLE: it does not by `limit`.
  static absl::StatusOr<LocalCaller> Connect(const std::string& socket, absl::Duration limit);

  absl::Status Send(const v1::LocalRequest& request);

  bool Answered() const;  // Something is there to be read, or the agent hung up.

 private:
  explicit LocalCaller(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_LOCAL_CALLER_H_
