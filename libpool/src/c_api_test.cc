// What cxlpool.h says of structs that begin with their size, of errors, and of handles.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cxlpool/cxlpool.h"
#include "test/rigs/fake_agent.h"

namespace cxlpool::libpool {
namespace {

class CApiTest : public ::testing::Test {
 protected:
  cxlpool_client* Connect() {
    cxlpool_connect_options options = CXLPOOL_CONNECT_OPTIONS_INIT;
    options.socket_path = agent_.socket_path().c_str();
    cxlpool_client* client = nullptr;
    EXPECT_EQ(cxlpool_connect(&options, &client, &error_), 0) << error_.message;
    return client;
  }

  FakeAgent agent_;
  cxlpool_error error_ = CXLPOOL_ERROR_INIT;
};

TEST_F(CApiTest, HandlesAreFreedInAnyOrder) {
  agent_.Add({.name = "regions/kv"});
  cxlpool_client* const client = Connect();
  cxlpool_region* region = nullptr;
  ASSERT_EQ(cxlpool_open(client, "kv", nullptr, &region, nullptr), 0);
  cxlpool_disconnect(client);
  cxlpool_map* map = nullptr;
  ASSERT_EQ(cxlpool_map_region(region, nullptr, &map, &error_), 0) << error_.message;
  cxlpool_close(region);
  std::memset(cxlpool_map_address(map), 1, cxlpool_map_size(map));
  EXPECT_EQ(cxlpool_map_writable(map), 1);
  EXPECT_EQ(agent_.Opens("regions/kv"), 1);
  cxlpool_unmap(map);
  EXPECT_TRUE(agent_.AwaitOpens("regions/kv", 0));
  cxlpool_disconnect(nullptr);
  cxlpool_close(nullptr);
  cxlpool_unmap(nullptr);
  cxlpool_list_free(nullptr);
  cxlpool_fault_watch_stop(nullptr);
}

TEST_F(CApiTest, AnErrorIsFilledAsFarAsTheCallerKnowsIt) {
  cxlpool_client* const client = Connect();
  cxlpool_region* region = nullptr;
  std::memset(error_.reason, 'x', sizeof error_.reason);
  EXPECT_EQ(cxlpool_open(client, "none", nullptr, &region, &error_), CXLPOOL_NOT_FOUND);
  EXPECT_EQ(region, nullptr);
  EXPECT_EQ(error_.code, CXLPOOL_NOT_FOUND);
  EXPECT_STREQ(error_.reason, "NOT_ATTACHED");
  EXPECT_STREQ(error_.message, "regions/none is not attached to this host");
  EXPECT_STREQ(error_.remedy, "attach it");

  // One from before `message` was there.
  cxlpool_error older = CXLPOOL_ERROR_INIT;
  older.size = offsetof(cxlpool_error, message);
  std::strcpy(older.message, "as it was");
  EXPECT_EQ(cxlpool_open(client, "none", nullptr, &region, &older), CXLPOOL_NOT_FOUND);
  EXPECT_STREQ(older.reason, "NOT_ATTACHED");
  EXPECT_STREQ(older.message, "as it was");
  EXPECT_EQ(older.size, offsetof(cxlpool_error, message));
  cxlpool_disconnect(client);
}

TEST_F(CApiTest, TextThatIsTooLongIsCutBetweenCharacters) {
  agent_.Next({.what = FakeAgent::Mishap::kEdit, .edit = [](v1::LocalResponse& response) {
                 response.Clear();
                 response.set_code(9);
                 std::string text = "x";
                 while (text.size() < 600) text += "\u00e9";  // Two bytes; the cut is within one.
                 response.set_message(text);
               }});
  cxlpool_client* const client = Connect();
  cxlpool_region* region = nullptr;
  EXPECT_EQ(cxlpool_open(client, "kv", nullptr, &region, &error_), CXLPOOL_FAILED_PRECONDITION);
  EXPECT_EQ(std::strlen(error_.message), sizeof error_.message - 1);
  EXPECT_EQ(error_.message[sizeof error_.message - 2], '\xa9');
  cxlpool_disconnect(client);
}

TEST_F(CApiTest, OptionsOfOtherVersions) {
  agent_.Add({.name = "regions/kv"});
  cxlpool_client* const client = Connect();
  cxlpool_region* region = nullptr;
  ASSERT_EQ(cxlpool_open(client, "kv", nullptr, &region, &error_), 0) << error_.message;
  cxlpool_map* map = nullptr;

  // Of an earlier header: what it does not have has its default.
  cxlpool_map_options earlier = CXLPOOL_MAP_OPTIONS_INIT;
  earlier.size = offsetof(cxlpool_map_options, offset_bytes);
  earlier.offset_bytes = 7;  // No part of it.
  EXPECT_EQ(cxlpool_map_region(region, &earlier, &map, &error_), 0) << error_.message;
  cxlpool_unmap(map);

  // Of a later one: fine as long as it asks for nothing new.
  struct {
    cxlpool_map_options known = CXLPOOL_MAP_OPTIONS_INIT;
    uint64_t added = 0;
  } later;
  later.known.size = sizeof later;
  EXPECT_EQ(cxlpool_map_region(region, &later.known, &map, &error_), 0) << error_.message;
  cxlpool_unmap(map);
  later.added = 1;
  EXPECT_EQ(cxlpool_map_region(region, &later.known, &map, &error_), CXLPOOL_INVALID_ARGUMENT);
  EXPECT_STREQ(error_.remedy, "install the libcxlpool that the program was compiled for");

  later.known.size = 0;
  EXPECT_EQ(cxlpool_map_region(region, &later.known, &map, &error_), CXLPOOL_INVALID_ARGUMENT);

  // No value of its enum, which is not taken for READ_ONLY.
  cxlpool_map_options odd = CXLPOOL_MAP_OPTIONS_INIT;
  for (const int32_t bad : {3, -1}) {
    odd.writable = bad;
    EXPECT_EQ(cxlpool_map_region(region, &odd, &map, &error_), CXLPOOL_INVALID_ARGUMENT);
    EXPECT_STREQ(error_.reason, "BAD_ARGUMENT");
  }
  cxlpool_close(region);
  cxlpool_disconnect(client);
}

// The library looks at every byte of an options struct: none may be padding, which nobody sets.
static_assert(sizeof(cxlpool_allocate_options) ==
              offsetof(cxlpool_allocate_options, reserved) + sizeof(int32_t));
static_assert(sizeof(cxlpool_open_options) ==
              offsetof(cxlpool_open_options, reserved) + sizeof(int32_t));

TEST_F(CApiTest, NullsAndValuesThatCannotBeAreRefused) {
  cxlpool_client* const client = Connect();
  cxlpool_region* region = nullptr;
  cxlpool_region_info info = CXLPOOL_REGION_INFO_INIT;
  EXPECT_EQ(cxlpool_connect(nullptr, nullptr, &error_), CXLPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(cxlpool_open(client, nullptr, nullptr, &region, &error_), CXLPOOL_INVALID_ARGUMENT);
  EXPECT_STREQ(error_.reason, "BAD_NAME");
  EXPECT_EQ(cxlpool_open(nullptr, "kv", nullptr, &region, &error_), CXLPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(cxlpool_region_check(nullptr, &error_), CXLPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(cxlpool_region_describe(nullptr, &info, &error_), CXLPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(cxlpool_list_describe(nullptr, 0, &info, &error_), CXLPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(cxlpool_region_extent_count(nullptr), 0u);
  EXPECT_EQ(cxlpool_map_address(nullptr), nullptr);

  cxlpool_allocate_options allocate = CXLPOOL_ALLOCATE_OPTIONS_INIT;
  EXPECT_EQ(cxlpool_allocate(client, &allocate, &region, &error_), CXLPOOL_INVALID_ARGUMENT);
  allocate.size_bytes = 4096;
  for (const int32_t bad : {0, 4, -1}) {
    allocate.sharing = bad;
    EXPECT_EQ(cxlpool_allocate(client, &allocate, &region, &error_), CXLPOOL_INVALID_ARGUMENT);
  }
  allocate.sharing = CXLPOOL_EXCLUSIVE;
  allocate.mode = 3;
  EXPECT_EQ(cxlpool_allocate(client, &allocate, &region, &error_), CXLPOOL_INVALID_ARGUMENT);
  allocate.mode = CXLPOOL_DEVDAX;
  const std::vector<uint32_t> many(65);
  allocate.open_to_uids = many.data();
  allocate.open_to_uid_count = many.size();
  EXPECT_EQ(cxlpool_allocate(client, &allocate, &region, &error_), CXLPOOL_INVALID_ARGUMENT);
  allocate.open_to_uids = nullptr;
  allocate.open_to_uid_count = 1;
  EXPECT_EQ(cxlpool_allocate(client, &allocate, &region, &error_), CXLPOOL_INVALID_ARGUMENT);
  allocate.open_to_uid_count = 0;
  allocate.open_to_gid_count = 1;
  EXPECT_EQ(cxlpool_allocate(client, &allocate, &region, &error_), CXLPOOL_INVALID_ARGUMENT);
  EXPECT_STREQ(error_.reason, "BAD_ARGUMENT");
  EXPECT_TRUE(agent_.Requests().empty());
  cxlpool_disconnect(client);
}

TEST_F(CApiTest, AListingWithUnknownValuesIsNotRefused) {
  agent_.Next({.what = FakeAgent::Mishap::kEdit, .edit = [](v1::LocalResponse& response) {
                 v1::LocalRegion& region = *response.mutable_list()->add_regions();
                 region.set_name("regions/kv");
                 region.mutable_attachment()->set_state(static_cast<v1::Attachment::State>(99));
                 region.mutable_attachment()->set_access(static_cast<v1::Access>(99));
               }});
  cxlpool_client* const client = Connect();
  cxlpool_list* list = nullptr;
  ASSERT_EQ(cxlpool_list_regions(client, &list, &error_), 0) << error_.message;
  ASSERT_EQ(cxlpool_list_count(list), 1u);
  cxlpool_region_info info = CXLPOOL_REGION_INFO_INIT;
  ASSERT_EQ(cxlpool_list_describe(list, 0, &info, &error_), 0);
  EXPECT_EQ(info.state, CXLPOOL_STATE_UNKNOWN);
  EXPECT_EQ(info.access, CXLPOOL_READ_ONLY) << "the least that it may be";
  EXPECT_EQ(info.numa_node, -1);
  EXPECT_EQ(cxlpool_list_describe(list, 1, &info, &error_), CXLPOOL_INVALID_ARGUMENT);
  cxlpool_list_free(list);
  cxlpool_disconnect(client);
}

TEST_F(CApiTest, SixteenThreadsUseOneClient) {
  for (int i = 0; i < 16; ++i) agent_.Add({.name = "regions/r" + std::to_string(i)});
  cxlpool_client* const client = Connect();
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([client, i] {
      const std::string name = "r" + std::to_string(i);
      for (int turn = 0; turn < 20; ++turn) {
        cxlpool_error error = CXLPOOL_ERROR_INIT;
        cxlpool_region* region = nullptr;
        cxlpool_map* map = nullptr;
        cxlpool_list* list = nullptr;
        ASSERT_EQ(cxlpool_open(client, name.c_str(), nullptr, &region, &error), 0) << error.message;
        ASSERT_EQ(cxlpool_map_region(region, nullptr, &map, &error), 0) << error.message;
        auto* const at = static_cast<unsigned char*>(cxlpool_map_address(map));
        ASSERT_EQ(at[0], turn);
        at[0] = static_cast<unsigned char>(turn + 1);
        ASSERT_EQ(cxlpool_list_regions(client, &list, &error), 0) << error.message;
        ASSERT_EQ(cxlpool_list_count(list), 16u);
        cxlpool_list_free(list);
        cxlpool_close(region);
        cxlpool_unmap(map);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 16; ++i) {
    EXPECT_TRUE(agent_.AwaitOpens("regions/r" + std::to_string(i), 0)) << i;
  }
  cxlpool_disconnect(client);
}

}  // namespace
}  // namespace cxlpool::libpool
