#include "proto/support/tls_diagnosis.h"

#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/address.h"
#include "proto/support/loop.h"
#include "proto/support/openssl.h"
#include "proto/support/refusal.h"
#include "proto/support/unique_fd.h"

namespace cxlpool {
namespace {

using openssl::Bio;
using openssl::BioOf;
using openssl::Certificate;
using openssl::Free;
using openssl::Key;

// How long a manager that does not take our certificate may need to say so: with TLS 1.3 it does
// after the handshake.
constexpr absl::Duration kAlertWait = absl::Milliseconds(500);

absl::Status NotTrusted(const std::string& message, const std::string& remedy) {
  return Refuse(absl::StatusCode::kUnauthenticated, "MANAGER_NOT_TRUSTED", message, remedy);
}

// OpenSSL writes to its socket with write(2): what the manager has closed meanwhile answers with
// SIGPIPE, which ends a program that leaves that signal alone, as the CLI does for the sake of its
// output. While one of these lives this thread has none; any that came is taken off.
class NoBrokenPipes {
 public:
  NoBrokenPipes() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    others_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoBrokenPipes() {
    const timespec at_once = {};
    if (!others_) sigtimedwait(&pipe_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipes(const NoBrokenPipes&) = delete;
  NoBrokenPipes& operator=(const NoBrokenPipes&) = delete;

 private:
  sigset_t pipe_, before_;
  bool others_ = false;  // One was pending already: it is not ours to take.
};

// Deadlines are of Clock::Elapsed: a machine whose clock was wrong may be setting it just now.
absl::Duration Elapsed() { return SystemClock().Elapsed(); }

// Until `fd` is ready for `events`, or the deadline has passed.
bool Await(int fd, short events, absl::Duration deadline) {
  const int64_t left_ms = std::max<int64_t>(absl::ToInt64Milliseconds(deadline - Elapsed()), 0);
  pollfd poll_fd = {fd, events, 0};
  return ::poll(&poll_fd, 1, static_cast<int>(left_ms)) > 0;
}

bool Connect(int fd, const sockaddr* address, socklen_t size, absl::Duration deadline) {
  if (::connect(fd, address, size) == 0) return true;
  if (errno != EINPROGRESS || !Await(fd, POLLOUT, deadline)) return false;
  int error = 0;
  socklen_t length = sizeof(error);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

// Not valid: no process answers there.
UniqueFd Dial(const Address& address, absl::Duration deadline) {
  constexpr int kType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  if (address.is_unix()) {
    sockaddr_un to = {};
    to.sun_family = AF_UNIX;
    std::strncpy(to.sun_path, address.path.c_str(), sizeof(to.sun_path) - 1);
    UniqueFd fd(::socket(AF_UNIX, kType, 0));
    const bool up = fd.valid() &&
                    Connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to), deadline);
    return up ? std::move(fd) : UniqueFd();
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = absl::StrCat(address.port);
  if (::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found) != 0) return UniqueFd();
  const std::unique_ptr<addrinfo, Free<freeaddrinfo>> all(found);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    UniqueFd fd(::socket(each->ai_family, kType, 0));
    if (fd.valid() && Connect(fd.get(), each->ai_addr, each->ai_addrlen, deadline)) return fd;
  }
  return UniqueFd();
}

// Our certificate, if we have one, as gRPC would show it. Its checks are made afterwards, with
// words.
bool Prepare(SSL_CTX* context, const TlsMaterial& material) {
  SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nullptr);
  const unsigned char alpn[] = {2, 'h', '2'};
  const bool ready = SSL_CTX_set_alpn_protos(context, alpn, sizeof(alpn)) == 0;
  if (material.cert.empty()) return ready;
  const Bio certificates = BioOf(material.cert);
  const Certificate leaf(PEM_read_bio_X509(certificates.get(), nullptr, nullptr, nullptr));
  const Key key(PEM_read_bio_PrivateKey(BioOf(material.key).get(), nullptr, nullptr, nullptr));
  if (leaf == nullptr || key == nullptr) return false;
  return ready && SSL_CTX_use_certificate(context, leaf.get()) == 1 &&
         SSL_CTX_use_PrivateKey(context, key.get()) == 1;
}

// Repeats `step`, which is one of OpenSSL's on a non-blocking socket, until it is through. What
// SSL_get_error answers for the last.
template <typename Step>
int Through(SSL* ssl, int fd, absl::Duration deadline, Step step) {
  while (true) {
    ERR_clear_error();
    const int result = step();
    if (result > 0) return SSL_ERROR_NONE;
    const int error = SSL_get_error(ssl, result);
    const bool reads = error == SSL_ERROR_WANT_READ, writes = error == SSL_ERROR_WANT_WRITE;
    if ((!reads && !writes) || !Await(fd, reads ? POLLIN : POLLOUT, deadline)) return error;
  }
}

// What the manager answered about our certificate in a TLS alert; OK: nothing of the kind.
absl::Status JudgeAlert(const TlsMaterial& material) {
  const unsigned long code = ERR_peek_last_error();
  const int alert = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
  const char* why = nullptr;
  switch (alert) {
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
      why = "it has expired, or its clock says so";
      break;
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
      why = "it will not do";
      break;
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
      why = "the manager does not know the authority that issued it";
      break;
    default:
      return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kUnauthenticated, "CERTIFICATE_REFUSED",
                absl::StrCat("the manager refuses the certificate in ", material.cert_file, ": ",
                             why, "; it ", EndText(material.leaf, absl::Now())),
                "compare both machines' clocks and ca.pem files; `cxlpool pki show FILE` shows "
                "what is in a certificate");
}

bool IssuedByOurs(X509* leaf, const std::string& authorities) {
  const std::unique_ptr<X509_STORE, Free<X509_STORE_free>> store(X509_STORE_new());
  const Bio bio = BioOf(authorities);
  while (X509* authority = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    const Certificate owned(authority);
    X509_STORE_add_cert(store.get(), authority);
  }
  const std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX_free>> context(X509_STORE_CTX_new());
  if (X509_STORE_CTX_init(context.get(), store.get(), leaf, nullptr) != 1) return false;
  X509_STORE_CTX_set_flags(context.get(), X509_V_FLAG_NO_CHECK_TIME);
  const bool issued = X509_verify_cert(context.get()) == 1;
  ERR_clear_error();
  return issued;
}

// OK: nothing is wrong with the certificate that the manager shows, or it cannot be read. Of
// several faults the one that has to be put right first. Its issuer is judged whatever its dates
// are, so that one that has expired is said to have expired.
absl::Status JudgeManager(X509* leaf, const std::string& address, const std::string& server_name,
                          const TlsMaterial& material) {
  const Bio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), leaf);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  const auto read = ReadCertificates(std::string(data, size));
  if (!read.ok()) return absl::OkStatus();
  const CertificateFacts& facts = read->front();
  const absl::Time now = absl::Now();
  const std::string whose = absl::StrCat("the certificate of the manager at ", address);
  if (!IssuedByOurs(leaf, material.ca)) {
    return NotTrusted(absl::StrCat(whose, " was not issued by the authority that is configured"),
                      "use the ca.pem of the manager's pool");
  }
  if (facts.ExpiredAt(now)) {
    return NotTrusted(absl::StrCat(whose, " ", EndText(facts, now), "; it is now ", DateText(now)),
                      "renew it where the pool's authority is kept (`cxlpool pki renew manager "
                      "NAME`), put it in its place and reload the manager");
  }
  if (now < facts.not_before) {
    return NotTrusted(absl::StrCat(whose, " is valid from ", DateText(facts.not_before),
                                   "; it is now ", DateText(now)),
                      "set this machine's clock");
  }
  if (!HasDnsName(facts, server_name)) {
    return NotTrusted(absl::StrCat(whose, " is not for the name \"", server_name, "\""),
                      "check server_name, or have the manager's certificate issued for it");
  }
  if (facts.server_auth) return absl::OkStatus();
  return NotTrusted(absl::StrCat(whose, " may not be used by a TLS server"),
                    "have the manager's issued as one: `cxlpool pki issue manager NAME`");
}

}  // namespace

// Answers OK wherever it is not sure: the caller has an error of the connection already, and only
// what is known to be true may take its place. OpenSSL verifies nothing by itself here, so that the
// handshake goes on to where the certificate of the manager can be judged.
absl::Status DiagnoseManager(const std::string& address, const std::string& server_name,
                             const TlsMaterial& material, absl::Duration timeout) {
  const absl::Duration deadline = Elapsed() + timeout;
  const absl::StatusOr<Address> parsed = ParseAddress(address);
  if (!parsed.ok()) return absl::OkStatus();
  const NoBrokenPipes no_broken_pipes;
  const std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>> context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr || !Prepare(context.get(), material)) {
    ERR_clear_error();
    return absl::OkStatus();
  }
  const UniqueFd fd = Dial(*parsed, deadline);
  if (!fd.valid()) return absl::OkStatus();
  const std::unique_ptr<SSL, Free<SSL_free>> ssl(SSL_new(context.get()));
  SSL_set_fd(ssl.get(), fd.get());
  SSL_set_tlsext_host_name(ssl.get(), server_name.c_str());
  const int shaken = Through(ssl.get(), fd.get(), deadline, [&] { return SSL_connect(ssl.get()); });
  absl::Status found = shaken == SSL_ERROR_SSL ? JudgeAlert(material) : absl::OkStatus();
  if (const Certificate leaf(SSL_get1_peer_certificate(ssl.get())); found.ok() && leaf) {
    found = JudgeManager(leaf.get(), address, server_name, material);
  }
  if (found.ok() && shaken == SSL_ERROR_NONE) {
    // In TLS 1.3 the manager judges our certificate after the handshake: its alert is read, if any.
    char byte = 0;
    const absl::Duration wait = std::min(deadline, Elapsed() + kAlertWait);
    const int read =
        Through(ssl.get(), fd.get(), wait, [&] { return SSL_read(ssl.get(), &byte, 1); });
    if (material.cert.empty() && read != SSL_ERROR_NONE && read != SSL_ERROR_WANT_READ) {
      // gRPC hangs up on whom it wanted a certificate of, and says nothing.
      found = Refuse(absl::StatusCode::kUnauthenticated, "CERTIFICATE_REFUSED",
                     absl::StrCat("the manager takes nobody without a certificate at ", address),
                     "use a certificate (`cxlpool pki issue operator NAME`), or an address of the "
                     "manager that takes tokens (listen.tokens in fm.toml)");
    } else if (read == SSL_ERROR_SSL) {
      found = JudgeAlert(material);
    }
  }
  ERR_clear_error();
  return found;
}

}  // namespace cxlpool
