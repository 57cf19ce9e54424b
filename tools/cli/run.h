// How each command runs: one function a command; execute.cc picks. Internal to execute.h's side.
//
// Results go to the printer, errors are returned. One thread.
#ifndef CXLPOOL_TOOLS_CLI_RUN_H_
#define CXLPOOL_TOOLS_CLI_RUN_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/support/names.h"
#include "tools/cli/connection.h"
#include "tools/cli/execute.h"
#include "tools/cli/invocation.h"
#include "tools/cli/region_wait.h"

namespace cxlpool::cli {

absl::Status Run(AllocateRegion& command, Connection& connection, Printer& printer);
absl::Status Run(AllocateBatch& command, Connection& connection, Printer& printer);
absl::Status Run(ListRegions& command, Connection& connection, Printer& printer);
absl::Status Run(ShowRegion& command, Connection& connection, Printer& printer);
absl::Status Run(AttachRegion& command, Connection& connection, Printer& printer);
absl::Status Run(DetachRegion& command, Connection& connection, Printer& printer);
absl::Status Run(ReleaseRegion& command, Connection& connection, Printer& printer);
absl::Status Run(ReleaseBatch& command, Connection& connection, Printer& printer);
absl::Status Run(ResizeRegion& command, Connection& connection, Printer& printer);
absl::Status Run(RenameRegion& command, Connection& connection, Printer& printer);
absl::Status Run(RenewRegion& command, Connection& connection, Printer& printer);
absl::Status Run(WatchRegions& command, Connection& connection, Printer& printer);
absl::Status Run(ListHosts& command, Connection& connection, Printer& printer);
absl::Status Run(EnrolHost& command, Connection& connection, Printer& printer);
absl::Status Run(RetireHost& command, Connection& connection, Printer& printer);
absl::Status Run(FenceHost& command, Connection& connection, Printer& printer);
absl::Status Run(ListDevices& command, Connection& connection, Printer& printer);
absl::Status Run(AddDevice& command, Connection& connection, Printer& printer);
absl::Status Run(DrainDevice& command, Connection& connection, Printer& printer);
absl::Status Run(RemoveDevice& command, Connection& connection, Printer& printer);
absl::Status Run(FailDevice& command, Connection& connection, Printer& printer);
absl::Status Run(ListTenants& command, Connection& connection, Printer& printer);
absl::Status Run(ShowTenant& command, Connection& connection, Printer& printer);
absl::Status Run(SetTenant& command, Connection& connection, Printer& printer);
absl::Status Run(RemoveTenant& command, Connection& connection, Printer& printer);
absl::Status Run(ShowCapacity& command, Connection& connection, Printer& printer);
absl::Status Run(ShowTopology& command, Connection& connection, Printer& printer);
absl::Status Run(Backup& command, Connection& connection, Printer& printer);

// Gives a request that changes something its request_id, where it has none.
template <typename Request>
void FillRequestId(Request& request) {
  if constexpr (requires { request.set_request_id(std::string()); }) {
    if (request.request_id().empty()) request.set_request_id(FormatUuid(RandomUuid()));
  }
}

// All pages.
absl::StatusOr<v1::ListRegionsResponse> AllRegions(Connection& connection,
                                                   v1::ListRegionsRequest request);

// `region` at once, or, if it is to be waited for, as it is when the goal is reached.
absl::StatusOr<v1::Region> Settle(Connection& connection, Printer& printer, const WaitOptions& wait,
                                  const WaitGoal& goal, const v1::Region& region,
                                  uint64_t revision);

// "kv is gone: 512 MiB scrubbed and free"
std::string Gone(const v1::Region& region);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_RUN_H_
