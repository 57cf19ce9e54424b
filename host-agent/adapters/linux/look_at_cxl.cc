#include "host-agent/adapters/linux/look_at_cxl.h"

#include "host-agent/adapters/linux/free_window.h"
#include "host-agent/adapters/linux/libcxl_snapshot.h"

namespace cxlpool::agent {

absl::StatusOr<CxlSnapshot> LookAtCxl(KnownTargets& known) {
  absl::StatusOr<CxlSnapshot> snapshot = ReadCxlSnapshot();
  if (!snapshot.ok()) return snapshot;
  known.Complete(*snapshot);
  CountHusks(*snapshot);
  return snapshot;
}

}  // namespace cxlpool::agent
