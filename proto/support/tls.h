// Credentials: mutual TLS everywhere, except a Unix socket or a loopback address that the
// configuration explicitly marks insecure.
//
// One judgement of certificates (LoadTls) serves the daemons, their --check-config, `cxlpool-agent
// check` and the CLI: what is checked is what is used.
#ifndef CXLPOOL_PROTO_SUPPORT_TLS_H_
#define CXLPOOL_PROTO_SUPPORT_TLS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/support/certificate.h"
#include "proto/support/mutex.h"

namespace cxlpool {

// The DNS name that managers' certificates carry and clients look for, unless configured otherwise.
inline constexpr char kManagerServerName[] = "fm.cxlpool";

struct TlsFiles {
  std::string ca;    // PEM, the pool's own CAs: no other's certificates are accepted.
  std::string cert;  // PEM, the leaf first.
  std::string key;   // PEM; refused if others than its owner can read it.
};

// What the other side will want of the certificate.
struct CertificateUse {
  enum class Side { kAny, kAgent, kManager };
  Side side = Side::kAny;
  std::string server_name;  // kManager: the DNS name that clients look for.
  // kAgent: the host's id. Of our own URIs it needs cxlpool://host/HOST; whether one of another
  // scheme is enrolled for it, the manager knows.
  std::string host;

  static CertificateUse Manager(std::string server_name = kManagerServerName);
  static CertificateUse Agent(std::string host);
};

// What the three files held when they were read, and the facts of the leaf.
struct TlsMaterial {
  std::string ca, cert, key;
  std::string ca_file, cert_file;  // For messages.
  CertificateFacts leaf;
  CertificateFacts authority;  // Of `ca`: the one that the leaf leads to.
};

// Reads and judges the files, now. Without `cert` and `key` (of kAny only) the material is that of
// somebody who shows no certificate. The error names the file, what is wrong and the remedy:
// TLS_FILE (missing, unreadable), TLS_KEY_EXPOSED (readable by others), TLS_NOT_PEM,
// TLS_KEY_MISMATCH, TLS_EXPIRED, TLS_NOT_YET_VALID, TLS_WRONG_CA, and for `use`: NO_IDENTITY,
// TLS_WRONG_ROLE (another role's, or another host's), TLS_WRONG_NAME (not the name that clients
// look for), TLS_WRONG_USAGE (extended key usage).
absl::StatusOr<TlsMaterial> LoadTls(const TlsFiles& files, const CertificateUse& use = {});

// The token in a file that its owner alone can read, without what is white around it. TLS_FILE,
// TLS_KEY_EXPOSED; BAD_TOKEN: there is none in it.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

// An error of LoadTls behind where the configuration names the file that it is about: `where` has
// the places of "tls.ca", "tls.cert" and "tls.key" ("fm.toml:9: tls.cert").
absl::Status TlsErrorAt(const absl::Status& status, const TlsFiles& files,
                        const std::map<std::string, std::string>& where);

// Whether `leaf`, from `file`, will do for `use`; times and issuer are not looked at.
absl::Status JudgeCertificate(const CertificateFacts& leaf, const CertificateUse& use,
                              absl::string_view file);

// A certificate whose end is to be known before it comes.
struct CertificateEnd {
  std::string what;  // "the pool's authority"
  CertificateFacts facts;
  std::string remedy;        // With its commands in backticks.
  bool is_reloaded = false;  // A daemon reads it again on SIGHUP, and needs no start for a new one.
};
// The process's own and its authority's; none where it has none of its own.
std::vector<CertificateEnd> EndsOf(const TlsMaterial& material);

// Remarks about those that have ended or end within kCertificateWarning, with the remedy; a line
// each. Empty: nothing.
std::vector<std::string> ExpiryWarnings(const std::vector<CertificateEnd>& ends, absl::Time now);
std::vector<std::string> ExpiryWarnings(const TlsMaterial& material, absl::Time now);

// That neither the leaf nor its authority has ended by `now`. FAILED_PRECONDITION/TLS_EXPIRED,
// TLS_NOT_YET_VALID as LoadTls.
absl::Status CheckTimes(const TlsMaterial& material, absl::Time now);

// What a process shows to its peers and accepts from them, by files that can be read again.
// Any thread.
class TlsSource {
 public:
  // Errors as LoadTls.
  static absl::StatusOr<std::shared_ptr<TlsSource>> Load(TlsFiles files, CertificateUse use);

  // Reads the files again. Handshakes that begin from now on use what they hold; connections that
  // stand go on. On an error (as LoadTls) what was in use stays in use.
  absl::Status Reload();

  std::shared_ptr<const TlsMaterial> current() const;
  // Grows with each successful Reload.
  uint64_t version() const;

 private:
  TlsSource(TlsFiles files, CertificateUse use, TlsMaterial material);

  const TlsFiles files_;
  const CertificateUse use_;
  mutable Mutex mutex_;
  std::shared_ptr<const TlsMaterial> current_ ABSL_GUARDED_BY(mutex_);
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 1;
};

// Of what `own` has now, where it is not null, and then `others`: of files that are read once.
std::vector<CertificateEnd> EndsOf(const TlsSource* own, const std::vector<CertificateEnd>& others);

// Verifies client certificates, and lets nobody in without one unless kOptional: then who has none
// is somebody without an identity (peer_identity.h). Each handshake uses what `source` has then.
// For one listening address.
enum class ClientCertificate { kRequired, kOptional };
std::shared_ptr<grpc::ServerCredentials> ServerTls(
    std::shared_ptr<TlsSource> source, ClientCertificate client = ClientCertificate::kRequired);
// The same, of files that are not read again.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(const TlsFiles& files);

// For a channel; pass the name the peer must show by ChannelArguments::SetSslTargetNameOverride
// ("fm.cxlpool") where it differs from the address.
std::shared_ptr<grpc::ChannelCredentials> ClientTlsOf(const TlsMaterial& material);

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_TLS_H_
