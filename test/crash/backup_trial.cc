#include "test/crash/backup_trial.h"

#include <signal.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "test/crash/stored_pool.h"

namespace cxlpool::crash {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kBegins = absl::Seconds(5);  // Within which it is under way.
constexpr absl::Duration kCommandLimit = absl::Seconds(20);
constexpr absl::Duration kPoll = absl::Microseconds(50);
constexpr uint64_t kLonger_us = 4000;  // A backup takes so long, more or less.

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The manager is copying, or the command is writing what it was sent.
bool UnderWay(const Pool& pool, const std::string& file) {
  return pool.BackupUnderWay() || Exists(file + ".part");
}

absl::Status CheckWhole(const std::string& file, const Lanes& lanes) {
  const auto stored = ReadStoredPool(file);
  if (!stored.ok()) return stored.status();
  for (const auto& lane : lanes) {
    const Ledger& ledger = lane->ledger();
    for (const auto& [tag, known] : ledger.regions) {
      const auto found = stored->regions.find(tag);
      const bool held =
          found != stored->regions.end() && (found->second->state == fm::RegionState::kReserved ||
                                             found->second->state == fm::RegionState::kAllocated);
      if (!known.live() && known.released_revision <= stored->revision && held) {
        return absl::InternalError(absl::StrCat(
            "the backup of revision ", stored->revision, " holds what was released at ",
            known.released_revision, ": ", known.region.name()));
      }
      const bool doubtful = ledger.pending.has_value() && ledger.pending->About(tag);
      if (!known.live() || doubtful || known.made_revision > stored->revision) continue;
      if (!held || found->second->extents[0].dpa_bytes != known.region.extents(0).dpa_bytes() ||
          absl::StrCat("devices/", found->second->extents[0].device.str()) !=
              known.region.extents(0).device()) {
        return absl::InternalError(absl::StrCat("the backup of revision ", stored->revision,
                                                " is without ", known.region.ShortDebugString()));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status KillInBackup(LoadedPool& pool, std::mt19937_64& random, Hits& hits) {
  const std::string file = pool.pool().directory() + "/backup.db";
  const absl::Duration longer = absl::Microseconds(random() % kLonger_us);
  const uint64_t dice = random() % 8;
  const bool kill_command = dice < 2, let_it_end = dice == 7;
  absl::StatusOr<int> code = -1;
  const auto kill = [&](Process& manager) -> absl::Status {
    absl::SleepFor(absl::Milliseconds(5));  // Something is there to be copied.
    auto command = Process::Start({pool.pool().Program("cxlpool"), "--timeout", "1s", "--manager",
                                   "unix:" + pool.pool().socket(), "backup", file},
                                  pool.pool().directory() + "/backup.log");
    if (!command.ok()) return command.status();
    const absl::Time end = absl::Now() + kBegins;
    while (!UnderWay(pool.pool(), file) && !Exists(file) && absl::Now() < end) {
      absl::SleepFor(kPoll);
    }
    absl::SleepFor(longer);
    while (let_it_end && !Exists(file) && absl::Now() < end) absl::SleepFor(kPoll);
    if (kill_command) command->Signal(SIGKILL);
    const bool under_way = UnderWay(pool.pool(), file);
    manager.Kill();
    if (under_way) hits.Add("backup");
    code = command->Wait(kCommandLimit);
    return code.status();
  };
  absl::Status status = pool.Live(random, {.crash_at = "", .hosted = false, .kill = kill});
  if (!status.ok()) return status;
  const bool there = Exists(file);
  if (*code == 0 && !there) return absl::InternalError("the command says OK, and there is no file");
  if (there) {
    hits.Add("backup whole");
    status = CheckWhole(file, pool.lanes());
  }
  std::error_code ignored;
  for (const char* end : {"", ".part", "-wal", "-head"}) fs::remove(file + end, ignored);
  return status;
}

}  // namespace cxlpool::crash
