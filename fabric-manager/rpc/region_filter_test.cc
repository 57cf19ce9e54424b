#include "fabric-manager/rpc/region_filter.h"

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

Region Example() {
  Region region;
  region.id = "kv-cache";
  region.tenant = "ml";
  region.state = RegionState::kAllocated;
  region.sharing = Sharing::kSingleWriter;
  region.extents = {{"cmm-0", 0, 256 << 20}, {"cmm-1", 0, 256 << 20}};
  region.attachments.resize(2);
  region.attachments[0].host = "host-a";
  region.attachments[1].host = "host-b";
  region.revision = 41;
  region.owner = Owner{.uid = 1000, .pid = 7, .start_ticks = 5, .incarnation = "boot-1"};
  return region;
}

bool Holds(const std::string& text) {
  const auto filter = RegionFilter::Parse(text);
  EXPECT_TRUE(filter.ok()) << text << ": " << filter.status();
  return filter.ok() && filter->Matches(Example());
}

TEST(RegionFilterTest, EachFieldIsCompared) {
  for (const char* yes : {
           "",
           "  ",
           "name = kv-cache",
           "name = regions/kv-cache",
           "name=\"kv-cache\"",
           "name : v-c",
           "name : kv-cache",
           "name != kv",
           "tenant = ml",
           "tenant = tenants/ml",
           "tenant != default",
           "host = host-a",
           "host = hosts/host-b",
           "host != host-c",
           "owner_uid = 1000",
           "owner_uid < 1001 AND owner_uid != 0",
           "device = cmm-1",
           "device = devices/cmm-0",
           "device != cmm-2",
           "state = ALLOCATED",
           "state != QUARANTINED",
           "sharing = SINGLE_WRITER",
           "sharing != EXCLUSIVE",
           "size_bytes = 536870912",
           "size_bytes = 512MiB AND size_bytes < 1.5GiB",
           "state = allocated",
           "sharing = single-writer",
           "size_bytes >= 536870912",
           "size_bytes <= 536870912",
           "size_bytes<536870913",
           "size_bytes>1",
           "size_bytes != 1",
           "revision = 41",
           "revision > 40",
           "tenant = tenants/ml AND state = ALLOCATED AND size_bytes >= 1 AND name : kv",
       }) {
    EXPECT_TRUE(Holds(yes)) << yes;
  }
  for (const char* no : {
           "name = kv",
           "name : redis",
           "name != kv-cache",
           "tenant = default",
           "tenant != ml",
           "host = host-c",
           "host != host-b",
           "device = cmm-2",
           "device != cmm-0",
           "state = RESERVED",
           "state != ALLOCATED",
           "sharing = EXCLUSIVE",
           "size_bytes > 536870912",
           "size_bytes < 536870912",
           "revision = 40",
           "tenant = ml AND state = RESERVED",
           "state = RESERVED AND tenant = ml",
       }) {
    EXPECT_FALSE(Holds(no)) << no;
  }
}

TEST(RegionFilterTest, ARefusalSaysWhere) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"colour = red", "character 1: is not understood at \"colour = red\" (use name, tenant"},
      {"name", "character 5: ends too early (after name use =, != or :)"},
      {"name ~ kv", "character 6: is not understood at \"~ kv\" (after name use"},
      {"name < kv", "character 6: is not understood at \"< kv\" (after name use =, != or :)"},
      {"state : ALLOC", "after state use = or !="},
      {"tenant : m", "after tenant use = or !="},
      {"size_bytes : 1", "after size_bytes use =, !=, <, <=, > or >="},
      {"size_bytes = much",
       "character 14: is not understood at \"much\" (write size_bytes in bytes"},
      {"revision = -1", "write revision as a whole number"},
      {"revision = 18446744073709551616", "write revision as a whole number"},
      {"state = alocated", "use one of RESERVED, ALLOCATED, RELEASING, SCRUBBING, FAILED"},
      {"sharing = ALL", "use one of EXCLUSIVE, SINGLE_WRITER, MULTI_WRITER"},
      {"name =", "character 7: ends too early (write a value"},
      {"name = \"kv", "write a value, in quotes"},
      {"name = \"kv\\", "write a value, in quotes"},
      {"name == kv", "character 7: is not understood"},
      {"name = a OR name = b", "character 10: is not understood at \"OR name = b\" (join"},
      {"name = a name = b", "join comparisons with AND"},
      {"name = a AND", "character 13: ends too early (write a comparison after AND)"},
      {"AND name = a", "character 1: is not understood"},
      {"NOT name = a", "character 1: is not understood"},
      {"(name = a)", "character 1: is not understood"},
      {std::string("name = a\0b = c", 14), "join comparisons with AND"},
      {"name : " + std::string(1100, 'a'), "is too long (use at most 1024 characters)"},
  };
  for (const auto& [text, expected] : cases) {
    const absl::Status status = RegionFilter::Parse(text).status();
    EXPECT_EQ(ReasonOf(status), "BAD_FILTER") << text;
    EXPECT_TRUE(absl::StrContains(status.message(), expected)) << text << ": " << status.message();
  }
}

TEST(RegionFilterTest, QuotesTakeWhatWordsCannot) {
  EXPECT_TRUE(Holds("name != \"a \\\"b\\\" \\\\ = c\""));
  EXPECT_FALSE(Holds("name : \" \""));
}

TEST(RegionFilterTest, APersistentRegionIsNobodys) {
  Region region = Example();
  region.owner.reset();
  for (const char* no : {"owner_uid = 0", "owner_uid < 1", "owner_uid >= 0"}) {
    EXPECT_FALSE(RegionFilter::Parse(no)->Matches(region)) << no;
  }
  EXPECT_TRUE(RegionFilter::Parse("owner_uid != 0")->Matches(region));
}

// Any bytes: an answer or a refusal, never more.
TEST(RegionFilterTest, TakesAnyBytes) {
  std::mt19937_64 random(7);
  const std::vector<std::string> words = {
      "name", "state", "size_bytes", "=", ":", "!=",        ">=", "<",   "AND",
      "\"",   "\\",    "kv",         "1", " ", "ALLOCATED", "\t", "\xff"};
  int good = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint64_t n = random() % 12; n > 0; --n) {
      absl::StrAppend(&text, words[random() % words.size()], random() % 2 == 0 ? " " : "");
    }
    const auto filter = RegionFilter::Parse(text);
    if (filter.ok()) {
      ++good;
      filter->Matches(Example());
    } else {
      EXPECT_EQ(ReasonOf(filter.status()), "BAD_FILTER");
    }
  }
  EXPECT_GT(good, 100);
}

}  // namespace
}  // namespace cxlpool::fm
