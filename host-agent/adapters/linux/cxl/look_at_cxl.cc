#include "host-agent/adapters/linux/cxl/look_at_cxl.h"

#include "host-agent/adapters/linux/cxl/free_window.h"
#include "host-agent/adapters/linux/cxl/sysfs_snapshot.h"

namespace cxlpool::agent {

CxlSnapshot LookAtCxl(Machine& machine) {
  CxlSnapshot snapshot = ReadCxlSnapshot(machine.files, machine.shapes);
  machine.known.Complete(snapshot);
  CountFree(snapshot);
  return snapshot;
}

}  // namespace cxlpool::agent
