#include "test/rigs/lossy_proxy.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace cxlpool {
namespace {

constexpr int kWaiting = 16;
constexpr size_t kPiece = 64 << 10;

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  return address;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LossyProxy>> LossyProxy::Start(const std::string& path,
                                                              const std::string& target) {
  auto proxy = std::unique_ptr<LossyProxy>(new LossyProxy);
  proxy->target_ = target;
  proxy->listener_.Reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  proxy->wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const sockaddr_un address = AddressOf(path);
  if (bind(proxy->listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
          0 ||
      listen(proxy->listener_.get(), kWaiting) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", path, ": ", strerror(errno)));
  }
  proxy->thread_ = std::thread([raw = proxy.get()] { raw->Run(); });
  return proxy;
}

LossyProxy::~LossyProxy() {
  stop_ = true;
  Cut();
  if (thread_.joinable()) thread_.join();
}

void LossyProxy::Cut() {
  cut_ = true;
  const uint64_t one = 1;
  if (write(wake_.get(), &one, sizeof(one)) < 0) return;  // It is awake.
}

void LossyProxy::Accept() {
  Pair pair;
  pair.client.Reset(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  pair.manager.Reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = AddressOf(target_);
  if (pair.client.valid() &&
      connect(pair.manager.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
          0) {
    pairs_.push_back(std::move(pair));
  }
}

bool LossyProxy::Forward(int from, int to, bool lose) {
  static thread_local char buffer[kPiece];
  const ssize_t got = read(from, buffer, sizeof(buffer));
  if (got <= 0) return got < 0 && errno == EINTR;
  if (lose) return true;
  for (ssize_t put = 0; put < got;) {
    const ssize_t more = send(to, buffer + put, static_cast<size_t>(got - put), MSG_NOSIGNAL);
    if (more <= 0) return false;
    put += more;
  }
  return true;
}

void LossyProxy::Run() {
  while (true) {
    std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const Pair& pair : pairs_) {
      fds.push_back({pair.client.get(), POLLIN, 0});
      fds.push_back({pair.manager.get(), POLLIN, 0});
    }
    poll(fds.data(), fds.size(), -1);
    uint64_t count = 0;
    if (read(wake_.get(), &count, sizeof(count)) > 0 && cut_.exchange(false)) pairs_.clear();
    if (stop_) return;
    for (size_t i = pairs_.size(); i-- > 0;) {
      const Pair& pair = pairs_[i];
      const bool heard = fds[2 * i + 2].revents != 0, said = fds[2 * i + 3].revents != 0;
      if ((heard && !Forward(pair.client.get(), pair.manager.get(), false)) ||
          (said && !Forward(pair.manager.get(), pair.client.get(), lose_))) {
        pairs_.erase(pairs_.begin() + static_cast<ptrdiff_t>(i));
      }
    }
    if (fds[1].revents != 0) Accept();
  }
}

}  // namespace cxlpool
