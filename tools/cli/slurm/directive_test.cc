#include "tools/cli/slurm/directive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::cli {
namespace {

using testing::HasSubstr;

MemoryRequest ReadJobScript(absl::string_view script) {
  const auto request = ReadDirective(script);
  EXPECT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(request.ok() && request->has_value()) << script;
  return request.ok() && request->has_value() ? **request : MemoryRequest();
}

std::string DirectiveError(absl::string_view words) {
  const auto request = ReadDirective(absl::StrCat("#!/bin/bash\n#CXLPOOL", words, "\n"));
  EXPECT_EQ(ReasonOf(request.status()), "BAD_DIRECTIVE") << words;
  return std::string(request.status().message());
}

TEST(DirectiveTest, TheShortestHasDefaults) {
  const MemoryRequest request =
      ReadJobScript("#!/bin/bash\n#SBATCH -n1\n#CXLPOOL pool=cxl capacity=64GiB\nx");
  EXPECT_EQ(request.pool, "cxl");
  EXPECT_EQ(request.capacity_bytes, uint64_t{64} << 30);
  EXPECT_FALSE(request.per_node);
  EXPECT_EQ(request.sharing, v1::SHARING_UNSPECIFIED);
  EXPECT_EQ(request.mode, v1::DEVDAX);
}

TEST(DirectiveTest, AllKeysInAnyOrder) {
  const MemoryRequest request =
      ReadJobScript("#CXLPOOL mode=system-ram per=node sharing=multi-writer capacity=3m pool=cxl");
  EXPECT_EQ(request.capacity_bytes, 3u << 20);
  EXPECT_TRUE(request.per_node);
  EXPECT_EQ(request.sharing, v1::MULTI_WRITER);
  EXPECT_EQ(request.mode, v1::SYSTEM_RAM);
}

TEST(DirectiveTest, ALineGoesOnBehindABackslash) {
  EXPECT_EQ(ReadJobScript("#CXLPOOL pool=cxl \\\n#CXLPOOL capacity=1G\nx").capacity_bytes,
            1u << 30);
  EXPECT_EQ(ReadJobScript("#CXLPOOL pool=cxl\\\n#CXLPOOL  capacity=1G\nx").capacity_bytes,
            1u << 30);
}

TEST(DirectiveTest, OnlyTheCommentsBeforeTheFirstCommandCount) {
  for (const char* script :
       {"", "#!/bin/bash\necho\n#CXLPOOL pool=cxl capacity=1G\n", "#SBATCH -n1",
        "# #CXLPOOL pool=cxl capacity=1G\n", " #CXLPOOL capacity=1G\n"}) {
    const auto request = ReadDirective(script);
    ASSERT_TRUE(request.ok()) << script;
    EXPECT_FALSE(request->has_value()) << script;
  }
  // Slurm skips empty lines.
  EXPECT_EQ(ReadJobScript("#!/bin/bash\n\n#CXLPOOL pool=cxl capacity=1G").capacity_bytes, 1u << 30);
}

TEST(DirectiveTest, SizesThatSlurmWouldReadDifferentlyAreRefused) {
  for (const char* size : {"1.5GiB", "64GB", "64kb", "0", "", "G", "-1G", "1Gi", "1GiBs", "16E",
                           "99999999999999999999", "20000000P", "1n", "0x10"}) {
    EXPECT_THAT(DirectiveError(absl::StrCat(" pool=cxl capacity=", size)), HasSubstr("#CXLPOOL: "))
        << size;
  }
  for (const char* size : {"64GiB", "64gib", "64G", "65536M", "68719476736"}) {
    EXPECT_EQ(ReadJobScript(absl::StrCat("#CXLPOOL pool=cxl capacity=", size)).capacity_bytes,
              uint64_t{64} << 30)
        << size;
  }
}

TEST(DirectiveTest, ARefusalNamesTheWord) {
  EXPECT_THAT(DirectiveError(" pool=cxl capcity=1G"), HasSubstr("did you mean \"capacity\"?"));
  EXPECT_THAT(DirectiveError(" pool=cxl"), HasSubstr("capacity= is missing"));
  EXPECT_THAT(DirectiveError(" capacity=1G"), HasSubstr("pool= is missing"));
  EXPECT_THAT(DirectiveError(""), HasSubstr("is missing"));
  EXPECT_THAT(DirectiveError("pool=cxl capacity=1G"), HasSubstr("a blank is missing"));
  EXPECT_THAT(DirectiveError(" pool=cxl capacity=64 GiB"), HasSubstr("\"GiB\" is no KEY=VALUE"));
  EXPECT_THAT(DirectiveError(" pool=cxl capacity=1G capacity=2G"), HasSubstr("given twice"));
  EXPECT_THAT(DirectiveError(" pool=cxl capacity=1G per=core"), HasSubstr("per=core"));
  EXPECT_THAT(DirectiveError(" pool=cxl capacity=1G sharing=all"), HasSubstr("sharing=all"));
  EXPECT_THAT(DirectiveError(" pool=cxl capacity=1G mode=ram"), HasSubstr("mode=ram"));
  EXPECT_THAT(DirectiveError(" pool=cxl capacity=1G\n#CXLPOOL pool=cxl capacity=1G"),
              HasSubstr("more than once"));
}

}  // namespace
}  // namespace cxlpool::cli
