// A line in the log for each call that asks for a change: what, of what, by whom, from where, under
// which request id, and what became of it. It has the fields that the request names. A flood of
// calls does not become a flood of lines.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_CALL_LOG_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_CALL_LOG_H_

#include <google/protobuf/message.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/model/pool/caller.h"
#include "proto/support/executor.h"
#include "proto/support/log_limit.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

// A unary call that was answered.
struct AnsweredCall {
  absl::string_view method;  // Its path: "/cxlpool.v1.PoolService/ReleaseRegion".
  absl::string_view peer;    // grpc::ServerContext::peer.
  const Caller& caller;
  absl::string_view tenant;  // The caller's, where it has a role for one tenant only.
  const google::protobuf::Message& request;
  const absl::Status& status;
};

// Whether the method of that path changes nothing of the pool.
bool OnlyReads(absl::string_view method);

// Any thread.
class CallLog {
 public:
  static constexpr int kMaxLines = 50;  // A second; the others are counted.
  using Sink = std::function<void(const std::string& line)>;

  explicit CallLog(const Clock* clock, Sink sink = nullptr);

  // Calls that only read make no line.
  void Note(const AnsweredCall& call);

 private:
  const Clock* const clock_;
  const Sink sink_;
  Mutex mutex_;
  LogLimit limit_ ABSL_GUARDED_BY(mutex_){kMaxLines};
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_CALL_LOG_H_
