// One slice of a run: a fresh server, warmed up, measured under load, killed under load, and, if
// it is the manager, started again to see whether it kept its word.
#ifndef CXLPOOL_TOOLS_BENCHES_SLICE_H_
#define CXLPOOL_TOOLS_BENCHES_SLICE_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/benches/rounds.h"
#include "tools/benches/servers.h"
#include "tools/benches/survival.h"

namespace cxlpool::bench {

struct SliceOptions {
  std::string manager;    // Path of cxlpool-fm.
  std::string before;     // Of an earlier one; empty: there is none.
  std::string echo;       // Path of bench-echo.
  std::string etcd;       // Path of etcd.
  std::string directory;  // Empty; slices make their own below it, and remove them.
  absl::Duration warm_up = absl::Milliseconds(500);
  absl::Duration measured = absl::Seconds(1);
};

// How a server is driven.
struct Shape {
  int callers = 1;
  int connections = 1;
  int batch = 0;  // Items in a call; 0: calls of one.
};
inline constexpr Shape kUnary = {64, 4, 0};
inline constexpr Shape kBatched = {8, 4, 100};
inline constexpr Shape kAlone = {1, 1, 0};
inline constexpr Shape kEtcdPuts = {128, 4, 0};
inline constexpr Shape kEtcdTxns = {16, 4, 100};

// Runs slices and numbers them: no two use the same directory or request_ids. A sample's rate and
// CPU time are of items, its p50 and p99 of calls.
//
// Errors: any call that failed before the kill; a server that did not come up, with the end of its
// log; a caller that hung. That something was lost is no error here: survival() has it.
class SliceRunner {
 public:
  explicit SliceRunner(SliceOptions options) : options_(std::move(options)) {}

  // Asks a manager for one call of each shape and keeps the answers for the echo, and the record
  // that it made for the others. Call it first. `batched`: whether for Shapes with a batch, too.
  absl::Status Prepare(bool batched);

  absl::StatusOr<Sample> Manager(const Shape& shape);
  absl::StatusOr<Sample> ManagerBefore(const Shape& shape);
  absl::StatusOr<Sample> Echo(const Shape& shape);
  absl::StatusOr<Sample> Etcd(const Shape& shape);
  absl::StatusOr<Sample> Sqlite();
  absl::StatusOr<Sample> Sync();

  // Of everything that managers acknowledged so far, warming up included.
  const Survival& survival() const { return survival_; }
  int kills() const { return kills_; }

 private:
  absl::StatusOr<Sample> RunManager(const std::string& program, const Shape& shape);
  std::string NextDirectory();
  std::string AnswerFile(bool batch) const;

  const SliceOptions options_;
  int slices_ = 0;
  int kills_ = 0;
  std::string record_;
  Survival survival_;
};

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_SLICE_H_
