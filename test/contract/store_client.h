// A Store whose completions are waited for, so that a test reads from top to bottom.
//
// One thread.
#ifndef CXLPOOL_TEST_CONTRACT_STORE_CLIENT_H_
#define CXLPOOL_TEST_CONTRACT_STORE_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fabric-manager/ports/store.h"

namespace cxlpool::fm {

// What a store holds, by key.
using StoreRows = std::map<uint64_t, std::string>;
inline StoreRows RowsOf(const StoreImage& image) {
  StoreRows rows;
  for (const Row& row : image.rows) rows[row.key] = row.value;
  return rows;
}

// As many bytes, which no compression makes fewer.
inline std::string Noise(size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  std::string bytes((size + sizeof(uint64_t) - 1) / sizeof(uint64_t) * sizeof(uint64_t), '\0');
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(&bytes[at], &word, sizeof(word));
  }
  bytes.resize(size);
  return bytes;
}

class StoreClient {
 public:
  explicit StoreClient(std::unique_ptr<Store> store) : store_(std::move(store)) {}

  absl::StatusOr<StoreImage> Open() {
    auto future = StartOpen();
    return WaitOpen(future);
  }

  std::future<absl::StatusOr<StoreImage>> StartOpen() {
    auto promise = std::make_shared<std::promise<absl::StatusOr<StoreImage>>>();
    auto future = promise->get_future();
    store_->Open(
        [lost = lost_](absl::Status why) { lost->set_value(std::move(why)); },
        [promise](absl::StatusOr<StoreImage> image) { promise->set_value(std::move(image)); });
    return future;
  }

  absl::StatusOr<StoreImage> WaitOpen(std::future<absl::StatusOr<StoreImage>>& future) {
    if (future.wait_for(kPatience) != std::future_status::ready) {
      return absl::DeadlineExceededError("Open has not completed");
    }
    absl::StatusOr<StoreImage> image = future.get();
    if (image.ok()) {
      epoch_ = image->epoch;
      revision_ = image->revision;
    }
    return image;
  }

  std::future<absl::Status> Start(StoreBatch batch) {
    auto promise = std::make_shared<std::promise<absl::Status>>();
    store_->Commit(std::move(batch),
                   [promise](absl::Status status) { promise->set_value(std::move(status)); });
    return promise->get_future();
  }

  std::future<absl::StatusOr<StoreBackup>> StartBackup(const std::string& path) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<StoreBackup>>>();
    store_->Backup(path, [promise](absl::StatusOr<StoreBackup> backup) {
      promise->set_value(std::move(backup));
    });
    return promise->get_future();
  }

  static absl::StatusOr<StoreBackup> WaitBackup(std::future<absl::StatusOr<StoreBackup>>& future) {
    if (future.wait_for(kPatience) != std::future_status::ready) {
      return absl::UnknownError("Backup has not completed");
    }
    return future.get();
  }

  absl::StatusOr<StoreBackup> Backup(const std::string& path) {
    auto future = StartBackup(path);
    return WaitBackup(future);
  }

  static absl::Status Wait(std::future<absl::Status>& future) {
    if (future.wait_for(kPatience) != std::future_status::ready) {
      return absl::DeadlineExceededError("Commit has not completed");
    }
    return future.get();
  }

  absl::Status Commit(StoreBatch batch) {
    auto future = Start(std::move(batch));
    return Wait(future);
  }

  // The next change in line.
  StoreBatch Next(std::vector<Row> puts, std::vector<uint64_t> erases = {}) {
    return {epoch_, revision_, revision_ + 1, std::move(puts), std::move(erases)};
  }

  absl::Status CommitNext(std::vector<Row> puts, std::vector<uint64_t> erases = {}) {
    absl::Status status = Commit(Next(std::move(puts), std::move(erases)));
    if (status.ok()) ++revision_;
    return status;
  }

  // What the store says once it has lost itself.
  absl::Status WaitLost() {
    auto future = lost_->get_future();
    return Wait(future);
  }

  Store& store() { return *store_; }
  uint64_t epoch() const { return epoch_; }
  uint64_t revision() const { return revision_; }

 private:
  // What was asked for before may have to be folded first, on a machine that is busy.
  static constexpr std::chrono::seconds kPatience{120};
  std::shared_ptr<std::promise<absl::Status>> lost_ =
      std::make_shared<std::promise<absl::Status>>();
  std::unique_ptr<Store> store_;
  uint64_t epoch_ = 0;
  uint64_t revision_ = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_CONTRACT_STORE_CLIENT_H_
