// A line in the log for each call that asks for a change: what, of what, by whom, from where, under
// which request id, and what became of it. A flood of calls does not become a flood of lines.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_CALL_LOG_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_CALL_LOG_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/support/executor.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

// A unary call that was answered.
struct AnsweredCall {
  absl::string_view method;  // Its path: "/cxlpool.v1.PoolService/ReleaseRegion".
  absl::string_view peer;    // grpc::ServerContext::peer.
  absl::string_view caller;  // Identity; empty: one without TLS, of this machine.
  const google::protobuf::Message& request;
  const absl::Status& status;
};

// Any thread.
class CallLog {
 public:
  static constexpr int kMaxLines = 50;  // A second; the others are counted.
  using Sink = std::function<void(const std::string& line)>;

  explicit CallLog(const Clock* clock, Sink sink = nullptr);

  // Calls that only read (Get..., List..., Check) make no line.
  void Note(const AnsweredCall& call);

 private:
  const Clock* const clock_;
  const Sink sink_;
  Mutex mutex_;
  absl::Duration second_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();  // When it began.
  int lines_ ABSL_GUARDED_BY(mutex_) = 0;                                      // In it.
  uint64_t unsaid_ ABSL_GUARDED_BY(mutex_) = 0;  // Since the last line.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_CALL_LOG_H_
