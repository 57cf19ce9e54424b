#include "host-agent/service/readiness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "proto/support/refusal.h"
#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kDeviceSerial = 0xc000000000000001;

struct ReadinessTest : testing::Test {
  CoreRig rig;
  std::vector<std::string> said;
  Readiness readiness{rig.core.get(), "10.0.0.1:7600", &rig.executor, &rig.executor,
                      [this](absl::string_view text) { said.emplace_back(text); }};

  void Start() {
    rig.core->Start([](absl::Status) {});
    readiness.Start();
    rig.executor.RunReady();
  }
  int Readies() const { return static_cast<int>(std::count(said.begin(), said.end(), "READY=1")); }
  std::string Status() const {
    const auto status = std::find_if(said.rbegin(), said.rend(), [](const std::string& text) {
      return text.rfind("STATUS=", 0) == 0;
    });
    return status == said.rend() ? "" : *status;
  }
};

TEST_F(ReadinessTest, ReadyOnceTheHostIsAsTheManagerWantsIt) {
  Start();
  EXPECT_EQ(said[0], "STATUS=the host is being prepared");
  rig.executor.Advance(absl::Seconds(1));
  EXPECT_EQ(Readies(), 0);
  EXPECT_THAT(Status(), HasSubstr("waiting for the fabric manager at 10.0.0.1:7600"));
  rig.Connect();
  rig.executor.Advance(absl::Milliseconds(200));
  EXPECT_EQ(Readies(), 1);
  EXPECT_EQ(Status(), "STATUS=in a session with the fabric manager at 10.0.0.1:7600");
  rig.executor.Advance(absl::Minutes(5));
  EXPECT_EQ(Readies(), 1);
}

TEST_F(ReadinessTest, NotReadyWhileTheFirstOffersAreCarriedOut) {
  rig.memory.plugged[1] = kDeviceSerial;
  rig.memory.silent.insert("PowerOn");
  Start();
  rig.Connect({MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, kDeviceSerial}})});
  rig.executor.Advance(absl::Seconds(5));
  EXPECT_EQ(Readies(), 0);
  EXPECT_EQ(Status(), "STATUS=bringing the host to what the fabric manager wants");
  rig.memory.Resume();
  rig.executor.Advance(absl::Seconds(1));
  EXPECT_EQ(Readies(), 1);
}

TEST_F(ReadinessTest, RungThatFailsDoesNotHoldItUp) {
  rig.memory.failures["PowerOn"] = absl::DeadlineExceededError("no memdev");
  Start();
  rig.Connect({MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, kDeviceSerial}})});
  rig.executor.Advance(absl::Seconds(1));
  EXPECT_EQ(Readies(), 1);
}

TEST_F(ReadinessTest, WithoutAManagerReadyAfterTheDeadline) {
  Start();
  rig.executor.Advance(kReadyDeadline - absl::Milliseconds(1));
  EXPECT_EQ(Readies(), 0);
  rig.executor.Advance(absl::Milliseconds(200));
  EXPECT_EQ(Readies(), 1);
  EXPECT_THAT(Status(), HasSubstr("waiting for the fabric manager"));
  rig.Connect();
  rig.executor.Advance(absl::Seconds(2));
  EXPECT_EQ(Readies(), 1);
  EXPECT_THAT(Status(), HasSubstr("in a session with the fabric manager"));
}

TEST_F(ReadinessTest, UnfitHostIsNotReadyBeforeTheDeadlineAndSaysWhy) {
  rig.memory.prepare = Refuse(absl::StatusCode::kFailedPrecondition, "HOST_UNFIT",
                              "no driver\nkmem", "modprobe kmem");
  Start();
  rig.Connect();
  rig.executor.Advance(kReadyDeadline - absl::Milliseconds(1));
  EXPECT_EQ(Readies(), 0);
  rig.executor.Advance(absl::Milliseconds(200));
  EXPECT_EQ(Readies(), 1);
  EXPECT_EQ(Status(),
            "STATUS=HOST_UNFIT: no driver kmem (modprobe kmem); cxlpool-agent check shows more");
}

TEST_F(ReadinessTest, ALongStatusIsCutBetweenCharacters) {
  std::string words;
  for (int i = 0; i < 1000; ++i) words += "\xe2\x82\xac";  // Of three bytes: 1024 is no multiple.
  rig.memory.prepare = absl::FailedPreconditionError(words);
  Start();
  rig.executor.Advance(absl::Seconds(1));
  EXPECT_EQ(Status(), "STATUS=" + words.substr(0, 1023));
}

TEST_F(ReadinessTest, ARefusalIsTheStatus) {
  Start();
  rig.executor.Advance(absl::Seconds(1));
  const absl::Status refusal = Refuse(absl::StatusCode::kPermissionDenied, "NOT_ENROLLED",
                                      "no host in service is enrolled as cxlpool://host/host-a",
                                      "run `cxlpool host enrol host-a`");
  rig.link.handlers.on_lost(refusal, true);
  rig.executor.Advance(absl::Seconds(2));
  EXPECT_THAT(Status(), HasSubstr("STATUS=refused: NOT_ENROLLED: no host in service is enrolled"));
  EXPECT_THAT(Status(), HasSubstr("cxlpool host enrol host-a"));
  rig.Connect();
  rig.executor.Advance(absl::Seconds(2));
  EXPECT_THAT(Status(), HasSubstr("in a session with"));
}

TEST_F(ReadinessTest, HostThatIsRepairedInTimeIsReadyThen) {
  rig.memory.prepare = absl::FailedPreconditionError("not yet");
  Start();
  rig.Connect();
  rig.executor.Advance(absl::Seconds(1));
  EXPECT_EQ(Status(), "STATUS=not yet");
  rig.memory.prepare = absl::OkStatus();
  rig.executor.Advance(kMaxBackoff);
  EXPECT_EQ(Readies(), 1);
  EXPECT_THAT(Status(), HasSubstr("in a session with"));
}

TEST_F(ReadinessTest, SessionThatIsLostIsTold) {
  Start();
  rig.Connect();
  rig.executor.Advance(absl::Seconds(1));
  rig.link.handlers.on_lost(absl::UnavailableError("gone"), false);
  rig.executor.Advance(absl::Seconds(2));
  EXPECT_THAT(Status(), HasSubstr("STATUS=no session with the fabric manager"));
  EXPECT_EQ(Readies(), 1);
}

}  // namespace
}  // namespace cxlpool::agent
