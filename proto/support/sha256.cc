#include "proto/support/sha256.h"

#include <openssl/evp.h>

#include <memory>

#include "proto/support/check.h"
#include "proto/support/openssl.h"

namespace cxlpool {

// Fails only where there is no memory, or where OpenSSL's configuration has no SHA-256.
std::string Sha256(std::initializer_list<absl::string_view> parts) {
  // To look it up by name takes as long as to hash a row.
  static const EVP_MD* const kSha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  const std::unique_ptr<EVP_MD_CTX, openssl::Free<EVP_MD_CTX_free>> context(EVP_MD_CTX_new());
  bool ok = kSha256 != nullptr && context != nullptr &&
            EVP_DigestInit_ex(context.get(), kSha256, nullptr) == 1;
  for (const absl::string_view part : parts) {
    ok = ok && EVP_DigestUpdate(context.get(), part.data(), part.size()) == 1;
  }
  std::string hash(kSha256Bytes, '\0');
  ok = ok && EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(hash.data()),
                                nullptr) == 1;
  CXLPOOL_CHECK(ok, "OpenSSL computes no SHA-256");
  return hash;
}

}  // namespace cxlpool
