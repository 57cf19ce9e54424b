// What a caller with a role for tenants can do and hear, over TLS: its own, and nothing of others.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "fabric-manager/rpc/calls.h"
#include "proto/support/byte_size.h"
#include "test/rigs/caller_fixture.h"

namespace cxlpool::fm {
namespace {

constexpr char kBob[] = "cxlpool://operator/bob";    // A tenant of ml.
constexpr char kCron[] = "cxlpool://operator/cron";  // A scheduler of ml.
constexpr uint64_t kOthersGranules = 97;             // Sizes that nothing of ml's comes to.
constexpr uint64_t kOthersQuota = 1013 * kGranule;
constexpr uint64_t kOwnQuota = 5000 * kGranule;  // More than the pool has.

// Two tenants. ml's Regions may be on host-a; giraffe's on host-b, with Regions "giraffe.okapi" and
// "zebra", which an operator named as they liked.
class TenantRightsTest : public CallerFixture {
 protected:
  void SetUp() override {
    CallerFixture::SetUp();
    ASSERT_EQ(MakeTenant("ml", kOwnQuota), "");
    ASSERT_EQ(MakeTenant("giraffe", kOthersQuota), "");
    ASSERT_EQ(EnrolFor("host-a", "ml"), "");
    ASSERT_EQ(EnrolFor("host-b", "giraffe"), "");
    MakeHostsUsable();
    ASSERT_EQ(Bind("cxlpool://operator/alice", v1::ADMIN), "");
    ASSERT_EQ(BindTo(kBob, v1::TENANT, {"ml"}), "");
    ASSERT_EQ(BindTo(kCron, v1::SCHEDULER, {"ml"}), "");
    bob_ = ChannelOf(kBob);
    cron_ = ChannelOf(kCron);
    for (const char* id : {"giraffe.okapi", "zebra"}) {
      v1::AllocateRegionRequest allocate = Wanted(id, "giraffe");
      allocate.set_size_bytes(kOthersGranules * kGranule);
      ASSERT_EQ(Ask(operator_, "PoolService/AllocateRegion", allocate), "");
    }
  }

  static v1::AllocateRegionRequest Wanted(const std::string& id, const std::string& tenant = "ml") {
    v1::AllocateRegionRequest allocate;
    allocate.set_request_id(NewId());
    allocate.set_region_id(id);
    allocate.set_tenant("tenants/" + tenant);
    allocate.set_size_bytes(1);
    return allocate;
  }
  template <typename Request>
  static std::string AskOf(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                           const std::string& name) {
    Request request;
    if constexpr (requires { request.set_request_id(""); }) request.set_request_id(NewId());
    request.set_name(name);
    return Ask(channel, method, request);
  }
  static std::vector<std::string> Listed(const std::shared_ptr<grpc::Channel>& channel) {
    const auto list =
        Get<v1::ListRegionsResponse>(channel, "PoolService/ListRegions", v1::ListRegionsRequest());
    std::vector<std::string> names;
    for (const v1::Region& region : list.regions()) names.push_back(region.name());
    return names;
  }

  std::shared_ptr<grpc::Channel> bob_, cron_;
};

TEST_F(TenantRightsTest, HasMemoryForItsTenants) {
  v1::AllocateRegionRequest allocate = Wanted("ml.kv");
  allocate.set_host("hosts/host-a");
  const auto made = Get<v1::AllocateRegionResponse>(bob_, "PoolService/AllocateRegion", allocate);
  EXPECT_EQ(made.region().name(), "regions/ml.kv");
  ASSERT_EQ(made.region().extents_size(), 1);
  EXPECT_EQ(made.region().extents(0).device(), "") << "where it lies is the pool's matter";
  EXPECT_EQ(made.region().extents(0).length_bytes(), kGranule);
  const auto unnamed =
      Get<v1::AllocateRegionResponse>(bob_, "PoolService/AllocateRegion", Wanted(""));
  EXPECT_TRUE(absl::StartsWith(unnamed.region().name(), "regions/ml.r-"))
      << unnamed.region().name();

  v1::AttachRegionRequest attach;
  attach.set_request_id(NewId());
  attach.set_name(unnamed.region().name());
  attach.set_host("hosts/host-a");
  EXPECT_EQ(Ask(bob_, "PoolService/AttachRegion", attach), "");
  v1::RenameRegionRequest rename;
  rename.set_request_id(NewId());
  rename.set_name(unnamed.region().name());
  rename.set_new_region_id("ml.cache");
  EXPECT_EQ(Ask(bob_, "PoolService/RenameRegion", rename), "");
  EXPECT_EQ(Listed(bob_), (std::vector<std::string>{"regions/ml.cache", "regions/ml.kv"}));
  const auto capacity =
      Get<v1::Capacity>(bob_, "PoolService/GetCapacity", v1::GetCapacityRequest());
  EXPECT_EQ(capacity.total_bytes(), kOwnQuota);
  EXPECT_EQ(capacity.allocated_bytes(), 2 * kGranule);
  EXPECT_EQ(capacity.regions(), 2u);
  const auto tenants =
      Get<v1::ListTenantsResponse>(bob_, "InventoryService/ListTenants", v1::ListTenantsRequest());
  ASSERT_EQ(tenants.tenants_size(), 1);
  EXPECT_EQ(tenants.tenants(0).name(), "tenants/ml");
  v1::ReleaseRegionRequest release;
  release.set_request_id(NewId());
  release.set_name("regions/ml.cache");
  release.set_detach_all(true);
  EXPECT_EQ(Ask(bob_, "PoolService/ReleaseRegion", release), "");
  const auto self = Get<v1::Self>(bob_, "AccessService/GetSelf", v1::GetSelfRequest());
  EXPECT_EQ(self.role(), v1::TENANT);
  ASSERT_EQ(self.tenants_size(), 1);
  EXPECT_EQ(self.tenants(0), "tenants/ml");
}

TEST_F(TenantRightsTest, NeitherSeesNorTouchesWhatIsOthers) {
  for (const char* name : {"regions/giraffe.okapi", "regions/zebra", "regions/nobodys"}) {
    EXPECT_EQ(AskOf<v1::GetRegionRequest>(bob_, "PoolService/GetRegion", name), "UNKNOWN_REGION");
    EXPECT_EQ(AskOf<v1::ListRegionHoldersRequest>(bob_, "PoolService/ListRegionHolders", name),
              "UNKNOWN_REGION");
    EXPECT_EQ(AskOf<v1::ReleaseRegionRequest>(bob_, "PoolService/ReleaseRegion", name),
              "UNKNOWN_REGION");
    v1::AttachRegionRequest attach;
    attach.set_request_id(NewId());
    attach.set_name(name);
    attach.set_host("hosts/host-a");
    EXPECT_EQ(Ask(bob_, "PoolService/AttachRegion", attach), "UNKNOWN_REGION");
    v1::ResizeRegionRequest resize;
    resize.set_request_id(NewId());
    resize.set_name(name);
    resize.set_size_bytes(5);
    EXPECT_EQ(Ask(bob_, "PoolService/ResizeRegion", resize), "UNKNOWN_REGION");
  }
  EXPECT_TRUE(Listed(bob_).empty());
  EXPECT_EQ(AskOf<v1::GetTenantRequest>(bob_, "InventoryService/GetTenant", "tenants/giraffe"),
            "UNKNOWN_TENANT");
}

// Of what is the matter with its own it hears, and of nothing else.
TEST_F(TenantRightsTest, IsToldWhatIsTheMatterWithItsRegions) {
  v1::AllocateRegionRequest allocate = Wanted("ml.kv");
  allocate.mutable_ttl()->set_seconds(300);
  ASSERT_EQ(Ask(bob_, "PoolService/AllocateRegion", allocate), "");
  allocate = Wanted("giraffe.kv", "giraffe");
  allocate.mutable_ttl()->set_seconds(300);
  ASSERT_EQ(BindTo("cxlpool://operator/dora", v1::TENANT, {"giraffe"}), "");
  ASSERT_EQ(Ask(ChannelOf("cxlpool://operator/dora"), "PoolService/AllocateRegion", allocate), "");
  const auto problems = [](const v1::ExplainResponse& explained) {
    std::vector<std::string> out;
    for (const v1::Finding& finding : explained.findings()) {
      out.push_back(absl::StrCat(finding.subject(), " ", finding.problem()));
    }
    return out;
  };
  const std::vector<std::string> own = {"regions/ml.kv LEASE_ENDS"};
  v1::ExplainRequest explain;
  EXPECT_EQ(problems(Get<v1::ExplainResponse>(bob_, "InventoryService/Explain", explain)), own);
  explain.set_name("regions/ml.kv");
  EXPECT_EQ(problems(Get<v1::ExplainResponse>(bob_, "InventoryService/Explain", explain)), own);
  for (const char* name : {"regions/giraffe.kv", "regions/zebra", "regions/nobodys"}) {
    EXPECT_EQ(AskOf<v1::ExplainRequest>(bob_, "InventoryService/Explain", name), "UNKNOWN_REGION");
  }
  for (const char* name : {"hosts/host-a", "hosts/nobodys", "devices/cmm-0", "devices/nobodys"}) {
    EXPECT_EQ(AskOf<v1::ExplainRequest>(bob_, "InventoryService/Explain", name),
              "ROLE_NOT_ALLOWED");
  }
}

// Whether somebody has the name is not told, and a name of somebody else's cannot be taken first.
TEST_F(TenantRightsTest, NamesOnlyWithinItsNameSpace) {
  for (const char* id : {"zebra", "nobodys", "giraffe.okapi", "giraffe.free"}) {
    EXPECT_EQ(Ask(bob_, "PoolService/AllocateRegion", Wanted(id)), "NAME_NOT_YOURS") << id;
    EXPECT_EQ(Ask(bob_, "PoolService/AllocateRegion", Wanted(id, "giraffe")), "TENANT_NOT_YOURS");
  }
  ASSERT_EQ(Ask(bob_, "PoolService/AllocateRegion", Wanted("ml.kv")), "");
  EXPECT_EQ(Ask(bob_, "PoolService/AllocateRegion", Wanted("ml.kv")), "REGION_EXISTS");
  EXPECT_EQ(Ask(operator_, "PoolService/AllocateRegion", Wanted("giraffe.kv")), "NAME_NOT_YOURS")
      << "nor does an operator by mistake";
  v1::RenameRegionRequest rename;
  rename.set_request_id(NewId());
  rename.set_name("regions/ml.kv");
  for (const char* id : {"zebra", "nobodys", "giraffe.okapi"}) {
    rename.set_new_region_id(id);
    EXPECT_EQ(Ask(bob_, "PoolService/RenameRegion", rename), "NAME_NOT_YOURS") << id;
  }
}

// Nor by asking for the Regions on each device in turn.
TEST_F(TenantRightsTest, DoesNotFindOutWhereItsBytesLie) {
  ASSERT_EQ(Ask(bob_, "PoolService/AllocateRegion", Wanted("ml.kv")), "");
  v1::ListRegionsRequest list;
  for (const char* device : {"cmm-0", "nobodys"}) {
    list.set_filter(absl::StrCat("device = ", device));
    EXPECT_EQ(Ask(bob_, "PoolService/ListRegions", list), "BAD_FILTER") << device;
  }
  list.set_filter("device = cmm-0");
  EXPECT_EQ(Ask(operator_, "PoolService/ListRegions", list), "");
}

// A Region is shown as it is now: not to somebody who may not see it any more.
TEST_F(TenantRightsTest, ARetryShowsNothingThatIsAnothersNow) {
  const std::string carol = "cxlpool://operator/carol";
  ASSERT_EQ(Bind(carol, v1::OPERATOR), "");
  const auto channel = ChannelOf(carol);
  v1::AllocateRegionRequest allocate = Wanted("lion", "giraffe");
  ASSERT_EQ(Ask(channel, "PoolService/AllocateRegion", allocate), "");
  ASSERT_EQ(Ask(channel, "PoolService/AllocateRegion", allocate), "");
  ASSERT_EQ(BindTo(carol, v1::TENANT, {"ml"}), "");
  EXPECT_EQ(Ask(channel, "PoolService/AllocateRegion", allocate), "UNKNOWN_REGION");
  allocate.set_size_bytes(5 * kGranule);
  EXPECT_EQ(Ask(channel, "PoolService/AllocateRegion", allocate), "UNKNOWN_REGION");
}

// Otherwise they could allocate for the next tenant of that name.
TEST_F(TenantRightsTest, ATenantGoesOnceNoHostIsForIt) {
  for (const char* whose : {kBob, kCron}) ASSERT_EQ(Unbind(whose), "");
  const auto remove = [&] {
    return AskOf<v1::RemoveTenantRequest>(operator_, "InventoryService/RemoveTenant", "tenants/ml");
  };
  EXPECT_EQ(remove(), "TENANT_HAS_HOSTS");
  ASSERT_EQ(EnrolFor("host-a", "giraffe"), "");
  EXPECT_EQ(remove(), "");
}

TEST_F(TenantRightsTest, ChoosesAmongHostsOfItsTenantsAndNoDevices) {
  for (const char* host : {"hosts/host-b", "hosts/host-r", "hosts/nobodys"}) {
    v1::AllocateRegionRequest allocate = Wanted("ml.kv");
    allocate.set_host(host);
    EXPECT_EQ(Ask(bob_, "PoolService/AllocateRegion", allocate), "HOST_NOT_YOURS") << host;
  }
  for (const char* device : {"devices/cmm-0", "devices/nobodys"}) {
    v1::AllocateRegionRequest allocate = Wanted("ml.kv");
    allocate.set_device(device);
    EXPECT_EQ(Ask(bob_, "PoolService/AllocateRegion", allocate), "DEVICE_NOT_YOURS") << device;
  }
}

// The pool has 2000 granules, of which others hold 194.
TEST_F(TenantRightsTest, ARefusalSaysNothingOfThePool) {
  v1::AllocateRegionRequest allocate = Wanted("ml.kv");
  allocate.set_size_bytes(1900 * kGranule);
  const absl::Status refused = Call(bob_, "PoolService/AllocateRegion", allocate);
  const auto refusal = RefusalOf(refused);
  ASSERT_TRUE(refusal.has_value()) << refused;
  EXPECT_EQ(refusal->reason, "POOL_FULL");
  EXPECT_EQ(refusal->message.find_first_of("0123456789"), std::string::npos) << refusal->message;
  EXPECT_TRUE(refusal->metadata.empty());
  EXPECT_NE(refusal->remedy, "");
}

TEST_F(TenantRightsTest, ASchedulerHasWhatItAllocatedItself) {
  ASSERT_EQ(Ask(bob_, "PoolService/AllocateRegion", Wanted("ml.bobs")), "");
  ASSERT_EQ(Ask(cron_, "PoolService/AllocateRegion", Wanted("ml.job-7")), "");
  EXPECT_EQ(Listed(cron_), std::vector<std::string>{"regions/ml.job-7"});
  EXPECT_EQ(Listed(bob_), (std::vector<std::string>{"regions/ml.bobs", "regions/ml.job-7"}));
  EXPECT_EQ(AskOf<v1::ReleaseRegionRequest>(cron_, "PoolService/ReleaseRegion", "regions/ml.bobs"),
            "UNKNOWN_REGION");
  EXPECT_EQ(AskOf<v1::ReleaseRegionRequest>(cron_, "PoolService/ReleaseRegion", "regions/ml.job-7"),
            "");
}

// Who waits for its answers is slowed down by them. Some are still to come when the manager stops.
TEST_F(TenantRightsTest, ATenantThatCallsTooOftenIsRefusedLate) {
  const char* kBatch = "PoolService/BatchAllocateRegions";  // Counts as 64 of 1,000 calls.
  std::string reason;
  absl::Duration waited;
  for (int i = 0; i < 200 && reason != "TENANT_TOO_BUSY"; ++i) {
    const absl::Time asked = absl::Now();
    reason = Ask(bob_, kBatch, v1::BatchAllocateRegionsRequest());
    waited = absl::Now() - asked;
  }
  EXPECT_EQ(reason, "TENANT_TOO_BUSY");
  EXPECT_GE(waited, Calls::kTooBusyDelay);
  std::vector<std::unique_ptr<RawCall>> calls;
  for (int i = 0; i < 64; ++i) {
    calls.push_back(std::make_unique<RawCall>(bob_, absl::StrCat("/cxlpool.v1.", kBatch)));
  }
  calls.resize(32);  // The others are taken back.
  EXPECT_EQ(Ask(operator_, "PoolService/GetCapacity", v1::GetCapacityRequest()), "");
}

// An answer that nobody reads is still under way: otherwise there could be any number of them.
TEST_F(TenantRightsTest, AnAnswerThatIsNotReadKeepsItsPlace) {
  v1::BatchAllocateRegionsRequest batch;
  const std::string name(40, 'x');
  for (int i = 0; i < 1000; ++i) *batch.add_requests() = Wanted(absl::StrCat("ml.", name, i));
  ASSERT_EQ(Ask(operator_, "PoolService/BatchAllocateRegions", batch), "");
  v1::ListRegionsRequest request;
  request.set_page_size(1000);
  const std::string list = request.SerializeAsString();
  std::vector<std::unique_ptr<RawCall>> unread;
  std::string reason;
  EXPECT_TRUE(Within(absl::Seconds(20),
                     [&] {
                       const auto channel =
                           ChannelOf(kBob);  // One connection has 256 calls at most.
                       for (int i = 0; i < 64; ++i) {
                         unread.push_back(std::make_unique<RawCall>(
                             channel, "/cxlpool.v1.PoolService/ListRegions"));
                         unread.back()->Send(list, true);
                       }
                       reason = Ask(cron_, "PoolService/GetCapacity", v1::GetCapacityRequest());
                       EXPECT_EQ(reason, "") << "others are not touched by that";
                       reason = Ask(bob_, "PoolService/GetCapacity", v1::GetCapacityRequest());
                       return reason == "TOO_MANY_CALLS";
                     }))
      << reason << " with " << unread.size() << " answers unread, of "
      << Get<v1::ListRegionsResponse>(bob_, "PoolService/ListRegions", request).ByteSizeLong()
      << " bytes";
  unread.clear();
  EXPECT_TRUE(Within(absl::Seconds(20), [&] {
    return Ask(bob_, "PoolService/GetCapacity", v1::GetCapacityRequest()).empty();
  }));
}

TEST_F(TenantRightsTest, RolesForTenantsNameTenantsThatThereAre) {
  EXPECT_EQ(BindTo(kBob, v1::TENANT, {}), "BAD_TENANTS");
  EXPECT_EQ(BindTo(kBob, v1::VIEWER, {"ml"}), "BAD_TENANTS");
  EXPECT_EQ(BindTo(kBob, v1::TENANT, {"nobodys"}), "UNKNOWN_TENANT");
  EXPECT_EQ(
      AskOf<v1::RemoveTenantRequest>(operator_, "InventoryService/RemoveTenant", "tenants/ml"),
      "TENANT_HAS_ROLES");
}

// A watch shows what its caller could see when it began: who may see less now does not go on.
TEST_F(TenantRightsTest, AWatchOfTheWholePoolEndsWhereItsCallerBecomesATenant) {
  ASSERT_EQ(Bind("cxlpool://operator/carol", v1::VIEWER), "");
  RawCall watch(ChannelOf("cxlpool://operator/carol"), "/cxlpool.v1.PoolService/WatchRegions");
  watch.Send("", true);
  v1::WatchRegionsResponse response;
  ASSERT_TRUE(watch.Read(&response));
  ASSERT_EQ(BindTo("cxlpool://operator/carol", v1::TENANT, {"ml"}), "");
  while (watch.Read(&response)) {
  }
  EXPECT_EQ(watch.End().code(), absl::StatusCode::kCancelled);
}

// All that it could send and hear, at random.
class TellsNothingTest : public TenantRightsTest {
 protected:
  // What others have, and what can be made of it; what they leave free only in a refusal, since who
  // fills the pool has just that.
  static bool IsOthers(uint64_t number, bool refused) {
    for (const uint64_t granules : {kOthersGranules, 2 * kOthersGranules, kOthersQuota / kGranule,
                                    kOthersQuota / kGranule - 2 * kOthersGranules}) {
      if (number == granules * kGranule) return true;
    }
    return refused && number == (2000 - 2 * kOthersGranules) * kGranule;
  }
  // Names and sizes of others in the text, but what the request said itself.
  static std::string Told(const std::string& text, const std::string& asked, bool refused) {
    for (const char* name : {"okapi", "zebra", "giraffe", "host-b", "cmm-0"}) {
      if (absl::StrContains(text, name) && !absl::StrContains(asked, name)) return name;
    }
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
      uint64_t number = 0;
      if (end > at && absl::SimpleAtoi(text.substr(at, end - at), &number) &&
          IsOthers(number, refused)) {
        return text.substr(at, end - at);
      }
      at = std::max(end, at + 1);
    }
    for (const uint64_t granules : {kOthersGranules, 2 * kOthersGranules}) {
      const std::string size = FormatByteSize(granules * kGranule);
      if (absl::StrContains(text, size)) return size;
    }
    return "";
  }

  // Mostly something that the field could be, of its own, of others and of nobody.
  std::string RandomText(const std::string& field) {
    static const std::map<std::string, std::vector<std::string>> fitting = {
        {"name",
         {"regions/ml.kv", "regions/ml.a", "regions/zebra", "regions/giraffe.okapi",
          "regions/nobodys", "tenants/ml", "tenants/giraffe", "tenants/nobodys"}},
        {"region_id", {"ml.a", "ml.b", "ml.kv", "zebra", "giraffe.okapi", "nobodys", ""}},
        {"new_region_id", {"ml.a", "ml.c", "zebra", "giraffe.okapi", "nobodys"}},
        {"tenant", {"tenants/ml", "tenants/ml", "tenants/giraffe", "tenants/nobodys", ""}},
        {"host", {"hosts/host-a", "hosts/host-b", "hosts/nobodys", ""}},
        {"device", {"", "", "devices/cmm-0", "devices/nobodys"}},
        {"isolate_from", {"regions/ml.kv", "regions/zebra", "regions/nobodys"}},
        {"filter",
         {"", "tenant=tenants/giraffe", "host=hosts/host-b", "device=devices/cmm-0",
          "state=ALLOCATED", "x"}},
        {"order_by", {"", "name desc", "size_bytes", "revision desc"}}};
    static const std::vector<std::string> odd = {"", "zebra", "hosts/host-b", "size_bytes>1", "%"};
    const auto known = fitting.find(field);
    const bool fits = known != fitting.end() && random_() % 10 != 0;
    const auto& words = fits ? known->second : odd;
    return words[random_() % words.size()];
  }
  uint64_t RandomGranules() { return random_() % 4 == 0 ? random_() % 3000 : random_() % 8; }
  // Fields at random, of messages within, too.
  void Fill(google::protobuf::Message& message, int depth = 0) {
    using Field = google::protobuf::FieldDescriptor;
    const auto* reflection = message.GetReflection();
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
      const Field* field = message.GetDescriptor()->field(i);
      const bool needed = field->name() == "request_id" || field->name() == "name" ||
                          field->name() == "tenant" || field->name() == "size_bytes";
      if (!needed && random_() % 4 != 0) continue;
      const bool many = field->is_repeated();
      switch (field->cpp_type()) {
        case Field::CPPTYPE_STRING: {
          const std::string text =
              field->name() == "request_id" ? NewId() : RandomText(field->name());
          many ? reflection->AddString(&message, field, text)
               : reflection->SetString(&message, field, text);
          break;
        }
        case Field::CPPTYPE_UINT64:
          if (!many) reflection->SetUInt64(&message, field, RandomGranules() * kGranule);
          break;
        case Field::CPPTYPE_UINT32:
          if (!many) reflection->SetUInt32(&message, field, random_() % 20);
          break;
        case Field::CPPTYPE_BOOL:
          if (!many) reflection->SetBool(&message, field, random_() % 2 != 0);
          break;
        case Field::CPPTYPE_ENUM:
          if (!many) reflection->SetEnumValue(&message, field, static_cast<int>(random_() % 4));
          break;
        case Field::CPPTYPE_MESSAGE:
          if (depth > 2) break;
          Fill(many ? *reflection->AddMessage(&message, field)
                    : *reflection->MutableMessage(&message, field),
               depth + 1);
          break;
        default:
          break;
      }
    }
  }

  // Another caller, who has made no calls yet: one may make 1,000 at once.
  std::shared_ptr<grpc::Channel> SchedulerOfMl(const std::string& name) {
    const std::string identity = "cxlpool://operator/" + name;
    EXPECT_EQ(BindTo(identity, v1::SCHEDULER, {"ml"}), "");
    return ChannelOf(identity);
  }
  // That the call is refused as quickly for a Region of others as for one that nobody has.
  template <typename Request>
  static void ExpectSameTime(const std::shared_ptr<grpc::Channel>& channel,
                             const std::string& method, Request request) {
    constexpr int kTurns = 500;
    std::vector<absl::Duration> others, nobodys;
    for (int i = 0; i < kTurns; ++i) {
      for (const bool exists : {i % 2 == 0, i % 2 != 0}) {
        request.set_name(exists ? "regions/giraffe.okapi" : "regions/giraffe.panda");
        if constexpr (requires { request.set_request_id(""); }) request.set_request_id(NewId());
        const absl::Time began = absl::Now();
        ASSERT_EQ(Ask(channel, "PoolService/" + method, request), "UNKNOWN_REGION") << method;
        (exists ? others : nobodys).push_back(absl::Now() - began);
      }
    }
    // What a busy machine adds to some of the calls is in neither.
    const auto lower_quartile = [](std::vector<absl::Duration>& times) {
      std::nth_element(times.begin(), times.begin() + kTurns / 4, times.end());
      return times[kTurns / 4];
    };
    const double ratio = absl::FDivDuration(lower_quartile(others), lower_quartile(nobodys));
    EXPECT_GT(ratio, 0.8) << method;
    EXPECT_LT(ratio, 1.25) << method;
    std::cout << "time of a refusal of " << method << ": " << ratio << " of what nobody has\n";
  }

  std::mt19937_64 random_{std::random_device()()};
};

// Each call once by each of the two, and then any of them for CXLPOOL_TENANT_SECONDS, or some.
TEST_F(TellsNothingTest, WhateverATenantAsks) {
  ASSERT_EQ(Ask(bob_, "PoolService/AllocateRegion", Wanted("ml.kv")), "");
  const auto* files = google::protobuf::DescriptorPool::generated_pool();
  std::vector<const google::protobuf::MethodDescriptor*> methods;
  for (const char* service :
       {"cxlpool.v1.PoolService", "cxlpool.v1.InventoryService", "cxlpool.v1.AccessService",
        "cxlpool.v1.HostService", "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection"}) {
    const auto* of = files->FindServiceByName(service);
    ASSERT_NE(of, nullptr) << service;
    for (int i = 0; i < of->method_count(); ++i) methods.push_back(of->method(i));
  }
  const char* const seconds = std::getenv("CXLPOOL_TENANT_SECONDS");
  absl::Time end = absl::InfiniteFuture();
  size_t chosen = 0;
  int calls = 0, answered = 0;
  std::set<std::string> reasons;
  std::map<std::string, int> calls_of;
  while (absl::Now() < end) {
    const size_t turn = chosen++;
    const bool in_order = turn < 2 * methods.size();
    if (turn == 2 * methods.size()) {
      end = absl::Now() + absl::Seconds(seconds == nullptr ? 5 : std::atoi(seconds));
    }
    const auto& channel = (in_order ? turn >= methods.size() : random_() % 4 == 0) ? cron_ : bob_;
    const auto* method = methods[in_order ? turn % methods.size() : random_() % methods.size()];
    auto* factory = google::protobuf::MessageFactory::generated_factory();
    const std::unique_ptr<google::protobuf::Message> request(
        factory->GetPrototype(method->input_type())->New());
    const std::unique_ptr<google::protobuf::Message> response(
        factory->GetPrototype(method->output_type())->New());
    Fill(*request);
    // A watch does not end: some of it is read.
    const bool watch = method->server_streaming();
    if (watch && !in_order && random_() % 10 != 0) continue;
    RawCall call(channel, absl::StrCat("/", method->service()->full_name(), "/", method->name()),
                 watch ? std::chrono::seconds(1) : kPatience);
    call.Send(request->SerializeAsString(), true);
    const std::string asked = request->DebugString();
    while (call.Read(response.get())) {
      ++answered;
      const std::string text = response->DebugString();
      ASSERT_EQ(Told(text, asked, false), "") << method->name() << "\n"
                                              << asked << "\nanswered\n"
                                              << text;
    }
    const absl::Status status = call.End();
    ++calls;
    ++calls_of[method->full_name()];
    reasons.insert(ReasonOf(status));
    std::string text = status.ToString();
    if (const auto refusal = RefusalOf(status); refusal.has_value()) {
      for (const auto& [key, value] : refusal->metadata) absl::StrAppend(&text, "\n", value);
    }
    ASSERT_EQ(Told(text, asked, true), "") << method->name() << "\n"
                                           << asked << "\nrefused\n"
                                           << text;
  }
  for (const auto* method : methods) {
    EXPECT_GE(calls_of[method->full_name()], 2) << method->full_name() << " was not called";
  }
  EXPECT_GT(calls, 200);
  EXPECT_GT(answered, 20);
  std::cout << "tenant: " << calls << " calls at random of " << calls_of.size() << " methods, "
            << answered << " answers, " << reasons.size()
            << " reasons of refusal, 0 told of others\n";
}

// As far as a test can tell: the lower quartiles of many calls in turn. What changes something is
// refused by the writer, on the state itself; what only reads, by a view.
TEST_F(TellsNothingTest, NorByTheTimeOfARefusal) {
  ExpectSameTime(bob_, "GetRegion", v1::GetRegionRequest());
  ExpectSameTime(SchedulerOfMl("release"), "ReleaseRegion", v1::ReleaseRegionRequest());
  v1::AttachRegionRequest attach;
  attach.set_host("hosts/host-a");
  ExpectSameTime(SchedulerOfMl("attach"), "AttachRegion", attach);
  v1::ResizeRegionRequest resize;
  resize.set_size_bytes(5 * kGranule);
  ExpectSameTime(SchedulerOfMl("resize"), "ResizeRegion", resize);
  v1::RenameRegionRequest rename;
  rename.set_new_region_id("ml.new");
  ExpectSameTime(SchedulerOfMl("rename"), "RenameRegion", rename);
}

}  // namespace
}  // namespace cxlpool::fm
