#include "host-agent/adapters/shared/file_space.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{2} << 20;

class FileSpaceTest : public ::testing::Test {
 protected:
  FileSpaceTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    file_ = directory_ + "/cmm-0";
    pieces_ = directory_ + "/pieces";
    std::ofstream(file_).close();
    std::filesystem::resize_file(file_, 4 * kPieceBytes);
  }
  ~FileSpaceTest() override { std::filesystem::remove_all(directory_); }

  // What an agent finds that starts now.
  std::vector<SpacePiece> SeenByTheNext() {
    FileSpace next({file_}, pieces_, "boot-1");
    return next.Look()->pieces;
  }
  // Fails twice, since nothing can be written, and then succeeds.
  void TryWithoutRoom(const std::function<absl::Status()>& rung) {
    std::filesystem::create_directory(pieces_ + ".new");
    EXPECT_EQ(ReasonOf(rung()), "RUN_FILE");
    EXPECT_EQ(ReasonOf(rung()), "RUN_FILE");
    std::filesystem::remove(pieces_ + ".new");
    EXPECT_TRUE(rung().ok());
  }

  std::string directory_, file_, pieces_;
};

TEST_F(FileSpaceTest, WhatCouldNotBeWrittenDownIsNotDone) {
  FileSpace space({file_}, pieces_, "boot-1");
  TryWithoutRoom([&] { return space.Carve(file_, 0, kPieceBytes); });
  ASSERT_EQ(SeenByTheNext().size(), 1u);
  const SpacePiece piece = SeenByTheNext().front();
  TryWithoutRoom([&] { return space.Bind(piece, DaxDriver::kDeviceDax); });
  EXPECT_TRUE(SeenByTheNext().at(0).driver == DaxDriver::kDeviceDax);
  TryWithoutRoom([&] { return space.Unbind(piece); });
  EXPECT_TRUE(SeenByTheNext().at(0).driver == DaxDriver::kNone);
  TryWithoutRoom([&] { return space.Uncarve(piece); });
  EXPECT_TRUE(SeenByTheNext().empty());
}

}  // namespace
}  // namespace cxlpool::agent
