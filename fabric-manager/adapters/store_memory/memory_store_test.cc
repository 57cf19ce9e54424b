#include "fabric-manager/adapters/store_memory/memory_store.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "test/rigs/manual_executor.h"

namespace cxlpool::fm {
namespace {

StoreBatch Put(uint64_t epoch, uint64_t base, uint64_t key) {
  return {epoch, base, base + 1, {{key, "value"}}, {}};
}

uint64_t OpenNow(MemoryStore& store) {
  uint64_t epoch = 0;
  store.Open(nullptr, [&](absl::StatusOr<StoreImage> image) { epoch = image->epoch; });
  return epoch;
}

TEST(MemoryStoreTest, ACommitTakesItsLatency) {
  ManualExecutor executor;
  auto disk = std::make_shared<MemoryDisk>();
  MemoryStore store(disk, &executor, absl::Milliseconds(5));
  uint64_t epoch = 0;
  store.Open(nullptr, [&](absl::StatusOr<StoreImage> image) { epoch = image->epoch; });
  executor.RunReady();
  ASSERT_EQ(epoch, 1u);
  absl::Status first = absl::UnknownError("no answer"), second;
  store.Commit(Put(epoch, 0, 1), [&](absl::Status status) { first = std::move(status); });
  store.Commit(Put(epoch, 1, 2), [&](absl::Status status) { second = std::move(status); });
  EXPECT_EQ(ReasonOf(second), "STORE_COMMIT_OUTSTANDING");
  executor.Advance(absl::Milliseconds(4));
  EXPECT_TRUE(absl::IsUnknown(first));
  EXPECT_EQ(disk->revision(), 0u);
  executor.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(first.ok()) << first;
}

TEST(MemoryStoreTest, CrashDropsWhatHasNotCompleted) {
  ManualExecutor executor;
  auto disk = std::make_shared<MemoryDisk>();
  auto store = std::make_unique<MemoryStore>(disk, &executor, absl::Milliseconds(5));
  store->Open(nullptr, [](absl::StatusOr<StoreImage>) {});
  executor.RunReady();
  bool completed = false;
  store->Commit(Put(1, 0, 1), [&](absl::Status) { completed = true; });
  store.reset();
  executor.Advance(absl::Seconds(1));
  EXPECT_FALSE(completed);
  EXPECT_EQ(disk->revision(), 0u);
}

TEST(MemoryStoreTest, SecondStoreOnTheDiskFencesTheFirst) {
  auto disk = std::make_shared<MemoryDisk>();
  MemoryStore first(disk), second(disk);
  const uint64_t old_epoch = OpenNow(first);
  OpenNow(second);
  absl::Status status;
  first.Commit(Put(old_epoch, 0, 1), [&](absl::Status s) { status = s; });
  EXPECT_EQ(ReasonOf(status), "STORE_FENCED");
}

TEST(MemoryStoreTest, LostAnswerLeavesTheChangeAndStopsTheStore) {
  auto disk = std::make_shared<MemoryDisk>();
  MemoryStore store(disk);
  const uint64_t epoch = OpenNow(store);
  store.FailNextCommit({absl::UnknownError("lost"), true});
  absl::Status status;
  store.Commit(Put(epoch, 0, 1), [&](absl::Status s) { status = s; });
  EXPECT_TRUE(absl::IsUnknown(status));
  EXPECT_EQ(disk->revision(), 1u);
  store.Commit(Put(epoch, 1, 2), [&](absl::Status s) { status = s; });
  EXPECT_TRUE(absl::IsUnknown(status));
  EXPECT_EQ(disk->revision(), 1u);
}

}  // namespace
}  // namespace cxlpool::fm
