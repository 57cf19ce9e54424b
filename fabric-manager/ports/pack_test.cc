#include "fabric-manager/ports/pack.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace cxlpool::fm {
namespace {

using Model = std::map<uint64_t, std::string>;

// Packs as a table holds them, by `first`.
struct Table {
  std::map<uint64_t, std::string> rows;
  PackSums sums;

  // As the database does it: each edit goes to the row that has, or would have, its key.
  void Apply(const Model& puts, const std::vector<uint64_t>& erases) {
    std::map<uint64_t, const std::string*> edits;
    for (const auto& [key, value] : puts) edits[key] = &value;
    for (const uint64_t key : erases) edits[key] = nullptr;
    std::vector<Edit> all;
    for (const auto& [key, value] : edits) all.push_back({key, value});
    const Edit* edit = all.data();
    const Edit* const end = edit + all.size();
    while (edit != end) {
      const auto next = rows.upper_bound(edit->key);
      const bool at_end = next == rows.end();
      const bool found = next != rows.begin();
      const uint64_t first = found ? std::prev(next)->first : edit->key;
      const std::string old = found ? std::prev(next)->second : "";
      const Edit* last = edit;
      while (last != end && (at_end || last->key < next->first)) ++last;
      std::vector<Pack> packs;
      ASSERT_TRUE(EditPack(first, old, edit, last, at_end, sums, packs));
      rows.erase(first);
      for (const Pack& pack : packs) {
        EXPECT_TRUE(rows.emplace(pack.first, pack.body).second) << "two rows of one id";
      }
      edit = last;
    }
  }

  Model Read() const {
    Model model;
    uint64_t least = 0, crc_sum = 0;
    for (const auto& [first, body] : rows) {
      EXPECT_GE(first, least);
      EXPECT_FALSE(body.empty());
      size_t entries = 0;
      EXPECT_TRUE(ReadPack(body, [&](const Entry& entry) {
        EXPECT_GE(entry.key, std::max(first, least));
        least = entry.key + 1;
        EXPECT_EQ(entry.crc, RecordCrc(entry.key, entry.value));
        crc_sum += entry.crc;
        model[entry.key] = std::string(entry.value);
        ++entries;
      }));
      EXPECT_TRUE(entries == 1 || body.size() <= kPackBytes) << body.size();
    }
    EXPECT_EQ(sums.records, static_cast<int64_t>(model.size()));
    EXPECT_EQ(sums.crc_sum, crc_sum);
    return model;
  }
};

TEST(PackTest, AscendingRecordsFillPacks) {
  Table table;
  Model model;
  for (uint64_t key = 10; key < 1010; key += 10) model[key] = std::string(300, 'x');
  table.Apply(model, {});
  EXPECT_EQ(table.Read(), model);
  EXPECT_EQ(table.rows.size(), (100 + 11) / 12u);  // 12 of 316 bytes are on a page.
}

TEST(PackTest, GrownPackIsHalved) {
  Table table;
  Model model;
  for (uint64_t key = 1; key <= 24; ++key) model[key] = std::string(300, 'x');
  table.Apply(model, {});
  ASSERT_EQ(table.rows.size(), 2u);
  model[3] = std::string(600, 'y');
  table.Apply({{3, model[3]}}, {});
  EXPECT_EQ(table.Read(), model);
  ASSERT_EQ(table.rows.size(), 3u);
  for (const auto& [first, body] : table.rows) EXPECT_GT(body.size(), 1500u) << first;
}

TEST(PackTest, LargeRecordHasAPackToItself) {
  Table table;
  const Model model = {{1, "small"}, {2, std::string(1 << 20, 'l')}, {3, "small too"}};
  table.Apply(model, {});
  EXPECT_EQ(table.Read(), model);
  EXPECT_EQ(table.rows.size(), 3u);
}

TEST(PackTest, LastRecordTakesItsPackAlong) {
  Table table;
  table.Apply({{5, "five"}}, {});
  table.Apply({}, {4, 5, 6});
  EXPECT_TRUE(table.rows.empty());
  EXPECT_EQ(table.sums.records, 0);
  EXPECT_EQ(table.sums.crc_sum, 0u);
}

TEST(PackTest, AgreesWithAMapUnderRandomEdits) {
  std::minstd_rand random(42);
  Table table;
  Model model;
  for (int round = 0; round < 3000; ++round) {
    Model puts;
    std::vector<uint64_t> erases;
    for (unsigned i = random() % 8; i > 0; --i) {
      const size_t length = random() % 50 == 0 ? random() % 10000 : random() % 500;
      puts[1 + random() % 400] = std::string(length, static_cast<char>(random()));
    }
    for (unsigned i = random() % 6; i > 0; --i) erases.push_back(1 + random() % 400);
    table.Apply(puts, erases);
    for (const auto& [key, value] : puts) model[key] = value;
    for (const uint64_t key : erases) model.erase(key);
    ASSERT_EQ(table.Read(), model) << "round " << round;
  }
}

TEST(PackTest, BrokenFramingIsSeenAndNothingBeyondItIsRead) {
  Table table;
  table.Apply({{1, "one"}, {2, "two"}, {3, "three"}}, {});
  const std::string good = table.rows.begin()->second;
  for (size_t size = 0; size < good.size(); ++size) {
    size_t entries = 0;
    const std::string cut = good.substr(0, size);  // Of its own, so that a sanitizer sees overruns.
    const bool framed = ReadPack(cut, [&](const Entry&) { ++entries; });
    EXPECT_EQ(framed, size == 0 || size == 19 || size == 38) << size;
    EXPECT_LT(entries, 3u);
  }
}

TEST(RecordCrcTest, IsTheStandardCrc32) {
  EXPECT_EQ(Crc32(0, "123456789"), 0xcbf43926u);
  EXPECT_EQ(Crc32(Crc32(0, "1234"), "56789"), 0xcbf43926u);
  EXPECT_EQ(RecordCrc(0x0102030405060708, "x"), Crc32(0, "\x08\x07\x06\x05\x04\x03\x02\x01x"));
}

}  // namespace
}  // namespace cxlpool::fm
