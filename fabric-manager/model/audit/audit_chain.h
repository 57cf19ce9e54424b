// The audit trail as a chain of rows: what was changed in the pool, by whom, and how one sees that
// nobody has altered the account of it.
//
// Each commit that changes something has one row, with an entry for each change. A row's hash is
// made of the hash before it, its number and its bytes as they are stored, so that whoever alters,
// takes out or swaps a row has to make every later one again. The pool's own record has the hash of
// the last row. Who rewrites that as well is found only by an anchor: a number and a hash that were
// kept elsewhere.
//
// Old rows are dropped from the first on. What is kept of them is the number and the hash of the
// last one dropped, which the first row that is left goes on from.
//
// Pure.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_AUDIT_AUDIT_CHAIN_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_AUDIT_AUDIT_CHAIN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/support/uuid.h"

namespace cxlpool::fm {

// One change, or several records that one request changed together; or a call that was refused for
// want of a right.
struct AuditEntry {
  absl::Time time;
  std::string who;        // Identity; "manager": by itself. Of a refused call, if it is known.
  std::string method;     // "AllocateRegion"; of the manager's own work the rung: "bound", "gone".
  std::string role = {};  // "ADMIN", "HOST"; empty: the manager, or not known.
  std::string peer = {};  // Where the call came from: "ipv4:10.0.0.7:5000".
  Uuid request_id = {};
  std::string outcome = {};  // Of a call that was refused: why, "ROLE_NOT_ALLOWED"; empty: done.
  std::string target = {};   // Resource name of the first record that it changed: "regions/kv".
  uint64_t more = 0;        // So many other records changed with it, or calls were refused as well.
  std::string tenant = {};  // Whose Region it was; empty: it was none.
  std::string reason = {};  // Why, if that was said.
  uint64_t revision = 0;    // Of the change; of a refusal: of the pool then.
  friend bool operator==(const AuditEntry&, const AuditEntry&) = default;
};

// The longest that a text of an entry may be, in bytes; what is longer is cut.
inline constexpr size_t kMaxAuditText = 256;

// A place in the chain.
struct AuditHead {
  uint64_t number = 0;    // Of a row, from 1 on; 0: there is none yet.
  std::string hash = {};  // kSha256Bytes; empty: there is none yet.
  friend bool operator==(const AuditHead&, const AuditHead&) = default;
};
// "17:e3b0c4...": as an operator keeps it. Empty: there is none yet.
std::string ToText(const AuditHead& head);
// INVALID_ARGUMENT/BAD_ANCHOR.
absl::StatusOr<AuditHead> ParseAuditHead(absl::string_view text);

// What the pool's own record says of the chain.
struct AuditBounds {
  AuditHead dropped;  // The last row that is not kept any more.
  AuditHead head;     // The last row of all.
  friend bool operator==(const AuditBounds&, const AuditBounds&) = default;
};

struct AuditRow {
  uint64_t key = 0;  // Of its record.
  AuditHead head;    // Its number, and the chain's hash up to here.
  std::string bytes;
};
using AuditRowPtr = std::shared_ptr<const AuditRow>;

// How much of the chain is kept: then rows are dropped, the oldest first.
struct AuditLimits {
  size_t max_rows = 100'000;
  size_t max_bytes = 32 << 20;
};

// The place of the row of these bytes behind `before`.
AuditHead NextHead(const AuditHead& before, absl::string_view bytes);

struct AuditFlaw {
  uint64_t number = 0;  // Of the row that it begins at.
  std::string what;
};
inline constexpr size_t kMaxAuditFlaws = 16;

// What is wrong with the rows, in the order of their keys, in words for people: altered rows,
// missing ones, rows that changed places, a chain that ends too early. At most kMaxAuditFlaws;
// empty: nothing is.
std::vector<AuditFlaw> VerifyChain(const AuditBounds& bounds, absl::Span<const AuditRowPtr> rows);

// Whether the chain still has `anchor`, a place that it had once; nothing: it has.
// FAILED_PRECONDITION/ANCHOR_TOO_OLD: that row was dropped.
absl::StatusOr<std::optional<AuditFlaw>> CheckAnchor(const AuditBounds& bounds,
                                                     absl::Span<const AuditRowPtr> rows,
                                                     const AuditHead& anchor);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_AUDIT_AUDIT_CHAIN_H_
