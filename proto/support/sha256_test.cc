#include "proto/support/sha256.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"

namespace cxlpool {
namespace {

// The examples of FIPS 180.
TEST(Sha256Test, KnownTextsHaveTheirHash) {
  EXPECT_EQ(absl::BytesToHexString(Sha256({})),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(absl::BytesToHexString(Sha256({"abc"})),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256Test, PartsAreOneText) { EXPECT_EQ(Sha256({"a", "", "bc"}), Sha256({"abc"})); }

}  // namespace
}  // namespace cxlpool
