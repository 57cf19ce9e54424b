// Copies that come back from SIGBUS by themselves: what they copy, each instruction that can meet a
// fault, and whose faults they leave to others. Pages beyond the end of a file stand for memory
// that was taken away, as in bus_guard_test.cc.
#include "libpool/src/caught_copy.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "cxlpool/pool.h"
#include "libpool/src/bus_fault_for_test.h"
#include "libpool/src/bus_guard.h"
#include "libpool/src/copy_kernels.h"
#include "libpool/src/reason_for_test.h"
#include "test/rigs/fake_agent.h"

namespace cxlpool::libpool {
namespace {

constexpr size_t kPages = 3;
constexpr size_t kThereBytes = kPages * kPageBytes;

// Pages that are there and pages that have gone, all of whose faults are caught.
struct CutRange {
  CutRange() {
    range.begin = begin();
    range.bytes = cut.size();
  }
  std::byte* begin() const { return reinterpret_cast<std::byte*>(cut.begin()); }
  std::byte* gone() const { return begin() + kThereBytes; }

  const Cut cut{kPages};
  CaughtRange range;
};

// Our handler comes first from now on.
void ComeFirst() {
  ASSERT_TRUE(RunGuarded(
                  nullptr, 0, [](void*) {}, nullptr)
                  .ok());
}

struct Named {
  const char* name;
  CaughtCopy copy;
  size_t least_bytes = 0, most_bytes = kThereBytes;
};

// Every caught copy that this processor can run: those of the kernels, and what these are made of.
std::vector<Named> CaughtCopies() {
  std::vector<Named> copies;
  for (const CopyKernel& kernel : CopyKernels()) {
    if (kernel.caught != nullptr) copies.push_back({kernel.name, kernel.caught});
  }
#ifdef CXLPOOL_HAS_CAUGHT_COPIES
  if (HasCaughtCopies()) {
    copies.push_back({"by 32", cxlpool_caught_copy_32});
    copies.push_back(
        {"few",
         [](std::byte* to, const std::byte* from, size_t bytes, const CaughtRange& range) {
           return CopyFewCaught(to, from, bytes, range);
         },
         kFewBytes, kMaxFewBytes});
  }
#endif
  return copies;
}

class CaughtCopyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (copies_.empty()) GTEST_SKIP() << "this processor or build has no caught copies";
    ComeFirst();
  }
  const std::vector<Named> copies_ = CaughtCopies();
};

std::vector<std::byte> MadeUp(size_t bytes) {
  std::vector<std::byte> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) pattern[i] = std::byte((i * 167 >> 3) & 0xff);
  return pattern;
}

TEST_F(CaughtCopyTest, EachCopiesAnyNumberOfBytesAtAnyAlignment) {
  constexpr size_t kMargin = 64;
  const std::vector<std::byte> from = MadeUp(kPageBytes + 3 * kMargin);
  std::vector<std::byte> to(from.size() + 2 * kMargin);
  const CaughtRange range;
  for (const Named& copy : copies_) {
    for (size_t alignment = 0; alignment < kMargin; ++alignment) {
      const size_t most = std::min<size_t>(copy.most_bytes, alignment % 9 == 0 ? kPageBytes : 300);
      for (size_t bytes = copy.least_bytes; bytes <= most; ++bytes) {
        std::fill(to.begin(), to.end(), std::byte{0xee});
        const std::byte* const source = &from[(alignment * 7 + bytes) % kMargin];
        std::byte* const target = &to[kMargin + alignment];
        ASSERT_TRUE(copy.copy(target, source, bytes, range)) << copy.name;
        ASSERT_EQ(std::memcmp(target, source, bytes), 0) << copy.name << " " << bytes;
        ASSERT_TRUE(target[-1] == std::byte{0xee} && target[bytes] == std::byte{0xee})
            << copy.name << ": stores outside of " << bytes << " bytes at " << alignment;
      }
    }
  }
}

// Of a range of `bytes`, the part from byte `there` on has gone: both as source and as target.
void ExpectCaught(const Named& copy, const CutRange& cut, std::byte* own, size_t bytes,
                  size_t there) {
  std::byte* const pool = cut.gone() - there;
  ASSERT_FALSE(copy.copy(pool, own, bytes, cut.range)) << copy.name << " " << bytes << " " << there;
  ASSERT_FALSE(copy.copy(own, pool, bytes, cut.range)) << copy.name << " " << bytes << " " << there;
  // The next one is as if nothing had been.
  ASSERT_TRUE(copy.copy(cut.gone() - bytes, own, bytes, cut.range)) << copy.name;
  ASSERT_TRUE(copy.copy(own, cut.gone() - bytes, bytes, cut.range)) << copy.name;
}

TEST_F(CaughtCopyTest, AFaultOfAnyByteIsCaught) {
  const CutRange cut;
  std::vector<std::byte> own(2 * kPages * kPageBytes);
  for (const Named& copy : copies_) {
    for (size_t bytes = std::max<size_t>(1, copy.least_bytes);
         bytes <= std::min<size_t>(300, copy.most_bytes); ++bytes) {
      for (const size_t there : {size_t{0}, size_t{1}, bytes / 3, bytes / 2, bytes - 1}) {
        if (there < bytes) ExpectCaught(copy, cut, own.data(), bytes, there);
        if (HasFatalFailure()) return;
      }
    }
    for (const size_t bytes : {size_t{511}, size_t{1024}, size_t{4096}, size_t{12'288}}) {
      if (bytes > copy.most_bytes) continue;
      for (size_t there = 0; there < bytes; there += there < 200 ? 1 : 61) {
        ExpectCaught(copy, cut, own.data(), bytes, there);
        if (HasFatalFailure()) return;
      }
      ExpectCaught(copy, cut, own.data(), bytes, bytes - 1);
    }
  }
}

TEST_F(CaughtCopyTest, ManyThreadsCatchTheirOwn) {
  std::vector<std::thread> threads;
  std::atomic<int> caught = 0;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      const CutRange cut;
      std::byte own[kMaxFewBytes] = {};
      for (int i = 0; i < 100; ++i) {
        const Named& copy = copies_[static_cast<size_t>(t + i) % copies_.size()];
        const size_t bytes = kFewBytes + static_cast<size_t>(i) % (kMaxFewBytes - kFewBytes);
        if (!copy.copy(cut.gone() - bytes / 2, own, bytes, cut.range)) ++caught;
        if (copy.copy(cut.begin(), own, bytes, cut.range)) ++caught;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(caught, 16 * 100 * 2);
}

TEST_F(CaughtCopyTest, WithinAGuardOnlyTheCopyIsLeft) {
  struct Work {
    const CutRange& cut;
    CaughtCopy copy;
    int done;
  };
  const CutRange cut;
  for (const Named& copy : copies_) {
    Work work = {cut, copy.copy, 0};
    const auto ran = RunGuarded(
        cut.begin(), cut.cut.size(),
        [](void* context) {
          Work& at = *static_cast<Work*>(context);
          std::byte own[kFewBytes];
          if (!at.copy(own, at.cut.gone(), sizeof own, at.cut.range)) at.done = 1;
          *static_cast<volatile std::byte*>(at.cut.gone()) = own[0];  // The guard's.
          at.done = 2;
        },
        &work);
    ASSERT_TRUE(ran.ok());
    EXPECT_TRUE(ran->has_value()) << copy.name;
    EXPECT_EQ(work.done, 1) << copy.name;
  }
}

TEST_F(CaughtCopyTest, FaultsOfOtherMemoryAndOtherInstructionsAreTheForeignHandlers) {
  for (const Named& copy : copies_) {
    EXPECT_EQ(InAChild([&] {
                const CutRange ours, theirs;
                InstallForeign();
                ComeFirst();
                std::byte own[kFewBytes] = {};
                if (copy.copy(own, ours.gone(), sizeof own, ours.range)) return 1;
                // A load by the compiler's own instruction, right after; of what it loads there is
                // use.
                own[0] = *static_cast<volatile std::byte*>(ours.gone());
                if (g_heard != 1 || own[0] != std::byte{0}) return 2;
                // The program's own memory: the foreign handler makes it be there.
                if (!copy.copy(ours.begin(), theirs.gone(), sizeof own, ours.range)) return 3;
                if (g_heard != 2) return 4;
                return copy.copy(own, ours.gone() + kPageBytes, sizeof own, ours.range) ? 5 : 0;
              }),
              0)
        << copy.name;
  }
}

TEST_F(CaughtCopyTest, WithoutAForeignHandlerAFaultOfOtherMemoryEndsTheProcess) {
  EXPECT_EQ(InAChild([&] {
              const CutRange ours, theirs;
              ComeFirst();
              std::byte own[kFewBytes] = {};
              if (copies_[0].copy(own, ours.gone(), sizeof own, ours.range)) return 1;
              copies_[0].copy(ours.begin(), theirs.gone(), sizeof own, ours.range);
              return 2;
            }),
            -SIGBUS);
}

// By way of the interface.
class ShortCopyTest : public ::testing::Test {
 protected:
  Mapping Map(bool writable, uint64_t offset) {
    return Pool::Connect({.socket_path = agent_.socket_path()})
        .value()
        .Open("kv")
        .value()
        .Map({.writable = writable, .offset_bytes = offset})
        .value();
  }
  Mapping Make() {
    agent_.Add(
        {.name = "regions/kv", .coherence = v1::HARDWARE, .segment_bytes = {2 * kThereBytes}});
    return Map(true, kPageBytes);
  }
  void Truncate() {
    ASSERT_EQ(::truncate(agent_.FilePath("regions/kv", 0).c_str(), kThereBytes), 0);
  }

  FakeAgent agent_;
  const Mapping mapping_ = Make();
};

TEST_F(ShortCopyTest, SaysWhereItMetAFault) {
  Truncate();
  const uint64_t gone = (kPages - 1) * kPageBytes;  // Of the map.
  std::vector<std::byte> own(5000);
  for (const size_t bytes : {1, 8, 16, 33, 64, 65, 1000, 1024, 5000}) {
    for (const size_t there : {size_t{0}, bytes / 2, bytes - 1}) {
      for (const bool put : {true, false}) {
        cxlpool_lost lost = CXLPOOL_LOST_INIT;
        cxlpool_error error = CXLPOOL_ERROR_INIT;
        const auto* const map = mapping_.handle();
        const int code = put ? cxlpool_put(map, gone - there, own.data(), bytes, &lost, &error)
                             : cxlpool_get(map, gone - there, own.data(), bytes, &lost, &error);
        ASSERT_EQ(code, CXLPOOL_FAILED_PRECONDITION) << bytes << " " << there;
        ASSERT_STREQ(error.reason, "REVOKED");
        ASSERT_EQ(lost.region_offset_bytes / kPageBytes, kPages);
        ASSERT_EQ(lost.length_bytes, 1u);
        ASSERT_TRUE(mapping_.Put(0, {own.data(), bytes}).ok());
        ASSERT_TRUE(mapping_.Get(0, {own.data(), bytes}).ok());
      }
    }
  }
}

TEST_F(ShortCopyTest, OfEachSizeIsWhatWasPut) {
  const std::vector<std::byte> pattern = MadeUp(3000);
  for (size_t bytes = 0; bytes <= 2000; ++bytes) {
    const uint64_t offset = bytes % 97;
    const std::span<const std::byte> put = std::span(pattern).subspan(bytes % 13, bytes);
    std::vector<std::byte> got(bytes);
    ASSERT_TRUE(mapping_.Put(offset, put).ok());
    ASSERT_TRUE(mapping_.Get(offset, got).ok());
    ASSERT_TRUE(std::equal(put.begin(), put.end(), got.begin())) << bytes;
  }
}

TEST_F(ShortCopyTest, IsRefusedAsALongOneIs) {
  if (!HasCaughtCopies()) GTEST_SKIP() << "in this build it is a long one";
  const Mapping read_only = Map(false, 0);
  std::byte own[64] = {};
  // More than once: some copies take another way.
  for (int turn = 0; turn < 200; ++turn) {
    for (const size_t bytes : {16, 32, 64}) {
      const std::span<std::byte> some(own, bytes);
      const uint64_t end = mapping_.bytes().size();
      ASSERT_EQ(ReasonOf(read_only.Put(0, some)), "MAP_READ_ONLY");
      ASSERT_TRUE(read_only.Get(0, some).ok());
      ASSERT_EQ(ReasonOf(mapping_.Put(end - bytes + 1, some)), "BAD_ARGUMENT");
      ASSERT_EQ(ReasonOf(mapping_.Get(end - bytes + 1, some)), "BAD_ARGUMENT");
      ASSERT_EQ(ReasonOf(mapping_.Get(end + 1, some)), "BAD_ARGUMENT");
      ASSERT_EQ(ReasonOf(mapping_.Get(~uint64_t{0}, some)), "BAD_ARGUMENT");
      ASSERT_TRUE(mapping_.Put(end - bytes, some).ok());
      for (const size_t at : {100 - bytes + 1, size_t{100}, 100 + bytes - 1}) {
        ASSERT_EQ(ReasonOf(mapping_.Put(100, mapping_.bytes().subspan(at, bytes))), "BAD_ARGUMENT");
        ASSERT_EQ(ReasonOf(mapping_.Get(100, mapping_.mutable_bytes().subspan(at, bytes))),
                  "BAD_ARGUMENT");
      }
      ASSERT_TRUE(mapping_.Put(100, mapping_.bytes().subspan(100 - bytes, bytes)).ok());
      ASSERT_TRUE(mapping_.Put(100, mapping_.bytes().subspan(100 + bytes, bytes)).ok());
      ASSERT_NE(cxlpool_get(mapping_.handle(), 0, nullptr, bytes, nullptr, nullptr), 0);
    }
  }
}

TEST_F(ShortCopyTest, BeforeLongComesBeforeAHandlerThatIsInstalledLater) {
  Truncate();
  EXPECT_EQ(InAChild([&] {
              std::byte own[kFewBytes] = {};
              if (!mapping_.Put(0, own).ok()) return 1;
              InstallForeign();
              timespec first = {}, now = {};
              ::clock_gettime(CLOCK_MONOTONIC_COARSE, &first);
              do {
                ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
              } while (now.tv_nsec == first.tv_nsec && now.tv_sec == first.tv_sec);
              for (int copies = 0; copies < 64; ++copies) {
                if (!mapping_.Put(0, own).ok()) return 2;
              }
              const Result<void> put = mapping_.Put((kPages - 1) * kPageBytes, own);
              return !put.ok() && g_heard == 0 ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace cxlpool::libpool
