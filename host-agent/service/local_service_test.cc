#include "host-agent/service/local_service.h"

#include <gtest/gtest.h>

#include "test/rigs/core_rig.h"
#include "test/rigs/fake_device_paths.h"

namespace cxlpool::agent {
namespace {

const LocalPeer kUser = {.connection = 10, .uid = 1000, .pid = 4711, .start_ticks = 99};

struct LocalRig : CoreRig {
  explicit LocalRig(LocalPolicy policy = {}) {
    policy.agent_uid = 990;
    service = std::make_unique<LocalService>(policy, core.get(), &executor, &executor, &memory,
                                             &link, &paths);
    service->Start();
    memory.plugged = {{1, 0x51}, {2, 0x52}, {3, 0x53}};
    Start();
  }

  static v1::LocalRequest Request() {
    v1::LocalRequest request;
    request.set_protocol_version(kLocalProtocolVersion);
    return request;
  }
  static v1::LocalRequest OpenOf(const std::string& name, v1::Access access = v1::READ_WRITE,
                                 uint32_t wait_ms = 0) {
    v1::LocalRequest request = Request();
    request.mutable_open()->set_name(name);
    request.mutable_open()->set_access(access);
    request.mutable_open()->set_wait_ms(wait_ms);
    return request;
  }
  static v1::LocalRequest AllocateOf(uint32_t wait_ms = 0) {
    v1::LocalRequest request = Request();
    request.mutable_allocate()->set_request_id("9b2d1c1e-0000-4000-8000-000000000001");
    request.mutable_allocate()->set_size_bytes(kTestLength);
    request.mutable_allocate()->set_wait_ms(wait_ms);
    return request;
  }

  // Answers land in `answers`, by connection.
  void Ask(const LocalPeer& peer, v1::LocalRequest request) {
    service->Handle(peer, std::move(request), [this, id = peer.connection](LocalReply reply) {
      descriptors[id] = reply.descriptors.size();
      answers[id] = std::move(reply.response);
    });
    executor.RunReady();
  }
  v1::LocalResponse AskNow(const LocalPeer& peer, v1::LocalRequest request) {
    answers.erase(peer.connection);
    Ask(peer, std::move(request));
    EXPECT_TRUE(answers.contains(peer.connection));
    return answers[peer.connection];
  }

  void AnswerAllocate(uint64_t generation, v1::Region::State state = v1::Region::RESERVED) {
    v1::AllocateRegionResponse response;
    response.mutable_region()->set_name(absl::StrCat("regions/r", generation));
    response.mutable_region()->set_tag(absl::StrCat("tag-", generation));
    response.mutable_region()->set_state(state);
    std::move(link.allocates.back().second)(response);
    executor.RunReady();
  }

  static v1::LocalRequest AsFile(v1::LocalRequest request) {
    if (request.has_open()) request.mutable_open()->set_as_file(true);
    if (request.has_allocate()) request.mutable_allocate()->set_as_file(true);
    return request;
  }

  FakeDevicePaths paths;
  std::unique_ptr<LocalService> service;
  std::map<uint64_t, v1::LocalResponse> answers;
  std::map<uint64_t, size_t> descriptors;
};

int Code(absl::StatusCode code) { return static_cast<int>(code); }

TEST(LocalServiceTest, OpensEverySegmentInRegionOrder) {
  LocalRig rig;
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}, {3, 0x53}})});
  const v1::LocalResponse answer = rig.AskNow(kUser, LocalRig::OpenOf("regions/r1"));
  ASSERT_EQ(answer.code(), 0) << answer.message();
  const v1::LocalOpenResponse& open = answer.open();
  EXPECT_EQ(open.size_bytes(), 2 * kTestLength);
  EXPECT_EQ(open.tag(), "tag-1");
  EXPECT_EQ(open.access(), v1::READ_WRITE);
  ASSERT_EQ(open.segments_size(), 2);
  EXPECT_EQ(open.segments(0).region_offset_bytes(), 0u);
  EXPECT_EQ(open.segments(1).region_offset_bytes(), kTestLength);
  EXPECT_EQ(open.segments(1).fd_index(), 1u);
  EXPECT_EQ(rig.descriptors[kUser.connection], 2u);
}

TEST(LocalServiceTest, SystemRamGivesEachOfItsNodesOnceAndNoDescriptor) {
  LocalRig rig;
  rig.memory.nodes[0x53] = 1;
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}, {2, 0x52}, {3, 0x53}}, v1::SYSTEM_RAM)});
  const v1::LocalResponse answer = rig.AskNow(kUser, LocalRig::OpenOf("regions/r1"));
  EXPECT_EQ(answer.open().numa_node(), 2);
  EXPECT_TRUE(std::ranges::equal(answer.open().numa_nodes(), std::array{2, 1}));
  EXPECT_EQ(answer.open().segments_size(), 0);
  EXPECT_EQ(rig.descriptors[kUser.connection], 0u);
}

TEST(LocalServiceTest, RefusalsSayWhy) {
  LocalRig rig;
  rig.memory.plugged.erase(3);
  v1::Offer read_only = MakeOffer(2, kOnline, {{2, 0x52}});
  read_only.set_access(v1::READ_ONLY);
  v1::Offer foreign = MakeOffer(5, kOnline, {});
  foreign.set_tenant("tenants/other");
  rig.Connect({MakeOffer(1, kOffline, {{1, 0x51}}), read_only, MakeOffer(3, kOnline, {{3, 0x53}}),
               foreign});
  struct Row {
    v1::LocalRequest request;
    absl::StatusCode code;
    const char* reason;
  };
  v1::LocalRequest no_body = LocalRig::Request();
  v1::LocalRequest old = LocalRig::OpenOf("regions/r1");
  old.set_protocol_version(0);
  v1::LocalRequest newer = LocalRig::OpenOf("regions/r1");
  newer.set_protocol_version(2);
  const Row kTable[] = {
      {LocalRig::OpenOf("regions/r9"), absl::StatusCode::kNotFound, "NOT_ATTACHED"},
      {LocalRig::OpenOf("r1"), absl::StatusCode::kInvalidArgument, "BAD_NAME"},
      {LocalRig::OpenOf("regions/r1"), absl::StatusCode::kFailedPrecondition, "REGION_RELEASING"},
      {LocalRig::OpenOf("regions/r2"), absl::StatusCode::kPermissionDenied, "ATTACHMENT_READ_ONLY"},
      {LocalRig::OpenOf("regions/r2", v1::ACCESS_UNSPECIFIED), absl::StatusCode::kPermissionDenied,
       "ATTACHMENT_READ_ONLY"},
      {LocalRig::OpenOf("regions/r3"), absl::StatusCode::kUnavailable, "NOT_ONLINE_YET"},
      {LocalRig::OpenOf("regions/r5"), absl::StatusCode::kPermissionDenied, "WRONG_TENANT"},
      {no_body, absl::StatusCode::kInvalidArgument, "BAD_REQUEST"},
      {old, absl::StatusCode::kFailedPrecondition, "PROTOCOL_TOO_OLD"},
      {newer, absl::StatusCode::kFailedPrecondition, "PROTOCOL_TOO_NEW"},
  };
  for (const Row& row : kTable) {
    SCOPED_TRACE(row.request.ShortDebugString());
    const v1::LocalResponse answer = rig.AskNow(kUser, row.request);
    EXPECT_EQ(answer.code(), Code(row.code));
    EXPECT_EQ(answer.error().reason(), row.reason);
    EXPECT_FALSE(answer.message().empty());
    EXPECT_FALSE(answer.error().remedy().empty());
  }
  EXPECT_EQ(rig.memory.opens, 0);
}

TEST(LocalServiceTest, ReadOnlyIsOpenedReadOnly) {
  LocalRig rig;
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  const v1::LocalResponse answer = rig.AskNow(kUser, LocalRig::OpenOf("regions/r1", v1::READ_ONLY));
  EXPECT_EQ(answer.open().access(), v1::READ_ONLY);
}

TEST(LocalServiceTest, OpenWaitsForOnlineAndNoLongerThanAsked) {
  LocalRig rig;
  rig.memory.plugged.erase(1);
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.Ask(kUser, LocalRig::OpenOf("regions/r1", v1::READ_WRITE, 3000));
  const LocalPeer patient = {.connection = 11, .uid = 1000, .pid = 1};
  rig.Ask(patient, LocalRig::OpenOf("regions/r1", v1::READ_WRITE, 60'000));
  rig.executor.Advance(absl::Milliseconds(2999));
  EXPECT_TRUE(rig.answers.empty());
  rig.executor.Advance(absl::Milliseconds(1));
  EXPECT_EQ(rig.answers[kUser.connection].error().reason(), "NOT_ONLINE_YET");
  rig.memory.plugged[1] = 0x51;
  rig.executor.Advance(absl::Seconds(5));
  EXPECT_TRUE(rig.answers[patient.connection].has_open());
}

TEST(LocalServiceTest, OpensAreRefusedFromTheMomentOfWantOffline) {
  LocalRig rig;
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.memory.holders = {99};  // It stays up for now.
  rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}));
  EXPECT_EQ(rig.AskNow(kUser, LocalRig::OpenOf("regions/r1")).error().reason(), "REGION_RELEASING");
}

TEST(LocalServiceTest, WithoutAManagerSinceTheStartOpenSaysSo) {
  LocalRig rig;
  const v1::LocalResponse answer = rig.AskNow(kUser, LocalRig::OpenOf("regions/r1"));
  EXPECT_EQ(answer.error().reason(), "NOT_ONLINE_YET");
  EXPECT_NE(answer.message().find("manager"), std::string::npos);
}

TEST(LocalServiceTest, OpenAndListGoOnWhileTheManagerIsAway) {
  LocalRig rig;
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.link.handlers.on_lost(absl::UnavailableError("gone"), false);
  rig.executor.RunReady();
  EXPECT_TRUE(rig.AskNow(kUser, LocalRig::OpenOf("regions/r1")).has_open());
  v1::LocalRequest list = LocalRig::Request();
  list.mutable_list();
  const v1::LocalResponse answer = rig.AskNow(kUser, list);
  ASSERT_EQ(answer.list().regions_size(), 1);
  EXPECT_EQ(answer.list().regions(0).opens(), 1u);
  EXPECT_EQ(answer.list().regions(0).attachment().state(), v1::Attachment::ONLINE);
}

TEST(LocalServiceTest, CloseLetsTheReleaseGoOn) {
  LocalRig rig;
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.AskNow(kUser, LocalRig::OpenOf("regions/r1"));
  rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}));
  EXPECT_EQ(rig.ReportedError(0x51), "HOLDERS");
  v1::LocalRequest close = LocalRig::Request();
  close.mutable_close()->set_name("regions/r1");
  EXPECT_TRUE(rig.AskNow(kUser, close).has_close());
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_PRESENT);
  EXPECT_TRUE(rig.AskNow(kUser, close).has_close());  // Not open: OK.
}

TEST(LocalServiceTest, PolicyLetsListedUsersRootAndTheAgentIn) {
  LocalPolicy policy;
  policy.allowed_uids = {1001};
  LocalRig rig(policy);
  v1::LocalRequest list = LocalRig::Request();
  list.mutable_list();
  auto allowed = [&](uint32_t uid) {
    return rig.AskNow({.connection = 50 + uid, .uid = uid, .pid = 1}, list).code() == 0;
  };
  EXPECT_TRUE(allowed(1001));
  EXPECT_TRUE(allowed(0));
  EXPECT_TRUE(allowed(990));
  EXPECT_FALSE(allowed(1000));
}

TEST(LocalServiceTest, AllocateGoesThroughTheManagerAndWaitsForOnline) {
  LocalRig rig;
  rig.Connect();
  rig.Ask(kUser, LocalRig::AllocateOf());
  ASSERT_EQ(rig.link.allocates.size(), 1u);
  const v1::AllocateRegionRequest& forwarded = rig.link.allocates[0].first;
  EXPECT_EQ(forwarded.host(), "hosts/host-a");
  EXPECT_EQ(forwarded.tenant(), "tenants/default");
  EXPECT_EQ(forwarded.size_bytes(), kTestLength);
  EXPECT_EQ(forwarded.request_id(), "9b2d1c1e-0000-4000-8000-000000000001");
  rig.AnswerAllocate(1);
  EXPECT_TRUE(rig.answers.empty());  // Not offered yet.
  rig.Offer(MakeOffer(1, kOnline, {{1, 0x51}}));
  ASSERT_TRUE(rig.answers[kUser.connection].has_open());
  EXPECT_EQ(rig.descriptors[kUser.connection], 1u);
}

TEST(LocalServiceTest, AllocateIsNotConfusedByAnOlderRegionOfTheName) {
  LocalRig rig;
  v1::Offer older = MakeOffer(1, kOffline, {{1, 0x51}});
  older.set_region_name("regions/r2");
  rig.Connect({older});
  rig.Ask(kUser, LocalRig::AllocateOf());
  rig.AnswerAllocate(2);
  EXPECT_TRUE(rig.answers.empty());
  rig.Offer(MakeOffer(2, kOnline, {{2, 0x52}}));
  EXPECT_EQ(rig.answers[kUser.connection].open().tag(), "tag-2");
}

TEST(LocalServiceTest, AllocateThatIsUndoneOrTooSlowSaysSo) {
  LocalRig rig;
  rig.Connect();
  rig.Ask(kUser, LocalRig::AllocateOf());
  rig.AnswerAllocate(1);
  rig.executor.Advance(kDefaultAllocateWait);
  EXPECT_EQ(rig.answers[kUser.connection].code(), Code(absl::StatusCode::kDeadlineExceeded));

  rig.answers.clear();
  rig.Ask(kUser, LocalRig::AllocateOf());
  rig.AnswerAllocate(2);
  rig.memory.plugged.erase(2);
  rig.Offer(MakeOffer(2, kOnline, {{2, 0x52}}));
  EXPECT_TRUE(rig.answers.empty());
  rig.Offer(MakeOffer(2, kOffline, {{2, 0x52}}));
  EXPECT_EQ(rig.answers[kUser.connection].error().reason(), "REGION_RELEASING");

  rig.answers.clear();
  rig.Ask(kUser, LocalRig::AllocateOf());
  rig.AnswerAllocate(3, v1::Region::SCRUBBING);  // A retry after its release.
  EXPECT_EQ(rig.answers[kUser.connection].error().reason(), "REGION_RELEASING");
}

TEST(LocalServiceTest, TheManagersRefusalReachesTheApplicationWhole) {
  LocalRig rig;
  rig.Connect();
  rig.Ask(kUser, LocalRig::AllocateOf());
  std::move(rig.link.allocates[0].second)(
      Refuse(absl::StatusCode::kResourceExhausted, "POOL_FRAGMENTED", "no single extent",
             "raise max_extents", {{"largest_free_bytes", "42"}}));
  rig.executor.RunReady();
  const v1::LocalResponse& answer = rig.answers[kUser.connection];
  EXPECT_EQ(answer.code(), Code(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(answer.error().reason(), "POOL_FRAGMENTED");
  EXPECT_EQ(answer.error().metadata().at("largest_free_bytes"), "42");
}

TEST(LocalServiceTest, HangingUpDuringAllocateLeavesNoOpenBehind) {
  LocalRig rig;
  rig.Connect();
  rig.Ask(kUser, LocalRig::AllocateOf());
  rig.service->ConnectionEnded(kUser.connection);
  rig.AnswerAllocate(1);
  rig.Offer(MakeOffer(1, kOnline, {{1, 0x51}}));
  EXPECT_TRUE(rig.answers.empty());
  EXPECT_TRUE(rig.core->opens().CountOf({.generation = 1, .tag = "tag-1"}) == 0);
}

// A second segment came to regions/r1, which had one.
v1::Offer Grown() { return MakeOffer(1, kOnline, {{1, 0x51}, {3, 0x53}}); }

TEST(LocalServiceTest, WhatAGrowthAddsIsOpenedOnceItIsOnline) {
  LocalRig rig;
  rig.memory.plugged.erase(3);
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.Offer(Grown());
  const v1::LocalResponse before = rig.AskNow(kUser, LocalRig::OpenOf("regions/r1"));
  EXPECT_EQ(before.open().size_bytes(), kTestLength);
  EXPECT_EQ(before.open().segments_size(), 1);
  rig.memory.plugged[3] = 0x53;
  rig.executor.Advance(absl::Seconds(5));
  const LocalPeer other = {.connection = 11, .uid = 1000, .pid = 1};
  EXPECT_EQ(rig.AskNow(other, LocalRig::OpenOf("regions/r1")).open().size_bytes(), 2 * kTestLength);

  // The first user has nothing of what came later, until it opens the Region again.
  EXPECT_EQ(rig.core->opens().UsersOf({.generation = 1, .tag = "tag-1"}, 0x53),
            (std::vector<ProcessId>{{1, 0}}));
  EXPECT_EQ(rig.AskNow(kUser, LocalRig::OpenOf("regions/r1")).open().segments_size(), 2);
  EXPECT_EQ(rig.core->opens().UsersOf({.generation = 1, .tag = "tag-1"}, 0x53),
            (std::vector<ProcessId>{{4711, 99}, {1, 0}}));
}

TEST(LocalServiceTest, AFirstOpenWaitsForEverySegment) {
  LocalRig rig;
  rig.memory.plugged.erase(3);
  rig.Connect({Grown()});
  EXPECT_EQ(rig.AskNow(kUser, LocalRig::OpenOf("regions/r1")).error().reason(), "NOT_ONLINE_YET");
  rig.memory.plugged[3] = 0x53;
  rig.executor.Advance(absl::Seconds(5));
  EXPECT_EQ(rig.AskNow(kUser, LocalRig::OpenOf("regions/r1")).open().segments_size(), 2);
}

TEST(LocalServiceTest, WhatShrinksIsNotOpenedAnyMore) {
  LocalRig rig;
  rig.Connect({Grown()});
  rig.AskNow(kUser, LocalRig::OpenOf("regions/r1"));
  v1::Offer shrinking = Grown();
  shrinking.mutable_segments(1)->set_want(kOffline);
  rig.Offer(shrinking);
  EXPECT_EQ(rig.ReportedError(0x53), "HOLDERS");
  const LocalPeer other = {.connection = 11, .uid = 1000, .pid = 1};
  const v1::LocalResponse answer = rig.AskNow(other, LocalRig::OpenOf("regions/r1"));
  EXPECT_EQ(answer.open().size_bytes(), kTestLength);
  v1::LocalRequest list = LocalRig::Request();
  list.mutable_list();
  EXPECT_EQ(rig.AskNow(other, list).list().regions(0).size_bytes(), kTestLength);
  rig.service->ConnectionEnded(kUser.connection);
  rig.executor.RunReady();
  EXPECT_EQ(rig.Reported(0x53), v1::SEGMENT_PRESENT);
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
}

TEST(LocalServiceTest, NothingIsOpenedWhileItIsTakenDown) {
  LocalRig rig;
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.memory.silent = {"UnbindDax"};
  rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}));
  rig.Offer(MakeOffer(1, kOnline, {{1, 0x51}}));  // Too late for what is under way.
  EXPECT_EQ(rig.AskNow(kUser, LocalRig::OpenOf("regions/r1")).error().reason(), "NOT_ONLINE_YET");
  rig.memory.Resume();
  rig.executor.Advance(absl::Seconds(5));
  EXPECT_TRUE(rig.AskNow(kUser, LocalRig::OpenOf("regions/r1")).has_open());
}

TEST(LocalServiceTest, ARenamedRegionIsOpenedByItsNewNameAndStaysOpen) {
  LocalRig rig;
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.AskNow(kUser, LocalRig::OpenOf("regions/r1"));
  v1::Offer renamed = MakeOffer(1, kOnline, {{1, 0x51}});
  renamed.set_region_name("regions/new");
  rig.Offer(renamed);
  const AttachmentKey key = {.generation = 1, .tag = "tag-1"};
  EXPECT_EQ(rig.core->opens().CountOf(key), 1u);
  const LocalPeer other = {.connection = 11, .uid = 1000, .pid = 1};
  EXPECT_EQ(rig.AskNow(other, LocalRig::OpenOf("regions/r1")).error().reason(), "NOT_ATTACHED");
  EXPECT_EQ(rig.AskNow(other, LocalRig::OpenOf("regions/new")).open().name(), "regions/new");
  v1::LocalRequest list = LocalRig::Request();
  list.mutable_list();
  EXPECT_EQ(rig.AskNow(other, list).list().regions(0).name(), "regions/new");

  // By both names on one connection: each use ends by its own Close.
  rig.AskNow(kUser, LocalRig::OpenOf("regions/new"));
  rig.service->ConnectionEnded(other.connection);
  v1::LocalRequest close = LocalRig::Request();
  close.mutable_close()->set_name("regions/r1");
  rig.AskNow(kUser, close);
  EXPECT_EQ(rig.core->opens().CountOf(key), 1u);
  close.mutable_close()->set_name("regions/new");
  rig.AskNow(kUser, close);
  EXPECT_TRUE(rig.core->opens().CountOf(key) == 0);
}

TEST(LocalServiceTest, WhatWasOpenIsOpenedAgainAsItWas) {
  LocalRig rig;
  v1::Offer renamed = Grown();
  renamed.set_region_name("regions/new");
  v1::Offer heir = MakeOffer(2, kOnline, {{2, 0x52}});
  heir.set_region_name("regions/r1");
  rig.Connect({renamed, heir});
  v1::LocalRequest again = LocalRig::OpenOf("regions/r1");
  again.mutable_open()->set_tag("tag-1");
  again.mutable_open()->set_at_most_bytes(kTestLength);
  v1::LocalResponse answer = rig.AskNow(kUser, again);
  EXPECT_EQ(answer.open().tag(), "tag-1");
  EXPECT_EQ(answer.open().name(), "regions/r1");
  EXPECT_EQ(answer.open().size_bytes(), kTestLength);
  EXPECT_TRUE(rig.core->opens().UsersOf({.generation = 1, .tag = "tag-1"}, 0x53).empty());

  again.mutable_open()->set_tag("tag-9");  // Gone: what has the name is opened.
  EXPECT_EQ(rig.AskNow(kUser, again).open().tag(), "tag-2");
}

TEST(LocalServiceTest, WhatIsAllocatedBelongsToTheCallingProcess) {
  LocalRig rig;
  rig.Connect();
  rig.Ask(kUser, LocalRig::AllocateOf());
  ASSERT_EQ(rig.link.allocates.size(), 1u);
  const v1::AllocateRegionRequest& owned = rig.link.allocates[0].first;
  ASSERT_TRUE(owned.has_owner());
  EXPECT_EQ(owned.owner().uid(), 1000u);
  EXPECT_EQ(owned.owner().pid(), 4711u);
  EXPECT_EQ(owned.owner().start_ticks(), 99u);
  EXPECT_EQ(owned.owner().incarnation(), "boot-1");

  v1::LocalRequest persistent = LocalRig::AllocateOf();
  persistent.mutable_allocate()->set_persistent(true);
  // A process that the agent cannot see may own nothing.
  for (const LocalPeer& unseen : {LocalPeer{.connection = 11, .uid = 1000},
                                  LocalPeer{.connection = 12, .uid = 1000, .pid = 5}}) {
    EXPECT_EQ(rig.AskNow(unseen, LocalRig::AllocateOf()).error().reason(), "OWNER_UNKNOWN");
    rig.Ask(unseen, persistent);
  }
  ASSERT_EQ(rig.link.allocates.size(), 3u);
  EXPECT_FALSE(rig.link.allocates[1].first.has_owner());
  EXPECT_FALSE(rig.link.allocates[2].first.has_owner());
}

UserRule RuleFor(uint32_t uid) {
  UserRule rule;
  rule.uids = {uid};
  rule.tenant = "tenants/ml";
  return rule;
}

v1::Offer OwnedOffer(uint64_t generation, uint64_t serial, uint32_t uid) {
  v1::Offer offer = MakeOffer(generation, kOnline, {{static_cast<uint32_t>(generation), serial}});
  offer.mutable_owner()->set_uid(uid);
  offer.mutable_owner()->set_incarnation("boot-1");
  offer.set_tenant("tenants/ml");
  offer.set_maker_uid(uid);
  return offer;
}

TEST(LocalServiceTest, ARuleGivesTheTenantAndLetsIn) {
  LocalRig rig({.tenant = "tenants/default", .allowed_uids = {7}, .users = {RuleFor(1000)}});
  v1::Offer open = MakeOffer(2, kOnline, {{2, 0x52}});
  open.mutable_open_to()->set_everybody(true);
  rig.Connect({OwnedOffer(1, 0x51, 1000), open});
  EXPECT_TRUE(rig.AskNow(kUser, LocalRig::OpenOf("regions/r1")).has_open());
  EXPECT_EQ(rig.AskNow(kUser, LocalRig::OpenOf("regions/r2")).error().reason(), "WRONG_TENANT");
  rig.Ask(kUser, LocalRig::AllocateOf());
  EXPECT_EQ(rig.link.allocates.back().first.tenant(), "tenants/ml");
  const LocalPeer listed = {.connection = 11, .uid = 7, .pid = 1, .start_ticks = 1};
  EXPECT_TRUE(rig.AskNow(listed, LocalRig::OpenOf("regions/r2")).has_open());
  const LocalPeer other = {.connection = 12, .uid = 8, .pid = 1, .start_ticks = 1};
  EXPECT_EQ(rig.AskNow(other, LocalRig::OpenOf("regions/r2")).error().reason(), "USER_NOT_ALLOWED");
}

TEST(LocalServiceTest, ARuleSaysWhoMayAllocateWhat) {
  UserRule reader = RuleFor(1000);
  reader.may_allocate = false;
  LocalRig rig({.users = {reader, RuleFor(1001)}});
  rig.Connect();
  EXPECT_EQ(rig.AskNow(kUser, LocalRig::AllocateOf()).error().reason(), "ALLOCATE_NOT_ALLOWED");
  const LocalPeer other = {.connection = 11, .uid = 1001, .pid = 1, .start_ticks = 1};
  v1::LocalRequest persistent = LocalRig::AllocateOf();
  persistent.mutable_allocate()->set_persistent(true);
  EXPECT_EQ(rig.AskNow(other, persistent).error().reason(), "PERSISTENT_NOT_ALLOWED");
  EXPECT_TRUE(rig.link.allocates.empty());
  rig.Ask(other, LocalRig::AllocateOf());
  EXPECT_EQ(rig.link.allocates.size(), 1u);
}

// What of a user counts: Offers, calls under way, and what was answered and is not offered yet.
TEST(LocalServiceTest, ALimitCountsWhatAUsersProcessesOwnOrAreAboutTo) {
  UserRule rule = RuleFor(1000);
  rule.max_regions = 2;
  LocalRig rig({.users = {rule}});
  rig.Connect({OwnedOffer(1, 0x51, 1000), OwnedOffer(3, 0x53, 1001)});
  const auto peer = [](uint64_t connection) {
    return LocalPeer{.connection = connection, .uid = 1000, .pid = 4711, .start_ticks = 99};
  };
  const auto request = [](int number) {
    v1::LocalRequest made = LocalRig::AllocateOf();
    made.mutable_allocate()->set_request_id(absl::StrCat("request-", number));
    return made;
  };
  rig.Ask(peer(1), request(1));
  EXPECT_EQ(rig.AskNow(peer(2), request(2)).error().reason(), "USER_LIMIT");
  rig.service->ConnectionEnded(1);  // The call goes on without it.
  EXPECT_EQ(rig.AskNow(peer(3), request(1)).error().reason(), "REQUEST_UNDER_WAY");
  EXPECT_EQ(rig.link.allocates.size(), 1u);
  rig.AnswerAllocate(2);
  EXPECT_EQ(rig.AskNow(peer(2), request(2)).error().reason(), "USER_LIMIT");
  rig.Offer(OwnedOffer(2, 0x52, 1000));
  EXPECT_EQ(rig.AskNow(peer(2), request(2)).error().reason(), "USER_LIMIT");
  v1::Withdraw gone;
  gone.set_region_tag("tag-1");
  gone.set_attachment_generation(1);
  rig.link.handlers.on_withdraw(gone);
  rig.executor.RunReady();
  rig.Ask(peer(2), request(2));
  EXPECT_EQ(rig.link.allocates.size(), 2u);
  std::move(rig.link.allocates.back().second)(absl::ResourceExhaustedError("full"));
  rig.executor.RunReady();
  rig.Ask(peer(2), request(3));  // What was refused counts no more.
  EXPECT_EQ(rig.link.allocates.size(), 3u);
  std::move(rig.link.allocates.back().second)(absl::UnavailableError("lost"));
  rig.executor.RunReady();
  EXPECT_EQ(rig.AskNow(peer(2), request(4)).error().reason(), "USER_LIMIT");
  rig.executor.Advance(UserUsageTable::kOutcomeUnknown);
  rig.Ask(peer(2), request(4));
  EXPECT_EQ(rig.link.allocates.size(), 4u);
}

TEST(LocalServiceTest, WhatCameAndWentCountsNoMore) {
  UserRule rule = RuleFor(1000);
  rule.max_regions = 1;
  LocalRig rig({.users = {rule}});
  rig.Connect();
  v1::LocalRequest request = LocalRig::AllocateOf();
  request.mutable_allocate()->set_request_id("request-1");
  rig.Ask(kUser, request);
  rig.AnswerAllocate(2);
  rig.Offer(OwnedOffer(2, 0x52, 1000));
  rig.executor.RunReady();
  rig.service->ConnectionEnded(kUser.connection);
  v1::Withdraw gone;
  gone.set_region_tag("tag-2");
  gone.set_attachment_generation(2);
  rig.link.handlers.on_withdraw(gone);
  rig.executor.RunReady();
  request.mutable_allocate()->set_request_id("request-2");
  rig.Ask(kUser, request);
  EXPECT_EQ(rig.link.allocates.size(), 2u);
}

TEST(LocalServiceTest, ARetryDoesNotStandInItsOwnWay) {
  UserRule rule = RuleFor(1000);
  rule.max_bytes = kTestLength;
  LocalRig rig({.users = {rule}});
  // Allocated by way of an agent that has restarted since, or lost the answer.
  rig.Connect({OwnedOffer(1, 0x51, 1000)});
  v1::LocalRequest retry = LocalRig::AllocateOf();
  EXPECT_EQ(rig.AskNow(kUser, retry).error().reason(), "USER_LIMIT");
  retry.mutable_allocate()->set_region_id("r1");
  rig.Ask(kUser, retry);
  EXPECT_EQ(rig.link.allocates.size(), 1u);
}

TEST(LocalServiceTest, AsAFileAUserMayOpenItByItsPathUntilItIsClosed) {
  LocalRig rig;
  EXPECT_EQ(rig.paths.starts, 1);
  v1::Offer offer = MakeOffer(1, kOnline, {{1, 0x51}});
  offer.mutable_open_to()->add_uids(1001);
  rig.Connect({offer});
  EXPECT_EQ(rig.AskNow(kUser, LocalRig::OpenOf("regions/r1")).open().segments(0).path(), "");
  EXPECT_TRUE(rig.paths.users.empty());
  const v1::LocalResponse answer =
      rig.AskNow(kUser, LocalRig::AsFile(LocalRig::OpenOf("regions/r1")));
  ASSERT_EQ(answer.code(), 0) << answer.message();
  EXPECT_EQ(answer.open().segments(0).path(), "/dev/cxlpool/r1/dax0.0");
  const LocalPeer other = {.connection = 11, .uid = 1001, .pid = 7};
  const auto read_only = LocalRig::AsFile(LocalRig::OpenOf("regions/r1", v1::READ_ONLY));
  EXPECT_EQ(rig.AskNow(other, read_only).open().segments(0).path(), "/dev/cxlpool/r1/dax0.0");
  const std::vector<PathUser> both = {{.uid = 1000, .writable = true},
                                      {.uid = 1001, .writable = false}};
  EXPECT_EQ(rig.paths.users["/dev/dax0.0"], both);

  v1::LocalRequest close = LocalRig::Request();
  close.mutable_close()->set_name("regions/r1");
  rig.AskNow(kUser, close);
  EXPECT_EQ(rig.paths.users["/dev/dax0.0"], std::vector<PathUser>{both[1]});
  rig.service->ConnectionEnded(other.connection);
  EXPECT_TRUE(rig.paths.users.empty());
  EXPECT_TRUE(rig.paths.links.empty());
}

TEST(LocalServiceTest, WhatIsNoFileIsRefusedAndNotOpened) {
  LocalRig rig;
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}, {3, 0x53}}),
               MakeOffer(2, kOnline, {{2, 0x52}}, v1::SYSTEM_RAM)});
  const auto reason = [&](const LocalPeer& peer, v1::LocalRequest request) {
    return rig.AskNow(peer, LocalRig::AsFile(std::move(request))).error().reason();
  };
  EXPECT_EQ(reason(kUser, LocalRig::OpenOf("regions/r1")), "MANY_EXTENTS");
  EXPECT_EQ(reason(kUser, LocalRig::OpenOf("regions/r2")), "NOT_DEVDAX");
  rig.paths.strangers = {kUser.pid};
  EXPECT_EQ(reason(kUser, LocalRig::OpenOf("regions/r1")), "OTHER_NAMESPACE");
  EXPECT_EQ(reason(kUser, LocalRig::AllocateOf()), "OTHER_NAMESPACE");
  rig.paths.strangers.clear();
  v1::LocalRequest allocate = LocalRig::AllocateOf();
  allocate.mutable_allocate()->set_mode(v1::SYSTEM_RAM);
  EXPECT_EQ(reason(kUser, allocate), "NOT_DEVDAX");
  allocate = LocalRig::AllocateOf();
  allocate.mutable_allocate()->set_max_extents(2);
  EXPECT_EQ(reason(kUser, allocate), "MANY_EXTENTS");
  EXPECT_TRUE(rig.link.allocates.empty());
  EXPECT_TRUE(rig.paths.users.empty());
  v1::LocalRequest list = LocalRig::Request();
  list.mutable_list();
  const v1::LocalResponse listed = rig.AskNow(kUser, list);
  for (const v1::LocalRegion& region : listed.list().regions()) {
    EXPECT_EQ(region.opens(), 0u) << region.name();
  }
  // The first of its segments was all that was open: that is one file.
  v1::LocalRequest again = LocalRig::OpenOf("regions/r1");
  again.mutable_open()->set_at_most_bytes(kTestLength);
  EXPECT_EQ(reason(kUser, again), "");
}

TEST(LocalServiceTest, APathGoesWithItsDevice) {
  LocalRig rig;
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  ASSERT_EQ(rig.AskNow(kUser, LocalRig::AsFile(LocalRig::OpenOf("regions/r1"))).code(), 0);
  rig.Offer(MakeOffer(1, kOnline, {{1, 0x51}}));  // Said again: nothing is different.
  EXPECT_FALSE(rig.paths.links.empty());
  rig.memory.LoseDax(0x51);
  rig.executor.Advance(absl::Seconds(2));
  EXPECT_TRUE(rig.paths.links.empty());
}

TEST(LocalServiceTest, ADeviceThatHasNoNodeHasNoPath) {
  LocalRig rig;
  rig.memory.no_nodes = true;
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  const v1::LocalResponse answer =
      rig.AskNow(kUser, LocalRig::AsFile(LocalRig::OpenOf("regions/r1")));
  EXPECT_EQ(answer.code(), Code(absl::StatusCode::kUnimplemented));
  EXPECT_EQ(answer.error().reason(), "PATH_UNSUPPORTED");
}

TEST(LocalServiceTest, WhereRegionsArePartsOfFilesNoneIsAllocatedToBeOne) {
  LocalRig rig;
  rig.Connect();
  LocalService none({}, rig.core.get(), &rig.executor, &rig.executor, &rig.memory, &rig.link);
  std::string reason;
  none.Handle(kUser, LocalRig::AsFile(LocalRig::AllocateOf()),
              [&](LocalReply reply) { reason = reply.response.error().reason(); });
  EXPECT_EQ(reason, "PATH_UNSUPPORTED");
  EXPECT_TRUE(rig.link.allocates.empty());
}

TEST(LocalServiceTest, WhatIsAllocatedAndCannotBeShownIsNamed) {
  LocalRig rig;
  rig.Connect();
  rig.Ask(kUser, LocalRig::AsFile(LocalRig::AllocateOf(10'000)));
  rig.paths.failure = Refuse(absl::StatusCode::kInternal, "PATH_FAILED", "no room", "make some");
  rig.AnswerAllocate(1);
  rig.Offer(MakeOffer(1, kOnline, {{1, 0x51}}));
  rig.executor.RunReady();
  const v1::LocalResponse& answer = rig.answers[kUser.connection];
  EXPECT_EQ(answer.code(), Code(absl::StatusCode::kInternal));
  EXPECT_EQ(answer.error().reason(), "PATH_FAILED");
  EXPECT_EQ(answer.message(),
            "no room; regions/r1 is allocated (make some, or release regions/r1)");
}

TEST(LocalServiceTest, ARegionForAFileIsAllocatedInOnePiece) {
  LocalRig rig;
  rig.Connect();
  rig.Ask(kUser, LocalRig::AsFile(LocalRig::AllocateOf(10'000)));
  ASSERT_EQ(rig.link.allocates.size(), 1u);
  EXPECT_EQ(rig.link.allocates[0].first.max_extents(), 1u);
  rig.AnswerAllocate(1);
  rig.Offer(MakeOffer(1, kOnline, {{1, 0x51}}));
  rig.executor.RunReady();
  EXPECT_EQ(rig.answers[kUser.connection].open().segments(0).path(), "/dev/cxlpool/r1/dax0.0");
}

TEST(LocalServiceTest, OneRequestAtATimeAConnection) {
  LocalRig rig;
  rig.Connect();
  rig.Ask(kUser, LocalRig::AllocateOf());
  EXPECT_EQ(rig.AskNow(kUser, LocalRig::OpenOf("regions/r1")).error().reason(), "REQUEST_PENDING");
}

}  // namespace
}  // namespace cxlpool::agent
