#include "proto/support/toml_reader.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "proto/support/refusal.h"

namespace cxlpool {
namespace {

TEST(TomlReaderTest, ReadsTypedValues) {
  auto toml = TomlReader::Parse(
      "name = 'a'\nsize = '2GiB'\nwait = '250ms'\nslots = [1, 2]\n"
      "[inner]\non = true\n[[device]]\nid = 'x'\n[[device]]\nid = 'y'\n",
      "f.toml");
  ASSERT_TRUE(toml.ok());
  EXPECT_EQ(toml->String("name"), "a");
  EXPECT_EQ(toml->Size("size"), 2ull << 30);
  EXPECT_EQ(toml->Duration("wait"), absl::Milliseconds(250));
  EXPECT_EQ(toml->Numbers("slots"), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(toml->Number("left-out", 7), 7u);
  TomlReader inner = toml->Table("inner");
  EXPECT_EQ(inner.Keys(), std::vector<std::string>{"on"});
  EXPECT_TRUE(inner.Bool("on"));
  auto devices = toml->Tables("device");
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].String("id"), "x");
  EXPECT_EQ(devices[1].String("id"), "y");
  EXPECT_TRUE(toml->Finish().ok());
}

TEST(TomlReaderTest, ErrorsNameFileLineAndKey) {
  auto toml = TomlReader::Parse("a = 1\n[t]\nb = 'x'\n", "f.toml");
  ASSERT_TRUE(toml.ok());
  EXPECT_EQ(toml->Number("a"), 1u);
  toml->Table("t").Number("b");
  const absl::Status status = toml->Finish();
  EXPECT_EQ(ReasonOf(status), "BAD_CONFIG");
  EXPECT_TRUE(absl::StrContains(status.message(), "f.toml:3: t.b")) << status;
}

// UndefinedBehaviorSanitizer and toml++'s assertions say what it does there by itself.
TEST(TomlReaderTest, LettersBeyondAsciiStandInStringsAlone) {
  for (const char* text :
       {"\u00e4 = 1\n", "a = \u03b1\n", "a = 1 \u0416\n", "[\u00e9]\n", "[=]\n", "[[.]]\n"}) {
    const absl::Status status = TomlReader::Parse(text, "f.toml").status();
    EXPECT_EQ(ReasonOf(status), "BAD_CONFIG") << text;
    EXPECT_TRUE(absl::StrContains(status.message(), "f.toml:1")) << status;
  }
  auto toml = TomlReader::Parse("a = '\u00e4'\nb = \"\"\"\\\n\u03b1\"\"\"  # \u0416\n", "f.toml");
  ASSERT_TRUE(toml.ok());
  EXPECT_EQ(toml->String("a"), "\u00e4");
  EXPECT_EQ(toml->String("b"), "\u03b1");
}

TEST(TomlReaderTest, UnknownKeysAndBadTomlAreErrors) {
  auto toml = TomlReader::Parse("a = 1\n\nodd = 2\n", "f.toml");
  toml->Number("a");
  EXPECT_TRUE(absl::StrContains(toml->Finish().message(), "f.toml:3: odd")) << toml->Finish();
  EXPECT_TRUE(
      absl::StrContains(TomlReader::Parse("a = \n", "f.toml").status().message(), "f.toml:1"));
  auto missing = TomlReader::Parse("", "f.toml");
  missing->String("host");
  EXPECT_TRUE(absl::StrContains(missing->Finish().message(), "host: is missing"));
}

}  // namespace
}  // namespace cxlpool
