// What the contract does not know of: marks, copies, and lives of hosts.
#include "fabric-manager/adapters/fabric_shared/shared_backend.h"

#include <gtest/gtest.h>

#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/cxl_host.h"
#include "proto/support/refusal.h"
#include "test/rigs/shared_backend_fixture.h"

namespace cxlpool::fm {
namespace {

using Kind = FabricEvent::Kind;

// --- Which device it is.

TEST_F(SharedBackendTest, TheNamedHostMarksItsDeviceAndOthersAreProvenBothWays) {
  Connect({"host-a", "host-b"});
  Open();
  const FabricView view = Discover();
  ASSERT_EQ(view.devices.size(), 1u) << view.missing_devices.at("cmm-0");
  ASSERT_TRUE(storage_->mark.has_value());
  EXPECT_EQ(view.devices[0].identity, storage_->mark->id());
  EXPECT_EQ(storage_->mark->device(), "cmm-0");
  EXPECT_EQ(storage_->mark->reserved_bytes(), kUnit);
  EXPECT_FALSE(view.devices[0].has_bytes);
  EXPECT_EQ(Count("host-a", &Host::marks), 2) << "the mark, and a nonce";
  EXPECT_EQ(Count("host-b", &Host::marks), 1) << "and one the other way round";
  EXPECT_EQ(WhyNot("host-a"), "");
  EXPECT_EQ(WhyNot("host-b"), "");
}

TEST_F(SharedBackendTest, ADeviceThatNobodyIsToMarkIsMissing) {
  tables_.devices[0].path = "";
  Connect({"host-a", "host-b"});
  Open();
  const std::string why = Missing();
  EXPECT_TRUE(absl::StrContains(why, "host-b: it shows dax1.0")) << why;
  EXPECT_TRUE(absl::StrContains(why, "HOST/NAME")) << why;
  EXPECT_FALSE(storage_->mark.has_value());
}

// Everybody who lists devices is sent that, and each time that a host comes or goes the log has it.
TEST_F(SharedBackendTest, WhyADeviceIsMissingDoesNotGrowWithThePool) {
  tables_.devices[0].path = "";
  std::vector<std::string> hosts = {"host-a", "host-b"};
  for (int i = 10; i < 30; ++i) hosts.push_back(absl::StrCat("host-x", i));
  for (size_t i = 2; i < hosts.size(); ++i) {
    tables_.hosts.push_back({.id = hosts[i]});
    Give(hosts[i], absl::StrCat("dax", i, ".0"), NewStorage());
  }
  Connect(hosts);
  Open();
  const std::string why = Missing();
  EXPECT_TRUE(absl::StrContains(why, "host-b: it shows dax1.0")) << why;
  EXPECT_TRUE(absl::StrContains(why, "; and 18 more hosts")) << why;
  EXPECT_TRUE(absl::StrContains(why, "HOST/NAME")) << "what to do comes last: " << why;
  EXPECT_LT(why.size(), 2048u);
}

TEST_F(SharedBackendTest, AnotherPoolsMarkIsLeftAlone) {
  const std::string other = "99999999-2222-4333-8444-555555555555";
  storage_->mark = MarkOf(other, "cmm-0");
  Connect({"host-a"});
  Open();
  const std::string why = Missing();
  EXPECT_TRUE(absl::StrContains(why, other)) << why;
  EXPECT_TRUE(absl::StrContains(why, "another pool")) << why;
  EXPECT_TRUE(absl::StrContains(why, "zero its first 4 KiB on host host-a")) << why;
  EXPECT_EQ(Count("host-a", &Host::marks), 0);
  EXPECT_TRUE(absl::StrContains(WhyNot("host-a"), "not")) << "nothing is granted there";
}

TEST_F(SharedBackendTest, HalfAMarkIsLeftAlone) {
  storage_->damaged = true;
  Connect({"host-a"});
  Open();
  EXPECT_TRUE(absl::StrContains(Missing(), "damaged")) << Missing();
  EXPECT_EQ(Count("host-a", &Host::marks), 0);
}

TEST_F(SharedBackendTest, AMarkThatIsDamagedLaterTakesTheHostOff) {
  Connect({"host-a", "host-b"});
  Open();
  ASSERT_EQ(Discover().devices.size(), 1u);
  const auto broken = NewStorage();
  broken->damaged = true;
  Give("host-b", "dax1.0", broken);
  Discover();
  const std::string why = WhyNot("host-b");
  EXPECT_TRUE(absl::StrContains(why, "damaged")) << why;
  EXPECT_EQ(WhyNot("host-a"), "");
}

// Cloned with its mark: the same in everything but what is stored afterwards.
TEST_F(SharedBackendTest, ACopyIsFoundOutAndNotWrittenTo) {
  Connect({"host-a"});
  Open();
  ASSERT_EQ(Discover().devices.size(), 1u);
  const auto copy = std::make_shared<FakeStorage>(*storage_);
  Give("host-b", "dax1.0", copy);
  Connect({"host-b"});
  Discover();
  const std::string why = WhyNot("host-b");
  EXPECT_TRUE(absl::StrContains(why, "does not load what host host-a has just stored")) << why;
  EXPECT_EQ(Count("host-b", &Host::marks), 0);
  EXPECT_EQ(WhyNot("host-a"), "");
  // The right one in its place.
  Give("host-b", "dax1.0", storage_);
  Discover();
  EXPECT_EQ(WhyNot("host-b"), "");
}

// It loads what others store, and what it stores goes elsewhere.
TEST_F(SharedBackendTest, OneWayIsNoProof) {
  Connect({"host-a"});
  Open();
  ASSERT_EQ(Discover().devices.size(), 1u);
  Give("host-c", "dax2.0", storage_);
  agents_.Change("host-c", [](Host& own) { own.stores_are_lost = true; });
  Connect({"host-c"});
  Discover();
  const std::string why = WhyNot("host-c");
  EXPECT_TRUE(absl::StrContains(why, "does not load what host host-c has just stored")) << why;
  Discover();
  EXPECT_EQ(WhyNot("host-a"), "") << "what was lost on the other way does not count";
}

// Bit for bit, while the agent was away: only what is stored afterwards tells.
TEST_F(SharedBackendTest, AProofDoesNotOutliveTheAgentsSession) {
  Connect({"host-a", "host-b"});
  Open();
  ASSERT_EQ(Discover().devices.size(), 1u);
  ASSERT_EQ(WhyNot("host-b"), "");
  Give("host-b", "dax1.0", std::make_shared<FakeStorage>(*storage_));
  agents_.Session("host-b", "");
  Connect({"host-b"});
  Discover();
  const std::string why = WhyNot("host-b");
  EXPECT_TRUE(absl::StrContains(why, "does not load what host host-a has just stored")) << why;
  EXPECT_EQ(WhyNot("host-a"), "");
}

TEST_F(SharedBackendTest, ACopyThatTakesTheDevicesPlaceLaterIsFoundOut) {
  Connect({"host-a", "host-b"});
  Open();
  ASSERT_EQ(Discover().devices.size(), 1u);
  const auto copy = std::make_shared<FakeStorage>(*storage_);
  copy->mark->set_nonce(copy->mark->nonce() + 1);
  Give("host-b", "dax1.0", copy);
  Discover();
  EXPECT_NE(WhyNot("host-b"), "");
  EXPECT_EQ(WhyNot("host-a"), "");
}

// A host that stood still goes on with what a manager asked of it that is no more.
TEST_F(SharedBackendTest, ANonceThatAnEarlierManagerAskedForIsNoOtherDevice) {
  Connect({"host-a", "host-b"});
  Open();
  Discover();
  ASSERT_EQ(WhyNot("host-a"), "");
  storage_->mark->set_nonce(storage_->mark->nonce() + 1);
  for (int look = 0; look < 3; ++look) Discover();
  EXPECT_EQ(Discover().devices.size(), 1u) << Missing();
  EXPECT_EQ(WhyNot("host-a"), "");
  EXPECT_EQ(WhyNot("host-b"), "");
}

// And with one that was not proven yet when that happened.
TEST_F(SharedBackendTest, ANonceOfAnEarlierManagerDoesNotKeepTheHostAwayThatStoresIt) {
  Connect({"host-a"});
  Open();
  Discover();
  ASSERT_EQ(WhyNot("host-a"), "");
  storage_->mark->set_nonce(storage_->mark->nonce() + 1);
  Connect({"host-b"});
  for (int look = 0; look < 3; ++look) Discover();
  EXPECT_EQ(WhyNot("host-a"), "");
  EXPECT_EQ(WhyNot("host-b"), "");
}

TEST_F(SharedBackendTest, HostsThatWereNeverProvenDoNotProveACopyToEachOther) {
  Connect({"host-a"});
  Open();
  Discover();
  ASSERT_EQ(WhyNot("host-a"), "");
  const auto copy = std::make_shared<FakeStorage>(*storage_);
  copy->mark->set_nonce(copy->mark->nonce() + 1);
  agents_.Session("host-a", "");
  Give("host-b", "dax1.0", copy);
  Give("host-c", "dax2.0", copy);
  Connect({"host-b", "host-c"});
  for (int look = 0; look < 3; ++look) Discover();
  EXPECT_NE(WhyNot("host-b"), "");
  EXPECT_NE(WhyNot("host-c"), "");
  EXPECT_EQ(Count("host-b", &Host::marks) + Count("host-c", &Host::marks), 0);
}

// Two devices of one size: each is what its mark says, wherever it turns up.
TEST_F(SharedBackendTest, SwappedDevicesAreWhatTheirMarksSay) {
  const auto second = NewStorage();
  tables_.devices.push_back(tables_.devices[0]);
  tables_.devices[1].id = "cmm-1";
  tables_.devices[1].path = "host-a/dax0.1";
  Give("host-a", "dax0.1", second);
  Give("host-b", "dax1.1", second);
  Connect({"host-a", "host-b"});
  Open();
  ASSERT_EQ(Discover().devices.size(), 2u);
  const std::string first_mark = storage_->mark->id();
  Give("host-b", "dax1.0", second);
  Give("host-b", "dax1.1", storage_);
  agents_.Session("host-b", "");
  agents_.Session("host-b", "boot-2-host-b");
  Discover();
  ASSERT_EQ(WhyNot("host-b"), "");
  EXPECT_EQ(agents_.Of("host-b", [](Host& own) { return own.grants.at(0).mark(); }), first_mark);
  EXPECT_EQ(agents_.StorageOf("host-b", first_mark), storage_);
}

TEST_F(SharedBackendTest, AnotherMarkOfTheSameDeviceIsAnotherDevice) {
  Connect({"host-a"});
  Open();
  ASSERT_EQ(Discover().devices.size(), 1u);
  const auto other = NewStorage();
  other->mark = MarkOf(storage_->mark->pool(), "cmm-0");
  Give("host-b", "dax1.0", other);
  Connect({"host-b"});
  Discover();
  const std::string why = WhyNot("host-b");
  EXPECT_TRUE(absl::StrContains(why, other->mark->id())) << why;
}

TEST_F(SharedBackendTest, TwoWithOneMarkOnAHostAreNeither) {
  Connect({"host-a"});
  Open();
  ASSERT_EQ(Discover().devices.size(), 1u);
  Give("host-b", "dax1.1", std::make_shared<FakeStorage>(*storage_));
  Connect({"host-b"});
  Discover();
  const std::string why = WhyNot("host-b");
  EXPECT_TRUE(absl::StrContains(why, "two devices there have its mark")) << why;
}

TEST_F(SharedBackendTest, ATooSmallDeviceIsNotMarked) {
  storage_->size_bytes = 8 * kUnit;
  Connect({"host-a"});
  Open();
  EXPECT_TRUE(absl::StrContains(Missing(), "too small")) << Missing();
  EXPECT_FALSE(storage_->mark.has_value());
}

TEST_F(SharedBackendTest, ARestartedManagerKnowsItsDevicesByTheirMarks) {
  Connect({"host-a", "host-b"});
  storage_->bytes[5] = 'x';
  Open();
  const FabricView before = Discover();
  ASSERT_EQ(before.devices.size(), 1u);
  EXPECT_TRUE(before.devices[0].has_bytes);
  tables_.devices[0].path = "";
  Open();
  const FabricView after = Discover();
  ASSERT_EQ(after.devices.size(), 1u);
  EXPECT_EQ(after.devices[0].identity, before.devices[0].identity);
  EXPECT_EQ(WhyNot("host-b"), "");
}

TEST_F(SharedBackendTest, AHostThatNeverAnswersHoldsUpNobodyElse) {
  Connect({"host-a", "host-b", "host-c"});
  agents_.Hang("host-b", true);
  Open();
  const FabricView view = Discover();
  EXPECT_EQ(view.devices.size(), 1u);
  EXPECT_EQ(WhyNot("host-a"), "");
  agents_.Hang("host-b", false);
  EXPECT_TRUE(events_->WaitFor(
      [](const FabricEvent& e) { return e.kind == Kind::kHostReachable && e.host == "host-b"; }));
  Discover();
  EXPECT_EQ(WhyNot("host-b"), "");
}

// --- Lives.

TEST_F(SharedBackendTest, AHostWithoutASessionIsNotBelievedToHaveNothing) {
  const auto ld = OpenAndBind();
  ASSERT_TRUE(ld.ok()) << ld.status();
  agents_.PowerOn("host-b", ld->serial);
  agents_.Session("host-b", "");
  const FabricHost host = ShownHost("host-b");
  EXPECT_FALSE(host.reachable);
  EXPECT_EQ(host.fabric_incarnation, "boot-1-host-b");
  EXPECT_EQ(ReasonOf(AwaitUnbound(ld->binding())), "UNBIND_NOT_PROVEN");
  EXPECT_FALSE(BeginUnbind(ld->binding()).ok());
  // It comes back as it was.
  agents_.Session("host-b", "boot-1-host-b");
  EXPECT_EQ(ReasonOf(AwaitUnbound(ld->binding())), "UNBIND_NOT_PROVEN");
  EXPECT_FALSE(events_->WaitFor([](const FabricEvent& e) { return e.kind == Kind::kHostGone; },
                                std::chrono::milliseconds(0)));
}

TEST_F(SharedBackendTest, WhatIsOnlyAskedToGoIsStillThere) {
  Connect({"host-a"});
  Open();
  Discover();
  const auto ld = Bind(Request("host-a", 0));
  ASSERT_TRUE(ld.ok()) << ld.status();
  agents_.PowerOn("host-a", ld->serial);
  ASSERT_TRUE(BeginUnbind(ld->binding()).ok());
  EXPECT_TRUE(Discover().bound.at(0).unbinding);
  EXPECT_EQ(ReasonOf(AwaitUnbound(ld->binding())), "UNBIND_NOT_PROVEN");
  agents_.PowerOff("host-a", ld->serial);
  EXPECT_TRUE(AwaitUnbound(ld->binding()).ok());
}

// Its agent was restarted with a configuration that does not name the device, or the mark cannot be
// read: then no DAX device on it is shown either, whoever still has it mapped (ADR 25).
TEST_F(SharedBackendTest, WhatIsOnADeviceThatIsNotShownIsUnknownAndNotGone) {
  const auto ld = OpenAndBind();
  ASSERT_TRUE(ld.ok()) << ld.status();
  Discover();
  agents_.Change("host-b", [](Host& own) {
    own.grants.clear();
    own.devices.clear();
  });
  const absl::Status unbound = AwaitUnbound(ld->binding());
  EXPECT_EQ(ReasonOf(unbound), "UNBIND_NOT_PROVEN");
  EXPECT_TRUE(absl::StrContains(unbound.message(), "does not show device cmm-0")) << unbound;
  EXPECT_EQ(Discover().bound.size(), 1u);
  EXPECT_EQ(Discover().bound.size(), 1u) << "at the second look";
  const auto broken = NewStorage();
  broken->damaged = true;
  Give("host-b", "dax1.0", broken);
  EXPECT_EQ(ReasonOf(AwaitUnbound(ld->binding())), "UNBIND_NOT_PROVEN");
  Give("host-b", "dax1.0", storage_);
  EXPECT_EQ(Discover().bound.size(), 0u);
  EXPECT_TRUE(AwaitUnbound(ld->binding()).ok());
}

TEST_F(SharedBackendTest, WhatWasProvenUnboundIsNotThereWhenItsDeviceIsNotShownLater) {
  const auto ld = OpenAndBind();
  ASSERT_TRUE(ld.ok()) << ld.status();
  ASSERT_EQ(Discover().bound.size(), 1u);
  agents_.Change("host-b", [](Host& own) { own.grants.clear(); });
  ASSERT_TRUE(AwaitUnbound(ld->binding()).ok());
  agents_.Change("host-b", [](Host& own) { own.devices.clear(); });
  EXPECT_EQ(Discover().bound.size(), 0u);
}

TEST_F(SharedBackendTest, ADeviceThatIsSmallerThanItsEntryIsShownAllTheSame) {
  const auto ld = OpenAndBind();
  ASSERT_TRUE(ld.ok()) << ld.status();
  agents_.Change("host-b", [](Host& own) {
    own.grants.clear();
    own.devices.begin()->second->size_bytes = 8 * kUnit;
  });
  EXPECT_TRUE(AwaitUnbound(ld->binding()).ok());
}

TEST_F(SharedBackendTest, AnotherBootProvesThatTheFormerOneEnded) {
  const auto ld = OpenAndBind();
  ASSERT_TRUE(ld.ok()) << ld.status();
  agents_.Session("host-b", "");
  agents_.Session("host-b", "boot-2-host-b");
  EXPECT_TRUE(events_->WaitFor([](const FabricEvent& e) {
    return e.kind == Kind::kHostGone && e.host == "host-b" && e.incarnation == "boot-1-host-b";
  }));
  EXPECT_TRUE(AwaitUnbound(ld->binding()).ok());
  EXPECT_EQ(ShownHost("host-b").fabric_incarnation, "boot-2-host-b");
}

// The program cut its power, and says that it is off: no next boot is needed.
TEST_F(SharedBackendTest, AHostWhosePowerIsOffIsFenced) {
  GiveFenceProgram(2);
  const auto ld = OpenAndBind();
  ASSERT_TRUE(ld.ok()) << ld.status();
  agents_.Session("host-b", "");
  EXPECT_FALSE(AwaitUnbound(ld->binding()).ok());
  const absl::Status fenced = Fence("host-b");
  ASSERT_TRUE(fenced.ok()) << fenced;
  EXPECT_TRUE(events_->WaitFor([](const FabricEvent& e) {
    return e.kind == Kind::kHostGone && e.host == "host-b" && e.incarnation == "boot-1-host-b";
  }));
  EXPECT_TRUE(AwaitUnbound(ld->binding()).ok());
  EXPECT_TRUE(Scrub(ld->slice).ok()) << "by host-a";
  // It was off after all, or it was not: it is not talked to before it has begun anew.
  agents_.Session("host-b", "boot-1-host-b");
  const FabricHost host = ShownHost("host-b");
  EXPECT_FALSE(host.reachable);
  EXPECT_TRUE(absl::StrContains(host.unreachable_reason, "it was fenced"));
  agents_.Session("host-b", "boot-2-host-b");
  EXPECT_TRUE(ShownHost("host-b").reachable);
}

TEST_F(SharedBackendTest, AHostThatIsHeardOrWhosePowerNobodySawOffIsNotFenced) {
  for (const int status : {0, 1, 2}) {
    GiveFenceProgram(status);
    const auto ld = OpenAndBind(static_cast<uint64_t>(status));
    ASSERT_TRUE(ld.ok()) << ld.status();
    if (status != 2) agents_.Session("host-b", "");
    const absl::Status fenced = Fence("host-b");
    EXPECT_EQ(ReasonOf(fenced), "FENCE_FAILED") << status << ": " << fenced;
    EXPECT_FALSE(AwaitUnbound(ld->binding()).ok());
  }
}

TEST_F(SharedBackendTest, ABootThatEndedWhileNoManagerRanIsSaidToHaveEnded) {
  Connect({"host-a"});
  known_.hosts["host-a"] = "boot-0-host-a";
  known_.hosts["host-b"] = "boot-0-host-b";
  Open();
  EXPECT_TRUE(events_->WaitFor([](const FabricEvent& e) {
    return e.kind == Kind::kHostGone && e.host == "host-a" && e.incarnation == "boot-0-host-a";
  }));
  EXPECT_EQ(ShownHost("host-b").fabric_incarnation, "boot-0-host-b");
  EXPECT_FALSE(ShownHost("host-b").reachable);
  Connect({"host-b"});
  EXPECT_TRUE(events_->WaitFor([](const FabricEvent& e) {
    return e.kind == Kind::kHostGone && e.host == "host-b" && e.incarnation == "boot-0-host-b";
  }));
}

TEST_F(SharedBackendTest, SessionsThatComeAndGoHaveDevicesLookedAt) {
  Open();
  Connect({"host-a"});
  EXPECT_TRUE(
      events_->WaitFor([](const FabricEvent& e) { return e.kind == Kind::kDevicesChanged; }));
  events_->Clear();
  agents_.Session("host-a", "");
  EXPECT_TRUE(
      events_->WaitFor([](const FabricEvent& e) { return e.kind == Kind::kDevicesChanged; }));
}

// A new boot has everything to prove again.
TEST_F(SharedBackendTest, AProofIsOfOneBoot) {
  Connect({"host-a", "host-b"});
  Open();
  Discover();
  agents_.Session("host-b", "");
  Give("host-b", "dax1.0", std::make_shared<FakeStorage>(*storage_));
  agents_.Session("host-b", "boot-2-host-b");
  EXPECT_EQ(ReasonOf(Bind(Request("host-b", 0)).status()), "HOST_UNREACHABLE") << "not claimed";
  const auto seen = WaitForAnswer<absl::StatusOr<FabricView>>(
      [&](auto done) { driver_->DiscoverHost("host-b", std::move(done)); });
  EXPECT_TRUE(seen.ok()) << seen.status();
  EXPECT_TRUE(absl::StrContains(WhyNot("host-b"), "not been looked at yet"));
  Discover();
  EXPECT_TRUE(absl::StrContains(WhyNot("host-b"), "does not load"));
}

// An agent says KERNEL_TIMEOUT of what goes on in its kernel.
TEST_F(SharedBackendTest, AGrantAndARevocationThatAreStillUnderWayMayYetCome) {
  Connect({"host-a", "host-b"});
  Open();
  Discover();
  agents_.Change("host-b", [](Host& own) { own.hangs_in = v1::DeviceTask::kGrant; });
  const BindRequest request = Request("host-b", 2);
  EXPECT_EQ(ReasonOf(Bind(request).status()), "OUTCOME_UNKNOWN");
  const Binding binding{request.key, request.slot, request.slice};
  EXPECT_FALSE(AwaitUnbound(binding).ok()) << "it is not there yet";
  agents_.Hang("host-b", false);
  EXPECT_FALSE(AwaitUnbound(binding).ok()) << "it has come";
  EXPECT_EQ(Discover().bound.size(), 1u);
  agents_.Change("host-b", [](Host& own) { own.hangs_in = v1::DeviceTask::kRevoke; });
  EXPECT_EQ(ReasonOf(BeginUnbind(binding)), "KERNEL_TIMEOUT");
  EXPECT_FALSE(AwaitUnbound(binding).ok());
  agents_.Hang("host-b", false);
  EXPECT_TRUE(AwaitUnbound(binding).ok());
}

// --- What else is there.

TEST_F(SharedBackendTest, ADaxDeviceMadeByHandIsShownAndHoldsItsBytes) {
  const auto ld = OpenAndBind(1);
  ASSERT_TRUE(ld.ok()) << ld.status();
  agents_.Change("host-b", [&](Host& own) {
    v1::DeviceGrant piece;
    piece.set_device("cmm-0");
    piece.set_mark(storage_->mark->id());
    piece.set_dpa_bytes(3 * kUnit + 4096);
    piece.set_length_bytes(kUnit);
    own.foreign.push_back(piece);
  });
  const FabricView view = Discover();
  ASSERT_EQ(view.bound.size(), 2u);
  const BoundLd& piece = view.bound[1];
  EXPECT_GT(piece.slot, kSharedSlots);
  EXPECT_FALSE(piece.key.has_value());
  EXPECT_EQ(piece.slice, (Slice{"cmm-0", 3 * kUnit, 2 * kUnit}));
  EXPECT_EQ(Discover().bound[1].slot, piece.slot);
  // What the pool had there and has no grant of any more is still there.
  agents_.Change("host-b", [&](Host& own) {
    own.grants.clear();
    own.foreign[0].set_dpa_bytes(kUnit);
    own.foreign[0].set_length_bytes(4096);
  });
  EXPECT_EQ(ReasonOf(AwaitUnbound(ld->binding())), "UNBIND_NOT_PROVEN");
  EXPECT_EQ(Discover().bound.at(0).slot, piece.slot + 1) << "another piece";
  agents_.Change("host-b", [&](Host& own) { own.foreign.clear(); });
  EXPECT_TRUE(AwaitUnbound(ld->binding()).ok());
}

TEST_F(SharedBackendTest, AnotherPoolsGrantKeepsItsSlotAndIsNotOurs) {
  Connect({"host-a"});
  const auto other = NewStorage();
  other->mark = MarkOf("99999999-2222-4333-8444-555555555555", "cmm-0");
  Give("host-a", "dax9.0", other);
  agents_.Change("host-a", [&](Host& own) {
    v1::DeviceGrant grant;
    grant.set_slot(1);
    grant.set_serial(77);
    grant.set_device("cmm-0");
    grant.set_mark(other->mark->id());
    grant.set_length_bytes(kUnit);
    own.grants.push_back(grant);
  });
  Open();
  for (int look = 0; look < 2; ++look) {
    const FabricView view = Discover();
    EXPECT_TRUE(view.bound.empty());
    EXPECT_EQ(view.hosts[0].slots.front(), 2u);
  }
}

// --- What the hosts see.

TEST_F(SharedBackendTest, WhatEachHostSeesIsShownAndNothingIsChanged) {
  auto others = NewStorage();
  others->mark = MarkOf("another-pool", "cmm-7");
  Give("host-b", "dax0.0", others);
  auto damaged = NewStorage();
  damaged->damaged = true;
  Give("host-b", "dax2.0", damaged);
  tables_.devices.clear();
  Open();
  Connect({"host-a", "host-b"});
  const auto show = [&](const std::string& host) {
    return WaitForAnswer<absl::StatusOr<SeenDevices>>(
        [&](auto done) { driver_->ShowDevices(host, std::move(done)); });
  };
  const auto seen = show("");
  ASSERT_TRUE(seen.ok()) << seen.status();
  ASSERT_EQ(seen->devices.size(), 4u);
  EXPECT_EQ(seen->devices[0].host, "host-a");
  EXPECT_EQ(seen->devices[0].name, "dax0.0");
  EXPECT_EQ(seen->devices[0].size_bytes, 9 * kUnit);
  EXPECT_EQ(seen->devices[0].mark, SeenDevice::Mark::kNone);
  EXPECT_EQ(seen->devices[1].name, "dax0.0") << "in order of host and name";
  EXPECT_EQ(seen->devices[1].mark, SeenDevice::Mark::kOtherPool);
  EXPECT_EQ(seen->devices[1].marked_device, "cmm-7");
  EXPECT_EQ(seen->devices[1].marked_pool, "another-pool");
  EXPECT_EQ(seen->devices[3].name, "dax2.0");
  EXPECT_NE(seen->devices[3].unfit_reason, "");
  ASSERT_EQ(seen->silent.size(), 1u);
  EXPECT_TRUE(seen->silent.contains("host-c"));
  EXPECT_FALSE(storage_->mark.has_value());

  ASSERT_EQ(show("host-a")->devices.size(), 1u);
  EXPECT_EQ(ReasonOf(show("host-x").status()), "UNKNOWN_HOST");

  agents_.Hang("host-b", true);
  const auto some = show("");
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ(some->devices.size(), 1u);
  EXPECT_TRUE(some->silent.contains("host-b"));
  agents_.Hang("host-b", false);
}

TEST_F(SharedBackendTest, OnlyAHostThatWasAskedIsSaidNotToReachADevice) {
  Open();
  Connect({"host-a"});
  ASSERT_TRUE(Discover().Shows("cmm-0"));
  EXPECT_TRUE(ShownHost("host-a").unreached.empty());
  const auto comes = [&](auto is_so) {
    for (const absl::Time end = absl::Now() + absl::Seconds(20); absl::Now() < end;) {
      if (is_so()) return true;
    }
    return false;
  };
  Connect({"host-c"});  // It shows no device at all.
  EXPECT_TRUE(comes([&] { return ShownHost("host-c").unreached.contains("cmm-0"); }));
  EXPECT_TRUE(absl::StrContains(ShownHost("host-c").unreached["cmm-0"], "no device"));
  Give("host-c", "dax5.0", storage_);
  EXPECT_TRUE(comes([&] { return ShownHost("host-c").unreached.empty(); }));
  EXPECT_TRUE(ShownHost("host-b").unreached.empty()) << "has no session";
}

TEST_F(SharedBackendTest, ADeviceOfThePoolIsShownAsIt) {
  Open();
  Connect({"host-a"});
  ASSERT_TRUE(Discover().Shows("cmm-0"));
  const auto seen = WaitForAnswer<absl::StatusOr<SeenDevices>>(
      [&](auto done) { driver_->ShowDevices("host-a", std::move(done)); });
  ASSERT_TRUE(seen.ok()) << seen.status();
  ASSERT_EQ(seen->devices.size(), 1u);
  EXPECT_EQ(seen->devices[0].mark, SeenDevice::Mark::kThisPool);
  EXPECT_EQ(seen->devices[0].marked_device, "cmm-0");
  EXPECT_EQ(seen->devices[0].reserved_bytes, kUnit);
}

}  // namespace
}  // namespace cxlpool::fm
