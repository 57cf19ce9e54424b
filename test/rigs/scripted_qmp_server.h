// For tests: a thread that takes one client on a Unix socket and hands it to a script, which may
// speak QMP as badly as it likes.
#ifndef CXLPOOL_TEST_RIGS_SCRIPTED_QMP_SERVER_H_
#define CXLPOOL_TEST_RIGS_SCRIPTED_QMP_SERVER_H_

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "proto/support/unique_fd.h"

namespace cxlpool::fm {

// One client's end of the connection. Its reads end, with "", when the client has gone.
class ScriptedPeer {
 public:
  explicit ScriptedPeer(int fd) : fd_(fd) {}

  void Send(const std::string& text) const {
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
  }

  void Greet() const {
    Send(
        "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 3, \"minor\": 1, \"major\": 11}, "
        "\"package\": \"\"}, \"capabilities\": [\"oob\"]}}\r\n");
  }

  std::string ReadLine() const {
    std::string line;
    char c = 0;
    while (::read(fd_, &c, 1) == 1) {
      if (c == '\n') return line;
      line += c;
    }
    return "";
  }

  // Answers the next command, the connection's `number`th, with "return": `value`.
  void Answer(int number, const std::string& value) const {
    if (ReadCommand().empty()) return;
    Send("{\"return\": " + value + ", \"id\": " + Id(number) + "}\r\n");
  }

  // A line, which tells where the client's ids begin.
  std::string ReadCommand() const {
    std::string line = ReadLine();
    const size_t at = line.find("\"id\":");
    if (base_ == 0 && at != std::string::npos) base_ = std::stoull(line.substr(at + 5));
    return line;
  }

  // The id of the connection's `number`th command, once one has been read.
  std::string Id(int number) const {
    return std::to_string(base_ + static_cast<uint64_t>(number) - 1);
  }

  void WaitUntilGone() const {
    while (!ReadLine().empty()) {
    }
  }

 private:
  int fd_;
  mutable uint64_t base_ = 0;
};

class ScriptedQmpServer {
 public:
  using Script = std::function<void(const ScriptedPeer&)>;

  ScriptedQmpServer(const std::string& path, Script script) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    listener_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        ::listen(listener_.get(), 4) != 0) {
      std::abort();
    }
    thread_ = std::thread([this, script = std::move(script)] {
      const UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client.valid()) script(ScriptedPeer(client.get()));
    });
  }

  // The client must have gone, or never have come.
  ~ScriptedQmpServer() {
    ::shutdown(listener_.get(), SHUT_RDWR);  // Ends an accept that nobody answered.
    thread_.join();
  }

 private:
  UniqueFd listener_;
  std::thread thread_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_SCRIPTED_QMP_SERVER_H_
