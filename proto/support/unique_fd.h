// A file descriptor with one owner, closed with it.
//
// Not thread-safe.
#ifndef CXLPOOL_PROTO_SUPPORT_UNIQUE_FD_H_
#define CXLPOOL_PROTO_SUPPORT_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace cxlpool {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { Reset(); }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_UNIQUE_FD_H_
