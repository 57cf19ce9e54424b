// Tokens: what a program shows that has no certificate, and how it is kept.
//
//   cxlpool.nightly.kq3v…        "cxlpool", the token's name, 256 random bits in base64url
//
// Whoever has the text has the token's rights, so it is shown once, where it is made; the pool's
// records hold its SHA-256 alone. That needs no salt: nobody guesses 256 bits. The name is part of
// an identity, cxlpool://token/NAME, to which a role is bound as to every other.
//
// Pure but for NewToken; any thread.
#ifndef CXLPOOL_PROTO_SUPPORT_TOKEN_H_
#define CXLPOOL_PROTO_SUPPORT_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/support/sha256.h"

namespace cxlpool {

inline constexpr absl::string_view kTokenIdentity = "cxlpool://token/";
inline constexpr size_t kTokenHashBytes = kSha256Bytes;

// A new one of that name (names.h, CheckResourceId), with bits of OpenSSL's generator.
std::string NewToken(absl::string_view name);

// The name in `token`. UNAUTHENTICATED/BAD_TOKEN: it is not of the form above; its text is in no
// message.
absl::StatusOr<std::string> TokenName(absl::string_view token);

// SHA-256 of the whole text.
std::string TokenHash(absl::string_view token);

// Compares two hashes in a time that says nothing of where they differ.
bool SameTokenHash(absl::string_view a, absl::string_view b);

// What is wrong with a token, to a caller who learns no more than that it does not count.
absl::Status BadToken(std::string message);

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_TOKEN_H_
