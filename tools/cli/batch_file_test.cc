#include "tools/cli/batch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "proto/support/refusal.h"

namespace cxlpool::cli {
namespace {

// Of the one request that `open_to` is written in.
absl::StatusOr<std::string> ReadOpenToOf(const std::string& open_to) {
  std::istringstream in(R"({"size_bytes": "1GiB", )" + open_to + "}\n");
  const auto requests = ReadBatchFile(in, "file");
  if (!requests.ok()) return requests.status();
  return requests->front().open_to().ShortDebugString();
}

// ExecuteFileTest has the rest of a line.
TEST(BatchFileTest, WhoMayOpenARegionIsSaidAsOnTheCommandLineOrAsInTheApi) {
  const std::string all = "uids: 1000 gids: 4294967295 everybody: true";
  for (const char* open_to :
       {R"("open_to": "uid=1000,gid=4294967295,everybody")",
        R"("openTo": ["uid=1000", "gid=4294967295,everybody"])",
        R"("open_to": {"uids": [1000], "gids": [4294967295], "everybody": true})"}) {
    const auto read = ReadOpenToOf(open_to);
    ASSERT_TRUE(read.ok()) << open_to << ": " << read.status();
    EXPECT_EQ(*read, all) << open_to;
  }
  EXPECT_EQ(*ReadOpenToOf(R"("open_to": "uid=1000")"), "uids: 1000");
}

TEST(BatchFileTest, WhoIsNobodyIsNamed) {
  for (const char* open_to : {R"("open_to": "alice")", R"("open_to": "")", R"("open_to": ["uid="])",
                              R"("open_to": [1000])", R"("open_to": 1000)"}) {
    EXPECT_EQ(ReasonOf(ReadOpenToOf(open_to).status()), "BAD_BATCH_FILE") << open_to;
  }
  EXPECT_THAT(std::string(ReadOpenToOf(R"("open_to": "uid=alice")").status().message()),
              testing::HasSubstr("uid=alice"));
}

}  // namespace
}  // namespace cxlpool::cli
