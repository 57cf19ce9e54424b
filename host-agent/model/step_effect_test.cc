#include "host-agent/model/step_effect.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "test/rigs/played_steps.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kBlock = 128 * kMiB;

// A host in any state that a kernel can show, and something that is wanted of it.
class AnyHost {
 public:
  explicit AnyHost(uint32_t seed) : random_(seed) {
    host.memory_block_bytes = OneIn(8) ? 0 : OneIn(8) ? 2048 * kMiB : kBlock;
    host.page_struct_spare_bytes = OneIn(4) ? 4 * kMiB : OneIn(2) ? 0 : 1024 * kMiB;
    host.own_nodes = {0};
    for (uint32_t b = 0; b < 1 + Below(2); ++b) {
      host.bridges.push_back({.name = absl::StrCat("ACPI0016:0", b),
                              .slots = {4 * b + 1, 4 * b + 2, 4 * b + 3, 4 * b + 4},
                              .max_regions = 1 + Below(4),
                              .window_bytes = 8192 * kMiB,
                              .free_window_bytes = (OneIn(8) ? 256 : 4096) * kMiB});
    }
    for (const ObservedBridge& bridge : host.bridges) {
      for (const uint32_t slot : bridge.slots) {
        if (!OneIn(3)) AddMemdev(slot, bridge.name);
      }
    }
    const uint32_t regions = Below(4);
    for (uint32_t i = 0; i < regions; ++i) AddRegion(i);
    for (ObservedBridge& bridge : host.bridges) {
      bridge.blocked = bridge.live_regions > 0 && OneIn(6);
    }
    Want();
  }

  HostObservation host;
  DesiredSegment desired;
  bool earlier_pending = false;

 private:
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool OneIn(uint32_t n) { return Below(n) == 0; }

  void AddMemdev(uint32_t slot, const std::string& bridge) {
    host.memdevs.push_back({.serial = OneIn(8) ? 0x90 + slot : 0x50 + slot,
                            .slot = slot,
                            .name = absl::StrCat("mem", slot),
                            .size_bytes = 512 * kMiB,
                            .host_bridge = bridge});
  }

  void AddRegion(uint32_t i) {
    ObservedHostRegion region;
    region.name = absl::StrCat("region", i);
    for (uint32_t n = 1 + Below(2); n > 0; --n) {
      const uint64_t serial = 0x51 + Below(8);
      if (FindHostRegion(host, serial) == nullptr) region.serials.push_back(serial);
      if (OneIn(8)) region.serials.push_back(0);
    }
    region.committed = !OneIn(4);
    region.hpa_bytes = (uint64_t{1} << 40) + i * 1024 * kMiB + (OneIn(8) ? 256 * kMiB : 0);
    region.size_bytes = (1 + Below(2)) * 512 * kMiB;
    if (region.committed && !OneIn(4)) {
      region.dax_device = absl::StrCat("dax", i, ".0");
      if (!OneIn(6)) region.numa_node = static_cast<int>(Below(3));
      region.dax_driver = static_cast<DaxDriver>(Below(3));
      if (region.dax_driver == DaxDriver::kKmem) {
        region.total_blocks = static_cast<uint32_t>(region.size_bytes / kBlock);
        region.online_blocks = OneIn(2) ? region.total_blocks : Below(region.total_blocks + 1);
        region.all_movable = region.online_blocks > 0 && !OneIn(4);
      }
    }
    for (ObservedBridge& bridge : host.bridges) {
      for (const uint64_t serial : region.serials) {
        const ObservedMemdev* memdev = serial == 0 ? nullptr : FindMemdev(host, serial);
        if (memdev == nullptr || memdev->host_bridge != bridge.name || !region.committed) continue;
        ++bridge.live_regions;
        break;
      }
    }
    host.regions.push_back(region);
  }

  void Want() {
    const uint32_t bridge = Below(static_cast<uint32_t>(host.bridges.size()));
    desired.want = static_cast<agent::Want>(Below(3));
    desired.mode = static_cast<Mode>(Below(2));
    desired.host_bridge = OneIn(8) ? "ACPI0016:07" : host.bridges[bridge].name;
    const uint32_t ways = 1 + Below(2);
    const uint32_t first = 4 * bridge + 1 + Below(3);
    for (uint32_t i = 0; i < ways; ++i) {
      desired.targets.push_back(
          {.slot = first + i, .serial = 0x50 + first + i, .powered_off = OneIn(4)});
    }
    desired.length_bytes = (1 + Below(2)) * 512 * kMiB;
    desired.failed_remakes = static_cast<int>(Below(kMaxRemakes + 1));
    earlier_pending = OneIn(6);
  }

  std::mt19937 random_;
};

bool IsAsWanted(const DesiredSegment& desired, const HostObservation& host) {
  const LadderState state = StateOf(desired, host);
  switch (desired.want) {
    case Want::kOnline:
      return state == LadderState::kOnline;
    case Want::kOffline:
      return HostRegionOf(desired, host) == nullptr;
    case Want::kEjected:
      return state == LadderState::kAbsent;
  }
  return false;
}

TEST(StepEffectTest, EveryPlanEndsWhereItShouldOrSaysWhyNot) {
  int rungs[static_cast<size_t>(Step::Kind::kPowerOff) + 1] = {};
  for (uint32_t seed = 1; seed <= 20'000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    AnyHost any(seed);
    DesiredSegment& desired = any.desired;
    const std::vector<Step> steps = PlanSteps(desired, any.host, any.earlier_pending);
    ASSERT_FALSE(steps.empty());
    ASSERT_LT(steps.size(), kMaxPlannedSteps);
    for (const Step& step : steps) {
      ++rungs[static_cast<size_t>(step.kind)];
      if (!step.is_rung()) {
        ASSERT_EQ(&step, &steps.back());
        break;
      }
      SCOPED_TRACE(StepName(step.kind));
      // What is so already is not done again; but nobody can see that a slot is off.
      if (step.kind != Step::Kind::kPowerOff) {
        ASSERT_FALSE(PostconditionHolds(step, desired, any.host));
      }
      ApplyStep(step, desired, any.host);
      ASSERT_TRUE(PostconditionHolds(step, desired, any.host));
      ASSERT_STRNE(PostconditionText(step.kind), "");
    }
    const Step& last = steps.back();
    ASSERT_FALSE(last.is_rung()) << "it never ends";
    if (last.kind == Step::Kind::kDone) {
      ASSERT_TRUE(IsAsWanted(desired, any.host));
    } else if (last.kind == Step::Kind::kRefuse) {
      ASSERT_FALSE(IsAsWanted(desired, any.host));
      ASSERT_FALSE(last.refusal.reason.empty());
      ASSERT_FALSE(last.refusal.message.empty());
      ASSERT_FALSE(last.refusal.remedy.empty());
    } else {
      ASSERT_TRUE(any.earlier_pending);
    }
  }
  for (size_t kind = 0; kind < std::size(rungs); ++kind) {
    EXPECT_GT(rungs[kind], 20) << StepName(static_cast<Step::Kind>(kind));
  }
}

// What a rung is to bring about is not there yet in the states below it.
TEST(StepEffectTest, APostconditionIsNotBelievedBeforeTheKernelShowsIt) {
  DesiredSegment desired;
  desired.mode = Mode::kSystemRam;
  desired.host_bridge = "ACPI0016:00";
  desired.targets = {{.slot = 1, .serial = 0x51}, {.slot = 2, .serial = 0x52}};
  desired.length_bytes = 1024 * kMiB;
  HostObservation host;
  host.bridges = {{.name = "ACPI0016:00",
                   .slots = {1, 2},
                   .max_regions = 4,
                   .window_bytes = 4096 * kMiB,
                   .free_window_bytes = 4096 * kMiB}};
  host.memory_block_bytes = kBlock;
  const std::vector<Step> up = PlanSteps(desired, host, false);
  ASSERT_EQ(up.size(), 6u);
  for (size_t done = 0; done + 1 < up.size(); ++done) {
    for (size_t i = 0; i + 1 < up.size(); ++i) {
      EXPECT_EQ(PostconditionHolds(up[i], desired, host), i < done)
          << StepName(up[i].kind) << " after " << done;
    }
    ApplyStep(up[done], desired, host);
  }
  // Half of it is not it.
  host.regions[0].online_blocks -= 1;
  EXPECT_FALSE(PostconditionHolds(up[4], desired, host));
  host.regions[0].online_blocks += 1;
  host.regions[0].all_movable = false;
  EXPECT_FALSE(PostconditionHolds(up[4], desired, host));
  host.regions[0].serials = {0x51};
  EXPECT_FALSE(PostconditionHolds(up[2], desired, host));
}

}  // namespace
}  // namespace cxlpool::agent
