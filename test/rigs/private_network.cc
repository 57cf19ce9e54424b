#include "test/rigs/private_network.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"

namespace cxlpool {
namespace {

constexpr char kOwnNetwork[] = "/proc/thread-self/ns/net";

absl::Status Failed(absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat("no network of its own: ", what, ": ",
                                                    strerror(errno),
                                                    " (run as root, where unshare(2) is allowed)"));
}

// Commands of `ip`, one a line, in this thread's namespace.
absl::Status Ip(const std::string& commands) {
  const int code = ::system(
      absl::StrCat("PATH=$PATH:/usr/sbin:/sbin; ip -batch - <<'E'\n", commands, "E\n").c_str());
  if (code == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("ip(8) did not carry out (apt-get install iproute2):\n", commands));
}

std::string RouterOf(int node) { return absl::StrCat("10.77.", node, ".1"); }

}  // namespace

// What is mounted from now on is gone with this program as well. Addresses of such a network are
// reached through no proxy, whatever the environment says.
absl::Status PrivateNetwork::Enter() {
  if (::unshare(CLONE_NEWNET | CLONE_NEWNS) != 0) return Failed("unshare");
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return Failed("mount");
  std::ofstream forward("/proc/sys/net/ipv4/ip_forward");
  forward << "1" << std::flush;
  if (!forward) return Failed("/proc/sys/net/ipv4/ip_forward");
  for (const char* proxy : {"http_proxy", "https_proxy", "grpc_proxy", "all_proxy", "HTTP_PROXY",
                            "HTTPS_PROXY", "ALL_PROXY"}) {
    ::unsetenv(proxy);
  }
  return Ip("link set lo up\n");
}

absl::StatusOr<std::unique_ptr<PrivateNetwork>> PrivateNetwork::Make(int nodes) {
  auto network = std::unique_ptr<PrivateNetwork>(new PrivateNetwork);
  const UniqueFd router(::open(kOwnNetwork, O_RDONLY | O_CLOEXEC));
  if (!router.valid()) return Failed(kOwnNetwork);
  for (int i = 0; i < nodes; ++i) {
    absl::Status status = network->AddNode(router.get());
    if (::setns(router.get(), CLONE_NEWNET) != 0) return Failed("setns");
    if (status.ok()) {
      status =
          Ip(absl::StrCat("addr add ", RouterOf(i), "/24 dev n", i, "\nlink set n", i, " up\n"));
    }
    if (!status.ok()) return status;
  }
  return network;
}

// This thread stays in the node's namespace. The far end of its link is the router's, as n0, n1,
// ...
absl::Status PrivateNetwork::AddNode(int router) {
  const size_t node = nodes_.size();
  if (::unshare(CLONE_NEWNET) != 0) return Failed("unshare");
  nodes_.emplace_back(::open(kOwnNetwork, O_RDONLY | O_CLOEXEC));
  return Ip(absl::StrCat("link set lo up\nlink add eth0 type veth peer name n", node,
                         " netns /proc/", ::getpid(), "/fd/", router, "\naddr add ",
                         AddressOf(static_cast<int>(node)),
                         "/24 dev eth0\nlink set eth0 up\nroute add default via ",
                         RouterOf(static_cast<int>(node)), "\n"));
}

PrivateNetwork::~PrivateNetwork() {
  Heal().IgnoreError();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Ip(absl::StrCat("link del n", i, "\n")).IgnoreError();
  }
}

std::string PrivateNetwork::AddressOf(int node) { return absl::StrCat("10.77.", node, ".2"); }

absl::Status PrivateNetwork::Cut(int a, int b) {
  std::string rules;
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    if (!cuts_.emplace(from, to).second) continue;
    absl::StrAppend(&rules, "rule add from ", AddressOf(from), " to ", AddressOf(to),
                    " blackhole\n");
  }
  return rules.empty() ? absl::OkStatus() : Ip(rules);
}

absl::Status PrivateNetwork::CutFrom(int node, const std::vector<int>& others) {
  for (const int other : others) {
    if (absl::Status status = Cut(node, other); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status PrivateNetwork::Heal() {
  std::string rules;
  for (const auto& [from, to] : cuts_) {
    absl::StrAppend(&rules, "rule del from ", AddressOf(from), " to ", AddressOf(to),
                    " blackhole\n");
  }
  cuts_.clear();
  return rules.empty() ? absl::OkStatus() : Ip(rules);
}

}  // namespace cxlpool
