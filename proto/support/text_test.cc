#include "proto/support/text.h"

#include <gtest/gtest.h>

#include <string>

namespace cxlpool {
namespace {

TEST(CutTextTest, CutsBetweenCharacters) {
  const std::string text = "a\xc3\xbc\xe2\x82\xac\xf0\x9f\x92\xa9z";  // 1, 2, 3, 4 and 1 bytes.
  const std::string cut[] = {"", "a", "a", "a\xc3\xbc", "a\xc3\xbc", "a\xc3\xbc"};
  for (size_t max = 0; max < 6; ++max) EXPECT_EQ(CutText(text, max), cut[max]) << max;
  EXPECT_EQ(CutText(text, 6), "a\xc3\xbc\xe2\x82\xac");
  EXPECT_EQ(CutText(text, 9), "a\xc3\xbc\xe2\x82\xac");
  EXPECT_EQ(CutText(text, 10), text.substr(0, 10));
  EXPECT_EQ(CutText(text, 11), text);
  EXPECT_EQ(CutText(text, 1000), text);
}

TEST(CutTextTest, EndsWhateverItIsGiven) {
  EXPECT_EQ(CutText(std::string(20, '\x80'), 10), "");
  EXPECT_EQ(CutText(std::string(20, '\xff'), 10), std::string(10, '\xff'));
  EXPECT_EQ(CutText("", 0), "");
}

TEST(Utf8TextTest, KeepsCharactersAndReplacesTheBytesOfNone) {
  for (const char* good : {"", "kv", "a\xc3\xbc\xe2\x82\xac\xf0\x9f\x92\xa9z"}) {
    EXPECT_EQ(Utf8Text(good), good);
  }
  EXPECT_EQ(Utf8Text("a\xff\xc3\xbc\xc3"), "a?\xc3\xbc?");
  EXPECT_EQ(Utf8Text("\xc0\xaf"), "??") << "longer than it needs to be";
  EXPECT_EQ(Utf8Text("\xed\xa0\x80"), "???") << "a surrogate";
}

TEST(UtcTextTest, SaysWholeSecondsOfUniversalTime) {
  EXPECT_EQ(UtcText(absl::FromUnixMillis(1795731015999)), "2026-11-26T22:10:15Z");
}

}  // namespace
}  // namespace cxlpool
