#include "test/sim/linearize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace cxlpool::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// A register with a mind of its own: a write of 9 leaves 7 or 8.
struct RegisterOp {
  enum Kind { kWrite, kRead } kind;
  int value;
  Interval when;
};

struct RegisterModel {
  using State = int;
  void Step(const State& state, size_t op, NextStates<State>& next) const {
    const RegisterOp& o = ops[op];
    if (o.kind == RegisterOp::kRead) {
      if (o.value == state) next.push_back(state);
    } else if (o.value == 9) {
      next = {7, 8};
    } else {
      next.push_back(o.value);
    }
  }
  std::vector<RegisterOp> ops;
};

RegisterOp Write(int value, int64_t from, int64_t to = kNever) {
  return {RegisterOp::kWrite, value, {from, to}};
}
RegisterOp Read(int value, int64_t from, int64_t to) {
  return {RegisterOp::kRead, value, {from, to}};
}

Linearization<int> Check(const std::vector<RegisterOp>& ops, uint64_t max_states = 100'000) {
  std::vector<Interval> history;
  for (const RegisterOp& op : ops) history.push_back(op.when);
  return Linearize(history, RegisterModel{ops}, 0, max_states);
}

TEST(LinearizeTest, NothingFits) { EXPECT_EQ(Check({}).answer, Linearizable::kYes); }

TEST(LinearizeTest, OneAfterTheOtherKeepsItsOrder) {
  const auto found = Check({Read(2, 50, 60), Write(1, 0, 10), Read(1, 20, 30), Write(2, 40, 45)});
  EXPECT_EQ(found.answer, Linearizable::kYes);
  EXPECT_THAT(found.order, ElementsAre(1, 2, 3, 0));
  EXPECT_EQ(found.state, 2);
}

TEST(LinearizeTest, WhatOverlapsMayComeInAnyOrder) {
  EXPECT_EQ(Check({Write(1, 0, 100), Read(0, 10, 20), Read(1, 30, 40)}).answer, Linearizable::kYes);
  EXPECT_EQ(Check({Write(1, 0, 100), Read(1, 10, 20), Read(0, 30, 40)}).answer, Linearizable::kNo);
}

TEST(LinearizeTest, EqualTimesOverlap) {
  EXPECT_EQ(Check({Write(1, 0, 10), Read(0, 10, 20)}).answer, Linearizable::kYes);
  EXPECT_EQ(Check({Write(1, 0, 10), Read(0, 11, 20)}).answer, Linearizable::kNo);
}

TEST(LinearizeTest, SaysHowFarItGoesAndWhatIsStuck) {
  const auto found = Check({Write(1, 0, 10), Read(1, 20, 30), Read(5, 40, 60), Read(6, 40, 50)});
  EXPECT_EQ(found.answer, Linearizable::kNo);
  EXPECT_THAT(found.order, ElementsAre(0, 1));
  EXPECT_EQ(found.state, 1);
  EXPECT_THAT(found.stuck, UnorderedElementsAre(2, 3));
}

TEST(LinearizeTest, WithoutAnswerItMayTakeEffectLateOrNever) {
  EXPECT_EQ(Check({Write(1, 0), Read(0, 10, 20), Read(0, 30, 40)}).answer, Linearizable::kYes);
  EXPECT_EQ(Check({Write(1, 0), Read(0, 10, 20), Read(1, 30, 40)}).answer, Linearizable::kYes);
  EXPECT_EQ(Check({Write(1, 15), Read(1, 0, 10)}).answer, Linearizable::kNo);
  EXPECT_EQ(Check({Write(1, 0), Read(1, 10, 20), Read(0, 30, 40)}).answer, Linearizable::kNo);
}

TEST(LinearizeTest, AStepMayHaveSeveralOutcomes) {
  EXPECT_EQ(Check({Write(9, 0, 10), Read(8, 20, 30), Read(8, 40, 50)}).answer, Linearizable::kYes);
  EXPECT_EQ(Check({Write(9, 0, 10), Read(8, 20, 30), Read(7, 40, 50)}).answer, Linearizable::kNo);
}

TEST(LinearizeTest, OneComesAfterTheOtherWhereItIsSaid) {
  std::vector<RegisterOp> ops = {Write(1, 0, 100), Write(2, 0, 100), Read(1, 200, 210)};
  EXPECT_EQ(Check(ops).answer, Linearizable::kYes);
  ops[1].when.after = 0;
  EXPECT_EQ(Check(ops).answer, Linearizable::kNo);
  ops[1].when.return_us = kNever;
  EXPECT_EQ(Check(ops).answer, Linearizable::kYes);
}

TEST(LinearizeTest, GivesUpAtItsLimit) {
  std::vector<RegisterOp> ops;
  for (int i = 0; i < 30; ++i) ops.push_back(Write(i % 6 + 1, 0, 100));
  ops.push_back(Read(50, 200, 210));
  const auto found = Check(ops, 1000);
  EXPECT_EQ(found.answer, Linearizable::kGaveUp);
  EXPECT_LE(found.states, 1001u);
  EXPECT_EQ(Check(std::vector<RegisterOp>(kMaxOperations + 1, Write(1, 0, 1))).answer,
            Linearizable::kGaveUp);
}

TEST(LinearizeTest, WhatWasSearchedIsNotSearchedAgain) {
  // 12! orders, 2^12 places.
  std::vector<RegisterOp> ops;
  for (int i = 0; i < 12; ++i) ops.push_back(Write(1, 0, 100));
  ops.push_back(Read(50, 200, 210));
  const auto found = Check(ops);
  EXPECT_EQ(found.answer, Linearizable::kNo);
  EXPECT_LT(found.states, 4200u);
  EXPECT_THAT(found.stuck, ElementsAre(12));
}

TEST(LinearizeTest, MuchWithoutAnswerCostsLittleWhereLittleOfItCounts) {
  // 2^40 sets of them.
  std::vector<RegisterOp> ops;
  for (int i = 0; i < 40; ++i) ops.push_back(Write(i, 0));
  ops.push_back(Read(7, 10, 20));
  ops.push_back(Read(33, 30, 40));
  EXPECT_EQ(Check(ops).answer, Linearizable::kYes);
  EXPECT_LT(Check(ops).states, 2000u);
}

TEST(LinearizeTest, WhatIsEqualButForMoreWithoutAnswerIsNotSearched) {
  std::vector<RegisterOp> ops;
  for (int i = 0; i < 40; ++i) ops.push_back(Write(0, 0));
  ops.push_back(Read(50, 30, 40));
  EXPECT_EQ(Check(ops).answer, Linearizable::kNo);
  EXPECT_LT(Check(ops).states, 500u);
}

TEST(LinearizeTest, LongHistoriesHaveNoOtherWay) {
  std::vector<RegisterOp> ops;
  for (int i = 0; i < 300; ++i) {
    ops.push_back(Write(10 * i, 20 * i, 20 * i + 5));
    ops.push_back(Read(10 * i, 20 * i + 10, 20 * i + 15));
  }
  EXPECT_EQ(Check(ops).answer, Linearizable::kYes);
  EXPECT_EQ(Check(ops).states, 601u);
  EXPECT_THAT(Check(ops).stuck, IsEmpty());
}

}  // namespace
}  // namespace cxlpool::sim
