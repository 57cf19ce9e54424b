// Every call of the store to its disk fails in turn, and every allocation of SQLite: the first, the
// second, and so on, until a run passes through without meeting its fault. Once, and from there on.
//
// What must hold: fault_story.h. Prints how many faults were met.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "test/store/disk_faults.h"
#include "test/store/failing_memory.h"
#include "test/store/fault_story.h"

namespace cxlpool::fm {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostFaults = 20000;  // Of one kind; a story that makes more calls never ends.

// Before SQLite is used.
const bool installed = [] {
  const bool in_time = InstallFailingMemory();
  RegisterWatchedVfs(true);
  return in_time;
}();

class StoreFaultsTest : public ::testing::TestWithParam<FaultScene> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(installed);
    std::string pattern = (fs::temp_directory_path() / "cxlpool-faults-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::unique_ptr<FaultStory> Story(bool disk) {
    return std::make_unique<FaultStory>(GetParam(), disk, directory_,
                                        CXLPOOL_STORES "/first-release.db");
  }

  // `fault(n)` makes fault number n and says, when it goes, whether it was met.
  template <typename MakeFault>
  void FailEach(const std::string& name, FaultStory& story, MakeFault make_fault) {
    uint64_t number = 1;
    bool hit = true;
    for (; hit && number <= kMostFaults; ++number) {
      ASSERT_TRUE(story.Reset().ok());
      absl::Status status;
      {
        const auto fault = make_fault(number);
        status = story.Run();
        hit = fault->hit();
      }
      EXPECT_TRUE(status.ok()) << name << " at call " << number << ": " << status;
      status = story.CheckAfterwards();
      EXPECT_TRUE(status.ok()) << "after " << name << " at call " << number << ": " << status;
      if (HasFailure()) return;
    }
    ASSERT_FALSE(hit) << name << ": no end";
    met_ += number - 2;  // The last run met none.
  }

  std::string directory_;
  uint64_t met_ = 0;
};

TEST_P(StoreFaultsTest, EachDiskCallFails) {
  const auto story = Story(true);
  const DiskFault faults[] = {
      {"a full disk", DiskOp::kWrite, ENOSPC},
      {"a disk that fills up in a write", DiskOp::kWrite, ENOSPC, true},
      {"a quota", DiskOp::kWrite, EDQUOT},
      {"a quota that is reached in a write", DiskOp::kWrite, EDQUOT, true},
      {"a failed write", DiskOp::kWrite, EIO},
      {"a write that fails half-way", DiskOp::kWrite, EIO, true},
      {"a failed sync", DiskOp::kSync, EIO},
      {"a sync of a full disk", DiskOp::kSync, ENOSPC},
      {"a failed sync of the directory", DiskOp::kSyncDirectory, EIO},
      {"a failed read", DiskOp::kRead, EIO},
      {"a failed truncation", DiskOp::kTruncate, EIO},
      {"a failed open", DiskOp::kOpen, EIO},
      {"too many open files", DiskOp::kOpen, EMFILE},
      {"a failed rename", DiskOp::kRename, EIO},
      {"a failed unlink", DiskOp::kUnlink, EIO},
  };
  for (DiskFault fault : faults) {
    for (const bool lasting : {false, true}) {
      fault.lasting = lasting;
      FailEach(absl::StrCat(fault.name, lasting ? ", for good" : ""), *story,
               [&](uint64_t number) { return std::make_unique<NthDiskFault>(fault, number); });
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(met_, 100u);
  std::cout << met_ << " disk faults\n";
}

TEST_P(StoreFaultsTest, EachAllocationFails) {
  const auto story = Story(false);
  for (const bool lasting : {false, true}) {
    FailEach(lasting ? "no more memory" : "a failed allocation", *story, [&](uint64_t number) {
      return std::make_unique<NthAllocationFails>(number, lasting);
    });
  }
  EXPECT_GT(met_, 100u);
  std::cout << met_ << " failed allocations\n";
}

std::string SceneName(const ::testing::TestParamInfo<FaultScene>& info) {
  switch (info.param) {
    case FaultScene::kNew:
      return "New";
    case FaultScene::kWithLog:
      return "WithLog";
    case FaultScene::kMigration:
      return "Migration";
    case FaultScene::kRepair:
      return "Repair";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(Scenes, StoreFaultsTest,
                         ::testing::Values(FaultScene::kNew, FaultScene::kWithLog,
                                           FaultScene::kMigration, FaultScene::kRepair),
                         SceneName);

}  // namespace
}  // namespace cxlpool::fm
