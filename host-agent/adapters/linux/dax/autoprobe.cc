#include "host-agent/adapters/linux/dax/autoprobe.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr absl::string_view kAutoprobe = "sys/bus/dax/drivers_autoprobe";

}  // namespace

absl::Status SwitchAutoprobeOff(const HostFiles& files) {
  const int error = files.Write(kAutoprobe, "0");
  if (error == 0 && files.Read(kAutoprobe) == "0") return absl::OkStatus();
  if (error == ENOENT) {
    return Refuse(absl::StatusCode::kNotFound, "HOST_UNFIT", "there is no DAX bus", "modprobe dax");
  }
  const bool refused = error == EACCES || error == EPERM || error == EROFS;
  return Refuse(absl::StatusCode::kFailedPrecondition, "HOST_UNFIT",
                absl::StrCat("DAX autoprobe cannot be switched off: ",
                             error == 0 ? "it stays on" : ErrnoText(error)),
                refused ? "run as root, /sys writable" : "look at the kernel log");
}

}  // namespace cxlpool::agent
