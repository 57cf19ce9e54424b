#include <algorithm>
#include <fstream>
#include <iostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"
#include "tools/cli/batch_file.h"
#include "tools/cli/print.h"
#include "tools/cli/render/regions.h"
#include "tools/cli/run.h"

namespace cxlpool::cli {
namespace {

constexpr size_t kMaxBatch = 1000;  // Of one call.

absl::StatusOr<std::vector<v1::AllocateRegionRequest>> ReadFile(const std::string& file) {
  if (file == "-") return ReadBatchFile(std::cin, "standard input");
  std::ifstream in(file);
  if (in.good()) return ReadBatchFile(in, file);
  return Refuse(absl::StatusCode::kNotFound, "NO_FILE", absl::StrCat("cannot read ", file),
                "check the path");
}

// OK if all are; else as the first that is not.
absl::Status Verdict(const google::protobuf::RepeatedPtrField<v1::BatchResult>& results) {
  const auto refused =
      std::count_if(results.begin(), results.end(),
                    [](const v1::BatchResult& result) { return result.code() != 0; });
  if (refused == 0) return absl::OkStatus();
  const auto first = std::find_if(results.begin(), results.end(),
                                  [](const v1::BatchResult& result) { return result.code() != 0; });
  return Refuse(static_cast<absl::StatusCode>(first->code()), "BATCH_REFUSED",
                absl::StrCat(refused, " of ", results.size(), " requests were refused"),
                "fix what is said of each and send those again",
                {{"reason", first->error().reason()}});
}

}  // namespace

// A thousand requests a call, in the order of the file. After a call that fails no other is sent;
// what the ones before have made is printed, and the status is that of the failure.
absl::Status Run(AllocateBatch& command, Connection& connection, Printer& printer) {
  auto requests = ReadFile(command.file);
  if (!requests.ok()) return requests.status();
  std::vector<std::string> asked;
  for (v1::AllocateRegionRequest& request : *requests) {
    FillRequestId(request);
    asked.push_back(request.region_id());
  }
  v1::BatchAllocateRegionsResponse all;
  absl::Status status;
  Progress progress(printer);
  for (size_t begin = 0; begin < requests->size() && status.ok(); begin += kMaxBatch) {
    v1::BatchAllocateRegionsRequest batch;
    const size_t end = std::min(requests->size(), begin + kMaxBatch);
    for (size_t i = begin; i < end; ++i) *batch.add_requests() = std::move((*requests)[i]);
    auto response = connection.Call(&ManagerStub::BatchAllocateRegions, batch);
    status = response.status();
    if (response.ok()) all.MergeFrom(*response);
    if (status.ok() && end < requests->size()) {
      progress.Tell(absl::StrCat(end, " of ", requests->size(), " requests are answered"));
    }
  }
  // What was done is printed, also where the rest could not be.
  if (all.results_size() > 0 || status.ok()) {
    absl::Status printed = Print(printer, all, BatchTable(all.results(), asked));
    status.Update(printed);
  }
  status.Update(Verdict(all.results()));
  return status;
}

// All releases are sent at once, then waited for one after the other. After the first wait that
// fails the others are not waited for, but all are printed.
absl::Status Run(ReleaseBatch& command, Connection& connection, Printer& printer) {
  std::vector<std::string> asked;
  for (v1::ReleaseRegionRequest& request : *command.request.mutable_requests()) {
    FillRequestId(request);
    asked.push_back(request.name());
  }
  const auto decision = Decide(command.consent, command.request, connection, printer);
  if (!decision.ok()) return decision.status();
  if (*decision == Decision::kDryRun) {
    for (v1::ReleaseRegionRequest& request : *command.request.mutable_requests()) {
      request.set_validate_only(true);
    }
    const auto checked = connection.Send(command.request);
    return checked.ok() ? Verdict(checked->results()) : checked.status();
  }
  auto response = connection.Send(command.request);
  if (!response.ok()) return response.status();
  std::string gone;
  const WaitGoal goal{
      .kind = WaitGoal::Kind::kGone, .host = "", .attachment_generation = 0, .size_bytes = 0};
  absl::Status waited;
  for (v1::BatchResult& result : *response->mutable_results()) {
    if (result.code() != 0 || !command.wait.wait || !waited.ok()) continue;
    auto region =
        Settle(connection, printer, command.wait, goal, result.region(), result.revision());
    if (region.ok()) {
      absl::StrAppend(&gone, Gone(*region));
      *result.mutable_region() = *std::move(region);
    } else {
      waited = region.status();
    }
  }
  absl::Status printed =
      Print(printer, *response, absl::StrCat(BatchTable(response->results(), asked), gone));
  if (!printed.ok()) return printed;
  waited.Update(Verdict(response->results()));
  return waited;
}

}  // namespace cxlpool::cli
