#include "proto/support/token.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/check.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "proto/support/sha256.h"

namespace cxlpool {
namespace {

constexpr size_t kSecretBytes = 32;
constexpr size_t kSecretText = 43;  // In base64url, without padding.

}  // namespace

std::string NewToken(absl::string_view name) {
  std::string secret(kSecretBytes, '\0');
  const int filled = RAND_bytes(reinterpret_cast<unsigned char*>(secret.data()), kSecretBytes);
  CXLPOOL_CHECK(filled == 1, "there are no random bits for a token");
  return absl::StrCat("cxlpool.", name, ".", absl::WebSafeBase64Escape(secret));
}

absl::StatusOr<std::string> TokenName(absl::string_view token) {
  absl::string_view rest = token;
  const bool begins = absl::ConsumePrefix(&rest, "cxlpool.");
  const absl::string_view name = rest.substr(0, rest.find('.'));
  const absl::string_view secret = rest.substr(std::min(rest.size(), name.size() + 1));
  const bool good = begins && CheckResourceId(name).ok() && secret.size() == kSecretText &&
                    std::all_of(secret.begin(), secret.end(), [](char c) {
                      return absl::ascii_isalnum(c) || c == '-' || c == '_';
                    });
  if (good) return std::string(name);
  return BadToken("what was given as a token is none");
}

std::string TokenHash(absl::string_view token) { return Sha256({token}); }

bool SameTokenHash(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

absl::Status BadToken(std::string message) {
  return Refuse(absl::StatusCode::kUnauthenticated, "BAD_TOKEN", std::move(message),
                "have an admin make one: `cxlpool token create NAME --role ROLE --ttl TERM "
                "--reason WHY`");
}

}  // namespace cxlpool
