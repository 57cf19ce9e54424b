#include "test/rigs/etcd_cluster.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "fabric-manager/adapters/store_etcd/etcd_client.h"
#include "tools/pki/pki.h"

namespace cxlpool::fm {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr char kDisk[] = "size=4g";  // More than a member has.

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

std::string Tool(absl::string_view name) {
  return absl::StrCat(std::filesystem::path(EtcdCluster::Program()).parent_path().string(), "/",
                      name);
}

// What a command of the shell says; nothing where it fails.
std::string Said(const std::string& command) {
  FILE* pipe = ::popen((command + " 2>/dev/null").c_str(), "re");
  if (pipe == nullptr) return "";
  std::string said(4096, '\0');
  said.resize(::fread(said.data(), 1, said.size(), pipe));
  return ::pclose(pipe) == 0 ? said : "";
}

absl::Status Done(const std::string& command) {
  if (::system((command + " >/dev/null 2>&1").c_str()) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("failed: ", command));
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
EtcdCluster::EtcdCluster(int members, const std::string& parent, const PrivateNetwork* network)
    : network_(network), members_(static_cast<size_t>(members)) {
  const std::filesystem::path in =
      parent.empty() ? std::filesystem::temp_directory_path() : std::filesystem::path(parent);
  std::string pattern = (in / "cxlpool-etcd-XXXXXX").string();
  directory_ = ::mkdtemp(pattern.data());
  for (int i = 0; i < members; ++i) {
    Member& member = members_[static_cast<size_t>(i)];
    member.client = network_ == nullptr ? absl::StrCat("127.0.0.1:", FreePort())
                                        : network_->AddressOf(i) + ":2379";
    member.peer = network_ == nullptr ? absl::StrCat("127.0.0.1:", FreePort())
                                      : network_->AddressOf(i) + ":2380";
    options_.endpoints.push_back(member.client);
  }
  if (network_ != nullptr) status_ = MakeCertificates();
  if (network_ != nullptr && status_.ok()) status_ = MakeDisk();
  if (!status_.ok()) return;
  for (int i = 0; i < members; ++i) Start(i);
  const absl::Time deadline = absl::Now() + kPatience;
  while (!Answers(0)) {
    if (absl::Now() > deadline) {
      status_ = absl::UnavailableError("the members of etcd find no leader");
      return;
    }
    absl::SleepFor(absl::Milliseconds(50));
  }
}

EtcdCluster::~EtcdCluster() {
  for (size_t i = 0; i < members_.size(); ++i) Kill(static_cast<int>(i));
  if (network_ != nullptr) {
    ::umount2(DirectoryOf(static_cast<int>(members_.size()) - 1).c_str(), MNT_DETACH);
  }
  std::filesystem::remove_all(directory_);
}

// As docs/replicated.md has them made: an authority for etcd alone.
absl::Status EtcdCluster::MakeCertificates() {
  const std::string directory = directory_ + "/pki";
  if (auto made = pki::InitAuthority(directory, /*force=*/false); !made.ok()) return made.status();
  pki::LeafRequest leaf{.role = pki::LeafRole::kManager, .name = "etcd", .dns = {}, .ips = {}};
  for (size_t i = 0; i < members_.size(); ++i) {
    leaf.ips.push_back(PrivateNetwork::AddressOf(static_cast<int>(i)));
  }
  if (auto made = pki::IssueLeaf(directory, leaf); !made.ok()) return made.status();
  leaf = {.role = pki::LeafRole::kHost, .name = "etcd", .dns = {}, .ips = {}};
  if (auto made = pki::IssueLeaf(directory, leaf); !made.ok()) return made.status();
  leaf = {.role = pki::LeafRole::kOperator, .name = "fm", .dns = {}, .ips = {}};
  const auto made = pki::IssueLeaf(directory, leaf);
  if (!made.ok()) return made.status();
  options_.ca = made->ca;
  options_.cert = made->cert;
  options_.key = made->key;
  return absl::OkStatus();
}

absl::Status EtcdCluster::MakeDisk() const {
  const std::string disk = DirectoryOf(static_cast<int>(members_.size()) - 1);
  if (::mkdir(disk.c_str(), 0700) == 0 && ::mount("tmpfs", disk.c_str(), "tmpfs", 0, kDisk) == 0) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot mount ", disk));
}

std::string EtcdCluster::UrlOf(const std::string& host_port) const {
  return (options_.ca.empty() ? "http://" : "https://") + host_port;
}

// As packaging/examples/etcd-cxlpool.conf has them.
std::vector<std::string> EtcdCluster::TlsFlags() const {
  if (options_.ca.empty()) return {};
  const std::string pki = directory_ + "/pki/";
  std::vector<std::string> flags;
  for (const std::string side : {"--", "--peer-"}) {
    flags.insert(flags.end(),
                 {side + "client-cert-auth", side + "trusted-ca-file", options_.ca,
                  side + "cert-file", pki + "manager-etcd.pem", side + "key-file",
                  pki + "manager-etcd.key", side + "client-cert-file", pki + "host-etcd.pem",
                  side + "client-key-file", pki + "host-etcd.key"});
  }
  return flags;
}

std::string EtcdCluster::Etcdctl(int member) const {
  const std::string command = absl::StrCat(Tool("etcdctl"), " --command-timeout=2s --endpoints ",
                                           members_[static_cast<size_t>(member)].client);
  if (options_.ca.empty()) return command;
  return absl::StrCat(command, " --cacert ", options_.ca, " --cert ", options_.cert, " --key ",
                      options_.key);
}

std::string EtcdCluster::DirectoryOf(int member) const {
  return absl::StrCat(directory_, "/", NameOf(member));
}

// A read goes through the leader, so its answer says that there is one.
bool EtcdCluster::Answers(int member) const {
  EtcdOptions options = options_;
  options.endpoints = {members_[static_cast<size_t>(member)].client};
  const auto client = EtcdClient::Make(options);
  etcdserverpb::RangeRequest request;
  request.set_key("x");
  return client.ok() && (*client)->Range(request).ok();
}

// Of two that say so, one is cut off or was stopped: the newer term is right.
int EtcdCluster::Leader() const {
  int leader = -1, newest = 0;
  for (size_t i = 0; i < members_.size(); ++i) {
    const std::vector<std::string> said =
        absl::StrSplit(Said(Etcdctl(static_cast<int>(i)) + " endpoint status"), ", ");
    int term = 0;
    if (said.size() < 7 || said[4] != "true" || !absl::SimpleAtoi(said[6], &term)) continue;
    if (term > newest) leader = static_cast<int>(i);
    newest = std::max(newest, term);
  }
  return leader;
}

// Full is what holds no more than it does now: tmpfs can be given another size at any time.
absl::Status EtcdCluster::SetDiskFull(bool full) {
  const std::string disk = DirectoryOf(static_cast<int>(members_.size()) - 1);
  for (int i = 0; i < 100; ++i) {  // It goes on growing meanwhile.
    struct statvfs now;
    if (::statvfs(disk.c_str(), &now) != 0) break;
    const std::string size =
        full ? absl::StrCat("size=", (now.f_blocks - now.f_bfree) * now.f_frsize) : kDisk;
    if (::mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, size.c_str()) == 0) {
      return absl::OkStatus();
    }
  }
  return absl::UnavailableError(absl::StrCat("cannot size ", disk, ": ", strerror(errno)));
}

absl::Status EtcdCluster::SaveSnapshot(int member, const std::string& file) const {
  return Done(absl::StrCat(Etcdctl(member), " snapshot save ", file));
}

absl::Status EtcdCluster::Restore(const std::string& snapshot) {
  for (size_t i = 0; i < members_.size(); ++i) {
    const std::string directory = DirectoryOf(static_cast<int>(i));
    std::filesystem::remove_all(directory + "/data");
    const absl::Status status =
        Done(absl::StrCat(Tool("etcdutl"), " snapshot restore ", snapshot, " --data-dir ",
                          directory, "/data --bump-revision 1000000000 --mark-compacted --name ",
                          NameOf(static_cast<int>(i)), " --initial-advertise-peer-urls ",
                          UrlOf(members_[i].peer), " --initial-cluster ", InitialCluster()));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

std::string EtcdCluster::InitialCluster() const {
  std::string all;
  for (size_t i = 0; i < members_.size(); ++i) {
    absl::StrAppend(&all, i == 0 ? "" : ",", NameOf(static_cast<int>(i)), "=",
                    UrlOf(members_[i].peer));
  }
  return all;
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
  Member& of = members_[static_cast<size_t>(member)];
  const std::string all = InitialCluster();
  const std::string client = UrlOf(of.client), peer = UrlOf(of.peer);
  std::vector<std::string> words = {Program(),
                                    "--name",
                                    NameOf(member),
                                    "--data-dir",
                                    DirectoryOf(member) + "/data",
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
  for (const std::string& flag : TlsFlags()) words.push_back(flag);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const int node = network_ == nullptr ? -1 : network_->NamespaceOf(member);
  of.pid = ::fork();
  if (of.pid != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (node >= 0 && ::setns(node, CLONE_NEWNET) != 0) ::_exit(127);
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, STDOUT_FILENO);
  ::dup2(null, STDERR_FILENO);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

}  // namespace cxlpool::fm
