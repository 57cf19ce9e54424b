#include "fabric-manager/adapters/store_etcd/etcd_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cxlpool::fm {
namespace {

TEST(EtcdLayoutTest, KeysAreInOrderOfTheirNumbersAndSayThem) {
  const EtcdKeys keys("/pool/");
  EXPECT_LT(keys.Log(9, 3), keys.Log(10));
  EXPECT_LT(keys.Log(10), keys.Log(10, 1));
  EXPECT_LT(keys.Log(UINT64_MAX, UINT64_MAX), keys.LogEnd());
  EXPECT_LT(keys.Pack(255), keys.Pack(256));
  EXPECT_LT(keys.Pack(UINT64_MAX), keys.PackEnd());
  EXPECT_EQ(keys.RevisionOfLog(keys.Log(4711, 2)), 4711u);
  EXPECT_EQ(keys.FirstOfPack(keys.Pack(4711)), 4711u);
  for (const char* other :
       {"/pool/head", "/pool/log/", "/pool/log/zz", "/pool/p/12", "/other/p/1", ""}) {
    EXPECT_EQ(keys.RevisionOfLog(other), std::nullopt) << other;
    EXPECT_EQ(keys.FirstOfPack(other), std::nullopt) << other;
  }
}

TEST(EtcdLayoutTest, HeadsComeBackAndOthersDoNot) {
  const EtcdHead head{.epoch = 3, .revision = 1024, .digest = "ab", .owner = "me"};
  EXPECT_EQ(ParseHead(ToText(head)), head);
  for (const char* text : {"", "1 2 ab", "1 2 ab me more", "x 2 ab me", "1 -2 ab me"}) {
    EXPECT_EQ(ParseHead(text), std::nullopt) << text;
  }
  EXPECT_TRUE(IsLaterHead(absl::StrCat(ToText(head), " more")));
  for (const char* text : {"", "1 2 ab", "1 2 ab me", "x 2 ab me more", "what is this, then?"}) {
    EXPECT_FALSE(IsLaterHead(text)) << text;
  }
  EXPECT_EQ(ParseFolded(ToText(EtcdFolded{7, "cd", 100}))->digest, "cd");
  EXPECT_EQ(ParseFolded(ToText(EtcdFolded{7, "cd", 100}))->pack_bytes, 100u);
  EXPECT_EQ(ParseFolded(ToText(EtcdFolded{7, "cd", 100, 3}))->epoch, 3u);
  EXPECT_EQ(ParseFolded("7 cd"), std::nullopt);
}

TEST(EtcdLayoutTest, AChangeIsReadAsItWasWrittenOrNotAtAll) {
  StoreBatch batch;
  batch.puts = {{1, "one"}, {2, ""}, {1, std::string(300, '\xff')}};
  batch.erases = {9, 2};
  const std::string bytes = EncodeChange(batch);
  StoreBatch read;
  ASSERT_TRUE(DecodeChange(bytes, read));
  ASSERT_EQ(read.puts.size(), 3u);
  EXPECT_EQ(read.puts[2].value, batch.puts[2].value);
  EXPECT_EQ(read.erases, batch.erases);
  for (size_t length = 0; length < bytes.size(); ++length) {
    StoreBatch part;
    EXPECT_FALSE(DecodeChange(bytes.substr(0, length), part)) << length;
  }
  std::string expanded;
  ASSERT_TRUE(Expand(bytes, expanded));
  for (const size_t at : {size_t{8}, size_t{32}, size_t{100}}) {
    std::string flipped = expanded;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    StoreBatch other;
    EXPECT_FALSE(DecodeChange(Compress(flipped), other)) << at;
  }
  EXPECT_NE(NextDigest("0", bytes), NextDigest("1", bytes));
}

TEST(EtcdLayoutTest, BytesComeBackFromFewerAndNothingElseIsTakenForThem) {
  std::string bytes;
  for (const std::string& whole : {std::string(), std::string("one"), std::string(100'000, 'x')}) {
    const std::string compressed = Compress(whole);
    ASSERT_TRUE(Expand(compressed, bytes));
    EXPECT_EQ(bytes, whole);
    EXPECT_FALSE(Expand(compressed.substr(0, compressed.size() - 1), bytes));
    EXPECT_FALSE(Expand(compressed + "x", bytes));
  }
  EXPECT_LT(Compress(std::string(100'000, 'x')).size(), 1000u);
  // A length that was changed to eight exabytes.
  EXPECT_FALSE(Expand(std::string(7, '\0') + '\x7f' + "some", bytes));
}

}  // namespace
}  // namespace cxlpool::fm
