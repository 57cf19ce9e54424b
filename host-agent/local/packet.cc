#include "host-agent/local/packet.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"

namespace cxlpool::agent {
namespace {

constexpr int kBreakSignal = SIGURG;  // Nobody else here uses it, and by default it is ignored.

}  // namespace

// No descriptor leaks, whatever a peer sends: the one that there is room for is in `given` before
// anything of the packet is judged, and the kernel never installs the others.
absl::StatusOr<std::string> ReceivePacket(int socket, GivenDescriptors* given) {
  std::string bytes(kMaxPacketBytes, '\0');
  iovec part = {.iov_base = bytes.data(), .iov_len = bytes.size()};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  ssize_t size = 0;
  do {
    // One descriptor fits; two would into the padding that CMSG_SPACE has. Without room the kernel
    // closes what comes.
    header.msg_control = given == nullptr ? nullptr : control;
    header.msg_controllen = given == nullptr ? 0 : CMSG_LEN(sizeof(int));
    size = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size >= 0 && given != nullptr) {
    const cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    if (rights != nullptr && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS &&
        rights->cmsg_len == CMSG_LEN(sizeof(int))) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
      given->first.Reset(fd);
    }
    given->had_others =
        (header.msg_flags & MSG_CTRUNC) != 0 && !CXLPOOL_MUTANT("second-descriptor-unseen");
  }
  if (size < 0) {
    if (errno == EAGAIN) return absl::UnavailableError("no packet yet");
    return absl::UnknownError(absl::StrCat("recvmsg: ", std::strerror(errno)));
  }
  if ((header.msg_flags & MSG_TRUNC) != 0) {
    return absl::ResourceExhaustedError("the packet is larger than 64 KiB");
  }
  // An empty packet reads like a hang-up, and no message of the protocol is empty.
  if (size == 0) return absl::OutOfRangeError("the peer has hung up");
  bytes.resize(static_cast<size_t>(size));
  return bytes;
}

absl::Status SendPacket(int socket, absl::string_view bytes,
                        const std::vector<UniqueFd>& descriptors) {
  iovec part = {.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  const size_t data_bytes = sizeof(int) * descriptors.size();
  std::vector<char> control(CMSG_SPACE(data_bytes));
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(data_bytes);
    std::vector<int> numbers;
    for (const UniqueFd& descriptor : descriptors) numbers.push_back(descriptor.get());
    std::memcpy(CMSG_DATA(rights), numbers.data(), data_bytes);
  }
  ssize_t size = 0;
  do {
    size = ::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (size < 0 && errno == EINTR);
  if (size >= 0) return absl::OkStatus();
  if (errno == EAGAIN || errno == ENOBUFS) return absl::UnavailableError("the peer does not read");
  return absl::UnknownError(absl::StrCat("sendmsg: ", std::strerror(errno)));
}

// The handler does nothing. It is there because a signal that is ignored interrupts nothing.
WaitBreaker::WaitBreaker() {
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  ::sigemptyset(&action.sa_mask);
  sigset_t own;
  ::sigemptyset(&own);
  ::sigaddset(&own, kBreakSignal);
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = kBreakSignal;
  event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));  // glibc has no other name.
  is_made_ = ::sigaction(kBreakSignal, &action, nullptr) == 0 &&
             ::pthread_sigmask(SIG_UNBLOCK, &own, nullptr) == 0 &&
             ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  if (!is_made_) {
    LogWarning("local", "a program may keep the agent from serving others: no timer is to be had: ",
               std::strerror(errno));
  }
}

WaitBreaker::~WaitBreaker() {
  if (is_made_) ::timer_delete(timer_);
}

void WaitBreaker::Signal(absl::Duration every) const {
  if (!is_made_ || CXLPOOL_MUTANT("who-lingers-keeps-others-waiting")) return;
  const timespec time = absl::ToTimespec(every);
  const itimerspec when = {.it_interval = time, .it_value = time};
  ::timer_settime(timer_, 0, &when, nullptr);
}

// The thread has nothing of this object's but the count, and so may outlive it.
void DescriptorBin::Drop(UniqueFd descriptor) {
  if (!descriptor.valid()) return;
  ++*under_way_;
  const int fd = descriptor.Release();
  try {
    std::thread([fd, under_way = under_way_] {
      UniqueFd(fd).Reset();
      --*under_way;
    }).detach();
  } catch (const std::system_error&) {
    // No thread is to be had: it stays open, and counts, so that there are few of these.
  }
}

}  // namespace cxlpool::agent
