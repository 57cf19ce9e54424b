// Copies by the calling thread: each kernel, what is written back, and what a map makes of them.
#include "libpool/src/copy.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cxlpool/pool.h"
#include "libpool/src/copy_kernels.h"
#include "libpool/src/copy_plan.h"
#include "libpool/src/reason_for_test.h"
#include "test/rigs/fake_agent.h"

namespace cxlpool::libpool {
namespace {

constexpr size_t kPageSize = 4096;
constexpr size_t kLineBytes = 64;
constexpr std::byte kUntouched{0xee};

// Some pages between two that nobody may load from or store to.
class Fenced {
 public:
  explicit Fenced(size_t pages) : bytes_(pages * kPageSize) {
    at_ = static_cast<std::byte*>(
        ::mmap(nullptr, bytes_ + 2 * kPageSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (at_ == MAP_FAILED || ::mprotect(begin(), bytes_, PROT_READ | PROT_WRITE) != 0) std::abort();
    std::memset(begin(), static_cast<int>(kUntouched), bytes_);
  }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  ~Fenced() { ::munmap(at_, bytes_ + 2 * kPageSize); }
  std::byte* begin() const { return at_ + kPageSize; }
  std::byte* end() const { return begin() + bytes_; }

  // `size` bytes that begin at `alignment` of a line: as near to the front or the back as can be.
  std::byte* Place(size_t size, size_t alignment, bool front) const {
    if (front) return begin() + alignment;
    std::byte* const last = end() - size;
    return last - (reinterpret_cast<uintptr_t>(last) - alignment) % kLineBytes;
  }

 private:
  size_t bytes_ = 0;
  std::byte* at_ = nullptr;
};

bool AreUntouched(const std::byte* at, size_t size) {
  static const std::vector<std::byte> untouched(kLineBytes, kUntouched);
  return std::memcmp(at, untouched.data(), size) == 0;
}

void ExpectCopies(const CopyKernel& kernel, const Fenced& from, const Fenced& to, size_t size,
                  size_t alignment) {
  // The source has another alignment, and lies at the other end.
  const bool front = (size + alignment) % 2 == 0;
  const std::byte* const source = from.Place(size, (alignment * 7 + size) % kLineBytes, !front);
  std::byte* const target = to.Place(size, alignment, front);
  kernel.copy(target, source, size);
  ASSERT_EQ(std::memcmp(target, source, size), 0)
      << kernel.name << ": " << size << " bytes at " << alignment;
  // A line before and a line behind, as far as the pages go.
  const size_t before = std::min<size_t>(kLineBytes, static_cast<size_t>(target - to.begin()));
  const size_t behind = std::min<size_t>(kLineBytes, static_cast<size_t>(to.end() - target) - size);
  ASSERT_TRUE(AreUntouched(target - before, before) && AreUntouched(target + size, behind))
      << kernel.name << ": stores outside of " << size << " bytes at " << alignment;
  std::memset(target, static_cast<int>(kUntouched), size);
}

TEST(CopyKernelsTest, EachCopiesAnyNumberOfBytesAtAnyAlignment) {
  const Fenced from(2), to(2);
  for (std::byte* at = from.begin(); at < from.end(); ++at) {
    *at = std::byte(static_cast<unsigned char>((at - from.begin()) * 167 >> 3));
  }
  EXPECT_STREQ(CopyKernels()[0].name, "memcpy");
  for (const CopyKernel& kernel : CopyKernels()) {
    for (size_t alignment = 0; alignment < kLineBytes; ++alignment) {
      for (size_t size = 0; size <= kPageSize + 1; ++size) {
        ExpectCopies(kernel, from, to, size, alignment);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// What the last CopyAndPublish had written back.
std::vector<std::pair<uintptr_t, size_t>> g_written_back;
void RecordWriteBack(const void* data, size_t size) {
  g_written_back.emplace_back(reinterpret_cast<uintptr_t>(data), size);
}

bool WasWrittenBack(uintptr_t line) {
  for (const auto& [begin, size] : g_written_back) {
    if (begin < line + kLineBytes && begin + size > line) return true;
  }
  return false;
}

TEST(CopyKernelsTest, EachLineOfAPutIsStoredPastTheCachesOrWrittenBack) {
  const Fenced from(1), to(1);
  for (const CopyKernel& kernel : CopyKernels()) {
    for (size_t alignment = 0; alignment < kLineBytes; ++alignment) {
      for (size_t size = 1; size < 4 * kLineBytes; ++size) {
        std::byte* const target = to.begin() + alignment;
        g_written_back.clear();
        CopyAndPublish(kernel, target, from.begin(), size, RecordWriteBack);
        const auto begin = reinterpret_cast<uintptr_t>(target);
        for (uintptr_t line = begin & ~(kLineBytes - 1); line < begin + size; line += kLineBytes) {
          const bool whole = line >= begin && line + kLineBytes <= begin + size;
          ASSERT_TRUE((whole && kernel.past_caches) || WasWrittenBack(line))
              << kernel.name << ": " << size << " bytes at " << alignment;
        }
        g_written_back.clear();
        CopyAndPublish(kernel, target, from.begin(), size, nullptr);
        ASSERT_TRUE(g_written_back.empty());
      }
    }
  }
}

TEST(CopyPlanTest, SmallCopiesAreMemcpysAndGetsStayInTheCaches) {
  const CopyPlan plan = CopyPlan::Measure(std::chrono::milliseconds(1));
  for (const CopyUse use : {CopyUse::kPut, CopyUse::kPublishPut, CopyUse::kGet}) {
    for (size_t bytes = 0; bytes < CopyPlan::kLeastBytes; ++bytes) {
      EXPECT_STREQ(plan.Of(use, bytes).name, "memcpy");
    }
    for (size_t bytes = CopyPlan::kLeastBytes; bytes <= size_t{1} << 40; bytes *= 2) {
      const CopyKernel& kernel = plan.Of(use, bytes);
      EXPECT_NE(kernel.copy, nullptr);
      EXPECT_FALSE(use == CopyUse::kGet && kernel.past_caches) << bytes;
    }
  }
}

class CopyTest : public ::testing::TestWithParam<v1::Coherence> {
 protected:
  static constexpr uint64_t kBytes = 4 << 20;
  CopyTest() {
    agent_.Add({.name = "regions/kv", .coherence = GetParam(), .segment_bytes = {kBytes}});
  }
  Region Open() { return pool_.Open("kv").value(); }

  FakeAgent agent_;
  Pool pool_ = Pool::Connect({.socket_path = agent_.socket_path()}).value();
};

std::vector<std::byte> Pattern(size_t bytes, unsigned seed) {
  std::vector<std::byte> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) pattern[i] = std::byte((i * 31 + seed * 17 + (i >> 9)) & 0xff);
  return pattern;
}

TEST_P(CopyTest, WhatWasPutIsWhatOneGets) {
  const Mapping mapping = Open().Map({.offset_bytes = kPageSize}).value();
  unsigned seed = 0;
  for (const size_t size : {0, 1, 64, 1000, 1024, 4097, 70'001, 600'000, 3'000'001}) {
    for (const uint64_t offset : {0, 1, 63, 4096, 70'003}) {
      const std::vector<std::byte> put = Pattern(size, ++seed);
      std::vector<std::byte> got(size);
      ASSERT_TRUE(mapping.Put(offset, put).ok());
      ASSERT_EQ(std::memcmp(mapping.data() + offset, put.data(), size), 0) << size;
      ASSERT_TRUE(mapping.Get(offset, got).ok());
      ASSERT_EQ(put, got) << size << " at " << offset;
    }
  }
}

TEST_P(CopyTest, WhatCannotBeCopiedIsRefused) {
  const Mapping mapping = Open().Map().value();
  const Mapping read_only = Open().Map({.writable = false}).value();
  std::vector<std::byte> some(100);
  EXPECT_EQ(ReasonOf(mapping.Put(kBytes - 99, some)), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonOf(mapping.Get(~uint64_t{0}, some)), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonOf(mapping.Put(0, mapping.bytes().subspan(50, 100))), "BAD_ARGUMENT");
  EXPECT_TRUE(mapping.Put(0, mapping.bytes().subspan(100, 100)).ok()) << "they only touch";
  EXPECT_TRUE(mapping.Get(kBytes, {}).ok());
  const Result<void> refused = read_only.Put(0, some);
  EXPECT_EQ(ReasonOf(refused), "MAP_READ_ONLY");
  EXPECT_EQ(refused.error().code, CXLPOOL_PERMISSION_DENIED);
  EXPECT_TRUE(read_only.Get(0, some).ok());

  cxlpool_error error = CXLPOOL_ERROR_INIT;
  EXPECT_EQ(cxlpool_get(mapping.handle(), 0, nullptr, 1, nullptr, &error),
            CXLPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(cxlpool_put(nullptr, 0, some.data(), 1, nullptr, &error), CXLPOOL_INVALID_ARGUMENT);
}

TEST_P(CopyTest, LostMemoryIsAnErrorThatSaysWhere) {
  const Mapping mapping = Open().Map({.offset_bytes = kPageSize}).value();
  std::vector<std::byte> bytes(3 * kPageSize);
  ASSERT_EQ(::truncate(agent_.FilePath("regions/kv", 0).c_str(), 10 * kPageSize), 0);
  EXPECT_TRUE(mapping.Put(6 * kPageSize, bytes).ok()) << "up to the end of what is there";
  for (const bool put : {true, false}) {
    cxlpool_lost lost = CXLPOOL_LOST_INIT;
    cxlpool_error error = CXLPOOL_ERROR_INIT;
    const int code = put ? cxlpool_put(mapping.handle(), 7 * kPageSize, bytes.data(), bytes.size(),
                                       &lost, &error)
                         : cxlpool_get(mapping.handle(), 7 * kPageSize, bytes.data(), bytes.size(),
                                       &lost, &error);
    EXPECT_EQ(code, CXLPOOL_FAILED_PRECONDITION);
    EXPECT_STREQ(error.reason, "REVOKED");
    // Of the Region. Which byte of the page is up to the kernel's way of copying.
    EXPECT_EQ(lost.region_offset_bytes / kPageSize, 10u) << put;
  }
  EXPECT_TRUE(mapping.Get(0, bytes).ok()) << "what is there can be had as before";
}

INSTANTIATE_TEST_SUITE_P(Both, CopyTest, ::testing::Values(v1::SOFTWARE, v1::HARDWARE));

}  // namespace
}  // namespace cxlpool::libpool
