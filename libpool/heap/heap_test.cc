#include <dlfcn.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cxlpool/pool_heap.h"
#include "libpool/src/reason_for_test.h"
#include "test/rigs/fake_agent.h"

// A fork takes every lock of jemalloc, which are more than the 64 that ThreadSanitizer's search for
// deadlocks can hold: it aborts there. Races are reported as ever.
// Without the sanitizer nobody asks.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "detect_deadlocks=0";
}

namespace cxlpool {
namespace {

using libpool::FakeAgent;
using libpool::TempDir;

class HeapTest : public ::testing::Test {
 protected:
  Pool Connect() { return Pool::Connect({.socket_path = agent_.socket_path()}).value(); }
  Heap Create(const HeapOptions& options) { return Heap::Create(Connect(), options).value(); }

  std::vector<std::string> Names() {
    std::vector<std::string> names;
    Pool pool = Connect();
    const std::vector<RegionInfo> listed = pool.List().value();
    for (const RegionInfo& info : listed) names.push_back(info.name);
    return names;
  }
  std::string BytesOf(const std::string& name) const {
    const std::string path = agent_.FilePath(name, 0);
    std::string bytes(std::filesystem::file_size(path), '\0');
    std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<ptrdiff_t>(bytes.size()));
    return bytes;
  }

  // Live and slack bytes of all its Regions together, as the agent reads them.
  std::pair<uint64_t, uint64_t> Told() const {
    std::pair<uint64_t, uint64_t> told;
    for (const UsagePage& page : agent_.UsagePages()) {
      for (const UsageEntry& entry : page.entries) {
        told.first += entry.live_bytes;
        told.second += entry.slack_bytes;
      }
    }
    return told;
  }

  FakeAgent agent_;
};

// Sizes as programs have them: most small, some of many pages.
size_t SomeSize(std::mt19937& random) {
  return random() % 16 == 0 ? 1 + random() % 200000 : 16 + random() % 1024;
}

TEST_F(HeapTest, BlocksLieInItsRegions) {
  const Heap heap = Create({.name_prefix = "heap", .size_bytes = 4_MiB});
  const std::vector<std::string> names = Names();
  ASSERT_EQ(names.size(), 1u);
  EXPECT_EQ(names[0].substr(0, 13), "regions/heap-");
  for (const size_t size : {size_t{1}, size_t{24}, size_t{5000}, size_t{300000}}) {
    auto* const block = static_cast<char*>(heap.Allocate(size));
    ASSERT_NE(block, nullptr);
    const std::string text = "block of " + std::to_string(size);
    if (size > text.size()) {
      std::memcpy(block, text.data(), text.size());
      EXPECT_NE(BytesOf(names[0]).find(text), std::string::npos) << text;
    }
    heap.Free(block);
  }
  heap.Free(nullptr);
}

TEST_F(HeapTest, TellsTheAgentWhatItHolds) {
  const Heap heap = Create({.size_bytes = 4_MiB, .max_bytes = 8_MiB});
  const auto expect_told = [&](uint64_t at_least) {
    const HeapInfo info = heap.Describe().value();
    const auto [live, slack] = Told();
    EXPECT_GE(live, at_least);
    EXPECT_EQ(live + slack, info.mapped_bytes);
    EXPECT_EQ(slack, info.free_bytes);
  };
  expect_told(0);
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) {
    blocks.push_back(heap.Allocate(1000 << 10));
    ASSERT_NE(blocks.back(), nullptr);
    expect_told(blocks.size() * (1000 << 10));
  }
  EXPECT_EQ(heap.Describe()->regions, 2u);
  for (void* const block : blocks) heap.Free(block);
  ASSERT_TRUE(heap.Trim().ok());
  EXPECT_EQ(Told(), std::make_pair(uint64_t{0}, uint64_t{4_MiB}));
}

TEST_F(HeapTest, WritesNothingIntoFreedBlocks) {
  const Heap heap = Create({.size_bytes = 64_MiB});
  std::mt19937 random(1);
  std::vector<std::pair<unsigned char*, size_t>> blocks;
  for (int i = 0; i < 4000; ++i) {
    const size_t size = SomeSize(random);
    auto* const block = static_cast<unsigned char*>(heap.Allocate(size));
    ASSERT_NE(block, nullptr);
    std::memset(block, 0xa5, size);
    blocks.emplace_back(block, size);
  }
  for (const auto& [block, size] : blocks) heap.Free(block);
  ASSERT_TRUE(heap.Trim().ok());
  size_t written = 0;
  for (const auto& [block, size] : blocks) {
    written += std::all_of(block, block + size, [](int byte) { return byte == 0xa5; }) ? 0 : 1;
  }
  EXPECT_EQ(written, 0u) << "of 4000";
}

TEST_F(HeapTest, NotesNothingInItsRegions) {
  const Heap heap = Create({.name_prefix = "heap", .size_bytes = 64_MiB});
  const auto churn = [&heap](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<void*> blocks(500, nullptr);
    for (int i = 0; i < 20000; ++i) {
      void*& block = blocks[random() % blocks.size()];
      heap.Free(block);
      block = heap.Allocate(SomeSize(random));
    }
    for (void* const block : blocks) heap.Free(block);
  };
  std::thread other(churn, 2);
  churn(3);
  other.join();
  ASSERT_TRUE(heap.Trim().ok());
  const std::string bytes = BytesOf(Names().at(0));
  ASSERT_EQ(bytes.size(), 64_MiB);
  EXPECT_EQ(bytes.find_first_not_of('\0'), std::string::npos);
}

TEST_F(HeapTest, GrowsToThreeRegionsAndBack) {
  const Heap heap = Create({.size_bytes = 4_MiB, .max_bytes = 12_MiB});
  std::vector<void*> blocks;
  while (void* const block = heap.Allocate(800 << 10)) {
    std::memset(block, static_cast<int>(blocks.size()), 800 << 10);
    blocks.push_back(block);
    ASSERT_LE(blocks.size(), 12u);
  }
  EXPECT_EQ(blocks.size(), 12u) << "four in each";
  EXPECT_EQ(Names().size(), 3u);
  HeapInfo info = heap.Describe().value();
  EXPECT_EQ(info.regions, 3u);
  EXPECT_EQ(info.mapped_bytes, 12_MiB);
  EXPECT_GE(info.live_bytes, 12u * (800 << 10));
  EXPECT_EQ(info.slack_bytes, info.mapped_bytes - info.live_bytes);
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(static_cast<unsigned char*>(blocks[i])[799 << 10], i);
  }
  for (void* const block : blocks) heap.Free(block);
  ASSERT_TRUE(heap.Trim().ok());
  info = heap.Describe().value();
  EXPECT_EQ(info.regions, 1u);
  EXPECT_EQ(info.live_bytes, 0u);
  EXPECT_EQ(info.free_bytes, 4_MiB);
  EXPECT_EQ(Names().size(), 1u) << "the agent has the others back";
  EXPECT_NE(heap.Allocate(3_MiB), nullptr);
  EXPECT_NE(heap.Allocate(3_MiB), nullptr) << "it grows again";
}

TEST_F(HeapTest, ARegionInWhichABlockLivesStays) {
  const Heap heap = Create({.size_bytes = 2_MiB, .max_bytes = 16_MiB});
  std::vector<void*> blocks;
  for (int i = 0; i < 7; ++i) blocks.push_back(heap.Allocate(3 << 19));
  EXPECT_EQ(heap.Describe()->regions, 7u);
  for (const size_t i : {0, 1, 2, 4, 5, 6}) heap.Free(blocks[i]);
  ASSERT_TRUE(heap.Trim().ok());
  std::memset(blocks[3], 1, 3 << 19);
  EXPECT_LE(heap.Describe()->regions, 2u);
  heap.Free(blocks[3]);
  ASSERT_TRUE(heap.Trim().ok());
  EXPECT_EQ(heap.Describe()->regions, 1u);
}

TEST_F(HeapTest, AtTheLimitItSaysNoAndNothingElseIsGiven) {
  const Heap heap = Create({.size_bytes = 2_MiB, .max_bytes = 4_MiB});
  EXPECT_TRUE(heap.Check().ok());
  ASSERT_EQ(heap.Allocate(5_MiB), nullptr);
  EXPECT_EQ(heap.Allocate(SIZE_MAX / 2), nullptr);
  EXPECT_EQ(heap.Allocate(1_MiB, size_t{1} << 40), nullptr);
  const Error full = heap.Check().error();
  EXPECT_EQ(full.code, CXLPOOL_RESOURCE_EXHAUSTED);
  EXPECT_EQ(full.reason, "HEAP_FULL");
  EXPECT_EQ(agent_.Requests().size(), 1u) << "nobody was asked for more than the limit";

  std::vector<void*> small;
  for (void* block = heap.Allocate(1000); block != nullptr; block = heap.Allocate(1000)) {
    small.push_back(block);
    ASSERT_LE(small.size() * 1000, 4_MiB);
  }
  EXPECT_GT(small.size() * 1000, 3_MiB);
  EXPECT_EQ(heap.Describe()->mapped_bytes, 4_MiB);
  std::pmr::vector<char> full_vector(heap.resource());
  EXPECT_THROW(full_vector.resize(100000), std::bad_alloc);
  EXPECT_THROW(heap.allocator<uint64_t>().allocate(SIZE_MAX / 4), std::bad_alloc);
  for (void* const block : small) heap.Free(block);
  EXPECT_NO_THROW(full_vector.resize(100000));
}

// What a refusal is, on its way to the heap.
FakeAgent::Mishap Refusal(int code, const char* reason) {
  return {.what = FakeAgent::Mishap::kEdit, .edit = [code, reason](v1::LocalResponse& response) {
            response.Clear();
            response.set_code(code);
            response.mutable_error()->set_reason(reason);
          }};
}

TEST_F(HeapTest, PassesOnWhyItGotNoRegion) {
  const Heap heap = Create({.size_bytes = 2_MiB, .max_bytes = 8_MiB});
  agent_.Next(Refusal(8, "USER_LIMIT"));
  EXPECT_EQ(heap.Allocate(2_MiB), nullptr);
  EXPECT_EQ(ReasonOf(heap.Check()), "USER_LIMIT");
  void* const block = heap.Allocate(2_MiB);
  EXPECT_NE(block, nullptr);
  EXPECT_TRUE(heap.Check().ok());
  heap.Free(block);
}

TEST_F(HeapTest, AskedOnceAndRefusedItDoesNotAskAgain) {
  const Heap heap = Create({.size_bytes = 2_MiB, .max_bytes = 64_MiB});
  heap.Free(heap.Allocate(100));  // Its cache is there: the shortest way from now on.
  agent_.Next(Refusal(8, "USER_LIMIT"));
  const size_t asked = agent_.Requests().size();
  EXPECT_EQ(heap.Allocate(3_MiB), nullptr);
  EXPECT_EQ(agent_.Requests().size(), asked + 1);
  EXPECT_EQ(ReasonOf(heap.Check()), "USER_LIMIT");
}

TEST_F(HeapTest, ARegionWhoseFateWasUnknownIsAskedForAgainAndNotForgotten) {
  Heap heap = Create({.name_prefix = "heap", .size_bytes = 2_MiB, .max_bytes = 64_MiB});
  agent_.Next(Refusal(4, "NOT_ONLINE_IN_TIME"));  // It was allocated all the same.
  EXPECT_EQ(heap.Allocate(3_MiB), nullptr);
  EXPECT_EQ(ReasonOf(heap.Check()), "NOT_ONLINE_IN_TIME");
  const v1::LocalAllocateRequest first = agent_.Requests().back().allocate();
  EXPECT_NE(heap.Allocate(3_MiB), nullptr);
  const v1::LocalAllocateRequest again = agent_.Requests().back().allocate();
  EXPECT_EQ(again.request_id(), first.request_id());
  EXPECT_EQ(again.region_id(), first.region_id());
  EXPECT_EQ(again.size_bytes(), first.size_bytes());
  EXPECT_EQ(Names().size(), 2u);
  EXPECT_TRUE(heap.Check().ok());

  // A larger one gets it first, where it has no use of it, and then its own.
  agent_.Next(Refusal(4, "NOT_ONLINE_IN_TIME"));
  EXPECT_EQ(heap.Allocate(5_MiB), nullptr);
  EXPECT_NE(heap.Allocate(9_MiB), nullptr);
  EXPECT_EQ(Names().size(), 4u);
  EXPECT_EQ(heap.Describe()->regions, 4u);

  // One that is known not to be there is asked for no more.
  agent_.Next(Refusal(4, "NOT_ONLINE_IN_TIME"));
  EXPECT_EQ(heap.Allocate(9_MiB), nullptr);
  agent_.Next(Refusal(8, "POOL_FULL"));
  const size_t asked = agent_.Requests().size();
  EXPECT_NE(heap.Allocate(9_MiB), nullptr);
  const auto requests = agent_.Requests();
  ASSERT_EQ(requests.size(), asked + 2);
  EXPECT_NE(requests[asked].allocate().request_id(), requests[asked + 1].allocate().request_id());
}

TEST_F(HeapTest, ARegionWhoseFateWasUnknownIsReleasedWithTheHeap) {
  agent_.Next(Refusal(4, "NOT_ONLINE_IN_TIME"));  // That of a heap which does not come to be, too.
  EXPECT_FALSE(Heap::Create(Connect(), {.size_bytes = 2_MiB}).ok() || !Names().empty());
  Heap heap = Create({.size_bytes = 2_MiB, .max_bytes = 64_MiB});
  agent_.Next(Refusal(4, "NOT_ONLINE_IN_TIME"));
  EXPECT_EQ(heap.Allocate(3_MiB), nullptr);
  EXPECT_EQ(Names().size(), 2u);
  EXPECT_TRUE(heap.End().ok());
  EXPECT_TRUE(Names().empty());
}

// Whether a thread of this process waits in the kernel.
bool Waits(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string stat(std::istreambuf_iterator<char>(file), {});
  const size_t name_ends = stat.rfind(')');
  return name_ends != std::string::npos && stat.substr(name_ends + 2, 1) == "S";
}

TEST_F(HeapTest, ThreadsThatWaitForOneRegionAreRefusedTogether) {
  const Heap heap = Create({.size_bytes = 2_MiB, .max_bytes = 64_MiB});
  agent_.Next(Refusal(8, "USER_LIMIT"));
  const size_t asked = agent_.Requests().size();
  agent_.Pause();
  std::atomic<int> refused = 0;
  std::vector<std::atomic<pid_t>> ids(4);
  std::vector<std::thread> threads;
  for (std::atomic<pid_t>& id : ids) {
    threads.emplace_back([&heap, &refused, &id] {
      id = ::gettid();
      if (heap.Allocate(3_MiB) == nullptr) ++refused;
    });
  }
  // One of them for the agent, the others for that one.
  const auto all_wait = [&] {
    return std::all_of(ids.begin(), ids.end(), [](const auto& id) { return id != 0 && Waits(id); });
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (int seen = 0; seen < 20 && std::chrono::steady_clock::now() < deadline;) {
    seen = all_wait() ? seen + 1 : 0;
    ::poll(nullptr, 0, 1);
  }
  agent_.Resume();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 4);
  EXPECT_EQ(agent_.Requests().size(), asked + 1);
  EXPECT_NE(heap.Allocate(3_MiB), nullptr) << "the next one asks anew";
}

TEST_F(HeapTest, ARefusalOfManyBytesIsNoneOfFew) {
  const Heap heap = Create({.size_bytes = 2_MiB, .max_bytes = 64_MiB});
  agent_.Next(Refusal(8, "USER_LIMIT"));
  const size_t asked = agent_.Requests().size();
  agent_.Pause();
  std::atomic<pid_t> ids[2] = {0, 0};
  void* blocks[2] = {nullptr, nullptr};
  std::vector<std::thread> threads;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    threads.emplace_back([&heap, &ids, &blocks, i] {
      ids[i] = ::gettid();
      blocks[i] = heap.Allocate(i == 0 ? 32_MiB : 3_MiB);
    });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (int seen = 0; seen < 20 && std::chrono::steady_clock::now() < deadline;) {
      seen = ids[i] != 0 && Waits(ids[i]) ? seen + 1 : 0;
      ::poll(nullptr, 0, 1);
    }
  }
  agent_.Resume();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(blocks[0], nullptr);
  EXPECT_NE(blocks[1], nullptr);
  EXPECT_EQ(agent_.Requests().size(), asked + 2);
  heap.Free(blocks[1]);
}

// The other one comes when the Region is there, and is itself in need of room.
TEST_F(HeapTest, WhoGotARegionGetsItsBlockBeforeOthersTakeOfIt) {
  const Heap heap = Create({.size_bytes = 2_MiB, .max_bytes = 64_MiB});
  ASSERT_NE(heap.Allocate(3 << 19), nullptr);  // What is left is for neither.
  std::atomic<bool> answered = false;
  agent_.Next({.what = FakeAgent::Mishap::kEdit,
               .edit = [&answered](v1::LocalResponse&) { answered = true; }});
  std::thread other([&heap, &answered] {
    while (!answered) ::poll(nullptr, 0, 1);
    ::poll(nullptr, 0, 20);
    EXPECT_NE(heap.Allocate(1_MiB), nullptr);
  });
  EXPECT_NE(heap.Allocate(3_MiB), nullptr);
  other.join();
}

TEST_F(HeapTest, ARegionThatCouldNotBeReleasedIsReleasedByTheNextTrim) {
  const Heap heap = Create({.size_bytes = 2_MiB, .max_bytes = 20_MiB});
  for (void* const block : {heap.Allocate(4_MiB), heap.Allocate(4_MiB)}) heap.Free(block);
  ASSERT_EQ(heap.Describe()->regions, 3u);
  for (int i = 0; i < 2; ++i) agent_.Next({.what = FakeAgent::Mishap::kEdit});  // It hears of both.
  agent_.Next(Refusal(9, "REGION_BUSY"));
  const size_t before = agent_.Requests().size();
  EXPECT_EQ(ReasonOf(heap.Trim()), "REGION_BUSY");
  EXPECT_EQ(agent_.Requests().size(), before + 4) << "two closes and two releases";
  EXPECT_EQ(heap.Describe()->regions, 1u);
  const size_t asked = agent_.Requests().size();
  EXPECT_TRUE(heap.Trim().ok()) << "the fake agent released it all the same: there is none";
  ASSERT_EQ(agent_.Requests().size(), asked + 1);
  EXPECT_TRUE(agent_.Requests().back().has_release());
}

TEST_F(HeapTest, FourThreadsFreeWhatOthersAllocated) {
  constexpr int kThreads = 4;
  constexpr int kBlocks = 20000;
  struct Queue {
    std::mutex mutex;
    std::deque<std::pair<unsigned char*, size_t>> blocks;
  };
  Heap heap = Create({.size_bytes = 16_MiB, .max_bytes = 256_MiB});
  Queue queues[kThreads];
  std::vector<int> wrong(kThreads, 0);
  const auto work = [&](int self) {
    std::mt19937 random(static_cast<unsigned>(self));
    const auto free_one = [&] {
      std::pair<unsigned char*, size_t> block = {};
      {
        const std::lock_guard lock(queues[self].mutex);
        if (queues[self].blocks.empty()) return false;
        block = queues[self].blocks.front();
        queues[self].blocks.pop_front();
      }
      const auto tag = static_cast<unsigned char>(block.second);
      if (block.first[0] != tag || block.first[block.second - 1] != tag) ++wrong[self];
      heap.Free(block.first);
      return true;
    };
    for (int i = 0; i < kBlocks; ++i) {
      const size_t size = SomeSize(random);
      auto* const block = static_cast<unsigned char*>(heap.Allocate(size));
      if (block == nullptr) {
        free_one();
        continue;
      }
      block[0] = block[size - 1] = static_cast<unsigned char>(size);
      {
        Queue& next = queues[(self + 1) % kThreads];
        const std::lock_guard lock(next.mutex);
        next.blocks.emplace_back(block, size);
      }
      while (random() % 4 != 0 && free_one()) {
      }
    }
    while (free_one()) {
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  for (Queue& queue : queues) {
    for (const auto& [block, size] : queue.blocks) heap.Free(block);
  }
  EXPECT_EQ(wrong, std::vector<int>(kThreads, 0));
  ASSERT_TRUE(heap.Trim().ok());
  const HeapInfo info = heap.Describe().value();
  EXPECT_EQ(info.live_bytes, 0u);
  EXPECT_EQ(info.threads, 1u) << "this one's cache; theirs went with them";
  EXPECT_EQ(info.regions, 1u);
  EXPECT_TRUE(heap.End().ok());
  EXPECT_TRUE(Names().empty());
}

TEST_F(HeapTest, AnArenaServesFourThreads) {
  const Heap heap = Create({.size_bytes = 16_MiB});
  heap.Free(heap.Allocate(8));
  std::latch used{8};
  std::latch looked_at{1};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      heap.Free(heap.Allocate(8));
      used.count_down();
      looked_at.wait();
    });
  }
  used.wait();
  EXPECT_EQ(heap.Describe()->threads, 9u);
  EXPECT_EQ(heap.Describe()->arenas, 3u);
  looked_at.count_down();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(heap.Describe()->threads, 1u);
}

TEST_F(HeapTest, WhatAThreadKeptInItsCacheIsFreeWhenItHasEnded) {
  const Heap heap = Create({.size_bytes = 2_MiB, .max_bytes = 16_MiB});
  std::vector<void*> blocks(20000);
  for (void*& block : blocks) block = heap.Allocate(300);
  EXPECT_GT(heap.Describe()->regions, 2u);
  std::thread([&] {
    for (void* const block : blocks) heap.Free(block);
  }).join();
  ASSERT_TRUE(heap.Trim().ok());
  EXPECT_EQ(heap.Describe()->live_bytes, 0u);
  EXPECT_EQ(heap.Describe()->regions, 1u);
}

TEST_F(HeapTest, ContainersLiveInIt) {
  Heap heap = Create({.name_prefix = "heap", .size_bytes = 16_MiB});
  {
    std::pmr::vector<uint64_t> numbers(heap.resource());
    std::pmr::map<int, std::pmr::string> names(heap.resource());
    std::vector<int, Allocator<int>> ids(heap.allocator<int>());
    std::set<int, std::less<>, Allocator<int>> ordered(heap.allocator<int>());
    for (int i = 0; i < 5000; ++i) {
      numbers.push_back(static_cast<uint64_t>(i));
      names[i] = "the name of number " + std::to_string(i);
      ids.push_back(i);
      ordered.insert(i);
    }
    EXPECT_EQ(numbers[4999], 4999u);
    EXPECT_EQ(names[4999], "the name of number 4999");
    EXPECT_NE(BytesOf(Names().at(0)).find("the name of number 4999"), std::string::npos);
    EXPECT_EQ(ids.size() + ordered.size(), 10000u);
    EXPECT_TRUE(heap.allocator<int>() == heap.allocator<char>());
    EXPECT_EQ(ReasonOf(heap.End()), "HEAP_IN_USE");
    numbers.push_back(1);
    EXPECT_EQ(names[17], "the name of number 17") << "it is as it was";
  }
  EXPECT_TRUE(heap.End().ok());
}

TEST_F(HeapTest, AlignsAsItIsAsked) {
  const Heap heap = Create({.size_bytes = 64_MiB});
  for (size_t alignment = 1; alignment <= 4_MiB; alignment *= 2) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{8}, size_t{24}, size_t{5000}}) {
      void* const first = heap.Allocate(size, alignment);
      void* const second = heap.Allocate(size, alignment);
      ASSERT_NE(first, nullptr) << alignment;
      ASSERT_NE(first, second);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % alignment, 0u);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(second) % alignment, 0u);
      void* const moved = heap.Reallocate(second, size + 3000, alignment);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(moved) % alignment, 0u);
      heap.Free(first);
      heap.Free(moved);
    }
  }
  for (const size_t size : {1, 8, 9, 17}) {
    void* const block = cxlpool_heap_allocate(heap.handle(), size, 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignof(std::max_align_t), 0u);
    heap.Free(block);
  }
  for (const size_t alignment : {size_t{3}, size_t{24}, SIZE_MAX}) {
    EXPECT_EQ(heap.Allocate(64, alignment), nullptr);
    EXPECT_EQ(heap.Reallocate(nullptr, 64, alignment), nullptr);
  }
}

TEST_F(HeapTest, ReallocatingKeepsTheBytes) {
  const Heap heap = Create({.size_bytes = 8_MiB});
  auto* block = static_cast<unsigned char*>(heap.Reallocate(nullptr, 10));
  std::memset(block, 7, 10);
  for (const size_t size : {size_t{100}, size_t{20000}, size_t{3_MiB}, size_t{50}, size_t{0}}) {
    auto* const moved = static_cast<unsigned char*>(heap.Reallocate(block, size));
    ASSERT_NE(moved, nullptr) << size;
    block = moved;
    for (size_t i = 0; i < std::min<size_t>(size, 10); ++i) EXPECT_EQ(block[i], 7) << size;
  }
  EXPECT_EQ(heap.Reallocate(block, 16_MiB), nullptr);
  EXPECT_EQ(block[0], 7) << "it stays";
  heap.Free(block);
  EXPECT_TRUE(heap.Trim().ok());
  EXPECT_EQ(heap.Describe()->live_bytes, 0u);
}

TEST_F(HeapTest, HeapsKeepApartAndComeAndGo) {
  for (int i = 0; i < 20; ++i) {
    Heap first = Create({.name_prefix = "a", .size_bytes = 2_MiB});
    Heap second = Create({.name_prefix = "b", .size_bytes = 2_MiB});
    void* const in_first = first.Allocate(100);
    void* const in_second = second.Allocate(100);
    std::thread([&] { second.Free(second.Allocate(50)); }).join();
    std::memcpy(in_first, "in the first", 13);
    std::memcpy(in_second, "in the second", 14);
    const std::vector<std::string> names = Names();
    ASSERT_EQ(names.size(), 2u);
    EXPECT_NE(BytesOf(names[0]).find("in the first"), std::string::npos);
    EXPECT_EQ(BytesOf(names[0]).find("in the second"), std::string::npos);
    EXPECT_NE(BytesOf(names[1]).find("in the second"), std::string::npos);
    first.Free(in_first);
    EXPECT_TRUE(first.End().ok());
    EXPECT_EQ(ReasonOf(second.End()), "HEAP_IN_USE");
    // The second one goes with its block.
  }
  EXPECT_TRUE(Names().empty());
}

TEST_F(HeapTest, AThreadMayEndAfterItsHeap) {
  std::latch used{1};
  std::latch heap_is_gone{1};
  auto heap = std::make_unique<Heap>(Create({.size_bytes = 2_MiB}));
  std::thread other([&] {
    heap->Free(heap->Allocate(100));
    used.count_down();
    heap_is_gone.wait();
  });
  used.wait();
  EXPECT_TRUE(heap->End().ok());
  heap.reset();
  heap_is_gone.count_down();
  other.join();
}

TEST_F(HeapTest, AForkedChildReadsItsParentsBlocksAndGetsNone) {
  Heap heap = Create({.size_bytes = 2_MiB});
  auto* const block = static_cast<char*>(heap.Allocate(100));
  std::memcpy(block, "parent", 7);
  const size_t asked = agent_.Requests().size();
  const pid_t child = ::fork();
  if (child == 0) {
    bool right = std::strcmp(block, "parent") == 0;
    right = right && heap.Allocate(10) == nullptr && heap.Reallocate(block, 1000) == nullptr;
    heap.Free(block);
    right = right && ReasonOf(heap.Trim()) == "FORKED" && ReasonOf(heap.Check()) == "FORKED";
    right = right && ReasonOf(heap.Describe()) == "FORKED";
    right = right && heap.End().ok();
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_STREQ(block, "parent");
  EXPECT_EQ(agent_.Requests().size(), asked);
  EXPECT_NE(heap.Allocate(10), nullptr);
}

TEST_F(HeapTest, RefusesWhatCannotBe) {
  const auto reason = [this](const HeapOptions& options) {
    return ReasonOf(Heap::Create(Connect(), options));
  };
  EXPECT_EQ(reason({}), "BAD_ARGUMENT");
  EXPECT_EQ(reason({.size_bytes = 4_MiB, .max_bytes = 2_MiB}), "BAD_ARGUMENT");
  EXPECT_EQ(reason({.size_bytes = UINT64_MAX}), "BAD_ARGUMENT");
  EXPECT_EQ(reason({.size_bytes = 2_MiB, .wait = std::chrono::hours(1)}), "BAD_ARGUMENT");
  EXPECT_EQ(reason({.name_prefix = "Bad Name", .size_bytes = 2_MiB}), "BAD_NAME");
  EXPECT_EQ(reason({.name_prefix = std::string(44, 'a'), .size_bytes = 2_MiB}), "BAD_ARGUMENT");
  EXPECT_TRUE(Names().empty());
  EXPECT_EQ(cxlpool_heap_create(nullptr, nullptr, nullptr, nullptr), CXLPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(cxlpool_heap_allocate(nullptr, 1, 0), nullptr);
  EXPECT_EQ(cxlpool_heap_destroy(nullptr, 0, nullptr), 0);
}

TEST_F(HeapTest, TheProgramsMallocStaysWhatItIs) {
  // In a static build of the tests as in the shared library: jemalloc's names are not to be seen.
  for (const char* name : {"mallocx", "dallocx", "mallctl", "cxlpool_je_mallocx"}) {
    EXPECT_EQ(::dlsym(RTLD_DEFAULT, name), nullptr) << name;
  }
  Dl_info self = {};
  Dl_info library = {};
  ASSERT_NE(::dladdr(reinterpret_cast<void*>(&cxlpool_heap_create), &self), 0);
  ASSERT_NE(::dladdr(::dlsym(RTLD_DEFAULT, "malloc"), &library), 0);
  const std::string where = library.dli_fname;
  EXPECT_TRUE(where.find("libc.so") != std::string::npos ||
              where.find("san.so") != std::string::npos)
      << where;
}

TEST_F(HeapTest, SaysThatNoProfileWasKept) {
  const Heap heap = Create({.size_bytes = 2_MiB});
  EXPECT_EQ(ReasonOf(heap.Profile("/nowhere")), "NO_PROFILE");
}

// Run by the next one, in a process of its own.
TEST_F(HeapTest, DISABLED_InAProcessWithProfiles) {
  const TempDir dir;
  const Heap heap = Create({.size_bytes = 8_MiB});
  void* const block = heap.Allocate(123456);
  const Result<void> written = heap.Profile(dir.Path("profile"));
  EXPECT_TRUE(written.ok()) << written.error().text();
  std::ifstream file(dir.Path("profile"));
  const std::string profile(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(profile.substr(0, 7), "heap_v2") << profile;
  EXPECT_NE(profile.find("1: 131072 "), std::string::npos) << profile;
  EXPECT_EQ(ReasonOf(heap.Profile("/nowhere/at/all")), "PROFILE_FAILED");
  heap.Free(block);
}

TEST(HeapProfileTest, IsWrittenWhereTheEnvironmentAskedForIt) {
  std::string program = "/proc/self/exe";
  std::string filter = "--gtest_filter=HeapTest.DISABLED_InAProcessWithProfiles";
  std::string disabled = "--gtest_also_run_disabled_tests";
  std::string setting = "CXLPOOL_HEAP_CONF=prof:true,lg_prof_sample:0";
  char* arguments[] = {program.data(), filter.data(), disabled.data(), nullptr};
  std::vector<char*> environment = {setting.data()};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    environment.push_back(*variable);
  }
  environment.push_back(nullptr);
  pid_t child = -1;
  ASSERT_EQ(
      ::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environment.data()), 0);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace cxlpool
