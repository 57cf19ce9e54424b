// What every call that changes something keeps to, tried on each as a client calls it: what is only
// asked about changes nothing, an etag is compared, and the store has who did it and why. Calls are
// found by reflection: one that is added is tried here as well, or named as one that only reads.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cxlpool/store/v1/record.pb.h"
#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/inventory_service.grpc.pb.h"
#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "fabric-manager/service/record_codec.h"
#include "proto/support/refusal.h"
#include "test/rigs/server_rig.h"

namespace cxlpool::fm {
namespace {

using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

constexpr char kWho[] = "cxlpool://operator/local";  // Of a listener without TLS.

// Keeps what each commit says of who did it.
class WitnessStore : public MemoryStore {
 public:
  using MemoryStore::MemoryStore;

  void Commit(StoreBatch batch, Done done) override {
    {
      MutexLock lock(mutex_);
      ++commits_;
      for (const Row& row : batch.puts) {
        store::v1::Record record;
        EXPECT_TRUE(record.ParseFromString(row.value));
        if (!record.has_audit_row()) continue;
        auto entries = DecodeEntries({.key = 0, .head = {}, .bytes = record.audit_row().entries()});
        ASSERT_TRUE(entries.ok()) << entries.status();
        entries_.insert(entries_.end(), entries->begin(), entries->end());
      }
    }
    MemoryStore::Commit(std::move(batch), std::move(done));
  }
  struct Seen {
    int commits = 0;
    std::vector<AuditEntry> entries;
  };
  // Since the last call of this.
  Seen Take() {
    MutexLock lock(mutex_);
    return {std::exchange(commits_, 0), std::exchange(entries_, {})};
  }

 private:
  Mutex mutex_;
  int commits_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<AuditEntry> entries_ ABSL_GUARDED_BY(mutex_);
};

std::vector<const MethodDescriptor*> AllMethods() {
  std::vector<const MethodDescriptor*> methods;
  for (const auto* file :
       {v1::GetRegionRequest::descriptor()->file(), v1::ListHostsRequest::descriptor()->file(),
        v1::RoleBinding::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        methods.push_back(file->service(s)->method(m));
      }
    }
  }
  return methods;
}

const MethodDescriptor* Method(const std::string& name) {
  for (const MethodDescriptor* method : AllMethods()) {
    if (method->name() == name) return method;
  }
  ADD_FAILURE() << "there is no call " << name;
  return nullptr;
}

// The field of a request, or of the requests of a batch; null: it has none.
const google::protobuf::FieldDescriptor* Field(const MethodDescriptor& method,
                                               const std::string& name) {
  const auto* batch = method.input_type()->FindFieldByName("requests");
  const auto* type = batch != nullptr ? batch->message_type() : method.input_type();
  return type->FindFieldByName(name);
}

class EveryCallTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string address = absl::StrCat("unix:", (rig_.directory / "fm.sock").string());
    ServerOptions options;
    options.listen = {{address, true}};
    rig_.Serve(options);
    channel_ = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    rig_.AddDevice("cmm-1", 8);
    for (const char* host : {"host-a", "host-b", "host-c"}) {
      v1::EnrolHostRequest enrol;
      enrol.set_host(absl::StrCat("hosts/", host));
      ASSERT_EQ(Ask("EnrolHost", enrol), "");
    }
    rig_.BringUp("host-a");
    for (const char* id : {"free", "attached", "leased"}) {
      ASSERT_EQ(Ask("AllocateRegion", Allocate(id)), "");
    }
    ASSERT_EQ(Ask("AttachRegion", Attach("attached")), "");
    rig_.store.Take();
  }

  // Why the call was refused, or why an item of its batch was; empty: it was not. The answer of it
  // is in answer_.
  std::string Ask(const std::string& name, const Message& request) {
    const MethodDescriptor* method = Method(name);
    const auto* factory = google::protobuf::MessageFactory::generated_factory();
    answer_.reset(const_cast<google::protobuf::MessageFactory*>(factory)
                      ->GetPrototype(method->output_type())
                      ->New());
    RawCall call(channel_, absl::StrCat("/", method->service()->full_name(), "/", name));
    call.Send(request.SerializeAsString(), true);
    call.Read(answer_.get());
    const absl::Status status = call.End();
    if (!status.ok()) return ReasonOf(status);
    const auto* results = answer_->GetDescriptor()->FindFieldByName("results");
    if (results == nullptr) return "";
    return dynamic_cast<const v1::BatchResult&>(
               answer_->GetReflection()->GetRepeatedMessage(*answer_, results, 0))
        .error()
        .reason();
  }
  static std::string NewId() { return FormatUuid(RandomUuid()); }
  template <typename Request>
  static Request Of(const std::string& region) {
    Request request;
    request.set_request_id(NewId());
    request.set_name(absl::StrCat("regions/", region));
    return request;
  }
  static v1::AllocateRegionRequest Allocate(const std::string& id) {
    v1::AllocateRegionRequest request;
    request.set_request_id(NewId());
    request.set_region_id(id);
    request.set_size_bytes(1);
    return request;
  }
  static v1::AttachRegionRequest Attach(const std::string& region) {
    auto request = Of<v1::AttachRegionRequest>(region);
    request.set_host("hosts/host-a");
    return request;
  }
  static v1::DetachRegionRequest Detach(const std::string& region) {
    auto request = Of<v1::DetachRegionRequest>(region);
    request.set_host("hosts/host-a");
    return request;
  }
  static v1::ResizeRegionRequest Resize(const std::string& region) {
    auto request = Of<v1::ResizeRegionRequest>(region);
    request.set_size_bytes(3 * kGranule);
    request.set_max_extents(4);
    return request;
  }
  static v1::RenameRegionRequest Rename(const std::string& region) {
    auto request = Of<v1::RenameRegionRequest>(region);
    request.set_new_region_id("renamed");
    return request;
  }
  static v1::RenewRegionRequest Renew(const std::string& region) {
    auto request = Of<v1::RenewRegionRequest>(region);
    request.mutable_ttl()->set_seconds(60);
    return request;
  }
  template <typename Batch, typename Request>
  static Batch BatchOf(const Request& request) {
    Batch batch;
    *batch.add_requests() = request;
    return batch;
  }
  uint64_t Revision() { return rig_.views.Get()->revision; }

  ServerRig<WitnessStore> rig_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Message> answer_;
};

TEST_F(EveryCallTest, ThatIsOnlyAskedAboutChangesNothing) {
  std::map<std::string, std::unique_ptr<Message>> asked;
  const auto add = [&](const std::string& name, auto request) {
    asked[name] = std::make_unique<decltype(request)>(std::move(request));
  };
  const auto dry = [](auto request) {
    request.set_validate_only(true);
    return request;
  };
  add("AllocateRegion", dry(Allocate("new")));
  add("BatchAllocateRegions", BatchOf<v1::BatchAllocateRegionsRequest>(dry(Allocate("new"))));
  add("AttachRegion", dry(Attach("free")));
  add("ResizeRegion", dry(Resize("free")));
  add("ReleaseRegion", dry(Of<v1::ReleaseRegionRequest>("free")));
  add("BatchReleaseRegions",
      BatchOf<v1::BatchReleaseRegionsRequest>(dry(Of<v1::ReleaseRegionRequest>("free"))));
  v1::ApplyTopologyRequest apply;
  auto& device = *apply.mutable_tables()->add_devices();
  device.set_name("devices/cmm-9");
  device.mutable_settings()->set_capacity_bytes(1 << 30);
  add("ApplyTopology", dry(apply));
  const uint64_t before = Revision();
  for (const MethodDescriptor* method : AllMethods()) {
    if (Field(*method, "validate_only") == nullptr) continue;
    ASSERT_TRUE(asked.contains(method->name())) << method->name() << " is not tried";
    EXPECT_EQ(Ask(method->name(), *asked[method->name()]), "") << method->name();
    EXPECT_EQ(rig_.store.Take().commits, 0) << method->name() << " committed something";
  }
  EXPECT_EQ(Revision(), before);
  EXPECT_TRUE(rig_.views.Get()->regions.Find("free")->attachments.empty());
}

// A client of a later release may ask for what this manager does not know. To do the rest of it
// could be what it asked not to do.
TEST_F(EveryCallTest, ThatAsksForWhatIsNotKnownHereIsRefused) {
  const auto add = [](Message& message) {
    message.GetReflection()->MutableUnknownFields(&message)->AddVarint(900, 1);
  };
  auto* const factory = google::protobuf::MessageFactory::generated_factory();
  int tried = 0;
  rig_.store.Take();
  for (const MethodDescriptor* method : AllMethods()) {
    if (Field(*method, "request_id") == nullptr) continue;
    ++tried;
    const std::unique_ptr<Message> request(factory->GetPrototype(method->input_type())->New());
    add(*request);
    EXPECT_EQ(Ask(method->name(), *request), "BAD_FIELD") << method->name();
  }
  EXPECT_GT(tried, 15);
  v1::AllocateRegionRequest allocate = Allocate("new");
  add(*allocate.mutable_open_to());
  EXPECT_EQ(Ask("AllocateRegion", allocate), "BAD_FIELD");
  EXPECT_EQ(Ask("BatchAllocateRegions", BatchOf<v1::BatchAllocateRegionsRequest>(allocate)),
            "BAD_FIELD");
  EXPECT_EQ(rig_.store.Take().commits, 0);
  allocate.clear_open_to();
  EXPECT_EQ(Ask("AllocateRegion", allocate), "");
  // What only reads is answered as far as it is understood.
  v1::GetRegionRequest get;
  get.set_name("regions/new");
  add(get);
  EXPECT_EQ(Ask("GetRegion", get), "");
}

TEST_F(EveryCallTest, WithAnEtagIsRefusedWhereTheRegionHasChanged) {
  std::map<std::string, std::function<std::string(const std::string&)>> calls;
  const auto add = [&](const std::string& name, const std::string& region, auto make) {
    calls[name] = [=, this](const std::string& etag) {
      auto request = make(region);
      request.set_etag(etag.empty() ? rig_.views.Get()->regions.Find(region)->etag() : etag);
      return Ask(name, request);
    };
  };
  add("AttachRegion", "free", Attach);
  add("DetachRegion", "attached", Detach);
  add("RenewRegion", "leased", Renew);
  add("ResizeRegion", "leased", Resize);
  add("RenameRegion", "leased", Rename);
  add("ReleaseRegion", "free", [](const std::string& region) {
    auto request = Of<v1::ReleaseRegionRequest>(region);
    request.set_detach_all(true);
    return request;
  });
  calls["BatchReleaseRegions"] = [this](const std::string& etag) {
    auto request = Of<v1::ReleaseRegionRequest>("attached");
    request.set_detach_all(true);
    request.set_etag(etag.empty() ? rig_.views.Get()->regions.Find("attached")->etag() : etag);
    return Ask("BatchReleaseRegions", BatchOf<v1::BatchReleaseRegionsRequest>(request));
  };
  // In an order in which each can be done.
  for (const char* name : {"AttachRegion", "DetachRegion", "RenewRegion", "ResizeRegion",
                           "RenameRegion", "ReleaseRegion", "BatchReleaseRegions"}) {
    rig_.store.Take();
    EXPECT_EQ(calls.at(name)("stale"), "ETAG_MISMATCH") << name;
    EXPECT_EQ(rig_.store.Take().commits, 0) << name;
    EXPECT_EQ(calls.at(name)(""), "") << name;
    EXPECT_EQ(rig_.store.Take().commits, 1) << name;
  }
  for (const MethodDescriptor* method : AllMethods()) {
    EXPECT_EQ(Field(*method, "etag") != nullptr, calls.contains(method->name())) << method->name();
  }
}

TEST_F(EveryCallTest, IsInTheStoreWithWhoDidItAndWhy) {
  std::set<std::string> tried;
  // `reason`: of the entry. `action`: under which the call is kept, where that is not its name.
  const auto expect = [&](const std::string& name, const Message& request,
                          const std::string& reason = "", const std::string& action = "") {
    tried.insert(name);
    rig_.store.Take();
    ASSERT_EQ(Ask(name, request), "") << name;
    const WitnessStore::Seen seen = rig_.store.Take();
    ASSERT_FALSE(seen.entries.empty()) << name;
    for (const AuditEntry& entry : seen.entries) {
      EXPECT_EQ(entry.who, kWho) << name;
      EXPECT_EQ(entry.method, action.empty() ? name : action);
      EXPECT_EQ(entry.reason, reason) << name;
      EXPECT_GT(entry.time, absl::UnixEpoch()) << name;
    }
    // What the answer says of it is the revision that has it.
    const auto* revision = answer_->GetDescriptor()->FindFieldByName("revision");
    if (revision == nullptr) return;
    EXPECT_EQ(answer_->GetReflection()->GetUInt64(*answer_, revision), Revision()) << name;
  };
  expect("AllocateRegion", Allocate("new"));
  expect("BatchAllocateRegions", BatchOf<v1::BatchAllocateRegionsRequest>(Allocate("newer")), "",
         "AllocateRegion");
  expect("AttachRegion", Attach("free"));
  expect("DetachRegion", Detach("free"));
  expect("ResizeRegion", Resize("leased"));
  expect("RenewRegion", Renew("leased"));
  expect("RenameRegion", Rename("leased"));
  auto release = Of<v1::ReleaseRegionRequest>("new");
  release.set_force(true);
  release.set_reason("it burned");
  expect("ReleaseRegion", release, "it burned");
  EXPECT_EQ(rig_.views.Get()->regions.Find("new")->state_reason, "FORCED: it burned");
  release = Of<v1::ReleaseRegionRequest>("newer");
  release.set_force(true);
  release.set_reason("so did this");
  expect("BatchReleaseRegions", BatchOf<v1::BatchReleaseRegionsRequest>(release), "so did this",
         "ReleaseRegion");

  v1::SetTenantRequest tenant;
  tenant.mutable_tenant()->set_name("tenants/ml");
  tenant.mutable_tenant()->set_quota_bytes(400 * kGranule);
  tenant.mutable_tenant()->set_reserved_bytes(2 * kGranule);
  tenant.mutable_tenant()->set_host_cap_bytes(3 * kGranule);
  expect("SetTenant", tenant);
  const auto& set = dynamic_cast<const v1::Tenant&>(*answer_);
  EXPECT_EQ(set.SerializeAsString(), tenant.tenant().SerializeAsString());
  v1::EnrolHostRequest enrol;
  enrol.set_host("hosts/host-d");
  enrol.set_identity("spiffe://site/host-d");
  enrol.add_tenants("tenants/ml");
  expect("EnrolHost", enrol, "spiffe://site/host-d for tenants ml");
  const auto& enrolled = dynamic_cast<const v1::Host&>(*answer_);
  EXPECT_EQ(enrolled.identity(), "spiffe://site/host-d");
  ASSERT_EQ(enrolled.tenants_size(), 1);
  EXPECT_EQ(enrolled.tenants(0), "tenants/ml");
  v1::AddHostRequest add_host;
  add_host.set_host("hosts/host-e");
  add_host.mutable_settings()->add_slots(3);
  expect("AddHost", add_host);
  EXPECT_EQ(dynamic_cast<const v1::Host&>(*answer_).name(), "hosts/host-e");
  EXPECT_EQ(rig_.views.Get()->laid_down->tables.hosts.back().slots, std::vector<uint32_t>{3});
  v1::RemoveHostRequest remove_host;
  remove_host.set_host("hosts/host-d");
  expect("RemoveHost", remove_host);
  v1::RemoveTenantRequest remove_tenant;
  remove_tenant.set_name("tenants/ml");
  expect("RemoveTenant", remove_tenant);
  v1::RetireHostRequest retire;
  retire.set_host("hosts/host-b");
  expect("RetireHost", retire);
  v1::FenceHostRequest fence;
  fence.set_host("hosts/host-a");
  fence.set_reason("it smokes");
  expect("FenceHost", fence, "it smokes");

  v1::RevokeCertificateRequest revoke;
  revoke.set_subject("7A01");
  revoke.set_reason("a lost laptop");
  expect("RevokeCertificate", revoke, "a lost laptop");
  EXPECT_EQ(dynamic_cast<const v1::Revocation&>(*answer_).revoked_by(), kWho);
  v1::RestoreCertificateRequest restore;
  restore.set_subject("7a01");
  expect("RestoreCertificate", restore, "7a01");

  v1::SetRoleBindingRequest bind;
  bind.mutable_role_binding()->set_identity("cxlpool://operator/bob");
  bind.mutable_role_binding()->set_role(v1::ADMIN);
  bind.mutable_role_binding()->set_reason("he is new");
  expect("SetRoleBinding", bind, "he is new");
  EXPECT_EQ(dynamic_cast<const v1::RoleBinding&>(*answer_).bound_by(), kWho);
  v1::RemoveRoleBindingRequest unbind;
  unbind.set_identity("cxlpool://operator/bob");
  expect("RemoveRoleBinding", unbind, unbind.identity());

  v1::DrainDeviceRequest drain;
  drain.set_device("devices/cmm-1");
  expect("DrainDevice", drain);
  v1::AddDeviceRequest add;
  add.set_device("devices/cmm-1");
  expect("AddDevice", add);
  add.set_device("devices/cmm-7");
  add.mutable_settings()->set_capacity_bytes(1 << 30);
  expect("AddDevice", add);
  EXPECT_EQ(dynamic_cast<const v1::Device&>(*answer_).state(), v1::Device::UNREACHABLE);
  EXPECT_EQ(rig_.views.Get()->laid_down->tables.devices.back().capacity_bytes, 1u << 30);
  v1::ApplyTopologyRequest apply;
  *apply.mutable_tables()->add_devices()->mutable_settings() = add.settings();
  apply.mutable_tables()->mutable_devices(0)->set_name("devices/cmm-8");
  expect("ApplyTopology", apply);
  const auto& steps = dynamic_cast<const v1::ApplyTopologyResponse&>(*answer_).steps();
  ASSERT_EQ(steps.size(), 3) << "cmm-8 comes, host-e and cmm-7 go";
  EXPECT_EQ(steps[0].verb(), v1::TopologyStep::ADD);
  EXPECT_EQ(steps[0].what(), "device cmm-8");
  EXPECT_EQ(steps[1].verb(), v1::TopologyStep::REMOVE);
  v1::FailDeviceRequest fail;
  fail.set_device("devices/cmm-1");
  fail.set_reason("a burnt smell");
  expect("FailDevice", fail, "a burnt smell");
  EXPECT_EQ(dynamic_cast<const v1::Device&>(*answer_).state_reason(), "a burnt smell");

  v1::RemoveDeviceRequest remove_device;
  rig_.AddDevice("cmm-2", 8);
  drain.set_device("devices/cmm-2");
  ASSERT_EQ(Ask("DrainDevice", drain), "");
  remove_device.set_device("devices/cmm-2");
  expect("RemoveDevice", remove_device);

  const std::set<std::string> only_read = {
      "GetRegion", "ListRegions", "WatchRegions",    "GetCapacity",       "ListDevices",
      "ListHosts", "GetTopology", "GetTenant",       "ListTenants",       "ListRevocations",
      "Explain",   "Backup",      "DiscoverDevices", "ListRegionHolders", "ListRoleBindings",
      "GetSelf",   "ListEvents",  "VerifyAudit"};
  for (const MethodDescriptor* method : AllMethods()) {
    EXPECT_NE(tried.contains(method->name()), only_read.contains(method->name())) << method->name();
  }
}

}  // namespace
}  // namespace cxlpool::fm
