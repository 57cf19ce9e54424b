#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"
#include "tools/cli/print.h"
#include "tools/cli/render/regions.h"
#include "tools/cli/run.h"

namespace cxlpool::cli {
namespace {

constexpr size_t kMaxBatch = 1000;  // Of one call.
constexpr size_t kMaxLine = 64 << 10;
constexpr size_t kMaxRequests = 1'000'000;

absl::Status BadFile(const std::string& file, size_t line, absl::string_view what,
                     std::string remedy) {
  return Refusal{.code = absl::StatusCode::kInvalidArgument,
                 .reason = "BAD_BATCH_FILE",
                 .message = absl::StrCat(file, ":", line, ": ", what),
                 .remedy = std::move(remedy),
                 .metadata = {}}
      .ToStatus();
}

// Of each line that is neither empty nor a comment.
absl::StatusOr<std::vector<v1::AllocateRegionRequest>> ReadRequests(std::istream& in,
                                                                    const std::string& file) {
  std::vector<v1::AllocateRegionRequest> requests;
  std::string line;
  for (size_t number = 1; std::getline(in, line); ++number) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty() || text[0] == '#') continue;
    if (text.size() > kMaxLine || requests.size() == kMaxRequests) {
      return BadFile(file, number, "is too long",
                     absl::StrCat("use lines of at most ", kMaxLine, " bytes, and at most ",
                                  kMaxRequests, " of them"));
    }
    v1::AllocateRegionRequest request;
    const auto parsed = google::protobuf::util::JsonStringToMessage(
        google::protobuf::StringPiece(text.data(), text.size()), &request);
    if (!parsed.ok()) {
      return BadFile(file, number, parsed.ToString(),
                     "write an AllocateRegionRequest as JSON, as "
                     "{\"region_id\": \"kv\", \"size_bytes\": \"1073741824\"}");
    }
    FillRequestId(request);
    requests.push_back(std::move(request));
  }
  if (in.bad()) return BadFile(file, 0, "cannot be read", "check the disk");
  if (requests.empty()) return BadFile(file, 0, "has no requests", "write one a line");
  return requests;
}

absl::StatusOr<std::vector<v1::AllocateRegionRequest>> ReadFile(const std::string& file) {
  if (file == "-") return ReadRequests(std::cin, "standard input");
  std::ifstream in(file);
  if (in.good()) return ReadRequests(in, file);
  return Refusal{.code = absl::StatusCode::kNotFound,
                 .reason = "NO_FILE",
                 .message = absl::StrCat("cannot read ", file),
                 .remedy = "check the path",
                 .metadata = {}}
      .ToStatus();
}

// OK if all are; else as the first that is not.
absl::Status Verdict(const google::protobuf::RepeatedPtrField<v1::BatchResult>& results) {
  const auto refused =
      std::count_if(results.begin(), results.end(),
                    [](const v1::BatchResult& result) { return result.code() != 0; });
  if (refused == 0) return absl::OkStatus();
  const auto first = std::find_if(results.begin(), results.end(),
                                  [](const v1::BatchResult& result) { return result.code() != 0; });
  return Refusal{.code = static_cast<absl::StatusCode>(first->code()),
                 .reason = "BATCH_REFUSED",
                 .message = absl::StrCat(refused, " of ", results.size(), " requests were refused"),
                 .remedy = "mend what is said of each and send those again",
                 .metadata = {{"reason", first->error().reason()}}}
      .ToStatus();
}

}  // namespace

absl::Status Run(AllocateBatch& command, Connection& connection, Printer& printer) {
  auto requests = ReadFile(command.file);
  if (!requests.ok()) return requests.status();
  std::vector<std::string> asked;
  for (const v1::AllocateRegionRequest& request : *requests) asked.push_back(request.region_id());
  v1::BatchAllocateRegionsResponse all;
  absl::Status status;
  for (size_t begin = 0; begin < requests->size() && status.ok(); begin += kMaxBatch) {
    v1::BatchAllocateRegionsRequest batch;
    const size_t end = std::min(requests->size(), begin + kMaxBatch);
    for (size_t i = begin; i < end; ++i) *batch.add_requests() = std::move((*requests)[i]);
    auto response = connection.Call(&ManagerStub::BatchAllocateRegions, batch);
    status = response.status();
    if (response.ok()) all.MergeFrom(*response);
  }
  // What was done is told, also where the rest could not be.
  if (all.results_size() > 0 || status.ok()) {
    absl::Status printed = Print(printer, all, BatchTable(all.results(), asked));
    status.Update(printed);
  }
  status.Update(Verdict(all.results()));
  return status;
}

absl::Status Run(ReleaseBatch& command, Connection& connection, Printer& printer) {
  std::vector<std::string> asked;
  for (v1::ReleaseRegionRequest& request : *command.request.mutable_requests()) {
    FillRequestId(request);
    asked.push_back(request.name());
  }
  auto response = connection.Call(&ManagerStub::BatchReleaseRegions, command.request);
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
