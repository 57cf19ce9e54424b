// The simulator itself: the same every time, scripts as text, shorter scripts. And every script of
// a bug that it once found, in regressions/: each must hold now.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "proto/support/log.h"
#include "test/sim/script.h"
#include "test/sim/simulation.h"

namespace cxlpool::sim {
namespace {

class SimTest : public testing::Test {
 protected:
  void SetUp() override { SetLogLevel(static_cast<LogLevel>(0)); }
};

TEST_F(SimTest, ASeedIsTheSameEveryTime) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Script script = MakeScript(seed, 100);
    std::string first;
    std::string second;
    const auto a =
        RunSimulation(script, {.trace = [&](const std::string& line) { first += line; }});
    const auto b =
        RunSimulation(script, {.trace = [&](const std::string& line) { second += line; }});
    EXPECT_EQ(first, second) << seed;
    EXPECT_EQ(a.digest, b.digest) << seed;
    EXPECT_EQ(a.coverage.events, b.coverage.events) << seed;
    EXPECT_EQ(RunSimulation(script, {.digest = true}).digest, a.digest) << seed;
    EXPECT_EQ(a.violation, "") << seed;
  }
}

TEST_F(SimTest, SeedsDiffer) {
  std::set<uint64_t> digests;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    digests.insert(RunSimulation(MakeScript(seed, 50), {.digest = true}).digest);
  }
  EXPECT_EQ(digests.size(), 20u);
}

TEST_F(SimTest, AScriptIsItsText) {
  for (uint64_t seed = 7; seed < 27; ++seed) {
    const Script script = MakeScript(seed, 200);
    const auto parsed = ParseScript(ToText(script));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->seed, script.seed);
    EXPECT_EQ(parsed->standby, script.standby);
    EXPECT_EQ(parsed->steps, script.steps);
  }
}

TEST_F(SimTest, ABadScriptNamesItsLine) {
  for (const char* text : {"seed\n", "# fine\n12\n", "seed 1\n5 frobnicate\n",
                           "seed 1\n5 get client=1 colour=2\n", "1 get client=one\n"}) {
    const auto parsed = ParseScript(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.status().message().find("line "), std::string::npos) << parsed.status();
  }
}

TEST_F(SimTest, WhatIsNotNeededIsTakenAway) {
  const Script script = MakeScript(3, 200);
  const auto fails = [](const Script& s) {
    int allocates = 0;
    int kills = 0;
    for (const Step& step : s.steps) {
      allocates += step.verb == Verb::kAllocate;
      kills += step.verb == Verb::kRelease;
    }
    return allocates >= 2 && kills >= 1;
  };
  ASSERT_TRUE(fails(script));
  const Script shrunk = Shrink(script, fails, 2000);
  EXPECT_TRUE(fails(shrunk));
  EXPECT_EQ(shrunk.steps.size(), 3u) << ToText(shrunk);
}

std::vector<std::string> RegressionFiles() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(CXLPOOL_REGRESSIONS)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path().filename());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class RegressionTest : public testing::TestWithParam<std::string> {};

TEST_P(RegressionTest, Holds) {
  SetLogLevel(static_cast<LogLevel>(0));
  std::ifstream file(std::filesystem::path(CXLPOOL_REGRESSIONS) / GetParam());
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto script = ParseScript(text);
  ASSERT_TRUE(script.ok()) << script.status();
  ASSERT_FALSE(script->steps.empty());
  EXPECT_EQ(RunSimulation(*script).violation, "");
}

INSTANTIATE_TEST_SUITE_P(Scripts, RegressionTest, testing::ValuesIn(RegressionFiles()),
                         [](const auto& info) {
                           std::string name = info.param.substr(0, info.param.find('.'));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RegressionTest);

}  // namespace
}  // namespace cxlpool::sim
