#include "test/sim/sim_store.h"

#include <algorithm>
#include <utility>

#include "proto/support/refusal.h"

namespace cxlpool::sim {
namespace {

absl::Status Refuse(absl::StatusCode code, const std::string& reason, const std::string& message) {
  return Refusal{code, reason, message, "nothing: it is a simulation", {}}.ToStatus();
}

// No record begins with it: it would be a field of a number that there is not.
constexpr char kOnShelf = '\xff';

}  // namespace

std::string RecordShelf::Keep(const fm::Item& item) {
  records_.push_back(item);
  return kOnShelf + std::to_string(records_.size() - 1);
}

std::string RecordShelf::Encode(std::string value) const {
  if (value.empty() || value[0] != kOnShelf) return value;
  return fm::EncodeItem(records_.at(std::stoul(value.substr(1))), fm::Audit());
}

SimStore::~SimStore() {
  if (!broken_.ok()) return;
  const uint64_t kept = random_.Below(pending_.size() + 1);
  for (uint64_t i = 0; i < kept; ++i) disk_->Apply(pending_[i].batch).IgnoreError();
}

void SimStore::Open(DoneWith<fm::StoreImage> done) {
  fm::StoreImage image = disk_->TakeOver();
  for (fm::Row& row : image.rows) row.value = shelf_->Encode(std::move(row.value));
  scheduler_->At(life_, random_.Between(100, 2000),
                 [image = std::move(image), done = std::move(done)]() mutable {
                   std::move(done)(std::move(image));
                 });
}

void SimStore::Commit(fm::StoreBatch batch, Done done) {
  if (!scheduler_->Alive(life_)) return;
  pending_.push_back({std::move(batch), std::move(done)});
  const int64_t now = scheduler_->now_us();
  const bool slow = now < faults_->slow_until_us;
  const int64_t latency = slow ? random_.Between(20'000, 200'000) : random_.Between(50, 600);
  // One after the other.
  last_due_us_ = std::max(last_due_us_, now) + latency;
  scheduler_->At(life_, last_due_us_ - now, [this] { ServeOne(); });
}

void SimStore::ServeOne() {
  Pending next = std::move(pending_.front());
  pending_.pop_front();
  std::move(next.done)(Serve(next.batch));
}

absl::Status SimStore::Serve(const fm::StoreBatch& batch) {
  if (!broken_.ok()) return broken_;
  if (faults_->next != StoreFaults::Next::kNone) {
    const bool took_place =
        std::exchange(faults_->next, StoreFaults::Next::kNone) == StoreFaults::Next::kFailsDone;
    if (took_place) disk_->Apply(batch).IgnoreError();
    broken_ = Refuse(absl::StatusCode::kDataLoss, "STORE_IO", "the disk failed");
    return broken_;
  }
  if (scheduler_->now_us() < faults_->full_until_us) {
    const absl::Status full =
        Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL", "the disk is full");
    disk_->Refuse(batch, full);
    return full;
  }
  return disk_->Apply(batch);
}

void SimStore::Backup(std::string, DoneWith<fm::StoreBackup> done) {
  scheduler_->At(life_, 1, [done = std::move(done)]() mutable {
    std::move(done)(Refuse(absl::StatusCode::kUnimplemented, "NO_BACKUP", "nothing to copy"));
  });
}

}  // namespace cxlpool::sim
