// Holds a pool against what its clients got as answers.
//
//   no byte has two owners; free + held + scrubbing + quarantined = capacity, counted by the
//   Regions themselves; quota is met; every acknowledged Region is there with its extents, its
//   name and its hosts, or on its way where its release was acknowledged; a call without an answer
//   was carried out wholly or not at all; nothing is there that nobody asked for; what was written
//   is still there, and new bytes are zero.
#ifndef CXLPOOL_TEST_CRASH_AUDIT_H_
#define CXLPOOL_TEST_CRASH_AUDIT_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "test/crash/client.h"
#include "test/crash/lane.h"
#include "test/crash/pool.h"

namespace cxlpool::crash {

using Lanes = std::vector<std::unique_ptr<Lane>>;

// The pool as it shows itself, as of one revision.
struct PoolSeen {
  v1::ListRegionsResponse regions;
  v1::Capacity capacity;
  v1::ListTenantsResponse tenants;
};

// UNAVAILABLE: the manager died meanwhile.
absl::StatusOr<PoolSeen> Look(Client& client);

// An error is a broken promise. Regions whose release was acknowledged and that are gone leave the
// ledgers.
absl::Status Audit(const Pool& pool, const PoolSeen& seen, const Lanes& lanes);

// Checks the bytes of acknowledged Regions, then marks those that are ONLINE somewhere.
// `seen` is from after the last change that a client asked for.
absl::Status AuditBytes(const Pool& pool, const PoolSeen& seen, const Lanes& lanes);

// No two Extents share a byte, and all are inside their device. Sums the held bytes up.
absl::StatusOr<uint64_t> CheckExtents(const v1::ListRegionsResponse& regions,
                                      const PoolLayout& layout);

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_AUDIT_H_
