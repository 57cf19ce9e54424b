#include "fabric-manager/adapters/fabric_shared/shared_state.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

class SharedStateTest : public testing::Test {
 protected:
  SharedStateTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
  }
  ~SharedStateTest() override { std::filesystem::remove_all(directory_); }

  std::string Pool() const {
    const auto state = SharedState::Open(directory_ + "/state");
    EXPECT_TRUE(state.ok()) << state.status();
    return state.ok() ? state->pool() : "";
  }

  std::string directory_;
};

TEST_F(SharedStateTest, ThePoolKeepsItsIdentity) {
  const std::string pool = Pool();
  EXPECT_EQ(pool.size(), 36u);
  EXPECT_EQ(Pool(), pool);
}

TEST_F(SharedStateTest, OneManagerAtATime) {
  const auto state = SharedState::Open(directory_);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(ReasonOf(SharedState::Open(directory_).status()), "FABRIC_BUSY");
}

TEST_F(SharedStateTest, ClearingsOutliveTheManager) {
  const Clearing first{"host-a", "boot 1\n", {"cmm-0", 0, 4096}};
  const Clearing second{"host-b", "boot-2", {"cmm-0", 8192, 4096}};
  {
    auto state = SharedState::Open(directory_);
    ASSERT_TRUE(state.ok()) << state.status();
    for (const Clearing& each : {first, second, first}) EXPECT_TRUE(state->Add(each).ok());
  }
  auto state = SharedState::Open(directory_);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->clearings(), (std::vector<Clearing>{first, second}));
  EXPECT_TRUE(state->Remove(first).ok());
  EXPECT_EQ(state->clearings(), (std::vector<Clearing>{second}));
}

TEST_F(SharedStateTest, DamageIsSaid) {
  for (const char* file : {"identity", "clearing"}) {
    const std::string directory = directory_ + "/" + file;
    std::filesystem::create_directory(directory);
    std::ofstream(directory + "/" + file) << "half a";
    EXPECT_EQ(ReasonOf(SharedState::Open(directory).status()), "STATE_DAMAGED") << file;
  }
}

}  // namespace
}  // namespace cxlpool::fm
