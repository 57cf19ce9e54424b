#include "fabric-manager/service/fabric_members.h"

#include <gtest/gtest.h>

#include "proto/support/refusal.h"
#include "test/rigs/recorded_region.h"

namespace cxlpool::fm {
namespace {

class FabricMembersTest : public RecordedRegionTest {
 protected:
  // Steps as the Reconciler does where something is to be bound: not before the life is durable.
  ActiveRegions stepping{&executor, &writer, [this](Key) {
                           ++steps;
                           if (members.LifeOf("host-a").empty()) members.RecordLife("host-a");
                         }};
  FabricMembers members{&writer, &stepping};
  int steps = 0;
};

// While the store is full each try costs a commit that fails, and takes the turn of what others
// want to know.
TEST_F(FabricMembersTest, AStoreThatTakesNothingIsAskedAgainByTheNextTick) {
  constexpr uint64_t kFaults = 3;
  for (uint64_t i = 0; i < kFaults; ++i) {
    store.FailNextCommit({.status = Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL",
                                           "there is no space", "make some")});
  }
  FabricView view;
  view.hosts.push_back({"host-a", true, "life-1", {1, 2}});
  members.TakeHosts("host-a", view);
  for (uint64_t tick = 1; tick <= kFaults; ++tick) {
    executor.Advance(absl::Seconds(1));
    EXPECT_EQ(writer.meters().commit_failures.value(), tick);
    EXPECT_TRUE(stepping.Contains(kRegion));
    EXPECT_EQ(members.LifeOf("host-a"), "");
    stepping.StepAll();
  }
  EXPECT_EQ(steps, static_cast<int>(kFaults));
  executor.Advance(absl::Seconds(1));
  EXPECT_EQ(members.LifeOf("host-a"), "life-1");
  EXPECT_EQ(steps, static_cast<int>(kFaults) + 1) << "at once: it waited for that";
}

}  // namespace
}  // namespace cxlpool::fm
