// Gives each fuzzer's target what is in its folder: with no fuzzer, in every build.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "test/fuzz/fuzz_target.h"

namespace cxlpool::fuzz {
namespace {

class ReplayTest : public testing::TestWithParam<std::string> {};

TEST_P(ReplayTest, NothingInItsFolderMakesItFail) {
  const std::filesystem::path folder = std::filesystem::path(CXLPOOL_FUZZ_TESTDATA) / GetParam();
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().string());
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(in), {});
    Targets().at(GetParam())(bytes);
    ++files;
  }
  EXPECT_GT(files, 0) << folder << " has nothing to begin with";
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& [name, run] : Targets()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, ReplayTest, testing::ValuesIn(Names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace cxlpool::fuzz
