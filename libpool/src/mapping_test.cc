#include "cxlpool/mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "cxlpool/client.h"
#include "cxlpool/error.h"
#include "libpool/examples/pattern.h"
#include "test/rigs/fake_agent.h"

namespace cxlpool {
namespace {

using libpool::FakeAgent;

constexpr char kName[] = "regions/kv";
constexpr uint64_t kMiB = 1 << 20;

class MappingTest : public ::testing::Test {
 protected:
  Region Open(Access access = Access::kReadWrite) {
    client_ = Client::Connect({.socket_path = agent_.socket_path()});
    return client_->Open(kName, {.access = access}).value();
  }

  FakeAgent agent_;
  absl::StatusOr<Client> client_ = absl::UnavailableError("not connected");
};

TEST_F(MappingTest, SeveralSegmentsAreOneRange) {
  agent_.Add({.name = kName,
              .segment_bytes = {4 * kMiB, 2 * kMiB, 6 * kMiB},
              .alignment_bytes = 2 * kMiB});
  const Region region = Open();
  auto mapping = region.Map();
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  ASSERT_EQ(mapping->bytes().size(), 12 * kMiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(mapping->bytes().data()) % (2 * kMiB), 0u);
  examples::FillPattern(mapping->mutable_bytes(), 42);

  // The third file holds what lies from 6 MiB on.
  std::ifstream third(agent_.FilePath(kName, 2), std::ios::binary);
  uint64_t word = 0;
  third.read(reinterpret_cast<char*>(&word), sizeof word);
  EXPECT_EQ(word, examples::PatternWord(42, 6 * kMiB / sizeof word));

  const auto again = Open(Access::kReadOnly).Map();
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(examples::VerifyPattern(again->bytes(), 42).words, 0u);
  EXPECT_EQ(examples::VerifyPattern(again->bytes(), 43).words, 12 * kMiB / 8);
}

TEST_F(MappingTest, ARegionThatGrewIsSeenByWhoOpensItAgain) {
  agent_.Add({.name = kName, .segment_bytes = {4 * kMiB}, .alignment_bytes = 2 * kMiB});
  const Region small = Open();
  auto before = small.Map();
  ASSERT_TRUE(before.ok()) << before.status();
  agent_.Add({.name = kName, .segment_bytes = {4 * kMiB, 2 * kMiB}, .alignment_bytes = 2 * kMiB});
  const Region large = client_->Open(kName).value();
  auto after = large.Map();
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(small.size_bytes(), 4 * kMiB);
  EXPECT_EQ(large.size_bytes(), 6 * kMiB);
  EXPECT_EQ(before->bytes().size(), 4 * kMiB);
  examples::FillPattern(after->mutable_bytes(), 7);
  EXPECT_EQ(examples::VerifyPattern(before->bytes(), 7).words, 0u);  // The same bytes.
}

TEST_F(MappingTest, AReadOnlyRegionMapsReadOnly) {
  agent_.Add({.name = kName, .access = v1::READ_ONLY});
  const Region region = Open(Access::kReadOnly);
  const auto mapping = region.Map();
  ASSERT_TRUE(mapping.ok());
  EXPECT_FALSE(mapping->writable());
  EXPECT_EQ(mapping->bytes().size(), kMiB);
  EXPECT_TRUE(mapping->mutable_bytes().empty());
}

TEST_F(MappingTest, TheKernelRefusesAWritableMapOfAReadOnlyRegion) {
  agent_.Add({.name = kName, .access = v1::READ_ONLY});
  const absl::Status status = Open(Access::kReadOnly).Map({.writable = true}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ErrorReason(status), "MAP_FAILED");
  EXPECT_EQ(ErrnoOf(status), EACCES);
  EXPECT_NE(std::string(status.message()).find("EACCES"), std::string::npos);
}

TEST_F(MappingTest, AReadOnlyMapCannotBeMadeWritable) {
  agent_.Add({.name = kName, .access = v1::READ_ONLY});
  const auto mapping = Open(Access::kReadOnly).Map();
  ASSERT_TRUE(mapping.ok());
  auto* address = const_cast<std::byte*>(mapping->bytes().data());
  EXPECT_EQ(::mprotect(address, 4096, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(errno, EACCES);
}

TEST_F(MappingTest, AReadWriteRegionMapsReadOnlyOnRequest) {
  agent_.Add({.name = kName});
  const auto mapping = Open().Map({.writable = false});
  ASSERT_TRUE(mapping.ok());
  EXPECT_FALSE(mapping->writable());
}

TEST_F(MappingTest, MovesWithItsBytesAndUnmapsOnce) {
  agent_.Add({.name = kName});
  const Region region = Open();
  auto first = region.Map();
  auto second = region.Map();
  ASSERT_TRUE(first.ok() && second.ok());
  const std::byte* where = first->bytes().data();
  Mapping moved = *std::move(first);
  EXPECT_EQ(moved.bytes().data(), where);
  moved = *std::move(second);
  EXPECT_EQ(moved.bytes().size(), kMiB);
  // The range that was assigned over is gone.
  unsigned char resident = 0;
  EXPECT_EQ(::mincore(const_cast<std::byte*>(where), 4096, &resident), -1);
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(MappingTest, SystemRamHasNothingToMap) {
  agent_.Add({.name = kName, .mode = v1::SYSTEM_RAM, .numa_node = 3});
  const Region region = Open();
  EXPECT_EQ(region.numa_node(), 3);
  EXPECT_EQ(region.mode(), Mode::kSystemRam);
  const absl::Status status = region.Map().status();
  EXPECT_EQ(ErrorReason(status), "SYSTEM_RAM");
  EXPECT_NE(ErrorRemedy(status).find("BindToNode"), std::string::npos);
}

TEST_F(MappingTest, ARegionTakenBackIsRefusedNotMapped) {
  agent_.Add({.name = kName});
  const Region region = Open();
  ASSERT_EQ(::truncate(agent_.FilePath(kName, 0).c_str(), 0), 0);
  EXPECT_EQ(ErrorReason(region.Map().status()), "BACKING_SHORT");
}

TEST_F(MappingTest, AFailureInALaterSegmentLeavesNothingMapped) {
  agent_.Add({.name = kName, .segment_bytes = {kMiB, kMiB}});
  const Region region = Open();
  ASSERT_EQ(::truncate(agent_.FilePath(kName, 1).c_str(), 4096), 0);
  EXPECT_FALSE(region.Map().ok());
  std::ifstream maps("/proc/self/maps");
  const std::string all((std::istreambuf_iterator<char>(maps)), {});
  EXPECT_EQ(all.find(agent_.FilePath(kName, 0)), std::string::npos);
}

TEST(PatternTest, FindsOneChangedByteAndSaysWhere) {
  alignas(8) std::byte bytes[4096];
  examples::FillPattern(bytes, 7);
  EXPECT_EQ(examples::VerifyPattern(bytes, 7).words, 0u);
  bytes[1001] ^= std::byte{1};
  const examples::Mismatches mismatches = examples::VerifyPattern(bytes, 7);
  EXPECT_EQ(mismatches.words, 1u);
  EXPECT_EQ(mismatches.first_offset, 1000u);
  EXPECT_NE(examples::VerifyZero(bytes).words, 0u);
  std::memset(bytes, 0, sizeof bytes);
  EXPECT_EQ(examples::VerifyZero(bytes).words, 0u);
}

}  // namespace
}  // namespace cxlpool
