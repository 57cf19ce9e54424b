// Who may do what through the local socket: the judge asked by every call, by name and by tag,
// before Welcome, and for what the agent has no Offer of; and that every word of a request is
// carried on.

#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <functional>

#include "host-agent/service/local_service.h"
#include "test/rigs/core_rig.h"
#include "test/rigs/each_field_fixture.h"

namespace cxlpool::agent {
namespace {

constexpr char kTag[] = "11111111-2222-4333-8444-555555555555";
const LocalPeer kMaker = {.connection = 10, .uid = 1000, .pid = 4711, .start_ticks = 99};
const LocalPeer kOther = {.connection = 11, .uid = 1001, .pid = 4712, .start_ticks = 98};
const LocalPeer kRoot = {.connection = 12, .uid = 0, .pid = 1, .start_ticks = 1};
const LocalPeer kAgent = {.connection = 13, .uid = 990, .pid = 2, .start_ticks = 1};

v1::Offer OfferOf(const char* name = "regions/r1") {
  v1::Offer offer = MakeOffer(1, kOnline, {{1, 0x51}});
  offer.set_region_name(name);
  offer.set_region_tag(kTag);
  return offer;
}

struct BorderRig : CoreRig {
  explicit BorderRig(LocalPolicy policy = {}) {
    policy.agent_uid = 990;
    service =
        std::make_unique<LocalService>(policy, core.get(), &executor, &executor, &memory, &link);
    memory.plugged = {{1, 0x51}};
    Start();
  }

  // The answer's reason, "" where it is OK, "-" where there is none yet.
  std::string Ask(const LocalPeer& peer, const v1::LocalRequest& request) {
    answer.reset();
    service->Handle(peer, request,
                    [this](LocalReply reply) { answer = std::move(reply.response); });
    executor.RunReady();
    if (!answer.has_value()) return "-";
    return answer->code() == 0 ? "" : answer->error().reason();
  }
  std::string Open(const LocalPeer& peer, const std::string& name, const std::string& tag = "") {
    v1::LocalRequest request = Request();
    request.mutable_open()->set_name(name);
    request.mutable_open()->set_tag(tag);
    return Ask(peer, request);
  }
  std::string Release(const LocalPeer& peer, const std::string& name) {
    v1::LocalRequest request = Request();
    request.mutable_release()->set_name(name);
    request.mutable_release()->set_request_id("request-1");
    return Ask(peer, request);
  }
  int Listed(const LocalPeer& peer) {
    v1::LocalRequest request = Request();
    request.mutable_list();
    EXPECT_EQ(Ask(peer, request), "");
    return answer->list().regions_size();
  }
  int Faults(const LocalPeer& peer) {
    v1::LocalRequest request = Request();
    request.mutable_faults();
    EXPECT_EQ(Ask(peer, request), "");
    return answer->faults().faults_size();
  }
  void LoseBytes() {
    v1::HostEvent event;
    event.set_serial(0x51);
    event.set_kind(v1::HostEvent::POISON);
    event.set_severity(v1::HostEvent::FAILURE);
    event.set_bytes_lost(true);
    event.set_length_bytes(64);
    core->TakeEvents({event});
    executor.RunReady();
  }
  static v1::LocalRequest Request() {
    v1::LocalRequest request;
    request.set_protocol_version(kLocalProtocolVersion);
    return request;
  }

  std::unique_ptr<LocalService> service;
  std::optional<v1::LocalResponse> answer;
};

// What a user may: open, list, hear of faults; and release.
struct May {
  bool open = false;
  bool release = false;
};

void ExpectMay(const LocalPolicy& policy, const v1::Offer& offer, const LocalPeer& peer, May may,
               const std::string& refusal = "REGION_NOT_YOURS") {
  BorderRig rig(policy);
  rig.Connect({offer});
  rig.LoseBytes();
  const std::string opened = may.open ? "" : refusal;
  for (const std::string& name : {std::string("regions/r1"), absl::StrCat("regions/", kTag)}) {
    EXPECT_EQ(rig.Open(peer, name), opened) << name;
    EXPECT_EQ(rig.Open(peer, "regions/made-up", kTag), opened) << name;
    EXPECT_EQ(rig.Release(peer, name), may.release ? "-" : refusal) << name;
    rig.service->ConnectionEnded(peer.connection);
  }
  EXPECT_EQ(rig.Listed(peer), may.open ? 1 : 0);
  EXPECT_EQ(rig.Faults(peer), may.open ? 1 : 0);
  EXPECT_EQ(rig.answer->faults().sizes_size(), may.open ? 1 : 0);
  EXPECT_EQ(rig.memory.opens, may.open ? 4 : 0) << "no descriptor is made for nobody";
  EXPECT_EQ(rig.link.releases.size(), may.release ? 2u : 0u);
  EXPECT_TRUE(rig.link.gets.empty());
}

TEST(LocalBorderTest, ARegionIsItsMakers) {
  ExpectMay({}, OfferOf(), kMaker, {.open = true, .release = true});
  ExpectMay({}, OfferOf(), kRoot, {.open = true, .release = true});
  ExpectMay({}, OfferOf(), kAgent, {.open = true, .release = true});
  ExpectMay({}, OfferOf(), kOther, {});
}

// A later libpool may ask for what this agent does not know. To do the rest of it could be what its
// caller did not want.
TEST(LocalBorderTest, WhatIsAskedForByAnUnknownFieldIsNotDoneWithoutIt) {
  BorderRig rig;
  rig.Connect({OfferOf()});
  const auto add = [](google::protobuf::Message& message) {
    message.GetReflection()->MutableUnknownFields(&message)->AddVarint(900, 1);
  };
  v1::LocalRequest allocate = BorderRig::Request();
  allocate.mutable_allocate()->set_request_id("request-1");
  allocate.mutable_allocate()->set_size_bytes(kTestLength);
  add(*allocate.mutable_allocate()->mutable_open_to());
  EXPECT_EQ(rig.Ask(kMaker, allocate), "BAD_FIELD");
  EXPECT_TRUE(rig.link.allocates.empty());
  v1::LocalRequest release = BorderRig::Request();
  release.mutable_release()->set_name("regions/r1");
  release.mutable_release()->set_request_id("request-2");
  add(*release.mutable_release());
  EXPECT_EQ(rig.Ask(kMaker, release), "BAD_FIELD");
  EXPECT_TRUE(rig.link.releases.empty());
  // What is only opened or listed stays as it is.
  v1::LocalRequest open = BorderRig::Request();
  open.mutable_open()->set_name("regions/r1");
  add(*open.mutable_open());
  EXPECT_EQ(rig.Ask(kMaker, open), "");
  allocate.mutable_allocate()->clear_open_to();
  EXPECT_EQ(rig.Ask(kMaker, allocate), "-");
  EXPECT_EQ(rig.link.allocates.size(), 1u);
}

// Likewise. What its caller wants may be less than to write.
TEST(LocalBorderTest, AnAccessThatIsNotKnownIsNotOpenedForWriting) {
  BorderRig rig;
  rig.Connect({OfferOf()});
  v1::LocalRequest open = BorderRig::Request();
  open.mutable_open()->set_name("regions/r1");
  open.mutable_open()->set_access(static_cast<v1::Access>(9));
  EXPECT_EQ(rig.Ask(kMaker, open), "BAD_REQUEST");
  EXPECT_EQ(rig.memory.opens, 0);
  open.mutable_open()->set_access(v1::READ_ONLY);
  EXPECT_EQ(rig.Ask(kMaker, open), "");
}

TEST(LocalBorderTest, AnOperatorsIsRootsAndTheAgents) {
  v1::Offer offer = OfferOf();
  offer.clear_maker_uid();
  for (const LocalPeer& user : {kMaker, kOther}) ExpectMay({}, offer, user, {});
  for (const LocalPeer& user : {kRoot, kAgent}) {
    ExpectMay({}, offer, user, {.open = true, .release = true});
  }
}

TEST(LocalBorderTest, RootsIsNotEverybodys) {
  v1::Offer offer = OfferOf();
  offer.set_maker_uid(0);
  ExpectMay({}, offer, kMaker, {});
}

// Its plugin is root, and would open for a container what another user has made and reads along.
TEST(LocalBorderTest, ANameOfKubernetesIsRootsAndTheAgents) {
  BorderRig rig;
  rig.Connect();
  const auto allocate = [&rig](const LocalPeer& peer, const std::string& id) {
    v1::LocalRequest request = BorderRig::Request();
    request.mutable_allocate()->set_region_id(id);
    request.mutable_allocate()->set_size_bytes(4096);
    return rig.Ask(peer, request);
  };
  EXPECT_EQ(allocate(kMaker, "k8s-1c2d3e4f"), "NAME_NOT_YOURS");
  EXPECT_TRUE(rig.link.allocates.empty());
  EXPECT_EQ(allocate(kMaker, "k8s"), "-");
  EXPECT_EQ(allocate(kRoot, "k8s-1c2d3e4f"), "-");
  EXPECT_EQ(allocate(kAgent, "k8s-1c2d3e4f"), "-");
  EXPECT_EQ(rig.link.allocates.size(), 3u);
}

TEST(LocalBorderTest, OpenToLetsOpenAndNotRelease) {
  LocalPeer member = kOther;
  member.gids = {7, 100};
  const std::vector<std::pair<std::function<void(v1::OpenTo&)>, bool>> cases = {
      {[](v1::OpenTo& to) { to.add_uids(1001); }, true},
      {[](v1::OpenTo& to) { to.add_uids(1002); }, false},
      {[](v1::OpenTo& to) { to.add_gids(100); }, true},
      {[](v1::OpenTo& to) { to.add_gids(1001); }, false},  // A user's number.
      {[](v1::OpenTo& to) { to.add_uids(100); }, false},   // A group's.
      {[](v1::OpenTo& to) { to.set_everybody(true); }, true},
  };
  for (const auto& [edit, open] : cases) {
    v1::Offer offer = OfferOf();
    edit(*offer.mutable_open_to());
    SCOPED_TRACE(offer.open_to().ShortDebugString());
    ExpectMay({}, offer, member, {.open = open});
  }
}

TEST(LocalBorderTest, TheConfigurationLetsTheTenantIn) {
  ExpectMay({.may_open = Reach::kTenant}, OfferOf(), kOther, {.open = true});
  ExpectMay({.may_release = Reach::kTenant}, OfferOf(), kOther, {.release = true});
  UserRule rule;
  rule.uids = {1001};
  rule.tenant = "tenants/default";
  // The rule holds in place of the general keys.
  ExpectMay({.may_open = Reach::kTenant, .may_release = Reach::kTenant, .users = {rule}}, OfferOf(),
            kOther, {});
  rule.may_open = Reach::kTenant;
  ExpectMay({.users = {rule}}, OfferOf(), kOther, {.open = true});
  rule.may_release = Reach::kTenant;
  ExpectMay({.users = {rule}}, OfferOf(), kOther, {.open = true, .release = true});
  v1::Offer by_operator = OfferOf();
  by_operator.clear_maker_uid();
  ExpectMay({.users = {rule}}, by_operator, kOther, {.open = true, .release = true});
}

TEST(LocalBorderTest, NothingIsOpenedOverTheTenantsBorder) {
  v1::Offer offer = OfferOf();
  offer.set_tenant("tenants/ml");
  offer.mutable_open_to()->set_everybody(true);
  const LocalPolicy wide = {.may_open = Reach::kTenant, .may_release = Reach::kTenant};
  ExpectMay(wide, offer, kOther, {}, "WRONG_TENANT");
  ExpectMay(wide, offer, kMaker, {}, "WRONG_TENANT");  // Acts for another tenant by now.
  ExpectMay({}, offer, kRoot, {.open = true, .release = true});
}

TEST(LocalBorderTest, ARefusalSaysNothingOfWhoseItIs) {
  BorderRig rig;
  v1::Offer offer = OfferOf();
  offer.set_tenant("tenants/secret");
  offer.set_maker_uid(31337);
  rig.Connect({offer});
  EXPECT_EQ(rig.Open(kOther, "regions/r1"), "WRONG_TENANT");
  EXPECT_EQ(rig.answer->ShortDebugString().find("secret"), std::string::npos);
  EXPECT_EQ(rig.answer->ShortDebugString().find("31337"), std::string::npos);
}

TEST(LocalBorderTest, WhoMayNotUseTheAgentMayNothingWhateverElseIsTrue) {
  v1::Offer offer = OfferOf();
  offer.mutable_open_to()->set_everybody(true);
  ExpectMay({.may_open = Reach::kTenant, .allowed_uids = {7}}, offer, kRoot,
            {.open = true, .release = true});
  BorderRig rig({.may_open = Reach::kTenant, .may_release = Reach::kTenant, .allowed_uids = {7}});
  rig.Connect({offer});
  for (const LocalPeer& peer : {kMaker, kOther}) {
    EXPECT_EQ(rig.Open(peer, "regions/r1"), "USER_NOT_ALLOWED");
    EXPECT_EQ(rig.Release(peer, "regions/r1"), "USER_NOT_ALLOWED");
    v1::LocalRequest list = BorderRig::Request();
    list.mutable_list();
    EXPECT_EQ(rig.Ask(peer, list), "USER_NOT_ALLOWED");
    v1::LocalRequest allocate = BorderRig::Request();
    allocate.mutable_allocate()->set_size_bytes(1);
    EXPECT_EQ(rig.Ask(peer, allocate), "USER_NOT_ALLOWED");
  }
}

// A manager of the release before says nothing of makers, but names the owner.
TEST(LocalBorderTest, AnOwnerOfThisBootMadeIt) {
  v1::Offer offer = OfferOf();
  offer.clear_maker_uid();
  offer.mutable_owner()->set_uid(1000);
  offer.mutable_owner()->set_incarnation("boot-1");
  ExpectMay({}, offer, kMaker, {.open = true, .release = true});
  ExpectMay({}, offer, kOther, {});
  offer.mutable_owner()->set_incarnation("boot-of-another-host");
  ExpectMay({}, offer, kMaker, {});
}

// --- Release.

TEST(LocalBorderTest, AReleaseNamesTheTagAndWhatWasFound) {
  BorderRig rig;
  rig.Connect({OfferOf()});
  EXPECT_EQ(rig.Release(kMaker, "regions/r1"), "-");
  ASSERT_EQ(rig.link.releases.size(), 1u);
  const v1::ReleaseRegionRequest& sent = rig.link.releases[0].first;
  EXPECT_EQ(sent.name(), absl::StrCat("regions/", kTag));
  EXPECT_EQ(sent.request_id(), "request-1");
  EXPECT_TRUE(sent.detach_all());
  EXPECT_EQ(sent.tenant(), "tenants/default");
  EXPECT_TRUE(sent.has_maker_uid());
  EXPECT_EQ(sent.maker_uid(), 1000u);
  std::move(rig.link.releases[0].second)(v1::ReleaseRegionResponse());
  rig.executor.RunReady();
  EXPECT_TRUE(rig.answer->has_release());
  EXPECT_EQ(rig.Release(kRoot, "regions/r1"), "-");
  EXPECT_EQ(rig.link.releases[1].first.tenant(), "");
  EXPECT_FALSE(rig.link.releases[1].first.has_maker_uid());
}

TEST(LocalBorderTest, ARuleLetsReleaseWhatAnotherMade) {
  BorderRig rig({.may_release = Reach::kTenant});
  rig.Connect({OfferOf()});
  EXPECT_EQ(rig.Release(kOther, "regions/r1"), "-");
  EXPECT_EQ(rig.link.releases[0].first.tenant(), "tenants/default");
  EXPECT_FALSE(rig.link.releases[0].first.has_maker_uid()) << "it is not this user's";
}

TEST(LocalBorderTest, BeforeWelcomeNothingIsReleased) {
  BorderRig rig;
  for (const LocalPeer& peer : {kMaker, kOther, kRoot}) {
    for (const std::string& name : {std::string("regions/r1"), absl::StrCat("regions/", kTag)}) {
      EXPECT_EQ(rig.Release(peer, name), "MANAGER_NOT_HEARD");
      EXPECT_EQ(rig.answer->code(), static_cast<int>(absl::StatusCode::kUnavailable));
    }
  }
  EXPECT_TRUE(rig.link.releases.empty());
  EXPECT_TRUE(rig.link.gets.empty());
}

v1::Region RegionMadeBy(const std::string& host, uint32_t uid) {
  v1::Region region;
  region.set_name("regions/new");
  region.set_tag(kTag);
  region.set_tenant("tenants/default");
  region.mutable_maker()->set_host(host);
  region.mutable_maker()->set_uid(uid);
  return region;
}

// It was allocated a moment ago: its Offer is yet to come.
TEST(LocalBorderTest, WhatIsNotOfferedTheManagerIsAskedOf) {
  BorderRig rig;
  rig.Connect();
  EXPECT_EQ(rig.Release(kMaker, "regions/new"), "-");
  ASSERT_EQ(rig.link.gets.size(), 1u);
  EXPECT_EQ(rig.link.gets[0].first.name(), "regions/new");
  EXPECT_TRUE(rig.link.releases.empty());
  std::move(rig.link.gets[0].second)(RegionMadeBy("hosts/host-a", 1000));
  rig.executor.RunReady();
  ASSERT_EQ(rig.link.releases.size(), 1u);
  EXPECT_EQ(rig.link.releases[0].first.name(), absl::StrCat("regions/", kTag));
  EXPECT_EQ(rig.link.releases[0].first.maker_uid(), 1000u);
}

TEST(LocalBorderTest, WhatTheManagerTellsIsJudgedTheSame) {
  v1::Region of_other_tenant = RegionMadeBy("hosts/host-a", 1000);
  of_other_tenant.set_tenant("tenants/ml");
  v1::Region by_operator = RegionMadeBy("hosts/host-a", 1000);
  by_operator.clear_maker();
  v1::Region open = RegionMadeBy("hosts/host-a", 1001);
  open.mutable_open_to()->set_everybody(true);
  for (const auto& [region, reason] : std::vector<std::pair<v1::Region, std::string>>{
           {RegionMadeBy("hosts/host-a", 1001), "REGION_NOT_YOURS"},
           {RegionMadeBy("hosts/host-b", 1000), "REGION_NOT_YOURS"},  // Somebody else's 1000.
           {by_operator, "REGION_NOT_YOURS"},
           {open, "REGION_NOT_YOURS"},
           {of_other_tenant, "WRONG_TENANT"}}) {
    SCOPED_TRACE(region.ShortDebugString());
    BorderRig rig;
    rig.Connect();
    EXPECT_EQ(rig.Release(kMaker, "regions/new"), "-");
    std::move(rig.link.gets[0].second)(region);
    rig.executor.RunReady();
    ASSERT_TRUE(rig.answer.has_value());
    EXPECT_EQ(rig.answer->error().reason(), reason);
    EXPECT_TRUE(rig.link.releases.empty());
  }
}

TEST(LocalBorderTest, AManagerThatDoesNotKnowItSaysSo) {
  BorderRig rig;
  rig.Connect();
  EXPECT_EQ(rig.Release(kMaker, "regions/new"), "-");
  std::move(rig.link.gets[0].second)(
      Refuse(absl::StatusCode::kNotFound, "UNKNOWN_REGION", "there is none", ""));
  rig.executor.RunReady();
  EXPECT_EQ(rig.answer->error().reason(), "UNKNOWN_REGION");
  EXPECT_TRUE(rig.link.releases.empty());
}

TEST(LocalBorderTest, HangingUpWhileTheManagerIsAskedReleasesNothing) {
  BorderRig rig;
  rig.Connect();
  EXPECT_EQ(rig.Release(kMaker, "regions/new"), "-");
  rig.service->ConnectionEnded(kMaker.connection);
  std::move(rig.link.gets[0].second)(RegionMadeBy("hosts/host-a", 1000));
  rig.executor.RunReady();
  EXPECT_TRUE(rig.link.releases.empty());
}

// The name is another Region's by the time that the manager answers: the tag is what was judged.
TEST(LocalBorderTest, ANameThatChangesHandsIsNotHit) {
  BorderRig rig;
  rig.Connect({OfferOf()});
  EXPECT_EQ(rig.Release(kMaker, "regions/r1"), "-");
  v1::Offer victim = MakeOffer(2, kOnline, {{2, 0x52}});
  victim.set_region_name("regions/r1");
  victim.set_maker_uid(1001);
  rig.Offer(victim);
  EXPECT_EQ(rig.link.releases[0].first.name(), absl::StrCat("regions/", kTag));
  rig.service->ConnectionEnded(kMaker.connection);
  EXPECT_EQ(rig.Release(kMaker, "regions/r1"), "REGION_NOT_YOURS") << "the newest has the name";
}

// A wait may end long after the judge was asked first: what there is then is judged.
TEST(LocalBorderTest, AWaitIsJudgedWhenItEnds) {
  BorderRig rig;
  rig.Connect();
  v1::LocalRequest open = BorderRig::Request();
  open.mutable_open()->set_name("regions/r1");
  open.mutable_open()->set_wait_ms(60'000);
  EXPECT_EQ(rig.Ask(kOther, open), "NOT_ATTACHED");
  rig.memory.plugged.erase(1);
  v1::Offer mine = OfferOf();
  mine.set_maker_uid(1001);
  rig.Offer(mine);
  EXPECT_EQ(rig.Ask(kOther, open), "-");
  rig.memory.plugged[1] = 0x51;
  rig.Offer(OfferOf());  // The same Attachment, and another maker: an operator's mistake, say.
  rig.executor.Advance(absl::Seconds(5));
  ASSERT_TRUE(rig.answer.has_value());
  EXPECT_EQ(rig.answer->error().reason(), "REGION_NOT_YOURS");
  EXPECT_EQ(rig.memory.opens, 0);
}

// --- Bounds.

TEST(LocalBorderTest, OneConnectionOpensARegionUnderSoManyNamesAndNoMore) {
  BorderRig rig;
  rig.Connect({OfferOf()});
  for (size_t i = 0; i < OpensTable::kMaxNames; ++i) {
    EXPECT_EQ(rig.Open(kMaker, absl::StrCat("regions/n", i), kTag), "");
  }
  EXPECT_EQ(rig.Open(kMaker, "regions/another", kTag), "TOO_MANY_OPENS");
  EXPECT_EQ(rig.Open(kMaker, "regions/n3", kTag), "") << "again, under a name that it has";
  LocalPeer second = kMaker;
  second.connection = 77;
  EXPECT_EQ(rig.Open(second, "regions/another", kTag), "");
  v1::LocalRequest close = BorderRig::Request();
  close.mutable_close()->set_name("regions/n3");
  EXPECT_EQ(rig.Ask(kMaker, close), "");
  EXPECT_EQ(rig.Open(kMaker, "regions/another", kTag), "");
  rig.service->ConnectionEnded(kMaker.connection);
  EXPECT_EQ(rig.core->opens().CountFor(kMaker.connection), 0u);
  EXPECT_EQ(rig.core->opens().CountOf({.generation = 1, .tag = kTag}), 1u);
}

TEST(OpensTableTest, OneConnectionHasSoManyUsesInAll) {
  OpensTable table;
  const auto key = [](size_t i) { return AttachmentKey{.generation = i, .tag = "tag"}; };
  for (size_t i = 0; i < OpensTable::kMaxUses; ++i) {
    ASSERT_TRUE(table.HasRoom(key(i), 1, "n"));
    table.Open(key(i), {1, {2, 3}, "n"}, {i});
  }
  EXPECT_FALSE(table.HasRoom(key(5000), 1, "n"));
  EXPECT_TRUE(table.HasRoom(key(7), 1, "n"));
  EXPECT_TRUE(table.HasRoom(key(5000), 2, "n"));
  table.Close(1, "n");
  EXPECT_EQ(table.CountFor(1), 0u);
  EXPECT_TRUE(table.HasRoom(key(5000), 1, "n"));
}

TEST(LocalBorderTest, LimitsCountWholeGranules) {
  UserRule rule;
  rule.uids = {1000};
  rule.tenant = "tenants/default";
  rule.max_bytes = uint64_t{1} << 30;
  BorderRig rig({.users = {rule}});
  v1::Welcome welcome;
  welcome.set_granule_bytes(uint64_t{512} << 20);
  rig.link.handlers.on_welcome(welcome);
  rig.executor.RunReady();
  const auto ask = [&](uint64_t connection) {
    LocalPeer peer = kMaker;
    peer.connection = connection;
    v1::LocalRequest request = BorderRig::Request();
    request.mutable_allocate()->set_request_id(absl::StrCat("request-", connection));
    request.mutable_allocate()->set_size_bytes(1);
    return rig.Ask(peer, request);
  };
  EXPECT_EQ(ask(1), "-");
  EXPECT_EQ(ask(2), "-");
  EXPECT_EQ(ask(3), "USER_LIMIT") << "one byte more is half a GiB more";
}

// --- Every field is carried.

// Each field of a local Allocate, taken out by itself, must make a difference to what the manager
// is asked, or to how long the agent waits.
TEST(LocalBorderTest, EveryFieldOfALocalAllocateReachesTheManager) {
  const auto forwarded = [](const v1::LocalAllocateRequest& allocate) {
    BorderRig rig;
    rig.Connect();
    v1::LocalRequest request = BorderRig::Request();
    *request.mutable_allocate() = allocate;
    EXPECT_EQ(rig.Ask(kMaker, request), "-");
    EXPECT_EQ(rig.link.allocates.size(), 1u);
    return rig.link.allocates.empty() ? "" : rig.link.allocates[0].first.SerializeAsString();
  };
  v1::LocalAllocateRequest full;
  FillAll(full);
  full.clear_as_file();  // Does not go with all others: LocalServiceTest has it.
  // wait_ms is the agent's own: LocalServiceTest has it.
  EXPECT_EQ(FieldsThatAreDropped(full, forwarded), std::vector<std::string>{"wait_ms"});
  const std::string whole = forwarded(full);
  v1::AllocateRegionRequest sent;
  ASSERT_TRUE(sent.ParseFromString(whole));
  EXPECT_EQ(sent.zone(), full.zone());
  EXPECT_EQ(sent.max_extents(), full.max_extents());
  EXPECT_EQ(sent.sharing(), full.sharing());
  EXPECT_EQ(sent.mode(), full.mode());
  EXPECT_EQ(sent.size_bytes(), full.size_bytes());
  EXPECT_EQ(sent.region_id(), full.region_id());
  EXPECT_EQ(sent.request_id(), full.request_id());
  EXPECT_EQ(sent.open_to().ShortDebugString(), full.open_to().ShortDebugString());
  EXPECT_EQ(sent.host(), "hosts/host-a");
  EXPECT_EQ(sent.tenant(), "tenants/default");
  EXPECT_EQ(sent.maker_uid(), 1000u);
}

TEST(LocalBorderTest, EveryWordOfThePeerReachesThePolicy) {
  UserRule by_group;
  by_group.gids = {100};
  by_group.tenant = "tenants/group";
  UserRule by_user;
  by_user.uids = {1001};
  by_user.tenant = "tenants/user";
  BorderRig rig({.users = {by_group, by_user}});
  rig.Connect();
  const auto sent_by = [&](const LocalPeer& peer) {
    v1::LocalRequest request = BorderRig::Request();
    request.mutable_allocate()->set_request_id(absl::StrCat("request-", peer.connection));
    request.mutable_allocate()->set_size_bytes(1);
    EXPECT_EQ(rig.Ask(peer, request), "-");
    return rig.link.allocates.back().first;
  };
  LocalPeer member = kMaker;
  member.gids = {5, 100};
  v1::AllocateRegionRequest sent = sent_by(member);
  EXPECT_EQ(sent.tenant(), "tenants/group") << "gids";
  EXPECT_EQ(sent.maker_uid(), 1000u) << "uid";
  EXPECT_EQ(sent.owner().uid(), 1000u);
  EXPECT_EQ(sent.owner().pid(), 4711u) << "pid";
  EXPECT_EQ(sent.owner().start_ticks(), 99u) << "start_ticks";
  EXPECT_EQ(sent_by(kOther).tenant(), "tenants/user") << "uid";
}

}  // namespace
}  // namespace cxlpool::agent
