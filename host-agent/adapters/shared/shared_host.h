// HostMemory and DeviceWork on devices that every host sees whole: DAX devices of exactly the
// ranges that this host was granted.
//
//   grant            the memdev of its serial is there, under the bridge kSharedBridge
//   CreateHostRegion carves the DAX device, and takes every line of it out of the caches
//   DestroyHostRegion writes back and invalidates every line, then takes the DAX device away
//   PowerOff         ends the grant; where the DAX device was removed by hand, it is flushed first
//
// Any number of grants, in any order: there is no decoder stack, and none blocks another. A flush
// that was cut off is done again from its beginning: until it is through the host region is not
// committed. DAX devices that are neither granted nor the agent's own are left alone and reported
// (DeviceLook.foreign).
//
// The first piece of each device, one alignment long, stays with the agent for as long as it runs:
// through it the mark is read and written. All rungs and tasks run on one thread, looking on a
// second.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_SHARED_SHARED_HOST_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_SHARED_SHARED_HOST_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "host-agent/ports/dax_space.h"
#include "host-agent/ports/device_work.h"
#include "host-agent/ports/host_memory.h"

namespace cxlpool::agent {

inline constexpr char kSharedBridge[] = "shared";

struct SharedHostOptions {
  std::string grants_path;  // Kept there for the next agent of this boot (grant_table.h).
  std::string boot_id;
  absl::Duration look_timeout = absl::Seconds(15);
  // Of a rung and of a task, and a second more for each GiB that it flushes or clears.
  absl::Duration rung_timeout = absl::Seconds(30);
  absl::Duration blocks_timeout = absl::Seconds(60);
  absl::Duration zero_patience = absl::Seconds(8);  // DeviceMark.was_zero is looked for so long.
  // For the kill tests: "carved" and "invalidated" are passed before and after the flush of a host
  // region that is being made, "written-back" after that of one that is taken down.
  std::function<void(absl::string_view point)> probe = {};
};

class SharedHostMemory : public HostMemory, public DeviceWork {
 public:
  // What the kernel reports is of a device. An event of granted bytes becomes one of that grant's
  // memdev, one of each where they are several grants'; any other stays as it is. Any thread;
  // quick.
  virtual void Place(std::vector<v1::HostEvent>& events) = 0;
};

std::unique_ptr<SharedHostMemory> MakeSharedHost(std::unique_ptr<DaxSpace> space,
                                                 SharedHostOptions options);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_SHARED_SHARED_HOST_H_
