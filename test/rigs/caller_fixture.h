// A manager behind TLS, and callers with certificates of every kind: operators, hosts, and what is
// made up. For tests of who may do what.
#ifndef CXLPOOL_TEST_RIGS_CALLER_FIXTURE_H_
#define CXLPOOL_TEST_RIGS_CALLER_FIXTURE_H_

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/host_service.pb.h"
#include "cxlpool/v1/inventory_service.grpc.pb.h"
#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "proto/support/refusal.h"
#include "proto/support/tls.h"
#include "test/rigs/server_rig.h"
#include "tools/pki/certificate.h"

namespace cxlpool::fm {

inline constexpr char kSession[] = "/cxlpool.v1.HostService/Session";
inline constexpr char kCheckSession[] = "/cxlpool.v1.HostService/CheckSession";

class CallerFixture : public testing::Test {
 protected:
  using Pair = pki::PemPair;

  void SetUp() override {
    authority_ = NewAuthority();
    const Pair manager = Leaf("cxlpool://manager/fm", {.server = true});
    TlsFiles files{Write("ca.pem", authority_.cert), Write("fm.pem", manager.cert),
                   Write("fm.key", manager.key)};
    auto tls = TlsSource::Load(files, CertificateUse::Manager());
    ASSERT_TRUE(tls.ok()) << tls.status();
    ServerOptions options;
    options.listen = {{"127.0.0.1:0", false}, {"127.0.0.1:0", false, /*tokens=*/true}};
    options.tls = *tls;
    options.admins = {"cxlpool://operator/breakglass"};
    rig_.Serve(options);
    rig_.server->SetServing(true);
    address_ = absl::StrCat("127.0.0.1:", rig_.server->ports()[0]);
    token_address_ = absl::StrCat("127.0.0.1:", rig_.server->ports()[1]);
    operator_ = Channel(Leaf("cxlpool://operator/alice"));
    for (const auto& [host, identity] : std::map<std::string, std::string>{
             {"host-a", ""}, {"host-b", ""}, {"host-r", ""}, {"host-s", "spiffe://site/host-s"}}) {
      v1::EnrolHostRequest enrol;
      enrol.set_host(absl::StrCat("hosts/", host));
      enrol.set_identity(identity);
      ASSERT_EQ(Ask(operator_, "InventoryService/EnrolHost", enrol), "") << host;
    }
    v1::RetireHostRequest retire;
    retire.set_host("hosts/host-r");
    ASSERT_EQ(Ask(operator_, "InventoryService/RetireHost", retire), "");
  }

  static Pair NewAuthority() {
    return *pki::MakeAuthority("test", absl::Now() - absl::Hours(24),
                               absl::Now() + absl::Hours(24));
  }
  struct LeafOptions {
    bool server = false;
    bool expired = false;
    std::vector<std::string> more_uris = {};
    const Pair* issuer = nullptr;  // Null: the pool's authority.
  };
  Pair Leaf(const std::string& uri, const LeafOptions& options) const {
    pki::CertificateRequest request;
    request.common_name = "test";
    request.uri = uri;
    request.more_uris = options.more_uris;
    request.server = options.server;
    request.dns = {"fm.cxlpool"};
    request.not_before = absl::Now() - absl::Hours(24);
    request.not_after = absl::Now() + (options.expired ? -absl::Hours(1) : absl::Hours(24));
    auto pair = pki::MakeLeaf(options.issuer == nullptr ? authority_ : *options.issuer, request);
    EXPECT_TRUE(pair.ok()) << pair.status();
    return *std::move(pair);
  }
  Pair Leaf(const std::string& uri) const { return Leaf(uri, LeafOptions()); }
  std::string Write(const std::string& name, const std::string& text) const {
    const std::string path = (rig_.directory / name).string();
    std::ofstream(path) << text;
    chmod(path.c_str(), 0600);
    return path;
  }

  // A connection of its own, with this certificate; one without any.
  std::shared_ptr<grpc::Channel> Channel(const Pair& pair) const {
    return Channel(address_, pair, "");
  }
  // The same to where tokens are taken, with this one; empty: without.
  std::shared_ptr<grpc::Channel> ChannelWith(const std::string& token,
                                             const Pair& pair = {}) const {
    return Channel(token_address_, pair, token);
  }
  std::shared_ptr<grpc::Channel> Channel(const std::string& address, const Pair& pair,
                                         const std::string& token) const {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = authority_.cert;
    options.pem_private_key = pair.key;
    options.pem_cert_chain = pair.cert;
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("fm.cxlpool");
    arguments.SetInt("cxlpool.test", ++channels_);  // Shared with no other channel.
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // What is not read stays with the manager.
    auto credentials = grpc::SslCredentials(options);
    if (!token.empty()) {
      credentials =
          grpc::CompositeChannelCredentials(credentials, grpc::AccessTokenCredentials(token));
    }
    return grpc::CreateCustomChannel(address, credentials, arguments);
  }
  std::shared_ptr<grpc::Channel> ChannelOf(const std::string& uri) const {
    return Channel(Leaf(uri));
  }

  // The status of a unary call of cxlpool.v1.
  template <typename Request>
  static absl::Status Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                           const Request& request) {
    RawCall call(channel, absl::StrCat("/cxlpool.v1.", method));
    call.Send(request.SerializeAsString(), true);
    call.Skip();
    return call.End();
  }
  // Why it was refused; empty: it was not.
  template <typename Request>
  static std::string Ask(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                         const Request& request) {
    const absl::Status status = Call(channel, method, request);
    return status.ok() || !ReasonOf(status).empty() ? ReasonOf(status)
                                                    : std::string(status.message());
  }

  // The answer of one that is not refused.
  template <typename Response, typename Request>
  static Response Get(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                      const Request& request) {
    RawCall call(channel, absl::StrCat("/cxlpool.v1.", method));
    call.Send(request.SerializeAsString(), true);
    Response response;
    EXPECT_TRUE(call.Read(&response)) << method;
    call.Skip();
    const absl::Status status = call.End();
    EXPECT_TRUE(status.ok()) << method << ": " << status;
    return response;
  }

  static v1::SetRoleBindingRequest ToBind(const std::string& identity, v1::Role role,
                                          absl::Time end = absl::InfiniteFuture()) {
    v1::SetRoleBindingRequest request;
    request.mutable_role_binding()->set_identity(identity);
    request.mutable_role_binding()->set_role(role);
    request.mutable_role_binding()->set_reason("of a test");
    if (end == absl::InfiniteFuture()) return request;
    request.mutable_role_binding()->mutable_end_time()->set_seconds(absl::ToUnixSeconds(end));
    return request;
  }
  // By alice.
  std::string Bind(const std::string& identity, v1::Role role,
                   absl::Time end = absl::InfiniteFuture()) {
    return Ask(operator_, "AccessService/SetRoleBinding", ToBind(identity, role, end));
  }
  // For tenants.
  std::string BindTo(const std::string& identity, v1::Role role,
                     const std::vector<std::string>& tenants) {
    v1::SetRoleBindingRequest request = ToBind(identity, role);
    for (const std::string& tenant : tenants) {
      request.mutable_role_binding()->add_tenants("tenants/" + tenant);
    }
    return Ask(operator_, "AccessService/SetRoleBinding", request);
  }
  std::string MakeTenant(const std::string& tenant, uint64_t quota_bytes) {
    v1::SetTenantRequest set;
    set.mutable_tenant()->set_name("tenants/" + tenant);
    set.mutable_tenant()->set_quota_bytes(quota_bytes);
    return Ask(operator_, "InventoryService/SetTenant", set);
  }
  // For this tenant and no other.
  std::string EnrolFor(const std::string& host, const std::string& tenant) {
    v1::EnrolHostRequest enrol;
    enrol.set_host("hosts/" + host);
    enrol.add_tenants("tenants/" + tenant);
    return Ask(operator_, "InventoryService/EnrolHost", enrol);
  }
  // Whoever shows a certificate with this serial number or identity, or a token of this identity.
  std::string Revoke(const std::string& subject) {
    v1::RevokeCertificateRequest revoke;
    revoke.set_request_id(NewId());
    revoke.set_subject(subject);
    revoke.set_reason("it leaked");
    return Ask(operator_, "InventoryService/RevokeCertificate", revoke);
  }
  std::string Unbind(const std::string& identity) {
    v1::RemoveRoleBindingRequest request;
    request.set_identity(identity);
    return Ask(operator_, "AccessService/RemoveRoleBinding", request);
  }
  template <typename Condition>
  static bool Within(absl::Duration time, Condition condition) {
    for (const absl::Time until = absl::Now() + time; absl::Now() < until;) {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(50));
    }
    return false;
  }

  static std::string NewId() { return FormatUuid(RandomUuid()); }

  // As their agents would.
  void MakeHostsUsable() {
    for (const char* host : {"host-a", "host-b"}) rig_.BringUp(host);
  }
  // Allocates on `host`, by an operator.
  std::string AllocateOn(const std::string& id, const std::string& host) {
    v1::AllocateRegionRequest allocate;
    allocate.set_request_id(NewId());
    allocate.set_region_id(id);
    allocate.set_size_bytes(1);
    allocate.set_host(host);
    return Ask(operator_, "PoolService/AllocateRegion", allocate);
  }
  // Records what `edit` makes of the Region, and waits until that is durable.
  void Rewrite(const std::string& id, const std::function<void(Region&)>& edit) {
    std::promise<absl::Status> done;
    rig_.OnCore([&] {
      rig_.writer.Submit(
          Audit{{}, "test", "rewrite", ""},
          [&](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
            auto edited = std::make_shared<Region>(**state.FindRegionById(id));
            edit(*edited);
            edited->revision = context.revision;
            return Proposal::Of(RegionPtr(edited), edited);
          },
          [&done](const absl::StatusOr<Committed>& got) { done.set_value(got.status()); });
    });
    const absl::Status status = done.get_future().get();
    EXPECT_TRUE(status.ok()) << status;
  }

  ServerRig<MemoryStore> rig_;
  Pair authority_;
  std::string address_;
  std::string token_address_;  // Where a certificate is not needed.
  std::shared_ptr<grpc::Channel> operator_;
  mutable int channels_ = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_CALLER_FIXTURE_H_
