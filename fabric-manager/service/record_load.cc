// Decoding everything that a store has.

#include <algorithm>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "fabric-manager/service/record_codec.h"
#include "proto/support/check.h"

namespace cxlpool::fm {
namespace {

// Decodes each row into the record at the same place, and empties the row: the values of a million
// rows are a lot of memory. Stops at the first that is not sound.
absl::Status DecodeEach(absl::Span<Row> rows, absl::Span<Item> records) {
  for (size_t i = 0; i < rows.size(); ++i) {
    auto record = DecodeRecord(rows[i].key, rows[i].value);
    if (!record.ok()) return record.status();
    Item* const item = std::get_if<Item>(&*record);
    CXLPOOL_CHECK(item != nullptr, "the store has the pool's own record twice");
    std::string().swap(rows[i].value);
    records[i] = std::move(*item);
  }
  return absl::OkStatus();
}

}  // namespace

// Each thread decodes as many rows, next to each other, as the others do. Where the system gives no
// more threads, std::async leaves the work to get(), and so to this thread.
absl::StatusOr<Change> DecodeAll(std::vector<Row> rows, PoolMeta& meta) {
  absl::Span<Row> left = absl::MakeSpan(rows);
  // Keys ascend, so the pool's own record is the first.
  if (!left.empty() && left.front().key == kPoolKey) {
    const auto record = DecodeRecord(kPoolKey, left.front().value);
    if (!record.ok()) return record.status();
    meta = std::get<PoolMeta>(*record);
    left.remove_prefix(1);
  }
  constexpr size_t kMaxThreads = 8;
  const size_t processors = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMaxThreads);
  const size_t parts = std::clamp<size_t>(left.size() / kRecordsPerThread, 1, processors);
  Change records(left.size());
  std::vector<std::future<absl::Status>> decoded;
  for (size_t part = 0; part < parts; ++part) {
    const size_t from = left.size() * part / parts;
    const size_t size = left.size() * (part + 1) / parts - from;
    const auto launch =
        part == 0 ? std::launch::deferred : std::launch::async | std::launch::deferred;
    decoded.push_back(std::async(launch, DecodeEach, left.subspan(from, size),
                                 absl::MakeSpan(records).subspan(from, size)));
  }
  absl::Status status;  // Of the first that is not sound.
  for (std::future<absl::Status>& part : decoded) status.Update(part.get());
  if (!status.ok()) return status;
  return records;
}

}  // namespace cxlpool::fm
