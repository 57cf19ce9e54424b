#include "tools/benches/servers.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/benches/report.h"

namespace cxlpool::bench {
namespace {

constexpr uint64_t kEtcdBytes = uint64_t{8} << 30;  // Its own limit; 2 GiB unless set.
constexpr size_t kLogEnd = 2000;

absl::StatusOr<std::string> FreeAddress() {
  const auto port = FreePort();
  if (!port.ok()) return port.status();
  return absl::StrCat("127.0.0.1:", *port);
}

absl::Status MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot make ", path, ": ", std::strerror(errno)));
}

// `store`: lines of that table.
std::string ManagerConfig(const std::string& address, const std::string& directory,
                          const std::string& store) {
  std::string config =
      absl::StrCat("[[listen]]\naddress = \"", address, "\"\ninsecure = true\n[store]\n", store,
                   "[fabric]\ndriver = \"emulated\"\nroot = \"", directory, "/fabric\"\n");
  for (int i = 0; i < kDevices; ++i) {
    absl::StrAppend(&config, "[[device]]\nid = \"cmm-", i, "\"\ncapacity = ", kDeviceBytes,
                    "\ngranule = ", kGranuleBytes, "\n");
  }
  return config;
}

// Configuration and log bear its name.
absl::StatusOr<Server> StartNamed(const std::string& program, const std::string& directory,
                                  const std::string& name, const std::string& address,
                                  const std::string& store) {
  if (absl::Status status = MakeDirectory(directory); !status.ok()) return status;
  const std::string config = absl::StrCat(directory, "/", name, ".toml");
  const std::string log = absl::StrCat(directory, "/", name, ".log");
  if (absl::Status status = WriteFile(config, ManagerConfig(address, directory, store));
      !status.ok()) {
    return status;
  }
  auto child = Child::Start({program, "--config", config}, log);
  if (!child.ok()) return child.status();
  return Server{*std::move(child), address, log};
}

}  // namespace

std::string StoreFile(const std::string& directory) { return directory + "/store/pool.db"; }

absl::StatusOr<Server> StartManager(const std::string& program, const std::string& directory) {
  const auto address = FreeAddress();
  if (!address.ok()) return address.status();
  return StartNamed(program, directory, "fm", *address,
                    absl::StrCat("path = \"", StoreFile(directory), "\"\n"));
}

absl::StatusOr<Server> StartManagerOnEtcd(const std::string& program, const std::string& directory,
                                          const std::string& name,
                                          const std::vector<std::string>& endpoints,
                                          const std::string& prefix) {
  const auto address = FreeAddress();
  if (!address.ok()) return address.status();
  return StartNamed(
      program, directory, name, *address,
      absl::StrCat("kind = \"etcd\"\nendpoints = [\"", absl::StrJoin(endpoints, "\", \""),
                   "\"]\nprefix = \"", prefix, "\"\nadvertise = \"", *address, "\"\n"));
}

absl::StatusOr<Server> StartEcho(const std::string& program, const std::string& directory,
                                 const std::string& answer_file) {
  auto address = FreeAddress();
  if (!address.ok()) return address.status();
  if (absl::Status status = MakeDirectory(directory); !status.ok()) return status;
  const std::string log = directory + "/echo.log";
  std::vector<std::string> command = {program, *address, answer_file};
  auto child = Child::Start(command, log);
  if (!child.ok()) return child.status();
  return Server{*std::move(child), *address, log};
}

absl::StatusOr<Server> StartEtcd(const std::string& program, const std::string& directory) {
  auto address = FreeAddress();
  if (!address.ok()) return address.status();
  auto peer = FreeAddress();
  if (!peer.ok()) return peer.status();
  if (absl::Status status = MakeDirectory(directory); !status.ok()) return status;
  const std::string log = directory + "/etcd.log";
  const std::string client_url = "http://" + *address, peer_url = "http://" + *peer;
  auto child = Child::Start(
      {program, "--name=bench", "--data-dir=" + directory + "/data",
       "--listen-client-urls=" + client_url, "--advertise-client-urls=" + client_url,
       "--listen-peer-urls=" + peer_url, "--initial-advertise-peer-urls=" + peer_url,
       "--initial-cluster=bench=" + peer_url, absl::StrCat("--quota-backend-bytes=", kEtcdBytes),
       "--logger=zap", "--log-level=error"},
      log);
  if (!child.ok()) return child.status();
  return Server{*std::move(child), *address, log};
}

absl::Status WithLog(const absl::Status& status, const std::string& log) {
  std::ifstream file(log, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.size() > kLogEnd) text.erase(0, text.size() - kLogEnd);
  return absl::Status(status.code(), absl::StrCat(status.message(), "; the server's log: ", text));
}

void RemoveDirectory(const std::string& directory) {
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
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
