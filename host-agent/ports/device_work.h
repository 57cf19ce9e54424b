// The agent's part as the fabric of shared devices (proto/cxlpool/v1/host_service.proto, "Shared
// devices"): what the manager asks of this host about devices that every host sees whole.
#ifndef CXLPOOL_HOST_AGENT_PORTS_DEVICE_WORK_H_
#define CXLPOOL_HOST_AGENT_PORTS_DEVICE_WORK_H_

#include "cxlpool/v1/host_service.pb.h"
#include "proto/support/executor.h"

namespace cxlpool::agent {

class DeviceWork {
 public:
  virtual ~DeviceWork() = default;

  // Does the task, in its turn, and answers with what DeviceAnswer.look is to hold (empty except
  // for a look). Refusals as the .proto says. RESOURCE_EXHAUSTED/TOO_MANY_TASKS. Does not block;
  // the completion comes from any thread.
  virtual void Do(v1::DeviceTask task, DoneWith<v1::DeviceLook> done) = 0;

  // A session has begun: that of the tasks so far is over. Those that have not begun are not done:
  // CANCELLED. One that has goes on, and whatever comes in the next session is done after it.
  virtual void EndSession() = 0;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_PORTS_DEVICE_WORK_H_
