// What is left of a call that ran out of memory. The program's allocations go through this file,
// where one of a thread's can be made to fail.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>

#include "cxlpool/cxlpool.h"
#include "cxlpool/directory.h"
#include "test/rigs/fake_agent.h"

namespace {

// How many allocations of this thread succeed before one fails. Below 0: none fails.
thread_local int t_left = -1;

void* Allocate(size_t bytes) {
  if (t_left >= 0 && t_left-- == 0) throw std::bad_alloc();
  void* const block = std::malloc(bytes == 0 ? 1 : bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void* operator new[](size_t bytes) { return Allocate(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes); }
void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }
void operator delete[](void* block, size_t) noexcept { std::free(block); }

namespace cxlpool::libpool {
namespace {

constexpr char kRegion[] = "regions/kv";

// Valid as long as the agent is. With time for a machine that does other things, too.
cxlpool_connect_options OptionsFor(const FakeAgent& agent) {
  cxlpool_connect_options options = CXLPOOL_CONNECT_OPTIONS_INIT;
  options.socket_path = agent.socket_path().c_str();
  options.timeout_ms = 10'000;
  return options;
}

// Each allocation of an Open fails once, in a client that has one connection and one that has to
// make it. There are more of them than calls that may be under way.
TEST(NoMemoryTest, AnOpenThatRanOutOfMemoryLeavesNothingOpenAndNoCallUnderWay) {
  FakeAgent agent;
  agent.Add({.name = kRegion});
  const cxlpool_connect_options options = OptionsFor(agent);
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  int failed = 0;
  for (const bool is_held : {false, true}) {
    cxlpool_client* client = nullptr;
    ASSERT_EQ(cxlpool_connect(&options, &client, &error), 0) << error.message;
    cxlpool_region* held = nullptr;
    if (is_held) {
      ASSERT_EQ(cxlpool_open(client, "kv", nullptr, &held, &error), 0) << error.message;
    }
    cxlpool_region* region = nullptr;
    for (int left = 0; region == nullptr; ++left) {
      t_left = left;
      const int code = cxlpool_open(client, "kv", nullptr, &region, &error);
      const bool all_used = t_left >= 0;
      t_left = -1;
      if (code == 0 && !all_used) {  // It did without what it could not have.
        cxlpool_close(region);
        region = nullptr;
      }
      if (code == 0) continue;
      ++failed;
      ASSERT_STREQ(error.reason, "NO_MEMORY") << "allocation " << left << ": " << error.message;
    }
    if (is_held) {
      EXPECT_EQ(cxlpool_region_check(held, &error), 0) << error.message;
    }
    cxlpool_close(region);
    cxlpool_list* list = nullptr;
    EXPECT_EQ(cxlpool_list_regions(client, &list, &error), 0) << error.message;
    cxlpool_list_free(list);
    EXPECT_TRUE(agent.AwaitOpens(kRegion, is_held ? 1 : 0));
    cxlpool_close(held);
    EXPECT_TRUE(agent.AwaitOpens(kRegion, 0));
    cxlpool_disconnect(client);
  }
  EXPECT_GT(failed, CXLPOOL_MAX_CALLS);
}

// Each allocation of a Close fails once, in a client that has nothing else open.
TEST(NoMemoryTest, ACloseWithoutMemoryIsAClose) {
  FakeAgent agent;
  agent.Add({.name = kRegion});
  const cxlpool_connect_options options = OptionsFor(agent);
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  int failed = 0;
  for (bool all_used = false; !all_used;) {
    cxlpool_client* client = nullptr;
    cxlpool_region* region = nullptr;
    ASSERT_EQ(cxlpool_connect(&options, &client, &error), 0) << error.message;
    ASSERT_EQ(cxlpool_open(client, "kv", nullptr, &region, &error), 0) << error.message;
    t_left = failed;
    cxlpool_close(region);
    region = nullptr;
    all_used = t_left >= 0;
    t_left = -1;
    failed += all_used ? 0 : 1;
    // Before the client ends, which would close it, too.
    EXPECT_TRUE(agent.AwaitOpens(kRegion, 0)) << "allocation " << failed;
    EXPECT_EQ(cxlpool_open(client, "kv", nullptr, &region, &error), 0) << error.message;
    cxlpool_close(region);
    EXPECT_TRUE(agent.AwaitOpens(kRegion, 0)) << "after allocation " << failed;
    cxlpool_disconnect(client);
  }
  EXPECT_GT(failed, 0);
}

// Each allocation of a put, a borrow and a removal fails once. What they left is gone with the next
// object of that name: nothing stays pinned, and no room taken.
TEST(NoMemoryTest, ADirectoryLosesNeitherRoomNorPins) {
  FakeAgent agent;
  agent.Add({.name = kRegion, .segment_bytes = {4 << 20}});
  const cxlpool_connect_options options = OptionsFor(agent);
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  cxlpool_client* client = nullptr;
  cxlpool_region* region = nullptr;
  cxlpool_map* map = nullptr;
  cxlpool_directory* directory = nullptr;
  cxlpool_directory_options own = CXLPOOL_DIRECTORY_OPTIONS_INIT;
  own.partition = 0;
  ASSERT_EQ(cxlpool_connect(&options, &client, &error), 0) << error.message;
  ASSERT_EQ(cxlpool_open(client, "kv", nullptr, &region, &error), 0) << error.message;
  ASSERT_EQ(cxlpool_map_region(region, nullptr, &map, &error), 0) << error.message;
  cxlpool_directory_create_options made = CXLPOOL_DIRECTORY_CREATE_OPTIONS_INIT;
  made.entries = 64;
  ASSERT_EQ(cxlpool_directory_create(map, &made, &error), 0) << error.message;
  ASSERT_EQ(cxlpool_directory_open(map, &own, &directory, &error), 0) << error.message;
  cxlpool_directory_info before = CXLPOOL_DIRECTORY_INFO_INIT;
  ASSERT_EQ(cxlpool_directory_describe(directory, &before, &error), 0) << error.message;

  int failed = 0;
  for (bool all_used = false; !all_used;) {
    cxlpool_object* object = nullptr;
    t_left = failed;
    int code = cxlpool_directory_put(directory, "a", "xy", 2, &error);
    if (code == 0) code = cxlpool_directory_put(directory, "a", "z", 1, &error);
    if (code == 0) code = cxlpool_directory_borrow(directory, "a", &object, &error);
    if (code == 0) code = cxlpool_directory_remove(directory, "a", &error);
    cxlpool_object_free(object);
    all_used = t_left >= 0;
    t_left = -1;
    if (code != 0) {
      ASSERT_STREQ(error.reason, "NO_MEMORY") << "allocation " << failed;
    }
    failed += all_used ? 0 : 1;

    ASSERT_EQ(cxlpool_directory_put(directory, "a", "x", 1, &error), 0) << error.message;
    ASSERT_EQ(cxlpool_directory_remove(directory, "a", &error), 0) << error.message;
    cxlpool_directory_info now = CXLPOOL_DIRECTORY_INFO_INIT;
    ASSERT_EQ(cxlpool_directory_describe(directory, &now, &error), 0) << error.message;
    EXPECT_EQ(now.objects, 0u);
    EXPECT_EQ(now.free_bytes, before.free_bytes) << "allocation " << failed;
    EXPECT_EQ(now.borrowed_objects, 0u) << "allocation " << failed;
    EXPECT_EQ(now.removed_objects, 0u);
  }
  EXPECT_GT(failed, 4);
  cxlpool_directory_close(directory);
  cxlpool_unmap(map);
  cxlpool_close(region);
  cxlpool_disconnect(client);
}

// What is reported to the watch's callback, which is called in the watch's thread.
struct Heard {
  std::atomic<int> sizes = 0;
  std::atomic<int> left = -1;
};

// After each size that the watch reports, one of its thread's next allocations fails: another one
// each time. It goes on, and reports the next size. (The first is where it asks again.)
TEST(NoMemoryTest, AWatchThatRunsOutOfMemoryGoesOn) {
  constexpr int kAllocations = 12;
  FakeAgent agent;
  Heard heard;
  const cxlpool_connect_options connect = OptionsFor(agent);
  cxlpool_fault_watch_options options = CXLPOOL_FAULT_WATCH_OPTIONS_INIT;
  options.on_size = [](const cxlpool_region_size*, void* context) {
    auto& heard = *static_cast<Heard*>(context);
    t_left = heard.left;
    ++heard.sizes;
  };
  options.context = &heard;
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  cxlpool_fault_watch* watch = nullptr;
  ASSERT_EQ(cxlpool_fault_watch_start(&connect, &options, &watch, &error), 0) << error.message;
  for (int left = 0; left < kAllocations; ++left) {
    heard.left = left;
    v1::LocalSize size;
    size.set_name(kRegion);
    // A Region of its own: what the watch hears once more is left out. Too long for the text
    // itself.
    size.set_tag("a tag of more than sixteen characters " + std::to_string(left));
    size.set_size_bytes(4096);
    agent.AddSize(size);
    for (int tries = 0; heard.sizes <= left && tries < 10'000; ++tries) ::poll(nullptr, 0, 1);
    if (heard.sizes <= left) break;
  }
  cxlpool_fault_watch_stop(watch);
  EXPECT_EQ(heard.sizes, kAllocations);
}

}  // namespace
}  // namespace cxlpool::libpool
