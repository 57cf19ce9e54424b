#include "tools/cli/exit_code.h"

#include "absl/strings/str_cat.h"

namespace cxlpool::cli {
namespace {

struct Row {
  ExitCode code;
  const char* meaning;
};

constexpr Row kRows[] = {
    {ExitCode::kOk, "done"},
    {ExitCode::kInternal, "internal error"},
    {ExitCode::kUsage, "bad command line, configuration or argument"},
    {ExitCode::kNotFound, "no such region, host or device"},
    {ExitCode::kRefused,
     "refused: a precondition does not hold, the pool has no way to do it, or the name is taken"},
    {ExitCode::kExhausted, "nothing left: capacity, quota, ports"},
    {ExitCode::kUnavailable, "the manager cannot be reached"},
    {ExitCode::kDenied, "no valid certificate, or not allowed"},
    {ExitCode::kTimedOut, "timed out: no answer, or --wait ran out (the work goes on)"},
    {ExitCode::kFailed, "failed while waiting: undone, quarantined or taken away"},
};

}  // namespace

// Codes that ask the same of a script share an exit code.
ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return ExitCode::kUsage;
    case absl::StatusCode::kNotFound:
      return ExitCode::kNotFound;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kUnimplemented:  // By this fabric, store or version: no error of ours.
      return ExitCode::kRefused;
    case absl::StatusCode::kResourceExhausted:
      return ExitCode::kExhausted;
    case absl::StatusCode::kUnavailable:
      return ExitCode::kUnavailable;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return ExitCode::kDenied;
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kTimedOut;
    case absl::StatusCode::kAborted:
      return ExitCode::kFailed;
    default:
      return ExitCode::kInternal;
  }
}

std::string ExitCodeHelp() {
  std::string out = "Exit codes:\n";
  for (const Row& row : kRows) {
    absl::StrAppend(&out, "  ", static_cast<int>(row.code), "  ", row.meaning, "\n");
  }
  return out;
}

}  // namespace cxlpool::cli
