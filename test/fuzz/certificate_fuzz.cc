// Certificates: of peers, before anybody has looked whether an authority signed them.

#include <string>

#include "proto/support/certificate.h"
#include "test/fuzz/fuzz_target.h"

namespace cxlpool::fuzz {
namespace {

CXLPOOL_FUZZ(certificate) {
  const auto certificates = ReadCertificates(bytes);
  if (!certificates.ok()) return;
  Require(!certificates->empty() && certificates->size() <= 100);
  for (const CertificateFacts& facts : *certificates) {
    (void)HasDnsName(facts, "fm.example.org");
    (void)EndText(facts, absl::FromUnixSeconds(1'800'000'000));
    // A revocation is held against it.
    const auto serial = CanonicalSerial(facts.serial);
    Require(!serial.ok() || *serial == facts.serial);
  }
}

}  // namespace
}  // namespace cxlpool::fuzz
