#include "proto/support/tls.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/support/refusal.h"
#include "proto/support/unique_fd.h"

namespace cxlpool {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr char kIssue[] = "issue a new one: cxlpool pki issue";

template <auto free>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    free(object);
  }
};
using Bio = std::unique_ptr<BIO, Free<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;

// What the three files hold, read once, so that what was checked is what is used.
struct Material {
  std::string ca, cert, key;
};

absl::Status Refuse(absl::StatusCode code, const std::string& reason, const std::string& message,
                    const std::string& remedy) {
  ERR_clear_error();
  return Refusal{code, reason, message, remedy, {}}.ToStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path, absl::string_view what, bool secret) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    return Refuse(missing ? absl::StatusCode::kNotFound : absl::StatusCode::kFailedPrecondition,
                  "TLS_FILE",
                  absl::StrCat("cannot read ", what, " ", path, ": ", std::strerror(errno)),
                  missing ? "make it with cxlpool pki, or name the right file"
                          : "let this program's user read it");
  }
  struct stat found;
  if (fstat(fd.get(), &found) != 0 || !S_ISREG(found.st_mode)) {
    return Refuse(absl::StatusCode::kInvalidArgument, "TLS_FILE",
                  absl::StrCat(what, " ", path, " is not a regular file"), "name the right file");
  }
  if (secret && (found.st_mode & 077) != 0) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "TLS_KEY_EXPOSED",
                  absl::StrCat(what, " ", path, " can be read by others than its owner"),
                  absl::StrCat("chmod 0600 ", path, "; if others had access, issue a new one"));
  }
  std::string text(kMaxFileBytes, '\0');
  size_t size = 0;
  ssize_t got = 0;
  while (size < text.size() &&
         (got = read(fd.get(), text.data() + size, text.size() - size)) != 0) {
    if (got < 0 && errno != EINTR) {
      return Refuse(absl::StatusCode::kFailedPrecondition, "TLS_FILE",
                    absl::StrCat("cannot read ", path, ": ", std::strerror(errno)),
                    "check the disk");
    }
    if (got > 0) size += got;
  }
  text.resize(size);
  return text;
}

Bio BioOf(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

int NoPassword(char*, int, int, void*) { return -1; }

// All certificates in `pem`, in order.
std::vector<Certificate> ParseCertificates(const std::string& pem) {
  std::vector<Certificate> certificates;
  const Bio bio = BioOf(pem);
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(certificate);
  }
  ERR_clear_error();
  return certificates;
}

std::string TimeText(const ASN1_TIME* time) {
  const Bio bio(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(bio.get(), time);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, size);
}

absl::Status CheckTimes(X509* certificate, const std::string& path) {
  const std::string now =
      absl::FormatTime("%b %e %H:%M:%S %Y GMT", absl::Now(), absl::UTCTimeZone());
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "TLS_EXPIRED",
                  absl::StrCat(path, " expired on ", TimeText(X509_get0_notAfter(certificate)),
                               "; it is now ", now),
                  kIssue);
  }
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "TLS_NOT_YET_VALID",
                  absl::StrCat(path, " is valid from ", TimeText(X509_get0_notBefore(certificate)),
                               "; it is now ", now),
                  "set this machine's clock");
  }
  return absl::OkStatus();
}

// That `leaf` leads to one of `authorities`, by way of the rest of its own file.
absl::Status CheckChain(const std::vector<Certificate>& authorities,
                        const std::vector<Certificate>& chain, const TlsFiles& files) {
  const std::unique_ptr<X509_STORE, Free<X509_STORE_free>> store(X509_STORE_new());
  const std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX_free>> context(X509_STORE_CTX_new());
  const std::unique_ptr<STACK_OF(X509), void (*)(STACK_OF(X509)*)> between(
      sk_X509_new_null(), [](STACK_OF(X509) * stack) { sk_X509_free(stack); });
  for (const Certificate& authority : authorities)
    X509_STORE_add_cert(store.get(), authority.get());
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(between.get(), chain[i].get());
  if (X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), between.get()) == 1 &&
      X509_verify_cert(context.get()) == 1) {
    return absl::OkStatus();
  }
  return Refuse(
      absl::StatusCode::kFailedPrecondition, "TLS_WRONG_CA",
      absl::StrCat(files.cert, " was not issued by the authority in ", files.ca, ": ",
                   X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()))),
      "use the ca.pem and the certificate of one pool");
}

absl::StatusOr<Material> LoadChecked(const TlsFiles& files) {
  Material material;
  const struct {
    const std::string& path;
    const char* what;
    bool secret;
    std::string& text;
  } wanted[] = {{files.ca, "the CA certificate", false, material.ca},
                {files.cert, "the certificate", false, material.cert},
                {files.key, "the private key", true, material.key}};
  for (const auto& [path, what, secret, text] : wanted) {
    absl::StatusOr<std::string> read = ReadFile(path, what, secret);
    if (!read.ok()) return read.status();
    text = *std::move(read);
  }
  const std::vector<Certificate> authorities = ParseCertificates(material.ca);
  const std::vector<Certificate> chain = ParseCertificates(material.cert);
  const Key key(PEM_read_bio_PrivateKey(BioOf(material.key).get(), nullptr, NoPassword, nullptr));
  const std::string* const bad = authorities.empty() ? &files.ca
                                 : chain.empty()     ? &files.cert
                                 : key == nullptr    ? &files.key
                                                     : nullptr;
  if (bad != nullptr) {
    return Refuse(absl::StatusCode::kInvalidArgument, "TLS_NOT_PEM",
                  absl::StrCat(*bad, " holds no unencrypted PEM ",
                               bad == &files.key ? "private key" : "certificate"),
                  "name the right file");
  }
  if (X509_check_private_key(chain[0].get(), key.get()) != 1) {
    return Refuse(absl::StatusCode::kInvalidArgument, "TLS_KEY_MISMATCH",
                  absl::StrCat("the key ", files.key, " does not belong to ", files.cert),
                  "name the pair that was issued together");
  }
  for (const Certificate& authority : authorities) {
    if (absl::Status status = CheckTimes(authority.get(), files.ca); !status.ok()) return status;
  }
  if (absl::Status status = CheckTimes(chain[0].get(), files.cert); !status.ok()) return status;
  if (absl::Status status = CheckChain(authorities, chain, files); !status.ok()) return status;
  return material;
}

// 1 to 65535 (0, any free port, too: tests listen so).
bool IsPort(absl::string_view text) {
  int port = -1;
  return !text.empty() && text.size() <= 5 && absl::SimpleAtoi(text, &port) && port >= 0 &&
         port <= 65535;
}

bool IsLoopback(const std::string& host) {
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return host == "localhost";
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files) { return LoadChecked(files).status(); }

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(const TlsFiles& files) {
  absl::StatusOr<Material> material = LoadChecked(files);
  if (!material.ok()) return material.status();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = material->ca;
  options.pem_key_cert_pairs.push_back({material->key, material->cert});
  return grpc::SslServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientTls(const TlsFiles& files) {
  absl::StatusOr<Material> material = LoadChecked(files);
  if (!material.ok()) return material.status();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = material->ca;
  options.pem_private_key = material->key;
  options.pem_cert_chain = material->cert;
  return grpc::SslCredentials(options);
}

absl::Status CheckInsecureAddress(const std::string& address) {
  if (absl::StartsWith(address, "unix:") && address.size() > 5) return absl::OkStatus();
  const size_t colon = address.rfind(':');
  if (colon != std::string::npos && IsPort(absl::string_view(address).substr(colon + 1))) {
    std::string host = address.substr(0, colon);
    const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (bracketed) host = host.substr(1, host.size() - 2);
    // A bare IPv6 address is ambiguous: its last group would be the port.
    if ((bracketed || host.find(':') == std::string::npos) && IsLoopback(host)) {
      return absl::OkStatus();
    }
  }
  return Refuse(absl::StatusCode::kFailedPrecondition, "INSECURE_ADDRESS",
                absl::StrCat("\"", address,
                             "\" may not be used without TLS: it is neither unix:PATH nor a "
                             "loopback address with a port"),
                "configure tls, or use unix:PATH or 127.0.0.1:PORT");
}

}  // namespace cxlpool
