#include "host-agent/service/fault_service.h"

#include <gtest/gtest.h>

#include "host-agent/service/local_service.h"
#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

const LocalPeer kReader = {.connection = 10, .uid = 1000, .pid = 4711};

struct FaultRig : CoreRig {
  std::unique_ptr<LocalService> service;
  std::map<uint64_t, v1::LocalResponse> answers;

  FaultRig() {
    LocalPolicy policy;
    policy.agent_uid = 990;
    service =
        std::make_unique<LocalService>(policy, core.get(), &executor, &executor, &memory, &link);
    memory.plugged = {{1, 0x51}, {2, 0x52}};
    Start();
    v1::Offer others = MakeOffer(2, v1::Offer::WANT_ONLINE, {{2, 0x52}});
    others.set_tenant("tenants/others");
    Connect({MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, 0x51}}), others});
  }

  void Ask(uint64_t after, uint32_t wait_ms, LocalPeer peer = kReader) {
    v1::LocalRequest request;
    request.set_protocol_version(kLocalProtocolVersion);
    request.mutable_faults()->set_after(after);
    request.mutable_faults()->set_wait_ms(wait_ms);
    service->Handle(peer, std::move(request), [this, id = peer.connection](LocalReply reply) {
      answers[id] = std::move(reply.response);
    });
    executor.RunReady();
  }
  v1::LocalResponse Answer(uint64_t connection = kReader.connection) {
    EXPECT_TRUE(answers.contains(connection));
    v1::LocalResponse answer = answers[connection];
    answers.erase(connection);
    return answer;
  }

  void Lose(uint64_t serial, uint64_t dpa) {
    v1::HostEvent event;
    event.set_serial(serial);
    event.set_kind(v1::HostEvent::POISON);
    event.set_bytes_lost(true);
    event.set_dpa_bytes(dpa);
    event.set_length_bytes(64);
    event.set_text(std::string(200, 'p'));
    core->TakeEvents({event});
    executor.RunReady();
  }
};

TEST(FaultServiceTest, AWaitEndsWithTheFault) {
  FaultRig rig;
  rig.Ask(0, 60'000);
  EXPECT_TRUE(rig.answers.empty());
  rig.Lose(0x51, 4096);
  const v1::LocalResponse answer = rig.Answer();
  ASSERT_EQ(answer.faults().faults_size(), 1);
  const v1::LocalFault& fault = answer.faults().faults(0);
  EXPECT_EQ(fault.name(), "regions/r1");
  EXPECT_EQ(fault.tag(), "tag-1");
  EXPECT_EQ(fault.region_offset_bytes(), 4096u);
  EXPECT_EQ(fault.length_bytes(), 64u);
  EXPECT_EQ(fault.message(), std::string(200, 'p'));
}

TEST(FaultServiceTest, AWaitEndsInTime) {
  FaultRig rig;
  rig.Ask(0, 1000);
  rig.executor.Advance(absl::Milliseconds(999));
  EXPECT_TRUE(rig.answers.empty());
  rig.executor.Advance(absl::Milliseconds(1));
  EXPECT_EQ(rig.Answer().faults().faults_size(), 0);
  rig.Ask(0, 3'600'000);
  rig.executor.Advance(kMaxFaultsWait);
  EXPECT_EQ(rig.Answer().faults().faults_size(), 0);
}

TEST(FaultServiceTest, EachIsToldOnce) {
  FaultRig rig;
  rig.Lose(0x51, 0);
  rig.Ask(0, 0);
  const v1::LocalResponse first = rig.Answer();
  ASSERT_EQ(first.faults().faults_size(), 1);
  rig.Ask(first.faults().last(), 1000);
  EXPECT_TRUE(rig.answers.empty());
  rig.Lose(0x51, 128);
  const v1::LocalResponse second = rig.Answer();
  ASSERT_EQ(second.faults().faults_size(), 1);
  EXPECT_EQ(second.faults().faults(0).region_offset_bytes(), 128u);
}

TEST(FaultServiceTest, NobodyHearsOfAnotherTenantsRegions) {
  FaultRig rig;
  rig.Ask(0, 1000);
  const LocalPeer root = {.connection = 11, .uid = 0, .pid = 1};
  rig.Ask(0, 1000, root);
  rig.Lose(0x52, 0);
  EXPECT_FALSE(rig.answers.contains(kReader.connection));
  EXPECT_EQ(rig.Answer(root.connection).faults().faults_size(), 1);
  rig.Lose(0x51, 0);
  ASSERT_EQ(rig.Answer().faults().faults_size(), 1);
}

TEST(FaultServiceTest, AnAnswerFitsAPacketAndTheNextHasTheRest) {
  FaultRig rig;
  for (uint64_t i = 0; i < 256; ++i) rig.Lose(0x51, i * 64);
  uint64_t after = 0;
  uint64_t expected = 0;
  int answers = 0;
  while (expected < 256 * 64) {
    rig.Ask(after, 0);
    const v1::LocalResponse answer = rig.Answer();
    ASSERT_GT(answer.faults().faults_size(), 0);
    EXPECT_LT(answer.ByteSizeLong(), size_t{64} << 10);
    for (const v1::LocalFault& fault : answer.faults().faults()) {
      EXPECT_EQ(fault.region_offset_bytes(), expected);
      expected += 64;
    }
    after = answer.faults().last();
    ++answers;
  }
  EXPECT_GT(answers, 1);
}

TEST(FaultServiceTest, ANumberOfAnEarlierAgentMeansNothing) {
  FaultRig rig;
  rig.Lose(0x51, 0);
  rig.Ask(4711, 0);
  EXPECT_EQ(rig.Answer().faults().faults_size(), 1);
}

TEST(FaultServiceTest, AConnectionThatEndedIsNotAnswered) {
  FaultRig rig;
  rig.Ask(0, 60'000);
  rig.service->ConnectionEnded(kReader.connection);
  rig.Lose(0x51, 0);
  rig.executor.Advance(absl::Minutes(2));
  EXPECT_TRUE(rig.answers.empty());
}

TEST(FaultServiceTest, OneRequestAtATime) {
  FaultRig rig;
  rig.Ask(0, 60'000);
  rig.Ask(0, 0);
  EXPECT_EQ(rig.Answer().error().reason(), "REQUEST_PENDING");
}

}  // namespace
}  // namespace cxlpool::agent
