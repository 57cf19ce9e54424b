// Every word of the manager's Offer is taken by the agent, and passed to applications.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "host-agent/service/local_service.h"
#include "test/rigs/core_rig.h"
#include "test/rigs/each_field_fixture.h"

namespace cxlpool::agent {
namespace {

using testing::ElementsAre;

v1::Offer FullOffer() {
  v1::Offer offer;
  FillAll(offer);
  offer.set_want(v1::Offer::WANT_ONLINE);
  offer.set_mode(v1::SYSTEM_RAM);
  offer.set_zone(v1::KERNEL);
  offer.mutable_segments(0)->set_interleave_granularity_bytes(512);
  offer.mutable_segments(0)->set_length_bytes(kTestLength);
  return offer;
}

// What the ladder is to bring about for it; nothing: the Offer is refused.
auto DesiredOf(const v1::Offer& offer) {
  AttachmentTable table;
  using Desired = std::tuple<uint64_t, std::string, uint32_t, Want, Mode, MemoryZone, std::string,
                             uint32_t, uint64_t, uint32_t, uint64_t>;
  if (!table.Put(offer).ok()) return std::optional<Desired>();
  const auto& [key, attachment] = *table.all().begin();
  if (attachment.segments.empty()) return std::optional<Desired>();
  const Segment& segment = attachment.segments.front();
  const auto& [want, mode, zone, bridge, targets, granularity, length, remakes] = segment.desired;
  return std::optional(Desired(key.generation, key.tag, segment.extent_index, want, mode, zone,
                               bridge, granularity, length, targets[0].slot, targets[0].serial));
}

TEST(OfferFieldsTest, EveryWordForTheLadderIsTaken) {
  const v1::Offer full = FullOffer();
  EXPECT_EQ(FieldsNotSet(full), std::vector<std::string>());
  ASSERT_TRUE(DesiredOf(full).has_value());
  // The others are for applications: below, LocalBorderTest, OwnersTest.
  EXPECT_THAT(FieldsThatAreDropped(full, DesiredOf),
              ElementsAre("region_name", "access", "sharing", "coherence", "tenant", "owner.uid",
                          "owner.pid", "owner.start_ticks", "owner.incarnation", "maker_uid",
                          "open_to.uids", "open_to.gids", "open_to.everybody", "request_id"));
  const v1::OfferedSegment& segment = full.segments(0);
  EXPECT_EQ(segment.want(), v1::Offer::WANT_OFFLINE) << "the segment's own goes before";
  EXPECT_EQ(*DesiredOf(full),
            std::tuple(full.attachment_generation(), full.region_tag(), segment.extent_index(),
                       Want::kOffline, Mode::kSystemRam, MemoryZone::kKernel, segment.host_bridge(),
                       512u, kTestLength, segment.targets(0).slot(), segment.targets(0).serial()));
}

// A manager of a later release may have other ways to let a host at memory.
TEST(OfferFieldsTest, AnAccessOrAZoneThatIsNotKnownHereIsNotBroughtOnline) {
  v1::Offer access = FullOffer();
  access.set_access(static_cast<v1::Access>(9));
  EXPECT_FALSE(DesiredOf(access).has_value());
  v1::Offer zone = FullOffer();
  zone.set_zone(static_cast<v1::MemoryZone>(9));
  EXPECT_FALSE(DesiredOf(zone).has_value());
  for (v1::Offer* offer : {&access, &zone}) {
    offer->set_want(v1::Offer::WANT_OFFLINE);
    EXPECT_TRUE(DesiredOf(*offer).has_value()) << "the host lets go of it all the same";
  }
}

// An application's view of two segments of one Region, in this mode.
struct Shown {
  explicit Shown(v1::AttachmentMode mode) {
    CoreRig rig;
    LocalPolicy policy;
    LocalService service(policy, rig.core.get(), &rig.executor, &rig.executor, &rig.memory,
                         &rig.link);
    rig.memory.plugged = {{1, 0x51}, {3, 0x53}};
    rig.memory.host.page_struct_spare_bytes = uint64_t{1} << 40;
    rig.Start();
    v1::Offer offer = MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, 0x51}, {3, 0x53}}, mode);
    offer.set_sharing(v1::EXCLUSIVE);
    offer.set_coherence(v1::HARDWARE);
    if (mode == v1::SYSTEM_RAM) offer.set_zone(v1::KERNEL);
    rig.Connect({offer});
    const LocalPeer maker = {.connection = 10, .uid = 1000, .pid = 4711, .start_ticks = 99};
    v1::LocalRequest request;
    request.set_protocol_version(kLocalProtocolVersion);
    request.mutable_open()->set_name("regions/r1");
    service.Handle(maker, request, [&](LocalReply reply) { open = reply.response.open(); });
    rig.executor.RunReady();
    request.mutable_list();
    service.Handle(maker, request, [&](LocalReply reply) { list = reply.response.list(); });
    rig.executor.RunReady();
  }

  v1::LocalOpenResponse open;
  v1::LocalListResponse list;
};

std::vector<std::string> InNeither(const google::protobuf::Message& a,
                                   const google::protobuf::Message& b) {
  std::vector<std::string> first = FieldsNotSet(a), second = FieldsNotSet(b), both;
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  std::set_intersection(first.begin(), first.end(), second.begin(), second.end(),
                        std::back_inserter(both));
  return both;
}

TEST(OfferFieldsTest, EveryWordOfAnOpenIsSaid) {
  const Shown devdax(v1::DEVDAX), system_ram(v1::SYSTEM_RAM);
  // Those of the first segment are 0: it is the first descriptor, at the Region's first byte. A
  // path is only for who asks for it (LocalServiceTest).
  EXPECT_THAT(InNeither(devdax.open, system_ram.open),
              ElementsAre("segments.fd_index", "segments.offset_bytes", "segments.path",
                          "segments.region_offset_bytes"));
  ASSERT_EQ(devdax.open.segments_size(), 2);
  EXPECT_EQ(devdax.open.segments(1).fd_index(), 1u);
  EXPECT_EQ(devdax.open.segments(1).region_offset_bytes(), kTestLength);
  EXPECT_EQ(devdax.open.segments(1).length_bytes(), kTestLength);
  EXPECT_EQ(devdax.open.segments(1).alignment_bytes(), uint64_t{2} << 20);
  EXPECT_EQ(devdax.open.size_bytes(), 2 * kTestLength);
  EXPECT_EQ(devdax.open.name(), "regions/r1");
  EXPECT_EQ(devdax.open.tag(), "tag-1");
  EXPECT_EQ(devdax.open.generation(), 1u);
  EXPECT_EQ(devdax.open.access(), v1::READ_WRITE);
  EXPECT_EQ(devdax.open.mode(), v1::DEVDAX);
  EXPECT_EQ(devdax.open.coherence(), v1::HARDWARE);
  EXPECT_EQ(system_ram.open.mode(), v1::SYSTEM_RAM);
}

TEST(OfferFieldsTest, EveryWordOfAListIsSaid) {
  const Shown devdax(v1::DEVDAX), system_ram(v1::SYSTEM_RAM);
  ASSERT_EQ(devdax.list.regions_size(), 1);
  ASSERT_EQ(system_ram.list.regions_size(), 1);
  const v1::LocalRegion& region = system_ram.list.regions(0);
  // All is well with it, the first segment is number 0, and this host has no addresses
  // (ReportsTest); who enforces an Attachment, and since when it is so, is the manager's to say.
  EXPECT_THAT(InNeither(devdax.list.regions(0), region),
              ElementsAre("attachment.detaching", "attachment.enforced_by",
                          "attachment.segments.extent_index", "attachment.segments.hpa_bytes",
                          "attachment.state_reason", "attachment.state_time.nanos",
                          "attachment.state_time.seconds"));
  EXPECT_EQ(region.name(), "regions/r1");
  EXPECT_EQ(region.tag(), "tag-1");
  EXPECT_EQ(region.size_bytes(), 2 * kTestLength);
  EXPECT_EQ(region.opens(), 1u);
  EXPECT_EQ(region.attachment().host(), "hosts/host-a");
  EXPECT_EQ(region.attachment().zone(), v1::KERNEL);
  EXPECT_EQ(region.attachment().mode(), v1::SYSTEM_RAM);
  EXPECT_EQ(region.attachment().access(), v1::READ_WRITE);
  EXPECT_EQ(region.attachment().coherence(), v1::HARDWARE);
  EXPECT_EQ(region.attachment().state(), v1::Attachment::ONLINE);
  EXPECT_EQ(region.attachment().generation(), 1u);
  EXPECT_EQ(region.attachment().segments_size(), 2);
}

}  // namespace
}  // namespace cxlpool::agent
