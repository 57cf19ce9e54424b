// Every word of what is asked for is in the Region that comes of it. A field that is added to a
// spec does not compile here until it is named, and tried.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "test/model/model_rig.h"

namespace cxlpool::fm {
namespace {

// A Region as a spec decides it: without what differs each time.
Region Decided(const Region& region) {
  Region decided = region;
  decided.requests.clear();
  for (Attachment& attachment : decided.attachments) {
    for (Segment& segment : attachment.segments) segment.serial = 0;
  }
  return decided;
}

class PlanFieldsTest : public testing::Test, protected ModelRig {
 protected:
  PlanFieldsTest() {
    AddPool();
    SetTenant("ml", 0);
    EXPECT_TRUE(Allocate(Allocation("other", kUnit)).ok());
  }

  // What a plan of it would make; nothing is kept. Ids begin again each time.
  Region Planned(const AllocateSpec& spec) {
    PlanContext own = Again();
    const auto plan = PlanAllocate(state(), spec, own);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? Decided(*plan->region) : Region();
  }
  Region Planned(const AttachSpec& spec) {
    PlanContext own = Again();
    const auto plan = PlanAttach(state(), spec, own);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? Decided(*plan->region) : Region();
  }

 private:
  PlanContext Again() {
    PlanContext own = context();
    own.next_id = [next = uint64_t{1000}]() mutable { return next++; };
    own.make_tag = [] { return Uuid(std::string(16, 't')); };
    return own;
  }
};

TEST_F(PlanFieldsTest, OfAnAllocationReachTheRegion) {
  using Edit = std::function<void(AllocateSpec&)>;
  AllocateSpec spec = Allocation("kv", 4 * kUnit, "host-a");
  spec.caller = Caller::Local("cxlpool://operator/local");  // Who may name users and processes.
  // `request` and `actor` say who asks: PlannerTest, HostBorderTest.
  [[maybe_unused]] const auto& [request, actor, region_id, tenant, size_bytes, sharing, host, mode,
                                zone, access, max_extents, device, policy, interleave_ways,
                                interleave_granularity_bytes, isolate_from, expected_lifetime, ttl,
                                owner, maker_uid, open_to, fabric_isolation] = spec;
  const Owner process{.uid = 1, .pid = 2, .start_ticks = 3, .incarnation = "boot-1"};
  const std::map<std::string, Edit> edits = {
      {"region_id", [](auto& s) { s.region_id = "kw"; }},
      {"tenant", [](auto& s) { s.tenant = "ml"; }},
      {"size_bytes", [](auto& s) { s.size_bytes = 5 * kUnit; }},
      {"sharing", [](auto& s) { s.sharing = Sharing::kMultiWriter; }},
      {"host", [](auto& s) { s.host = "host-b"; }},
      {"mode", [](auto& s) { s.mode = Mode::kSystemRam; }},
      {"zone", [](auto& s) { s.zone = Zone::kKernel; }},
      {"access", [](auto& s) { s.access = Access::kReadOnly; }},
      {"device", [](auto& s) { s.device = "cmm-1"; }},
      {"policy", [](auto& s) { s.policy = Policy::kLatency; }},
      {"expected_lifetime", [](auto& s) { s.expected_lifetime = absl::Hours(1); }},
      {"ttl", [](auto& s) { s.ttl = absl::Hours(1); }},
      {"owner", [&](auto& s) { s.owner = process; }},
      {"maker_uid", [](auto& s) { s.maker_uid = 0; }},
      {"open_to", [](auto& s) { s.open_to.uids = {0}; }},
      {"fabric_isolation", [](auto& s) { s.fabric_isolation = true; }},
  };
  const Region plain = Planned(spec);
  for (const auto& [field, edit] : edits) {
    AllocateSpec edited = spec;
    edit(edited);
    EXPECT_NE(Planned(edited), plain) << field;
  }
  // Those that count together with others.
  AllocateSpec wide = spec;
  wide.policy = Policy::kBandwidth;
  wide.interleave_ways = 2;
  const Region two_ways = Planned(wide);
  EXPECT_EQ(two_ways.interleave_ways, 2u);
  wide.interleave_granularity_bytes = 1024;
  EXPECT_EQ(Planned(wide).interleave_granularity_bytes, 1024u);
  AllocateSpec apart = spec;
  apart.policy = Policy::kIsolate;
  const std::string away = (*state().FindRegionById("other"))->extents[0].device.str();
  apart.isolate_from = {"other"};
  EXPECT_NE(Planned(apart).extents[0].device.str(), away);
  AllocateSpec parts = spec;
  parts.size_bytes = 6 * kGiB;
  parts.max_extents = 4;
  EXPECT_EQ(Planned(parts).extents.size(), 2u) << "of two devices with 4 GiB";

  // Each in its own place.
  AllocateSpec full = spec;
  for (const auto& [field, edit] : edits) {
    if (field != "sharing" && field != "access") edit(full);
  }
  const Region region = Planned(full);
  EXPECT_EQ(region.id, "kw");
  EXPECT_EQ(region.tenant.str(), "ml");
  EXPECT_EQ(region.requested_bytes, 5 * kUnit);
  EXPECT_EQ(region.policy, Policy::kLatency);
  EXPECT_EQ(region.extents[0].device.str(), "cmm-1");
  EXPECT_EQ(region.expected_lifetime, absl::Hours(1));
  EXPECT_EQ(region.ttl, absl::Hours(1));
  EXPECT_EQ(region.expire_time, context().now + absl::Hours(1));
  EXPECT_EQ(region.owner, process);
  EXPECT_EQ(region.maker, (Maker{"host-b", 0}));
  EXPECT_EQ(region.open_to.uids, std::vector<uint32_t>{0});
  EXPECT_TRUE(region.fabric_isolation);
  EXPECT_EQ(region.attachments[0].host, "host-b");
  EXPECT_EQ(region.attachments[0].mode, Mode::kSystemRam);
  EXPECT_EQ(region.attachments[0].zone, Zone::kKernel);
}

TEST_F(PlanFieldsTest, OfAnAttachReachTheAttachment) {
  AttachSpec spec{NewRequest("AttachRegion"), Caller::Admin("cxlpool://operator/alice"), "other",
                  "host-a"};
  // `request` and `caller` say who asks, `etag` is compared: PlannerTest.
  auto& [request, caller, region_id, host, mode, access, etag, zone] = spec;
  mode = Mode::kSystemRam;
  zone = Zone::kKernel;
  const Region region = Planned(spec);
  ASSERT_EQ(region.attachments.size(), 1u);
  EXPECT_EQ(region.id, "other");
  EXPECT_EQ(region.attachments[0].host, "host-a");
  EXPECT_EQ(region.attachments[0].mode, Mode::kSystemRam);
  EXPECT_EQ(region.attachments[0].zone, Zone::kKernel);
  mode = Mode::kDevdax;
  zone = Zone::kMovable;
  access = Access::kReadOnly;
  EXPECT_EQ(Planned(spec).attachments[0].access, Access::kReadOnly);
}

}  // namespace
}  // namespace cxlpool::fm
