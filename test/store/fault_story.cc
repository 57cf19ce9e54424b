#include "test/store/fault_story.h"

#include <filesystem>
#include <fstream>
#include <future>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/database.h"
#include "fabric-manager/adapters/store_sqlite/salvage.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"
#include "proto/support/refusal.h"
#include "test/store/power_story.h"
#include "test/store/watched_vfs.h"

namespace cxlpool::fm {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kScript = 11;
constexpr uint64_t kFaultOperations = 30;  // Before the fault, where there is a database.
constexpr uint64_t kMaxFaultBytes = 64 << 20;
constexpr int kCommits[] = {2, 4, 1, 0, 3, 2};  // Changes; 0: a backup.

absl::Status Wrong(const std::string& what) { return absl::InternalError(what); }

ScriptedPool PoolOfRows(const std::vector<Row>& rows) {
  ScriptedPool pool;
  for (const Row& row : rows) pool[row.key] = row.value;
  return pool;
}

// Opening, backing up and repairing may fail, but never by finding damage that is not there.
absl::Status JudgeFailure(const char* what, const absl::Status& status) {
  const std::string reason(ReasonOf(status));
  if (reason == "STORE_IO" && absl::IsUnavailable(status)) return absl::OkStatus();
  if (reason == "STORE_FULL" && absl::IsResourceExhausted(status)) return absl::OkStatus();
  if (reason == "STORE_UNUSABLE" && absl::IsFailedPrecondition(status)) return absl::OkStatus();
  return Wrong(absl::StrCat(what, " answered ", status.ToString()));
}

template <typename T, typename Call>
absl::StatusOr<T> Wait(Call call) {
  std::promise<absl::StatusOr<T>> promise;
  call([&](absl::StatusOr<T> answer) { promise.set_value(std::move(answer)); });
  return promise.get_future().get();
}

}  // namespace

FaultStory::FaultStory(FaultScene scene, bool disk, const std::string& directory,
                       const std::string& first_release)
    : scene_(scene),
      disk_(disk),
      directory_(fs::canonical(directory).string()),
      path_(absl::StrCat(directory_, "/", kDatabaseName)) {
  if (scene == FaultScene::kMigration) {
    std::ifstream in(first_release, std::ios::binary);
    files_.names[kDatabaseName] = 0;
    files_.files.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    if (!WriteImage(files_, directory_).ok()) return;
    auto database = Database::Open(path_, kMaxFaultBytes, "");
    if (!database.ok()) return;
    const absl::StatusOr<StoreImage> image = (*database)->TakeOver();
    if (image.ok()) first_ = {image->revision, PoolOfRows(image->rows)};
  } else if (scene != FaultScene::kNew) {
    absl::StatusOr<StoreWithLog> made = MakeStoreWithLog(directory_, kScript, kFaultOperations);
    if (!made.ok()) return;
    files_ = std::move(made->files);
    first_ = {kFaultOperations, made->history.At(kFaultOperations)};
  }
}

absl::Status FaultStory::Reset() {
  states_ = {first_};
  epoch_ = attempt_ = 0;
  stopped_ = false;
  backed_up_.reset();
  if (scene_ != FaultScene::kNew && first_.revision == 0) return Wrong("there is no story");
  return WriteImage(files_, directory_);
}

absl::Status FaultStory::Run() { return scene_ == FaultScene::kRepair ? RunRepair() : RunStore(); }

absl::Status FaultStory::RunStore() {
  SqliteStoreOptions options;
  options.path = path_;
  options.vfs = kWatchedVfs;
  options.checkpoint_pages = 3;
  options.checkpoint_idle = absl::Hours(1);
  options.settle_idle = absl::Hours(1);
  absl::StatusOr<std::unique_ptr<Store>> store = MakeSqliteStore(options);
  if (!store.ok()) return store.status();
  const auto open = [&](DoneWith<StoreImage> done) {
    (*store)->Open([this](const absl::Status&) { stopped_ = true; }, std::move(done));
  };
  absl::StatusOr<StoreImage> image = Wait<StoreImage>(open);
  if (!image.ok()) {
    if (absl::Status status = JudgeFailure("Open", image.status()); !status.ok()) return status;
    image = Wait<StoreImage>(open);  // A fault that has passed is forgotten.
    if (!image.ok()) return JudgeFailure("Open", image.status());
  }
  if (image->revision != first_.revision || PoolOfRows(image->rows) != first_.pool) {
    return Wrong("Open answered other records than were there");
  }
  epoch_ = image->epoch;
  for (const int count : kCommits) {
    absl::Status status = count == 0 ? Backup(**store) : Commit(**store, count);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// So many changes, one after the other; after a failure the next is planned on what is there.
absl::Status FaultStory::Commit(Store& store, int count) {
  for (; count > 0; --count) {
    const StoreBatch batch = ScriptedBatch(epoch_, states_[0].revision + 1, kScript + attempt_++);
    const bool stopped = stopped_;  // It may stop between this answer and the next question.
    std::promise<absl::Status> promise;
    store.Commit(batch, [&](absl::Status status) { promise.set_value(std::move(status)); });
    if (absl::Status wrong = Judge(batch, promise.get_future().get(), stopped); !wrong.ok())
      return wrong;
  }
  return absl::OkStatus();
}

absl::Status FaultStory::Judge(const StoreBatch& batch, const absl::Status& answer, bool stopped) {
  const std::string reason(ReasonOf(answer));
  const auto wrong = [&](const char* why) {
    return Wrong(absl::StrCat("Commit answered ", answer.ToString(), why));
  };
  State state = states_[0];
  state.revision = batch.revision;
  ApplyBatch(batch, state.pool);
  if (answer.ok()) {
    if (stopped) return wrong(" though the store had stopped");
    states_ = {state};
  } else if (absl::IsResourceExhausted(answer) && reason == "STORE_FULL") {
    if (stopped) return wrong(" though the store had stopped");
  } else if (absl::IsDataLoss(answer) && reason == "STORE_IO") {
    // What is asked for after the first unknown outcome is refused untried.
    if (!stopped) states_.push_back(state);
    stopped_ = true;
  } else {
    return wrong("");
  }
  return absl::OkStatus();
}

absl::Status FaultStory::Backup(Store& store) {
  const std::string path = absl::StrCat(directory_, "/", "backup.db");
  const bool stopped = stopped_;
  const absl::StatusOr<StoreBackup> made =
      Wait<StoreBackup>([&](DoneWith<StoreBackup> done) { store.Backup(path, std::move(done)); });
  if (made.ok()) {
    if (stopped) return Wrong("Backup of a store that has stopped");
    backed_up_ = states_[0];
    return absl::OkStatus();
  }
  if (fs::exists(path)) return Wrong("Backup failed and left a file");
  if (stopped_ && absl::IsDataLoss(made.status())) return absl::OkStatus();
  return JudgeFailure("Backup", made.status());
}

absl::Status FaultStory::RunRepair() {
  absl::StatusOr<std::unique_ptr<DamagedDatabase>> damaged = DamagedDatabase::Open(path_);
  if (!damaged.ok()) return JudgeFailure("opening it for repair", damaged.status());
  absl::StatusOr<Salvage> found = (*damaged)->Read();
  if (!found.ok()) return JudgeFailure("reading it for repair", found.status());
  // What cannot be read now is damage to a repair; the person who repairs sees it first.
  if (!found->damage.empty()) {
    return disk_ ? absl::OkStatus() : Wrong(absl::StrCat("repair found ", found->damage[0]));
  }
  if (PoolOfRows(found->rows) != first_.pool) return Wrong("repair found other records");
  found->rows.erase(found->rows.begin());
  const State repaired{++found->meta.revision, PoolOfRows(found->rows)};
  const absl::Status status = (*damaged)->Replace(found->meta, found->rows, {});
  if (status.ok()) {
    states_ = {repaired};
    return absl::OkStatus();
  }
  states_.push_back(repaired);
  return JudgeFailure("repair", status);
}

absl::Status FaultStory::CheckAfterwards() {
  absl::Status status = CheckFile(path_, states_);
  const std::string backup = absl::StrCat(directory_, "/backup.db");
  if (status.ok() && backed_up_.has_value()) status = CheckFile(backup, {*backed_up_});
  const std::string copy = path_ + ".before-fsck";
  if (status.ok() && fs::exists(copy)) status = CheckFile(copy, {first_});
  return status;
}

absl::Status FaultStory::CheckFile(const std::string& path, const std::vector<State>& states) {
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(path, kMaxFaultBytes, "");
  if (!database.ok()) return database.status();
  const absl::StatusOr<StoreImage> image = (*database)->TakeOver();
  if (!image.ok()) return image.status();
  if (path == path_ && image->epoch <= epoch_) return Wrong("an epoch was given twice");
  const ScriptedPool pool = PoolOfRows(image->rows);
  bool known = false;
  for (const State& state : states) {
    known = known || (state.revision == image->revision && state.pool == pool);
  }
  if (!known) {
    return Wrong(absl::StrCat(path, " holds revision ", image->revision, " where ",
                              states[0].revision, " to ", states.back().revision,
                              " may be, or other records"));
  }
  const StoreBatch next = ScriptedBatch(image->epoch, image->revision + 1, kScript);
  return (*database)->Commit(next);
}

}  // namespace cxlpool::fm
