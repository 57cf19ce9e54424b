#include "host-agent/adapters/linux/look_at_cxl.h"

#include "host-agent/adapters/linux/free_window.h"
#include "host-agent/adapters/linux/sysfs_snapshot.h"

namespace cxlpool::agent {

CxlSnapshot LookAtCxl(const HostFiles& files, KnownTargets& known) {
  CxlSnapshot snapshot = ReadCxlSnapshot(files);
  known.Complete(snapshot);
  CountFree(snapshot);
  return snapshot;
}

}  // namespace cxlpool::agent
