#include "tools/pki/certificate.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/support/openssl.h"
#include "proto/support/refusal.h"

namespace cxlpool::pki {
namespace {

using openssl::Bio;
using openssl::BioOf;
using openssl::Certificate;
using openssl::Free;
using openssl::Key;
using openssl::NoPassword;

using Extension = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;

// Names the first error that OpenSSL noted on this thread, and forgets the others, so that they are
// not taken for the next call's.
absl::Status OpensslError(const std::string& doing) {
  char text[256] = "unknown error";
  if (const unsigned long code = ERR_get_error(); code != 0) {
    ERR_error_string_n(code, text, sizeof(text));
  }
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("cannot ", doing, ": ", text));
}

absl::Status BadArgument(const std::string& reason, const std::string& message,
                         const std::string& remedy) {
  return Refuse(absl::StatusCode::kInvalidArgument, reason, message, remedy);
}

absl::Status BadAuthority(const std::string& message) {
  ERR_clear_error();
  return Refuse(absl::StatusCode::kFailedPrecondition, "BAD_CA", message,
                "restore ca.pem and ca.key, or make a new authority: `cxlpool pki init --force`");
}

std::string TextOf(const Bio& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, size);
}

absl::StatusOr<std::string> CertificatePem(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(bio.get(), certificate) != 1) return OpensslError("write PEM");
  return TextOf(bio);
}

absl::StatusOr<PemPair> ToPem(X509* certificate, EVP_PKEY* key) {
  absl::StatusOr<std::string> cert = CertificatePem(certificate);
  if (!cert.ok()) return cert.status();
  const Bio bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return OpensslError("write PEM");
  }
  return PemPair{*std::move(cert), TextOf(bio)};
}

bool SetSerial(X509* certificate) {
  unsigned char bytes[16];  // RFC 5280, 4.1.2.2: positive, at most 20 octets, unpredictable.
  if (RAND_bytes(bytes, sizeof(bytes)) != 1) return false;
  // The top bit is clear, so it is positive; the next is set, so it always has 16 octets.
  bytes[0] = (bytes[0] & 0x7f) | 0x40;
  const std::unique_ptr<BIGNUM, Free<BN_free>> number(BN_bin2bn(bytes, sizeof(bytes), nullptr));
  return number != nullptr &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool SetTimes(X509* certificate, absl::Time not_before, absl::Time not_after) {
  return ASN1_TIME_set(X509_getm_notBefore(certificate), absl::ToTimeT(not_before)) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), absl::ToTimeT(not_after)) != nullptr;
}

bool SetName(X509_NAME* name, const std::string& common_name) {
  return X509_NAME_add_entry_by_txt(name, "O", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>("cxlpool"), -1, -1,
                                    0) == 1 &&
         X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(common_name.c_str()), -1,
                                    -1, 0) == 1;
}

// `value` in the syntax of openssl.cnf. The context lets "keyid" and "hash" find the keys.
bool AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509V3_set_ctx_nodb(&context);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

// Version, serial number, validity, key and subject: what every certificate has.
absl::StatusOr<Certificate> Begin(EVP_PKEY* key, const std::string& common_name,
                                  absl::Time not_before, absl::Time not_after) {
  Certificate certificate(X509_new());
  if (certificate == nullptr || X509_set_version(certificate.get(), X509_VERSION_3) != 1 ||
      !SetSerial(certificate.get()) || !SetTimes(certificate.get(), not_before, not_after) ||
      X509_set_pubkey(certificate.get(), key) != 1 ||
      !SetName(X509_get_subject_name(certificate.get()), common_name)) {
    return OpensslError("make a certificate");
  }
  return certificate;
}

// A host name as RFC 1123 has it, a leading "*." allowed.
bool IsDnsName(absl::string_view name) {
  if (name.substr(0, 2) == "*.") name.remove_prefix(2);
  if (name.empty() || name.size() > 253) return false;
  for (const absl::string_view label : absl::StrSplit(name, '.')) {
    const auto fits = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-';
    };
    if (label.empty() || label.size() > 63 || label.front() == '-' || label.back() == '-' ||
        !std::all_of(label.begin(), label.end(), fits)) {
      return false;
    }
  }
  return true;
}

bool IsIp(const std::string& text) {
  unsigned char address[16];
  return inet_pton(AF_INET, text.c_str(), address) == 1 ||
         inet_pton(AF_INET6, text.c_str(), address) == 1;
}

// In the syntax of X509V3_EXT_conf_nid, where commas separate: every part is checked first.
absl::StatusOr<std::string> SubjectAltName(const CertificateRequest& request) {
  std::vector<std::string> parts;
  std::vector<std::string> uris = request.more_uris;
  if (!request.uri.empty()) uris.insert(uris.begin(), request.uri);
  for (const std::string& uri : uris) {
    if (uri.find_first_of(", \n") != std::string::npos) {
      return BadArgument("BAD_IDENTITY", absl::StrCat("\"", uri, "\" is not a URI"),
                         "leave out spaces and commas");
    }
    parts.push_back(absl::StrCat("URI:", uri));
  }
  for (const std::string& name : request.dns) {
    if (!IsDnsName(name)) {
      return BadArgument("BAD_DNS_NAME", absl::StrCat("\"", name, "\" is not a DNS name"),
                         "give --dns as in fm.example.com");
    }
    parts.push_back(absl::StrCat("DNS:", name));
  }
  for (const std::string& ip : request.ips) {
    if (!IsIp(ip)) {
      return BadArgument("BAD_IP", absl::StrCat("\"", ip, "\" is not an IP address"),
                         "give --ip as in 192.0.2.7 or 2001:db8::7");
    }
    parts.push_back(absl::StrCat("IP:", ip));
  }
  return absl::StrJoin(parts, ",");
}

absl::Time TimeOf(const ASN1_TIME* time) {
  tm broken_down = {};
  ASN1_TIME_to_tm(time, &broken_down);
  return absl::FromTimeT(timegm(&broken_down));
}

Certificate ParseCertificate(const std::string& pem) {
  return Certificate(PEM_read_bio_X509(BioOf(pem).get(), nullptr, nullptr, nullptr));
}

// A certificate for the holder of `key`, after the authority was checked. It ends with the
// authority at the latest: one that lasts longer would stop working without a warning of its own.
absl::StatusOr<Certificate> SignLeaf(const PemPair& authority, const CertificateRequest& request,
                                     EVP_PKEY* key) {
  const Certificate issuer = ParseCertificate(authority.cert);
  if (issuer == nullptr) return BadAuthority("the authority's certificate is not PEM");
  const Key issuer_key(
      PEM_read_bio_PrivateKey(BioOf(authority.key).get(), nullptr, NoPassword, nullptr));
  if (issuer_key == nullptr) return BadAuthority("the authority's key is not PEM, or is encrypted");
  if (X509_check_private_key(issuer.get(), issuer_key.get()) != 1) {
    return BadAuthority("the authority's key does not belong to its certificate");
  }
  const absl::StatusOr<std::string> names = SubjectAltName(request);
  if (!names.ok()) return names.status();
  const absl::Time end = std::min(request.not_after, TimeOf(X509_get0_notAfter(issuer.get())));
  absl::StatusOr<Certificate> begun = Begin(key, request.common_name, request.not_before, end);
  if (!begun.ok()) return begun.status();
  X509* const certificate = begun->get();
  if (X509_set_issuer_name(certificate, X509_get_subject_name(issuer.get())) != 1 ||
      !AddExtension(certificate, issuer.get(), NID_basic_constraints, "critical,CA:FALSE") ||
      !AddExtension(certificate, issuer.get(), NID_key_usage, "critical,digitalSignature") ||
      !AddExtension(certificate, issuer.get(), NID_ext_key_usage,
                    request.server ? "serverAuth" : "clientAuth") ||
      !AddExtension(certificate, issuer.get(), NID_subject_key_identifier, "hash") ||
      !AddExtension(certificate, issuer.get(), NID_authority_key_identifier, "keyid") ||
      (!names->empty() && !AddExtension(certificate, issuer.get(), NID_subject_alt_name, *names)) ||
      X509_sign(certificate, issuer_key.get(), EVP_sha256()) == 0) {
    return OpensslError("sign a certificate");
  }
  return begun;
}

}  // namespace

// The extensions are RFC 5280's for an authority that signs leaves and revocation lists only.
absl::StatusOr<PemPair> MakeAuthority(const std::string& common_name, absl::Time not_before,
                                      absl::Time not_after) {
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpensslError("make a key");
  absl::StatusOr<Certificate> begun = Begin(key.get(), common_name, not_before, not_after);
  if (!begun.ok()) return begun.status();
  X509* const certificate = begun->get();
  if (X509_set_issuer_name(certificate, X509_get_subject_name(certificate)) != 1 ||
      !AddExtension(certificate, certificate, NID_basic_constraints,
                    "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !AddExtension(certificate, certificate, NID_subject_key_identifier, "hash") ||
      X509_sign(certificate, key.get(), EVP_sha256()) == 0) {
    return OpensslError("sign a certificate");
  }
  return ToPem(certificate, key.get());
}

absl::StatusOr<PemPair> MakeLeaf(const PemPair& authority, const CertificateRequest& request) {
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpensslError("make a key");
  absl::StatusOr<Certificate> certificate = SignLeaf(authority, request, key.get());
  if (!certificate.ok()) return certificate.status();
  return ToPem(certificate->get(), key.get());
}

// Of the old certificate only the key counts; that it is the right one's is for the caller to
// check.
absl::StatusOr<std::string> MakeLeafForKeyOf(const std::string& old, const PemPair& authority,
                                             const CertificateRequest& request) {
  const Certificate before = ParseCertificate(old);
  EVP_PKEY* const key = before == nullptr ? nullptr : X509_get0_pubkey(before.get());
  if (key == nullptr) {
    ERR_clear_error();
    return absl::InvalidArgumentError("not a PEM certificate");
  }
  absl::StatusOr<Certificate> certificate = SignLeaf(authority, request, key);
  if (!certificate.ok()) return certificate.status();
  return CertificatePem(certificate->get());
}

absl::StatusOr<absl::Time> EndOf(const std::string& pem) {
  const Certificate certificate = ParseCertificate(pem);
  if (certificate == nullptr) {
    ERR_clear_error();
    return absl::InvalidArgumentError("not a PEM certificate");
  }
  return TimeOf(X509_get0_notAfter(certificate.get()));
}

}  // namespace cxlpool::pki
