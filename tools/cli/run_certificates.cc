// Revoking certificates and identities, and taking that back.

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/certificate.h"
#include "tools/cli/print.h"
#include "tools/cli/render/inventory.h"
#include "tools/cli/run.h"

namespace cxlpool::cli {
namespace {

// What the command line names: an identity, a serial number, or else a file with a certificate,
// whose serial number it is.
absl::StatusOr<std::string> SubjectOf(const std::string& text) {
  if (absl::StrContains(text, "://")) return text;
  if (absl::StatusOr<std::string> serial = CanonicalSerial(text); serial.ok()) return serial;
  const absl::StatusOr<CertificateFacts> facts = pki::ShowCertificate(text);
  if (!facts.ok()) return facts.status();
  return facts->serial;
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
  absl::StatusOr<std::string> subject = SubjectOf(command.request.subject());
  if (!subject.ok()) return subject.status();
  command.request.set_subject(*std::move(subject));
  const auto revoked = connection.Send(command.request);
  if (!revoked.ok()) return revoked.status();
  return PrintAnswer(printer, *revoked);
}

absl::Status Run(RestoreCertificate& command, Connection& connection, Printer& printer) {
  absl::StatusOr<std::string> subject = SubjectOf(command.request.subject());
  if (!subject.ok()) return subject.status();
  command.request.set_subject(*std::move(subject));
  const auto restored = connection.Send(command.request);
  if (!restored.ok()) return restored.status();
  return Print(printer, *restored, absl::StrCat(command.request.subject(), " is believed again\n"));
}

}  // namespace cxlpool::cli
