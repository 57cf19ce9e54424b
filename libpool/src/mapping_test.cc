#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cxlpool/pool.h"
#include "libpool/examples/pattern.h"
#include "libpool/src/reason_for_test.h"
#include "test/rigs/fake_agent.h"

extern "C" void __tsan_init() __attribute__((weak));  // Where ThreadSanitizer is.

namespace cxlpool {
namespace {

using libpool::FakeAgent;

constexpr char kName[] = "regions/kv";
constexpr uint64_t kMiB = 1 << 20;

// Address space of a test's own, with a hole at its beginning where the kernel has nothing. What
// the hole is filled with meanwhile is unmapped by whoever filled it. Far below what the kernel
// chooses by itself, which takes the highest hole that fits: other threads' memory does not get
// there.
class Hole {
 public:
  static constexpr uint64_t kBytes = 16 * kMiB;

  Hole() : all_(Reserve(Reserve(nullptr, 4096) - 65536 * kMiB, 2 * kBytes)) {
    const uint64_t head = -reinterpret_cast<uintptr_t>(all_) & (2 * kMiB - 1);
    begin_ = all_ + head;
    EXPECT_EQ(::munmap(begin_, kBytes - 2 * kMiB), 0);
  }
  Hole(const Hole&) = delete;
  Hole& operator=(const Hole&) = delete;
  ~Hole() {
    if (begin_ != all_) ::munmap(all_, static_cast<size_t>(begin_ - all_));
    std::byte* const rest = begin_ + kBytes - 2 * kMiB;
    ::munmap(rest, static_cast<size_t>(all_ + 2 * kBytes - rest));
  }

  std::byte* begin() const { return begin_; }

 private:
  static std::byte* Reserve(std::byte* at, size_t bytes) {
    return static_cast<std::byte*>(
        ::mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }

  std::byte* const all_;
  std::byte* begin_ = nullptr;
};

// A page of somebody else's at an address, with a byte that has to stay.
class Neighbour {
 public:
  explicit Neighbour(std::byte* at)
      : page_(static_cast<std::byte*>(::mmap(at, 4096, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
                                             0))) {
    if (page_ == MAP_FAILED) return;  // Something is there already, which does as well.
    EXPECT_EQ(page_, at);
    *page_ = std::byte{42};
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;
  ~Neighbour() {
    if (page_ != MAP_FAILED) ::munmap(page_, 4096);
  }

  bool WasFree() const { return page_ != MAP_FAILED; }

  // By the kernel, as a load of what was unmapped would end the test.
  bool IsIntact() const {
    if (page_ == MAP_FAILED) return true;
    std::byte copy{};
    int pipe[2];
    EXPECT_EQ(::pipe(pipe), 0);
    const bool readable = ::write(pipe[1], page_, 1) == 1 && ::read(pipe[0], &copy, 1) == 1;
    ::close(pipe[0]);
    ::close(pipe[1]);
    return readable && copy == std::byte{42};
  }

 private:
  std::byte* const page_;
};

class MappingTest : public ::testing::Test {
 protected:
  Region Open(Access access = Access::kReadWrite) {
    client_ = Pool::Connect({.socket_path = agent_.socket_path()});
    return client_->Open(kName, {.access = access}).value();
  }

  FakeAgent agent_;
  Result<Pool> client_ = Error{.message = "not connected"};
};

TEST_F(MappingTest, SeveralSegmentsAreOneRange) {
  agent_.Add({.name = kName,
              .segment_bytes = {4 * kMiB, 2 * kMiB, 6 * kMiB},
              .alignment_bytes = 2 * kMiB});
  const Region region = Open();
  auto mapping = region.Map();
  ASSERT_TRUE(mapping.ok()) << mapping.error().text();
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
  ASSERT_TRUE(before.ok()) << before.error().text();
  agent_.Add({.name = kName, .segment_bytes = {4 * kMiB, 2 * kMiB}, .alignment_bytes = 2 * kMiB});
  const Region large = client_->Open(kName).value();
  auto after = large.Map();
  ASSERT_TRUE(after.ok()) << after.error().text();
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
  const Error status = Open(Access::kReadOnly).Map({.writable = true}).error();
  EXPECT_EQ(status.code, CXLPOOL_PERMISSION_DENIED);
  EXPECT_EQ(status.reason, "MAP_FAILED");
  EXPECT_EQ(status.sys_errno, EACCES);
  EXPECT_NE(status.message.find("EACCES"), std::string::npos);
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
  agent_.Add({.name = kName, .mode = v1::SYSTEM_RAM, .numa_nodes = {3, 1}});
  const Region region = Open();
  EXPECT_EQ(region.numa_node(), 3);
  EXPECT_EQ(region.Nodes(), (std::vector<int>{3, 1}));
  int first = -1;
  EXPECT_EQ(cxlpool_region_nodes(region.handle(), &first, 1), 2u);
  EXPECT_EQ(first, 3);
  EXPECT_EQ(region.mode(), Mode::kSystemRam);
  const Error status = region.Map().error();
  EXPECT_EQ(status.reason, "SYSTEM_RAM");
  EXPECT_NE(status.remedy.find("BindToNode"), std::string::npos);
}

TEST_F(MappingTest, ARegionTakenBackIsRefusedNotMapped) {
  agent_.Add({.name = kName});
  const Region region = Open();
  ASSERT_EQ(::truncate(agent_.FilePath(kName, 0).c_str(), 0), 0);
  EXPECT_EQ(ReasonOf(region.Map()), "BACKING_SHORT");
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

// What /proc/self/smaps says of the mapping that begins at `address`.
std::string Smaps(const std::byte* address) {
  std::ifstream smaps("/proc/self/smaps");
  std::ostringstream begin;
  begin << std::hex << reinterpret_cast<uintptr_t>(address) << '-';
  std::string found;
  for (std::string line; std::getline(smaps, line);) {
    const bool head = line.find("-") < line.find(" ");
    if (head && !found.empty()) break;
    if (!found.empty() || line.starts_with(begin.str())) found += line + "\n";
  }
  return found;
}

TEST_F(MappingTest, APartIsMappedWhereverItsSegmentsAre) {
  agent_.Add({.name = kName, .segment_bytes = {2 * kMiB, kMiB, 3 * kMiB}});
  const Region region = Open();
  Mapping whole = region.Map().value();
  examples::FillPattern(whole.mutable_bytes(), 42);
  // From within the first to within the third, and each end by itself.
  for (const auto& [offset, length] : std::vector<std::pair<uint64_t, uint64_t>>{
           {kMiB, 4 * kMiB}, {0, 4096}, {6 * kMiB - 4096, 0}, {2 * kMiB, kMiB}, {0, 0}}) {
    const auto part = region.Map({.offset_bytes = offset, .length_bytes = length});
    ASSERT_TRUE(part.ok()) << part.error().text();
    const uint64_t expected = length == 0 ? 6 * kMiB - offset : length;
    ASSERT_EQ(part->size(), expected);
    EXPECT_EQ(std::memcmp(part->data(), whole.data() + offset, expected), 0) << offset;
  }
  using O = MapOptions;
  for (const O& bad : {O{.offset_bytes = 6 * kMiB}, O{.offset_bytes = 7 * kMiB},
                       O{.offset_bytes = 1}, O{.length_bytes = 7 * kMiB}, O{.length_bytes = 4095},
                       O{.offset_bytes = kMiB, .length_bytes = ~uint64_t{0} << 12},
                       O{.reserve_bytes = uint64_t{1} << 60}}) {
    EXPECT_EQ(ReasonOf(region.Map(bad)), "BAD_ARGUMENT") << bad.offset_bytes;
  }
}

TEST_F(MappingTest, PopulatedPagesAreThereAndNoneIsInACoreDump) {
  agent_.Add({.name = kName});
  const Region region = Open();
  const Mapping lazy = region.Map().value();
  EXPECT_NE(Smaps(lazy.data()).find("Rss:                   0 kB"), std::string::npos);
  for (const bool writable : {true, false}) {
    const Mapping full = region.Map({.writable = writable, .populate = true}).value();
    const std::string smaps = Smaps(full.data());
    EXPECT_NE(smaps.find("Rss:                1024 kB"), std::string::npos) << smaps;
    EXPECT_NE(smaps.find(" dd "), std::string::npos) << "not to be dumped: " << smaps;
  }
}

TEST_F(MappingTest, AWantedAddressIsTakenUnlessItIsInUse) {
  if (__tsan_init != nullptr) GTEST_SKIP() << "ThreadSanitizer has few addresses to give";
  agent_.Add({.name = kName});
  const Region region = Open();
  auto* const wanted = reinterpret_cast<std::byte*>(uintptr_t{0x2000} << 32);
  const auto mapping = region.Map({.address = wanted});
  ASSERT_TRUE(mapping.ok()) << mapping.error().text();
  EXPECT_EQ(mapping->data(), wanted);
  EXPECT_EQ(ReasonOf(region.Map({.address = wanted})), "ADDRESS_TAKEN");
  EXPECT_EQ(ReasonOf(region.Map({.address = wanted + kMiB - 4096})), "ADDRESS_TAKEN");
  EXPECT_EQ(ReasonOf(region.Map({.address = wanted + 1})), "BAD_ARGUMENT");
  examples::FillPattern(mapping->mutable_bytes(), 3);  // It is as it was.
}

TEST_F(MappingTest, GrowthIsMappedBehindWhatIsThere) {
  agent_.Add({.name = kName, .segment_bytes = {4 * kMiB}, .alignment_bytes = 2 * kMiB});
  Region small = Open();
  Mapping mapping = small.Map({.reserve_bytes = 8 * kMiB}).value();
  const Mapping tight = small.Map().value();
  std::byte* const begin = mapping.data();
  examples::FillPattern(mapping.mutable_bytes(), 5);
  ASSERT_TRUE(mapping.Extend(small).ok()) << "it has not grown";
  EXPECT_EQ(mapping.size(), 4 * kMiB);

  agent_.Add({.name = kName, .segment_bytes = {4 * kMiB, 2 * kMiB}, .alignment_bytes = 2 * kMiB});
  const Region large = client_->Open(kName).value();
  const auto extended = mapping.Extend(large);
  ASSERT_TRUE(extended.ok()) << extended.error().text();
  EXPECT_EQ(mapping.data(), begin);
  EXPECT_EQ(mapping.size(), 6 * kMiB);
  examples::FillPattern(mapping.mutable_bytes(), 6);
  EXPECT_EQ(examples::VerifyPattern(large.Map()->bytes(), 6).words, 0u);

  agent_.Add({.name = kName, .segment_bytes = {4 * kMiB, 8 * kMiB}, .alignment_bytes = 2 * kMiB});
  const Region larger = client_->Open(kName).value();
  const Neighbour neighbour(begin + 8 * kMiB);
  EXPECT_EQ(ReasonOf(mapping.Extend(larger)), "NO_RESERVE");
  EXPECT_TRUE(neighbour.IsIntact());
  agent_.Add({.name = kName, .generation = 2, .segment_bytes = {8 * kMiB}});
  EXPECT_EQ(ReasonOf(mapping.Extend(client_->Open(kName).value())), "STALE_GENERATION");
  EXPECT_EQ(mapping.size(), 6 * kMiB);
}

TEST_F(MappingTest, AGrowthThatCannotBeMappedLeavesTheMapAsItWas) {
  agent_.Add({.name = kName});
  Mapping mapping = Open().Map({.reserve_bytes = 4 * kMiB}).value();
  agent_.Add({.name = kName, .segment_bytes = {kMiB, kMiB}});
  const Region grown = client_->Open(kName).value();
  ASSERT_EQ(::truncate(agent_.FilePath(kName, 1).c_str(), 0), 0);
  EXPECT_EQ(ReasonOf(mapping.Extend(grown)), "BACKING_SHORT");
  EXPECT_EQ(mapping.size(), kMiB);
  examples::FillPattern(mapping.mutable_bytes(), 1);
  // Behind it there is nothing to read, for the kernel as for us.
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  EXPECT_EQ(::write(pipe[1], mapping.data() + kMiB - 1, 1), 1);
  EXPECT_EQ(::write(pipe[1], mapping.data() + kMiB, 1), -1);
  EXPECT_EQ(errno, EFAULT);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_F(MappingTest, WithoutAReserveItGrowsWhereNothingIsBehind) {
  agent_.Add({.name = kName, .segment_bytes = {4 * kMiB}, .alignment_bytes = 2 * kMiB});
  const Hole hole;
  Mapping mapping = Open().Map({.address = hole.begin()}).value();
  examples::FillPattern(mapping.mutable_bytes(), 5);
  agent_.Add({.name = kName, .segment_bytes = {4 * kMiB, 2 * kMiB}, .alignment_bytes = 2 * kMiB});
  const auto extended = mapping.Extend(client_->Open(kName).value());
  ASSERT_TRUE(extended.ok()) << extended.error().text();
  EXPECT_EQ(mapping.data(), hole.begin());
  ASSERT_EQ(mapping.size(), 6 * kMiB);
  EXPECT_EQ(examples::VerifyPattern(mapping.bytes().first(4 * kMiB), 5).words, 0u);
  examples::FillPattern(mapping.mutable_bytes(), 6);

  const std::vector<uint64_t> more = {4 * kMiB, 2 * kMiB, 2 * kMiB};
  agent_.Add({.name = kName, .segment_bytes = more, .alignment_bytes = 2 * kMiB});
  const Region large = client_->Open(kName).value();
  {
    const Neighbour neighbour(hole.begin() + 7 * kMiB);
    EXPECT_EQ(ReasonOf(mapping.Extend(large)), "NO_RESERVE");
    EXPECT_TRUE(neighbour.IsIntact());
    EXPECT_EQ(mapping.size(), 6 * kMiB);
  }
  // What cannot be mapped keeps no address either.
  ASSERT_EQ(::truncate(agent_.FilePath(kName, 2).c_str(), 0), 0);
  EXPECT_EQ(ReasonOf(mapping.Extend(large)), "BACKING_SHORT");
  EXPECT_EQ(mapping.size(), 6 * kMiB);
  {
    const Neighbour neighbour(hole.begin() + 6 * kMiB);
    EXPECT_TRUE(neighbour.WasFree());
  }
  ASSERT_EQ(::truncate(agent_.FilePath(kName, 2).c_str(), 2 * kMiB), 0);
  ASSERT_TRUE(mapping.Extend(large).ok());
  EXPECT_EQ(examples::VerifyPattern(mapping.bytes().first(6 * kMiB), 6).words, 0u);
  mapping.Unmap();
  const Neighbour neighbour(hole.begin() + 7 * kMiB);
  EXPECT_TRUE(neighbour.WasFree()) << "all of it was unmapped";
}

TEST_F(MappingTest, AReadOnlyMapOfAPartGrowsAsItIs) {
  agent_.Add({.name = kName, .segment_bytes = {8 * kMiB}, .alignment_bytes = 2 * kMiB});
  const Region small = Open();
  examples::FillPattern(small.Map()->mutable_bytes(), 3);
  Mapping part = small
                     .Map({.writable = false,
                           .offset_bytes = 2 * kMiB,
                           .length_bytes = 2 * kMiB,
                           .reserve_bytes = 16 * kMiB})
                     .value();
  agent_.Add({.name = kName, .segment_bytes = {8 * kMiB, 2 * kMiB}, .alignment_bytes = 2 * kMiB});
  const Region large = client_->Open(kName).value();
  ASSERT_TRUE(part.Extend(large).ok());
  ASSERT_EQ(part.size(), 8 * kMiB) << "from its offset to the Region's end";
  const Mapping whole = large.Map().value();
  examples::FillPattern(whole.mutable_bytes(), 4);
  EXPECT_EQ(std::memcmp(part.data(), whole.data() + 2 * kMiB, part.size()), 0);
  EXPECT_FALSE(part.writable());
  std::byte byte{};
  EXPECT_EQ(ReasonOf(part.Put(7 * kMiB, {&byte, 1})), "MAP_READ_ONLY");
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  EXPECT_EQ(::write(pipe[1], &byte, 1), 1);
  EXPECT_EQ(::read(pipe[0], part.data() + 7 * kMiB, 1), -1) << "the kernel may not store there";
  EXPECT_EQ(errno, EFAULT);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_F(MappingTest, WhatWasAddedIsCopiedPublishedAndGuardedLikeTheRest) {
  agent_.Add({.name = kName});
  Mapping mapping = Open().Map({.reserve_bytes = 4 * kMiB}).value();
  std::vector<std::byte> bytes(kMiB, std::byte{7});
  EXPECT_EQ(ReasonOf(mapping.Put(kMiB / 2, bytes)), "BAD_ARGUMENT");
  agent_.Add({.name = kName, .segment_bytes = {kMiB, kMiB}});
  ASSERT_TRUE(mapping.Extend(client_->Open(kName).value()).ok());
  EXPECT_TRUE(mapping.Put(kMiB / 2, bytes).ok());  // Over the old end.
  EXPECT_EQ(mapping.data()[kMiB + 1], std::byte{7});
  EXPECT_TRUE(mapping.Publish(mapping.bytes().subspan(kMiB)).ok());
  EXPECT_TRUE(mapping.Refresh(mapping.bytes().subspan(kMiB)).ok());
  ASSERT_EQ(::truncate(agent_.FilePath(kName, 1).c_str(), 0), 0);
  EXPECT_EQ(ReasonOf(mapping.Get(kMiB, bytes)), "REVOKED");
}

TEST_F(MappingTest, OfThreadsThatExtendAtOnceEachFindsItDone) {
  agent_.Add({.name = kName});
  Mapping mapping = Open().Map({.reserve_bytes = 4 * kMiB}).value();
  agent_.Add({.name = kName, .segment_bytes = {kMiB, kMiB}});
  const Region large = client_->Open(kName).value();
  constexpr int kThreads = 4;
  std::atomic<int> done = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const auto extended = mapping.Extend(large);
      EXPECT_TRUE(extended.ok()) << extended.error().text();
      EXPECT_EQ(mapping.size(), 2 * kMiB);
      ++done;
    });
  }
  // Who reads the size meanwhile sees the old one or the new one, and all of that is there.
  while (done < kThreads) {
    const size_t size = mapping.size();
    EXPECT_TRUE(size == kMiB || size == 2 * kMiB) << size;
    EXPECT_EQ(mapping.data()[size - 1], std::byte{0});
  }
  for (std::thread& thread : threads) thread.join();
}

// A lock that another thread has while the process forks is never free in the child.
TEST_F(MappingTest, AForkedChildUnmapsWhateverOtherThreadsDidMeanwhile) {
  agent_.Add({.name = kName});
  Mapping mapping = Open().Map().value();
  const Region same = client_->Open(kName).value();
  std::atomic<bool> ends = false;
  std::thread other([&] {
    while (!ends) EXPECT_TRUE(mapping.Extend(same).ok());
  });
  int wrong = 0;
  for (int i = 0; i < 200 && wrong == 0; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(10);
      mapping.Unmap();
      ::_exit(0);
    }
    ::waitpid(child, &wrong, 0);
  }
  ends = true;
  other.join();
  EXPECT_EQ(wrong, 0) << "the child waits for a lock that nobody has";
}

// What the parent mapped works in the child. More is refused, by whatever handle of the parent's.
TEST_F(MappingTest, AForkedChildMapsNothingOfItsParents) {
  agent_.Add({.name = kName});
  const Region region = Open();
  Mapping mapping = region.Map({.reserve_bytes = 4 * kMiB}).value();
  mapping.data()[0] = std::byte{1};
  agent_.Add({.name = kName, .segment_bytes = {kMiB, kMiB}});
  const Region grown = client_->Open(kName).value();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    mapping.mutable_bytes()[1] = std::byte{2};
    if (ReasonOf(region.Map()) != "FORKED") ::_exit(1);
    if (ReasonOf(mapping.Extend(grown)) != "FORKED") ::_exit(2);
    const auto own = Pool::Connect({.socket_path = agent_.socket_path()}).value().Open(kName);
    const auto mapped = own->Map();
    if (!mapped.ok() || mapped->data()[0] != std::byte{1}) ::_exit(3);
    ::_exit(ReasonOf(mapping.Extend(*own)) == "FORKED" && mapping.size() == kMiB ? 0 : 4);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "exit code " << WEXITSTATUS(status);
  EXPECT_EQ(mapping.data()[1], std::byte{2});
  EXPECT_TRUE(mapping.Extend(grown).ok());
}

// Another thread of the parent may have the lock of the map at the fork.
TEST_F(MappingTest, AForkedChildIsRefusedWhateverOtherThreadsDidMeanwhile) {
  agent_.Add({.name = kName});
  Mapping mapping = Open().Map().value();
  const Region same = client_->Open(kName).value();
  std::atomic<bool> ends = false;
  std::thread other([&] {
    while (!ends) EXPECT_TRUE(mapping.Extend(same).ok() && same.Check().ok());
  });
  int wrong = 0;
  for (int i = 0; i < 200 && wrong == 0; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(10);
      const bool refused =
          ReasonOf(mapping.Extend(same)) == "FORKED" && ReasonOf(same.Check()) == "FORKED";
      ::_exit(refused ? 0 : 1);
    }
    ::waitpid(child, &wrong, 0);
  }
  ends = true;
  other.join();
  EXPECT_EQ(wrong, 0) << "not refused, or it waits for a lock that nobody has";
}

TEST_F(MappingTest, DescriptorsOfItsPartsAreThere) {
  agent_.Add({.name = kName, .segment_bytes = {kMiB, 2 * kMiB}});
  const Region region = Open();
  const std::vector<Extent> extents = region.Extents();
  ASSERT_EQ(extents.size(), 2u);
  EXPECT_EQ(extents[1].region_offset_bytes, kMiB);
  EXPECT_EQ(extents[1].length_bytes, 2 * kMiB);
  examples::FillPattern(region.Map()->mutable_bytes(), 9);
  uint64_t word = 0;
  ASSERT_EQ(::pread(extents[1].fd, &word, sizeof word, static_cast<off_t>(extents[1].offset_bytes)),
            static_cast<ssize_t>(sizeof word));
  EXPECT_EQ(word, examples::PatternWord(9, kMiB / sizeof word));
}

// What the kernel answers where it meets a page of lost bytes.
TEST_F(MappingTest, PopulatingOverLostBytesSaysThatTheyAreLost) {
  agent_.Add({.name = kName});
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr uint32_t kPopulateWrite = 23;  // MADV_POPULATE_WRITE
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kPopulateWrite, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EHWPOISON),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {std::size(filter), filter};
    const Region region = Open();
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
      ::_exit(2);
    }
    const auto mapped = region.Map({.populate = true});
    ::_exit(ReasonOf(mapped) == "DATA_LOST" && mapped.error().code == CXLPOOL_DATA_LOSS &&
                    mapped.error().sys_errno == EHWPOISON
                ? 0
                : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no filter of system calls can be set here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
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
