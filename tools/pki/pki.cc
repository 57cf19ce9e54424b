#include "tools/pki/pki.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "tools/pki/certificate.h"
#include "tools/pki/pem_file.h"

namespace cxlpool::pki {
namespace {

constexpr absl::Duration kBackdated = absl::Hours(24);
constexpr absl::Duration kAuthorityLife = absl::Hours(24 * 3650);
constexpr absl::Duration kLeafLife = absl::Hours(24 * 365);
constexpr mode_t kKeyMode = 0600;
constexpr mode_t kCertMode = 0644;

absl::string_view RoleName(LeafRole role) {
  switch (role) {
    case LeafRole::kHost:
      return "host";
    case LeafRole::kOperator:
      return "operator";
    case LeafRole::kManager:
      return "manager";
  }
  return "";
}

absl::Status Exists(const std::string& reason, const std::string& path, const std::string& remedy) {
  return Refusal{
      absl::StatusCode::kAlreadyExists, reason, absl::StrCat(path, " exists"), remedy, {}}
      .ToStatus();
}

IssuedFiles FilesOf(const std::string& dir, const std::string& stem) {
  return {absl::StrCat(dir, "/ca.pem"), absl::StrCat(dir, "/", stem, ".pem"),
          absl::StrCat(dir, "/", stem, ".key")};
}

// The key first: a certificate without its key would look finished.
absl::Status WritePair(const IssuedFiles& files, const PemPair& pair, bool replace) {
  if (absl::Status status = WritePemFile(files.key, pair.key, kKeyMode, replace); !status.ok()) {
    return status;
  }
  return WritePemFile(files.cert, pair.cert, kCertMode, replace);
}

absl::StatusOr<PemPair> LoadAuthority(const std::string& dir) {
  const IssuedFiles files = FilesOf(dir, "ca");
  if (!FileExists(files.cert) || !FileExists(files.key)) {
    return Refusal{absl::StatusCode::kFailedPrecondition,
                   "NO_CA",
                   absl::StrCat(dir, " holds no authority: ca.pem and ca.key"),
                   absl::StrCat("run cxlpool pki init ", dir),
                   {}}
        .ToStatus();
  }
  absl::StatusOr<std::string> cert = ReadPemFile(files.cert);
  if (!cert.ok()) return cert.status();
  absl::StatusOr<std::string> key = ReadPemFile(files.key);
  if (!key.ok()) return key.status();
  if (const absl::StatusOr<absl::Time> end = EndOf(*cert); end.ok() && *end < absl::Now()) {
    return Refusal{absl::StatusCode::kFailedPrecondition,
                   "CA_EXPIRED",
                   absl::StrCat("the authority in ", dir, " ended on ",
                                absl::FormatTime("%Y-%m-%d", *end, absl::UTCTimeZone())),
                   absl::StrCat("run cxlpool pki init --force ", dir, ", then issue all anew"),
                   {}}
        .ToStatus();
  }
  return PemPair{*std::move(cert), *std::move(key)};
}

}  // namespace

absl::StatusOr<IssuedFiles> InitAuthority(const std::string& dir, bool force) {
  if (absl::Status status = PrepareDirectory(dir); !status.ok()) return status;
  const IssuedFiles files = FilesOf(dir, "ca");
  if (!force && (FileExists(files.cert) || FileExists(files.key))) {
    return Exists("CA_EXISTS", FileExists(files.key) ? files.key : files.cert,
                  "use it as it is; --force makes a new authority, and every certificate of the "
                  "old one stops working");
  }
  const absl::Time now = absl::Now();
  const std::string mark = absl::BytesToHexString(RandomUuid().substr(0, 4));
  const absl::StatusOr<PemPair> pair =
      MakeAuthority(absl::StrCat("cxlpool CA ", mark), now - kBackdated, now + kAuthorityLife);
  if (!pair.ok()) return pair.status();
  if (absl::Status status = WritePair(files, *pair, force); !status.ok()) return status;
  return files;
}

absl::StatusOr<IssuedFiles> IssueLeaf(const std::string& dir, const LeafRequest& request) {
  if (absl::Status status = CheckResourceId(request.name); !status.ok()) return status;
  const absl::StatusOr<PemPair> authority = LoadAuthority(dir);
  if (!authority.ok()) return authority.status();
  if (absl::Status status = PrepareDirectory(dir); !status.ok()) return status;
  const std::string role(RoleName(request.role));
  const IssuedFiles files = FilesOf(dir, absl::StrCat(role, "-", request.name));
  if (!request.force && (FileExists(files.cert) || FileExists(files.key))) {
    return Exists("CERT_EXISTS", FileExists(files.cert) ? files.cert : files.key,
                  "--force replaces it by a new one");
  }
  CertificateRequest leaf;
  leaf.common_name = request.name;
  leaf.uri = absl::StrCat("cxlpool://", role, "/", request.name);
  leaf.dns = request.dns;
  leaf.ips = request.ips;
  leaf.server = request.role == LeafRole::kManager;
  if (leaf.server) {
    leaf.dns.insert(leaf.dns.begin(), {"fm.cxlpool", "localhost"});
    leaf.ips.insert(leaf.ips.begin(), {"127.0.0.1", "::1"});
  }
  const absl::Time now = absl::Now();
  leaf.not_before = now - kBackdated;
  leaf.not_after = now + kLeafLife;
  const absl::StatusOr<PemPair> pair = MakeLeaf(*authority, leaf);
  if (!pair.ok()) return pair.status();
  if (absl::Status status = WritePair(files, *pair, request.force); !status.ok()) return status;
  return files;
}

}  // namespace cxlpool::pki
