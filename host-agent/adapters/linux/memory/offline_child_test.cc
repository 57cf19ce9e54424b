#include "host-agent/adapters/linux/memory/offline_child.h"

#include <sys/stat.h>

#include <cerrno>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {
namespace {

class OfflineChildTest : public testing::Test {
 protected:
  FakeHost host_;
  OfflineChild child_;
};

TEST_F(OfflineChildTest, WritesEveryFile) {
  host_.Put("a", "");
  host_.Put("b", "");
  const auto outcome =
      child_.Run({host_.Path("a"), host_.Path("b")}, Deadline::In(absl::Seconds(30)));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_FALSE(outcome->killed);
  EXPECT_EQ(outcome->error, 0);
  EXPECT_EQ(host_.files().Read("a"), "offline");
  EXPECT_EQ(host_.files().Read("b"), "offline");
}

TEST_F(OfflineChildTest, GoesOnAfterAFailureAndTellsTheFirst) {
  host_.Put("b", "");
  const auto outcome =
      child_.Run({host_.Path("missing"), host_.Path("b")}, Deadline::In(absl::Seconds(30)));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->error, ENOENT);
  EXPECT_EQ(host_.files().Read("b"), "offline");
}

TEST_F(OfflineChildTest, IsKilledAtTheDeadlineAndCanBeRunAgain) {
  // Opening a FIFO for writing blocks while nobody reads: a stand-in for a kernel that hangs.
  ASSERT_EQ(mkfifo(host_.Path("hangs").c_str(), 0600), 0);
  host_.Put("b", "");
  const auto killed = child_.Run({host_.Path("hangs")}, Deadline::In(absl::Milliseconds(50)));
  ASSERT_TRUE(killed.ok()) << killed.status();
  EXPECT_TRUE(killed->killed);
  const auto outcome = child_.Run({host_.Path("b")}, Deadline::In(absl::Seconds(30)));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_FALSE(outcome->killed);
}

}  // namespace
}  // namespace cxlpool::agent
