// DaxSpace on a real Linux host: devices that this host sees whole, and DAX devices of exact ranges
// of them.
//
// A device is a DAX region of the kernel (dax/dax_region.h), named as the kernel names it: region0,
// hmem.2. A memdev that lies in no host region yet is one too (mem0), unfit: Prepare makes a host
// region over all of it, and it has another name then.
//
// Needs root (CAP_SYS_ADMIN) and a kernel with DAX for its memory. Prepare says what is missing.
// Look and Open may be called from any thread, the rest from one.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LINUX_SPACE_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LINUX_SPACE_H_

#include <memory>
#include <string>
#include <vector>

#include "host-agent/adapters/linux/machine/host_files.h"
#include "host-agent/adapters/linux/machine/host_needs.h"
#include "host-agent/ports/dax_space.h"

namespace cxlpool::agent {

struct LinuxSpaceOptions {
  // Which devices there are for the pool, each by its name (region0, hmem.2), by the name of a
  // memdev that it lies on (mem0), or by the serial number of one (0x77); only the number stays the
  // same over boots. Empty: all. Others are neither shown nor touched.
  std::vector<std::string> devices = {};
  HostFiles files = HostFiles();  // Another root: for tests.
};

std::unique_ptr<DaxSpace> MakeLinuxSpace(LinuxSpaceOptions options);

// For `cxlpool-agent check`: the devices that there are for the pool, and what keeps any from it.
// kMissing: there are none. Goes with ExamineHost(files, HostUse::kWhole).
Finding ExamineWholeDevices(LinuxSpaceOptions options);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LINUX_SPACE_H_
