#include "proto/support/token.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool {
namespace {

TEST(TokenTest, EachIsAnotherAndHasItsName) {
  std::set<std::string> tokens;
  for (int i = 0; i < 1000; ++i) tokens.insert(NewToken("nightly"));
  EXPECT_EQ(tokens.size(), 1000u);
  for (const std::string& token : tokens) EXPECT_EQ(*TokenName(token), "nightly");
}

TEST(TokenTest, IsKnownByItsHash) {
  const std::string token = NewToken("ci");
  EXPECT_EQ(TokenHash(token).size(), kTokenHashBytes);
  EXPECT_TRUE(SameTokenHash(TokenHash(token), TokenHash(token)));
  EXPECT_FALSE(SameTokenHash(TokenHash(token), TokenHash(NewToken("ci"))));
  EXPECT_FALSE(SameTokenHash(TokenHash(token), ""));
}

TEST(TokenTest, WhatIsNoneIsRefusedAndNotRepeated) {
  const std::string secret(43, 'x');
  EXPECT_TRUE(TokenName("cxlpool.ci." + secret).ok());
  for (const std::string& bad : std::vector<std::string>{
           std::string(), secret, "cxlpool.ci", "cxlpool.ci.", "cxlpool.." + secret,
           "cxlpool.CI." + secret, "cxlpool.ci." + secret + "x", "cxlpool.ci.." + secret.substr(1),
           "cxlpool.ci." + secret.substr(1) + "=", "xcxlpool.ci." + secret,
           "cxlpool." + std::string(64, 'a') + "." + secret}) {
    const auto name = TokenName(bad);
    EXPECT_EQ(ReasonOf(name.status()), "BAD_TOKEN") << bad;
    EXPECT_EQ(std::string(name.status().message()).find(secret.substr(1)), std::string::npos);
  }
}

}  // namespace
}  // namespace cxlpool
