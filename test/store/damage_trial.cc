#include "test/store/damage_trial.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/database.h"
#include "fabric-manager/fsck/fsck.h"
#include "fabric-manager/model/plans/planner.h"
#include "fabric-manager/service/record_codec.h"
#include "proto/support/refusal.h"
#include "test/store/power_story.h"
#include "test/store/seeded.h"
#include "test/store/watched_vfs.h"

namespace cxlpool::fm {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = 4096;

// What makes a trial fail.
absl::Status Wrong(const std::string& what) { return absl::DataLossError(what); }

// The file of `image` with that name; null: there is none.
std::string* FileOf(DiskImage& image, const std::string& name) {
  const auto found = image.names.find(name);
  return found == image.names.end() ? nullptr : &image.files[found->second];
}

// What happens to one file. The names are those of the summary.
class Damager {
 public:
  // `now`: which moment of `life` the image is of.
  Damager(DiskImage& image, const DamageLife& life, size_t now, Seeded& random)
      : image_(image), life_(life), now_(now), random_(random) {}

  // Answers what was done, for people.
  std::string Damage() {
    // The log and the head file are small beside what they mean: each file as often as the others.
    auto name = image_.names.begin();
    std::advance(name, random_.Below(image_.names.size()));
    name_ = name->first;
    file_ = &image_.files[name->second];
    const std::string kind = Pick();
    const std::string suffix = name_ == kDatabaseName ? "db" : name_.substr(name_.rfind('-') + 1);
    return absl::StrCat(suffix, " ", kind);
  }

 private:
  // "left alone": this damage cannot be done to this file, and the trial is one of an undamaged
  // store.
  std::string Pick() {
    if (random_.Below(16) == 0) {
      image_.names.erase(name_);
      return "removed";
    }
    if (file_->empty()) return "left alone";
    switch (random_.Below(9)) {
      case 0:
      case 1:
        (*file_)[At()] ^= static_cast<char>(1 << random_.Below(8));
        return "bit";
      case 2:
        Overwrite(At(), 1 + random_.Below(64),
                  [this] { return static_cast<char>(random_.Next()); });
        return "bytes";
      case 3:
        Overwrite(At(), 1 + random_.Below(4 * kBlock), [] { return '\0'; });
        return "zeros";
      case 4:
        file_->resize(random_.Below(4) == 0 ? 0 : At());
        return file_->empty() ? "emptied" : "cut";
      case 5:
        return Swap();
      case 6:
        return BringBack();
      case 7:
        // Where it is most delicate: headers of the file, of a frame, of a slot.
        (*file_)[random_.Below(std::min<size_t>(file_->size(), 128))] ^=
            static_cast<char>(1 + random_.Below(255));
        return "header";
      default:
        file_->resize(file_->size() - std::min<size_t>(file_->size(), 1 + random_.Below(5000)));
        return "end";
    }
  }

  size_t At() { return random_.Below(file_->size()); }

  template <typename Byte>
  // From `at` on, up to the file's end.
  void Overwrite(size_t at, size_t size, Byte byte) {
    for (size_t i = at; i < std::min(at + size, file_->size()); ++i) (*file_)[i] = byte();
  }

  // Two blocks in each other's places: each is whole by itself, so that only what says where it
  // belongs can tell. They may be the same block.
  std::string Swap() {
    const size_t blocks = file_->size() / kBlock;
    if (blocks < 2) return "left alone";
    const size_t one = random_.Below(blocks) * kBlock, two = random_.Below(blocks) * kBlock;
    std::swap_ranges(file_->begin() + static_cast<std::ptrdiff_t>(one),
                     file_->begin() + static_cast<std::ptrdiff_t>(one + kBlock),
                     file_->begin() + static_cast<std::ptrdiff_t>(two));
    return "swapped";
  }

  // Writes that were lost: a block, or all of the file, as it was at an earlier moment of this
  // life.
  std::string BringBack() {
    DiskImage other = life_.moments[random_.Below(now_ + 1)].files;
    const std::string* old = FileOf(other, name_);
    if (old == nullptr || old->empty()) return "left alone";
    if (random_.Below(4) == 0) {
      *file_ = *old;
      return "of an earlier moment";
    }
    const size_t at = random_.Below(old->size() / kBlock + 1) * kBlock;
    if (at + kBlock > file_->size() || at + kBlock > old->size()) return "left alone";
    file_->replace(at, kBlock, *old, at, kBlock);
    return "block of an earlier moment";
  }

  DiskImage& image_;
  const DamageLife& life_;
  const size_t now_;
  Seeded& random_;
  std::string name_;
  std::string* file_ = nullptr;
};

using Bytes = std::set<std::pair<std::string, uint64_t>>;  // Device and granule.

void AddBytes(const std::vector<Extent>& extents, Bytes& bytes) {
  for (const Extent& extent : extents) {
    for (uint64_t at = 0; at < extent.length_bytes; at += kDamageGranule) {
      bytes.insert({extent.device.str(), extent.dpa_bytes + at});
    }
  }
}

// Says whether manager, fsck and repair do what damage_trial.h promises, on one set of files that
// was damaged or not (`changed`).
class Judge {
 public:
  Judge(const DamageLife& life, const DamageMoment& truth, const DiskImage& found, bool changed,
        const std::string& directory, bool trace, DamageCounts& counts)
      : life_(life),
        truth_(truth),
        found_(found),
        changed_(changed),
        directory_(fs::canonical(directory).string()),
        path_(absl::StrCat(directory_, "/", kDatabaseName)),
        trace_(trace),
        counts_(counts) {}

  // A repair is tried only where fsck finds something: that is when a person would.
  absl::Status Run() {
    absl::Status status = Start();
    if (status.ok()) status = Check();
    if (status.ok() && !sound_) status = Repair();
    return status;
  }

 private:
  // As a manager opens it. What TakeOver answers is what the manager goes by.
  absl::StatusOr<StoreImage> Open() {
    auto database = Database::Open(path_, kDamageMaxBytes, kWatchedVfs);
    if (!database.ok()) return database.status();
    return (*database)->TakeOver();
  }

  void Say(const std::string& what) const {
    if (trace_) std::cout << "  " << what << "\n";
  }

  // The files are written anew first, here and for fsck: opening them changes them. Either the
  // store is refused with a reason, and without damage never, or it has exactly what was
  // acknowledged, under an epoch that nobody had.
  absl::Status Start() {
    if (absl::Status status = WriteImage(found_, directory_); !status.ok()) return status;
    const absl::StatusOr<StoreImage> image = Open();
    Say(absl::StrCat("start: ", image.status().ToString()));
    if (!image.ok()) {
      const std::string reason = ReasonOf(image.status());
      ++counts_.refusals[reason];
      if (!changed_)
        return Wrong(absl::StrCat("refused without damage: ", image.status().ToString()));
      if (reason.empty()) return Wrong(absl::StrCat("no refusal: ", image.status().ToString()));
      return absl::OkStatus();
    }
    // A new pool in place of one that is gone altogether is for a person to see; see
    // CheckStorePath.
    std::map<uint64_t, std::string> rows;
    for (const Row& row : image->rows) rows[row.key] = row.value;
    if (image->revision != truth_.revision || rows != truth_.rows) {
      ++counts_.started_wrong;
      return Wrong(absl::StrCat("started with revision ", image->revision, " and ", rows.size(),
                                " records where ", truth_.revision, " with ", truth_.rows.size(),
                                " was acknowledged"));
    }
    if (image->epoch <= truth_.epoch) {
      ++counts_.started_wrong;
      return Wrong("started with an epoch that was given out");
    }
    started_ = true;
    ++counts_.right;
    counts_.undamaged += changed_ ? 0 : 1;
    return absl::OkStatus();
  }

  // fsck changes nothing, finds nothing in what is undamaged, and finds something in what a manager
  // refuses.
  absl::Status Check() {
    if (absl::Status status = WriteImage(found_, directory_); !status.ok()) return status;
    const auto report = RunFsck(path_, /*repair=*/false, absl::UnixEpoch());
    if (!report.ok()) {
      Say(absl::StrCat("fsck: ", report.status().ToString()));
      return started_ ? Wrong(absl::StrCat("it starts, and fsck says ", report.status().ToString()))
                      : CheckUnchanged();
    }
    for (const FsckFinding& finding : report->findings) Say(absl::StrCat("fsck: ", finding.what));
    sound_ = report->findings.empty();
    counts_.sound += sound_ ? 1 : 0;
    if (sound_ && !started_) {
      ++counts_.sound_wrongly;
      return Wrong("fsck calls sound what a manager refuses");
    }
    if (!sound_ && !changed_) {
      return Wrong(absl::StrCat("fsck finds without damage: ", report->findings[0].what));
    }
    return CheckUnchanged();
  }

  // Byte for byte. A new file (a lock) is no change.
  absl::Status CheckUnchanged() {
    PowerCutDisk disk(directory_);
    const DiskImage now = disk.Cut(0, 1);
    for (const auto& [name, file] : found_.names) {
      const auto at = now.names.find(name);
      if (at == now.names.end() || now.files[at->second] != found_.files[file]) {
        return Wrong(absl::StrCat("fsck has changed ", name));
      }
    }
    return absl::OkStatus();
  }

  // A repair may decline, and then it has changed nothing. Once it is done, fsck finds nothing and
  // a manager opens the store.
  absl::Status Repair() {
    const auto report = RunFsck(path_, /*repair=*/true, absl::UnixEpoch());
    if (!report.ok()) {
      Say(absl::StrCat("repair: ", report.status().ToString()));
      ++counts_.not_repaired;
      return CheckUnchanged();
    }
    ++counts_.repaired;
    const auto again = RunFsck(path_, /*repair=*/false, absl::UnixEpoch());
    if (!again.ok()) return Wrong(absl::StrCat("after the repair: ", again.status().ToString()));
    if (!again->findings.empty()) {
      return Wrong(absl::StrCat("after the repair: ", again->findings[0].what));
    }
    const absl::StatusOr<StoreImage> image = Open();
    if (!image.ok()) {
      return Wrong(absl::StrCat("not to be opened after the repair: ", image.status().ToString()));
    }
    return JudgeRepaired(*image);
  }

  // What may be lost is records, and what may not happen is that anything is given out again:
  // revisions, epochs, ids, and above all bytes.
  absl::Status JudgeRepaired(const StoreImage& image) {
    if (image.revision <= truth_.revision || image.epoch <= truth_.epoch) {
      return Wrong(absl::StrCat("the repair gives revision ", image.revision, " of epoch ",
                                image.epoch, " out again"));
    }
    PoolState state;
    PoolMeta pool;
    Change records;
    size_t same = 0;
    for (const Row& row : image.rows) {
      auto record = DecodeRecord(row.key, row.value);
      if (!record.ok()) return record.status();
      if (auto* meta = std::get_if<PoolMeta>(&*record)) {
        pool = *meta;
        continue;
      }
      const auto before = truth_.rows.find(row.key);
      same += before != truth_.rows.end() && before->second == row.value ? 1 : 0;
      records.push_back(std::get<Item>(*std::move(record)));
    }
    if (same + 1 == truth_.rows.size()) ++counts_.lossless;  // And the pool's own record.
    if (pool.next_id < truth_.next_id) return Wrong("the repair gives ids out again");
    if (absl::Status status = state.Restore(records); !status.ok()) return status;
    if (absl::Status status = TakeDevicesIn(pool, state); !status.ok()) return status;
    absl::Status status = JudgeBytes(state);
    counts_.given_away += status.ok() ? 0 : 1;
    return status;
  }

  // As the manager does when it sees the fabric: every device of its configuration.
  absl::Status TakeDevicesIn(const PoolMeta& pool, PoolState& state) {
    PlanContext context;
    context.next_id = [next = pool.next_id]() mutable { return next++; };
    context.make_tag = [] { return Uuid(std::string(16, 'n')); };
    context.hold_reason = pool.hold_reason;
    for (const Device& device : life_.devices) {
      const Change change = PlanSeenDevice(state, device, false, context);
      if (change.empty()) continue;
      context.make_tag = [] { return Uuid(std::string(16, 'm')); };
      if (const auto applied = state.Apply(change); !applied.ok()) return applied.status();
    }
    return absl::OkStatus();
  }

  // No byte of a Region that was acknowledged may reach anybody else: it is not free, and no other
  // Region has it that can be released without force. QUARANTINED ones cannot.
  absl::Status JudgeBytes(const PoolState& state) {
    Bytes free;
    for (const auto& [id, device] : state.devices()) {
      for (const FreeSpace::Run& run : state.space().RunsOf(*state.IndexOf(Interned(id)))) {
        AddBytes({{id, run.dpa_bytes, run.length_bytes}}, free);
      }
    }
    for (const RegionPtr& region : truth_.regions) {
      Bytes own;
      AddBytes(region->extents, own);
      for (const auto& [device, dpa] : own) {
        if (free.contains({device, dpa})) {
          return Wrong(absl::StrCat("the repair gives byte ", dpa, " of ", device, " away, which ",
                                    region->id, " has"));
        }
      }
      // The Region that holds them now gives them away when it is released.
      for (const auto& [key, other] : state.regions()) {
        if (other->state == RegionState::kQuarantined || other->tag == region->tag) continue;
        Bytes others;
        AddBytes(other->extents, others);
        for (const auto& byte : own) {
          if (others.contains(byte)) {
            return Wrong(absl::StrCat(other->id, " came back and can be released, with bytes that ",
                                      region->id, " has"));
          }
        }
      }
    }
    return absl::OkStatus();
  }

  const DamageLife& life_;
  const DamageMoment& truth_;
  const DiskImage& found_;
  const bool changed_;
  const std::string directory_, path_;
  const bool trace_;
  DamageCounts& counts_;
  bool started_ = false;
  bool sound_ = false;
};

// Whether the damage was none: a block that was swapped with itself, a file left alone.
bool Same(DiskImage one, DiskImage two) {
  if (one.names.size() != two.names.size()) return false;
  for (const auto& [name, file] : one.names) {
    const std::string* other = FileOf(two, name);
    if (other == nullptr || *other != one.files[file]) return false;
  }
  return true;
}

}  // namespace

// A moment of the life, one damage, one judgement. `seed` decides all of it.
absl::Status TryDamage(const DamageLife& life, uint64_t seed, const std::string& directory,
                       bool trace, DamageCounts& counts) {
  Seeded random(seed);
  const size_t now = random.Below(life.moments.size());
  const DamageMoment& truth = life.moments[now];
  DiskImage found = truth.files;
  const std::string kind = Damager(found, life, now, random).Damage();
  ++counts.kinds[kind];
  if (trace) {
    std::cout << (truth.killed ? "killed" : "closed") << " at revision " << truth.revision << ": "
              << kind << "\n";
  }
  absl::Status status =
      Judge(life, truth, found, !Same(found, truth.files), directory, trace, counts).Run();
  if (status.ok()) return status;
  return Wrong(absl::StrCat(truth.killed ? "killed" : "closed in order", ", ", kind, ": ",
                            std::string(status.message())));
}

}  // namespace cxlpool::fm
