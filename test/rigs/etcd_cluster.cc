#include "test/rigs/etcd_cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "fabric-manager/adapters/store_etcd/etcd_client.h"

namespace cxlpool::fm {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

// One that nobody has now, and that the kernel gives nobody who connects: while a member is down, a
// client that dials it could otherwise be given its very port, and the member not start again. 0:
// none was found.
int FreePort() {
  constexpr int kFirst = 10240, kEnd = 32768;  // Below the usual net.ipv4.ip_local_port_range.
  static std::random_device random;
  for (int i = 0; i < 100; ++i) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int port = kFirst + static_cast<int>(random() % (kEnd - kFirst));
    address.sin_port = htons(static_cast<uint16_t>(port));
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool free = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    ::close(fd);
    if (free) return port;
  }
  return 0;
}

}  // namespace

// Where qemu-cxl/fetch puts it: the same variables name the cache there.
std::string EtcdCluster::Program() {
  const char* cache = ::getenv("CXLPOOL_CACHE");
  const char* xdg = ::getenv("XDG_CACHE_HOME");
  const char* home = ::getenv("HOME");
  const std::string root = cache != nullptr  ? cache
                           : xdg != nullptr  ? absl::StrCat(xdg, "/cxlpool")
                           : home != nullptr ? absl::StrCat(home, "/.cache/cxlpool")
                                             : "";
  const std::string program = root + "/rack/applications/etcd/usr/bin/etcd";
  return ::access(program.c_str(), X_OK) == 0 ? program : "";
}

// All are started before any is waited for: a member alone has no quorum, and answers nothing.
EtcdCluster::EtcdCluster(int members, const std::string& parent)
    : members_(static_cast<size_t>(members)) {
  const std::filesystem::path in =
      parent.empty() ? std::filesystem::temp_directory_path() : std::filesystem::path(parent);
  std::string pattern = (in / "cxlpool-etcd-XXXXXX").string();
  directory_ = ::mkdtemp(pattern.data());
  for (Member& member : members_) {
    member.client_port = FreePort();
    member.peer_port = FreePort();
    endpoints_.push_back(absl::StrCat("127.0.0.1:", member.client_port));
  }
  for (int i = 0; i < members; ++i) Start(i);
  const absl::Time deadline = absl::Now() + kPatience;
  while (!(up_ = Answers()) && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(50));
}

EtcdCluster::~EtcdCluster() {
  for (size_t i = 0; i < members_.size(); ++i) Kill(static_cast<int>(i));
  std::filesystem::remove_all(directory_);
}

// A read goes through the leader, so its answer says that there is one.
bool EtcdCluster::Answers() const {
  const auto client = EtcdClient::Make({.endpoints = endpoints_, .ca = "", .cert = "", .key = ""});
  etcdserverpb::RangeRequest request;
  request.set_key("x");
  return client.ok() && (*client)->Range(request).ok();
}

void EtcdCluster::Signal(int member, int signal) const {
  ::kill(members_[static_cast<size_t>(member)].pid, signal);
}

// Also one that is stopped: SIGKILL needs no consent.
void EtcdCluster::Kill(int member) {
  Member& of = members_[static_cast<size_t>(member)];
  if (of.pid <= 0) return;
  ::kill(of.pid, SIGKILL);
  ::waitpid(of.pid, nullptr, 0);
  of.pid = -1;
}

// A new leader is there within a second, as a replicated manager will want it. So few entries are
// kept that a member which comes back is sent a snapshot, too, the rarer way. It ends with this
// thread, and so with this process, however that ends.
void EtcdCluster::Start(int member) {
  std::string all;
  for (size_t i = 0; i < members_.size(); ++i) {
    absl::StrAppend(&all, i == 0 ? "" : ",", "m", i, "=http://127.0.0.1:", members_[i].peer_port);
  }
  Member& of = members_[static_cast<size_t>(member)];
  const std::string client = absl::StrCat("http://127.0.0.1:", of.client_port);
  const std::string peer = absl::StrCat("http://127.0.0.1:", of.peer_port);
  const std::vector<std::string> words = {Program(),
                                          "--name",
                                          absl::StrCat("m", member),
                                          "--data-dir",
                                          absl::StrCat(directory_, "/m", member),
                                          "--listen-client-urls",
                                          client,
                                          "--advertise-client-urls",
                                          client,
                                          "--listen-peer-urls",
                                          peer,
                                          "--initial-advertise-peer-urls",
                                          peer,
                                          "--initial-cluster",
                                          all,
                                          "--heartbeat-interval",
                                          "50",
                                          "--election-timeout",
                                          "500",
                                          "--snapshot-count",
                                          "500",
                                          "--experimental-snapshot-catchup-entries",
                                          "500",
                                          "--log-level",
                                          "error"};
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  of.pid = ::fork();
  if (of.pid != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, STDOUT_FILENO);
  ::dup2(null, STDERR_FILENO);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

}  // namespace cxlpool::fm
