#include "proto/support/tls.h"

#include <fcntl.h>
#include <grpc/grpc_security.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/mutant.h"
#include "proto/support/openssl.h"
#include "proto/support/peer_identity.h"
#include "proto/support/refusal.h"
#include "proto/support/token.h"
#include "proto/support/unique_fd.h"

namespace cxlpool {
namespace {

using openssl::Bio;
using openssl::BioOf;
using openssl::Certificate;
using openssl::ForgetErrors;
using openssl::Free;
using openssl::Key;
using openssl::NoPassword;

constexpr size_t kMaxFileBytes = 1 << 20;

// A file of at most 1 MiB; what is longer is cut, and then does not parse. O_NONBLOCK: a FIFO in
// its place must not hold the program. A secret that others can read is refused: `revoke` says how
// to end one; null: it is none.
absl::StatusOr<std::string> ReadFile(const std::string& path, absl::string_view what,
                                     const char* revoke) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    return Refuse(missing ? absl::StatusCode::kNotFound : absl::StatusCode::kFailedPrecondition,
                  "TLS_FILE",
                  absl::StrCat("cannot read ", what, " ", path, ": ", std::strerror(errno)),
                  missing ? "make it (`cxlpool pki issue ROLE NAME`), or name the right file"
                          : "let this program's user read it");
  }
  struct stat found;
  if (fstat(fd.get(), &found) != 0 || !S_ISREG(found.st_mode)) {
    return Refuse(absl::StatusCode::kInvalidArgument, "TLS_FILE",
                  absl::StrCat(what, " ", path, " is not a regular file"), "name the right file");
  }
  if (revoke != nullptr && (found.st_mode & 077) != 0) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "TLS_KEY_EXPOSED",
        absl::StrCat(what, " ", path, " can be read by others than its owner"),
        absl::StrCat("chmod 0600 ", path,
                     "; if others had access, issue a new one and revoke the old (", revoke, ")"));
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

// The command that makes a certificate like `leaf` again, where it is one of cxlpool pki's.
std::string RenewCommand(const CertificateFacts& leaf) {
  const PeerIdentity identity = ParseIdentity(leaf.uris.size() == 1 ? leaf.uris[0] : "");
  const char* const role = identity.role == Role::kManager    ? "manager"
                           : identity.role == Role::kHost     ? "host"
                           : identity.role == Role::kOperator ? "operator"
                                                              : nullptr;
  if (role == nullptr) return "have its authority issue a new one";
  return absl::StrCat("issue a new one where the pool's authority is kept (`cxlpool pki renew ",
                      role, " ", identity.name, "`) and put it in its place");
}

// A URI of our own scheme.
bool IsOurs(absl::string_view uri) { return absl::StartsWithIgnoreCase(uri, "cxlpool:"); }

absl::Status CheckTime(const CertificateFacts& facts, const std::string& file, absl::Time now,
                       const std::string& remedy) {
  if (!CXLPOOL_MUTANT("expired-certificate-is-fit") && facts.ExpiredAt(now)) {
    return FailedPrecondition(
        "TLS_EXPIRED",
        absl::StrCat("the certificate in ", file, " EXPIRED: it expired on ",
                     DateText(facts.not_after), "; it is now ", DateText(now)),
        remedy);
  }
  if (now < facts.not_before) {
    return FailedPrecondition(
        "TLS_NOT_YET_VALID",
        absl::StrCat("the certificate in ", file, " is valid from ", DateText(facts.not_before),
                     "; it is now ", DateText(now)),
        "set this machine's clock");
  }
  return absl::OkStatus();
}

// That the first of `chain` leads to one of `authorities` by way of the rest of its own file;
// answers the authority. Those that it does not need may have ended: while an authority is replaced
// the old one and the new one stand in one file.
absl::StatusOr<size_t> CheckChain(const std::vector<Certificate>& authorities,
                                  const std::vector<Certificate>& chain, const TlsFiles& files) {
  const std::unique_ptr<X509_STORE, Free<X509_STORE_free>> store(X509_STORE_new());
  const std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX_free>> context(X509_STORE_CTX_new());
  const std::unique_ptr<STACK_OF(X509), void (*)(STACK_OF(X509)*)> between(
      sk_X509_new_null(), [](STACK_OF(X509) * stack) { sk_X509_free(stack); });
  for (const Certificate& authority : authorities)
    X509_STORE_add_cert(store.get(), authority.get());
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(between.get(), chain[i].get());
  bool good = X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), between.get()) == 1;
  // The times are judged by CheckTime, with dates and remedies.
  if (good) X509_STORE_CTX_set_flags(context.get(), X509_V_FLAG_NO_CHECK_TIME);
  good = good && X509_verify_cert(context.get()) == 1;
  const STACK_OF(X509)* const way = good ? X509_STORE_CTX_get0_chain(context.get()) : nullptr;
  for (size_t i = 0; way != nullptr && i < authorities.size(); ++i) {
    const X509* const last = sk_X509_value(way, sk_X509_num(way) - 1);
    if (X509_cmp(last, authorities[i].get()) == 0) return i;
  }
  return FailedPrecondition(
      "TLS_WRONG_CA",
      absl::StrCat(files.cert, " was not issued by the authority in ", files.ca, ": ",
                   X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()))),
      "use the ca.pem and the certificate of one pool");
}

}  // namespace

CertificateUse CertificateUse::Manager(std::string server_name) {
  return {.side = Side::kManager, .server_name = std::move(server_name), .host = {}};
}

CertificateUse CertificateUse::Agent(std::string host) {
  return {.side = Side::kAgent, .server_name = {}, .host = std::move(host)};
}

// Finds at the start what every peer would refuse later, where its message would name no file.
absl::Status JudgeCertificate(const CertificateFacts& leaf, const CertificateUse& use,
                              absl::string_view file) {
  if (use.side == CertificateUse::Side::kAny) return absl::OkStatus();
  const bool manager = use.side == CertificateUse::Side::kManager;
  const std::string wanted =
      manager ? "cxlpool://manager/NAME" : absl::StrCat("cxlpool://host/", use.host);
  const std::string issue =
      manager ? "make one for the manager: `cxlpool pki issue manager fm`"
              : absl::StrCat("use this host's own certificate: `cxlpool pki issue host ", use.host,
                             "`");
  if (leaf.uris.size() != 1) {
    return FailedPrecondition(
        "NO_IDENTITY",
        absl::StrCat("the certificate in ", file, " has ", leaf.uris.size(),
                     " URIs as subject alternative names; want exactly one: ", wanted),
        issue);
  }
  const std::string& uri = leaf.uris[0];
  const Role role = ParseIdentity(uri).role;
  // A URI of another scheme may be enrolled for a host.
  const bool fits = manager               ? role == Role::kManager
                    : role == Role::kHost ? uri == wanted
                                          : role == Role::kOther && !IsOurs(uri);
  if (!CXLPOOL_MUTANT("any-role-will-do") && !fits) {
    return FailedPrecondition(
        "TLS_WRONG_ROLE",
        absl::StrCat("the certificate is for ", uri, ", but ",
                     manager ? "a fabric manager" : absl::StrCat("host \"", use.host, "\""),
                     " needs one for ", wanted, ": ", file),
        issue);
  }
  if (manager && !HasDnsName(leaf, use.server_name)) {
    return FailedPrecondition(
        "TLS_WRONG_NAME",
        absl::StrCat("the certificate in ", file, " has no DNS name \"", use.server_name,
                     "\": no client would believe it"),
        absl::StrCat(issue, " --dns ", use.server_name,
                     ", or set tls.server_name to the name that clients look for"));
  }
  if (manager ? leaf.server_auth : leaf.client_auth) return absl::OkStatus();
  return FailedPrecondition("TLS_WRONG_USAGE",
                            absl::StrCat("the certificate in ", file, " may not be used by a TLS ",
                                         manager ? "server (serverAuth)" : "client (clientAuth)",
                                         ": its extended key usage leaves that out"),
                            issue);
}

namespace {

absl::StatusOr<TlsMaterial> LoadAuthorityOnly(const std::string& file) {
  absl::StatusOr<std::string> text = ReadFile(file, "the CA certificate", nullptr);
  if (!text.ok()) return text.status();
  const absl::StatusOr<std::vector<CertificateFacts>> all = ReadCertificates(*text);
  if (!all.ok() || all->empty()) {
    return Refuse(absl::StatusCode::kInvalidArgument, "TLS_NOT_PEM",
                  absl::StrCat(file, " holds no unencrypted PEM certificate"),
                  "name the right file");
  }
  TlsMaterial material;
  material.ca = *std::move(text);
  material.ca_file = file;
  material.authority = all->front();
  return material;
}

}  // namespace

// The files are read once, so that what was checked is what is used.
absl::StatusOr<TlsMaterial> LoadTls(const TlsFiles& files, const CertificateUse& use) {
  const ForgetErrors forget;
  if (files.cert.empty() && files.key.empty() && use.side == CertificateUse::Side::kAny) {
    return LoadAuthorityOnly(files.ca);
  }
  TlsMaterial material;
  material.cert_file = files.cert;
  const struct {
    const std::string& path;
    const char* what;
    const char* revoke;
    std::string& text;
  } wanted[] = {{files.ca, "the CA certificate", nullptr, material.ca},
                {files.cert, "the certificate", nullptr, material.cert},
                {files.key, "the private key",
                 "`cxlpool certificate revoke CERTIFICATE --reason WHY`", material.key}};
  for (const auto& [path, what, revoke, text] : wanted) {
    absl::StatusOr<std::string> read = ReadFile(path, what, revoke);
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
  absl::StatusOr<std::vector<CertificateFacts>> leaf = ReadCertificates(material.cert);
  if (!leaf.ok()) return leaf.status();
  material.leaf = leaf->front();
  const absl::StatusOr<size_t> authority = CheckChain(authorities, chain, files);
  if (!authority.ok()) return authority.status();
  absl::StatusOr<std::vector<CertificateFacts>> all = ReadCertificates(material.ca);
  if (!all.ok()) return all.status();
  material.authority = (*all)[*authority];
  material.ca_file = files.ca;
  if (absl::Status status = CheckTimes(material, absl::Now()); !status.ok()) return status;
  if (absl::Status status = JudgeCertificate(material.leaf, use, files.cert); !status.ok()) {
    return status;
  }
  return material;
}

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, "the token", "`cxlpool token revoke NAME`");
  if (!text.ok()) return text.status();
  std::string token(absl::StripAsciiWhitespace(*text));
  if (absl::StatusOr<std::string> name = TokenName(token); name.ok()) return token;
  return Refuse(
      absl::StatusCode::kInvalidArgument, "BAD_TOKEN", absl::StrCat(path, " holds no token"),
      "put into it what `cxlpool token create NAME --role ROLE --ttl TERM --reason WHY` printed");
}

absl::Status CheckTimes(const TlsMaterial& material, absl::Time now) {
  absl::Status status = CheckTime(material.authority, material.ca_file, now,
                                  "make a new authority and issue every certificate again "
                                  "(docs/operations.md, Certificates)");
  if (!status.ok()) return status;
  return CheckTime(material.leaf, material.cert_file, now, RenewCommand(material.leaf));
}

absl::Status TlsErrorAt(const absl::Status& status, const TlsFiles& files,
                        const std::map<std::string, std::string>& where) {
  // The messages name the file.
  const char* key = "tls.cert";
  if (absl::StrContains(status.message(), files.key)) {
    key = "tls.key";
  } else if (!absl::StrContains(status.message(), files.cert) &&
             absl::StrContains(status.message(), files.ca)) {
    key = "tls.ca";
  }
  const auto place = where.find(key);
  std::optional<Refusal> refusal = RefusalOf(status);
  if (!refusal.has_value() || place == where.end()) return status;
  refusal->message = absl::StrCat(place->second, ": ", refusal->message);
  return refusal->ToStatus();
}

std::vector<CertificateEnd> EndsOf(const TlsMaterial& material) {
  if (material.cert.empty()) return {};
  return {{absl::StrCat("the certificate in ", material.cert_file), material.leaf,
           absl::StrCat(RenewCommand(material.leaf), ", then reload (SIGHUP)"),
           /*is_reloaded=*/true},
          {"the pool's authority", material.authority,
           "make a new one (`cxlpool pki init --dir DIR`) and issue every certificate again "
           "(docs/operations.md, Certificates)"}};
}

std::vector<std::string> ExpiryWarnings(const std::vector<CertificateEnd>& ends, absl::Time now) {
  std::vector<std::string> warnings;
  for (const CertificateEnd& end : ends) {
    if (!end.facts.ExpiredAt(now) && !end.facts.EndsSoonAt(now)) continue;
    warnings.push_back(absl::StrCat(end.what, " ", EndText(end.facts, now), " (", end.remedy, ")"));
  }
  return warnings;
}

std::vector<std::string> ExpiryWarnings(const TlsMaterial& material, absl::Time now) {
  return ExpiryWarnings(EndsOf(material), now);
}

std::vector<CertificateEnd> EndsOf(const TlsSource* own,
                                   const std::vector<CertificateEnd>& others) {
  std::vector<CertificateEnd> ends;
  if (own != nullptr) ends = EndsOf(*own->current());
  ends.insert(ends.end(), others.begin(), others.end());
  return ends;
}

TlsSource::TlsSource(TlsFiles files, CertificateUse use, TlsMaterial material)
    : files_(std::move(files)),
      use_(std::move(use)),
      current_(std::make_shared<const TlsMaterial>(std::move(material))) {}

absl::StatusOr<std::shared_ptr<TlsSource>> TlsSource::Load(TlsFiles files, CertificateUse use) {
  absl::StatusOr<TlsMaterial> material = LoadTls(files, use);
  if (!material.ok()) return material.status();
  return std::shared_ptr<TlsSource>(
      new TlsSource(std::move(files), std::move(use), *std::move(material)));
}

absl::Status TlsSource::Reload() {
  absl::StatusOr<TlsMaterial> material = LoadTls(files_, use_);
  MutexLock lock(mutex_);
  if (CXLPOOL_MUTANT("reload-drops-the-old") && !material.ok()) {
    current_ = std::make_shared<const TlsMaterial>();
    ++version_;
  }
  if (!material.ok()) return material.status();
  current_ = std::make_shared<const TlsMaterial>(*std::move(material));
  ++version_;
  return absl::OkStatus();
}

std::shared_ptr<const TlsMaterial> TlsSource::current() const {
  MutexLock lock(mutex_);
  return current_;
}

uint64_t TlsSource::version() const {
  MutexLock lock(mutex_);
  return version_;
}

namespace {

// What gRPC asks before each handshake with one listening address: whether there are newer files.
struct CertificateFetcher {
  std::shared_ptr<TlsSource> source;
  uint64_t fetched = 0;  // The source's version. gRPC's core calls Fetch under a lock of its own.

  // Gives `config` away.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto& fetcher = *static_cast<CertificateFetcher*>(self);
    const uint64_t version = fetcher.source->version();
    if (version == fetcher.fetched) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const std::shared_ptr<const TlsMaterial> material = fetcher.source->current();
    const grpc_ssl_pem_key_cert_pair pair = {material->key.c_str(), material->cert.c_str()};
    *config = grpc_ssl_server_certificate_config_create(material->ca.c_str(), &pair, 1);
    if (*config == nullptr) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
    fetcher.fetched = version;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }
};

// gRPC does not report when it asks for the last time: a handshake may begin while its server goes
// away, after the credentials' own end. So these stay, one for each address a process listened on.
CertificateFetcher* KeepFetcher(std::shared_ptr<TlsSource> source) {
  static Mutex mutex;
  static auto& kept = *new std::vector<std::unique_ptr<CertificateFetcher>>;
  MutexLock lock(mutex);
  kept.push_back(std::make_unique<CertificateFetcher>());
  kept.back()->source = std::move(source);
  return kept.back().get();
}

// gRPC's C++ credentials hold their files for good; its core's can be asked to fetch newer ones.
class ReloadableServerCredentials final : public grpc::ServerCredentials {
 public:
  ReloadableServerCredentials(std::shared_ptr<TlsSource> source, ClientCertificate client)
      : core_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                client == ClientCertificate::kOptional
                    ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
                    : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY,
                &CertificateFetcher::Fetch, KeepFetcher(std::move(source))))) {}
  ~ReloadableServerCredentials() override { grpc_server_credentials_release(core_); }

  // Nothing here makes decisions by a call's metadata.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), core_);
  }

  grpc_server_credentials* const core_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ServerTls(std::shared_ptr<TlsSource> source,
                                                   ClientCertificate client) {
  return std::make_shared<ReloadableServerCredentials>(std::move(source), client);
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(const TlsFiles& files) {
  absl::StatusOr<std::shared_ptr<TlsSource>> source = TlsSource::Load(files, {});
  if (!source.ok()) return source.status();
  return ServerTls(*std::move(source));
}

std::shared_ptr<grpc::ChannelCredentials> ClientTlsOf(const TlsMaterial& material) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = material.ca;
  options.pem_private_key = material.key;
  options.pem_cert_chain = material.cert;
  return grpc::SslCredentials(options);
}

}  // namespace cxlpool
