#include "proto/support/check.h"

#include <gtest/gtest.h>

namespace cxlpool {
namespace {

TEST(CheckTest, SaysWhereAndWhatBeforeItDies) {
  const int held = 3;
  EXPECT_DEATH(
      CXLPOOL_CHECK(held == 4, "region kv holds ", held, " extents"),
      "check: proto/support/check_test.cc:[0-9]+: region kv holds 3 extents; this must hold: "
      "held == 4");
}

TEST(CheckTest, AStatusIsSaidAsWell) {
  EXPECT_DEATH(CXLPOOL_CHECK_OK(absl::NotFoundError("no such run"), "region ", "kv"),
               "region kv \\(NOT_FOUND: no such run\\); this must hold: "
               "absl::NotFoundError\\(\"no such run\"\\)");
}

TEST(CheckTest, WhatHoldsCostsNoMessage) {
  int made = 0;
  const auto message = [&] { return ++made; };
  CXLPOOL_CHECK(made == 0, message());
  CXLPOOL_CHECK_OK(absl::OkStatus(), message());
  EXPECT_EQ(made, 0);
}

}  // namespace
}  // namespace cxlpool
