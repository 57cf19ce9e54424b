#include "test/sim/sim_store.h"

#include <utility>

#include "fabric-manager/ports/store_guard.h"
#include "proto/support/refusal.h"

namespace cxlpool::sim {
namespace {

// No record begins with it: it would be a field of a number that there is not.
constexpr char kOnShelf = '\xff';

}  // namespace

std::string RecordShelf::Keep(const fm::Item& item) {
  records_.push_back(item);
  return kOnShelf + std::to_string(records_.size() - 1);
}

std::string RecordShelf::Encode(std::string value) const {
  if (value.empty() || value[0] != kOnShelf) return value;
  return fm::EncodeItem(records_.at(std::stoul(value.substr(1))));
}

SimStore::~SimStore() {
  if (!broken_.ok()) return;
  if (pending_.has_value() && random_.Below(2) == 1) disk_->Apply(pending_->batch).IgnoreError();
}

void SimStore::Open(Done, DoneWith<fm::StoreImage> done) {
  fm::StoreImage image = disk_->TakeOver();
  for (fm::Row& row : image.rows) row.value = shelf_->Encode(std::move(row.value));
  scheduler_->At(life_, random_.Between(100, 2000),
                 [image = std::move(image), done = std::move(done)]() mutable {
                   std::move(done)(std::move(image));
                 });
}

void SimStore::Commit(fm::StoreBatch batch, Done done) {
  if (!scheduler_->Alive(life_)) return;
  if (pending_.has_value()) return std::move(done)(fm::CommitOutstanding());
  pending_ = Pending{std::move(batch), std::move(done)};
  const bool slow = scheduler_->now_us() < faults_->slow_until_us;
  const int64_t latency = slow ? random_.Between(20'000, 200'000) : random_.Between(50, 600);
  scheduler_->At(life_, latency, [this] { ServeOne(); });
}

void SimStore::ServeOne() {
  Pending next = *std::exchange(pending_, std::nullopt);
  std::move(next.done)(Serve(next.batch));
}

absl::Status SimStore::Serve(const fm::StoreBatch& batch) {
  if (!broken_.ok()) return broken_;
  if (faults_->next != StoreFaults::Next::kNone) {
    const bool took_place =
        std::exchange(faults_->next, StoreFaults::Next::kNone) == StoreFaults::Next::kFailsDone;
    if (took_place) disk_->Apply(batch).IgnoreError();
    broken_ = Refuse(absl::StatusCode::kDataLoss, "STORE_IO", "the disk failed",
                     "nothing: it is a simulation");
    return broken_;
  }
  if (scheduler_->now_us() < faults_->full_until_us) {
    return Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL", "the disk is full",
                  "nothing: it is a simulation");
  }
  return disk_->Apply(batch);
}

void SimStore::Backup(std::string, DoneWith<fm::StoreBackup> done) {
  scheduler_->At(life_, 1, [done = std::move(done)]() mutable {
    std::move(done)(Refuse(absl::StatusCode::kUnimplemented, "NO_BACKUP", "nothing to copy",
                           "nothing: it is a simulation"));
  });
}

}  // namespace cxlpool::sim
