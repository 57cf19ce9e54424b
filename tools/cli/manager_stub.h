// The manager as the commands see it: each call tried once, within a deadline, nothing retried.
//
// Errors are the manager's, with their Refusal (refusal.h), or UNAVAILABLE (cannot be reached) and
// DEADLINE_EXCEEDED (no answer in `limit`; what was asked may have been done). `limit` is finite.
// One thread.
#ifndef CXLPOOL_TOOLS_CLI_MANAGER_STUB_H_
#define CXLPOOL_TOOLS_CLI_MANAGER_STUB_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"

namespace cxlpool::cli {

class ManagerStub {
 public:
  template <typename T>
  using Answer = absl::StatusOr<T>;
  // False ends the stream.
  using OnEvent = absl::FunctionRef<bool(const v1::WatchRegionsResponse&)>;

  virtual ~ManagerStub() = default;

  virtual Answer<v1::AllocateRegionResponse> AllocateRegion(
      const v1::AllocateRegionRequest& request, absl::Duration limit) = 0;
  virtual Answer<v1::Region> GetRegion(const v1::GetRegionRequest& request,
                                       absl::Duration limit) = 0;
  virtual Answer<v1::ListRegionsResponse> ListRegions(const v1::ListRegionsRequest& request,
                                                      absl::Duration limit) = 0;
  virtual Answer<v1::AttachRegionResponse> AttachRegion(const v1::AttachRegionRequest& request,
                                                        absl::Duration limit) = 0;
  virtual Answer<v1::DetachRegionResponse> DetachRegion(const v1::DetachRegionRequest& request,
                                                        absl::Duration limit) = 0;
  virtual Answer<v1::ReleaseRegionResponse> ReleaseRegion(const v1::ReleaseRegionRequest& request,
                                                          absl::Duration limit) = 0;
  virtual Answer<v1::Capacity> GetCapacity(const v1::GetCapacityRequest& request,
                                           absl::Duration limit) = 0;

  // Hands over events until `on_event` says false (then OK), the manager ends the stream (OK too),
  // it breaks, or `limit` is over (DEADLINE_EXCEEDED).
  virtual absl::Status WatchRegions(const v1::WatchRegionsRequest& request, absl::Duration limit,
                                    OnEvent on_event) = 0;

  virtual Answer<v1::ListDevicesResponse> ListDevices(const v1::ListDevicesRequest& request,
                                                      absl::Duration limit) = 0;
  virtual Answer<v1::ListHostsResponse> ListHosts(const v1::ListHostsRequest& request,
                                                  absl::Duration limit) = 0;
  virtual Answer<v1::Host> EnrolHost(const v1::EnrolHostRequest& request, absl::Duration limit) = 0;
  virtual Answer<v1::Host> RetireHost(const v1::RetireHostRequest& request,
                                      absl::Duration limit) = 0;
  virtual Answer<v1::Host> FenceHost(const v1::FenceHostRequest& request, absl::Duration limit) = 0;
  virtual Answer<v1::Topology> GetTopology(const v1::GetTopologyRequest& request,
                                           absl::Duration limit) = 0;
};

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_MANAGER_STUB_H_
