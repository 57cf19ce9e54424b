#include "host-agent/adapters/linux/dax/dax_driver.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "host-agent/adapters/linux/memory/memory_blocks.h"
#include "host-agent/support/run_file.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr absl::string_view kAutoprobe = "sys/bus/dax/drivers_autoprobe";

constexpr absl::string_view kDrivers = "sys/bus/dax/drivers";
constexpr absl::string_view kAutoOnline = "sys/devices/system/memory/auto_online_blocks";
constexpr absl::string_view kAutoOnlineWas = "run/cxlpool/auto-online";
constexpr absl::string_view kAutoOnlineFile = "auto online";
constexpr size_t kMaxWord = 256;

absl::Status BindFailed(absl::string_view what, int error) {
  return Refuse(
      absl::StatusCode::kInternal, "DAX_BIND",
      absl::StrCat(what, ": ",
                   error == 0 ? "the kernel accepted it without effect" : ErrnoText(error)),
      error == EACCES || error == EPERM ? "run as root" : "look at the kernel's log");
}

// Notes what the switch is before it is changed, for RestoreAutoOnline. 0, or the errno.
int NoteAutoOnline(const HostFiles& files, const std::string& was) {
  const std::string path = files.Path(kAutoOnlineWas);
  // The agent's folder is there already where systemd starts it.
  mkdir(path.substr(0, path.rfind('/')).c_str(), S_IRWXU);
  return WriteRunFile(path, kAutoOnlineFile, ReadBootId(files), absl::StrCat(was, "\n"));
}

// Keeps new memory blocks offline for as long as it lives, or until RestoreAutoOnline.
class NoAutoOnline {
 public:
  explicit NoAutoOnline(const HostFiles& files) : files_(files), before_(files.Read(kAutoOnline)) {
    if (!before_.has_value() || *before_ == "offline") return;
    // The file comes before the switch: if the process is killed in between, nothing is lost. So
    // the switch stays as it is where there is no file.
    note_error_ = NoteAutoOnline(files_, *before_);
    if (note_error_ != 0 && !CXLPOOL_MUTANT("auto-online-goes-unnoted")) return;
    switched_ = true;
    error_ = files_.Write(kAutoOnline, "offline");
  }
  ~NoAutoOnline() {
    if (!switched_) return;
    // If this fails the file stays, and RestoreAutoOnline tries again.
    if (files_.Write(kAutoOnline, *before_) == 0) unlink(files_.Path(kAutoOnlineWas).c_str());
  }
  NoAutoOnline(const NoAutoOnline&) = delete;
  NoAutoOnline& operator=(const NoAutoOnline&) = delete;

  // UNAVAILABLE/RUN_FILE: what the switch was could not be noted, and it is still that.
  absl::Status noted() const {
    if (note_error_ == 0 || switched_) return absl::OkStatus();
    return Refuse(absl::StatusCode::kUnavailable, "RUN_FILE",
                  absl::StrCat("/", kAutoOnlineWas, " cannot be written: ", ErrnoText(note_error_),
                               "; it is to say that auto_online_blocks is \"", *before_,
                               "\", which changes while memory is added"),
                  "make room in /run, and see that the directory is the agent's own");
  }
  int error() const { return error_; }

 private:
  const HostFiles& files_;
  std::optional<std::string> before_;
  bool switched_ = false;
  int note_error_ = 0;
  int error_ = 0;
};

// The error is the kernel's. The caller checks whether the device is bound.
absl::StatusOr<int> BindKmem(const HostFiles& files, const std::string& dax) {
  const NoAutoOnline no_auto_online(files);
  // Rather no bind than memory that goes online by itself, maybe where it can never leave again.
  if (absl::Status status = no_auto_online.noted(); !status.ok()) return status;
  if (no_auto_online.error() != 0) return no_auto_online.error();
  // kmem matches the DAX devices of CXL regions by type and needs no id.
  return files.Write(absl::StrCat(kDrivers, "/kmem/bind"), dax);
}

// The error is that of adding the id. The caller checks whether the device is bound.
int BindDeviceDax(const HostFiles& files, const std::string& dax) {
  // device_dax takes these only by id; adding the id binds. The id goes again at once: it would
  // stick to the name.
  const int error = files.Write(absl::StrCat(kDrivers, "/device_dax/new_id"), dax);
  if (error == 0 && DaxDriverName(files, dax).empty()) {
    files.Write(absl::StrCat(kDrivers, "/device_dax/bind"), dax);
  }
  files.Write(absl::StrCat(kDrivers, "/device_dax/remove_id"), dax);
  return error;
}

}  // namespace

// Writes only a value that was saved in this boot, and only while the switch is "offline":
// otherwise somebody has set it since. The file goes in any case, except when the write fails.
void RestoreAutoOnline(const HostFiles& files) {
  const std::string path = files.Path(kAutoOnlineWas);
  const auto lines = ReadRunFile(path, kMaxWord, kAutoOnlineFile, ReadBootId(files));
  for (const std::string was : {"online", "online_kernel", "online_movable"}) {
    if (lines != std::vector{was} || files.Read(kAutoOnline) != "offline") continue;
    if (files.Write(kAutoOnline, was) != 0) return;
  }
  unlink(path.c_str());
}

std::string DaxDriverName(const HostFiles& files, const std::string& dax) {
  return files.LinkName(absl::StrCat("sys/bus/dax/devices/", dax, "/driver"));
}

DaxDriver DaxDriverOf(const HostFiles& files, const std::string& dax) {
  const std::string name = DaxDriverName(files, dax);
  if (name == "device_dax") return DaxDriver::kDeviceDax;
  if (name == "kmem") return DaxDriver::kKmem;
  return DaxDriver::kNone;
}

// Success is what the device's driver link shows afterwards, whatever the writes answered.
absl::Status BindDaxDriver(const HostFiles& files, const std::string& dax, DaxDriver driver) {
  if (driver == DaxDriver::kNone) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_DRIVER",
                  absl::StrCat("no driver was given for ", dax), "unbind it instead");
  }
  const std::string wanted = driver == DaxDriver::kKmem ? "kmem" : "device_dax";
  const std::string has = DaxDriverName(files, dax);
  if (has == wanted) return absl::OkStatus();
  if (!has.empty()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "DAX_BOUND",
                  absl::StrCat(dax, " is bound to ", has, ", not free for ", wanted),
                  "unbind it first");
  }
  const absl::StatusOr<int> error = driver == DaxDriver::kKmem
                                        ? BindKmem(files, dax)
                                        : absl::StatusOr<int>(BindDeviceDax(files, dax));
  if (!error.ok()) return error.status();
  if (DaxDriverName(files, dax) == wanted) return absl::OkStatus();
  return BindFailed(absl::StrCat("binding ", dax, " to ", wanted), *error);
}

// Looks for memory blocks under every driver but device_dax: one that is not known may have made
// some. Once before, since it can still be refused then, and once afterwards: somebody may have
// brought a block online in between, and the kernel unbinds kmem all the same.
absl::Status UnbindDaxDriver(const HostFiles& files, const DaxDevice& dax) {
  const std::string has = DaxDriverName(files, dax.name);
  if (has.empty()) return absl::OkStatus();
  const std::vector<MemoryBlock> blocks =
      has == "device_dax" ? std::vector<MemoryBlock>()
                          : ReadMemoryBlocks(files, dax.hpa_bytes, dax.size_bytes);
  if (const uint32_t online = CountOnline(blocks); online != 0) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "BLOCKS_BUSY",
        absl::StrCat(online, " of ", blocks.size(), " memory blocks of ", dax.name, " are online"),
        "bring them offline first");
  }
  const int error = files.Write(absl::StrCat(kDrivers, "/", has, "/unbind"), dax.name);
  if (!DaxDriverName(files, dax.name).empty()) {
    return BindFailed(absl::StrCat("unbinding ", dax.name, " from ", has), error);
  }
  if (has == "device_dax" || CXLPOOL_MUTANT("unbind-is-believed")) return absl::OkStatus();
  return CheckNoBlocksStay(files, dax.name, dax.hpa_bytes, dax.size_bytes);
}

// A missing DAX bus has a code of its own, because PrepareHost reports it among the other needs.
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
