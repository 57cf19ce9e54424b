// The only source that knows Boost: its headers take 20 s to compile.
#include "proto/metrics/metrics_listener.h"

#include <pthread.h>

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/openssl.h"
#include "proto/support/refusal.h"

namespace cxlpool::metrics {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr char kTextType[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr absl::Duration kCloseTime = absl::Seconds(1);    // For the client to have read it all.
constexpr absl::Duration kAcceptAgain = absl::Seconds(1);  // After an accept that failed.

// A connection whose request is not there yet.
class Awaited {
 public:
  virtual ~Awaited() = default;
  // Gives its place up, at once.
  virtual void End() = 0;
};

// What all connections of a listener share. Only the listener's thread uses it.
struct Common {
  MetricsListener::Options options;
  int connections = 0;          // That have a place.
  std::list<Awaited*> awaited;  // In the order in which they came.
};

// A context for one handshake, with the certificates of now. Null: they will not do.
std::unique_ptr<asio::ssl::context> MakeContext(const TlsFacts& facts) {
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  error_code error;
  SSL_CTX* const raw = context->native_handle();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(raw, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  const auto pem = [](const std::string& text) {
    return asio::const_buffer(text.data(), text.size());
  };
  context->use_certificate_chain(pem(facts.cert), error);
  if (!error) context->use_private_key(pem(facts.key), asio::ssl::context::pem, error);
  if (!error) context->add_certificate_authority(pem(facts.ca), error);
  if (!error) {
    context->set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert,
                             error);
  }
  if (!error) return context;
  LogWarning("metrics", "its certificates will not do: ", error.message());
  return nullptr;
}

// What is in the certificate that the client showed; nothing: it cannot be read.
std::optional<CertificateFacts> FactsOf(SSL* ssl) {
  const openssl::ForgetErrors forget;
  const openssl::Certificate shown(SSL_get1_peer_certificate(ssl));
  const openssl::Bio bio(BIO_new(BIO_s_mem()));
  if (shown == nullptr || PEM_write_bio_X509(bio.get(), shown.get()) != 1) return std::nullopt;
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  auto facts = ReadCertificates(std::string(data, static_cast<size_t>(size)));
  if (!facts.ok()) return std::nullopt;
  return facts->front();
}

// One connection, from its accept to its end: [handshake,] request, answer, close. It lives as long
// as an operation of it is under way; each has a deadline.
template <typename Stream>
class Connection final : public Awaited, public std::enable_shared_from_this<Connection<Stream>> {
  static constexpr bool kTls = !std::is_same_v<Stream, beast::tcp_stream>;

 public:
  Connection(Common* common, tcp::socket socket) requires(!kTls)
      : common_(common), stream_(std::move(socket)) {
    TakePlace();
  }
  Connection(Common* common, tcp::socket socket,
             std::unique_ptr<asio::ssl::context> context) requires(kTls)
      : common_(common), context_(std::move(context)), stream_(std::move(socket), *context_) {
    TakePlace();
  }
  ~Connection() override { GivePlaceUp(); }

  // What waits for its request ends with an error now, and with it the connection.
  void End() override {
    GivePlaceUp();
    error_code ignored;
    beast::get_lowest_layer(stream_).socket().close(ignored);
  }

  void Begin() {
    SetLinger(true);
    Expire(common_->options.read_time);
    if constexpr (kTls) {
      stream_.async_handshake(asio::ssl::stream_base::server,
                              [self = this->shared_from_this()](error_code error) {
                                if (!error) self->Read();
                              });
    } else {
      Read();
    }
  }

 private:
  void TakePlace() {
    ++common_->connections;
    common_->awaited.push_back(this);
    has_place_ = true;
  }
  void GivePlaceUp() {
    common_->awaited.remove(this);
    if (std::exchange(has_place_, false)) --common_->connections;
  }

  // A connection that ends before it has been answered is reset: nothing that its client does not
  // read stays in the kernel.
  void SetLinger(bool resets) {
    error_code ignored;
    beast::get_lowest_layer(stream_).socket().set_option(asio::socket_base::linger(resets, 0),
                                                         ignored);
  }

  // The next operations end in so much time, together.
  void Expire(absl::Duration time) {
    beast::get_lowest_layer(stream_).expires_after(absl::ToChronoNanoseconds(time));
  }

  void Read() {
    parser_.header_limit(MetricsListener::kMaxHeadBytes);
    parser_.body_limit(0);
    http::async_read(
        stream_, buffer_, parser_, [self = this->shared_from_this()](error_code error, size_t) {
          if (!error) return self->Answer(self->Judge());
          // Whoever sent nothing, or went, wants no answer.
          if (error == http::error::header_limit) {
            self->Answer(http::status::request_header_fields_too_large);
          } else if (error.category() == make_error_code(http::error::bad_method).category() &&
                     error != http::error::end_of_stream) {
            self->Answer(http::status::bad_request);
          }
        });
  }

  http::status Judge() {
    const auto& request = parser_.get();
    const auto path = request.target().substr(0, request.target().find('?'));
    if (path != "/metrics") return http::status::not_found;
    if (request.method() != http::verb::get) return http::status::method_not_allowed;
    if constexpr (kTls) {
      const auto facts = FactsOf(stream_.native_handle());
      const auto& may_read = common_->options.may_read;
      const bool may = facts.has_value() && (may_read == nullptr || may_read(*facts));
      if (!may && !CXLPOOL_MUTANT("metrics-for-every-certificate")) return http::status::forbidden;
    }
    return http::status::ok;
  }

  void Answer(http::status status) {
    common_->awaited.remove(this);
    answer_.result(status);
    answer_.version(11);
    answer_.keep_alive(false);
    answer_.set(http::field::content_type, kTextType);
    if (status == http::status::method_not_allowed) answer_.set(http::field::allow, "GET");
    answer_.body() = status == http::status::ok
                         ? common_->options.text()
                         : absl::StrCat(std::string(http::obsolete_reason(status)), "\n");
    answer_.prepare_payload();
    Expire(common_->options.write_time);
    http::async_write(stream_, answer_,
                      [self = this->shared_from_this()](error_code error, size_t) {
                        if (!error) self->Close();
                      });
  }

  // Waits a moment for the client to close: a socket with unread bytes in it that is closed takes
  // the answer away from a client that has not read it.
  void Close() {
    SetLinger(false);
    Expire(kCloseTime);
    if constexpr (kTls) {
      stream_.async_shutdown([self = this->shared_from_this()](error_code) {});
    } else {
      error_code ignored;
      stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
      Drain();
    }
  }

  void Drain() {
    stream_.async_read_some(asio::buffer(rest_),
                            [self = this->shared_from_this()](error_code error, size_t) {
                              if (!error) self->Drain();
                            });
  }

  Common* const common_;
  bool has_place_ = false;
  std::unique_ptr<asio::ssl::context> context_;  // Null without TLS.
  Stream stream_;
  beast::flat_static_buffer<2 * MetricsListener::kMaxHeadBytes> buffer_;
  http::request_parser<http::empty_body> parser_;
  http::response<http::string_body> answer_;
  std::array<char, 1024> rest_;
};

class Listener final : public MetricsListener {
 public:
  explicit Listener(Options options) { common_.options = std::move(options); }

  ~Listener() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Listen() {
    const Options& options = common_.options;
    error_code error;
    const auto address =
        asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
    const tcp::endpoint endpoint(address, static_cast<uint16_t>(options.port));
    if (!error) acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(kMaxConnections, error);
    if (error) {
      return Refuse(absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
                    absl::StrCat("cannot listen on ", options.host, ":", options.port,
                                 " for metrics: ", error.message()),
                    "choose another metrics.listen, or stop what listens there");
    }
    Accept();
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "metrics");
      io_.run();
    });
    return absl::OkStatus();
  }

  int port() const override {
    error_code ignored;
    return acceptor_.local_endpoint(ignored).port();
  }

 private:
  void Accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (error) {
        if (error == asio::error::operation_aborted) return;
        // No descriptors, as a rule: some are free again soon.
        again_.expires_after(absl::ToChronoNanoseconds(kAcceptAgain));
        return again_.async_wait([this](error_code) { Accept(); });
      }
      if (common_.connections == kMaxConnections && !common_.awaited.empty() &&
          !CXLPOOL_MUTANT("silent-keep-others-out")) {
        common_.awaited.front()->End();
      }
      if (common_.connections < kMaxConnections) Serve(std::move(socket));
      Accept();
    });
  }

  void Serve(tcp::socket socket) {
    if (!common_.options.tls) {
      return std::make_shared<Connection<beast::tcp_stream>>(&common_, std::move(socket))->Begin();
    }
    auto context = MakeContext(common_.options.tls());
    if (context == nullptr) return;
    std::make_shared<Connection<beast::ssl_stream<beast::tcp_stream>>>(&common_, std::move(socket),
                                                                       std::move(context))
        ->Begin();
  }

  Common common_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer again_{io_};
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsListener>> MetricsListener::Start(Options options) {
  auto listener = std::make_unique<Listener>(std::move(options));
  if (absl::Status status = listener->Listen(); !status.ok()) return status;
  return listener;
}

}  // namespace cxlpool::metrics
