#include "test/store/power_story.h"

#include <filesystem>
#include <future>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/salvage.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"
#include "test/store/seeded.h"
#include "test/store/watched_vfs.h"

namespace cxlpool::fm {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kOperations = 200;
constexpr uint64_t kMigrationOperations = 12;
constexpr uint64_t kRepairOperations = 150;

// Records what one Store does. Commits are asked for on the store's own thread, from the completion
// of the last group: so what is in one transaction is the same every time.
class Teller {
 public:
  Teller(PowerStory& story, const std::string& directory, uint64_t script, DiskLies lies = nullptr)
      : story_(story), directory_(fs::canonical(directory).string()) {
    story.disk = std::make_unique<PowerCutDisk>(directory, std::move(lies));
    SeedSqlite(script);
    WatchDisk(story.disk.get());
  }
  ~Teller() { WatchDisk(nullptr); }

  std::string path() const { return absl::StrCat(directory_, "/", kDatabaseName); }

  // Open; `revision` is what it must find.
  absl::Status Open(uint64_t revision) {
    SqliteStoreOptions options;
    options.path = path();
    options.vfs = kWatchedVfs;
    options.checkpoint_pages = 12;  // Four times as many make one, at once.
    options.checkpoint_idle = absl::Hours(1);
    options.settle_idle = absl::Hours(1);
    absl::StatusOr<std::unique_ptr<Store>> store = MakeSqliteStore(options);
    if (!store.ok()) return store.status();
    store_ = *std::move(store);
    std::promise<absl::StatusOr<StoreImage>> opened;
    store_->Open(nullptr, [&](absl::StatusOr<StoreImage> image) {
      if (image.ok()) Note([&](PowerNote& note) { note.epoch = image->epoch; });
      opened.set_value(std::move(image));
    });
    const absl::StatusOr<StoreImage> image = opened.get_future().get();
    if (!image.ok()) return image.status();
    if (image->revision != revision) return absl::InternalError("the story starts elsewhere");
    Note([&](PowerNote& note) { note.acknowledged = note.asked = revision; });
    return absl::OkStatus();
  }

  // Commits up to revision `until`.
  absl::Status Commit(uint64_t until) {
    finished_ = {};
    until_ = until;
    Ask();
    return finished_.get_future().get();
  }

  absl::Status Backup() {
    std::promise<absl::Status> made;
    store_->Backup(absl::StrCat(directory_, "/", story_.copy),
                   [&](const absl::StatusOr<StoreBackup>& backup) {
                     if (backup.ok()) Note([](PowerNote& note) { note.copied = true; });
                     made.set_value(backup.status());
                   });
    return made.get_future().get();
  }

  void Close() { store_.reset(); }

  template <typename Change>
  void Note(Change change) {
    PowerNote note = story_.notes.empty() ? PowerNote{} : story_.notes.back();
    change(note);
    note.position = story_.disk->position();
    story_.notes.push_back(note);
  }

 private:
  // The next one.
  void Ask() {
    const uint64_t revision = story_.notes.back().acknowledged + 1;
    const uint64_t epoch = story_.notes.back().epoch;
    Note([&](PowerNote& note) { note.asked = revision; });
    store_->Commit(story_.history.Batch(epoch, revision), [this, revision](absl::Status status) {
      if (status.ok()) Note([&](PowerNote& note) { note.acknowledged = revision; });
      if (!status.ok() || revision == until_) {
        finished_.set_value(std::move(status));
      } else {
        Ask();
      }
    });
  }

  PowerStory& story_;
  const std::string directory_;
  std::unique_ptr<Store> store_;
  uint64_t until_ = 0;
  std::promise<absl::Status> finished_;
};

absl::Status CopyFile(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::copy_file(from, to, error);
  if (!error) fs::permissions(to, fs::perms::owner_read | fs::perms::owner_write, error);
  return error ? absl::UnavailableError(absl::StrCat(from, ": ", error.message()))
               : absl::OkStatus();
}

ScriptedPool PoolOf(const std::vector<Row>& rows) {
  ScriptedPool pool;
  for (const Row& row : rows) pool[row.key] = row.value;
  return pool;
}

// Takes the first record out, by fsck's way.
absl::Status Repair(PowerStory& story, Teller& teller) {
  absl::StatusOr<std::unique_ptr<DamagedDatabase>> damaged = DamagedDatabase::Open(teller.path());
  if (!damaged.ok()) return damaged.status();
  absl::StatusOr<Salvage> found = (*damaged)->Read();
  if (!found.ok()) return found.status();
  if (found->rows.size() < 2 || !found->damage.empty()) return absl::InternalError("no story");
  const SetAside aside{found->rows[0].key, found->rows[0].value, 0, "of a trial", ""};
  found->rows.erase(found->rows.begin());
  const uint64_t revision = ++found->meta.revision;
  story.repaired = revision;
  story.history.Set(revision, PoolOf(found->rows));
  teller.Note([&](PowerNote& note) { note.asked = revision; });
  if (absl::Status status = (*damaged)->Replace(found->meta, found->rows, {aside}); !status.ok()) {
    return status;
  }
  teller.Note([&](PowerNote& note) {
    note.acknowledged = revision;
    note.copied = true;
  });
  return absl::OkStatus();
}

}  // namespace

PowerNote NoteAt(const std::vector<PowerNote>& notes, size_t position) {
  PowerNote last;
  for (const PowerNote& note : notes) {
    if (note.position > position) break;
    last = note;
  }
  return last;
}

const ScriptedPool& PowerHistory::At(uint64_t revision) {
  while (first_revision_ + pools_.size() <= revision) {
    ScriptedPool next = pools_.back();
    ApplyBatch(Batch(0, first_revision_ + pools_.size()), next);
    pools_.push_back(std::move(next));
  }
  return pools_[revision - first_revision_];
}

void PowerHistory::Set(uint64_t revision, ScriptedPool pool) {
  At(revision - 1);
  pools_.resize(revision - first_revision_);
  pools_.push_back(std::move(pool));
}

absl::StatusOr<PowerStory> TellCommits(const std::string& directory, uint64_t script,
                                       const DiskLies& lies) {
  PowerStory story;
  story.name = "commits";
  story.history = PowerHistory(script, 0, {});
  story.copy = "backup.db";
  Teller teller(story, directory, script, lies);
  absl::Status status = teller.Open(0);
  if (status.ok()) status = teller.Commit(kOperations / 2);
  if (status.ok()) status = teller.Backup();
  if (status.ok()) status = teller.Commit(kOperations * 3 / 4);
  teller.Close();
  if (status.ok()) status = teller.Open(kOperations * 3 / 4);
  if (status.ok()) status = teller.Commit(kOperations);
  teller.Close();
  if (!status.ok()) return status;
  return story;
}

absl::StatusOr<PowerStory> TellMigration(const std::string& directory, uint64_t script,
                                         const std::string& first_release) {
  PowerStory story;
  story.name = "migration";
  const std::string path = absl::StrCat(directory, "/", kDatabaseName);
  if (absl::Status status = CopyFile(first_release, path); !status.ok()) return status;
  absl::StatusOr<Salvage> found;
  {
    absl::StatusOr<std::unique_ptr<DamagedDatabase>> old = DamagedDatabase::Open(path);
    if (!old.ok()) return old.status();
    found = (*old)->Read();
  }
  if (!found.ok()) return found.status();
  const uint64_t revision = found->meta.revision;
  story.history = PowerHistory(script, revision, PoolOf(found->rows));
  Teller teller(story, directory, script);
  // A database that is there already.
  teller.Note([&](PowerNote& note) {
    note.epoch = found->meta.epoch;
    note.acknowledged = note.asked = revision;
  });
  absl::Status status = teller.Open(revision);
  if (status.ok()) status = teller.Commit(revision + kMigrationOperations);
  teller.Close();
  if (!status.ok()) return status;
  return story;
}

absl::StatusOr<StoreWithLog> MakeStoreWithLog(const std::string& directory, uint64_t script,
                                              uint64_t operations) {
  PowerStory story;
  story.history = PowerHistory(script, 0, {});
  Teller teller(story, directory, script);
  absl::Status status = teller.Open(0);
  if (status.ok()) status = teller.Commit(operations - 1);
  teller.Close();  // All of it in the database; then the log has a part.
  if (status.ok()) status = teller.Open(operations - 1);
  if (status.ok()) status = teller.Commit(operations);
  if (!status.ok()) return status;
  const size_t end = story.disk->position();
  teller.Close();
  StoreWithLog made{story.disk->Cut(end, script), story.history, NoteAt(story.notes, end)};
  made.note.position = 0;
  return made;
}

absl::StatusOr<PowerStory> TellRepair(const std::string& directory, uint64_t script) {
  absl::StatusOr<StoreWithLog> before = MakeStoreWithLog(directory, script, kRepairOperations);
  if (!before.ok()) return before.status();
  if (absl::Status status = WriteImage(before->files, directory); !status.ok()) return status;
  PowerStory story;
  story.name = "repair";
  story.history = story.without_repair = before->history;
  story.copy = absl::StrCat(kDatabaseName, ".before-fsck");
  Teller teller(story, directory, script);
  story.notes.push_back(before->note);
  if (absl::Status status = Repair(story, teller); !status.ok()) return status;
  return story;
}

}  // namespace cxlpool::fm
