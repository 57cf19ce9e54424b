// The example programs, run for real against an agent on a socket: what they say, how they end.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "test/rigs/fake_agent.h"

namespace cxlpool::libpool {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int code = -1;
  std::string output;  // stdout and stderr.
};

class ExamplesTest : public ::testing::Test {
 protected:
  Outcome Run(const std::string& command, const std::string& socket_path) const {
    const std::string file = dir_.Path("output");
    const int status = std::system(("CXLPOOL_SOCKET=" + socket_path + " " + EXAMPLES_DIR + "/" +
                                    command + " >" + file + " 2>&1")
                                       .c_str());
    std::ostringstream output;
    output << std::ifstream(file).rdbuf();
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output.str()};
  }
  Outcome Run(const std::string& command) const { return Run(command, agent_.socket_path()); }

  const TempDir dir_;
  FakeAgent agent_;
};

TEST_F(ExamplesTest, WhatIsWrittenIsVerified) {
  agent_.Add({.name = "regions/kv", .segment_bytes = {1 << 20, 3 << 20}});
  const Outcome written = Run("pool-write --region kv --seed 7");
  EXPECT_EQ(written.code, 0) << written.output;
  EXPECT_THAT(written.output, HasSubstr("wrote 4194304 bytes of regions/kv in "));
  const Outcome verified = Run("pool-verify --region regions/kv --seed 7");
  EXPECT_EQ(verified.code, 0) << verified.output;
  EXPECT_THAT(verified.output, HasSubstr("verified 4194304 bytes of regions/kv in "));
  EXPECT_TRUE(agent_.AwaitOpens("regions/kv", 0));
}

TEST_F(ExamplesTest, OnlyTheFirstBytesAreWritten) {
  agent_.Add({.name = "regions/kv", .segment_bytes = {1 << 20, 3 << 20}});
  const Outcome written = Run("pool-write --region kv --seed 7 --bytes 2MiB");
  EXPECT_THAT(written.output, HasSubstr("wrote 2097152 bytes of regions/kv in "));
  const Outcome verified = Run("pool-verify --region kv --seed 7 --bytes 2MiB");
  EXPECT_EQ(verified.code, 0) << verified.output;
  EXPECT_THAT(verified.output, HasSubstr("verified 2097152 bytes of regions/kv in "));
  const Outcome all = Run("pool-verify --region kv --seed 7");
  EXPECT_THAT(all.output, HasSubstr("262144 of 524288 words differ"));
}

TEST_F(ExamplesTest, AMismatchIsExitCodeOne) {
  agent_.Add({.name = "regions/kv"});
  EXPECT_EQ(Run("pool-verify --region kv --expect-zero").code, 0);
  ASSERT_EQ(Run("pool-write --region kv --seed 7").code, 0);
  const Outcome other = Run("pool-verify --region kv --seed 8");
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.output, HasSubstr("131072 of 131072 words differ"));
  EXPECT_EQ(Run("pool-verify --region kv --expect-zero").code, 1);

  const int file = ::open(agent_.FilePath("regions/kv", 0).c_str(), O_WRONLY | O_CLOEXEC);
  EXPECT_EQ(::pwrite(file, "?", 1, 8193), 1);
  ::close(file);
  const Outcome changed = Run("pool-verify --region kv --seed 7");
  EXPECT_EQ(changed.code, 1);
  EXPECT_THAT(changed.output, HasSubstr("the first at byte 8192 "));
}

TEST_F(ExamplesTest, AllocatesByNameAndSize) {
  const Outcome outcome = Run("pool-write --allocate 2MiB --name mine --sharing single-writer");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("wrote 2097152 bytes of regions/mine"));
  EXPECT_EQ(agent_.Requests().at(0).allocate().sharing(), v1::SINGLE_WRITER);
  EXPECT_FALSE(agent_.Requests().at(0).allocate().persistent());
  EXPECT_EQ(Run("pool-verify --region mine").code, 0);
  const size_t before = agent_.Requests().size();
  EXPECT_EQ(Run("pool-write --allocate 2MiB --name kept --persistent").code, 0);
  EXPECT_TRUE(agent_.Requests().at(before).allocate().persistent());
}

TEST_F(ExamplesTest, TryWriteSucceedsWhereItIsRefused) {
  agent_.Add({.name = "regions/kv", .access = v1::READ_ONLY});
  const Outcome refused = Run("pool-verify --region kv --try-write");
  EXPECT_EQ(refused.code, 0) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("refused with EACCES"));
  EXPECT_EQ(Run("pool-write --region kv").code, 3);
}

TEST_F(ExamplesTest, RefusalsAreExitCodeThreeAndSayWhatToDo) {
  const Outcome missing = Run("pool-verify --region none --wait 0");
  EXPECT_EQ(missing.code, 3);
  EXPECT_THAT(missing.output, HasSubstr("regions/none is not attached to this host"));
  const Outcome alone = Run("pool-write --region kv", dir_.Path("no.sock"));
  EXPECT_EQ(alone.code, 3);
  EXPECT_THAT(alone.output, HasSubstr("start cxlpool-agent or set CXLPOOL_SOCKET"));
}

TEST_F(ExamplesTest, BadUsageIsExitCodeTwo) {
  for (const char* command :
       {"pool-write", "pool-write --region a --allocate 1MiB", "pool-write --region a --name b",
        "pool-write --allocate lots", "pool-write --region a --persistent",
        "pool-write --region a --seed x", "pool-verify",
        "pool-verify --region a --try-write --node", "pool-verify --region a --try-write --bytes 1",
        "pool-write --region a --bytes 0", "pool-write --region a --bytes 12",
        "pool-verify --region a --bytes 4"}) {
    EXPECT_EQ(Run(command).code, 2) << command;
  }
  const Outcome help = Run("pool-verify --help");
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.output, HasSubstr("Exit codes: 0 ok"));
}

TEST_F(ExamplesTest, TheNodeOfSystemRamIsUsed) {
  agent_.Add({.name = "regions/ram",
              .mode = v1::SYSTEM_RAM,
              .segment_bytes = {4 << 20},
              .numa_nodes = {0}});
  const Outcome used = Run("pool-verify --region ram --node --bytes 1MiB");
  if (used.code == 3) GTEST_SKIP() << "no NUMA calls here: " << used.output;
  EXPECT_EQ(used.code, 0) << used.output;
  EXPECT_THAT(used.output, HasSubstr("node 0: 256 pages"));
  agent_.Add({.name = "regions/kv"});
  EXPECT_EQ(Run("pool-verify --region kv --node").code, 3);
  EXPECT_EQ(Run("pool-write --region ram").code, 3);
}

TEST_F(ExamplesTest, HelloPoolGivesBackWhatItTook) {
  const Outcome outcome = Run("hello-pool");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  const auto requests = agent_.Requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_TRUE(requests[1].has_close());
  EXPECT_EQ(requests[2].release().name(), "regions/hello");
}

}  // namespace
}  // namespace cxlpool::libpool
