// One connection to a manager on a Unix socket, and blocking calls over it.
//
// Thread-safe.
#ifndef CXLPOOL_TEST_CRASH_CLIENT_H_
#define CXLPOOL_TEST_CRASH_CLIENT_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cxlpool/v1/access_service.grpc.pb.h"
#include "cxlpool/v1/inventory_service.grpc.pb.h"
#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "proto/support/status_wire.h"

namespace cxlpool::crash {

using PoolStub = v1::PoolService::Stub;
using InventoryStub = v1::InventoryService::Stub;
using AccessStub = v1::AccessService::Stub;

inline constexpr absl::Duration kCallLimit = absl::Seconds(20);

class Client {
 public:
  // `socket`: a path. Dials with the first call.
  explicit Client(const std::string& socket);

  // Calls `method` of a stub; errors carry the manager's Refusal, or see Unanswered.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request, absl::Duration limit = kCallLimit) {
    grpc::ClientContext context;
    return CallIn(context, method, request, limit);
  }

  // The same in a context that another thread may cancel.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> CallIn(grpc::ClientContext& context,
                                  grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                               Response*),
                                  const Request& request, absl::Duration limit = kCallLimit) {
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(limit));
    Response response;
    const grpc::Status status = (StubOf<Stub>().*method)(&context, request, &response);
    if (!status.ok()) return FromWire(status, context, "the manager");
    return response;
  }

  // Every Region, as of one revision.
  absl::StatusOr<v1::ListRegionsResponse> Regions();

  PoolStub& pool() { return *pool_; }
  InventoryStub& inventory() { return *inventory_; }

 private:
  template <typename Stub>
  Stub& StubOf() {
    if constexpr (std::is_same_v<Stub, PoolStub>) {
      return *pool_;
    } else if constexpr (std::is_same_v<Stub, AccessStub>) {
      return *access_;
    } else {
      return *inventory_;
    }
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<PoolStub> pool_;
  std::unique_ptr<InventoryStub> inventory_;
  std::unique_ptr<AccessStub> access_;
};

// Whether an error leaves open if the call was carried out: a retry with the same request_id tells.
bool Unanswered(const absl::Status& status);

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_CLIENT_H_
