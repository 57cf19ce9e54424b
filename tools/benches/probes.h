// What the disk and SQLite alone can do, as peers: no server, no network.
#ifndef CXLPOOL_TOOLS_BENCHES_PROBES_H_
#define CXLPOOL_TOOLS_BENCHES_PROBES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/benches/rounds.h"

namespace cxlpool::bench {

// How long 8 KiB take to become durable: pwrite and fdatasync, one after another for `measured`, at
// rising offsets of a file of 8 MiB that has been written before, as a WAL in use is. p50 and p99.
absl::StatusOr<Sample> ProbeSync(const std::string& directory, absl::Duration measured);

// Rows a second that one writer inserts, each in a transaction of its own, with the manager's own
// settings (WAL, synchronous=FULL). `value`: what each row holds, beside its key and a checksum.
absl::StatusOr<Sample> ProbeSqlite(const std::string& directory, const std::string& value,
                                   absl::Duration measured);

// Reads a manager's database as plainly as it can be read: every byte, every checksum, and nothing
// made of them.
struct StoreContents {
  uint64_t records = 0;
  uint64_t bytes = 0;  // Of all values.
  std::string newest;  // Value of the record with the greatest key.
};

// The database at `path`, which nobody has open. DATA_LOSS: a checksum does not fit.
absl::StatusOr<StoreContents> ReadStore(const std::string& path);

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_PROBES_H_
