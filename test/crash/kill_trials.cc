// cxlpool-kill-trials: kill -9 of the real manager and agents in everything they do; then the pool
// is held against the acknowledged log (audit.h). Each seed is one kill, of the manager of one pool
// that lives through many; a seed tried alone begins with an empty pool.

#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "test/crash/backup_trial.h"
#include "test/crash/hits.h"
#include "test/crash/loaded_pool.h"
#include "test/crash/migration_trial.h"
#include "test/trials/trial.h"

namespace cxlpool::crash {
namespace {

constexpr uint64_t kLivesOfAPool = 100;
constexpr absl::Duration kStart = absl::Milliseconds(30);   // A manager's, more or less.
constexpr absl::Duration kLoad = absl::Milliseconds(40);    // At most, until the kill.
constexpr absl::Duration kPoint = absl::Milliseconds(300);  // Within which a point is passed.

// Where CXLPOOL_CRASH_AT may end the manager: passed without hosts,
const std::vector<std::string> kPoints = {
    "before-scrub",       "after-scrub",       "before-commit-SCRUBBING", "after-commit-SCRUBBING",
    "before-commit-gone", "after-commit-gone", "before-commit-drop-tail", "after-commit-drop-tail"};
// and with them.
const std::vector<std::string> kHostedPoints = {"before-bind",
                                                "after-bind",
                                                "before-unbind",
                                                "after-unbind",
                                                "after-proof",
                                                "before-commit-BOUND",
                                                "after-commit-BOUND",
                                                "before-commit-ONLINE",
                                                "after-commit-ONLINE",
                                                "before-commit-ALLOCATED",
                                                "after-commit-ALLOCATED",
                                                "before-commit-OFFLINE",
                                                "after-commit-OFFLINE",
                                                "before-commit-EJECTING",
                                                "after-commit-EJECTING",
                                                "before-commit-UNBOUND",
                                                "after-commit-UNBOUND",
                                                "before-commit-drop",
                                                "after-commit-drop",
                                                "before-commit-join-tail",
                                                "after-commit-join-tail",
                                                "before-commit-observed",
                                                "report-SEGMENT_PRESENT",
                                                "report-SEGMENT_ONLINE",
                                                "before-scrub",
                                                "after-scrub"};
const std::vector<std::string> kAgentPoints = {"before-PowerOn",
                                               "after-PowerOn",
                                               "before-CreateHostRegion",
                                               "after-CreateHostRegion",
                                               "before-BindDax",
                                               "after-BindDax",
                                               "before-UnbindDax",
                                               "after-UnbindDax",
                                               "before-DestroyHostRegion",
                                               "after-DestroyHostRegion",
                                               "before-PowerOff",
                                               "after-PowerOff",
                                               "before-Report"};

class KillTrials {
 public:
  absl::Status Run(uint64_t seed, bool trace) {
    std::mt19937_64 random(seed * 0x9e3779b97f4a7c15u);
    return pools_.Run([&](LoadedPool& pool) { return RunOne(pool, random, trace); });
  }

  absl::Status End() { return pools_.End(); }

  std::string Summary() const {
    return absl::StrCat(WithCommas(pools_.answered()), " calls answered, ",
                        WithCommas(pools_.retried()), " of them sent again after a kill; ",
                        WithCommas(pools_.changes()),
                        " changes, each in the audit trail; killed in: ", hits_.Text());
  }

  std::string Missing() const {
    return hits_.Missing({"allocate", "release", "scrub", "backup", "migration", "start", "agent"});
  }

 private:
  absl::Status RunOne(LoadedPool& pool, std::mt19937_64& random, bool trace) {
    const auto say = [&](const std::string& what) {
      if (trace) std::cout << what << std::endl;
    };
    const uint64_t dice = random() % 100;
    if (dice < 12) {
      say("killed while it starts");
      return pool.KillInStart(random, kStart);
    }
    if (dice < 18) {
      say("killed in a backup");
      return KillInBackup(pool, random, hits_);
    }
    if (dice < 21) {
      say("killed in a migration");
      return KillInMigration(random, hits_);
    }
    if (dice < 62) {
      say("killed at a moment");
      return pool.Live(random, {.crash_at = "", .hosted = false, .kill = AtAMoment(random, kLoad)});
    }
    if (dice < 67) {
      say("killed at a moment, with hosts");
      return pool.Live(random,
                       {.crash_at = "", .hosted = true, .kill = AtAMoment(random, 4 * kLoad)});
    }
    if (dice < 96) {
      const bool hosted = dice >= 85;
      const auto& points = hosted ? kHostedPoints : kPoints;
      const std::string point = points[random() % points.size()];
      const std::string at = absl::StrCat(point, ":", 1 + random() % (hosted ? 6 : 4));
      say(absl::StrCat("killed at ", at));
      return pool.Live(random, {.crash_at = at, .hosted = hosted, .kill = AtThePoint(point)});
    }
    const std::string at = random() % 3 == 0 ? "" : kAgentPoints[random() % kAgentPoints.size()];
    say(absl::StrCat("agent killed ", at));
    return pool.LiveThroughAgentDeath(random, at);
  }

  LoadedPool::Kill AtThePoint(const std::string& point) {
    return [this, point](Process& manager) {
      if (manager.Wait(kPoint).ok()) {
        hits_.Add(point.find("scrub") != std::string::npos ||
                          point.find("SCRUBBING") != std::string::npos
                      ? "scrub"
                      : "other points");
      }
      manager.Kill();
      return absl::OkStatus();
    };
  }

  Hits hits_;
  LoadedPools pools_{&hits_, kLivesOfAPool};
};

}  // namespace
}  // namespace cxlpool::crash

int main(int argc, char** argv) {
  cxlpool::crash::KillTrials trials;
  return cxlpool::RunTrials(
      argc, argv,
      {.name = "cxlpool-kill-trials",
       .what = "kill -9 of manager and agents under load; nothing acknowledged is lost",
       .ci_seeds = 1000,
       .run = [&](uint64_t seed, bool trace) { return trials.Run(seed, trace); },
       .end = [&] { return trials.End(); },
       .summary = [&] { return trials.Summary(); },
       .missing = [&](uint64_t) { return trials.Missing(); }});
}
