#include "fabric-manager/service/region_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"

namespace cxlpool::fm {
namespace {

RegionPtr Make(const std::string& id, uint64_t revision) {
  auto region = std::make_shared<Region>();
  region->id = id;
  region->revision = revision;
  return region;
}

TEST(RegionTableTest, AgreesWithAMapUnderRandomEdits) {
  std::mt19937 random(7);
  RegionTable table;
  std::map<std::string, RegionPtr> naive;
  RegionTable kept;
  std::map<std::string, RegionPtr> naive_kept;
  for (int round = 0; round < 1000; ++round) {
    // Grows, shrinks, and grows again; an old one is looked at in the end.
    const unsigned out_of = round < 400 ? 4 : round < 700 ? 1 : 3;
    if (round == 300) {
      kept = table;
      naive_kept = naive;
    }
    std::vector<RegionTable::Edit> edits;
    for (int i = 0; i < 20; ++i) {
      const std::string id = absl::StrCat("r-", random() % 3000);
      RegionPtr region =
          random() % out_of == 0 && out_of < 4 ? nullptr : Make(id, static_cast<uint64_t>(round));
      edits.push_back({region != nullptr ? region : Make(id, 0), region == nullptr});
      if (region == nullptr) {
        naive.erase(id);
      } else {
        naive[id] = region;
      }
    }
    table.Change(edits);
    ASSERT_EQ(table.size(), naive.size());
  }
  std::string after;
  auto expected = naive.begin();
  for (auto page = table.List(after, 37); !page.empty(); page = table.List(after, 37)) {
    for (const RegionPtr& region : page) {
      ASSERT_NE(expected, naive.end());
      EXPECT_EQ(region, expected->second);
      EXPECT_EQ(table.Find(region->id), region);
      ++expected;
    }
    after = page.back()->id;
  }
  EXPECT_EQ(expected, naive.end());
  EXPECT_EQ(table.Find("zz"), nullptr);
  const auto all = kept.List("", naive_kept.size() + 1);
  ASSERT_EQ(all.size(), naive_kept.size());
  EXPECT_TRUE(std::equal(all.begin(), all.end(), naive_kept.begin(),
                         [](const RegionPtr& a, const auto& b) { return a == b.second; }));
}

TEST(RegionTableTest, OfSeveralEditsOfOneIdTheLastCounts) {
  const RegionPtr first = Make("b", 1), second = Make("b", 2), other = Make("c", 1);
  RegionTable table;
  table.Change({{Make("a", 1)}, {Make("a", 1), true}, {first}, {second}, {other}, {other}});
  EXPECT_EQ(table.List("", 9), (std::vector<RegionPtr>{second, other}));
  table.Change({{second, true}, {first}, {other}, {other, true}});
  EXPECT_EQ(table.List("", 9), std::vector<RegionPtr>{first});
  EXPECT_EQ(table.size(), 1u);
}

TEST(RegionTableTest, IdsThatDifferLateOrInLengthAreInTheirOrder) {
  const std::vector<std::string> ids = {"a",         "a-", "r-000001", "r-0000010", "r-0000011",
                                        "r-0000012", "s",  "zzzzzzzz", "zzzzzzzza"};
  RegionTable table;
  for (const std::string& id :
       {ids[4], ids[8], ids[2], ids[0], ids[5], ids[7], ids[3], ids[6], ids[1]}) {
    table.Change({{Make(id, 1)}});
  }
  std::vector<std::string> listed;
  for (const RegionPtr& region : table.List("", 99)) listed.push_back(region->id);
  EXPECT_EQ(listed, ids);
  for (const std::string& id : ids) EXPECT_NE(table.Find(id), nullptr) << id;
  EXPECT_EQ(table.Find("r-0000013"), nullptr);
  EXPECT_EQ(table.List("r-0000010", 1).front()->id, "r-0000011");
}

TEST(RegionTableTest, ATableMadeAtOnceIsLikeOneMadeByEdits) {
  for (const int size : {0, 1, 2, 23, 24, 25, 26, 576, 577, 600, 601, 5000}) {
    std::vector<RegionPtr> regions;
    for (int i = 0; i < size; ++i) regions.push_back(Make(absl::StrCat("r-", 10000 + i), 1));
    RegionTable table = RegionTable::Of(regions);
    EXPECT_EQ(table.size(), regions.size());
    EXPECT_EQ(table.List("", regions.size() + 1), regions);
    for (const RegionPtr& region : regions) ASSERT_EQ(table.Find(region->id), region);
    std::vector<RegionTable::Edit> edits = {{Make("r-9", 2)}, {Make("a", 2)}};
    for (int i = 0; i < size; i += 2) edits.push_back({regions[static_cast<size_t>(i)], true});
    table.Change(edits);
    EXPECT_EQ(table.size(), static_cast<size_t>(size / 2 + 2));
    EXPECT_NE(table.Find("r-9"), nullptr);
  }
}

// Each of many copies is as the table was when it was copied, however deep the edits went since.
TEST(RegionTableTest, EachCopyStaysAsItWas) {
  std::mt19937 random(11);
  RegionTable table;
  std::map<std::string, RegionPtr> naive;
  std::deque<std::pair<RegionTable, std::map<std::string, RegionPtr>>> kept;
  for (int round = 0; round < 200; ++round) {
    if (round % 3 == 0) kept.emplace_back(table, naive);
    if (kept.size() > 20) kept.pop_front();
    std::vector<RegionTable::Edit> edits;
    for (int i = 0; i < 100; ++i) {
      const std::string id = absl::StrCat("r-", random() % 3000);
      const RegionPtr region = Make(id, static_cast<uint64_t>(round));
      const bool taken_away = random() % 3 == 0;
      edits.push_back({region, taken_away});
      if (taken_away) {
        naive.erase(id);
      } else {
        naive[id] = region;
      }
    }
    table.Change(edits);
    for (const auto& [copy, was] : kept) {
      const auto all = copy.List("", was.size() + 1);
      ASSERT_EQ(all.size(), was.size());
      ASSERT_TRUE(std::equal(all.begin(), all.end(), was.begin(),
                             [](const RegionPtr& a, const auto& b) { return a == b.second; }));
    }
  }
}

TEST(RegionTableTest, AnOlderTableStaysAsItWas) {
  const RegionTable empty;
  RegionTable one = empty;
  one.Change({{Make("a", 1)}});
  RegionTable gone = one;
  gone.Change({{Make("a", 0), true}});
  EXPECT_EQ(empty.size(), 0u);
  EXPECT_EQ(one.Find("a")->revision, 1u);
  EXPECT_EQ(gone.size(), 0u);
  EXPECT_TRUE(gone.List("", 10).empty());
}

}  // namespace
}  // namespace cxlpool::fm
