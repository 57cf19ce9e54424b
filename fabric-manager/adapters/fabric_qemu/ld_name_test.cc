#include "fabric-manager/adapters/fabric_qemu/ld_name.h"

#include <gtest/gtest.h>

#include <cctype>

namespace cxlpool::fm {
namespace {

constexpr char kUuid[] = "0f0e0d0c-0b0a-4908-8706-050403020100";

TEST(LdNameTest, KeyComesBack) {
  for (const LdKey& key : {LdKey{"host-a", kUuid, 1, 0}, LdKey{"h", kUuid, UINT64_MAX, UINT32_MAX},
                           LdKey{"host-b", kUuid, 0, 7}}) {
    const auto back = ParseLdDeviceId(LdDeviceId(key), key.host);
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(*back, key);
  }
}

TEST(LdNameTest, IdsAreLegalInQemu) {
  const LdKey key{"host-a", kUuid, UINT64_MAX, UINT32_MAX};
  for (const std::string& id : {LdDeviceId(key), LdBackendId(key, UINT64_MAX)}) {
    EXPECT_TRUE(std::isalpha(static_cast<unsigned char>(id[0])));
    for (char c : id) {
      EXPECT_TRUE(std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_');
    }
  }
}

TEST(LdNameTest, BackendsDifferByTheirNonce) {
  const LdKey key{"host-a", kUuid, 1, 0};
  EXPECT_NE(LdBackendId(key, 1), LdBackendId(key, 2));
  EXPECT_FALSE(ParseLdDeviceId(LdBackendId(key, 1), "host-a").has_value());
  EXPECT_EQ(ParseLdBackendId(LdBackendId(key, 1), "host-a"), key);
  for (const char* id : {"", "-", "be-", "be--", "be-1-2-3-4", "be", "ld-1"}) {
    EXPECT_FALSE(ParseLdBackendId(id, "host-a").has_value()) << id;
  }
}

TEST(LdNameTest, OtherIdsAreNotOurs) {
  const std::string tag = kUuid;
  for (const std::string& id :
       {std::string(), std::string("ld-"), std::string("ld0"), "ld-" + tag, "ld-" + tag + "-0",
        "ld-" + tag + "-0-", "ld-" + tag + "--1", "ld-" + tag + "-00-1", "ld-" + tag + "-0-+1",
        "ld-" + tag + "-0- 1", "ld-" + tag + "-0-1-2", "ld-" + tag + "-4294967296-1",
        "ld-" + tag + "-0-18446744073709551616", "ld-" + tag + "x0-1",
        std::string("ld-0F0E0D0C-0b0a-4908-8706-050403020100-0-1"),
        std::string("ld-zf0e0d0c-0b0a-4908-8706-050403020100-0-1")}) {
    EXPECT_FALSE(ParseLdDeviceId(id, "host-a").has_value()) << id;
  }
}

}  // namespace
}  // namespace cxlpool::fm
