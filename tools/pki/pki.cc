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
  return Refuse(absl::StatusCode::kAlreadyExists, reason, absl::StrCat(path, " exists"), remedy);
}

IssuedFiles FilesOf(const std::string& dir, const std::string& stem) {
  return {absl::StrCat(dir, "/ca.pem"), absl::StrCat(dir, "/", stem, ".pem"),
          absl::StrCat(dir, "/", stem, ".key")};
}

// The key first: a certificate without its key would look finished. A pair that is replaced stays
// as it was where the new one cannot be written.
absl::Status WritePair(const IssuedFiles& files, const PemPair& pair, bool replace) {
  if (replace) {
    return ReplacePemFiles({{files.key, pair.key, kKeyMode}, {files.cert, pair.cert, kCertMode}});
  }
  if (absl::Status status = WritePemFile(files.key, pair.key, kKeyMode, /*replace=*/false);
      !status.ok()) {
    return status;
  }
  return WritePemFile(files.cert, pair.cert, kCertMode, /*replace=*/false);
}

// Where the certificate of an authority is without its key, there is an authority somewhere else. A
// second one would be believed by nobody in the pool, and so making one is never advised there.
bool KeyIsElsewhere(const IssuedFiles& authority) {
  return FileExists(authority.cert) && !FileExists(authority.key);
}

absl::Status NoAuthority(const std::string& dir, const IssuedFiles& files) {
  if (KeyIsElsewhere(files)) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NO_CA",
                  absl::StrCat(dir,
                               " has the certificate of the pool's authority, ca.pem, and not "
                               "its key, ca.key, which is kept elsewhere"),
                  "name the folder that has both by --dir: `cxlpool-fm init` makes them in "
                  "/etc/cxlpool/authority, where only root can read them");
  }
  return Refuse(
      absl::StatusCode::kFailedPrecondition, "NO_CA",
      absl::StrCat(dir, " holds no authority: ca.pem and ca.key"),
      absl::StrCat("name the folder of the pool's authority by --dir; for a pool that has "
                   "none yet, run `cxlpool pki init --dir ",
                   dir, "`"));
}

// Both files, of an authority that has not ended: what it signed would be refused everywhere. What
// is no PEM passes here, and is MakeLeaf's to refuse (BAD_CA).
absl::StatusOr<PemPair> LoadAuthority(const std::string& dir) {
  const IssuedFiles files = FilesOf(dir, "ca");
  if (!FileExists(files.cert) || !FileExists(files.key)) return NoAuthority(dir, files);
  absl::StatusOr<std::string> cert = ReadPemFile(files.cert);
  if (!cert.ok()) return cert.status();
  absl::StatusOr<std::string> key = ReadPemFile(files.key);
  if (!key.ok()) return key.status();
  if (const absl::StatusOr<absl::Time> end = EndOf(*cert); end.ok() && *end < absl::Now()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "CA_EXPIRED",
                  absl::StrCat("the authority in ", dir, " ended on ",
                               absl::FormatTime("%Y-%m-%d", *end, absl::UTCTimeZone())),
                  absl::StrCat("run `cxlpool pki init --force --dir ", dir,
                               "`, then issue all certificates again"));
  }
  return PemPair{*std::move(cert), *std::move(key)};
}

std::string StemOf(LeafRole role, const std::string& name) {
  return absl::StrCat(RoleName(role), "-", name);
}

// What must hold before anything is read or made.
absl::Status CheckRequest(const LeafRequest& request) {
  if (absl::Status status = CheckResourceId(request.name); !status.ok()) return status;
  if (request.days < 1 || request.days > kMaxLeafDays) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_DAYS",
                  absl::StrCat("a certificate cannot be for ", request.days, " days"),
                  absl::StrCat("give --days from 1 to ", kMaxLeafDays));
  }
  if (request.role == LeafRole::kManager || (request.dns.empty() && request.ips.empty())) {
    return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kInvalidArgument, "NOT_A_SERVER",
                absl::StrCat("the certificate of ", RoleName(request.role), " ", request.name,
                             " is a client's: nobody dials it by a name or an address"),
                "leave --dns and --ip out; they are for a manager's certificate");
}

// Everything but a manager's names.
CertificateRequest Describe(const LeafRequest& request) {
  CertificateRequest leaf;
  leaf.common_name = request.name;
  leaf.uri = absl::StrCat("cxlpool://", RoleName(request.role), "/", request.name);
  leaf.dns = request.dns;
  leaf.ips = request.ips;
  leaf.server = request.role == LeafRole::kManager;
  const absl::Time now = absl::Now();
  leaf.not_before = now - kBackdated;
  leaf.not_after = now + request.days * absl::Hours(24);
  return leaf;
}

}  // namespace

std::string AuthorityDirectory(const std::string& etc) {
  const std::string made_by_init = absl::StrCat(etc, "/authority");
  const bool is_there = FileExists(FilesOf(made_by_init, "ca").key);
  return is_there ? made_by_init : absl::StrCat(etc, "/pki");
}

// One of the two files is enough to count as an authority: half of one is not written over either,
// unless `force`.
absl::StatusOr<IssuedFiles> InitAuthority(const std::string& dir, bool force) {
  if (absl::Status status = PrepareDirectory(dir); !status.ok()) return status;
  const IssuedFiles files = FilesOf(dir, "ca");
  if (!force && KeyIsElsewhere(files)) {
    return Exists(
        "CA_EXISTS", files.cert,
        "use the authority that it is of: name the folder that has its ca.key by --dir of "
        "`cxlpool pki issue` and `renew`");
  }
  if (!force && FileExists(files.key)) {
    return Exists("CA_EXISTS", files.key,
                  "use it as it is; --force makes a new authority, and every certificate of the "
                  "old one stops working");
  }
  const absl::Time now = absl::Now();
  // Part of the name is random: an authority and the one that replaces it are told apart by it.
  const std::string mark = absl::BytesToHexString(RandomUuid().substr(0, 4));
  const absl::StatusOr<PemPair> pair =
      MakeAuthority(absl::StrCat("cxlpool CA ", mark), now - kBackdated, now + kAuthorityLife);
  if (!pair.ok()) return pair.status();
  if (absl::Status status = WritePair(files, *pair, force); !status.ok()) return status;
  return files;
}

// The request, the authority and the files that are there are looked at before a key is made.
// `force` replaces the key, too.
absl::StatusOr<IssuedFiles> IssueLeaf(const std::string& dir, const LeafRequest& request) {
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  const absl::StatusOr<PemPair> authority = LoadAuthority(dir);
  if (!authority.ok()) return authority.status();
  if (absl::Status status = PrepareDirectory(dir); !status.ok()) return status;
  const IssuedFiles files = FilesOf(dir, StemOf(request.role, request.name));
  if (!request.force && (FileExists(files.cert) || FileExists(files.key))) {
    return Exists(
        "CERT_EXISTS", FileExists(files.cert) ? files.cert : files.key,
        "`cxlpool pki renew ROLE NAME` makes a new certificate for its key; --force replaces "
        "both");
  }
  CertificateRequest leaf = Describe(request);
  if (leaf.server) {
    leaf.dns.insert(leaf.dns.begin(), {"fm.cxlpool", "localhost"});
    leaf.ips.insert(leaf.ips.begin(), {"127.0.0.1", "::1"});
  }
  const absl::StatusOr<PemPair> pair = MakeLeaf(*authority, leaf);
  if (!pair.ok()) return pair.status();
  if (absl::Status status = WritePair(files, *pair, request.force); !status.ok()) return status;
  return files;
}

// A new certificate for the same key and the same names. The old one must be of that role and name:
// a renewal never changes who somebody is.
absl::StatusOr<IssuedFiles> RenewLeaf(const std::string& dir, LeafRole role,
                                      const std::string& name, int days) {
  LeafRequest request;
  request.role = role;
  request.name = name;
  request.days = days;
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  const absl::StatusOr<PemPair> authority = LoadAuthority(dir);
  if (!authority.ok()) return authority.status();
  const IssuedFiles files = FilesOf(dir, StemOf(role, name));
  const absl::StatusOr<std::string> old = ReadPemFile(files.cert);
  if (!old.ok()) return old.status();
  const absl::StatusOr<CertificateFacts> facts = ShowCertificate(files.cert);
  if (!facts.ok()) return facts.status();
  CertificateRequest leaf = Describe(request);
  if (facts->uris != std::vector<std::string>{leaf.uri}) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "TLS_WRONG_ROLE",
                  absl::StrCat(files.cert, " is not the certificate of ", leaf.uri),
                  absl::StrCat("make a new pair: `cxlpool pki issue ", RoleName(role), " ", name,
                               " --force --dir ", dir, "`"));
  }
  if (leaf.server) {
    leaf.dns = facts->dns;
    leaf.ips = facts->ips;
  }
  const absl::StatusOr<std::string> cert = MakeLeafForKeyOf(*old, *authority, leaf);
  if (!cert.ok()) return cert.status();
  if (absl::Status status = WritePemFile(files.cert, *cert, kCertMode, /*replace=*/true);
      !status.ok()) {
    return status;
  }
  return files;
}

absl::StatusOr<CertificateFacts> ShowCertificate(const std::string& file) {
  const absl::StatusOr<std::string> pem = ReadPemFile(file);
  if (!pem.ok()) return pem.status();
  absl::StatusOr<std::vector<CertificateFacts>> all = ReadCertificates(*pem);
  if (!all.ok()) {
    return Refuse(absl::StatusCode::kInvalidArgument, "TLS_NOT_PEM",
                  absl::StrCat(file, " holds no PEM certificate"),
                  "name the right file: a certificate ends in .pem");
  }
  return all->front();
}

}  // namespace cxlpool::pki
