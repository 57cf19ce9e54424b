#include "fabric-manager/service/offers.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <functional>

#include "proto/support/names.h"

namespace cxlpool::fm {
namespace {

constexpr OfferedWants kOnline{v1::Offer::WANT_ONLINE};

// Two extents on one host; the second one is the tail, if there is one.
Region TwoExtents() {
  Region region;
  region.tag = Uuid(std::string(16, 'a'));
  region.id = "kv";
  region.tenant = "default";
  region.extents = {{"cmm-0", 0, 256}, {"cmm-1", 0, 512}};
  Attachment attachment;
  attachment.host = "host-a";
  attachment.generation = 7;
  for (uint32_t i = 0; i < 2; ++i) {
    Segment segment;
    segment.extent_index = i;
    segment.slot = 10 + i;
    segment.host_bridge = "ACPI0016:00";
    segment.serial = kSerialBase | (100 + i);
    attachment.segments.push_back(segment);
  }
  region.attachments.push_back(attachment);
  return region;
}

OfferTerms Terms(const Region& region, const OfferedWants& wants = kOnline) {
  return TermsOf(region, region.attachments[0], wants);
}

std::string Bytes(const Region& region, const OfferedWants& wants = kOnline) {
  return MakeOffer(region.tag, 7, Terms(region, wants), true).SerializeAsString();
}

TEST(OffersTest, WhatTheHostReportsDoesNotChangeTheTerms) {
  const Region before = TwoExtents();
  Region after = before;
  after.revision = 9;
  after.attachments[0].settled().state = AttachmentState::kOnline;
  after.attachments[0].settled().reason = "LD_LOST";
  after.attachments[0].segments[0].dax_device = "dax0.0";
  after.attachments[0].segments[1].online_blocks = 4;
  EXPECT_EQ(Terms(before), Terms(after));
  EXPECT_EQ(Bytes(before), Bytes(after));
}

TEST(OffersTest, WhateverChangesTheOfferChangesTheTerms) {
  const Region before = TwoExtents();
  const std::vector<std::function<void(Region&, Attachment&)>> changes = {
      [](Region& r, Attachment&) { r.id = "kv-2"; },
      [](Region& r, Attachment&) { r.tenant = "ml"; },
      [](Region&, Attachment& a) { a.request_id = Uuid(std::string(16, 'q')); },
      [](Region& r, Attachment&) { r.sharing = Sharing::kMultiWriter; },
      [](Region& r, Attachment&) { r.extents[1].length_bytes = 768; },
      [](Region& r, Attachment&) {
        r.interleave_ways = 2;
        r.interleave_granularity_bytes = 256;
      },
      [](Region& r, Attachment&) { r.owner = Owner{.uid = 1, .incarnation = "b"}; },
      [](Region& r, Attachment&) {
        r.maker = Maker{"host-a", 0};
      },
      [](Region& r, Attachment&) { r.open_to.uids = {0}; },
      [](Region& r, Attachment&) { r.open_to.gids = {0}; },
      [](Region& r, Attachment&) { r.open_to.everybody = true; },
      [](Region&, Attachment& a) { a.mode = Mode::kSystemRam; },
      [](Region&, Attachment& a) { a.access = Access::kReadOnly; },
      [](Region&, Attachment& a) { a.segments[0].serial = kSerialBase | 200; },
      [](Region&, Attachment& a) { a.segments[0].slot = 12; },
      [](Region&, Attachment& a) { a.segments[0].host_bridge = "ACPI0016:01"; },
      [](Region&, Attachment& a) { a.segments.pop_back(); },
      [](Region&, Attachment& a) { a.parts.push_back({.first_segment = 1}); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    Region after = before;
    changes[i](after, after.attachments[0]);
    EXPECT_NE(Bytes(before), Bytes(after)) << "change " << i;
    EXPECT_NE(Terms(before), Terms(after)) << "change " << i;
  }
  const OfferedWants offline{v1::Offer::WANT_OFFLINE};
  EXPECT_NE(Terms(before), Terms(before, offline));
  EXPECT_NE(Bytes(before), Bytes(before, offline));
}

// A field that is added to Offer and forgotten by MakeOffer is found here.
TEST(OffersTest, EveryFieldOfAnOfferIsSet) {
  Region region = TwoExtents();
  region.owner = Owner{.uid = 1, .pid = 2, .start_ticks = 3, .incarnation = "boot-1"};
  region.maker = Maker{"host-a", 1};
  region.open_to.everybody = true;
  region.attachments[0].mode = Mode::kSystemRam;
  region.attachments[0].request_id = Uuid(std::string(16, 'q'));
  const v1::Offer offer = MakeOffer(region.tag, 7, Terms(region), true);
  const auto* type = v1::Offer::descriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const auto* field = type->field(i);
    const auto* reflection = offer.GetReflection();
    EXPECT_TRUE(field->is_repeated() ? reflection->FieldSize(offer, field) > 0
                                     : reflection->HasField(offer, field))
        << field->full_name() << ": carry it from Region to OfferTerms to Offer, and set it here";
  }
}

TEST(OffersTest, AnOfferSaysWhatTheRecordSays) {
  Region region = TwoExtents();
  region.sharing = Sharing::kSingleWriter;
  region.attachments[0].access = Access::kReadOnly;
  EXPECT_EQ(MakeOffer(region.tag, 7, Terms(region), false).request_id(), "") << "nobody's";
  region.attachments[0].request_id = Uuid(std::string(16, 'q'));
  v1::Offer offer = MakeOffer(region.tag, 7, Terms(region), false);
  EXPECT_EQ(offer.access(), v1::READ_ONLY);
  EXPECT_EQ(offer.sharing(), v1::SINGLE_WRITER);
  EXPECT_EQ(offer.coherence(), v1::SOFTWARE);
  EXPECT_EQ(offer.mode(), v1::DEVDAX);
  EXPECT_EQ(offer.region_name(), "regions/kv");
  EXPECT_EQ(offer.region_tag(), FormatUuid(region.tag.bytes()));
  EXPECT_EQ(offer.attachment_generation(), 7u);
  EXPECT_EQ(offer.tenant(), "tenants/default");
  EXPECT_EQ(offer.request_id(), FormatUuid(std::string(16, 'q')));
  ASSERT_EQ(offer.segments_size(), 2);
  EXPECT_EQ(offer.segments(1).extent_index(), 1u);
  EXPECT_EQ(offer.segments(1).length_bytes(), 512u);
  EXPECT_EQ(offer.segments(1).host_bridge(), "ACPI0016:00");
  EXPECT_EQ(offer.segments(1).targets(0).slot(), 11u);
  EXPECT_EQ(offer.segments(1).targets(0).serial(), kSerialBase | 101);
  region.attachments[0].mode = Mode::kSystemRam;
  region.attachments[0].zone = Zone::kKernel;
  offer = MakeOffer(region.tag, 7, Terms(region), true);
  EXPECT_EQ(offer.mode(), v1::SYSTEM_RAM);
  EXPECT_EQ(offer.zone(), v1::KERNEL);
  EXPECT_EQ(offer.coherence(), v1::HARDWARE);
}

TEST(OffersTest, UserIdsAreToldOnTheMakersHostAlone) {
  Region region = TwoExtents();
  region.maker = Maker{"host-b", 1000};
  region.open_to.uids = {1001};
  EXPECT_EQ(Terms(region).maker_uid, std::nullopt) << "host-a's 1000 is somebody else";
  EXPECT_TRUE(Terms(region).open_to.nobody());
  region.maker = Maker{"host-a", 1000};
  EXPECT_EQ(Terms(region).maker_uid, 1000u);
  EXPECT_EQ(Terms(region).open_to.uids, std::vector<uint32_t>{1001});
  region.maker.reset();  // An operator speaks for every host.
  EXPECT_EQ(Terms(region).open_to.uids, std::vector<uint32_t>{1001});
}

TEST(OffersTest, AnOwnerIsToldOnItsOwnHostAlone) {
  Region region = TwoExtents();
  region.sharing = Sharing::kMultiWriter;
  region.owner = Owner{.uid = 1000, .pid = 2, .start_ticks = 3, .incarnation = "boot-1"};
  region.maker = Maker{"host-b", 1000};
  EXPECT_EQ(Terms(region).owner, std::nullopt) << "host-a lives another boot: it would be dead";
  region.maker = Maker{"host-a", 1000};
  EXPECT_EQ(Terms(region).owner, region.owner);
}

TEST(OffersTest, ATailThatJoinsIsNotOfferedAnew) {
  const Region joined = TwoExtents();
  Region growing = joined;
  growing.attachments[0].parts.push_back({.first_segment = 1});
  const OfferedWants both{v1::Offer::WANT_ONLINE, v1::Offer::WANT_ONLINE};
  EXPECT_EQ(Terms(growing, both), Terms(joined));
  EXPECT_EQ(Bytes(growing, both), Bytes(joined));
}

TEST(OffersTest, EachStripeSetIsOneSegment) {
  Region region = TwoExtents();
  region.interleave_ways = 2;
  region.interleave_granularity_bytes = 256;
  const v1::Offer offer = MakeOffer(region.tag, 7, Terms(region), false);
  ASSERT_EQ(offer.segments_size(), 1);
  EXPECT_EQ(offer.segments(0).length_bytes(), 768u);
  EXPECT_EQ(offer.segments(0).targets_size(), 2);
  EXPECT_EQ(offer.segments(0).interleave_granularity_bytes(), 256u);
}

}  // namespace
}  // namespace cxlpool::fm
