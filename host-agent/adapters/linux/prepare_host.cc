#include "host-agent/adapters/linux/prepare_host.h"

#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "host-agent/adapters/linux/host_needs.h"
#include "host-agent/adapters/linux/refuse.h"

namespace cxlpool::agent {
namespace {

constexpr absl::string_view kAutoprobe = "sys/bus/dax/drivers_autoprobe";

void SetPolicy(const HostFiles& files, std::vector<std::string>& complaints) {
  const int error = files.Write(kAutoprobe, "0");
  if (error == 0 && files.Read(kAutoprobe) == "0") return;
  if (error == ENOENT) return;  // No DAX bus: that is one of the needs.
  if (error == EACCES || error == EPERM || error == EROFS) {
    complaints.push_back(absl::StrCat("DAX autoprobe cannot be switched off: ", ErrnoText(error),
                                      " (run as root, /sys writable)"));
  } else {
    complaints.push_back(absl::StrCat("DAX autoprobe cannot be switched off: ", ErrnoText(error)));
  }
}

}  // namespace

absl::Status PrepareHost(const HostFiles& files, const std::string& kernel) {
  std::vector<std::string> complaints;
  SetPolicy(files, complaints);
  for (const Finding& need : ExamineNeeds(files)) {
    if (need.verdict == Verdict::kMissing) {
      complaints.push_back(absl::StrCat(need.what, " (", need.remedy, ")"));
    }
  }
  if (complaints.empty()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "HOST_UNFIT",
                absl::StrCat("this host (Linux ", kernel,
                             ") cannot use pool memory: ", absl::StrJoin(complaints, "; ")),
                "mend what is listed and start again", {{"kernel", kernel}});
}

}  // namespace cxlpool::agent
