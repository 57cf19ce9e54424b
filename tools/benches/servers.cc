#include "tools/benches/servers.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tools/benches/report.h"

namespace cxlpool::bench {
namespace {

absl::StatusOr<std::string> FreeAddress() {
  const auto port = FreePort();
  if (!port.ok()) return port.status();
  return absl::StrCat("127.0.0.1:", *port);
}

absl::Status MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot make ", path, ": ", std::strerror(errno)));
}

std::string ManagerConfig(const std::string& address, const std::string& directory) {
  std::string config = absl::StrCat(
      "[[listen]]\naddress = \"", address, "\"\ninsecure = true\n[store]\npath = \"", directory,
      "/store/pool.db\"\n[fabric]\ndriver = \"emulated\"\nroot = \"", directory, "/fabric\"\n");
  for (int i = 0; i < kDevices; ++i) {
    absl::StrAppend(&config, "[[device]]\nid = \"cmm-", i, "\"\ncapacity = ", kDeviceBytes,
                    "\ngranule = ", kGranuleBytes, "\n");
  }
  return config;
}

}  // namespace

absl::StatusOr<Server> StartManager(const std::string& program, const std::string& directory) {
  auto address = FreeAddress();
  if (!address.ok()) return address.status();
  if (absl::Status status = MakeDirectory(directory); !status.ok()) return status;
  const std::string config = directory + "/fm.toml", log = directory + "/fm.log";
  if (absl::Status status = WriteFile(config, ManagerConfig(*address, directory)); !status.ok()) {
    return status;
  }
  auto child = Child::Start({program, "--config", config}, log);
  if (!child.ok()) return child.status();
  return Server{*std::move(child), *address, log};
}

absl::StatusOr<Server> StartEcho(const std::string& program, const std::string& directory,
                                 const std::string& answer_file) {
  auto address = FreeAddress();
  if (!address.ok()) return address.status();
  if (absl::Status status = MakeDirectory(directory); !status.ok()) return status;
  const std::string log = directory + "/echo.log";
  auto child = Child::Start({program, *address, answer_file}, log);
  if (!child.ok()) return child.status();
  return Server{*std::move(child), *address, log};
}

absl::Status CheckOnDisk(const std::string& directory) {
  struct statfs fs {};
  if (statfs(directory.c_str(), &fs) != 0) {
    return absl::NotFoundError(absl::StrCat("no directory ", directory, ": ", std::strerror(errno),
                                            "; make it, or name another"));
  }
  if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory,
                     " lies in memory: nothing there is durable; name a directory on a "
                     "disk (tools/bench --dir)"));
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::bench
