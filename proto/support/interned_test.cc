#include "proto/support/interned.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "proto/support/uuid.h"

namespace cxlpool {
namespace {

TEST(InternedTest, EqualTextsAreOneValue) {
  const std::string text = "cmm-0";
  EXPECT_EQ(Interned(text), Interned("cmm-0"));
  EXPECT_EQ(&Interned(text).str(), &Interned(absl::string_view("cmm-0")).str());
  EXPECT_FALSE(Interned("cmm-0") == Interned("cmm-1"));
  EXPECT_TRUE(Interned("cmm-0") < Interned("cmm-1"));
  EXPECT_TRUE(Interned().empty());
  EXPECT_EQ(Interned(), Interned(""));
}

TEST(InternedTest, ThreadsAgree) {
  std::vector<std::vector<Interned>> seen(4);
  std::vector<std::thread> threads;
  for (auto& own : seen) {
    threads.emplace_back([&own] {
      for (int i = 0; i < 1000; ++i) own.emplace_back(absl::StrCat("name-", i % 100));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& own : seen) EXPECT_EQ(own, seen.front());
}

TEST(UuidTest, KeepsItsBytesAndHashesByThem) {
  const std::string bytes = "0123456789abcdef";
  EXPECT_EQ(Uuid(bytes).str(), bytes);
  EXPECT_EQ(Uuid(bytes), Uuid(bytes));
  EXPECT_TRUE(Uuid().empty());
  EXPECT_TRUE(Uuid("0123") < Uuid(bytes));
  absl::flat_hash_set<Uuid> set = {Uuid(bytes), Uuid(bytes), Uuid()};
  EXPECT_EQ(set.size(), 2u);
}

}  // namespace
}  // namespace cxlpool
