#include "fabric-manager/service/record_load.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <variant>

namespace cxlpool::fm {
namespace {

// So many records are worth a thread that decodes them.
constexpr size_t kRecordsPerThread = 10'000;

// Decodes the rows from `from` on, up to, and without, `to`. The pool's own goes to `meta`.
absl::Status DecodeSome(std::vector<Row>& rows, size_t from, size_t to, Change& records,
                        PoolMeta& meta) {
  for (size_t i = from; i < to; ++i) {
    auto record = DecodeRecord(rows[i].key, rows[i].value);
    if (!record.ok()) return record.status();
    std::string().swap(rows[i].value);  // A million of them are a lot of memory.
    if (const auto* pools = std::get_if<PoolMeta>(&*record)) {
      meta = *pools;
    } else {
      records[i] = std::move(std::get<Item>(*record));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Change> DecodeAll(std::vector<Row> rows, PoolMeta& meta) {
  constexpr size_t kMaxThreads = 8;
  const size_t processors = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMaxThreads);
  const size_t parts = std::clamp<size_t>(rows.size() / kRecordsPerThread, 1, processors);
  Change records(rows.size());
  std::vector<absl::Status> statuses(parts);
  std::vector<std::thread> threads;
  const auto decode = [&](size_t part) {
    statuses[part] = DecodeSome(rows, rows.size() * part / parts, rows.size() * (part + 1) / parts,
                                records, meta);
  };
  for (size_t part = 1; part < parts; ++part) threads.emplace_back(decode, part);
  decode(0);
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  // Its row comes first, where there is one (record_codec.h).
  if (!rows.empty() && rows.front().key == kPoolKey) records.erase(records.begin());
  return records;
}

}  // namespace cxlpool::fm
