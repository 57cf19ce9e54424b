#include "host-agent/support/run_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

TEST(RunFileTest, WhatALaterReleaseWroteInThisBootIsNotTakenForNothing) {
  std::string folder = (std::filesystem::temp_directory_path() / "cxlpool-run-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/grants";
  const auto reason = [&] { return ReasonOf(CheckRunFile(path, "grants", "boot-1")); };
  EXPECT_EQ(reason(), "") << "there is none";
  ASSERT_EQ(WriteRunFile(path, "grants", "boot-1", "a line\n"), 0);
  EXPECT_EQ(reason(), "");
  EXPECT_TRUE(ReadRunFile(path, 4096, "grants", "boot-1").has_value());

  const auto write = [&](const char* text) { std::ofstream(path) << text; };
  write("cxlpool grants 2 boot-1\nanother line\n");
  EXPECT_EQ(reason(), "RUN_FILE_TOO_NEW");
  EXPECT_EQ(ReadRunFile(path, 4096, "grants", "boot-1"), std::nullopt);
  // With another boot all of it has ended; what is something else is no word of an agent's.
  for (const char* text : {"cxlpool grants 2 boot-0\na line\n", "cxlpool pieces 2 boot-1\na line\n",
                           "what is this\n", ""}) {
    write(text);
    EXPECT_EQ(reason(), "") << text;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace cxlpool::agent
