// Decodes everything that a store has, when a manager starts. With a million Regions this is what
// takes longest that can be done by several threads.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_RECORD_LOAD_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_RECORD_LOAD_H_

#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "fabric-manager/model/pool/pool_state.h"
#include "fabric-manager/ports/store.h"
#include "fabric-manager/service/record_codec.h"

namespace cxlpool::fm {

// All records but the pool's own, in the rows' order; that one is put into `meta`, where there is
// one. The first in order that is not sound is the error: DATA_LOSS/BAD_RECORD. As many threads
// take part as there are processors and rows for, and all have ended when it returns.
absl::StatusOr<Change> DecodeAll(std::vector<Row> rows, PoolMeta& meta);

// A thread that does `work`, to be joined. Nothing: so few records are not worth one, or the system
// gives none; the caller does the work itself then.
std::optional<std::thread> StartBeside(size_t records, const std::function<void()>& work);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_RECORD_LOAD_H_
