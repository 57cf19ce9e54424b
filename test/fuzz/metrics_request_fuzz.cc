// What anybody may send to the address where a program's metrics are read.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "proto/metrics/metrics_listener.h"
#include "proto/support/unique_fd.h"
#include "test/fuzz/fuzz_target.h"

namespace cxlpool::fuzz {
namespace {

// Of one that listens as long as the program runs.
int MetricsPort() {
  static const std::unique_ptr<metrics::MetricsListener> listener = [] {
    metrics::MetricsListener::Options options;
    options.host = "127.0.0.1";
    options.text = [] { return std::string("up 1\n"); };
    auto started = metrics::MetricsListener::Start(std::move(options));
    Require(started.ok());
    return *std::move(started);
  }();
  return listener->port();
}

// All that the listener answers, until it hangs up; it does so before its own deadlines are over.
// Nothing: it could not be asked, since a fuzzer may run out of ports for a moment.
std::optional<std::string> AnswerTo(const std::string& request) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Require(fd.valid());
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(MetricsPort()));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) return std::nullopt;
  const timeval patience = {.tv_sec = 20, .tv_usec = 0};
  Require(::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0);
  // It may hang up before all is sent.
  ::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
  ::shutdown(fd.get(), SHUT_WR);
  std::string answer;
  char buffer[4096];
  while (true) {
    const ssize_t got = ::recv(fd.get(), buffer, sizeof(buffer), 0);
    if (got < 0 && errno == EINTR) continue;
    Require(got >= 0 || errno == ECONNRESET);
    if (got <= 0) return answer;
    answer.append(buffer, static_cast<size_t>(got));
  }
}

// An answer of HTTP or none, and the metrics to nobody who does not name them.
CXLPOOL_FUZZ(metrics_request) {
  const std::optional<std::string> answer = AnswerTo(bytes);
  if (!answer.has_value() || answer->empty()) return;
  Require(answer->starts_with("HTTP/1.1 "));
  Require(!answer->starts_with("HTTP/1.1 200 ") || bytes.starts_with("GET /metrics"));
  // Whoever asks next is answered, whatever came before.
  const auto next = AnswerTo("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  Require(!next.has_value() || next->ends_with("\r\n\r\nup 1\n"));
}

}  // namespace
}  // namespace cxlpool::fuzz
