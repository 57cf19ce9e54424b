// Who clears, who reads back, and who has to be heard before anybody gets the bytes.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "test/rigs/shared_backend_fixture.h"

namespace cxlpool::fm {
namespace {

TEST_F(SharedBackendTest, WhoLetGoClearsAndAnotherReadsBack) {
  const auto ld = OpenAndBind(2);
  ASSERT_TRUE(ld.ok()) << ld.status();
  storage_->bytes[ld->slice.dpa_bytes] = 'x';
  ASSERT_TRUE(BeginUnbind(ld->binding()).ok());
  ASSERT_TRUE(AwaitUnbound(ld->binding()).ok());
  ASSERT_TRUE(Scrub(ld->slice).ok());
  EXPECT_TRUE(storage_->bytes.empty());
  EXPECT_EQ(Count("host-b", &Host::clears), 2) << "in pieces";
  EXPECT_EQ(Count("host-b", &Host::checks), 0);
  EXPECT_EQ(Count("host-a", &Host::clears), 0);
  EXPECT_EQ(Count("host-a", &Host::checks), 2);
}

TEST_F(SharedBackendTest, PiecesAreWhatTheDeviceIsAlignedTo) {
  storage_->align_bytes = kUnit;
  Connect({"host-a"});
  Open();
  Discover();
  ASSERT_TRUE(Scrub({"cmm-0", 0, 2 * kUnit}).ok());
  EXPECT_EQ(Count("host-a", &Host::clears), 2);
}

TEST_F(SharedBackendTest, AGranuleThatTheDeviceCannotBeCutIntoIsSaid) {
  storage_->align_bytes = 4 * kUnit;
  Connect({"host-a"});
  Open();
  EXPECT_TRUE(absl::StrContains(Missing(), "in multiples of 4 MiB")) << Missing();
  EXPECT_FALSE(storage_->mark.has_value());
}

TEST_F(SharedBackendTest, WhatIsNotZeroAfterwardsIsNotClear) {
  Connect({"host-a", "host-b"});
  agents_.Change("host-a", [](Host& own) { own.clear_does_nothing = true; });
  Open();
  Discover();
  storage_->bytes[0] = 'x';
  EXPECT_EQ(ReasonOf(Scrub({"cmm-0", 0, kUnit})), "NOT_ZERO");
}

TEST_F(SharedBackendTest, LostBytesAreGivenToNobodyAndTheOthersAreCleared) {
  Connect({"host-a", "host-b"});
  agents_.Change("host-a", [](Host& own) { own.finds_lost_bytes = true; });
  Open();
  Discover();
  storage_->bytes[0] = 'x';
  storage_->bytes[kUnit] = 'y';
  EXPECT_EQ(ReasonOf(Scrub({"cmm-0", 0, 2 * kUnit})), "NOT_SCRUBBABLE");
  EXPECT_EQ(Count("host-a", &Host::clears), 4);  // Every piece.
  EXPECT_TRUE(storage_->bytes.empty());
}

TEST_F(SharedBackendTest, AnotherHostClearsWhereOneCannot) {
  Connect({"host-a", "host-b"});
  agents_.Change("host-a", [](Host& own) { own.cannot_clear = true; });
  Open();
  Discover();
  storage_->bytes[0] = 'x';
  ASSERT_TRUE(Scrub({"cmm-0", 0, kUnit}).ok());
  EXPECT_EQ(Count("host-b", &Host::clears), 2);
  agents_.Change("host-b", [](Host& own) { own.cannot_clear = true; });
  EXPECT_EQ(ReasonOf(Scrub({"cmm-0", 0, kUnit})), "DAX_CARVE");
}

// That another host could clear them is beside the point: they are not free.
TEST_F(SharedBackendTest, BytesThatSomebodyStillHasAreClearedByNobody) {
  Connect({"host-a", "host-b"});
  Open();
  Discover();
  storage_->bytes[0] = 'x';
  // Host a is asked first, and host b reads back.
  for (const char* has_them : {"host-a", "host-b"}) {
    agents_.Change(has_them, [](Host& own) { own.has_range = true; });
    const absl::Status taken = Scrub({"cmm-0", 0, kUnit});
    EXPECT_EQ(ReasonOf(taken), "RANGE_TAKEN") << taken;
    EXPECT_TRUE(absl::StrContains(taken.message(), absl::StrCat("host ", has_them, " still has")))
        << taken;
    EXPECT_TRUE(absl::StrContains(taken.message(), "dax0.3")) << taken;
    EXPECT_EQ(Count("host-b", &Host::clears), 0);
    agents_.Change(has_them, [](Host& own) { own.has_range = false; });
  }
  EXPECT_TRUE(Scrub({"cmm-0", 0, kUnit}).ok());
  EXPECT_TRUE(storage_->bytes.empty());
}

TEST_F(SharedBackendTest, WithoutAnyHostClearingWaits) {
  Connect({"host-a"});
  Open();
  Discover();
  agents_.Session("host-a", "");
  EXPECT_TRUE(absl::IsUnavailable(Scrub({"cmm-0", 0, kUnit})));
}

// It was asked, and stands still. When it goes on it clears: nobody may have these bytes by then,
// whoever else could have cleared them meanwhile, and whichever manager asks.
TEST_F(SharedBackendTest, WhoeverWasAskedToClearHasToBeHeardBeforeAnybodyGetsTheBytes) {
  OpenAndHangInAClear();
  EXPECT_TRUE(absl::IsUnavailable(Scrub({"cmm-0", 0, kUnit}))) << "though host-b could";
  Open();
  Discover();
  EXPECT_TRUE(absl::IsUnavailable(Scrub({"cmm-0", 0, kUnit}))) << "in another manager's life";
  EXPECT_TRUE(Scrub({"cmm-0", kUnit, kUnit}).ok()) << "other bytes";
  agents_.Session("host-a", "boot-1-host-a");
  EXPECT_FALSE(Scrub({"cmm-0", 0, kUnit}).ok()) << "it still stands";
  agents_.Hang("host-a", false);
  EXPECT_TRUE(Scrub({"cmm-0", 0, kUnit}).ok());
}

// Its agent has other things to do before, and answers looks at once.
TEST_F(SharedBackendTest, AClearThatWaitsForItsTurnIsNotOverWhenALookIsAnswered) {
  Connect({"host-a", "host-b"});
  Open();
  Discover();
  agents_.Change("host-a", [](Host& own) { own.cannot_clear = true; });
  agents_.Change("host-b", [](Host& own) { own.clears_wait = true; });
  EXPECT_EQ(ReasonOf(Scrub({"cmm-0", 0, kUnit})), "NO_ANSWER") << "of host-b";
  agents_.Change("host-a", [](Host& own) { own.cannot_clear = false; });
  EXPECT_FALSE(Scrub({"cmm-0", 0, kUnit}).ok()) << "though host-a could";
  EXPECT_EQ(Count("host-b", &Host::clears), 0);
  agents_.Hang("host-b", false);
  EXPECT_EQ(Count("host-b", &Host::clears), 1) << "late";
  EXPECT_TRUE(Scrub({"cmm-0", 0, kUnit}).ok());
}

// An agent answers for what its kernel does not come to an end with. It goes on all the same.
TEST_F(SharedBackendTest, AClearThatIsStillUnderWayIsNotOver) {
  Connect({"host-a", "host-b"});
  Open();
  Discover();
  agents_.Change("host-a", [](Host& own) { own.hangs_in = v1::DeviceTask::kClear; });
  EXPECT_EQ(ReasonOf(Scrub({"cmm-0", 0, kUnit})), "KERNEL_TIMEOUT");
  EXPECT_FALSE(Scrub({"cmm-0", 0, kUnit}).ok()) << "it has not answered anything later";
  Open();
  Discover();
  EXPECT_FALSE(Scrub({"cmm-0", 0, kUnit}).ok()) << "in another manager's life";
  EXPECT_EQ(Count("host-b", &Host::clears), 0);
  EXPECT_EQ(Count("host-a", &Host::clears), 0);
  agents_.Hang("host-a", false);
  EXPECT_EQ(Count("host-a", &Host::clears), 1) << "late";
  EXPECT_TRUE(Scrub({"cmm-0", 0, kUnit}).ok());
}

// In another manager's life, whose records know host-a in no life: it had nothing.
TEST_F(SharedBackendTest, WhoeverWasAskedToClearAndIsFencedClearsNoMore) {
  GiveFenceProgram(2);
  OpenAndHangInAClear();
  driver_.reset();
  known_ = {};
  Open();
  Discover();
  EXPECT_TRUE(absl::IsUnavailable(Scrub({"cmm-0", 0, kUnit})));
  const absl::Status fenced = Fence("host-a");
  ASSERT_TRUE(fenced.ok()) << fenced;
  EXPECT_TRUE(Scrub({"cmm-0", 0, kUnit}).ok()) << "by host-b";
}

// On this machine nothing is written down of what a manager on another one asked for.
TEST_F(SharedBackendTest, WhereAnotherManagerMayHaveAskedEveryHostIsHeardBeforeAnybodyGetsBytes) {
  OpenAndHangInAClear();
  MoveToAnotherMachine();
  known_.hosts = {{"host-a", "boot-1-host-a"}, {"host-b", "boot-1-host-b"}, {"host-c", ""}};
  Open();
  Discover();
  const absl::Status silent = Scrub({"cmm-0", 0, kUnit});
  EXPECT_TRUE(absl::IsUnavailable(silent)) << silent;
  EXPECT_TRUE(absl::StrContains(silent.message(), "host-a may have been asked")) << silent;
  EXPECT_FALSE(Scrub({"cmm-0", kUnit, kUnit}).ok()) << "nobody knows which bytes it has in hand";
  agents_.Session("host-a", "boot-1-host-a");
  EXPECT_FALSE(Scrub({"cmm-0", 0, kUnit}).ok()) << "it still stands";
  agents_.Hang("host-a", false);
  EXPECT_TRUE(Scrub({"cmm-0", 0, kUnit}).ok());
  agents_.Session("host-a", "");
  EXPECT_TRUE(Scrub({"cmm-0", 0, kUnit}).ok()) << "once is enough";
}

TEST_F(SharedBackendTest, AHostThatIsFencedIsNotWaitedForWhereAnotherManagerMayHaveAsked) {
  OpenElsewhereWithoutHostA();
  EXPECT_TRUE(absl::IsUnavailable(Scrub({"cmm-0", 0, kUnit})));
  const absl::Status fenced = Fence("host-a");
  ASSERT_TRUE(fenced.ok()) << fenced;
  const absl::Status cleared = Scrub({"cmm-0", 0, kUnit});
  EXPECT_TRUE(cleared.ok()) << cleared;
}

// Its next life was not looked at yet, and has ended or not.
TEST_F(SharedBackendTest, AHostThatWasFencedAndCameBackIsWaitedForAgain) {
  OpenElsewhereWithoutHostA();
  ASSERT_TRUE(Fence("host-a").ok());
  agents_.Session("host-a", "boot-2-host-a");
  agents_.Session("host-a", "");
  const absl::Status silent = Scrub({"cmm-0", 0, kUnit});
  EXPECT_TRUE(absl::IsUnavailable(silent)) << silent;
  ASSERT_TRUE(Fence("host-a").ok());
  const absl::Status cleared = Scrub({"cmm-0", 0, kUnit});
  EXPECT_TRUE(cleared.ok()) << cleared;
}

TEST_F(SharedBackendTest, AHostThatAnsweredALookOrIsListedNoMoreIsNotWaitedForEither) {
  Connect({"host-a", "host-b"});
  Open();
  Discover();
  MoveToAnotherMachine();
  Open();
  Discover();
  agents_.Session("host-a", "");
  EXPECT_TRUE(Scrub({"cmm-0", 0, kUnit}).ok()) << "it had answered this manager";

  MoveToAnotherMachine();
  Open();
  Discover();
  EXPECT_TRUE(absl::IsUnavailable(Scrub({"cmm-0", 0, kUnit})));
  std::erase_if(tables_.hosts, [](const HostEntry& host) { return host.id == "host-a"; });
  const absl::Status configured = WaitForAnswer<absl::Status>([&](auto done) {
    driver_->Configure({tables_, known_}, std::move(done));
  });
  ASSERT_TRUE(configured.ok()) << configured;
  EXPECT_TRUE(Scrub({"cmm-0", 0, kUnit}).ok());
}

TEST_F(SharedBackendTest, AHostThatIsRetiredIsNotWaitedFor) {
  Connect({"host-a", "host-b"});
  Open();
  Discover();
  MoveToAnotherMachine();
  agents_.Session("host-a", "");
  Open();
  Discover();
  const auto configure = [&](const std::set<std::string>& retired) {
    const absl::Status configured = WaitForAnswer<absl::Status>([&](auto done) {
      driver_->Configure({tables_, known_, retired}, std::move(done));
    });
    EXPECT_TRUE(configured.ok()) << configured;
  };
  configure({});
  EXPECT_TRUE(absl::IsUnavailable(Scrub({"cmm-0", 0, kUnit})));
  configure({"host-b"});
  EXPECT_TRUE(absl::IsUnavailable(Scrub({"cmm-0", 0, kUnit}))) << "that is another one";
  configure({"host-a"});
  const absl::Status cleared = Scrub({"cmm-0", 0, kUnit});
  EXPECT_TRUE(cleared.ok()) << cleared;
}

// The operator has said that it is off: what this manager asked it for is over, too.
TEST_F(SharedBackendTest, WhoeverWasAskedToClearAndIsRetiredOrListedNoMoreClearsNoMore) {
  OpenAndHangInAClear();
  const auto configure = [&](const std::set<std::string>& retired) {
    const absl::Status configured = WaitForAnswer<absl::Status>([&](auto done) {
      driver_->Configure({tables_, known_, retired}, std::move(done));
    });
    EXPECT_TRUE(configured.ok()) << configured;
  };
  configure({"host-b"});
  EXPECT_TRUE(absl::IsUnavailable(Scrub({"cmm-0", 0, kUnit}))) << "that is another one";
  configure({"host-a"});
  const absl::Status cleared = Scrub({"cmm-0", 0, kUnit});
  EXPECT_TRUE(cleared.ok()) << cleared << ", by host-b";

  agents_.Hang("host-a", false);
  OpenAndHangInAClear();
  std::erase_if(tables_.hosts, [](const HostEntry& host) { return host.id == "host-a"; });
  EXPECT_TRUE(absl::IsUnavailable(Scrub({"cmm-0", 0, kUnit})));
  configure({});
  EXPECT_TRUE(Scrub({"cmm-0", 0, kUnit}).ok()) << "by host-b";
}

// It was asked in the boot before, and that one's end was not heard of.
TEST_F(SharedBackendTest, WhoeverIsFencedClearsNoMoreInEarlierBootsEither) {
  GiveFenceProgram(2);
  OpenAndHangInAClear();
  driver_.reset();
  known_.hosts["host-a"] = "boot-2-host-a";
  Open();
  Discover();
  EXPECT_TRUE(absl::IsUnavailable(Scrub({"cmm-0", 0, kUnit})));
  const absl::Status fenced = Fence("host-a");
  ASSERT_TRUE(fenced.ok()) << fenced;
  EXPECT_TRUE(Scrub({"cmm-0", 0, kUnit}).ok()) << "by host-b";
}

TEST_F(SharedBackendTest, WhoeverWasAskedToClearAndIsInAnotherBootClearsNoMore) {
  OpenAndHangInAClear();
  EXPECT_TRUE(absl::IsUnavailable(Scrub({"cmm-0", 0, kUnit})));
  agents_.Session("host-a", "boot-2-host-a");
  EXPECT_TRUE(Scrub({"cmm-0", 0, kUnit}).ok()) << "by host-b: host-a is not proven yet";
}

}  // namespace
}  // namespace cxlpool::fm
