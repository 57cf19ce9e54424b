#include "fabric-manager/model/pool/region.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace cxlpool::fm {
namespace {

// Every edge, as "FROM>TO", of states 1 to `last`.
template <typename State>
std::set<std::string> Edges(State last) {
  std::set<std::string> edges;
  for (int from = 1; from <= static_cast<int>(last); ++from) {
    for (int to = 1; to <= static_cast<int>(last); ++to) {
      const auto f = static_cast<State>(from);
      const auto t = static_cast<State>(to);
      EXPECT_TRUE(from != to || MayFollow(f, t));
      if (from != to && MayFollow(f, t)) {
        edges.insert(std::string(ToString(f)) + ">" + std::string(ToString(t)));
      }
    }
  }
  return edges;
}

TEST(RegionTest, AttachmentsClimbThisLadderAndNoOther) {
  EXPECT_EQ(Edges(AttachmentState::kReleaseBlocked),
            (std::set<std::string>{"WANTED>BOUND", "WANTED>OFFLINE", "WANTED>UNBOUND",  //
                                   "BOUND>ONLINE", "BOUND>OFFLINE", "BOUND>RELEASE_BLOCKED",
                                   "BOUND>WANTED", "BOUND>UNBOUND", "ONLINE>OFFLINE",
                                   "ONLINE>RELEASE_BLOCKED", "ONLINE>BOUND", "ONLINE>WANTED",
                                   "ONLINE>UNBOUND",  //
                                   "RELEASE_BLOCKED>OFFLINE", "RELEASE_BLOCKED>UNBOUND",
                                   "OFFLINE>EJECTING", "OFFLINE>UNBOUND", "EJECTING>UNBOUND"}));
}

TEST(RegionTest, RegionsClimbThisLadderAndNoOther) {
  EXPECT_EQ(
      Edges(RegionState::kQuarantined),
      (std::set<std::string>{"RESERVED>ALLOCATED", "RESERVED>RELEASING", "RESERVED>FAILED",
                             "ALLOCATED>RELEASING", "RELEASING>SCRUBBING", "QUARANTINED>RELEASING",
                             "RESERVED>QUARANTINED", "ALLOCATED>QUARANTINED"}));
}

TEST(RegionTest, UnknownStatesHaveAName) {
  EXPECT_EQ(ToString(static_cast<RegionState>(0)), "UNKNOWN");
  EXPECT_EQ(ToString(static_cast<AttachmentState>(99)), "UNKNOWN");
  EXPECT_EQ(ToString(Sharing::kSingleWriter), "SINGLE_WRITER");
  EXPECT_EQ(ToString(Mode::kSystemRam), "SYSTEM_RAM");
  EXPECT_EQ(ToString(Access::kReadOnly), "READ_ONLY");
}

TEST(RegionTest, EtagChangesWithRevisionAndGeneration) {
  Region region;
  region.generation = 17;
  region.revision = 5;
  const std::string before = region.etag();
  EXPECT_EQ(region.etag(), before);
  region.revision = 6;
  EXPECT_NE(region.etag(), before);
  // The same name, used again.
  region.generation = 18;
  region.revision = 5;
  EXPECT_NE(region.etag(), before);
}

Attachment OfTwoParts(uint32_t first_of_second, size_t segments) {
  Attachment attachment;
  attachment.segments.resize(segments);
  for (uint32_t i = 0; i < segments; ++i) attachment.segments[i].extent_index = i;
  attachment.parts.push_back(
      {.first_segment = first_of_second, .state = AttachmentState::kBound, .reason = "grows"});
  return attachment;
}

TEST(AttachmentTest, EachSegmentIsOfOnePart) {
  const Attachment attachment = OfTwoParts(2, 3);
  EXPECT_EQ(attachment.EndOf(0), 2u);
  EXPECT_EQ(attachment.EndOf(1), 3u);
  EXPECT_EQ(&attachment.PartOf(1), &attachment.settled());
  EXPECT_EQ(&attachment.PartOf(2), &attachment.moving().front());
  EXPECT_TRUE(Attachment().moving().empty());
}

TEST(AttachmentTest, APartGoesWithItsSegments) {
  Attachment attachment = OfTwoParts(2, 3);
  attachment.Remove(0);
  ASSERT_EQ(attachment.parts.size(), 1u);
  EXPECT_EQ(attachment.settled(), (Part{.state = AttachmentState::kBound, .reason = "grows"}));
  ASSERT_EQ(attachment.segments.size(), 1u);
  EXPECT_EQ(attachment.segments.front().extent_index, 2u);
}

TEST(AttachmentTest, TurnedDownAllOfItGoesButWhatHasLeftAlready) {
  Attachment attachment = OfTwoParts(2, 3);
  attachment.TurnDown("detached", Uuid(std::string(16, 'd')));
  const decltype(attachment.parts) down = {{.detaching = true, .reason = "detached"}};
  EXPECT_EQ(attachment.parts, down);
  EXPECT_EQ(attachment.segments.size(), 3u);
  EXPECT_EQ(attachment.request_id, Uuid(std::string(16, 'd')));
  attachment = OfTwoParts(2, 3);
  attachment.parts[1].state = AttachmentState::kUnbound;
  attachment.TurnDown("detached", Uuid(std::string(16, 'd')));
  EXPECT_EQ(attachment.parts, down);
  EXPECT_EQ(attachment.segments.size(), 2u);
}

TEST(RegionTest, WhatHasChangedItsStateHasDoneSoNow) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  const absl::Time before = now - absl::Seconds(60);
  Region old;
  old.state = RegionState::kAllocated;
  old.state_since = before;
  old.attachments.resize(2);
  for (size_t i = 0; i < 2; ++i) {
    old.attachments[i].host = i == 0 ? "host-a" : "host-b";
    old.attachments[i].generation = i + 1;
    old.attachments[i].settled() = {.state = AttachmentState::kOnline, .since = before};
  }
  const auto times = [&](const Region& edited) {
    const RegionPtr timed = WithTimes(std::make_shared<const Region>(edited), &old, now);
    return std::vector<bool>{timed->state_since == now,
                             timed->attachments[0].settled().since == now,
                             timed->attachments[1].settled().since == now};
  };
  Region edited = old;
  edited.attachments[0].settled().reason = "another";
  EXPECT_EQ(times(edited), (std::vector<bool>{false, false, false}));
  edited.attachments[0].settled().detaching = true;
  EXPECT_EQ(times(edited), (std::vector<bool>{false, true, false}));
  edited.attachments[1].settled().state = AttachmentState::kReleaseBlocked;
  edited.state = RegionState::kReleasing;
  EXPECT_EQ(times(edited), (std::vector<bool>{true, true, true}));
  edited = old;
  edited.attachments[1].generation = 3;
  EXPECT_EQ(times(edited), (std::vector<bool>{false, false, true})) << "it is another Attachment";
  const RegionPtr as_it_is = std::make_shared<const Region>(old);
  EXPECT_EQ(WithTimes(as_it_is, &old, now), as_it_is) << "nothing is copied";
  EXPECT_EQ(WithTimes(as_it_is, nullptr, now)->attachments[1].settled().since, now);
}

TEST(RegionTest, SumsItsExtentsAndFindsItsAttachments) {
  Region region;
  region.extents = {{"a", 0, 3}, {"b", 10, 4}};
  EXPECT_EQ(region.size_bytes(), 7u);
  region.attachments.resize(2);
  region.attachments[1].host = "host-b";
  EXPECT_EQ(region.FindAttachment("host-b"), &region.attachments[1]);
  EXPECT_EQ(static_cast<const Region&>(region).FindAttachment("host-c"), nullptr);
}

}  // namespace
}  // namespace cxlpool::fm
