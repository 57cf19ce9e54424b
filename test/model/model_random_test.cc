// Plans and moves in random order on a made-up world that keeps its own books: which bytes are
// dirty, what is plugged where, and every host bridge's decoder stack. A seed replays exactly.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "fabric-manager/model/ladder/ladder.h"
#include "fabric-manager/model/placement/placement.h"
#include "test/model/model_rig.h"

namespace cxlpool::fm {
namespace {

// One segment as it really is.
struct Plugged {
  std::string host;
  std::string bridge;
  uint32_t slot = 0;
  HostSide host_side = HostSide::kAbsent;
  FabricSide fabric = FabricSide::kUnbound;
  std::string host_error;
  bool permanent = false;
};

class World : protected ModelRig {
 public:
  // `calm`: nothing is unplugged or rebooted behind the manager's back.
  World(uint64_t seed, bool calm) : random_(seed), calm_(calm) {
    AddPool();
    for (const char* host : {"host-a", "host-b", "host-c"}) Report(host);
    for (const char* device : {"cmm-0", "cmm-1"}) dirty_[device].resize(4 * kGiB / kUnit);
  }

  void Run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFatalFailure(); ++i) {
      const int dice = Roll(100);
      if (dice < 18) {
        Ask();
      } else if (dice < 21) {
        Disturb();
      } else {
        StepAny();
      }
      Check();
    }
  }

  // Undisturbed, everything comes to rest; released, nothing is left.
  void Settle() {
    faults_ = false;
    away_.clear();
    for (auto& [serial, plugged] : plugged_) plugged.host_error.clear();
    RunUntilQuiet();
    for (const auto& [id, key] : RegionsById()) {
      const auto released = Release(id, true);
      ASSERT_TRUE(released.ok()) << released.status();
    }
    RunUntilQuiet();
    ASSERT_EQ(state().region_count(), 0u);
    ASSERT_EQ(state().GetCapacity().free_bytes, 8 * kGiB);
    for (const auto& [serial, plugged] : plugged_) {
      ASSERT_EQ(plugged.fabric, FabricSide::kUnbound);
    }
    for (const auto& [device, units] : dirty_) {
      ASSERT_EQ(std::count(units.begin(), units.end(), true), 0) << device;
    }
  }

  std::map<std::string, int> counts;  // What happened, for a void run to be seen.

 private:
  int Roll(int n) { return static_cast<int>(random_() % n); }
  bool OneIn(int n) { return Roll(n) == 0; }
  std::string AnyHost() { return std::string("host-") + static_cast<char>('a' + Roll(3)); }
  RegionPtr AnyRegion() {
    const auto all = RegionsById();
    if (all.empty()) return nullptr;
    auto it = all.begin();
    std::advance(it, Roll(static_cast<int>(all.size())));
    return *state().FindRegion(it->second);
  }

  // Sometimes the commit fails: then the inverse must leave no trace.
  void Write(const Change& change) {
    if (change.empty()) return;
    if (faults_ && OneIn(20)) {
      const Capacity before = state().GetCapacity();
      Commit(Commit(change));
      ASSERT_EQ(state().GetCapacity().free_bytes, before.free_bytes);
      ++counts["undone"];
      return;
    }
    Commit(change);
  }

  // A request by somebody.
  void Ask() {
    const RegionPtr region = AnyRegion();
    absl::StatusOr<Plan> plan = absl::InternalError("none");
    const int what = region == nullptr ? 0 : Roll(12);
    if (what < 4) {
      AllocateSpec spec =
          Allocation("", 1 + random_() % (kUnit * 5 / 4), OneIn(4) ? "" : AnyHost());
      spec.sharing = static_cast<Sharing>(1 + Roll(3));
      spec.mode = OneIn(4) ? Mode::kSystemRam : Mode::kDevdax;
      spec.max_extents = 1 + Roll(3);
      plan = PlanAllocate(state(), spec, context());
      if (plan.ok()) ExpectClean(*plan->region);
      if (plan.ok()) asked_.push_back(spec);
    } else if (what < 6) {
      plan = PlanAttach(state(),
                        {NewRequest("AttachRegion"), Caller::Admin("cxlpool://operator/alice"),
                         region->id, AnyHost(), Mode::kDevdax, static_cast<Access>(1 + Roll(2))},
                        context());
    } else if (what < 8) {
      plan = PlanDetach(state(),
                        {NewRequest("DetachRegion"), Caller::Admin("cxlpool://operator/alice"),
                         region->id, AnyHost()},
                        context());
    } else if (what < 9) {
      plan = PlanRelease(state(),
                         {NewRequest("ReleaseRegion"), Caller::Admin("cxlpool://operator/alice"),
                          region->id, OneIn(2), ""},
                         context());
    } else if (what < 11) {
      plan = PlanResize(
          state(),
          {NewRequest("ResizeRegion"), Caller::Admin("cxlpool://operator/alice"), region->id,
           OneIn(2) ? region->extents[0].length_bytes : 1 + random_() % (kUnit * 4),
           static_cast<uint32_t>(1 + Roll(2)), ""},
          nullptr, context());
      if (plan.ok()) ExpectClean(*plan->region, region->extents.size());
      if (plan.ok() && plan->region->extents.size() > region->extents.size()) ++counts["grown"];
      if (plan.ok() && plan->region->tail_leaving) ++counts["shrunk"];
    } else {
      Retry();
      return;
    }
    if (plan.ok()) {
      Write(plan->change);
      ++counts["planned"];
    } else {
      ASSERT_TRUE(RefusalOf(plan.status()).has_value()) << plan.status();
      ++counts[ReasonOf(plan.status())];
    }
  }

  // An old request again: the same Region, or (its commit had failed) as if new; never a second.
  void Retry() {
    if (asked_.empty()) return;
    const AllocateSpec& spec = asked_[Roll(static_cast<int>(asked_.size()))];
    const auto known = state().FindRequest(spec.request.id);
    const auto plan = PlanAllocate(state(), spec, context());
    if (!known.has_value()) return;
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->region->key, known->region->key);
    ASSERT_TRUE(plan->change.empty());
    ++counts["retried"];
  }

  void ExpectClean(const Region& region, size_t from = 0) {
    for (size_t i = from; i < region.extents.size(); ++i) {
      const Extent& extent = region.extents[i];
      for (uint64_t b = extent.dpa_bytes; b < extent.dpa_bytes + extent.length_bytes; b += kUnit) {
        ASSERT_FALSE(dirty_[extent.device][b / kUnit]) << region.id << " would get old bytes";
      }
    }
  }

  Plugged& At(const Segment& segment, const Attachment& attachment) {
    Plugged& plugged = plugged_[segment.serial];
    plugged.host = attachment.host;
    plugged.bridge = segment.host_bridge;
    plugged.slot = segment.slot;
    return plugged;
  }

  std::vector<SegmentKnown> Known(const Attachment& attachment) {
    std::vector<SegmentKnown> known;
    for (const Segment& segment : attachment.segments) {
      const Plugged& plugged = At(segment, attachment);
      SegmentKnown k;
      if (!away_.contains(attachment.host)) {
        k.host = plugged.host_side;
        k.host_error = plugged.host_error;
        k.host_error_permanent = plugged.permanent;
      }
      if (!faults_ || !OneIn(10)) k.fabric = plugged.fabric;
      known.push_back(k);
    }
    return known;
  }

  bool MayGoDown(const Attachment& attachment) {
    for (const OccupiedSlot& other : state().Occupied(attachment.host)) {
      if (!other.pending() || other.generation == attachment.generation) continue;
      for (const Segment& segment : attachment.segments) {
        if (segment.host_bridge == other.host_bridge) return false;
      }
    }
    return true;
  }

  void StepAny() {
    if (const RegionPtr region = AnyRegion()) Step(region);
  }

  // Does one move of the Region, if there is one.
  bool Step(const RegionPtr& region) {
    for (const Attachment& attachment : region->attachments) {
      const std::vector<SegmentKnown> known = Known(attachment);
      for (size_t part = attachment.parts.size(); part-- > 0;) {
        const bool late = faults_ && OneIn(50);
        const size_t first = attachment.parts[part].first_segment;
        const AttachmentState state = attachment.parts[part].state;
        const Move move = NextMove(attachment, part,
                                   {known.begin() + first, known.begin() + attachment.EndOf(part)},
                                   MayGoDown(attachment), late);
        if (move.kind == MoveKind::kNone || move.kind == MoveKind::kDiscover) continue;
        // What is online is to stay so.
        if (move.kind == MoveKind::kOfferOnline && state == AttachmentState::kOnline) continue;
        Do(region, attachment, part, move);
        return true;
      }
    }
    return StepRegion(region);
  }

  void Do(const RegionPtr& region, const Attachment& attachment, size_t part, const Move& move) {
    const size_t first = attachment.parts[part].first_segment;
    const size_t end = attachment.EndOf(part);
    auto edited = std::make_shared<Region>(*region);
    edited->revision = context().revision;
    switch (move.kind) {
      case MoveKind::kBind:
        for (const uint32_t i : move.segments) BindOne(*region, attachment, first + i);
        return;
      case MoveKind::kOfferOnline:
        for (size_t i = first; i < end; ++i) {
          Climb(At(attachment.segments[i], attachment), attachment.segments[i]);
        }
        return;
      case MoveKind::kOfferOffline:
      case MoveKind::kOfferEject:
        // The host frees decoders in reverse.
        for (size_t i = end; i-- > first;) {
          Descend(At(attachment.segments[i], attachment), attachment.segments[i],
                  move.kind == MoveKind::kOfferEject);
        }
        return;
      case MoveKind::kBeginUnbind:
        for (const uint32_t i : move.segments) {
          Plugged& plugged = At(attachment.segments[first + i], attachment);
          ASSERT_EQ(plugged.fabric, FabricSide::kBound);
          ASSERT_FALSE(calm_ && plugged.host_side >= HostSide::kRegion) << "pulled from under it";
          plugged.fabric = FabricSide::kUnbinding;
        }
        return;
      case MoveKind::kSetState: {
        ASSERT_TRUE(MayFollow(attachment.parts[part].state, move.state));
        Attachment& mine = *edited->FindAttachment(absl::string_view(attachment.host));
        for (size_t i = first; i < end; ++i) {
          Segment& segment = mine.segments[i];
          if (move.state == AttachmentState::kWanted) {
            segment.serial = kSerialBase | context().next_id();
            segment.hpa_bytes = 0;
          } else if (hpa_.contains(segment.serial)) {
            segment.hpa_bytes = hpa_[segment.serial];
          }
        }
        ++counts[std::string(ToString(move.state))];
        break;
      }
      case MoveKind::kGiveUp:
        ++counts[part > 0 ? "gave up growth" : "gave up"];
        break;
      case MoveKind::kDrop:
        break;
      default:
        return;
    }
    RecordMove(*edited, attachment.generation, part, move);
    Write({RegionPtr(edited)});
  }

  bool StepRegion(const RegionPtr& region) {
    absl::flat_hash_set<uint32_t>& scrubbed = scrubbed_[region->key];
    const RegionMove move = NextRegionMove(*region, scrubbed);
    auto edited = std::make_shared<Region>(*region);
    edited->revision = context().revision;
    switch (move.kind) {
      case RegionMoveKind::kNone:
        return false;
      case RegionMoveKind::kSetState:
        EXPECT_TRUE(MayFollow(region->state, move.state));
        edited->state = move.state;
        Write({RegionPtr(edited)});
        return true;
      case RegionMoveKind::kScrub:
        for (const uint32_t i : move.extents) {
          if (faults_ && OneIn(3)) continue;
          ScrubOne(*region, i);
          scrubbed.insert(i);
        }
        return true;
      case RegionMoveKind::kRemove:
        Write({Tombstone{edited, context().now}});
        ++counts["gone"];
        return true;
      case RegionMoveKind::kJoinTail:
      case RegionMoveKind::kTurnTail:
      case RegionMoveKind::kDropTail:
        EXPECT_TRUE(RecordTailMove(*edited, move.kind));
        if (move.kind == RegionMoveKind::kDropTail) scrubbed.clear();
        Write({RegionPtr(edited)});
        ++counts[move.kind == RegionMoveKind::kJoinTail ? "joined" : "tail left"];
        return true;
    }
    return false;
  }

  void BindOne(const Region& region, const Attachment& attachment, uint32_t i) {
    if (faults_ && OneIn(4)) return;
    const Segment& segment = attachment.segments[i];
    for (const auto& [serial, other] : plugged_) {
      ASSERT_FALSE(serial != segment.serial && other.fabric != FabricSide::kUnbound &&
                   other.host == attachment.host && other.slot == segment.slot)
          << "two in slot " << segment.slot;
    }
    At(segment, attachment).fabric = FabricSide::kBound;
    bytes_[segment.serial] = region.extents[segment.extent_index];
    const Extent& extent = region.extents[segment.extent_index];
    for (uint64_t b = extent.dpa_bytes; b < extent.dpa_bytes + extent.length_bytes; b += kUnit) {
      dirty_[extent.device][b / kUnit] = true;
    }
  }

  void ScrubOne(const Region& region, uint32_t i) {
    const Extent& extent = region.extents[i];
    for (const auto& [serial, plugged] : plugged_) {
      if (plugged.fabric == FabricSide::kUnbound) continue;
      const Extent& bound = bytes_[serial];
      ASSERT_FALSE(bound.device == extent.device &&
                   bound.dpa_bytes < extent.dpa_bytes + extent.length_bytes &&
                   extent.dpa_bytes < bound.dpa_bytes + bound.length_bytes)
          << region.id << " is scrubbed while " << plugged.host << " can reach it";
    }
    for (uint64_t b = extent.dpa_bytes; b < extent.dpa_bytes + extent.length_bytes; b += kUnit) {
      dirty_[extent.device][b / kUnit] = false;
    }
  }

  // The host brings one segment a rung up.
  void Climb(Plugged& plugged, const Segment& segment) {
    plugged.host_error.clear();
    if (away_.contains(plugged.host) || plugged.fabric != FabricSide::kBound) return;
    if (faults_ && OneIn(30)) {
      plugged.host_error = "MEMDEV_TIMEOUT: no memdev";
      plugged.permanent = OneIn(3);
      return;
    }
    switch (plugged.host_side) {
      case HostSide::kAbsent:
        plugged.host_side = HostSide::kPresent;
        break;
      case HostSide::kPresent: {
        auto& stack = stacks_[{plugged.host, plugged.bridge}];
        const bool hole =
            std::any_of(stack.begin(), stack.end(), [](uint64_t s) { return s == 0; });
        if (calm_) {
          ASSERT_FALSE(hole) << plugged.bridge << ": out of order";
          ASSERT_LT(stack.size(), 4u) << plugged.bridge << ": no decoder";
        }
        if (hole || stack.size() >= 4) {
          plugged.host_error = "REGION_COMMIT: out of order";
          plugged.permanent = true;
          return;
        }
        stack.push_back(segment.serial);
        hpa_[segment.serial] = (++next_hpa_) * kGiB;
        plugged.host_side = HostSide::kRegion;
        break;
      }
      default:
        plugged.host_side = HostSide::kOnline;
    }
    Report(plugged.host);
  }

  // The host lets go, of its region first and of the slot where it may.
  void Descend(Plugged& plugged, const Segment& segment, bool eject) {
    plugged.permanent = false;
    plugged.host_error.clear();
    if (away_.contains(plugged.host)) return;
    if (plugged.host_side >= HostSide::kRegion) {
      if (faults_ && OneIn(3)) {
        plugged.host_side = HostSide::kStopping;
        plugged.host_error = absl::StrCat("HOLDERS: ", Roll(2));
        return;
      }
      LeaveStack(plugged, segment.serial);
      plugged.host_side = HostSide::kPresent;
    }
    if (plugged.fabric == FabricSide::kUnbound || eject) plugged.host_side = HostSide::kAbsent;
    if (eject && plugged.fabric == FabricSide::kUnbinding) plugged.fabric = FabricSide::kUnbound;
    Report(plugged.host);
  }

  void LeaveStack(const Plugged& plugged, uint64_t serial) {
    auto& stack = stacks_[{plugged.host, plugged.bridge}];
    for (uint64_t& decoder : stack) {
      if (decoder == serial) decoder = 0;
    }
    while (!stack.empty() && stack.back() == 0) stack.pop_back();
    hpa_.erase(serial);
  }

  // The host's inventory, as its agent sends it.
  void Report(const std::string& host) {
    HostRuntime runtime = MakeRuntime(2, 4);  // Deep stacks.
    for (Bridge& bridge : runtime.bridges) {
      for (const uint64_t serial : stacks_[{host, bridge.name}]) {
        bridge.live_regions += serial != 0;
        bridge.blocked |= serial == 0;
        if (serial != 0) bridge.blocking_serial = serial;
        if (serial != 0) bridge.free_window_bytes -= kUnit;
      }
    }
    state().SetRuntime(host, runtime);
  }

  void Disturb() {
    const std::string host = AnyHost();
    if (OneIn(2)) {
      if (!away_.erase(host)) away_.insert(host);
      return;
    }
    if (calm_) return;
    const bool reboot = OneIn(3);
    for (auto& [serial, plugged] : plugged_) {
      if (plugged.host != host) continue;
      if (reboot) {
        plugged.host_side = HostSide::kAbsent;
        LeaveStack(plugged, serial);
      } else if (OneIn(3)) {
        plugged.fabric = FabricSide::kUnbound;  // Unplugged behind our back.
      }
    }
    ++counts[reboot ? "reboots" : "unplugs"];
    Report(host);
  }

  void RunUntilQuiet() {
    for (int round = 0; round < 500; ++round) {
      bool moved = false;
      for (const auto& [id, key] : RegionsById()) {
        moved |= Step(*state().FindRegion(key));
        Check();
      }
      if (!moved || testing::Test::HasFatalFailure()) return;
    }
    FAIL() << "it never comes to rest";
  }

  void Check() {
    const absl::Status sound = state().CheckInvariants();
    ASSERT_TRUE(sound.ok()) << sound;
    // Every LD that is bound has a durable intent: its serial is a Segment's.
    for (const auto& [serial, plugged] : plugged_) {
      if (plugged.fabric == FabricSide::kUnbound) continue;
      ASSERT_NE(state().FindRegionBySerial(serial), nullptr) << serial;
    }
  }

  std::mt19937_64 random_;
  const bool calm_;
  bool faults_ = true;
  std::set<std::string> away_;           // Hosts whose agent has no session.
  std::map<uint64_t, Plugged> plugged_;  // By serial.
  std::map<uint64_t, Extent> bytes_;     // What a serial was bound to.
  std::map<uint64_t, uint64_t> hpa_;
  std::map<std::pair<std::string, std::string>, std::vector<uint64_t>> stacks_;  // 0: a hole.
  std::map<std::string, std::vector<bool>> dirty_;  // By device, one a unit.
  std::map<Key, absl::flat_hash_set<uint32_t>> scrubbed_;
  std::vector<AllocateSpec> asked_;
  uint64_t next_hpa_ = 0;
};

// CXLPOOL_SEEDS: how many; a few if unset.
uint64_t Seeds() {
  const char* text = std::getenv("CXLPOOL_SEEDS");
  uint64_t seeds = 0;
  return text != nullptr && absl::SimpleAtoi(text, &seeds) && seeds > 0 ? seeds : 16;
}

void RunSeeds(uint64_t first, bool calm) {
  std::map<std::string, int> counts;
  for (uint64_t seed = first; seed < first + Seeds(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    World world(seed, calm);
    world.Run(1000);
    if (testing::Test::HasFailure()) return;
    world.Settle();
    if (testing::Test::HasFailure()) return;
    for (const auto& [what, count] : world.counts) counts[what] += count;
  }
  for (const char* what :
       {"planned", "retried", "undone", "gave up", "gone", "BOUND", "ONLINE", "OFFLINE", "EJECTING",
        "UNBOUND", "RELEASE_BLOCKED", "grown", "shrunk", "joined", "tail left"}) {
    EXPECT_GE(counts[what], 3) << "void: hardly any " << what;
  }
  std::string all;
  for (const auto& [what, count] : counts) absl::StrAppend(&all, what, "=", count, " ");
  testing::Test::RecordProperty("counts", all);
}

TEST(ModelRandomTest, PlacementAndLadderNeverMeetABlockedBridge) { RunSeeds(1, true); }

TEST(ModelRandomTest, UnplugsAndRebootsLoseNothing) { RunSeeds(1'000'000, false); }

}  // namespace
}  // namespace cxlpool::fm
