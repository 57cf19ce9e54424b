#include "fabric-manager/service/record_load.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

namespace cxlpool::fm {
namespace {

// So many records are worth a thread that decodes them.
constexpr size_t kRecordsPerThread = 10'000;

// Decodes the rows from `from` on, up to, and without, `to`. None of them is the pool's own:
// DecodeRecord refuses that one under any other key, and no key comes twice.
absl::Status DecodeSome(std::vector<Row>& rows, size_t from, size_t to, Change& records) {
  for (size_t i = from; i < to; ++i) {
    auto record = DecodeRecord(rows[i].key, rows[i].value);
    if (!record.ok()) return record.status();
    if (!std::holds_alternative<Item>(*record)) {
      return absl::DataLossError("the pool's own record is not the first of the store");
    }
    std::string().swap(rows[i].value);  // A million of them are a lot of memory.
    records[i] = std::move(std::get<Item>(*record));
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<std::thread> StartBeside(size_t records, const std::function<void()>& work) {
  if (records < kRecordsPerThread) return std::nullopt;
  try {
    return std::thread(work);
  } catch (const std::system_error&) {
    return std::nullopt;
  }
}

absl::StatusOr<Change> DecodeAll(std::vector<Row> rows, PoolMeta& meta) {
  constexpr size_t kMaxThreads = 8;
  const size_t processors = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMaxThreads);
  const size_t parts = std::clamp<size_t>(rows.size() / kRecordsPerThread, 1, processors);
  const size_t first = !rows.empty() && rows.front().key == kPoolKey ? 1 : 0;
  if (first == 1) {
    const auto pool = DecodeRecord(kPoolKey, rows.front().value);
    if (!pool.ok()) return pool.status();
    if (const auto* own = std::get_if<PoolMeta>(&*pool)) {
      meta = *own;
    } else {
      return absl::DataLossError("the pool's own record is one of another kind");
    }
    rows.erase(rows.begin());
  }
  Change records(rows.size());
  std::vector<absl::Status> statuses(parts);
  std::vector<std::thread> threads;
  const auto decode = [&](size_t part) {
    statuses[part] =
        DecodeSome(rows, rows.size() * part / parts, rows.size() * (part + 1) / parts, records);
  };
  for (size_t part = 1; part < parts; ++part) {
    auto thread = StartBeside(rows.size(), [&decode, part] { decode(part); });
    if (thread.has_value()) {
      threads.push_back(*std::move(thread));
    } else {
      decode(part);
    }
  }
  decode(0);
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return records;
}

}  // namespace cxlpool::fm
