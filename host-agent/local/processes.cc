#include "host-agent/local/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "proto/support/mutant.h"
#include "proto/support/process_stat.h"
#include "proto/support/unique_fd.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5; not in Debian 12's headers.
#endif

namespace cxlpool::agent {
namespace {

// A pidfd becomes readable when its process ends.
bool IsThere(int fd, short events) {
  pollfd state = {.fd = fd, .events = events, .revents = 0};
  return ::poll(&state, 1, 0) == 0;
}

}  // namespace

uint64_t PeerStartTicks(int socket, int pid) {
  if (pid <= 0) return 0;
  int got = -1;
  socklen_t size = sizeof(got);
  const bool given = ::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &got, &size) == 0;
  if (!given && errno != ENOPROTOOPT) return 0;
  const UniqueFd handle(given ? got : static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!handle.valid()) return 0;
  const uint64_t ticks = StartTicksOf(static_cast<uint32_t>(pid));
  if (!IsThere(handle.get(), POLLIN)) return 0;
  // Else it may be gone since it connected, and `handle` another's.
  return given || IsThere(socket, 0) ? ticks : 0;
}

std::string ProgramOf(int pid) {
  const UniqueFd file(::open(absl::StrCat("/proc/", pid, "/comm").c_str(), O_RDONLY | O_CLOEXEC));
  if (pid <= 0 || !file.valid()) return "";
  char text[64];  // The kernel has 16 bytes, and 64 of its own threads.
  const ssize_t size = ::read(file.get(), text, sizeof(text));
  if (size <= 0) return "";
  std::string name(absl::StripSuffix(absl::string_view(text, static_cast<size_t>(size)), "\n"));
  for (char& c : name) {
    const bool is_plain = c >= ' ' && c <= '~';
    if (!is_plain && !CXLPOOL_MUTANT("program-as-it-names-itself")) c = '?';
  }
  return name;
}

std::vector<uint32_t> PeerGroups(int socket, uint32_t primary) {
  static_assert(sizeof(gid_t) == sizeof(uint32_t));
  std::vector<uint32_t> groups(32);
  auto size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  int result = ::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
  if (result != 0 && errno == ERANGE) {  // `size` says how much it takes.
    groups.resize(size / sizeof(gid_t));
    result = ::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
  }
  groups.resize(result == 0 ? size / sizeof(gid_t) : 0);
  groups.push_back(primary);
  return groups;
}

}  // namespace cxlpool::agent
