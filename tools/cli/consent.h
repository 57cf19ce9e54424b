// Before a command destroys: what it takes along, and whether it may.
//
// On a terminal a person is informed and asked. Elsewhere a command that goes beyond the thing it
// names, or that cannot be taken back, needs --yes. --dry-run prints the same and changes nothing.
#ifndef CXLPOOL_TOOLS_CLI_CONSENT_H_
#define CXLPOOL_TOOLS_CLI_CONSENT_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/cli/connection.h"
#include "tools/cli/execute.h"
#include "tools/cli/invocation.h"

namespace cxlpool::cli {

// What goes along with a change.
struct Along {
  std::string what;                 // In full sentences, each with a newline.
  v1::ListRegionsResponse regions;  // Those that it changes or that lose a host.
  bool worth_asking = true;
};

// Whether it goes beyond what it names, or cannot be taken back, so that a script has to say --yes.
inline bool GoesBeyond(const v1::FenceHostRequest&) { return true; }
inline bool GoesBeyond(const v1::RetireHostRequest&) { return false; }
inline bool GoesBeyond(const v1::RemoveHostRequest&) { return true; }
inline bool GoesBeyond(const v1::RemoveDeviceRequest&) { return true; }
inline bool GoesBeyond(const v1::FailDeviceRequest&) { return true; }
inline bool GoesBeyond(const v1::ReleaseRegionRequest& request) { return request.force(); }
bool GoesBeyond(const v1::BatchReleaseRegionsRequest& request);

// Errors: the manager's. UNKNOWN_HOST, UNKNOWN_DEVICE and UNKNOWN_REGION among them.
absl::StatusOr<Along> AlongOf(v1::FenceHostRequest& request, Connection& connection);
absl::StatusOr<Along> AlongOf(v1::RetireHostRequest& request, Connection& connection);
absl::StatusOr<Along> AlongOf(v1::RemoveHostRequest& request, Connection& connection);
absl::StatusOr<Along> AlongOf(v1::RemoveDeviceRequest& request, Connection& connection);
absl::StatusOr<Along> AlongOf(v1::FailDeviceRequest& request, Connection& connection);
// These set etags, where none is given and the person is asked: what is released is what was shown.
absl::StatusOr<Along> AlongOf(v1::ReleaseRegionRequest& request, Connection& connection);
absl::StatusOr<Along> AlongOf(v1::BatchReleaseRegionsRequest& request, Connection& connection);

// INVALID_ARGUMENT/CONFIRM_REQUIRED: there is no one to ask.
absl::Status ConfirmRequired();

// Prints it and asks. FAILED_PRECONDITION/NOT_CONFIRMED: the answer was not yes.
absl::Status Ask(const Along& along, Printer& printer);

// Prints the result of a dry run.
absl::Status PrintAlong(const Along& along, Printer& printer);

enum class Decision { kGo, kDryRun };

// What to do about `request`. kDryRun: it was a dry run, and all is printed.
template <typename Request>
absl::StatusOr<Decision> Decide(const Consent& consent, Request& request, Connection& connection,
                                Printer& printer) {
  const bool ask = !consent.yes && printer.answers != nullptr;
  if (!consent.dry_run && !ask) {
    if (!consent.yes && GoesBeyond(request)) return ConfirmRequired();
    return Decision::kGo;
  }
  const auto along = AlongOf(request, connection);
  if (!along.ok()) return along.status();
  if (consent.dry_run) {
    if (absl::Status status = PrintAlong(*along, printer); !status.ok()) return status;
    return Decision::kDryRun;
  }
  if (absl::Status status = Ask(*along, printer); !status.ok()) return status;
  return Decision::kGo;
}

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_CONSENT_H_
