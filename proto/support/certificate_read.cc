// ReadCertificates: the part that needs OpenSSL.

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <memory>

#include "absl/strings/escaping.h"
#include "proto/support/certificate.h"
#include "proto/support/openssl.h"
#include "proto/support/refusal.h"

namespace cxlpool {
namespace {

using openssl::Bio;
using openssl::Certificate;
using openssl::Free;

constexpr size_t kMaxCertificates = 100;

std::string TextOf(const ASN1_STRING* string) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(string)),
          static_cast<size_t>(ASN1_STRING_length(string))};
}

// A time that is not well formed reads as the beginning of time: such a certificate has expired.
absl::Time TimeOf(const ASN1_TIME* time) {
  tm broken_down = {};
  if (ASN1_TIME_to_tm(time, &broken_down) != 1) return absl::InfinitePast();
  return absl::FromTimeT(timegm(&broken_down));
}

std::string SerialOf(X509* certificate) {
  const ASN1_INTEGER* serial = X509_get0_serialNumber(certificate);
  const absl::StatusOr<std::string> canonical =
      CanonicalSerial(absl::BytesToHexString(TextOf(serial)));
  return canonical.ok() ? *canonical : "";
}

std::string CommonNameOf(X509* certificate) {
  X509_NAME* const name = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
  if (at < 0) return "";
  return TextOf(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)));
}

std::string IpOf(const std::string& bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(bytes.size() == 4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof(text));
  return text;
}

void ReadNames(X509* certificate, CertificateFacts& facts) {
  const std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES_free>> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_URI) facts.uris.push_back(TextOf(name->d.uniformResourceIdentifier));
    if (name->type == GEN_DNS) facts.dns.push_back(TextOf(name->d.dNSName));
    if (name->type == GEN_IPADD) {
      const std::string bytes = TextOf(name->d.iPAddress);
      if (bytes.size() == 4 || bytes.size() == 16) facts.ips.push_back(IpOf(bytes));
    }
  }
}

CertificateFacts FactsOf(X509* certificate) {
  CertificateFacts facts;
  facts.common_name = CommonNameOf(certificate);
  facts.serial = SerialOf(certificate);
  ReadNames(certificate, facts);
  // UINT32_MAX where the certificate has no such extension: then it may be used for everything.
  const uint32_t usage = X509_get_extended_key_usage(certificate);
  facts.server_auth = (usage & XKU_SSL_SERVER) != 0;
  facts.client_auth = (usage & XKU_SSL_CLIENT) != 0;
  facts.authority = X509_check_ca(certificate) > 0;
  facts.not_before = TimeOf(X509_get0_notBefore(certificate));
  facts.not_after = TimeOf(X509_get0_notAfter(certificate));
  return facts;
}

}  // namespace

absl::StatusOr<std::vector<CertificateFacts>> ReadCertificates(const std::string& pem) {
  std::vector<CertificateFacts> all;
  const Bio bio = openssl::BioOf(pem);
  while (all.size() < kMaxCertificates) {
    const Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (certificate == nullptr) break;
    all.push_back(FactsOf(certificate.get()));
  }
  ERR_clear_error();
  if (!all.empty()) return all;
  return Refuse(absl::StatusCode::kInvalidArgument, "TLS_NOT_PEM", "it holds no PEM certificate",
                "name the right file");
}

}  // namespace cxlpool
