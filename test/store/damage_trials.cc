// cxlpool-damage-trials: damages the files of stores that were killed or closed in order, and looks
// at what a manager, fsck and a repair make of them (damage_trial.h).
//
// Every kSeedsALife seeds another life is lived.
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "test/store/damage_trial.h"
#include "test/store/watched_vfs.h"
#include "test/trials/trial.h"

namespace cxlpool::fm {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSeedsALife = 20;

class Trials {
 public:
  Trials() {
    std::string pattern = (fs::temp_directory_path() / "cxlpool-damage-XXXXXX").string();
    directory_ = fs::canonical(mkdtemp(pattern.data())).string();
  }
  ~Trials() { fs::remove_all(directory_); }
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;

  absl::Status Try(uint64_t seed, bool trace) {
    const uint64_t number = 1 + (seed - 1) / kSeedsALife;
    if (number != number_) {
      absl::StatusOr<DamageLife> life = LiveForDamage(Empty("life"), number);
      if (!life.ok()) return life.status();
      life_ = *std::move(life);
      number_ = number;
    }
    return TryDamage(life_, seed, Empty("found"), trace, counts_);
  }

  std::string Summary() const {
    uint64_t refused = 0;
    std::string reasons;
    for (const auto& [reason, count] : counts_.refusals) {
      refused += count;
      absl::StrAppend(&reasons, reasons.empty() ? "" : ", ", reason, " ", WithCommas(count));
    }
    return absl::StrCat(WithCommas(counts_.started_wrong), " started wrong, ",
                        WithCommas(counts_.sound_wrongly), " called sound wrongly, ",
                        WithCommas(counts_.given_away), " times bytes given away; ",
                        counts_.kinds.size(), " kinds of damage; ", WithCommas(counts_.right),
                        " started right, ", WithCommas(refused), " refused (", reasons, "); ",
                        WithCommas(counts_.sound), " called sound; ", WithCommas(counts_.repaired),
                        " repaired (", WithCommas(counts_.lossless), " without a loss), ",
                        WithCommas(counts_.not_repaired), " beyond repair");
  }

  std::string Missing(uint64_t trials) const {
    if (trials < 1000) return "";
    const bool all = counts_.right > 0 && counts_.undamaged > 0 && counts_.sound > 0 &&
                     counts_.repaired > 0 && counts_.lossless > 0 &&
                     counts_.refusals.contains("STORE_INCOMPLETE") &&
                     counts_.refusals.contains("STORE_CORRUPT");
    return all ? "" : "some kind of outcome was never met";
  }

 private:
  std::string Empty(const std::string& name) const {
    std::string directory = absl::StrCat(directory_, "/", name);
    fs::remove_all(directory);
    fs::create_directory(directory);
    fs::permissions(directory, fs::perms::owner_all);
    return directory;
  }

  std::string directory_;
  uint64_t number_ = 0;
  DamageLife life_;
  DamageCounts counts_;
};

}  // namespace
}  // namespace cxlpool::fm

int main(int argc, char** argv) {
  cxlpool::fm::RegisterWatchedVfs(true);
  cxlpool::fm::Trials trials;
  cxlpool::TrialProgram program;
  program.name = "cxlpool-damage-trials";
  program.what = "damages of a store's files, after kills and orderly ends";
  program.ci_seeds = 2000;
  program.run = [&](uint64_t seed, bool trace) { return trials.Try(seed, trace); };
  program.summary = [&] { return trials.Summary(); };
  program.missing = [&](uint64_t seeds) { return trials.Missing(seeds); };
  return cxlpool::RunTrials(argc, argv, program);
}
