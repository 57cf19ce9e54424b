// How each command runs: one function a command, and one for all calls that are sent as they are;
// execute.cc picks. Internal to execute.h's side.
//
// Results go to the printer, errors are returned. One thread.
#ifndef CXLPOOL_TOOLS_CLI_RUN_H_
#define CXLPOOL_TOOLS_CLI_RUN_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/support/names.h"
#include "tools/cli/connection.h"
#include "tools/cli/consent.h"
#include "tools/cli/execute.h"
#include "tools/cli/invocation.h"
#include "tools/cli/region_wait.h"

namespace cxlpool::cli {

absl::Status Run(AllocateRegion& command, Connection& connection, Printer& printer);
absl::Status Run(AllocateBatch& command, Connection& connection, Printer& printer);
absl::Status Run(ListRegions& command, Connection& connection, Printer& printer);
absl::Status Run(AttachRegion& command, Connection& connection, Printer& printer);
absl::Status Run(DetachRegion& command, Connection& connection, Printer& printer);
absl::Status Run(ReleaseRegion& command, Connection& connection, Printer& printer);
absl::Status Run(ReleaseBatch& command, Connection& connection, Printer& printer);
absl::Status Run(ResizeRegion& command, Connection& connection, Printer& printer);
absl::Status Run(WatchRegions& command, Connection& connection, Printer& printer);
absl::Status Run(ShowHost& command, Connection& connection, Printer& printer);
absl::Status Run(ShowDevice& command, Connection& connection, Printer& printer);
absl::Status Run(AddDevice& command, Connection& connection, Printer& printer);
absl::Status Run(SetTenant& command, Connection& connection, Printer& printer);
absl::Status Run(RemoveHost& command, Connection& connection, Printer& printer);
absl::Status Run(RemoveTenant& command, Connection& connection, Printer& printer);
absl::Status Run(RevokeCertificate& command, Connection& connection, Printer& printer);
absl::Status Run(RestoreCertificate& command, Connection& connection, Printer& printer);
absl::Status Run(GrantAccess& command, Connection& connection, Printer& printer);
absl::Status Run(CreateToken& command, Connection& connection, Printer& printer);
absl::Status Run(ListTokens& command, Connection& connection, Printer& printer);
absl::Status Run(RevokeAccess& command, Connection& connection, Printer& printer);
absl::Status Run(ListEvents& command, Connection& connection, Printer& printer);
absl::Status Run(ShowTopology& command, Connection& connection, Printer& printer);
absl::Status Run(ShowTop& command, Connection& connection, Printer& printer);
absl::Status Run(ShowReport& command, Connection& connection, Printer& printer);
absl::Status Run(ShowStatus& command, Connection& connection, Printer& printer);
absl::Status Run(ApplyTopology& command, Connection& connection, Printer& printer);
absl::Status Run(Backup& command, Connection& connection, Printer& printer);

// The answers of the calls that are sent as they are.
absl::Status PrintAnswer(Printer& printer, const v1::Region& region);
absl::Status PrintAnswer(Printer& printer, const v1::RenameRegionResponse& renamed);
absl::Status PrintAnswer(Printer& printer, const v1::RenewRegionResponse& renewed);
absl::Status PrintAnswer(Printer& printer, const v1::Capacity& capacity);
absl::Status PrintAnswer(Printer& printer, const v1::ExplainResponse& explained);
absl::Status PrintAnswer(Printer& printer, const v1::ListRegionHoldersResponse& holders);
absl::Status PrintAnswer(Printer& printer, const v1::Host& host);
absl::Status PrintAnswer(Printer& printer, const v1::ListHostsResponse& hosts);
absl::Status PrintAnswer(Printer& printer, const v1::Device& device);
absl::Status PrintAnswer(Printer& printer, const v1::ListDevicesResponse& devices);
absl::Status PrintAnswer(Printer& printer, const v1::DiscoverDevicesResponse& discovered);
absl::Status PrintAnswer(Printer& printer, const v1::DrainDeviceResponse& drained);
absl::Status PrintAnswer(Printer& printer, const v1::Tenant& tenant);
absl::Status PrintAnswer(Printer& printer, const v1::ListTenantsResponse& tenants);
absl::Status PrintAnswer(Printer& printer, const v1::Revocation& revocation);
absl::Status PrintAnswer(Printer& printer, const v1::ListRevocationsResponse& revocations);
absl::Status PrintAnswer(Printer& printer, const v1::RoleBinding& binding);
absl::Status PrintAnswer(Printer& printer, const v1::ListRoleBindingsResponse& bindings);
absl::Status PrintAnswer(Printer& printer, const v1::Self& self);
absl::Status PrintAnswer(Printer& printer, const v1::VerifyAuditResponse& verified);

// The events that `command` asks for, the newest last: the last `command.most`, or after `row` of
// the trail all of them. Of a trail that is shorter by now they are what they are for `row` 0.
absl::StatusOr<v1::ListEventsResponse> EventsAfter(uint64_t row, const ListEvents& command,
                                                   Connection& connection);

// What a list holds, all pages together. A manager of the release before has one page.
template <typename Request>
auto AllPages(Connection& connection, Request request) {
  auto all = connection.Send(request);
  while (all.ok() && !all->next_page_token().empty()) {
    request.set_page_token(all->next_page_token());
    all->clear_next_page_token();
    auto next = connection.Send(request);
    if (!next.ok()) return next;
    all->MergeFrom(*next);
    if (next->next_page_token() == request.page_token()) break;  // It would never end.
  }
  return all;
}

template <typename Request>
absl::Status Run(Call<Request>& command, Connection& connection, Printer& printer) {
  const auto answer = [&] {
    if constexpr (requires { command.request.page_token(); }) {
      return AllPages(connection, command.request);
    } else {
      return connection.Send(command.request);
    }
  }();
  if (!answer.ok()) return answer.status();
  return PrintAnswer(printer, *answer);
}

template <typename Request>
absl::Status Run(GuardedCall<Request>& command, Connection& connection, Printer& printer) {
  const auto decision = Decide(command.consent, command.request, connection, printer);
  if (!decision.ok()) return decision.status();
  if (*decision == Decision::kDryRun) return absl::OkStatus();
  const auto answer = connection.Send(command.request);
  if (!answer.ok()) return answer.status();
  return PrintAnswer(printer, *answer);
}

// By full name. NOT_FOUND: UNKNOWN_HOST, UNKNOWN_DEVICE.
absl::StatusOr<v1::Host> FindHost(Connection& connection, const std::string& name);
absl::StatusOr<v1::Device> FindDevice(Connection& connection, const std::string& name);

// Those with bytes on the device.
v1::ListRegionsRequest RegionsOn(const v1::Device& device);

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

// "kv is gone: 512 MiB scrubbed and free"; of a Region as the manager last showed it.
std::string Gone(const v1::Region& region);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_RUN_H_
