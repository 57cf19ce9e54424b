// What is left of a call that ran out of memory. The program's allocations go through this file,
// where one of a thread's can be made to fail.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <new>

#include "cxlpool/cxlpool.h"
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

// Each allocation of an Open fails once, in a client that has one connection and one that has to
// make it. There are more of them than calls that may be under way.
TEST(NoMemoryTest, AnOpenThatRanOutOfMemoryLeavesNothingOpenAndNoCallUnderWay) {
  FakeAgent agent;
  agent.Add({.name = kRegion});
  cxlpool_connect_options options = CXLPOOL_CONNECT_OPTIONS_INIT;
  options.socket_path = agent.socket_path().c_str();
  options.timeout_ms = 10'000;
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

}  // namespace
}  // namespace cxlpool::libpool
