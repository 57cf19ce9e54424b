// What an agent may say to the manager, which has its session and a Region on its host.

#include <memory>
#include <string>

#include "proto/support/log.h"
#include "test/fuzz/fuzz_target.h"
#include "test/rigs/service_rig.h"

namespace cxlpool::fuzz {
namespace {

// A serial below the number of those that are bound stands for one of them: no fuzzer would find
// their 64 bits.
uint64_t BoundSerial(const fm::World& world, uint64_t serial) {
  for (const auto& [bound, ld] : world.bound) {
    if (serial-- == 0) return bound;
  }
  return serial;
}

// Whatever it says, the pool's records stay sound, and nothing ends the manager.
CXLPOOL_FUZZ(agent_message) {
  v1::AgentMessage message;
  if (!message.ParseFromString(bytes)) return;
  SetLogLevel(LogLevel::kError);
  fm::World world;
  fm::ServiceRig rig(std::make_shared<fm::MemoryDisk>(), &world);
  Require(rig.Allocate(fm::AllocateOn("kv", "host-a", 1)).ok());
  rig.Run(absl::Milliseconds(200));
  const std::shared_ptr<fm::FakeAgent> agent = rig.agents["host-a"];
  message.set_session(agent->session());
  for (int i = 0; i < message.report().segments_size(); ++i) {
    v1::SegmentReport& segment = *message.mutable_report()->mutable_segments(i);
    segment.set_serial(BoundSerial(world, segment.serial()));
  }
  rig.sessions.OnMessage(agent.get(), message);
  rig.Run(absl::Milliseconds(200));
  // Its hello, in place of the former.
  if (message.has_hello()) {
    const auto other = std::make_shared<fm::FakeAgent>("host-a", &world);
    rig.sessions.OnHello(other, {"", true}, message.hello());
    rig.Run(absl::Milliseconds(200));
  }
  Require(rig.fatal.ok());
  Require(rig.writer.state().CheckInvariants().ok());
  rig.Kill();
}

}  // namespace
}  // namespace cxlpool::fuzz
