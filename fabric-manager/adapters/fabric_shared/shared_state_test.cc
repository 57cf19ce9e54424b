#include "fabric-manager/adapters/fabric_shared/shared_state.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
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

// Each file cut off anywhere, emptied, removed, or with one character changed.
TEST_F(SharedStateTest, NoDamageIsReadAsSomethingElse) {
  const Clearing clearing{"host-a", "boot-1", {"cmm-0", 8192, 40960}};
  const auto write = [](const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::trunc) << text;
  };
  {
    auto state = SharedState::Open(directory_);
    ASSERT_TRUE(state.ok()) << state.status();
    ASSERT_TRUE(state->Add(clearing).ok());
  }
  for (const char* file : {"identity", "clearing"}) {
    const std::string path = directory_ + "/" + file;
    std::string whole;
    {
      std::ifstream in(path);
      whole.assign(std::istreambuf_iterator<char>(in), {});
    }
    const auto refused = [&](const std::string& what) {
      const absl::Status status = SharedState::Open(directory_).status();
      EXPECT_EQ(ReasonOf(status), "STATE_DAMAGED") << file << ": " << what << ": " << status;
    };
    // An identity of one line is one of an earlier release, and as whole as that was.
    const size_t least = whole.find('\n') + 1;
    for (size_t length = 0; length < whole.size(); ++length) {
      if (file == std::string("identity") && (length == least || length + 1 == least)) continue;
      write(path, whole.substr(0, length));
      refused(absl::StrCat("cut off at ", length));
    }
    for (size_t at = 0; at < whole.size(); ++at) {
      std::string changed = whole;
      changed[at] = changed[at] == '4' ? '5' : '4';
      write(path, changed);
      refused(absl::StrCat("changed at ", at));
    }
    std::filesystem::remove(path);
    refused("removed");
    write(path, whole);
  }
  const auto state = SharedState::Open(directory_);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->clearings(), std::vector<Clearing>{clearing});
}

TEST_F(SharedStateTest, ALostIdentityIsNoNewPool) {
  ASSERT_TRUE(SharedState::Open(directory_).ok());
  std::filesystem::remove(directory_ + "/identity");
  EXPECT_EQ(ReasonOf(SharedState::Open(directory_).status()), "STATE_DAMAGED");
}

// As an earlier release left it, and as the remedy for a damaged `clearing` makes it.
TEST_F(SharedStateTest, FilesWithoutAChecksumAreReadAndWrittenAnew) {
  const std::string uuid = "11111111-2222-4333-8444-555555555555";
  const Clearing clearing{"host-a", "boot-1", {"cmm-0", 8192, 4096}};
  for (const char* end : {"", "\n"}) {
    for (const bool clears : {false, true}) {
      std::filesystem::remove(directory_ + "/clearing");
      std::ofstream(directory_ + "/identity", std::ios::trunc) << uuid << end;
      if (clears)
        std::ofstream(directory_ + "/clearing") << "host-a 626f6f742d31 cmm-0 8192 4096\n";
      for (int opened = 0; opened < 2; ++opened) {
        const auto state = SharedState::Open(directory_);
        ASSERT_TRUE(state.ok()) << state.status();
        EXPECT_EQ(state->pool(), uuid);
        EXPECT_EQ(state->clearings().size(), clears ? 1u : 0u);
        if (clears) {
          EXPECT_EQ(state->clearings().at(0), clearing);
        }
      }
      // From now on it has to be there.
      std::filesystem::remove(directory_ + "/clearing");
      EXPECT_EQ(ReasonOf(SharedState::Open(directory_).status()), "STATE_DAMAGED");
    }
  }
}

}  // namespace
}  // namespace cxlpool::fm
