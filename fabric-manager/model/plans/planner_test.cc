#include "fabric-manager/model/plans/planner.h"

#include <gtest/gtest.h>

#include "test/model/model_rig.h"

namespace cxlpool::fm {
namespace {

using absl::StatusCode;

class PlannerTest : public testing::Test, protected ModelRig {
 protected:
  PlannerTest() { AddPool(); }
  ~PlannerTest() override {
    const absl::Status sound = state().CheckInvariants();
    EXPECT_TRUE(sound.ok()) << sound;
  }

  void AllocateOnline(const std::string& id, const std::string& host,
                      Sharing sharing = Sharing::kExclusive) {
    AllocateSpec spec = Allocation(id, kUnit, host);
    spec.sharing = sharing;
    const auto region = Allocate(spec);
    ASSERT_TRUE(region.ok()) << region.status();
    BringUp(id);
  }
  RegionPtr Now(const std::string& id) { return *state().FindRegionById(id); }
  static void ExpectRefusal(const absl::Status& status, StatusCode code,
                            const std::string& reason) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(ReasonOf(status), reason) << status;
    const auto refusal = RefusalOf(status);
    ASSERT_TRUE(refusal.has_value());
    EXPECT_FALSE(refusal->remedy.empty()) << status;
  }
};

// Allocate.

TEST_F(PlannerTest, AllocateWithoutAHostHoldsBytesAtOnce) {
  const auto region = Allocate(Allocation("kv", kUnit + 1));
  ASSERT_TRUE(region.ok()) << region.status();
  const Region& r = **region;
  EXPECT_EQ(r.state, RegionState::kAllocated);
  EXPECT_EQ(r.size_bytes(), 2 * kUnit);  // Any of the hosts can take it later.
  EXPECT_EQ(r.requested_bytes, kUnit + 1);
  EXPECT_EQ(r.tenant, "default");
  EXPECT_EQ(r.create_time, context().now);
  EXPECT_TRUE(r.attachments.empty());
  EXPECT_NE(r.key, r.generation);
  EXPECT_EQ(Now("kv"), *region);
}

TEST_F(PlannerTest, AllocateWithAHostReservesAndWantsAnAttachment) {
  AllocateSpec spec = Allocation("kv", kUnit, "host-b");
  spec.mode = Mode::kSystemRam;
  const auto region = Allocate(spec);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ((*region)->state, RegionState::kReserved);
  ASSERT_EQ((*region)->attachments.size(), 1u);
  const Attachment& a = (*region)->attachments[0];
  EXPECT_EQ(a.host, "host-b");
  EXPECT_EQ(a.mode, Mode::kSystemRam);
  EXPECT_EQ(a.settled().state, AttachmentState::kWanted);
  EXPECT_FALSE(a.settled().detaching);
  ASSERT_EQ(a.segments.size(), 1u);
  EXPECT_EQ(a.segments[0].serial & kSerialBase, kSerialBase);
  EXPECT_NE(a.segments[0].serial, kSerialBase | a.generation);
}

TEST_F(PlannerTest, SystemRamRoundsToMemoryBlocks) {
  HostRuntime runtime = state().Runtime("host-a");
  runtime.memory_block_bytes = kGiB;
  state().SetRuntime("host-a", runtime);
  AllocateSpec spec = Allocation("kv", 1, "host-a");
  EXPECT_EQ(PlanAllocate(state(), spec, context())->region->size_bytes(), kUnit);
  spec.mode = Mode::kSystemRam;
  EXPECT_EQ(PlanAllocate(state(), spec, context())->region->size_bytes(), kGiB);
}

TEST_F(PlannerTest, SharedRegionsSuitEveryHostThatIsThere) {
  HostRuntime runtime = state().Runtime("host-c");
  runtime.region_granule_bytes = kGiB;
  state().SetRuntime("host-c", runtime);
  AllocateSpec spec = Allocation("kv", 1, "host-a");
  EXPECT_EQ(PlanAllocate(state(), spec, context())->region->size_bytes(), kUnit);
  spec.sharing = Sharing::kMultiWriter;
  EXPECT_EQ(PlanAllocate(state(), spec, context())->region->size_bytes(), kGiB);
  spec.host.clear();
  EXPECT_EQ(PlanAllocate(state(), spec, context())->region->size_bytes(), kGiB);
  runtime.online = false;
  state().SetRuntime("host-c", runtime);
  EXPECT_EQ(PlanAllocate(state(), spec, context())->region->size_bytes(), kUnit);
}

TEST_F(PlannerTest, ANameIsMadeFromTheTag) {
  const auto region = Allocate(Allocation("", kUnit));
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ((*region)->id.substr(0, 2), "r-");
  EXPECT_EQ((*region)->id.size(), 14u);
  EXPECT_FALSE((*region)->tag.empty());
  EXPECT_TRUE(Attach((*region)->id, "host-a").ok());
}

TEST_F(PlannerTest, ANameThatIsTakenByChanceIsMadeAnew) {
  std::string next = std::string(6, 'a') + std::string(10, '1');
  context().make_tag = [&] {
    const std::string tag = next;
    ++next[15];
    if (next[15] > '4') next[0] = 'b';
    return Uuid(tag);
  };
  const std::string first = (*Allocate(Allocation("", kUnit)))->id;
  const std::string second = (*Allocate(Allocation("", kUnit)))->id;
  EXPECT_EQ(first, "r-616161616161");
  EXPECT_EQ(second, "r-626161616161");
  context().make_tag = [] { return Uuid(std::string(6, 'a') + std::string(10, '1')); };
  ExpectRefusal(Allocate(Allocation("", kUnit)).status(), StatusCode::kResourceExhausted,
                "NAMES_EXHAUSTED");
}

TEST_F(PlannerTest, AllocateRefusesBadArguments) {
  const auto refused = [&](auto spoil, StatusCode code, const std::string& reason) {
    AllocateSpec spec = Allocation("kv", kUnit, "host-a");
    spoil(spec);
    const Capacity before = state().GetCapacity();
    ExpectRefusal(Allocate(spec).status(), code, reason);
    EXPECT_EQ(state().GetCapacity().free_bytes, before.free_bytes);
    EXPECT_FALSE(state().FindRequest(spec.request.id).has_value());
  };
  const auto kInvalid = StatusCode::kInvalidArgument;
  refused([](auto& s) { s.size_bytes = 0; }, kInvalid, "BAD_SIZE");
  refused([](auto& s) { s.region_id = "Kv"; }, kInvalid, "BAD_NAME");
  refused([](auto& s) { s.region_id = "0f8fad5b-d9cb-469f-a165-70867728950e"; }, kInvalid,
          "BAD_NAME");
  refused([](auto& s) { s.tenant = ""; }, kInvalid, "BAD_NAME");
  refused([](auto& s) { s.max_extents = 17; }, kInvalid, "BAD_MAX_EXTENTS");
  refused([](auto& s) { s.host = "host-z"; }, StatusCode::kNotFound, "UNKNOWN_HOST");
  refused([](auto& s) { s.device = "cmm-9"; }, StatusCode::kNotFound, "UNKNOWN_DEVICE");
  refused([](auto& s) { s.size_bytes = UINT64_MAX; }, StatusCode::kResourceExhausted, "POOL_FULL");
  refused([](auto& s) { s.size_bytes = 5 * kGiB; }, StatusCode::kResourceExhausted,
          "POOL_FRAGMENTED");
  refused([](auto& s) { s.sharing = Sharing::kMultiWriter, s.mode = Mode::kSystemRam; },
          StatusCode::kFailedPrecondition, "SHARING_CONFLICT");
  refused([](auto& s) { s.access = Access::kReadOnly, s.mode = Mode::kSystemRam; },
          StatusCode::kFailedPrecondition, "SHARING_CONFLICT");
  state().SetRuntime("host-a", HostRuntime());
  refused([](auto&) {}, StatusCode::kFailedPrecondition, "HOST_NOT_ONLINE");
}

TEST_F(PlannerTest, NamesAreUsedOnceAtATime) {
  ASSERT_TRUE(Allocate(Allocation("kv", kUnit)).ok());
  ExpectRefusal(Allocate(Allocation("kv", kUnit)).status(), StatusCode::kAlreadyExists,
                "REGION_EXISTS");
  ASSERT_TRUE(Release("kv").ok());  // Not gone yet.
  ExpectRefusal(Allocate(Allocation("kv", kUnit)).status(), StatusCode::kAlreadyExists,
                "REGION_EXISTS");
  const uint64_t generation = Now("kv")->generation;
  Commit({Tombstone{Now("kv"), context().now}});
  ASSERT_TRUE(Allocate(Allocation("kv", kUnit)).ok());
  EXPECT_GT(Now("kv")->generation, generation);
}

TEST_F(PlannerTest, AllocateInSeveralExtents) {
  AllocateSpec spec = Allocation("kv", 6 * kGiB, "host-a");
  spec.max_extents = 2;
  const auto region = Allocate(spec);
  ASSERT_TRUE(region.ok()) << region.status();
  ASSERT_EQ((*region)->extents.size(), 2u);
  ASSERT_EQ((*region)->attachments[0].segments.size(), 2u);
  EXPECT_NE((*region)->attachments[0].segments[0].serial,
            (*region)->attachments[0].segments[1].serial);
}

// Retries.

TEST_F(PlannerTest, QuotaCountsWhatIsHeldNotWhatWasAskedFor) {
  SetTenant("ml", 3 * kUnit - 1);
  AllocateSpec spec = Allocation("kv", 2 * kUnit + 1);
  spec.tenant = "ml";
  ExpectRefusal(Allocate(spec).status(), StatusCode::kResourceExhausted, "QUOTA_EXCEEDED");
  spec.size_bytes = 2 * kUnit;
  ASSERT_TRUE(Allocate(spec).ok());
  ExpectRefusal(Resize("kv", 2 * kUnit + 1).status(), StatusCode::kResourceExhausted,
                "QUOTA_EXCEEDED");
}

TEST_F(PlannerTest, ARetryGetsTheSameRegionAndChangesNothing) {
  const AllocateSpec spec = Allocation("kv", kUnit);
  const RegionPtr first = *Allocate(spec);
  const auto again = PlanAllocate(state(), spec, context());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->region, first);
  EXPECT_TRUE(again->change.empty());
  AllocateSpec other = spec;
  other.request.payload_hash = 2;
  ExpectRefusal(PlanAllocate(state(), other, context()).status(), StatusCode::kAlreadyExists,
                "REQUEST_ID_REUSED");
  other = spec;  // Another principal's ids are its own.
  other.request.id.principal = "cxlpool://operator/bob";
  ExpectRefusal(PlanAllocate(state(), other, context()).status(), StatusCode::kAlreadyExists,
                "REGION_EXISTS");
}

TEST_F(PlannerTest, ARetryAfterTheReleaseGetsTheReleasedRegion) {
  const AllocateSpec spec = Allocation("kv", kUnit);
  const RegionPtr first = *Allocate(spec);
  Commit({Tombstone{first, context().now}});
  const auto again = PlanAllocate(state(), spec, context());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->region, first);
  EXPECT_TRUE(again->change.empty());
}

TEST_F(PlannerTest, WhoeverDetachesAnOwnedRegionFromItsLastHostKeepsIt) {
  AllocateSpec spec = Allocation("kv", kUnit, "host-a");
  spec.sharing = Sharing::kMultiWriter;
  spec.owner = Owner{.uid = 1000, .pid = 4711, .start_ticks = 99, .incarnation = "boot-1"};
  spec.caller = Caller::Local("cxlpool://operator/local");
  EXPECT_EQ((*Allocate(spec))->owner, spec.owner);
  BringUp("kv");
  ASSERT_TRUE(Attach("kv", "host-b").ok());
  const auto detach = [&](const char* host) {
    return PlanDetach(
        state(),
        {NewRequest("DetachRegion"), Caller::Admin("cxlpool://operator/alice"), "kv", host},
        context());
  };
  Rewrite("kv", [](Region& region) { region.maker = Maker{"host-a", 1000}; });
  EXPECT_EQ(detach("host-a")->region->owner, std::nullopt) << "host-b watches nobody of host-a";
  EXPECT_EQ(detach("host-b")->region->owner, spec.owner);
  Rewrite("kv", [](Region& region) { region.maker.reset(); });
  const auto first = detach("host-b");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->region->owner, spec.owner);
  Commit(first->change);
  EXPECT_EQ(detach("host-a")->region->owner, std::nullopt);
}

TEST_F(PlannerTest, EveryMethodKnowsItsRetries) {
  AllocateOnline("kv", "host-a", Sharing::kMultiWriter);
  const AttachSpec attach{NewRequest("AttachRegion"),
                          Caller::Admin("cxlpool://operator/alice"),
                          "kv",
                          "host-b",
                          Mode::kDevdax,
                          Access::kReadWrite};
  Commit(PlanAttach(state(), attach, context())->change);
  EXPECT_TRUE(PlanAttach(state(), attach, context())->change.empty());
  const DetachSpec detach{NewRequest("DetachRegion"), Caller::Admin("cxlpool://operator/alice"),
                          "kv", "host-b"};
  Commit(PlanDetach(state(), detach, context())->change);
  EXPECT_TRUE(PlanDetach(state(), detach, context())->change.empty());
  // The attach is remembered though it has been undone since.
  EXPECT_TRUE(PlanAttach(state(), attach, context())->change.empty());
  const ReleaseSpec release{NewRequest("ReleaseRegion"), Caller::Admin("cxlpool://operator/alice"),
                            "kv", true, ""};
  Commit(PlanRelease(state(), release, context())->change);
  EXPECT_TRUE(PlanRelease(state(), release, context())->change.empty());
  DetachSpec reused = detach;
  reused.request.payload_hash = 9;
  ExpectRefusal(PlanDetach(state(), reused, context()).status(), StatusCode::kAlreadyExists,
                "REQUEST_ID_REUSED");
}

TEST_F(PlannerTest, ARegionRemembersItsMakerAndTheLatest) {
  const AllocateSpec spec = Allocation("kv", kUnit);
  ASSERT_TRUE(Allocate(spec).ok());
  std::vector<Request> all;
  for (int i = 0; i < 40; ++i) {
    const AttachSpec attach{NewRequest("AttachRegion"),
                            Caller::Admin("cxlpool://operator/alice"),
                            "kv",
                            "host-a",
                            Mode::kDevdax,
                            Access::kReadWrite};
    all.push_back(attach.request);
    Commit(PlanAttach(state(), attach, context())->change);
    Rewrite("kv", [](Region& r) { r.attachments.clear(); });
  }
  EXPECT_EQ(Now("kv")->requests.size(), kMaxRequestsPerRegion + 1);
  EXPECT_TRUE(state().FindRequest(spec.request.id).has_value());
  EXPECT_TRUE(state().FindRequest(all.back().id).has_value());
  EXPECT_FALSE(state().FindRequest(all.front().id).has_value());
}

// Attach.

TEST_F(PlannerTest, AttachKeepsHostsInOrder) {
  AllocateOnline("kv", "host-b", Sharing::kMultiWriter);
  ASSERT_TRUE(Attach("kv", "host-c").ok());
  ASSERT_TRUE(Attach("kv", "host-a").ok());
  const Region& r = *Now("kv");
  ASSERT_EQ(r.attachments.size(), 3u);
  EXPECT_EQ(r.attachments[0].host, "host-a");
  EXPECT_EQ(r.attachments[2].host, "host-c");
  EXPECT_EQ(r.state, RegionState::kAllocated);
}

TEST_F(PlannerTest, ARegionIsFoundByNameOrByUuid) {
  AllocateOnline("kv", "");
  Rewrite("kv", [](Region& r) {
    r.tag =
        Uuid(std::string("\x0f\x8f\xad\x5b\xd9\xcb\x46\x9f\xa1\x65\x70\x86\x77\x28\x95\x0e", 16));
  });
  EXPECT_TRUE(Attach("0f8fad5b-d9cb-469f-a165-70867728950e", "host-a").ok());
  ExpectRefusal(Attach("kw", "host-a").status(), StatusCode::kNotFound, "UNKNOWN_REGION");
  const absl::Status odd = Attach(std::string(5000, '\x01'), "host-a").status();
  ExpectRefusal(odd, StatusCode::kNotFound, "UNKNOWN_REGION");
  EXPECT_LT(odd.message().size(), 600u);
}

TEST_F(PlannerTest, AttachingAgainWithEqualArgumentsIsOk) {
  ASSERT_TRUE(Allocate(Allocation("kv", kUnit, "host-a")).ok());
  const RegionPtr before = Now("kv");
  const auto again = Attach("kv", "host-a");  // Though it is still RESERVED.
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->attachments, before->attachments);
  const absl::Status other = Attach("kv", "host-a", Access::kReadOnly).status();
  ExpectRefusal(other, StatusCode::kFailedPrecondition, "SHARING_CONFLICT");
  EXPECT_EQ(MetadataOf(other, "holders"), "host-a");
}

TEST_F(PlannerTest, AFabricThatBindsASliceOnceAtATimeHasExclusiveRegionsAlone) {
  AllocateSpec spec = Allocation("kv", kUnit, "host-a");
  spec.sharing = Sharing::kMultiWriter;
  ASSERT_TRUE(Allocate(spec).ok()) << "from a fabric that shares";
  BringUp("kv");
  context().shares_slices = false;
  for (const Sharing sharing : {Sharing::kMultiWriter, Sharing::kSingleWriter}) {
    spec = Allocation("kw", kUnit);
    spec.sharing = sharing;
    const absl::Status refused = Allocate(spec).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ReasonOf(refused), "NOT_SHAREABLE");
    EXPECT_EQ(MetadataOf(refused, "sharing"), ToString(sharing));
  }
  EXPECT_EQ(ReasonOf(Attach("kv", "host-b").status()), "NOT_SHAREABLE");
  ASSERT_TRUE(Allocate(Allocation("kx", kUnit)).ok());
  BringUp("kx");
  EXPECT_TRUE(Attach("kx", "host-b").ok());
}

TEST_F(PlannerTest, IsolationThatIsDemandedIsEnforcedByTheFabricOrRefused) {
  AllocateSpec spec = Allocation("kv", kUnit);
  spec.fabric_isolation = true;
  spec.sharing = Sharing::kSingleWriter;
  ASSERT_TRUE(Allocate(spec).ok());
  BringUp("kv");
  // A fabric that lets readers write: the Region remembers what was asked for.
  context().enforces_read_only = false;
  const absl::Status read_only = Attach("kv", "host-a", Access::kReadOnly).status();
  ExpectRefusal(read_only, StatusCode::kFailedPrecondition, "ISOLATION_NOT_ENFORCED");
  EXPECT_EQ(MetadataOf(read_only, "access"), "READ_ONLY");
  EXPECT_TRUE(Attach("kv", "host-a", Access::kReadWrite).ok());

  context().isolates = false;
  for (const char* host : {"", "host-a"}) {
    spec = Allocation("kw", kUnit, host);
    spec.fabric_isolation = true;
    ExpectRefusal(Allocate(spec).status(), StatusCode::kFailedPrecondition,
                  "ISOLATION_NOT_ENFORCED");
  }
  ExpectRefusal(Attach("kv", "host-b", Access::kReadOnly).status(), StatusCode::kFailedPrecondition,
                "ISOLATION_NOT_ENFORCED");
  EXPECT_TRUE(Allocate(Allocation("kx", kUnit)).ok()) << "demands nothing";
}

TEST_F(PlannerTest, ATenantsDemandForIsolationHoldsForAllItsRegions) {
  context().isolates = false;
  AllocateOnline("kv", "host-a");
  AllocateSpec later = Allocation("kw", kUnit);
  ASSERT_TRUE(Allocate(later).ok());
  Tenant tenant{.id = kDefaultTenant};
  tenant.fabric_isolation = true;
  Commit(PlanSetTenant(state(), kAlice, tenant, context()).value());

  const absl::Status refused = Allocate(Allocation("kx", kUnit)).status();
  ExpectRefusal(refused, StatusCode::kFailedPrecondition, "ISOLATION_NOT_ENFORCED");
  EXPECT_EQ(MetadataOf(refused, "tenant"), kDefaultTenant);
  ExpectRefusal(Attach("kw", "host-a", Access::kReadWrite).status(),
                StatusCode::kFailedPrecondition, "ISOLATION_NOT_ENFORCED");
  ExpectRefusal(Resize("kv", 2 * kUnit).status(), StatusCode::kFailedPrecondition,
                "ISOLATION_NOT_ENFORCED");
  EXPECT_EQ(Now("kv")->attachments.size(), 1u) << "what is there stays";

  tenant.fabric_isolation = false;
  Commit(PlanSetTenant(state(), kAlice, tenant, context()).value());
  EXPECT_TRUE(Allocate(Allocation("kx", kUnit)).ok());
}

// A call that found nothing to do is remembered like any other: a copy of it that comes late undoes
// nothing that came after it.
TEST_F(PlannerTest, ALateCopyOfACallThatChangedNothingChangesNothing) {
  AllocateOnline("kv", "host-a");
  const AttachSpec attach{.request = NewRequest("AttachRegion"),
                          .caller = Caller::Admin("cxlpool://operator/alice"),
                          .region_id = "kv",
                          .host = "host-a"};
  const ResizeSpec resize{.request = NewRequest("ResizeRegion"),
                          .caller = Caller::Admin("cxlpool://operator/alice"),
                          .region_id = "kv",
                          .size_bytes = kUnit};
  const RenameSpec rename{.request = NewRequest("RenameRegion"),
                          .caller = Caller::Admin("cxlpool://operator/alice"),
                          .region_id = "kv",
                          .new_region_id = "kv"};
  const auto take = [&](const absl::StatusOr<Plan>& plan) {
    ASSERT_TRUE(plan.ok()) << plan.status();
    Commit(plan->change);
  };
  const auto call = [&] {
    take(PlanAttach(state(), attach, context()));
    take(PlanResize(state(), resize, nullptr, context()));
    take(PlanRename(state(), rename, context()));
  };
  call();
  Rewrite("kv", [](Region& r) { r.attachments.clear(); });
  ASSERT_TRUE(Resize("kv", 2 * kUnit).ok());
  ASSERT_TRUE(Rename("kv", "cache").ok());
  const uint64_t size = Now("cache")->size_bytes();
  call();
  EXPECT_EQ(state().FindRegionById("kv"), nullptr);
  EXPECT_TRUE(Now("cache")->attachments.empty());
  EXPECT_EQ(Now("cache")->size_bytes(), size);
}

TEST_F(PlannerTest, AFailedDeviceDoesNotQuarantineWhatGoesDown) {
  ASSERT_TRUE(Allocate(Allocation("kv", kUnit, "host-a")).ok());
  Rewrite("kv", [](Region& r) { r.compensating = true; });
  const std::string device = Now("kv")->extents[0].device.str();
  const auto failed = PlanFailDevice(state(), device, "smoke", context());
  ASSERT_TRUE(failed.ok()) << failed.status();
  Commit(*failed);
  EXPECT_EQ(Now("kv")->state, RegionState::kReserved) << "it goes on, and ends FAILED";
}

TEST_F(PlannerTest, AttachWaitsForTheFirstOne) {
  AllocateSpec spec = Allocation("kv", kUnit, "host-a");
  spec.sharing = Sharing::kMultiWriter;
  ASSERT_TRUE(Allocate(spec).ok());
  ExpectRefusal(Attach("kv", "host-b").status(), StatusCode::kFailedPrecondition,
                "REGION_NOT_READY");
  Rewrite("kv", [](Region& r) { r.compensating = true; });
  ExpectRefusal(Attach("kv", "host-b").status(), StatusCode::kFailedPrecondition,
                "REGION_RELEASING");
}

TEST_F(PlannerTest, AttachRefusesWhatIsOnItsWayDown) {
  AllocateOnline("kv", "host-a", Sharing::kMultiWriter);
  for (const auto state : {RegionState::kReleasing, RegionState::kFailed}) {
    Rewrite("kv", [&](Region& r) { r.state = state; });
    // Also where it is still attached.
    for (const char* host : {"host-a", "host-b"}) {
      ExpectRefusal(Attach("kv", host).status(), StatusCode::kFailedPrecondition,
                    "REGION_RELEASING");
    }
  }
  Rewrite("kv", [&](Region& r) { r.state = RegionState::kQuarantined; });
  ExpectRefusal(Attach("kv", "host-b").status(), StatusCode::kFailedPrecondition,
                "REGION_QUARANTINED");
}

TEST_F(PlannerTest, AttachWhileDetachingThereIsRefused) {
  AllocateOnline("kv", "host-a", Sharing::kMultiWriter);
  ASSERT_TRUE(Detach("kv", "host-a").ok());
  ExpectRefusal(Attach("kv", "host-a").status(), StatusCode::kFailedPrecondition,
                "DETACH_IN_PROGRESS");
}

TEST_F(PlannerTest, ExclusiveMeansOne) {
  AllocateOnline("kv", "host-a");
  absl::Status status = Attach("kv", "host-b", Access::kReadOnly).status();
  ExpectRefusal(status, StatusCode::kFailedPrecondition, "SHARING_CONFLICT");
  EXPECT_EQ(MetadataOf(status, "holders"), "host-a");
  // One that is being detached still has the bytes.
  ASSERT_TRUE(Detach("kv", "host-a").ok());
  status = Attach("kv", "host-b").status();
  ExpectRefusal(status, StatusCode::kFailedPrecondition, "SHARING_CONFLICT");
  EXPECT_NE(status.message().find("retry when host-a has let go"), absl::string_view::npos);
  Rewrite("kv", [](Region& r) { r.attachments.clear(); });
  EXPECT_TRUE(Attach("kv", "host-b", Access::kReadWrite, Mode::kSystemRam).ok());
}

TEST_F(PlannerTest, SingleWriterMeansOneWriterAndAnyReaders) {
  AllocateOnline("kv", "host-a", Sharing::kSingleWriter);
  EXPECT_TRUE(Attach("kv", "host-b", Access::kReadOnly).ok());
  const absl::Status status = Attach("kv", "host-c", Access::kReadWrite).status();
  ExpectRefusal(status, StatusCode::kFailedPrecondition, "SHARING_CONFLICT");
  EXPECT_EQ(MetadataOf(status, "holders"), "host-a");
  EXPECT_TRUE(Attach("kv", "host-c", Access::kReadOnly).ok());
}

TEST_F(PlannerTest, SystemRamIsNeverShared) {
  AllocateOnline("kv", "", Sharing::kSingleWriter);
  ExpectRefusal(Attach("kv", "host-a", Access::kReadWrite, Mode::kSystemRam).status(),
                StatusCode::kFailedPrecondition, "SHARING_CONFLICT");
}

TEST_F(PlannerTest, ExtentsMustSuitTheHost) {
  AllocateOnline("kv", "", Sharing::kExclusive);
  HostRuntime runtime = state().Runtime("host-a");
  runtime.memory_block_bytes = kGiB;
  state().SetRuntime("host-a", runtime);
  const absl::Status status = Attach("kv", "host-a", Access::kReadWrite, Mode::kSystemRam).status();
  ExpectRefusal(status, StatusCode::kFailedPrecondition, "GRANULE_MISMATCH");
  EXPECT_EQ(MetadataOf(status, "unit_bytes"), absl::StrCat(kGiB));
  EXPECT_TRUE(Attach("kv", "host-a").ok());
}

TEST_F(PlannerTest, AttachNeedsHostAndDevice) {
  AllocateOnline("kv", "");
  ExpectRefusal(Attach("kv", "host-z").status(), StatusCode::kNotFound, "UNKNOWN_HOST");
  state().SetReachable(Now("kv")->extents[0].device, "not seen");
  ExpectRefusal(Attach("kv", "host-a").status(), StatusCode::kFailedPrecondition,
                "DEVICE_UNREACHABLE");
}

TEST_F(PlannerTest, AttachmentsHaveALimit) {
  AllocateOnline("kv", "", Sharing::kMultiWriter);
  for (size_t i = 0; i <= kMaxAttachmentsPerRegion; ++i) {
    const std::string host = absl::StrCat("many-", i);
    AddHost(host, 1, 1);
    const auto attached = Attach("kv", host);
    if (i < kMaxAttachmentsPerRegion) {
      ASSERT_TRUE(attached.ok()) << attached.status();
    } else {
      ExpectRefusal(attached.status(), StatusCode::kResourceExhausted, "TOO_MANY_ATTACHMENTS");
    }
  }
}

// Detach.
TEST_F(PlannerTest, DetachTurnsOneHostRoundAndKeepsTheBytes) {
  AllocateOnline("kv", "host-a", Sharing::kMultiWriter);
  ASSERT_TRUE(Attach("kv", "host-b").ok());
  const auto region = Detach("kv", "host-a");
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_TRUE((*region)->FindAttachment("host-a")->settled().detaching);
  EXPECT_FALSE((*region)->FindAttachment("host-b")->settled().detaching);
  EXPECT_EQ((*region)->state, RegionState::kAllocated);
}

TEST_F(PlannerTest, DetachComparesTheEtag) {
  AllocateOnline("kv", "host-a");
  DetachSpec spec{NewRequest("DetachRegion"), Caller::Admin("cxlpool://operator/alice"), "kv",
                  "host-a", Now("kv")->etag()};
  Rewrite("kv", [](Region& region) { region.state_reason = "changed"; });
  ExpectRefusal(PlanDetach(state(), spec, context()).status(), StatusCode::kFailedPrecondition,
                "ETAG_MISMATCH");
}

TEST_F(PlannerTest, DetachingWhatIsNotAttachedIsOk) {
  AllocateOnline("kv", "host-a");
  const DetachSpec early{NewRequest("DetachRegion"), Caller::Admin("cxlpool://operator/alice"),
                         "kv", "host-b"};
  const auto nothing = PlanDetach(state(), early, context());
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(nothing->region->attachments, Now("kv")->attachments);
  Commit(nothing->change);
  ASSERT_TRUE(Detach("kv", "host-a").ok());
  EXPECT_TRUE(Detach("kv", "host-a").ok());
  ExpectRefusal(Detach("kv", "host-z").status(), StatusCode::kNotFound, "UNKNOWN_HOST");
  // A late retry of what found nothing to do undoes nothing that came after it.
  Rewrite("kv", [](Region& r) { r.attachments.clear(); });
  ASSERT_TRUE(Attach("kv", "host-b").ok());
  const auto late = PlanDetach(state(), early, context());
  ASSERT_TRUE(late.ok());
  EXPECT_TRUE(late->change.empty());
  ExpectRefusal(Detach("kw", "host-a").status(), StatusCode::kNotFound, "UNKNOWN_REGION");
}

// Release.

TEST_F(PlannerTest, ReleaseNamesTheHostsInTheWay) {
  AllocateOnline("kv", "host-a", Sharing::kMultiWriter);
  ASSERT_TRUE(Attach("kv", "host-b").ok());
  absl::Status status = Release("kv").status();
  ExpectRefusal(status, StatusCode::kFailedPrecondition, "REGION_ATTACHED");
  EXPECT_EQ(MetadataOf(status, "hosts"), "host-a,host-b");
  ASSERT_TRUE(Detach("kv", "host-a").ok());
  EXPECT_EQ(MetadataOf(Release("kv").status(), "hosts"), "host-b");
  ASSERT_TRUE(Detach("kv", "host-b").ok());
  EXPECT_TRUE(Release("kv").ok());  // Both are on their way.
  EXPECT_EQ(Now("kv")->state, RegionState::kReleasing);
}

TEST_F(PlannerTest, ReleaseWithDetachAllTurnsAllRound) {
  AllocateOnline("kv", "host-a", Sharing::kMultiWriter);
  ASSERT_TRUE(Attach("kv", "host-b").ok());
  const auto region = Release("kv", true);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ((*region)->state, RegionState::kReleasing);
  for (const Attachment& a : (*region)->attachments) EXPECT_TRUE(a.settled().detaching);
}

TEST_F(PlannerTest, ReleaseOfAReservedRegionTurnsItRound) {
  ASSERT_TRUE(Allocate(Allocation("kv", kUnit, "host-a")).ok());
  ExpectRefusal(Release("kv").status(), StatusCode::kFailedPrecondition, "REGION_ATTACHED");
  ASSERT_TRUE(Release("kv", true).ok());
  EXPECT_EQ(Now("kv")->state, RegionState::kReleasing);
}

TEST_F(PlannerTest, ReleasingAgainIsOk) {
  AllocateOnline("kv", "");
  ASSERT_TRUE(Release("kv").ok());
  const auto again = [&] {
    const RegionState before = Now("kv")->state;
    const auto region = Release("kv");
    ASSERT_TRUE(region.ok()) << region.status();
    EXPECT_EQ((*region)->state, before);
  };
  again();
  for (const auto state : {RegionState::kScrubbing, RegionState::kFailed}) {
    Rewrite("kv", [&](Region& r) { r.state = state; });
    again();
  }
  Rewrite("kv", [](Region& r) { r.state = RegionState::kReserved, r.compensating = true; });
  again();
}

TEST_F(PlannerTest, AQuarantinedRegionIsNotReleased) {
  AllocateOnline("kv", "host-a");
  Rewrite("kv", [](Region& r) { r.state = RegionState::kQuarantined; });
  ExpectRefusal(Release("kv", true).status(), StatusCode::kFailedPrecondition,
                "REGION_QUARANTINED");
}

TEST_F(PlannerTest, ReleaseComparesTheEtag) {
  AllocateOnline("kv", "");
  ReleaseSpec spec{NewRequest("ReleaseRegion"), Caller::Admin("cxlpool://operator/alice"), "kv",
                   false, Now("kv")->etag()};
  ASSERT_TRUE(Attach("kv", "host-a").ok());
  const absl::Status status = PlanRelease(state(), spec, context()).status();
  ExpectRefusal(status, StatusCode::kFailedPrecondition, "ETAG_MISMATCH");
  EXPECT_EQ(MetadataOf(status, "etag"), Now("kv")->etag());
  spec.etag = Now("kv")->etag();
  spec.detach_all = true;
  EXPECT_TRUE(PlanRelease(state(), spec, context()).ok());
}

// Hosts.

TEST_F(PlannerTest, EnrolReplacesAndBringsBack) {
  EXPECT_TRUE(PlanEnrol(state(), kAlice, {.host = "host-a"}, context())->empty());
  const Key key = state().FindHost("host-a")->key;
  Commit(*PlanEnrol(state(), kAlice, {.host = "host-a", .identity = "spiffe://rack/a"}, context()));
  EXPECT_EQ(state().FindHost("host-a")->identity, "spiffe://rack/a");
  EXPECT_EQ(state().FindHost("host-a")->key, key);
  Commit(*PlanRetire(state(), kAlice, "host-a", context()));
  EXPECT_TRUE(PlanRetire(state(), kAlice, "host-a", context())->empty());
  EXPECT_TRUE(state().FindHost("host-a")->retired);
  // A retired host's identity is free for another.
  Commit(*PlanEnrol(state(), kAlice, {.host = "host-d", .identity = "spiffe://rack/a"}, context()));
  const absl::Status status =
      PlanEnrol(state(), kAlice, {.host = "host-a", .identity = "spiffe://rack/a"}, context())
          .status();
  ExpectRefusal(status, StatusCode::kAlreadyExists, "IDENTITY_TAKEN");
  EXPECT_EQ(MetadataOf(status, "host"), "host-d");
  Commit(*PlanEnrol(state(), kAlice, {.host = "host-a"}, context()));
  EXPECT_FALSE(state().FindHost("host-a")->retired);
  EXPECT_EQ(state().FindHost("host-a")->identity, "cxlpool://host/host-a");
}

TEST_F(PlannerTest, EnrolRefusesWhatIsNoIdentityOfTheHost) {
  for (const std::string& identity :
       {std::string("x"), std::string(":x"), std::string("1x:y"), std::string("x:"),
        std::string("http://a b"), std::string("x:\n"), std::string("x:\xc3\xa9"),
        "x:" + std::string(300, 'a'), std::string("cxlpool://operator/alice"),
        std::string("CXLPOOL://operator/alice"), std::string("cxlpool://manager/fm"),
        std::string("cxlpool://host/host-a")}) {
    ExpectRefusal(
        PlanEnrol(state(), kAlice, {.host = "host-new", .identity = identity}, context()).status(),
        StatusCode::kInvalidArgument, "BAD_IDENTITY");
  }
  EXPECT_EQ(ReasonOf(PlanEnrol(state(), kAlice, {.host = "Host"}, context()).status()), "BAD_NAME");
}

TEST_F(PlannerTest, RetireWaitsForAttachments) {
  AllocateOnline("kv", "host-a");
  AllocateOnline("kw", "host-a");
  const absl::Status status = PlanRetire(state(), kAlice, "host-a", context()).status();
  ExpectRefusal(status, StatusCode::kFailedPrecondition, "HOST_HAS_ATTACHMENTS");
  EXPECT_EQ(MetadataOf(status, "regions"), "kv,kw");
  ExpectRefusal(PlanRetire(state(), kAlice, "host-z", context()).status(), StatusCode::kNotFound,
                "UNKNOWN_HOST");
}

}  // namespace
}  // namespace cxlpool::fm
