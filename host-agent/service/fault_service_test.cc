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
  uint64_t sized = 0;  // The number of the last of the sizes that are there at first.

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
    sized = core->faults().last_sequence();
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

  // The first Region, with so many segments of kTestLength.
  void Resize(int segments) {
    v1::Offer offer = MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, 0x51}, {3, 0x53}});
    memory.plugged[3] = 0x53;
    if (segments < 2) offer.mutable_segments(1)->set_want(v1::Offer::WANT_OFFLINE);
    Offer(offer);
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
  rig.Ask(rig.sized, 60'000);
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
  rig.Ask(rig.sized, 1000);
  rig.executor.Advance(absl::Milliseconds(999));
  EXPECT_TRUE(rig.answers.empty());
  rig.executor.Advance(absl::Milliseconds(1));
  EXPECT_EQ(rig.Answer().faults().faults_size(), 0);
  rig.Ask(rig.sized, 3'600'000);
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
  rig.Ask(rig.sized, 1000);
  const LocalPeer root = {.connection = 11, .uid = 0, .pid = 1};
  rig.Ask(rig.sized, 1000, root);
  rig.Lose(0x52, 0);
  EXPECT_FALSE(rig.answers.contains(kReader.connection));
  EXPECT_EQ(rig.Answer(root.connection).faults().faults_size(), 1);
  rig.Lose(0x51, 0);
  ASSERT_EQ(rig.Answer().faults().faults_size(), 1);
}

TEST(FaultServiceTest, AnAnswerFitsAPacketAndTheNextHasTheRest) {
  FaultRig rig;
  for (uint64_t i = 0; i < 256; ++i) rig.Lose(0x51, i * 64);
  uint64_t after = rig.sized;
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

TEST(FaultServiceTest, SizesAreToldAtFirstAndWhenTheyChange) {
  FaultRig rig;
  rig.Ask(0, 60'000);
  v1::LocalResponse answer = rig.Answer();
  ASSERT_EQ(answer.faults().sizes_size(), 1);
  EXPECT_EQ(answer.faults().sizes(0).name(), "regions/r1");
  EXPECT_EQ(answer.faults().sizes(0).tag(), "tag-1");
  EXPECT_EQ(answer.faults().sizes(0).size_bytes(), kTestLength);

  rig.Ask(answer.faults().last(), 60'000);
  EXPECT_TRUE(rig.answers.empty());
  rig.Resize(2);
  answer = rig.Answer();
  ASSERT_EQ(answer.faults().sizes_size(), 1);
  EXPECT_EQ(answer.faults().sizes(0).size_bytes(), 2 * kTestLength);
  EXPECT_EQ(answer.faults().faults_size(), 0);

  rig.Ask(answer.faults().last(), 60'000);
  EXPECT_TRUE(rig.answers.empty());
  rig.Resize(1);
  answer = rig.Answer();
  ASSERT_EQ(answer.faults().sizes_size(), 1);
  EXPECT_EQ(answer.faults().sizes(0).size_bytes(), kTestLength);
}

TEST(FaultServiceTest, OneWaitIsForFaultsAndSizesInEitherOrder) {
  for (const bool fault_first : {true, false}) {
    FaultRig rig;
    if (fault_first) rig.Lose(0x51, 0);
    rig.Resize(2);
    if (!fault_first) rig.Lose(0x51, 0);
    // Both came between two calls: the next has both, and the one after it waits.
    rig.Ask(rig.sized, 60'000);
    const v1::LocalResponse answer = rig.Answer();
    EXPECT_EQ(answer.faults().faults_size(), 1);
    EXPECT_EQ(answer.faults().sizes_size(), 1);
    rig.Ask(answer.faults().last(), 60'000);
    EXPECT_TRUE(rig.answers.empty());
  }
}

TEST(FaultServiceTest, EveryConnectionThatWaitsHearsOfAGrowth) {
  FaultRig rig;
  LocalPeer second = kReader;
  second.connection = 11;
  rig.Ask(rig.sized, 60'000);
  rig.Ask(rig.sized, 60'000, second);
  rig.Resize(2);
  EXPECT_EQ(rig.Answer().faults().sizes_size(), 1);
  EXPECT_EQ(rig.Answer(second.connection).faults().sizes_size(), 1);
}

TEST(FaultServiceTest, NobodyHearsOfTheSizeOfAnotherTenantsRegion) {
  FaultRig rig;
  const LocalPeer stranger = {.connection = 12, .uid = 1001, .pid = 4712};
  rig.Ask(0, 1000, stranger);
  rig.Resize(2);
  EXPECT_FALSE(rig.answers.contains(stranger.connection));
  rig.executor.Advance(absl::Seconds(1));
  const v1::LocalResponse answer = rig.Answer(stranger.connection);
  EXPECT_EQ(answer.faults().sizes_size(), 0);
}

TEST(FaultServiceTest, OfManyFaultsAndSizesEachIsToldInSomeAnswer) {
  for (const bool size_first : {true, false}) {
    FaultRig rig;
    for (uint64_t i = 0; i < 250; ++i) rig.Lose(0x51, i * 64);
    if (!size_first) rig.Resize(2);
    uint64_t after = 0;
    int faults = 0;
    std::vector<uint64_t> sizes;
    for (int i = 0; i < 10 && after < rig.core->faults().last_sequence(); ++i) {
      rig.Ask(after, 0);
      const v1::LocalResponse answer = rig.Answer();
      EXPECT_LT(answer.ByteSizeLong(), size_t{64} << 10);
      faults += answer.faults().faults_size();
      for (const v1::LocalSize& size : answer.faults().sizes()) sizes.push_back(size.size_bytes());
      after = answer.faults().last();
    }
    EXPECT_EQ(after, rig.core->faults().last_sequence());
    EXPECT_EQ(faults, 250);
    EXPECT_EQ(sizes, std::vector<uint64_t>{(size_first ? 1 : 2) * kTestLength});
  }
}

TEST(FaultServiceTest, ANumberOfAnEarlierAgentMeansNothing) {
  FaultRig rig;
  rig.Lose(0x51, 0);
  rig.Ask(4711, 0);
  EXPECT_EQ(rig.Answer().faults().faults_size(), 1);
}

TEST(FaultServiceTest, AConnectionThatEndedIsNotAnswered) {
  FaultRig rig;
  rig.Ask(rig.sized, 60'000);
  rig.service->ConnectionEnded(kReader.connection);
  rig.Lose(0x51, 0);
  rig.executor.Advance(absl::Minutes(2));
  EXPECT_TRUE(rig.answers.empty());
}

TEST(FaultServiceTest, OneRequestAtATime) {
  FaultRig rig;
  rig.Ask(rig.sized, 60'000);
  rig.Ask(0, 0);
  EXPECT_EQ(rig.Answer().error().reason(), "REQUEST_PENDING");
}

}  // namespace
}  // namespace cxlpool::agent
