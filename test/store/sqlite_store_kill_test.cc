// Nothing acknowledged is lost, and nothing else appears, when the manager is killed.
//
// CXLPOOL_KILLS sets how many times (default 20).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"
#include "proto/support/unique_fd.h"
#include "test/contract/store_client.h"
#include "test/store/commit_script.h"

extern char** environ;

namespace cxlpool::fm {
namespace {

// Starts the child on `path`, reads `acks` acknowledgements, kills it, and answers the greatest
// revision it ever acknowledged.
uint64_t RunAndKill(const std::string& path, int acks) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  UniqueFd out(ends[0]), in(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.get(), STDOUT_FILENO);
  std::string program = COMMIT_LOOP, argument = path;
  char* arguments[] = {program.data(), argument.data(), nullptr};
  pid_t pid = 0;
  EXPECT_EQ(posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  in.Reset();

  uint64_t revision = 0, last = 0;
  for (int i = 0; i < acks; ++i) {
    if (read(out.get(), &revision, sizeof(revision)) != sizeof(revision)) break;
    last = revision;
  }
  EXPECT_GT(last, 0u) << "the child has not committed anything";
  kill(pid, SIGKILL);
  // What it acknowledged before it died is still in the pipe.
  while (read(out.get(), &revision, sizeof(revision)) == sizeof(revision)) last = revision;
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << status;
  return last;
}

TEST(SqliteStoreKillTest, NothingAcknowledgedIsLost) {
  std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-kill-XXXXXX").string();
  const std::string directory = mkdtemp(pattern.data());
  const char* const wanted = std::getenv("CXLPOOL_KILLS");
  const int kills = wanted == nullptr ? 20 : std::atoi(wanted);
  std::minstd_rand random(7);
  uint64_t acknowledged = 0;
  for (int i = 0; i < kills && !HasFailure(); ++i) {
    acknowledged = RunAndKill(directory + "/pool.db", 1 + static_cast<int>(random() % 150));
    SqliteStoreOptions options;
    options.path = directory + "/pool.db";
    StoreClient client(*MakeSqliteStore(options));
    const absl::StatusOr<StoreImage> image = client.Open();
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_GE(image->revision, acknowledged) << "kill " << i;
    EXPECT_EQ(RowsOf(*image), ScriptedRows(image->revision)) << "kill " << i;
  }
  RecordProperty("kills", kills);
  RecordProperty("acknowledged", static_cast<int>(acknowledged));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace cxlpool::fm
