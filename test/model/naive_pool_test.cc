// The real pool and the naive one are asked the same at random, and must agree: on what can be had,
// on why not, and on who owns which bytes. After every step the promises are checked. A seed
// replays exactly.

#include "test/model/naive_pool.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "absl/strings/numbers.h"
#include "test/model/model_rig.h"
#include "test/model/naive_answers.h"

namespace cxlpool::fm {
namespace {

constexpr int kDevices = 6;
constexpr int kGranules = 16;

class Twins : protected ModelRig {
 public:
  explicit Twins(uint64_t seed) : random_(seed) {
    TopologySpec spec;
    for (int i = 0; i < kDevices; ++i) {
      NaiveDevice device;
      device.id = absl::StrCat("cmm-", i);
      device.domain = absl::StrCat("rack-", i / 2);
      device.latency = 100 + 50 * (i % 3);
      device.owner.resize(kGranules);
      AddDevice(device.id, kGranules * kUnit, kUnit);
      spec.devices.push_back({.id = device.id,
                              .latency_ns = static_cast<uint32_t>(device.latency),
                              .failure_domain = device.domain});
      naive_.devices.push_back(device);
    }
    state().SetTopology(Topology::Create(spec).value());
    naive_.lds_per_device = OneIn(2) ? 5 : 0;
    state().SetLimits({0, static_cast<uint32_t>(naive_.lds_per_device)});
    for (const char* host : {"host-a", "host-b", "host-c"}) {
      AddHost(host, 32, 4);
      HostRuntime runtime = state().Runtime(host);
      for (Bridge& bridge : runtime.bridges) bridge.free_window_bytes = 1024 * kGiB;
      state().SetRuntime(host, runtime);
    }
    naive_.limits["default"] = {};
    naive_.limits["ml"] = {20, 0};
    naive_.limits["db"] = {0, 10};
    for (const char* tenant : {"ml", "db"}) PutTenant(tenant);
  }

  void Run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE(absl::StrCat("step ", i));
      Step();
      Check();
    }
  }

  std::map<std::string, int> counts;  // What happened, for a void run to be seen.

 private:
  int Roll(int n) { return static_cast<int>(random_() % n); }
  bool OneIn(int n) { return Roll(n) == 0; }
  std::string AnyHost() { return std::string("host-") + static_cast<char>('a' + Roll(3)); }
  std::string AnyTenant() { return std::array{"default", "ml", "db"}[Roll(3)]; }
  RegionPtr AnyRegion() {
    if (naive_.regions.empty()) return nullptr;
    auto it = naive_.regions.begin();
    std::advance(it, Roll(static_cast<int>(naive_.regions.size())));
    return *state().FindRegion(it->first);
  }

  void Step() {
    const RegionPtr region = AnyRegion();  // Outlives its record.
    const int dice = region == nullptr ? 0 : Roll(100);
    if (dice < 30) return AskForOne();
    if (dice < 40) return Attach(*region);
    if (dice < 48) return Detach(*region);
    if (dice < 56) return Release(*region);
    if (dice < 76) return Progress(region);
    if (dice < 82) return Retry();
    if (dice < 86) return Rename(*region);
    if (dice < 94) return Resize(region);
    if (dice < 98) return Service();
    SetSomeTenant();
  }

  // --- Asking ---------------------------------------------------------------------------------

  void AskForOne() {
    AllocateSpec spec = Allocation("", 0, OneIn(2) ? "" : AnyHost());
    if (OneIn(2)) spec.region_id = absl::StrCat("name-", Roll(30));
    const int length = 1 + Roll(OneIn(4) ? 24 : 6);
    spec.size_bytes = length * kUnit - Roll(1000);
    spec.tenant = AnyTenant();
    spec.max_extents = OneIn(2) ? 1 : 1 + Roll(6);
    spec.sharing = static_cast<Sharing>(1 + Roll(3));
    spec.policy = static_cast<Policy>(1 + Roll(5));
    if (*spec.policy == Policy::kBandwidth) spec.interleave_ways = OneIn(2) ? 2 : 4;
    if (OneIn(8)) spec.device = absl::StrCat("cmm-", Roll(kDevices));
    std::vector<Key> away;
    if (*spec.policy == Policy::kIsolate && OneIn(2)) {
      if (const RegionPtr other = AnyRegion()) {
        spec.isolate_from.push_back(other->id);
        away.push_back(other->key);
      }
    }
    if (!spec.region_id.empty() && state().FindRegionById(spec.region_id) != nullptr) {
      return Expect(Allocate(spec).status(), {"REGION_EXISTS"});
    }
    NaiveAnswer answer = answers_.WouldHold(spec.tenant, spec.size_bytes);
    if (answer.reasons.empty()) answer = answers_.WouldPlace(spec, length, away, nullptr);
    const auto planned = PlanAllocate(state(), spec, context());
    if (!Agree(planned.status(), answer)) return;
    const Region& region = *planned->region;
    ASSERT_TRUE(answers_.WouldHold(spec.tenant, region.held_bytes()).reasons.empty())
        << "beyond quota";
    const NaiveRuns extents = RunsOf(region.extents);
    ExpectLegal(spec, length, away, extents, answer);
    Commit(planned->change);
    ASSERT_TRUE(naive_.Take(region.key, extents)) << region.id << " got bytes of another";
    naive_.regions[region.key] = {region.id, spec.tenant, *spec.policy,
                                  static_cast<int>(region.interleave_ways), extents};
    made_[spec.request.id] = region.key;
    asked_.push_back(spec);
    ++counts[absl::StrCat("allocated ", ToString(*spec.policy))];
    if (extents.size() > region.interleave_ways) ++counts["several extents"];
  }

  void Attach(const Region& region) {
    const std::string host = AnyHost();
    const auto access = static_cast<Access>(1 + Roll(2));
    std::set<std::string> reasons;
    const Attachment* there = region.FindAttachment(host);
    bool exclusive = false;
    for (const Attachment& other : region.attachments) {
      const bool both_write = access == Access::kReadWrite && other.access == Access::kReadWrite;
      exclusive |= region.sharing == Sharing::kExclusive ||
                   (region.sharing == Sharing::kSingleWriter && both_write);
    }
    if (naive_.regions[region.key].going) {
      reasons = {"REGION_RELEASING"};
    } else if (there != nullptr) {
      if (there->settled().detaching) reasons = {"DETACH_IN_PROGRESS"};
      if (!there->settled().detaching && there->access != access) reasons = {"SHARING_CONFLICT"};
    } else if (region.state == RegionState::kReserved) {
      reasons = {"REGION_NOT_READY"};
    } else if (exclusive) {
      reasons = {"SHARING_CONFLICT"};
    }
    if (Agree(ModelRig::Attach(region.id, host, access).status(), {reasons, {}})) {
      ++counts["attached"];
    }
  }

  void Detach(const Region& region) {
    ASSERT_TRUE(ModelRig::Detach(region.id, AnyHost()).ok());
    ++counts["detached"];
  }

  void Release(const Region& region) {
    const bool all = OneIn(2);
    bool attached = false;
    for (const Attachment& attachment : region.attachments)
      attached |= !attachment.settled().detaching;
    NaiveRegion& naive = naive_.regions[region.key];
    const bool refuse = attached && !all && !naive.going;
    const auto released = ModelRig::Release(region.id, all);
    if (refuse) return Expect(released.status(), {"REGION_ATTACHED"});
    ASSERT_TRUE(released.ok()) << released.status();
    naive.going = true;
    ++counts["released"];
  }

  // As if the ladder had been climbed, or gone down: somewhere further.
  void Progress(const RegionPtr& region) {
    auto edited = std::make_shared<Region>(*region);
    edited->revision = context().revision;
    std::erase_if(edited->attachments, [](const Attachment& a) { return a.settled().detaching; });
    if (edited->attachments.size() < region->attachments.size()) {
      if (edited->state == RegionState::kReserved) edited->state = RegionState::kAllocated;
    } else if (edited->state == RegionState::kReserved ||
               edited->state == RegionState::kAllocated) {
      edited->state = RegionState::kAllocated;
      for (Attachment& attachment : edited->attachments) {
        attachment.settled().state = AttachmentState::kOnline;
      }
    } else if (edited->state == RegionState::kReleasing && edited->attachments.empty()) {
      edited->state = RegionState::kScrubbing;
    } else if (edited->state == RegionState::kScrubbing) {
      Commit({Tombstone{edited, context().now}});
      naive_.Give(naive_.regions[region->key].extents);
      naive_.regions.erase(region->key);
      ++counts["gone"];
      return;
    }
    Commit({RegionPtr(edited)});
  }

  // An old request again: its Region, live or gone, and nothing new.
  void Retry() {
    if (asked_.empty()) return;
    AllocateSpec spec = asked_[Roll(static_cast<int>(asked_.size()))];
    const auto again = PlanAllocate(state(), spec, context());
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_EQ(again->region->key, made_.at(spec.request.id)) << "one request made two Regions";
    ASSERT_TRUE(again->change.empty());
    spec.request.payload_hash = 2;
    ++counts["retried"];
    Expect(PlanAllocate(state(), spec, context()).status(), {"REQUEST_ID_REUSED"});
  }

  void Rename(const Region& region) {
    const std::string name = absl::StrCat("name-", Roll(30));
    std::set<std::string> reasons;
    if (name == region.id) {
    } else if (naive_.regions[region.key].going) {
      reasons = {"REGION_RELEASING"};
    } else if (state().FindRegionById(name) != nullptr) {
      reasons = {"REGION_EXISTS"};
    }
    if (!Agree(ModelRig::Rename(region.id, name).status(), {reasons, {}})) return;
    naive_.regions[region.key].id = name;
    ++counts["renamed"];
  }

  void Resize(const RegionPtr& region) {
    NaiveRegion& naive = naive_.regions[region->key];
    int now = 0;
    for (const NaiveRun& extent : naive.extents) now += extent.length;
    const int length = std::max(1, now + Roll(9) - 4);
    const uint32_t max_extents = 1 + Roll(4);
    NaiveAnswer answer;
    bool standing = true;
    for (const Attachment& a : region->attachments) {
      standing &= a.settled().state == AttachmentState::kOnline && !a.settled().detaching;
    }
    size_t keep = 0;
    for (int sum = 0; sum < length && keep < naive.extents.size(); keep += naive.ways) {
      for (int i = 0; i < naive.ways; ++i) sum += naive.extents[keep + i].length;
    }
    AllocateSpec spec;
    spec.caller = Caller::Admin("cxlpool://operator/alice");
    spec.policy = naive.policy;
    spec.max_extents = max_extents;
    if (naive.going) {
      answer = {{"REGION_RELEASING"}, {}};
    } else if (region->state == RegionState::kReserved) {
      answer = {{"REGION_NOT_READY"}, {}};
    } else if (length == now) {
    } else if (!standing) {
      answer = {{"NOT_RESIZABLE"}, {}};
    } else if (length < now) {
      if (keep == naive.extents.size()) answer = {{"RESIZE_INSIDE_EXTENT"}, {}};
    } else {
      answer = answers_.WouldHold(naive.tenant, (length - now) * kUnit);
      if (answer.reasons.empty()) answer = answers_.WouldPlace(spec, length - now, {}, &naive);
    }
    const auto resized = ModelRig::Resize(region->id, length * kUnit, max_extents);
    if (!Agree(resized.status(), answer) || length == now) return;
    Settle(region->key, keep);
    const Region& after = **state().FindRegion(region->key);
    const NaiveRuns extents = RunsOf(after.extents);
    naive_.Give(naive.extents);
    ASSERT_TRUE(naive_.Take(region->key, extents)) << "it grew over another";
    const size_t same = std::min(extents.size(), naive.extents.size());
    ASSERT_TRUE(std::equal(extents.begin(), extents.begin() + same, naive.extents.begin()))
        << "what was there moved";
    if (length > now) {
      const NaiveRuns more(extents.begin() + naive.extents.size(), extents.end());
      ExpectShape(more, naive.ways, length - now);
    }
    naive.extents = extents;
    ++counts[length < now ? "shrunk" : "grown"];
  }

  // As if every host had followed a resize.
  void Settle(Key key, size_t keep) {
    Rewrite((*state().FindRegion(key))->id, [&](Region& region) {
      if (region.tail_leaving) {
        region.extents.resize(keep);
        for (Attachment& attachment : region.attachments) {
          std::erase_if(attachment.segments,
                        [&](const Segment& s) { return s.extent_index >= keep; });
        }
      }
      region.tail_extents = 0;
      region.tail_leaving = false;
      for (Attachment& attachment : region.attachments) attachment.Join();
    });
  }

  void Service() {
    NaiveDevice& device = naive_.devices[Roll(kDevices)];
    const bool drain = device.in_service && OneIn(2);
    const auto change = drain ? PlanDrainDevice(state(), kAlice, device.id, context())
                              : PlanAddDevice(state(), kAlice, device.id, context());
    ASSERT_TRUE(change.ok()) << change.status();
    if (!change->empty()) Commit(*change);
    device.in_service = !drain;
  }

  void SetSomeTenant() {
    const std::string tenant = OneIn(2) ? "ml" : "db";
    TenantLimits limits = naive_.limits[tenant];
    (tenant == "ml" ? limits.quota : limits.reserved) = 5 + Roll(25);
    std::swap(naive_.limits[tenant], limits);
    if (!PutTenant(tenant)) naive_.limits[tenant] = limits;
  }
  bool PutTenant(const std::string& tenant) {
    const TenantLimits& limits = naive_.limits[tenant];
    const auto change = PlanSetTenant(
        state(), kAlice, {0, tenant, limits.quota * kUnit, limits.reserved * kUnit, 0}, context());
    if (!change.ok()) return false;
    if (!change->empty()) Commit(*change);
    return true;
  }

  // --- Comparing ----------------------------------------------------------------------------

  void Expect(const absl::Status& status, const std::set<std::string>& reasons) {
    ASSERT_TRUE(reasons.contains(ReasonOf(status)))
        << status << " instead of " << *reasons.rbegin();
    ++counts[ReasonOf(status)];
  }

  // True: both say yes.
  bool Agree(const absl::Status& status, const NaiveAnswer& answer) {
    const std::string reason = ReasonOf(status);
    const bool yes = answer.reasons.empty() || answer.reasons.contains("");
    if (status.ok()) {
      EXPECT_TRUE(yes) << "it gave what the naive pool refuses: " << *answer.reasons.rbegin();
      return yes;
    }
    // A host that is full is another matter.
    if (reason == "NO_FREE_PORT" || reason == "BRIDGE_BLOCKED") {
      ++counts["host full"];
      return false;
    }
    EXPECT_TRUE(answer.reasons.contains(reason))
        << status << " instead of "
        << (answer.reasons.empty() ? "a yes" : *answer.reasons.rbegin());
    ++counts[reason];
    return false;
  }

  NaiveRuns RunsOf(const std::vector<Extent>& extents) {
    NaiveRuns runs;
    for (const Extent& extent : extents) {
      const auto index = state().IndexOf(extent.device);
      EXPECT_TRUE(index.has_value());
      EXPECT_EQ(extent.dpa_bytes % kUnit + extent.length_bytes % kUnit, 0u);
      runs.push_back({*index, static_cast<int>(extent.dpa_bytes / kUnit),
                      static_cast<int>(extent.length_bytes / kUnit)});
    }
    return runs;
  }

  // Equal shares on distinct devices, and no more than is asked for and its rounding.
  void ExpectShape(const NaiveRuns& extents, int ways, int length) {
    int sum = 0;
    for (size_t i = 0; i < extents.size(); i += ways) {
      std::set<int> devices;
      for (int k = 0; k < ways; ++k) {
        ASSERT_EQ(extents[i + k].length, extents[i].length);
        devices.insert(extents[i + k].device);
        sum += extents[i + k].length;
      }
      ASSERT_EQ(static_cast<int>(devices.size()), ways);
    }
    ASSERT_EQ(sum, (length + ways - 1) / ways * ways);
  }

  void ExpectLegal(const AllocateSpec& spec, int length, const std::vector<Key>& away,
                   const NaiveRuns& extents, const NaiveAnswer& answer) {
    const int ways = std::max(1, static_cast<int>(spec.interleave_ways));
    ExpectShape(extents, ways, length);
    ASSERT_LE(extents.size(), spec.max_extents * ways);
    ASSERT_LE(extents.size(), kMaxExtentsPerRegion);
    std::set<int> used;
    for (const NaiveRun& extent : extents) used.insert(extent.device);
    const std::set<int> among = answers_.Among(spec);
    for (const int device : used) {
      ASSERT_TRUE(among.contains(device));
      const int here = static_cast<int>(std::count_if(
          extents.begin(), extents.end(), [&](const auto& e) { return e.device == device; }));
      ASSERT_LE(here, naive_.LdsLeft(device));
    }
    if (answer.exact.has_value()) {
      ASSERT_TRUE(extents == *answer.exact) << "pack is not exact";
    }
    const int most = static_cast<int>(spec.max_extents);
    if (*spec.policy == Policy::kSpread && most == 1) ExpectLeastLoaded(among, extents[0]);
    if (*spec.policy == Policy::kLatency) ExpectNearest(among, length, most, used);
    if (*spec.policy == Policy::kIsolate) {
      bool inside = false;
      for (const std::set<int>& domain : answers_.Domains(among, away, nullptr)) {
        inside |= std::includes(domain.begin(), domain.end(), used.begin(), used.end());
      }
      ASSERT_TRUE(inside) << "not isolated";
    }
  }

  void ExpectLeastLoaded(const std::set<int>& among, const NaiveRun& extent) {
    for (const int device : among) {
      if (naive_.Longest(device) < extent.length || naive_.LdsLeft(device) == 0) continue;
      ASSERT_LE(naive_.Free(device), naive_.Free(extent.device)) << "another is loaded less";
    }
  }

  void ExpectNearest(const std::set<int>& among, int length, int most, const std::set<int>& used) {
    std::map<int, std::set<int>> tiers;
    for (const int device : among) tiers[naive_.devices[device].latency].insert(device);
    for (const auto& [latency, tier] : tiers) {
      if (!naive_.Pack(tier, length, most).has_value()) continue;
      ASSERT_TRUE(std::includes(tier.begin(), tier.end(), used.begin(), used.end()))
          << "nearer devices have room";
      return;
    }
  }

  // The promises, and that both have the same bytes free.
  void Check() {
    const absl::Status sound = state().CheckInvariants();
    ASSERT_TRUE(sound.ok()) << sound;
    const Capacity capacity = state().GetCapacity();
    ASSERT_EQ(capacity.free_bytes + capacity.held_bytes + capacity.scrubbing_bytes +
                  capacity.quarantined_bytes,
              capacity.total_bytes);
    for (int i = 0; i < kDevices; ++i) {
      NaiveRuns runs;
      for (const FreeSpace::Run& run : state().space().RunsOf(static_cast<DeviceIndex>(i))) {
        runs.push_back({i, static_cast<int>(run.dpa_bytes / kUnit),
                        static_cast<int>(run.length_bytes / kUnit)});
      }
      ASSERT_TRUE(runs == naive_.RunsOf(i)) << "other bytes are free on " << i;
      ASSERT_EQ(state().UseOf(static_cast<DeviceIndex>(i)).lds,
                static_cast<uint32_t>(naive_.Lds(i)));
    }
    ASSERT_EQ(state().region_count(), naive_.regions.size());
    for (const auto& [key, region] : naive_.regions) {
      ASSERT_EQ((*state().FindRegionById(region.id))->key, key);
    }
    for (const auto& [tenant, limits] : naive_.limits) {
      ASSERT_EQ(state().UseOf(Interned(tenant)).held_bytes, naive_.Held(tenant) * kUnit);
    }
  }

  std::mt19937_64 random_;
  NaivePool naive_;
  const NaiveAnswers answers_{naive_};
  std::vector<AllocateSpec> asked_;
  absl::flat_hash_map<RequestId, Key> made_;
};

// CXLPOOL_SEEDS: how many; a few if unset.
uint64_t NaiveSeeds() {
  const char* text = std::getenv("CXLPOOL_SEEDS");
  uint64_t seeds = 0;
  return text != nullptr && absl::SimpleAtoi(text, &seeds) && seeds > 0 ? seeds : 6;
}

TEST(NaivePoolTest, TheRealPoolAgrees) {
  std::map<std::string, int> counts;
  for (uint64_t seed = 1; seed <= NaiveSeeds(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Twins twins(seed);
    twins.Run(800);
    if (HasFailure()) return;
    for (const auto& [what, count] : twins.counts) counts[what] += count;
  }
  for (const char* what : {"allocated PACK",
                           "allocated SPREAD",
                           "allocated BANDWIDTH",
                           "allocated LATENCY",
                           "allocated ISOLATE",
                           "several extents",
                           "attached",
                           "detached",
                           "released",
                           "gone",
                           "retried",
                           "renamed",
                           "grown",
                           "shrunk",
                           "POOL_FULL",
                           "POOL_FRAGMENTED",
                           "LD_LIMIT",
                           "NOT_ISOLATED",
                           "QUOTA_EXCEEDED",
                           "RESERVED_FOR_OTHERS",
                           "DEVICE_DRAINING",
                           "SHARING_CONFLICT",
                           "REQUEST_ID_REUSED",
                           "REGION_EXISTS"}) {
    EXPECT_GE(counts[what], 3) << "void: hardly any " << what;
  }
  std::string all;
  for (const auto& [what, count] : counts) absl::StrAppend(&all, what, "=", count, " ");
  RecordProperty("counts", all);
}

}  // namespace
}  // namespace cxlpool::fm
