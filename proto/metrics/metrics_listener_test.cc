// The listener over real sockets: what it answers, what it hangs up on, and that nobody keeps it
// from the others.
#include "proto/metrics/metrics_listener.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/mutex.h"
#include "proto/support/openssl.h"
#include "proto/support/refusal.h"
#include "proto/support/unique_fd.h"
#include "tools/pki/certificate.h"

namespace cxlpool::metrics {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int kPatienceS = 30;
constexpr char kGet[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

class HttpClient {
 public:
  explicit HttpClient(int port, int receive_buffer = 0)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer != 0) {
      setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    const timeval patience = {.tv_sec = kPatienceS, .tv_usec = 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  }

  void Send(const std::string& text) const {
    send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  // All there is until the listener hangs up; "TIMEOUT" behind it if it does not.
  std::string ReadAll() const {
    std::string all;
    char bytes[4096];
    while (true) {
      const ssize_t got = recv(fd_.get(), bytes, sizeof(bytes), 0);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return all;
      if (got < 0) return all + "TIMEOUT";
      all.append(bytes, static_cast<size_t>(got));
    }
  }
  std::string Ask(const std::string& text) const {
    Send(text);
    return ReadAll();
  }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

class MetricsListenerTest : public testing::Test {
 protected:
  void Start(std::string body = "up 1\n") {
    options_.host = "127.0.0.1";
    options_.text = [body = std::move(body)] { return body; };
    auto listener = MetricsListener::Start(options_);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }
  void TearDown() override { listener_.reset(); }  // Its thread asks for what a test has.
  int port() const { return listener_->port(); }

  MetricsListener::Options options_;
  std::unique_ptr<MetricsListener> listener_;
};

TEST_F(MetricsListenerTest, AnswersAndCloses) {
  Start();
  for (int i = 0; i < 20; ++i) {
    const std::string answer = HttpClient(port()).Ask(kGet);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    EXPECT_THAT(answer, HasSubstr("\r\n\r\nup 1\n"));
  }
}

TEST_F(MetricsListenerTest, AnswersNothingElse) {
  Start();
  const auto ask = [&](const std::string& line) {
    return HttpClient(port()).Ask(line + " HTTP/1.1\r\nHost: x\r\n\r\n");
  };
  EXPECT_THAT(ask("GET /"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(ask("GET /metrics/"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(ask("GET /metrics?name=x"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ask("HEAD /metrics"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(ask("DELETE /metrics"), HasSubstr("\r\nAllow: GET\r\n"));
  EXPECT_THAT(HttpClient(port()).Ask("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(
      HttpClient(port()).Ask("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"),
      testing::AnyOf(StartsWith("HTTP/1.1 400 "), StartsWith("HTTP/1.1 405 ")));
}

TEST_F(MetricsListenerTest, ALongHeadIsRefused) {
  Start();
  const std::string head =
      absl::StrCat("GET /metrics HTTP/1.1\r\nHost: ", std::string(8000, 'x'), "\r\n\r\n");
  EXPECT_THAT(HttpClient(port()).Ask(head), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(HttpClient(port()).Ask(kGet), StartsWith("HTTP/1.1 200 "));
}

TEST_F(MetricsListenerTest, WhoSaysNothingIsHungUpOn) {
  options_.read_time = absl::Milliseconds(300);
  Start();
  const HttpClient silent(port()), slow(port());
  slow.Send("GET /met");
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_EQ(slow.ReadAll(), "");
}

// They are the listener's for as long as they are allowed to, and Prometheus comes meanwhile.
TEST_F(MetricsListenerTest, FourWhoSayNothingKeepNobodyOut) {
  options_.read_time = absl::Seconds(kPatienceS);
  Start();
  std::vector<std::unique_ptr<HttpClient>> silent;
  for (int i = 0; i < MetricsListener::kMaxConnections; ++i) {
    silent.push_back(std::make_unique<HttpClient>(port()));
    if (i % 2 == 1) silent.back()->Send("GET /met");
  }
  const absl::Time began = absl::Now();
  EXPECT_THAT(HttpClient(port()).Ask(kGet), StartsWith("HTTP/1.1 200 "));
  EXPECT_LT(absl::Now() - began, absl::Seconds(1));
  // The first that came had its place taken, and those behind it have theirs yet.
  EXPECT_EQ(silent[0]->ReadAll(), "");
  EXPECT_THAT(silent[2]->Ask(kGet), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(silent[1]->Ask("rics HTTP/1.1\r\nHost: x\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

// While four are answered the fifth is closed at once; when one of the four has gone there is room
// again.
TEST_F(MetricsListenerTest, FourAtOnce) {
  options_.write_time = absl::Seconds(kPatienceS);
  Start(std::string(64 << 20, 'x'));
  auto kept = std::make_unique<std::vector<std::unique_ptr<HttpClient>>>();
  for (int i = 0; i < MetricsListener::kMaxConnections; ++i) {
    kept->push_back(std::make_unique<HttpClient>(port(), 4096));
    kept->back()->Send(kGet);
    pollfd readable = {.fd = kept->back()->fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&readable, 1, kPatienceS * 1000), 1);  // Its answer has begun.
  }
  EXPECT_EQ(HttpClient(port()).Ask(kGet), "");
  kept.reset();
  const absl::Time deadline = absl::Now() + absl::Seconds(kPatienceS);
  std::string answer;
  while (answer.empty() && absl::Now() < deadline) answer = HttpClient(port()).Ask(kGet);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
}

// Its answer is larger than all buffers between: it is given up at the deadline, and the others are
// answered meanwhile.
TEST_F(MetricsListenerTest, ASlowReaderKeepsNobody) {
  options_.write_time = absl::Milliseconds(500);
  const std::string large(64 << 20, 'x');
  Start(large);
  const HttpClient slow(port(), 4096);
  slow.Send(kGet);
  pollfd readable = {.fd = slow.fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&readable, 1, kPatienceS * 1000), 1);  // Its answer has begun.
  EXPECT_THAT(HttpClient(port()).Ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
              StartsWith("HTTP/1.1 404 "));
  // Reads nothing until the listener has hung up.
  pollfd hung_up = {.fd = slow.fd(), .events = POLLRDHUP, .revents = 0};
  ASSERT_EQ(poll(&hung_up, 1, kPatienceS * 1000), 1);
  EXPECT_LT(slow.ReadAll().size(), large.size());
}

TEST_F(MetricsListenerTest, AnAddressThatIsTakenIsNamed) {
  Start();
  options_.port = port();
  const absl::Status refused = MetricsListener::Start(options_).status();
  EXPECT_EQ(ReasonOf(refused), "CANNOT_LISTEN");
  EXPECT_THAT(std::string(refused.message()), HasSubstr(absl::StrCat("127.0.0.1:", port())));
}

TEST_F(MetricsListenerTest, EndsWithConnectionsOpen) {
  Start();
  const HttpClient silent(port()), half(port());
  half.Send("GET /metrics");
  EXPECT_THAT(HttpClient(port()).Ask(kGet), StartsWith("HTTP/1.1 200 "));
  listener_.reset();
  EXPECT_EQ(silent.ReadAll(), "");
}

class MetricsTlsTest : public MetricsListenerTest {
 protected:
  static pki::PemPair Authority() {
    return *pki::MakeAuthority("test", absl::Now() - absl::Hours(1), absl::Now() + absl::Hours(1));
  }
  static pki::PemPair Leaf(const pki::PemPair& authority, const std::string& uri) {
    pki::CertificateRequest request;
    request.common_name = "test";
    request.uri = uri;
    request.server = uri == "cxlpool://manager/fm";
    if (request.server) request.dns = {"fm.cxlpool"};
    request.not_before = absl::Now() - absl::Hours(1);
    request.not_after = absl::Now() + absl::Hours(1);
    return *pki::MakeLeaf(authority, request);
  }

  void SetUp() override {
    SetUpPool();
    options_.tls = [this] {
      MutexLock lock(mutex_);
      return TlsFacts{.ca = authority_.cert, .cert = server_.cert, .key = server_.key};
    };
    options_.may_read = [](const CertificateFacts& facts) {
      return facts.uris == std::vector<std::string>{"cxlpool://operator/prometheus"};
    };
    Start();
  }

  // Another authority, and a certificate of the manager by it.
  void SetUpPool() {
    MutexLock lock(mutex_);
    authority_ = Authority();
    server_ = Leaf(authority_, "cxlpool://manager/fm");
  }
  pki::PemPair Reader() {
    MutexLock lock(mutex_);
    return Leaf(authority_, "cxlpool://operator/prometheus");
  }
  pki::PemPair OfHost() {
    MutexLock lock(mutex_);
    return Leaf(authority_, "cxlpool://host/host-a");
  }

  // The answer to a GET; empty: the handshake failed, or there was none.
  std::string AskAs(const pki::PemPair* client) {
    const std::unique_ptr<SSL_CTX, openssl::Free<SSL_CTX_free>> context(
        SSL_CTX_new(TLS_client_method()));
    if (client != nullptr) {
      const openssl::Bio cert = openssl::BioOf(client->cert), key = openssl::BioOf(client->key);
      const openssl::Certificate leaf(PEM_read_bio_X509(cert.get(), nullptr, nullptr, nullptr));
      const openssl::Key own(PEM_read_bio_PrivateKey(key.get(), nullptr, nullptr, nullptr));
      SSL_CTX_use_certificate(context.get(), leaf.get());
      SSL_CTX_use_PrivateKey(context.get(), own.get());
    }
    const HttpClient connection(port());
    const std::unique_ptr<SSL, openssl::Free<SSL_free>> ssl(SSL_new(context.get()));
    SSL_set_fd(ssl.get(), connection.fd());
    std::string all;
    if (SSL_connect(ssl.get()) == 1 && SSL_write(ssl.get(), kGet, sizeof(kGet) - 1) > 0) {
      char bytes[4096];
      for (int got; (got = SSL_read(ssl.get(), bytes, sizeof(bytes))) > 0;) all.append(bytes, got);
    }
    ERR_clear_error();
    return all;
  }

  Mutex mutex_;
  pki::PemPair authority_ ABSL_GUARDED_BY(mutex_), server_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(MetricsTlsTest, OnlyWhoMayReadReads) {
  const pki::PemPair reader = Reader();
  EXPECT_THAT(AskAs(&reader), testing::AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("up 1")));
  const pki::PemPair host = OfHost();
  EXPECT_THAT(AskAs(&host),
              testing::AllOf(StartsWith("HTTP/1.1 403 "), testing::Not(HasSubstr("up 1"))));
}

TEST_F(MetricsTlsTest, WhoShowsNoCertificateOfThePoolGetsNothing) {
  EXPECT_EQ(AskAs(nullptr), "");
  const pki::PemPair stranger = Leaf(Authority(), "cxlpool://operator/prometheus");
  EXPECT_EQ(AskAs(&stranger), "");
  EXPECT_EQ(HttpClient(port()).Ask(kGet).find("HTTP"), std::string::npos);  // No TLS at all.
}

TEST_F(MetricsTlsTest, ANewCertificateIsUsedFromTheNextHandshakeOn) {
  const pki::PemPair reader = Reader();
  EXPECT_THAT(AskAs(&reader), StartsWith("HTTP/1.1 200 "));
  SetUpPool();  // As after a reload with another authority.
  EXPECT_EQ(AskAs(&reader), "");
  const pki::PemPair newer = Reader();
  EXPECT_THAT(AskAs(&newer), StartsWith("HTTP/1.1 200 "));
}

}  // namespace
}  // namespace cxlpool::metrics
