// cxlpool-power-trials: cuts the power of a store at every sync point of its stories
// (power_story.h) and at moments between, many ways each, and looks at what comes up
// (power_trial.h).
//
// A seed says where and how: the moments come round one after the other, before and after each
// sync; every third round anywhere. After kSeedsAScript seeds the stories are played anew with
// other records.
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "test/store/power_trial.h"
#include "test/store/seeded.h"
#include "test/store/watched_vfs.h"
#include "test/trials/trial.h"

namespace cxlpool::fm {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSeedsAScript = 20000;
constexpr int kNameWeight = 16;      // Few moments have names to lose, and many ways to lose them.
constexpr uint64_t kRoundsInCi = 6;  // So each moment is met by four seeds, and more lie between.

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (fs::temp_directory_path() / "cxlpool-power-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
    path_ = fs::canonical(path_).string();
  }
  ~TemporaryDirectory() { fs::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

  std::string Empty(const std::string& name) const {
    std::string directory = absl::StrCat(path_, "/", name);
    fs::remove_all(directory);
    fs::create_directory(directory);
    fs::permissions(directory, fs::perms::owner_all);
    return directory;
  }

 private:
  std::string path_;
};

struct Moment {
  size_t story;
  size_t position;
};

class Trials {
 public:
  // The stories of script `script`, played once.
  absl::Status Tell(uint64_t script) {
    if (script_ == script) return absl::OkStatus();
    stories_.clear();
    moments_.clear();
    if (absl::Status status = Add(TellCommits(at_.Empty("commits"), script)); !status.ok()) {
      return status;
    }
    absl::StatusOr<PowerStory> migration =
        TellMigration(at_.Empty("migration"), script, CXLPOOL_STORES "/first-release.db");
    if (absl::Status status = Add(std::move(migration)); !status.ok()) return status;
    if (absl::Status status = Add(TellRepair(at_.Empty("repair"), script)); !status.ok()) {
      return status;
    }
    found_ = at_.Empty("found");
    script_ = script;
    visited_ = 0;
    return absl::OkStatus();
  }

  uint64_t moments() const { return moments_.size(); }

  absl::Status Try(uint64_t seed, bool trace) {
    const uint64_t script = 1 + (seed - 1) / kSeedsAScript;
    const uint64_t number = (seed - 1) % kSeedsAScript;
    if (absl::Status status = Tell(script); !status.ok()) return status;
    Moment moment = moments_[number % moments_.size()];
    const uint64_t round = number / moments_.size();
    if (round == 0) ++visited_;
    visited_all_ |= visited_ == moments_.size();
    PowerStory& story = stories_[moment.story];
    if (round % 3 == 2) moment.position = Seeded(seed).Below(story.disk->position() + 1);
    return TryPowerCut(story, moment.position, seed, found_, trace, counts_);
  }

  std::string Summary() const {
    return absl::StrCat(
        WithCommas(moments_.size()), " moments, ", WithCommas(counts_.second_cuts),
        " second cuts; sectors: ", WithCommas(counts_.cuts.kept), " kept, ",
        WithCommas(counts_.cuts.dropped), " dropped, ", WithCommas(counts_.cuts.torn),
        " torn; names and truncations: ", WithCommas(counts_.cuts.names_kept), " kept, ",
        WithCommas(counts_.cuts.names_dropped), " dropped; ", WithCommas(counts_.beyond),
        " came up with more than was acknowledged, ", WithCommas(counts_.refused),
        " refused by a full disk, ", WithCommas(counts_.fresh), " before there was a database, ",
        WithCommas(counts_.copies), " copies whole");
  }

  std::string Missing() const {
    if (!visited_all_) {
      return absl::StrCat("only ", visited_, " of ", moments_.size(), " moments; give more seeds");
    }
    const CutCounts& cuts = counts_.cuts;
    const bool all = cuts.kept > 0 && cuts.dropped > 0 && cuts.torn > 0 && cuts.names_kept > 0 &&
                     cuts.names_dropped > 0 && counts_.second_cuts > 0 && counts_.beyond > 0 &&
                     counts_.fresh > 0 && counts_.copies > 0 && counts_.refused > 0;
    return all ? "" : "some kind of outcome was never met";
  }

 private:
  absl::Status Add(absl::StatusOr<PowerStory> story) {
    if (!story.ok()) return story.status();
    for (const size_t position : story->disk->Moments()) {
      const int weight = story->disk->IsAboutNames(position) ? kNameWeight : 1;
      for (int i = 0; i < weight; ++i) moments_.push_back({stories_.size(), position});
    }
    stories_.push_back(*std::move(story));
    return absl::OkStatus();
  }

  TemporaryDirectory at_;
  std::string found_;
  uint64_t script_ = 0;
  std::vector<PowerStory> stories_;
  std::vector<Moment> moments_;
  PowerTrialCounts counts_;
  uint64_t visited_ = 0;      // Moments of this script.
  bool visited_all_ = false;  // Of some script.
};

}  // namespace
}  // namespace cxlpool::fm

int main(int argc, char** argv) {
  cxlpool::fm::RegisterWatchedVfs(true);
  cxlpool::fm::Trials trials;
  if (const absl::Status status = trials.Tell(1); !status.ok()) {
    std::cout << "cxlpool-power-trials: a story cannot be played: " << status << std::endl;
    return 1;
  }
  cxlpool::TrialProgram program;
  program.name = "cxlpool-power-trials";
  program.what = "power cuts of the store, at every sync point";
  program.ci_seeds = cxlpool::fm::kRoundsInCi * trials.moments();
  program.run = [&](uint64_t seed, bool trace) { return trials.Try(seed, trace); };
  program.summary = [&] { return trials.Summary(); };
  program.missing = [&](uint64_t) { return trials.Missing(); };
  return cxlpool::RunTrials(argc, argv, program);
}
