// The ladder as tables: what is known, and the one move that follows.

#include "fabric-manager/model/ladder/ladder.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace cxlpool::fm {
namespace {

using enum AttachmentState;

HostSide HostFrom(char c) {
  switch (c) {
    case 'a':
      return HostSide::kAbsent;
    case 'p':
      return HostSide::kPresent;
    case 'r':
      return HostSide::kRegion;
    case 'o':
      return HostSide::kOnline;
    case 's':
      return HostSide::kStopping;
    default:
      return HostSide::kUnknown;
  }
}

FabricSide FabricFrom(char c) {
  switch (c) {
    case 'u':
      return FabricSide::kUnbound;
    case 'b':
      return FabricSide::kBound;
    case 'x':
      return FabricSide::kUnbinding;
    default:
      return FabricSide::kUnknown;
  }
}

// One segment a word of two letters: the host's side (a p r o s, ? unknown), the fabric's (u b,
// x unbinding, ? unknown).
std::vector<SegmentKnown> Known(absl::string_view text) {
  std::vector<SegmentKnown> known;
  for (absl::string_view word : absl::StrSplit(text, ' ')) {
    SegmentKnown segment;
    segment.host = HostFrom(word[0]);
    segment.fabric = FabricFrom(word[1]);
    known.push_back(segment);
  }
  return known;
}

std::string Text(const Move& move) {
  const std::string segments =
      move.segments.empty() ? "" : absl::StrCat(" ", absl::StrJoin(move.segments, ","));
  switch (move.kind) {
    case MoveKind::kNone:
      return "none";
    case MoveKind::kDiscover:
      return "discover";
    case MoveKind::kBind:
      return "bind" + segments;
    case MoveKind::kOfferOnline:
      return "offer-online";
    case MoveKind::kOfferOffline:
      return "offer-offline";
    case MoveKind::kBeginUnbind:
      return "begin-unbind" + segments;
    case MoveKind::kOfferEject:
      return "offer-eject";
    case MoveKind::kSetState:
      return absl::StrCat("-> ", std::string(ToString(move.state)));
    case MoveKind::kGiveUp:
      return "give-up";
    case MoveKind::kDrop:
      return "drop";
  }
  return "?";
}

Attachment Make(AttachmentState state, bool detaching, size_t segments,
                const std::string& reason = "") {
  Attachment attachment;
  attachment.host = "host-a";
  attachment.settled().state = state;
  attachment.settled().detaching = detaching;
  attachment.settled().reason = reason;
  attachment.segments.resize(segments);
  return attachment;
}

struct Row {
  const char* known;
  const char* move;
};

void ExpectMoves(AttachmentState state, bool detaching, const std::vector<Row>& rows,
                 const std::string& reason = "") {
  for (const Row& row : rows) {
    const auto known = Known(row.known);
    const Attachment attachment = Make(state, detaching, known.size(), reason);
    const Move move = NextMove(attachment, 0, known, true, false);
    EXPECT_EQ(Text(move), row.move)
        << ToString(state) << (detaching ? " detaching " : " ") << row.known;
    if (move.kind == MoveKind::kSetState) {
      EXPECT_TRUE(MayFollow(state, move.state)) << row.known;
      EXPECT_FALSE(move.state == state && move.reason == reason) << "no news: " << row.known;
    }
  }
}

TEST(LadderTest, WantedIsBoundSegmentBySegment) {
  ExpectMoves(kWanted, false,
              {{"??", "discover"},
               {"?u", "bind 0"},
               {"au", "bind 0"},
               {"?b", "-> BOUND"},
               {"?b ?b", "-> BOUND"},
               {"?u ?u ?u", "bind 0,1,2"},
               {"?b ?u ?b", "bind 1"},
               {"?b ??", "discover"},
               {"?x", "give-up"}});
}

// In a repair: the host went ahead with what was there.
TEST(LadderTest, WantedBindsNothingUnderAHostRegion) {
  ExpectMoves(kWanted, false,
              {{"au rb", "offer-offline"},
               {"ou ob", "offer-offline"},
               {"su sb", "offer-offline"},
               {"au pb", "bind 0"},
               {"ob ob", "-> BOUND"}});
  EXPECT_EQ(Text(NextMove(Make(kWanted, false, 2), 0, Known("au ob"), false, false)), "none");
}

TEST(LadderTest, BoundIsBroughtOnline) {
  ExpectMoves(kBound, false,
              {{"?b", "offer-online"},
               {"ab", "offer-online"},
               {"pb", "offer-online"},
               {"rb", "offer-online"},
               {"sb", "offer-online"},
               {"ob pb", "offer-online"},
               {"ob ob", "-> ONLINE"},
               {"o?", "-> ONLINE"},  // The host has seen its serial: it is bound.
               {"p?", "discover"},
               {"ab ox", "give-up"}});
}

TEST(LadderTest, BoundThatTheFabricLostIsClearedAwayAsAWholeAndWantedAgain) {
  ExpectMoves(kBound, false,
              {{"?u", "-> WANTED"},
               {"au", "-> WANTED"},
               {"pu", "-> WANTED"},
               {"ru", "offer-offline"},
               {"ou", "offer-offline"},
               {"su", "offer-offline"},
               {"ob au", "offer-offline"},
               {"pb au", "begin-unbind 0"},
               {"?b au", "none"},
               {"px au", "offer-eject"},
               {"au au", "-> WANTED"}});
  EXPECT_EQ(NextMove(Make(kBound, false, 1, "LD_LOST: x"), 0, Known("au"), true, false).reason,
            "LD_LOST: x");
}

TEST(LadderTest, ARepairThatWaitsForAProofStaysOne) {
  const std::string unproven = "UNBIND_NOT_PROVEN: it holds on";
  for (const std::string name : {"LD_LOST: ", "HOST_RESTARTED: "}) {
    Attachment attachment = Make(kBound, false, 1, name + "x");
    const std::string why = WhyUnproven(attachment.settled(), unproven);
    EXPECT_TRUE(absl::StartsWith(why, name) && absl::EndsWith(why, unproven)) << why;
    attachment.settled().reason = why;
    EXPECT_EQ(Text(NextMove(attachment, 0, Known("px"), true, true)), "offer-eject");
    EXPECT_EQ(WhyUnproven(attachment.settled(), unproven), why) << "no news";
    const Move again = NextMove(attachment, 0, Known("au"), true, true);
    EXPECT_EQ(Text(again), "-> WANTED");
    EXPECT_TRUE(absl::StartsWith(again.reason, name)) << again.reason;
    EXPECT_FALSE(absl::EndsWith(again.reason, unproven)) << "it is proven now: " << again.reason;
  }
  for (const std::string reason : {"detached", "LD_LOST: x"}) {
    EXPECT_EQ(WhyUnproven(Make(kEjecting, true, 1, reason).settled(), unproven), unproven);
  }
}

TEST(LadderTest, OnlineStays) {
  ExpectMoves(kOnline, false,
              {{"ob", "offer-online"},
               {"ob ob", "offer-online"},
               {"o?", "offer-online"},
               {"?b", "none"},  // The agent is away: nothing follows from that.
               {"??", "none"},
               {"?b ab", "none"}});
}

TEST(LadderTest, OnlineIsBroughtOnlineAgainAfterAReboot) {
  ExpectMoves(kOnline, false,
              {{"ab", "-> BOUND"},
               {"pb", "-> BOUND"},
               {"rb", "-> BOUND"},
               {"ob ab", "-> BOUND"},
               {"a?", "discover"}});
}

TEST(LadderTest, OnlineThatTheFabricLostIsReportedThenTakenDownThenWantedAgain) {
  ExpectMoves(kOnline, false,
              {{"au", "-> WANTED"},
               {"pu", "-> WANTED"},
               {"ou", "-> ONLINE"},  // Reported first.
               {"?u", "-> ONLINE"},
               {"ou ob", "-> ONLINE"},
               {"ax", "-> ONLINE"}});
  ExpectMoves(kOnline, false,
              {{"ou", "offer-offline"},
               {"su", "offer-offline"},
               {"?u", "none"},  // Only its agent can say what is left.
               {"au", "-> WANTED"},
               {"au ob", "offer-offline"},
               {"au pb", "begin-unbind 1"},
               {"au ?b", "none"},
               {"au px", "offer-eject"},
               {"au p?", "discover"},
               {"au au", "-> WANTED"},
               {"ob", "-> ONLINE"}},  // A false alarm: the reason goes.
              "LD_LOST: gone");
}

TEST(LadderTest, DownFromWanted) {
  ExpectMoves(kWanted, true,
              {{"?u", "-> UNBOUND"},
               {"au au", "-> UNBOUND"},
               {"??", "discover"},
               {"a?", "-> OFFLINE"},
               {"ab", "-> OFFLINE"},
               {"pb au", "-> OFFLINE"},
               {"?b", "offer-offline"},
               {"ob", "offer-offline"}});
}

TEST(LadderTest, DownFromBoundOnlineAndBlocked) {
  for (const AttachmentState state : {kBound, kOnline, kReleaseBlocked}) {
    ExpectMoves(state, true,
                {{"ob", "offer-offline"},
                 {"rb", "offer-offline"},
                 {"sb", "offer-offline"},
                 {"ab ob", "offer-offline"},
                 {"o?", "offer-offline"},
                 {"?b", "offer-offline"},  // Stands for the next session.
                 {"??", "discover"},
                 {"pb", "-> OFFLINE"},
                 {"ab", "-> OFFLINE"},
                 {"ab pb", "-> OFFLINE"},
                 {"ax", "-> OFFLINE"},
                 {"p?", "-> OFFLINE"},
                 {"?u", "-> UNBOUND"},
                 {"au", "-> UNBOUND"},
                 {"ou", "offer-offline"},  // Left-overs are cleared up.
                 {"au pu", "-> UNBOUND"}});
  }
}

TEST(LadderTest, OfflineBeginsTheUnbind) {
  for (const bool detaching : {true, false}) {  // There is no way back from here.
    ExpectMoves(kOffline, detaching,
                {{"pb", "begin-unbind 0"},
                 {"?b", "begin-unbind 0"},
                 {"pb ax pb", "begin-unbind 0,2"},
                 {"px", "-> EJECTING"},
                 {"px au", "-> EJECTING"},
                 {"au", "-> UNBOUND"},
                 {"?u", "-> UNBOUND"},
                 {"p?", "discover"},
                 {"ob", "offer-offline"},  // Never under a host region.
                 {"rb", "offer-offline"}});
  }
}

TEST(LadderTest, EjectingAlternatesUntilTheProof) {
  ExpectMoves(kEjecting, true,
              {{"px", "offer-eject"},
               {"ax", "offer-eject"},  // The host's word is no proof.
               {"?x", "offer-eject"},
               {"px au", "offer-eject"},
               {"pb", "begin-unbind 0"},  // A restart forgot that it had begun.
               {"p?", "discover"},
               {"?u", "-> UNBOUND"},
               {"au au", "-> UNBOUND"}});
}

TEST(LadderTest, UnboundIsDropped) {
  ExpectMoves(kUnbound, true, {{"??", "drop"}, {"ob", "drop"}});
  ExpectMoves(kUnbound, false, {{"?u", "drop"}});
}

// LD_LOST stays what it is, and says what keeps it from being fixed.
TEST(LadderTest, ARepairThatTheHostCannotMakeNamesTheBlocker) {
  std::vector<SegmentKnown> known = Known("pb");
  known[0].host_error = "BRIDGE_BLOCKED: a region below a live one was freed";
  Attachment attachment = Make(kBound, false, 1, "LD_LOST: gone");
  const Move move = NextMove(attachment, 0, known, true, true);
  EXPECT_EQ(Text(move), "-> BOUND");
  EXPECT_EQ(move.reason,
            "LD_LOST: it is to be brought online again, but BRIDGE_BLOCKED: a region below a live "
            "one was freed");
  attachment.settled().reason = move.reason;
  EXPECT_EQ(Text(NextMove(attachment, 0, known, true, true)), "offer-online") << "once is enough";
  known[0].host = HostSide::kOnline;
  EXPECT_EQ(Text(NextMove(attachment, 0, known, true, true)), "-> ONLINE");
}

// The host may pull it again while it boots.
TEST(LadderTest, ARepairIsNotGivenUpForWhatIsPulledMeanwhile) {
  for (const char* reason : {"LD_LOST: x", "HOST_RESTARTED: x"}) {
    const auto move = [&](AttachmentState state, const char* known) {
      const auto k = Known(known);
      return Text(NextMove(Make(state, false, k.size(), reason), 0, k, true, false));
    };
    EXPECT_EQ(move(kBound, "px"), "offer-eject") << reason;
    EXPECT_EQ(move(kBound, "ox"), "offer-offline") << reason;
    EXPECT_EQ(move(kBound, "?x"), "none") << reason << ": only its agent can say what is left";
    EXPECT_EQ(move(kBound, "au"), "-> WANTED") << reason;
    EXPECT_EQ(move(kWanted, "?x"), "discover") << reason;
    EXPECT_EQ(move(kWanted, "ab ax"), "discover") << reason;
    EXPECT_EQ(move(kWanted, "ab au"), "bind 1") << reason;
  }
  EXPECT_EQ(Text(NextMove(Make(kBound, false, 1), 0, Known("px"), true, false)), "give-up")
      << "what never was online is";
}

TEST(LadderTest, MissingKnowledgeIsUnknown) {
  EXPECT_EQ(Text(NextMove(Make(kWanted, false, 2), 0, {}, true, false)), "discover");
  EXPECT_EQ(Text(NextMove(Make(kEjecting, true, 2), 0, Known("au"), true, false)), "discover");
}

TEST(LadderTest, NothingGoesDownWhileAnotherClimbsOnTheBridge) {
  for (const AttachmentState state : {kBound, kOnline, kReleaseBlocked}) {
    const auto move = [&](const char* known) {
      const auto k = Known(known);
      return Text(NextMove(Make(state, true, k.size()), 0, k, false, false));
    };
    EXPECT_EQ(move("ob"), "none");
    EXPECT_EQ(move("?b"), "none");
    EXPECT_EQ(move("ou"), "none");
    EXPECT_EQ(move("pb"), "-> OFFLINE");  // Its decoder is free already.
    EXPECT_EQ(move("au"), "-> UNBOUND");
  }
  EXPECT_EQ(Text(NextMove(Make(kOnline, false, 1, "LD_LOST"), 0, Known("ou"), false, false)),
            "none");
  EXPECT_EQ(Text(NextMove(Make(kBound, false, 1), 0, Known("ru"), false, false)), "none");
}

TEST(LadderTest, TheWayUpHasADeadline) {
  const auto move = [](AttachmentState state, const char* known, const std::string& reason = "") {
    const auto k = Known(known);
    return NextMove(Make(state, false, k.size(), reason), 0, k, true, true);
  };
  for (const char* known : {"??", "?u", "?b ?u"}) EXPECT_EQ(Text(move(kWanted, known)), "give-up");
  for (const char* known : {"?b", "pb", "p?", "au"})
    EXPECT_EQ(Text(move(kBound, known)), "give-up");
  // Reached all the same.
  EXPECT_EQ(Text(move(kWanted, "?b")), "-> BOUND");
  EXPECT_EQ(Text(move(kBound, "ob")), "-> ONLINE");
  // What was online before is not taken away because its host boots slowly.
  EXPECT_EQ(Text(move(kWanted, "?u", "LD_LOST: x")), "bind 0");
  EXPECT_EQ(Text(move(kBound, "?b", "HOST_RESTARTED: x")), "offer-online");
  EXPECT_EQ(Text(move(kOnline, "?b")), "none");

  auto known = Known("pb");
  known[0].host_error = "MEMDEV_TIMEOUT: nothing in slot 3";
  const Move give_up = NextMove(Make(kBound, false, 1), 0, known, true, true);
  EXPECT_EQ(give_up.reason,
            "ATTACH_TIMEOUT: it was not online in time; last error: MEMDEV_TIMEOUT: nothing in "
            "slot 3");
}

TEST(LadderTest, PermanentErrorsTurnTheWayUpRound) {
  auto known = Known("?b ?u");
  known[1].fabric_error = "NO_FREE_PORT: slot 3";
  EXPECT_EQ(Text(NextMove(Make(kWanted, false, 2), 0, known, true, false)), "bind 1");
  known[1].fabric_error_permanent = true;
  Move move = NextMove(Make(kWanted, false, 2), 0, known, true, false);
  EXPECT_EQ(Text(move), "give-up");
  EXPECT_EQ(move.reason, "NO_FREE_PORT: slot 3");

  known = Known("rb");
  known[0].host_error = "REGION_COMMIT: out of order";
  EXPECT_EQ(Text(NextMove(Make(kBound, false, 1), 0, known, true, false)), "offer-online");
  known[0].host_error_permanent = true;
  move = NextMove(Make(kBound, false, 1), 0, known, true, false);
  EXPECT_EQ(Text(move), "give-up");
  EXPECT_EQ(move.reason, "REGION_COMMIT: out of order");
  // While it is detached the same error neither blocks nor stops it.
  EXPECT_EQ(Text(NextMove(Make(kBound, true, 1, move.reason), 0, known, true, false)),
            "offer-offline");
}

TEST(LadderTest, TheRepairsReasonStaysUntilOnline) {
  const std::string reason = "LD_LOST: x";
  EXPECT_EQ(NextMove(Make(kWanted, false, 1, reason), 0, Known("?b"), true, false).reason, reason);
  EXPECT_EQ(NextMove(Make(kBound, false, 1, reason), 0, Known("ob"), true, false).reason, "");
  EXPECT_EQ(NextMove(Make(kWanted, false, 1, "old"), 0, Known("?b"), true, false).reason, "");
}

TEST(LadderTest, AHostThatCannotLetGoIsReportedOncePerReason) {
  auto known = Known("ob");
  known[0].host_error = "HOLDERS: 12, 13";
  for (const AttachmentState state : {kBound, kOnline}) {
    const Move move = NextMove(Make(state, true, 1), 0, known, true, false);
    EXPECT_EQ(Text(move), "-> RELEASE_BLOCKED");
    EXPECT_EQ(move.reason, "HOLDERS: 12, 13");
  }
  EXPECT_EQ(
      Text(NextMove(Make(kReleaseBlocked, true, 1, "HOLDERS: 12, 13"), 0, known, true, false)),
      "offer-offline");
  EXPECT_EQ(Text(NextMove(Make(kReleaseBlocked, true, 1, "HOLDERS: 12"), 0, known, true, false)),
            "-> RELEASE_BLOCKED");
  // The last holder went: on, and the reason with it.
  const Move offline =
      NextMove(Make(kReleaseBlocked, true, 1, "HOLDERS: 12"), 0, Known("pb"), true, false);
  EXPECT_EQ(Text(offline), "-> OFFLINE");
  EXPECT_EQ(offline.reason, "");
}

TEST(LadderTest, AnyErrorOfTheWayDownBlocks) {
  auto known = Known("sb");
  known[0].host_error = "DESTROY: decoder busy";
  EXPECT_EQ(Text(NextMove(Make(kBound, true, 1), 0, known, true, false)), "-> RELEASE_BLOCKED");
  known = Known("ob");
  known[0].host_error = "DESTROY: decoder busy";
  EXPECT_EQ(Text(NextMove(Make(kOnline, true, 1), 0, known, true, false)), "-> RELEASE_BLOCKED");
}

// Also of one that was never reported online: nothing else begins so.
TEST(LadderTest, WhatCannotBeBroughtOfflineBlocks) {
  for (const char* error : {"BLOCKS_BUSY: dax0.0: block 35 (1 of 2) stays online in zone Normal",
                            "OFFLINE_STUCK: process 7 is stuck in the kernel"}) {
    auto known = Known("ob");
    known[0].host_error = error;
    const Move move = NextMove(Make(kBound, true, 1), 0, known, true, false);
    EXPECT_EQ(Text(move), "-> RELEASE_BLOCKED");
    EXPECT_EQ(move.reason, error);
  }
}

TEST(LadderTest, LeftOversThatTheHostCannotClearUpDoNotHoldTheProofBack) {
  auto known = Known("ou");
  known[0].host_error = "HOLDERS: 12";
  EXPECT_EQ(Text(NextMove(Make(kOnline, true, 1), 0, known, true, false)), "-> UNBOUND");
}

TEST(LadderTest, TheWayDownKeepsItsReason) {
  const std::string reason = "detached by request";
  for (const char* known : {"pb", "au"}) {
    EXPECT_EQ(NextMove(Make(kOnline, true, 1, reason), 0, Known(known), true, false).reason,
              reason);
  }
  EXPECT_EQ(NextMove(Make(kOffline, true, 1, reason), 0, Known("px"), true, false).reason, reason);
  EXPECT_EQ(NextMove(Make(kEjecting, true, 1, reason), 0, Known("au"), true, false).reason, reason);
}

// From every state and everything that can be known, the move is an edge of the ladder, never
// touches a segment out of range, and never unbinds under a host region.
TEST(LadderTest, EveryMoveIsLegalWhateverIsKnown) {
  const std::string hosts = "?apros";
  const std::string fabrics = "?ubx";
  int checked = 0;
  for (int s = 1; s <= static_cast<int>(kReleaseBlocked); ++s) {
    for (int bits = 0; bits < 32; ++bits) {
      for (size_t i = 0; i < 24 * 24; ++i) {
        const std::string text = {hosts[i % 6], fabrics[i / 6 % 4], ' ', hosts[i / 24 % 6],
                                  fabrics[i / 144]};
        auto known = Known(text);
        if (bits & 1) known[1].host_error = "HOLDERS: 1";
        if (bits & 2) known[0].host_error_permanent = true;
        const auto state = static_cast<AttachmentState>(s);
        const Attachment attachment = Make(state, bits & 4, 2, bits & 1 ? "LD_LOST: x" : "");
        const Move move = NextMove(attachment, 0, known, bits & 8, bits & 16);
        ++checked;
        const bool host_region = text.find_first_of("ros") != std::string::npos;
        if (move.kind == MoveKind::kSetState) {
          ASSERT_TRUE(MayFollow(state, move.state)) << text << " " << Text(move);
          ASSERT_FALSE(move.state == state && move.reason == attachment.settled().reason) << text;
          if (move.state == kUnbound) {
            ASSERT_EQ(text[1], 'u');
            ASSERT_EQ(text[4], 'u');
          }
          ASSERT_FALSE(move.state == kOffline && host_region) << text;
        }
        if (move.kind == MoveKind::kBeginUnbind) {
          ASSERT_FALSE(host_region && state != kEjecting) << text;
        }
        for (const uint32_t segment : move.segments) {
          ASSERT_LT(segment, 2u);
          const char fabric = text[segment * 3 + 1];
          ASSERT_EQ(fabric, move.kind == MoveKind::kBind ? 'u' : 'b') << text;
        }
        if (move.kind == MoveKind::kBind || move.kind == MoveKind::kOfferOnline) {
          ASSERT_FALSE(attachment.settled().detaching) << text;
        }
      }
    }
  }
  EXPECT_EQ(checked, 7 * 32 * 576);
}

// The Region.

std::string Text(const RegionMove& move) {
  switch (move.kind) {
    case RegionMoveKind::kNone:
      return "none";
    case RegionMoveKind::kSetState:
      return absl::StrCat("-> ", std::string(ToString(move.state)));
    case RegionMoveKind::kScrub:
      return absl::StrCat("scrub ", absl::StrJoin(move.extents, ","));
    case RegionMoveKind::kRemove:
      return "remove";
    case RegionMoveKind::kJoinTail:
      return "join tail";
    case RegionMoveKind::kTurnTail:
      return "turn tail";
    case RegionMoveKind::kDropTail:
      return "drop tail";
  }
  return "?";
}

Region MakeRegion(RegionState state, std::vector<Attachment> attachments) {
  Region region;
  region.state = state;
  region.extents.resize(3);
  region.attachments = std::move(attachments);
  return region;
}

TEST(LadderTest, AReservedRegionIsAllocatedWhenItsAttachmentIsOnline) {
  const auto move = [](std::vector<Attachment> attachments, bool compensating = false) {
    Region region = MakeRegion(RegionState::kReserved, std::move(attachments));
    region.compensating = compensating;
    return Text(NextRegionMove(region, {}));
  };
  EXPECT_EQ(move({Make(kWanted, false, 1)}), "none");
  EXPECT_EQ(move({Make(kBound, false, 1)}), "none");
  EXPECT_EQ(move({Make(kOnline, true, 1)}), "none");  // Detached meanwhile: the bytes stay,
  EXPECT_EQ(move({}), "-> ALLOCATED");                // with nobody attached.
  EXPECT_EQ(move({Make(kOnline, false, 1)}), "-> ALLOCATED");
  EXPECT_EQ(move({Make(kOnline, false, 1), Make(kBound, false, 1)}), "none");
  EXPECT_EQ(move({Make(kBound, true, 1)}, true), "-> FAILED");
  EXPECT_EQ(move({}, true), "-> FAILED");
}

TEST(LadderTest, AReleasedRegionIsScrubbedOnceNobodyIsAttached) {
  EXPECT_EQ(
      Text(NextRegionMove(MakeRegion(RegionState::kReleasing, {Make(kUnbound, true, 1)}), {})),
      "none");
  EXPECT_EQ(Text(NextRegionMove(MakeRegion(RegionState::kReleasing, {}), {})), "-> SCRUBBING");
}

TEST(LadderTest, ScrubbingGoesOnWithWhatIsNotScrubbed) {
  for (const RegionState state : {RegionState::kScrubbing, RegionState::kFailed}) {
    const Region region = MakeRegion(state, {});
    EXPECT_EQ(Text(NextRegionMove(region, {})), "scrub 0,1,2");
    EXPECT_EQ(Text(NextRegionMove(region, {1})), "scrub 0,2");
    EXPECT_EQ(Text(NextRegionMove(region, {0, 1, 2})), "remove");
    EXPECT_EQ(Text(NextRegionMove(MakeRegion(state, {Make(kEjecting, true, 1)}), {0, 1, 2})),
              "none");
  }
}

// For want of room, on the Region's only host.
void GiveUpAGrowth(Region& region) {
  region.tail_extents = 1;
  Attachment& attachment = region.attachments.front();
  attachment.parts.push_back({.first_segment = 2, .state = kBound});
  RecordMove(region, attachment.generation, 1,
             {.kind = MoveKind::kGiveUp, .segments = {}, .reason = "no room"});
}

TEST(LadderTest, AGrowthThatOneHostGivesUpIsTurnedRoundForAll) {
  Region region = MakeRegion(RegionState::kAllocated, {Make(kOnline, false, 3)});
  GiveUpAGrowth(region);
  EXPECT_TRUE(region.tail_leaving);
  EXPECT_TRUE(region.attachments.front().parts[1].detaching);
  EXPECT_FALSE(region.attachments.front().settled().detaching);
  EXPECT_EQ(region.state_reason, "RESIZE_FAILED: no room");
}

TEST(LadderTest, AGrowthThatIsGivenUpLeavesTheReasonOfAQuarantine) {
  Region region = MakeRegion(RegionState::kQuarantined, {Make(kOnline, false, 3)});
  region.state_reason = "DEVICE_FAILED: smoke; detach it everywhere";
  GiveUpAGrowth(region);
  EXPECT_TRUE(region.tail_leaving);
  EXPECT_EQ(region.attachments.front().parts[1].reason, "no room");
  EXPECT_EQ(region.state_reason, "DEVICE_FAILED: smoke; detach it everywhere");
}

TEST(LadderTest, AllocatedAndQuarantinedRegionsStay) {
  for (const RegionState state : {RegionState::kAllocated, RegionState::kQuarantined}) {
    EXPECT_EQ(Text(NextRegionMove(MakeRegion(state, {}), {0, 1, 2})), "none");
  }
}

}  // namespace
}  // namespace cxlpool::fm
