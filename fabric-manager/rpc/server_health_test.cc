#include "fabric-manager/rpc/server_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"
#include "test/rigs/manual_executor.h"

namespace cxlpool::fm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ServerHealthTest : public ::testing::Test {
 protected:
  void Refuse(const std::string& address, bool is_agent) {
    refused.Note(is_agent ? "an agent" : "a call", address, "NOT_ENROLLED",
                 "no host in service is enrolled as cxlpool://host/host-z",
                 "run `cxlpool host enrol host-z`", is_agent);
  }
  static absl::Status Full() {
    return cxlpool::Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL", "no space on /store",
                           "make some", {{"folder", "/store"}});
  }

  ManualExecutor executor;
  RefusedPeers refused{&executor};
  HealthRpc health;
  ServerHealth self{&executor, &executor, &health, &refused};
};

TEST_F(ServerHealthTest, ServesFromWhenItIsSaidAndUntilItEnds) {
  EXPECT_FALSE(health.serving());
  self.SetServing(true);
  EXPECT_TRUE(health.serving());
  self.SetServing(false);
  EXPECT_FALSE(health.serving());
}

TEST_F(ServerHealthTest, AFullStoreIsSaidUntilItTakesAChange) {
  self.SetServing(true);
  self.NoteStore(Full());
  EXPECT_FALSE(health.serving());
  ASSERT_THAT(self.Findings(), SizeIs(1));
  const Finding finding = self.Findings()[0];
  EXPECT_EQ(finding.problem, "STORE_FULL");
  EXPECT_THAT(finding.text, HasSubstr("no space on /store"));
  EXPECT_THAT(finding.commands,
              ElementsAre("on the manager's machine: df --human-readable /store",
                          "on the manager's machine: du --all --human-readable /store"));
  executor.Advance(absl::Minutes(10));
  EXPECT_FALSE(health.serving()) << "it is still full";
  EXPECT_EQ(self.Findings()[0].since, finding.since) << "since the first of them";
  self.NoteStore(absl::OkStatus());
  EXPECT_THAT(self.Findings(), IsEmpty());
  EXPECT_TRUE(health.serving());
}

// Whoever asks for health first does not make the change that shows that there is space.
TEST_F(ServerHealthTest, AFullStoreIsTriedUntilItTakesAChange) {
  int tries = 0;
  absl::Status store = Full();
  ServerHealth* trying = nullptr;
  const auto try_store = [&] {
    ++tries;
    trying->NoteStore(store);
  };
  ServerHealth own(&executor, &executor, &health, &refused, {.try_store = try_store});
  trying = &own;
  own.SetServing(true);
  executor.Advance(absl::Minutes(1));
  EXPECT_EQ(tries, 0) << "it took all";
  own.NoteStore(Full());
  own.NoteStore(Full());
  executor.Advance(absl::Seconds(35));
  EXPECT_EQ(tries, 3);
  EXPECT_FALSE(health.serving());
  store = absl::OkStatus();
  executor.Advance(absl::Seconds(10));
  EXPECT_EQ(tries, 4);
  EXPECT_TRUE(health.serving());
  executor.Advance(absl::Minutes(1));
  EXPECT_EQ(tries, 4) << "there is no reason to";
  store = Full();
  own.NoteStore(store);
  executor.Advance(absl::Seconds(10));
  EXPECT_EQ(tries, 5) << "full once more";
  store = absl::OkStatus();
  executor.Advance(absl::Seconds(10));
}

// What is left is enough for a try and for no change.
TEST_F(ServerHealthTest, AStoreThatTakesNothingButTriesIsTriedMoreAndMoreSeldom) {
  int tries = 0;
  ServerHealth* trying = nullptr;
  const auto try_store = [&] {
    ++tries;
    trying->NoteStore(absl::OkStatus());
  };
  ServerHealth own(&executor, &executor, &health, &refused, {.try_store = try_store});
  trying = &own;
  own.SetServing(true);
  std::vector<absl::Duration> waits;
  for (int i = 0; i < 7; ++i) {
    own.NoteStore(Full());
    const absl::Duration began = executor.Elapsed();
    for (int step = 0; step < 100 && !health.serving(); ++step) {
      executor.Advance(absl::Seconds(5));
    }
    waits.push_back(executor.Elapsed() - began);
    executor.Advance(absl::Seconds(5));
  }
  EXPECT_THAT(
      waits, ElementsAre(absl::Seconds(10), absl::Seconds(20), absl::Seconds(40), absl::Seconds(80),
                         absl::Seconds(160), absl::Minutes(5), absl::Minutes(5)));
  EXPECT_EQ(tries, 7);
  executor.Advance(ServerHealth::kSettles);
  own.NoteStore(Full());
  executor.Advance(absl::Seconds(10));
  EXPECT_EQ(tries, 8) << "it took changes for a minute";
}

TEST_F(ServerHealthTest, AFullStoreIsInTheLogWhenItBeginsAndWhenItIsOver) {
  const auto log_of = [this](const absl::Status& status) {
    testing::internal::CaptureStderr();
    self.NoteStore(status);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(log_of(Full()), HasSubstr("no space on /store"));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(log_of(Full()), "") << "said once";
  EXPECT_THAT(log_of(absl::OkStatus()), HasSubstr("there is space again"));
  EXPECT_EQ(log_of(absl::OkStatus()), "");
  EXPECT_EQ(log_of(Full()), "") << "it comes and goes: not a line each time";
  executor.Advance(absl::Minutes(2));
  EXPECT_THAT(log_of(Full()), HasSubstr("no space on /store")) << "it is still so";
}

TEST_F(ServerHealthTest, AChangeThatTheStoreTookDoesNotMakeAnEndedServerServe) {
  self.SetServing(true);
  self.NoteStore(Full());
  self.SetServing(false);
  self.NoteStore(absl::OkStatus());
  EXPECT_FALSE(health.serving());
}

TEST_F(ServerHealthTest, SaysWhatIsWrongWithTheManagerItself) {
  Meters meters;
  CertificateEnd end{"the certificate in fm.pem", {}, "run `cxlpool pki renew manager fm`"};
  end.facts.not_after = executor.Now() + absl::Hours(15 * 24);
  const ServerHealth own(
      &executor, &executor, &health, &refused,
      {&meters, [&] { return std::vector<CertificateEnd>{end}; }, "/srv/pool.db"});
  const auto problems = [&own] {
    std::vector<std::string> problems;
    for (const Finding& finding : own.Findings()) problems.push_back(finding.problem);
    return problems;
  };
  EXPECT_THAT(problems(), IsEmpty());
  executor.Advance(absl::Hours(23));
  EXPECT_THAT(problems(), IsEmpty());
  executor.Advance(absl::Hours(2));
  EXPECT_THAT(problems(), ElementsAre("CERTIFICATE_ENDS", "BACKUP_OLD"));
  EXPECT_EQ(own.Findings()[1].text, "no backup was taken since the manager started");
  meters.last_backup_s = absl::ToUnixSeconds(executor.Now());
  EXPECT_THAT(problems(), ElementsAre("CERTIFICATE_ENDS"));
  EXPECT_EQ(own.Findings()[0].urgency, Urgency::kNote);
  EXPECT_THAT(own.Findings()[0].commands, ElementsAre("cxlpool pki renew manager fm"));
  end.is_reloaded = true;
  EXPECT_THAT(own.Findings()[0].commands,
              ElementsAre("cxlpool pki renew manager fm",
                          "on the manager's machine: systemctl reload cxlpool-fm"));
  end.facts.not_after = executor.Now();
  EXPECT_EQ(own.Findings()[0].urgency, Urgency::kWrong);
  end.facts.not_after = absl::InfiniteFuture();
  meters.audit_chain_ok = false;
  ASSERT_THAT(problems(), ElementsAre("AUDIT_ALTERED"));
  EXPECT_EQ(own.Findings()[0].urgency, Urgency::kWrong);
  EXPECT_EQ(own.Findings()[0].commands[3],
            "on the manager's machine: runuser -u cxlpool -- cxlpool fsck /srv/pool.db --repair");
  executor.Advance(absl::Hours(25));
  EXPECT_THAT(problems(), ElementsAre("AUDIT_ALTERED", "BACKUP_OLD"));
  EXPECT_THAT(own.Findings()[1].text, HasSubstr("the last backup was taken at "));
}

TEST_F(ServerHealthTest, RefusedPeersAreSaidWithTheCommandThatLetsThemIn) {
  Refuse("ipv4:10.0.0.7", true);
  executor.Advance(absl::Seconds(30));
  Refuse("ipv4:10.0.0.7", true);
  executor.Advance(absl::Seconds(5));
  ASSERT_THAT(self.Findings(), SizeIs(1));
  const Finding finding = self.Findings()[0];
  EXPECT_EQ(finding.urgency, Urgency::kWrong);
  EXPECT_EQ(finding.problem, "PEER_REFUSED");
  EXPECT_EQ(finding.text,
            "an agent from ipv4:10.0.0.7 was refused 2 times, last 5s ago: NOT_ENROLLED: no host "
            "in service is "
            "enrolled as cxlpool://host/host-z");
  EXPECT_THAT(finding.commands, ElementsAre("cxlpool host enrol host-z"));
}

TEST_F(ServerHealthTest, RefusedPeersAreForgottenOnceTheyAreQuiet) {
  Refuse("ipv4:10.0.0.7", true);
  Refuse("ipv4:10.0.0.8", false);
  EXPECT_EQ(self.Findings()[0].urgency, Urgency::kNote);
  for (int minute = 0; minute < 5; ++minute) {
    executor.Advance(absl::Seconds(61));
    refused.Tick();
    Refuse("ipv4:10.0.0.7", true);  // As an agent does.
  }
  EXPECT_THAT(self.Findings(), SizeIs(1));
  for (int minute = 0; minute < 3; ++minute) {
    executor.Advance(absl::Seconds(61));
    refused.Tick();
  }
  EXPECT_THAT(self.Findings(), IsEmpty());
}

TEST_F(ServerHealthTest, RefusedPeersTakeNoMoreThanTheirRoom) {
  for (int i = 0; i < 1000; ++i) Refuse(absl::StrCat("ipv4:10.0.0.", i), false);
  EXPECT_THAT(self.Findings(), SizeIs(RefusedPeers::kMaxLines));
  refused.Note("a call", "x", "y", std::string(1 << 20, 'a'));
  for (const Finding& finding : self.Findings()) EXPECT_LT(finding.text.size(), 2000u);
}

TEST_F(ServerHealthTest, WhatIsSaidOfAPeerIsCutBetweenCharacters) {
  std::string text(RefusedPeers::kMaxText - 1, 'x');
  refused.Note("an agent", "ipv4:10.0.0.1", "NOT_ENROLLED", text + "\xc3\xbc", text + "\xc3\xbc",
               true);
  ASSERT_THAT(refused.Latest(), SizeIs(1));
  EXPECT_EQ(refused.Latest()[0].detail, text);
  EXPECT_EQ(refused.Latest()[0].remedy, text);
}

}  // namespace
}  // namespace cxlpool::fm
