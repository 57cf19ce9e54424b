// The fixture of tests of the manager's core: its lives, one after the other, on one disk and in
// one world.
#ifndef CXLPOOL_TEST_RIGS_SERVICE_FIXTURE_H_
#define CXLPOOL_TEST_RIGS_SERVICE_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "test/rigs/service_rig.h"

namespace cxlpool::fm {

class ServiceTest : public testing::Test {
 protected:
  // A manager's life ends, if there is one; `change` happens to the world; the next one begins.
  void Restart(const std::function<void()>& change = [] {}) {
    if (rig != nullptr) rig->Kill();
    rig.reset();
    change();
    rig = std::make_unique<ServiceRig>(disk, &world);
  }
  // Allocates, and waits until it is as it was asked for.
  void Make(const AllocateSpec& spec) {
    const auto made = rig->Allocate(spec);
    ASSERT_TRUE(made.ok()) << made.status();
    ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find(spec.region_id)); }));
  }
  absl::Status Release(const std::string& id, char request) {
    return rig->Call(&PoolService::Release, ReleaseOf(id, request)).status();
  }
  // The stream of the host's agent ends, and nobody dials again.
  void GoSilent(const std::string& host) {
    rig->sessions.OnClosed(rig->agents[host].get());
    rig->agents.erase(host);
  }
  void ExpectSound() {
    const absl::Status sound = rig->writer.state().CheckInvariants();
    EXPECT_TRUE(sound.ok()) << sound;
  }

  World world;
  std::shared_ptr<MemoryDisk> disk = std::make_shared<MemoryDisk>();
  std::unique_ptr<ServiceRig> rig;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_SERVICE_FIXTURE_H_
