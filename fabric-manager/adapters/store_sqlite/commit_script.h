// The changes that the kill test's child makes: each follows from its revision alone, so that the
// parent knows what a store at any revision must hold.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_COMMIT_SCRIPT_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_COMMIT_SCRIPT_H_

#include <cstdint>
#include <map>
#include <random>
#include <string>

#include "fabric-manager/ports/store.h"

namespace cxlpool::fm {

// The change that makes `revision` out of the one before it: puts of new and old keys, erases.
inline StoreBatch ScriptedBatch(uint64_t epoch, uint64_t revision) {
  std::minstd_rand random(static_cast<uint32_t>(revision * 2654435761u + 1));
  StoreBatch batch{epoch, revision - 1, revision, {}, {}};
  const auto value = [&] { return std::string(20 + random() % 400, static_cast<char>(random())); };
  batch.puts.push_back({revision, value()});
  for (unsigned i = random() % 4; i > 0; --i)
    batch.puts.push_back({1 + random() % revision, value()});
  for (unsigned i = random() % 3; i > 0; --i) batch.erases.push_back(1 + random() % revision);
  return batch;
}

inline std::map<uint64_t, std::string> ScriptedRows(uint64_t revision) {
  std::map<uint64_t, std::string> rows;
  for (uint64_t r = 1; r <= revision; ++r) {
    const StoreBatch batch = ScriptedBatch(0, r);
    for (const Row& row : batch.puts) rows[row.key] = row.value;
    for (const uint64_t key : batch.erases) rows.erase(key);
  }
  return rows;
}

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_COMMIT_SCRIPT_H_
