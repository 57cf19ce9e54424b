// Revoking certificates and identities, and taking that back.

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/support/certificate.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "tools/cli/print.h"
#include "tools/cli/render/inventory.h"
#include "tools/cli/run.h"

namespace cxlpool::cli {
namespace {

// Whether the text has so many digits that nobody would name a person like that. Ours have 32, and
// other authorities make serial numbers of 64 random bits and more; one that counts them makes
// short ones, and its certificates are named by their files.
bool IsWholeSerial(absl::string_view text) {
  return std::count_if(text.begin(), text.end(), absl::ascii_isxdigit) >= 16;
}

// "ada" is three hexadecimal digits, and no certificate's serial number: revoking it would succeed,
// and Ada would go on.
absl::Status NotAWholeSerial(const std::string& text) {
  return Refuse(
      absl::StatusCode::kInvalidArgument, "BAD_SERIAL_NUMBER",
      absl::StrCat("\"", text, "\" is no whole serial number, no identity and no file"),
      absl::StrCat("to refuse an operator whatever it shows, name cxlpool://operator/",
                   CheckResourceId(text).ok() ? text : "NAME",
                   "; to refuse one certificate, name its file, or the whole serial number as "
                   "`cxlpool pki show FILE` prints it"));
}

// No certificate has to be made for what is to be believed no longer.
absl::Status NoSuchFile(const std::string& text) {
  if (!CheckResourceId(text).ok()) {
    return Refuse(absl::StatusCode::kNotFound, "NO_FILE", absl::StrCat(text, " does not exist"),
                  "check the path");
  }
  return Refuse(absl::StatusCode::kNotFound, "NO_FILE",
                absl::StrCat("\"", text, "\" is neither a serial number nor a file"),
                absl::StrCat("name the identity, as cxlpool://operator/", text,
                             " or cxlpool://host/", text, ", or check the path"));
}

// What the command line names: an identity, a serial number, or else a file with a certificate,
// whose serial number it is. `is_listed`: a short serial number is one that the pool's list may
// have.
absl::StatusOr<std::string> SubjectOf(const std::string& text, bool is_listed) {
  if (absl::StrContains(text, "://")) return text;
  absl::StatusOr<std::string> serial = CanonicalSerial(text);
  if (serial.ok() && (is_listed || IsWholeSerial(text))) return serial;
  const absl::StatusOr<CertificateFacts> facts = pki::ShowCertificate(text);
  if (facts.ok()) return facts->serial;
  if (!absl::IsNotFound(facts.status())) return facts.status();
  return serial.ok() ? NotAWholeSerial(text) : NoSuchFile(text);
}

}  // namespace

absl::Status PrintAnswer(Printer& printer, const v1::ListRevocationsResponse& revocations) {
  return PrintTable(printer, revocations, RevocationTable(revocations));
}

absl::Status PrintAnswer(Printer& printer, const v1::Revocation& revocation) {
  v1::ListRevocationsResponse one;
  *one.add_revocations() = revocation;
  return PrintTable(printer, revocation, RevocationTable(one));
}

absl::Status Run(RevokeCertificate& command, Connection& connection, Printer& printer) {
  absl::StatusOr<std::string> subject = SubjectOf(command.request.subject(), /*is_listed=*/false);
  if (!subject.ok()) return subject.status();
  command.request.set_subject(*std::move(subject));
  const auto revoked = connection.Send(command.request);
  if (!revoked.ok()) return revoked.status();
  return PrintAnswer(printer, *revoked);
}

absl::Status Run(RestoreCertificate& command, Connection& connection, Printer& printer) {
  absl::StatusOr<std::string> subject = SubjectOf(command.request.subject(), /*is_listed=*/true);
  if (!subject.ok()) return subject.status();
  command.request.set_subject(*std::move(subject));
  const auto restored = connection.Send(command.request);
  if (!restored.ok()) return restored.status();
  return Print(printer, *restored, absl::StrCat(command.request.subject(), " is believed again\n"));
}

}  // namespace cxlpool::cli
