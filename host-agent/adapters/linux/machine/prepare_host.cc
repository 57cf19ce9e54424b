#include "host-agent/adapters/linux/machine/prepare_host.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "host-agent/adapters/linux/dax/dax_driver.h"
#include "host-agent/adapters/linux/machine/host_needs.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {

absl::Status PrepareHost(const HostFiles& files, const std::string& kernel) {
  RestoreAutoOnline(files);
  std::vector<std::string> complaints;
  const absl::Status autoprobe = SwitchAutoprobeOff(files);
  if (!autoprobe.ok() && !absl::IsNotFound(autoprobe)) {  // No DAX bus: that is one of the needs.
    complaints.emplace_back(autoprobe.message());
  }
  for (const Finding& need : ExamineNeeds(files)) {
    if (need.verdict == Verdict::kMissing) {
      complaints.push_back(absl::StrCat(need.what, " (", need.remedy, ")"));
    }
  }
  if (complaints.empty()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "HOST_UNFIT",
                absl::StrCat("this host (Linux ", kernel,
                             ") cannot use pool memory: ", absl::StrJoin(complaints, "; ")),
                "fix what is listed and start again", {{"kernel", kernel}});
}

}  // namespace cxlpool::agent
