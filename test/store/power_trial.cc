#include "test/store/power_trial.h"

#include <filesystem>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/database.h"
#include "test/store/seeded.h"
#include "test/store/watched_vfs.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kMaxSizeBytes = 64 << 20;

absl::Status Broken(const std::string& what) { return absl::DataLossError(what); }

// Whether `image` holds what its revision does.
absl::Status CheckRows(const StoreImage& image, PowerHistory& history) {
  const ScriptedPool& expected = history.At(image.revision);
  ScriptedPool found;
  for (const Row& row : image.rows) found[row.key] = row.value;
  if (found == expected && found.size() == image.rows.size()) return absl::OkStatus();
  for (const auto& [key, value] : expected) {
    const auto at = found.find(key);
    if (at == found.end() || at->second != value) {
      return Broken(absl::StrCat("at revision ", image.revision, " record ", key, " is ",
                                 at == found.end() ? "missing" : "another"));
    }
  }
  return Broken(absl::StrCat("at revision ", image.revision, " there are ", image.rows.size(),
                             " records where ", expected.size(), " were written"));
}

// As far as what is known outside can tell.
absl::Status CheckGuards(const StoreImage& image, const PowerNote& known) {
  if (image.epoch <= known.epoch) {
    return Broken(absl::StrCat("epoch ", image.epoch, " after ", known.epoch));
  }
  if (image.revision < known.acknowledged || image.revision > known.asked) {
    return Broken(absl::StrCat("revision ", image.revision, " where ", known.acknowledged,
                               " was acknowledged and ", known.asked, " asked for"));
  }
  return absl::OkStatus();
}

// A life after a cut: opens, checks, commits. `notes` says what is known outside at each moment.
class Afterlife {
 public:
  Afterlife(const std::string& directory, PowerStory& story, PowerNote known, PowerCutDisk* disk,
            PowerHistory* history = nullptr)
      : path_(absl::StrCat(directory, "/", kDatabaseName)),
        story_(story),
        disk_(disk),
        history_(history) {
    known.position = 0;
    notes_.push_back(known);
  }

  absl::Status Open() {
    absl::StatusOr<std::unique_ptr<Database>> database =
        Database::Open(path_, kMaxSizeBytes, kWatchedVfs);
    if (!database.ok()) return database.status();
    absl::StatusOr<StoreImage> image = (*database)->TakeOver();
    if (!image.ok()) return image.status();
    absl::Status status = CheckGuards(*image, notes_.back());
    if (status.ok() && history_ == nullptr) {
      history_ = image->revision < story_.repaired ? &story_.without_repair : &story_.history;
    }
    if (status.ok()) status = CheckRows(*image, *history_);
    if (!status.ok()) return status;
    database_ = *std::move(database);
    epoch_ = image->epoch;
    Note(image->revision, image->revision);
    return absl::OkStatus();
  }

  // So many changes, one after the other; up to the first that fails.
  absl::Status Commit(uint64_t count) {
    for (; count > 0; --count) {
      const uint64_t last = notes_.back().acknowledged, next = last + 1;
      Note(last, next);
      const absl::Status status = database_->Commit(story_.history.Batch(epoch_, next));
      if (status.ok()) Note(next, next);
      if (absl::IsResourceExhausted(status)) Note(last, last);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // One for which the disk has no space after so many writes. What is refused has not happened.
  absl::Status CommitOnFullDisk(uint64_t count, int64_t writes, PowerTrialCounts& counts) {
    disk_->FillAfter(writes);
    absl::Status status = Commit(count);
    disk_->MakeSpace();
    if (!absl::IsResourceExhausted(status)) return status;
    ++counts.refused;
    return absl::OkStatus();
  }

  absl::Status Checkpoint() { return database_->Checkpoint(); }
  void Close() { database_.reset(); }

  const std::vector<PowerNote>& notes() const { return notes_; }
  PowerHistory* history() const { return history_; }  // What was found is a part of it.

 private:
  void Note(uint64_t acknowledged, uint64_t asked) {
    PowerNote note;
    note.position = disk_ == nullptr ? 0 : disk_->position();
    note.epoch = epoch_;
    note.acknowledged = acknowledged;
    note.asked = asked;
    notes_.push_back(note);
  }

  const std::string path_;
  PowerStory& story_;
  PowerCutDisk* const disk_;
  PowerHistory* history_;
  std::vector<PowerNote> notes_;
  std::unique_ptr<Database> database_;
  uint64_t epoch_ = 0;
};

absl::Status GoOn(Afterlife& life, Seeded& random, PowerTrialCounts& counts) {
  for (uint64_t groups = 1 + random.Below(3); groups > 0; --groups) {
    if (random.Below(3) == 0) {
      const auto writes = static_cast<int64_t>(random.Below(24));
      absl::Status status = life.CommitOnFullDisk(1 + random.Below(12), writes, counts);
      if (!status.ok()) return status;
    }
    if (absl::Status status = life.Commit(1 + random.Below(3)); !status.ok()) return status;
    if (random.Below(3) != 0) continue;
    if (absl::Status status = life.Checkpoint(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// The database that was made beside the store's is whole or absent.
absl::Status CheckCopy(PowerStory& story, const PowerNote& known, const DiskImage& image,
                       const std::string& directory, PowerTrialCounts& counts) {
  const auto found = image.names.find(story.copy);
  if (story.copy.empty() || found == image.names.end()) {
    return known.copied ? Broken(absl::StrCat(story.copy, " is missing")) : absl::OkStatus();
  }
  ++counts.copies;
  DiskImage alone;
  for (const char* suffix : {"", "-wal", "-head"}) {
    const auto part = image.names.find(story.copy + suffix);
    if (part == image.names.end()) continue;
    alone.names[absl::StrCat(kDatabaseName, suffix)] = alone.files.size();
    alone.files.push_back(image.files[part->second]);
  }
  if (absl::Status status = WriteImage(alone, directory); !status.ok()) return status;
  PowerNote any = known;  // Which revision it has is for its maker to say.
  any.acknowledged = any.epoch = 0;
  Afterlife life(directory, story, any, nullptr);
  if (absl::Status status = life.Open(); !status.ok()) {
    return Broken(absl::StrCat(story.copy, ": ", std::string(status.message())));
  }
  return absl::OkStatus();
}

absl::Status Named(const char* when, const absl::Status& status) {
  return status.ok() ? status : Broken(absl::StrCat(when, ": ", std::string(status.message())));
}

}  // namespace

absl::Status TryPowerCut(PowerStory& story, size_t position, uint64_t seed,
                         const std::string& directory, bool trace, PowerTrialCounts& counts) {
  Seeded random(seed);
  const PowerNote known = NoteAt(story.notes, position);
  const DiskImage image = story.disk->Cut(position, random.Next(), &counts.cuts);
  if (trace) {
    std::cout << story.name << ": cut before change " << position << " ("
              << story.disk->Describe(position) << "); epoch " << known.epoch << ", revision "
              << known.acknowledged << " acknowledged, " << known.asked << " asked for\n";
    for (const auto& [name, file] : image.names) {
      std::cout << "  found " << name << ", " << image.files[file].size() << " bytes\n";
    }
  }
  if (absl::Status status = CheckCopy(story, known, image, directory, counts); !status.ok()) {
    return status;
  }
  if (absl::Status status = WriteImage(image, directory); !status.ok()) return status;

  PowerCutDisk disk(directory);
  SeedSqlite(random.Next());
  WatchDisk(&disk);
  Afterlife life(directory, story, known, &disk);
  absl::Status status = Named("the store does not come up", life.Open());
  counts.fresh += !image.names.contains(kDatabaseName);
  counts.beyond += status.ok() && life.notes().back().acknowledged > known.acknowledged;
  if (status.ok()) status = Named("it does not go on", GoOn(life, random, counts));
  life.Close();
  WatchDisk(nullptr);
  if (!status.ok()) return status;
  ++counts.opened;

  size_t second = disk.position();
  if (random.Below(4) != 0) {
    // Where a transaction is whole but not yet synced there is most to lose.
    const std::vector<size_t> moments = disk.Moments();
    second =
        random.Below(2) == 0 ? moments[random.Below(moments.size())] : random.Below(second + 1);
    ++counts.second_cuts;
    status = WriteImage(disk.Cut(second, random.Next(), &counts.cuts), directory);
    if (!status.ok()) return status;
  }
  if (trace) {
    std::cout << "  second cut before change " << second << " of " << disk.position() << " ("
              << disk.Describe(second) << ")\n";
  }
  Afterlife last(directory, story, NoteAt(life.notes(), second), nullptr, life.history());
  status = Named("after the second cut", last.Open());
  if (status.ok()) status = Named("after the second cut", last.Commit(1));
  counts.opened += status.ok();
  return status;
}

}  // namespace cxlpool::fm
