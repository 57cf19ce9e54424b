// The changes that crash trials make: each follows from its revision alone, so that a checker knows
// what a store at any revision must hold.
#ifndef CXLPOOL_TEST_STORE_COMMIT_SCRIPT_H_
#define CXLPOOL_TEST_STORE_COMMIT_SCRIPT_H_

#include <cstdint>
#include <map>
#include <random>
#include <string>

#include "fabric-manager/ports/store.h"

namespace cxlpool::fm {

using ScriptedPool = std::map<uint64_t, std::string>;  // Values by key.

// The change that makes `revision` out of the one before it: puts of new and old keys, erases.
// Values are as large as a Region's record is, now and then as one with many Attachments.
inline StoreBatch ScriptedBatch(uint64_t epoch, uint64_t revision, uint64_t script = 0) {
  std::minstd_rand random(static_cast<uint32_t>((revision + script * 1000003) * 2654435761u + 1));
  StoreBatch batch{epoch, revision - 1, revision, {}, {}};
  const auto value = [&] {
    const size_t size = random() % 32 == 0 ? random() % 9000 : 20 + random() % 600;
    return std::string(size, static_cast<char>(random()));
  };
  batch.puts.push_back({revision, value()});
  // Now and then many at once, as the Writer's groups are.
  for (unsigned i = random() % 12 == 0 ? 30 : random() % 4; i > 0; --i)
    batch.puts.push_back({1 + random() % revision, value()});
  for (unsigned i = random() % 3; i > 0; --i) batch.erases.push_back(1 + random() % revision);
  return batch;
}

inline void ApplyBatch(const StoreBatch& batch, ScriptedPool& pool) {
  for (const Row& row : batch.puts) pool[row.key] = row.value;
  for (const uint64_t key : batch.erases) pool.erase(key);
}

inline ScriptedPool ScriptedRows(uint64_t revision) {
  ScriptedPool pool;
  for (uint64_t r = 1; r <= revision; ++r) ApplyBatch(ScriptedBatch(0, r), pool);
  return pool;
}

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_STORE_COMMIT_SCRIPT_H_
