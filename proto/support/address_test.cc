#include "proto/support/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/support/refusal.h"

namespace cxlpool {
namespace {

using ::testing::HasSubstr;

TEST(AddressTest, HostsWithPortsAndSocketsAreRead) {
  const absl::StatusOr<Address> name = ParseAddress("fm.rack7.example:7600");
  ASSERT_TRUE(name.ok()) << name.status();
  EXPECT_EQ(name->host, "fm.rack7.example");
  EXPECT_EQ(name->port, 7600);
  EXPECT_FALSE(name->is_local());
  const absl::StatusOr<Address> v6 = ParseAddress("[2001:db8::7]:65535");
  ASSERT_TRUE(v6.ok()) << v6.status();
  EXPECT_EQ(v6->host, "2001:db8::7");
  EXPECT_EQ(v6->port, 65535);
  const absl::StatusOr<Address> socket = ParseAddress("unix:/run/cxlpool/fm.sock");
  ASSERT_TRUE(socket.ok()) << socket.status();
  EXPECT_TRUE(socket->is_unix());
  EXPECT_EQ(socket->path, "/run/cxlpool/fm.sock");
  for (const char* good : {"0.0.0.0:1", "[::]:7600", "localhost:7600", "10.0.2.100:80", "fm:080"}) {
    EXPECT_TRUE(ParseAddress(good).ok()) << good;
  }
}

TEST(AddressTest, WhatIsWrongIsSaid) {
  const struct {
    std::string text;
    const char* what;
  } bad[] = {{"127.0.0.1", "no port"},
             {"fm.cxlpool", "no port"},
             {"127.0.0.1:", "no port"},
             {"[::1]", "no port"},
             {"127.0.0.1:0", "1 to 65535"},
             {"127.0.0.1:99999", "1 to 65535"},
             {"127.0.0.1:65536", "1 to 65535"},
             {"127.0.0.1:-1", "1 to 65535"},
             {"127.0.0.1:+80", "1 to 65535"},
             {"127.0.0.1: 80", "1 to 65535"},
             {"fm:https", "1 to 65535"},
             {"::1:7600", "brackets"},
             {"fe80::1", "brackets"},
             {":7600", "neither"},
             {"", "no port"},
             {"a b:7600", "neither"},
             {"dns:///fm:7600", "brackets"},
             {"[fm]:7600", "neither"},
             {"unix:fm.sock", "absolute"},
             {"unix:", "absolute"},
             {"unix:/" + std::string(107, 'x'), "107"}};
  for (const auto& [text, what] : bad) {
    const absl::Status status = ParseAddress(text).status();
    EXPECT_EQ(ReasonOf(status), "BAD_ADDRESS") << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("HOST:PORT")) << text;
  }
}

TEST(AddressListTest, OneOrSeveralInTheirOrder) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> lists = {
      {"fm:7600", {"fm:7600"}},
      {" fm-2:7600 ,fm-1:7600", {"fm-2:7600", "fm-1:7600"}},
      {"unix:/run/fm.sock,[::1]:7600", {"unix:/run/fm.sock", "[::1]:7600"}}};
  for (const auto& [text, want] : lists) {
    const auto list = ParseAddressList(text);
    ASSERT_TRUE(list.ok()) << list.status();
    EXPECT_EQ(*list, want);
  }
}

TEST(AddressListTest, WhatIsWrongIsSaid) {
  std::string many = "fm-0:1";
  for (size_t i = 1; i <= kMaxAddresses; ++i) many += ",fm-" + std::to_string(i) + ":1";
  const std::vector<std::pair<std::string, std::string>> lists = {
      {"", "no port"},
      {",", "none beside a comma"},
      {"a:1,", "none beside a comma"},
      {"a:1, ,b:1", "none beside a comma"},
      {"a:1,b:1,a:1", "a:1 stands twice"},
      {"a:1,b", "\"b\" is no address: it has no port"},
      {many, "has 17, and at most 16"}};
  for (const auto& [text, what] : lists) {
    const absl::Status status = ParseAddressList(text).status();
    EXPECT_EQ(ReasonOf(status), "BAD_ADDRESS") << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what)) << text;
  }
}

TEST(InsecureAddressTest, OnlyUnixSocketsAndLoopbackAreAllowed) {
  for (const char* good : {"unix:/run/cxlpool/fm.sock", "unix:fm.sock", "127.0.0.1:7420",
                           "127.8.9.10:1", "[::1]:7420", "localhost:7420"}) {
    EXPECT_TRUE(CheckInsecureAddress(good).ok()) << good;
  }
  for (const char* bad :
       {"", "unix:", "0.0.0.0:7420", "[::]:7420", "10.0.0.1:7420", "127.0.0.1", "127.0.0.1:",
        "127.0.0.1:99999", "127.0.0.1:http", "127.0.0.1.example.com:7420", "fm.cxlpool:7420",
        "localhost.example.com:7420", "::1:7420", "unix-abstract:x", "[::ffff:10.0.0.1]:7420"}) {
    EXPECT_EQ(ReasonOf(CheckInsecureAddress(bad)), "INSECURE_ADDRESS") << bad;
  }
}

}  // namespace
}  // namespace cxlpool
