// What generic tools ask every gRPC server: whether it serves (grpc.health.v1), and what its
// methods look like (grpc.reflection.v1alpha).
//
// gRPC has both ready-made, and answers everybody; these are methods like all others, with rules.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_STANDARD_RPC_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_STANDARD_RPC_H_

#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "fabric-manager/rpc/calls.h"
#include "grpc/health/v1/health.pb.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

class HealthWatch;

// Any thread. Begins with NOT_SERVING. Outlives its streams.
class HealthRpc final {
 public:
  void AddTo(Calls& calls);

  // One thread at a time.
  void SetServing(bool serving);
  bool serving() const;

 private:
  friend class HealthWatch;

  using Status = grpc::health::v1::HealthCheckResponse;

  void Check(UnaryCall<grpc::health::v1::HealthCheckRequest, Status>& call);

  mutable Mutex mutex_;
  Status::ServingStatus status_ ABSL_GUARDED_BY(mutex_) = Status::NOT_SERVING;
  absl::flat_hash_set<std::shared_ptr<HealthWatch>> watches_ ABSL_GUARDED_BY(mutex_);
};

// Adds reflection of all services there are.
void AddReflection(Calls& calls);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_STANDARD_RPC_H_
