// What a program does with its Regions, as the agent may read it on its page; and its leaks.
#include "libpool/src/usage.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cxlpool/pool.h"
#include "libpool/src/text.h"
#include "test/rigs/fake_agent.h"

namespace cxlpool::libpool {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kTag[] = "0f8fad5b-d9cb-469f-a165-70867728950e";
constexpr uint64_t kMiB = 1 << 20;

std::string TagOf(size_t i) { return Concat("0f8fad5b-d9cb-469f-a165-708677289", 100 + i); }

// As the agent reads it, by the descriptor.
UsagePage Read(int fd) {
  UsagePage page = {.magic = 0};
  EXPECT_EQ(::pread(fd, &page, sizeof page, 0), static_cast<ssize_t>(sizeof page));
  return page;
}

// {mapped, live, slack, pins} of each Region that is told of.
std::vector<std::vector<uint64_t>> Told(const UsagePage& page) {
  std::vector<std::vector<uint64_t>> told;
  for (const UsageEntry& entry : page.entries) {
    if (!entry.tag.is_set()) continue;
    told.push_back({entry.mapped_bytes, entry.live_bytes, entry.slack_bytes, entry.pins});
  }
  return told;
}

TEST(UsageTagTest, ATagIsAUuid) {
  const UsageTag tag = UsageTagOf(kTag);
  EXPECT_EQ(tag.high, 0x0f8fad5bd9cb469fu);
  EXPECT_EQ(tag.low, 0xa16570867728950eu);
  EXPECT_EQ(UsageTagOf("0F8FAD5B-D9CB-469F-A165-70867728950E"), tag);
  for (const char* none :
       {"", "tag-1", "0f8fad5b-d9cb-469f-a165-70867728950", "0f8fad5b-d9cb-469f-a165-70867728950e0",
        "0g8fad5b-d9cb-469f-a165-70867728950e"}) {
    EXPECT_FALSE(UsageTagOf(none).is_set()) << none;
  }
}

TEST(UsageTest, ThePageKeepsItsSize) {
  const auto counters = UsageCounters::Make();
  ASSERT_NE(counters, nullptr);
  EXPECT_EQ(Read(counters->fd()).magic, kUsageMagic);
  struct stat file = {};
  ASSERT_EQ(::fstat(counters->fd(), &file), 0);
  EXPECT_EQ(file.st_size, 4096);
  EXPECT_EQ(::fcntl(counters->fd(), F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_NE(::ftruncate(counters->fd(), 0), 0);
  EXPECT_NE(::fcntl(counters->fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(UsageTest, AnEntryIsSharedByAllHandlesOfARegionAndGoesWithTheLast) {
  const auto counters = UsageCounters::Make();
  {
    const RegionUsage first(counters, kTag);
    first.AddMap(1, 100);
    {
      const RegionUsage second(counters, kTag);
      second.AddMap(2, 200);
      second.AddPins(3);
      first.Report(50, 5);
      first.Report(40, 6);
      second.Report(1, 2);
      second.AddLive(1000);
      EXPECT_THAT(Told(Read(counters->fd())), ElementsAre(ElementsAre(300, 1041, 8, 3)));
      second.AddMap(-2, -200);
      second.AddPins(-3);
      second.AddLive(-1000);
    }
    EXPECT_THAT(Told(Read(counters->fd())), ElementsAre(ElementsAre(100, 40, 6, 0)));
  }
  EXPECT_THAT(Told(Read(counters->fd())), IsEmpty());
  const RegionUsage next(counters, TagOf(1));
  EXPECT_THAT(Told(Read(counters->fd())), ElementsAre(ElementsAre(0, 0, 0, 0)));
}

TEST(UsageTest, OfTheRegionThatFindsNoEntryNothingIsTold) {
  const auto counters = UsageCounters::Make();
  std::vector<std::unique_ptr<RegionUsage>> all;
  for (size_t i = 0; i < kMaxUsageEntries; ++i) {
    all.push_back(std::make_unique<RegionUsage>(counters, TagOf(i)));
    all.back()->AddMap(1, 7);
  }
  {
    const RegionUsage more(counters, TagOf(kMaxUsageEntries));
    more.AddMap(1, 9);
    more.Report(9, 9);
    EXPECT_EQ(more.maps(), 1u);
  }
  const auto told = Told(Read(counters->fd()));
  ASSERT_EQ(told.size(), kMaxUsageEntries);
  for (const auto& entry : told) EXPECT_THAT(entry, ElementsAre(7, 0, 0, 0));
  all.erase(all.begin() + 5);
  const RegionUsage now(counters, TagOf(kMaxUsageEntries));
  now.AddPins(1);
  EXPECT_THAT(Told(Read(counters->fd()))[5], ElementsAre(0, 0, 0, 1));
}

TEST(UsageTest, WithoutAPageItCountsForItself) {
  const RegionUsage usage(nullptr, kTag);
  usage.AddMap(1, 4096);
  usage.AddPins(2);
  usage.Report(1, 1);
  EXPECT_EQ(usage.maps(), 1u);
  EXPECT_EQ(usage.pins(), 2u);
}

TEST(UsageTest, AForkedChildLeavesThePageToItsParent) {
  const auto counters = UsageCounters::Make();
  auto usage = std::make_unique<RegionUsage>(counters, kTag);
  usage->AddMap(1, 100);
  const pid_t child = ::fork();
  if (child == 0) {
    usage->AddMap(-1, -100);
    usage->Report(1, 1);
    usage.reset();
    const bool claims = counters->Claim(TagOf(1)) != nullptr;
    ::_exit(claims ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(Told(Read(counters->fd())), ElementsAre(ElementsAre(100, 0, 0, 0)));
}

// --- Through the client.

class UsageOfClientTest : public ::testing::Test {
 protected:
  UsageOfClientTest() { agent_.Add({.name = "regions/kv", .segment_bytes = {4 * kMiB}}); }

  Pool Connect() { return Pool::Connect({.socket_path = agent_.socket_path()}).value(); }

  std::vector<std::vector<uint64_t>> Told() const {
    std::vector<std::vector<uint64_t>> told;
    for (const UsagePage& page : agent_.UsagePages()) {
      for (auto& entry : libpool::Told(page)) told.push_back(std::move(entry));
    }
    return told;
  }

  FakeAgent agent_;
};

TEST_F(UsageOfClientTest, TheAgentReadsWhatTheProgramDoes) {
  Pool client = Connect();
  ASSERT_TRUE(client.List().ok());
  EXPECT_EQ(agent_.usage_requests(), 0u) << "nothing is open";
  auto region = client.Open("kv");
  ASSERT_TRUE(region.ok());
  EXPECT_THAT(Told(), ElementsAre(ElementsAre(0, 0, 0, 0)));
  {
    auto all = region->Map();
    auto part = region->Map({.length_bytes = kMiB});
    ASSERT_TRUE(all.ok() && part.ok());
    EXPECT_THAT(Told(), ElementsAre(ElementsAre(5 * kMiB, 0, 0, 0)));
    region->Tell(3000, 70);
    EXPECT_THAT(Told(), ElementsAre(ElementsAre(5 * kMiB, 3000, 70, 0)));
  }
  EXPECT_THAT(Told(), ElementsAre(ElementsAre(0, 3000, 70, 0)));
  { auto closed = *std::move(region); }
  EXPECT_THAT(Told(), IsEmpty());
  EXPECT_EQ(agent_.usage_requests(), 1u);
}

TEST_F(UsageOfClientTest, AnAgentThatComesAnewIsGivenThePageAgain) {
  Pool client = Connect();
  auto region = client.Open("kv");
  ASSERT_TRUE(region.ok());
  auto map = region->Map();
  ASSERT_TRUE(map.ok());
  agent_.Stop();
  agent_.Start();
  ASSERT_TRUE(client.List().ok());
  EXPECT_EQ(agent_.Opens("regions/kv"), 1);
  EXPECT_THAT(Told(), ElementsAre(ElementsAre(4 * kMiB, 0, 0, 0)));
}

TEST_F(UsageOfClientTest, AnAgentThatKnowsNothingOfItIsAskedOnce) {
  agent_.RefuseUsage();
  Pool client = Connect();
  auto region = client.Open("kv");
  ASSERT_TRUE(region.ok());
  EXPECT_TRUE(client.Open("kv").ok());
  EXPECT_TRUE(region->Map().ok());
  EXPECT_EQ(agent_.usage_requests(), 1u);
}

// It says so in its first answer, whatever was asked, and hangs up.
TEST_F(UsageOfClientTest, AnAgentThatDoesNotServeTheUserIsHeard) {
  agent_.RefuseUsage("USER_NOT_ALLOWED");
  EXPECT_EQ(Connect().Open("kv").error().reason, "USER_NOT_ALLOWED");
}

TEST_F(UsageOfClientTest, ADirectorysObjectsAndWhatIsBorrowedCount) {
  Pool client = Connect();
  auto region = client.Open("kv");
  ASSERT_TRUE(region.ok());
  auto map = region->Map();
  ASSERT_TRUE(map.ok());
  ASSERT_TRUE(::cxlpool::Directory::Create(*map, {.entries = 64}).ok());
  {
    auto directory = ::cxlpool::Directory::Open(*map, {.partition = 0});
    ASSERT_TRUE(directory.ok());
    const uint64_t before = Told()[0][1];
    ASSERT_TRUE(directory->Put("a", std::vector<std::byte>(64 << 10)).ok());
    EXPECT_GE(Told()[0][1], before + (64 << 10));
    {
      auto object = directory->Borrow("a");
      ASSERT_TRUE(object.ok());
      EXPECT_EQ(Told()[0][3], 1u);
    }
    EXPECT_EQ(Told()[0][3], 0u);
    ASSERT_TRUE(directory->Remove("a").ok());
    EXPECT_EQ(Told()[0][1], before);
  }
  EXPECT_EQ(Told()[0][1], 0u);
}

TEST_F(UsageOfClientTest, WhatIsPinnedCounts) {
  Pool client = Connect();
  auto map = client.Open("kv")->Map();
  ASSERT_TRUE(map.ok());
  ::cxlpool::PinOptions options;
  options.register_fn = [](void*, size_t, int, void*) { return 0; };
  options.unregister_fn = [](void*, size_t, void*) { return 0; };
  auto pin = map->Pin(options);
  ASSERT_TRUE(pin.ok());
  EXPECT_EQ(Told()[0][3], 1u);
  ASSERT_TRUE(pin->Unpin().ok());
  EXPECT_EQ(Told()[0][3], 0u);
}

TEST_F(UsageOfClientTest, TellingOfNoRegionIsRefused) {
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  EXPECT_EQ(cxlpool_region_tell(nullptr, 1, 1, &error), CXLPOOL_INVALID_ARGUMENT);
  EXPECT_STREQ(error.reason, "BAD_ARGUMENT");
}

// --- Leaks. What the programs below do is run in processes of their own, as the environment is
// read once in each, and their ends are what counts.

// That a program never gives back, and a checker of its memory finds all the same.
Region* g_region = nullptr;
Mapping* g_mapping = nullptr;

Pool ConnectByEnvironment() { return Pool::Connect().value(); }

TEST(LeaksProgram, DISABLED_LeavesRegionAndMap) {
  Pool client = ConnectByEnvironment();
  g_region = new Region(client.Open("kv").value());
  g_mapping = new Mapping(g_region->Map().value());
  const Region closed = client.Open("kv").value();
}

TEST(LeaksProgram, DISABLED_LeavesMap) {
  g_mapping = new Mapping(ConnectByEnvironment().Open("kv").value().Map().value());
}

TEST(LeaksProgram, DISABLED_LeavesNothing) {
  const Mapping mapping = ConnectByEnvironment().Open("kv").value().Map().value();
  const pid_t child = ::fork();
  if (child == 0) std::exit(0);  // Has the parent's, and nothing to say of it.
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

class LeaksTest : public UsageOfClientTest {
 protected:
  // What the program says of leaks as it ends.
  std::string Leaks(const std::string& program, const char* wanted) {
    int out[2];
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    const std::string filter = "--gtest_filter=LeaksProgram.DISABLED_" + program;
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(out[1], STDERR_FILENO);
      ::setenv("CXLPOOL_SOCKET", agent_.socket_path().c_str(), 1);
      ::setenv("CXLPOOL_LEAKS", wanted, 1);
      ::execl("/proc/self/exe", "libpool_test", filter.c_str(), "--gtest_also_run_disabled_tests",
              nullptr);
      ::_exit(1);
    }
    ::close(out[1]);
    std::string text;
    char buffer[1024];
    for (ssize_t size = 0; (size = ::read(out[0], buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<size_t>(size));
    }
    ::close(out[0]);
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    return text;
  }
};

TEST_F(LeaksTest, WhatIsLeftAtTheEndIsTold) {
  EXPECT_EQ(Leaks("LeavesRegionAndMap", "1"),
            "cxlpool: leak: region kv (4.0 MiB), opened, 1 map(s)\n");
}

TEST_F(LeaksTest, AMapThatOutlivesItsRegionIsALeakToo) {
  EXPECT_EQ(Leaks("LeavesMap", "1"), "cxlpool: leak: region kv (4.0 MiB), 1 map(s)\n");
}

TEST_F(LeaksTest, WhoGaveAllBackIsNotNamed) { EXPECT_EQ(Leaks("LeavesNothing", "1"), ""); }

TEST_F(LeaksTest, NothingIsToldUnlessItIsWanted) {
  EXPECT_EQ(Leaks("LeavesRegionAndMap", "0"), "");
}

}  // namespace
}  // namespace cxlpool::libpool
