// Revocation as calls with real certificates: at each call, at each session, and of what stands.
#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cxlpool/v1/host_service.grpc.pb.h"
#include "cxlpool/v1/inventory_service.grpc.pb.h"
#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "fabric-manager/rpc/server.h"
#include "proto/support/loop.h"
#include "proto/support/status_wire.h"
#include "test/rigs/server_rig.h"
#include "tools/pki/pki.h"

namespace cxlpool::fm {
namespace {

// A store whose backup is never made: its stream stands.
class SlowStore : public MemoryStore {
 public:
  using MemoryStore::MemoryStore;
  ~SlowStore() override {
    if (done_) std::move(done_)(absl::CancelledError("the store is closing"));
  }
  void Backup(std::string, DoneWith<StoreBackup> done) override {
    done_ = std::move(done);
    asked.set_value();
  }
  std::promise<void> asked;

 private:
  DoneWith<StoreBackup> done_;
};

// One peer with one certificate.
struct Peer {
  Peer(const pki::IssuedFiles& files, int port) : serial(pki::ShowCertificate(files.cert)->serial) {
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("fm.cxlpool");
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto material = LoadTls(TlsFiles{files.ca, files.cert, files.key});
    EXPECT_TRUE(material.ok()) << material.status();
    const auto channel = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port),
                                                   ClientTlsOf(*material), arguments);
    regions = v1::PoolService::NewStub(channel);
    inventory = v1::InventoryService::NewStub(channel);
    hosts = v1::HostService::NewStub(channel);
  }

  static void Limit(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  }
  template <typename Stub, typename Request, typename Response>
  static absl::Status Call(Stub& stub,
                           grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                        Response*),
                           const Request& request, Response* response) {
    grpc::ClientContext context;
    Limit(context);
    return FromWire((stub.*method)(&context, request, response), context, "test");
  }
  absl::Status ListHosts() {
    v1::ListHostsResponse answer;
    return Call(*inventory, &v1::InventoryService::Stub::ListHosts, v1::ListHostsRequest(),
                &answer);
  }
  absl::Status Revoke(const std::string& subject, bool allow_own = false) {
    v1::RevokeCertificateRequest request;
    request.set_subject(subject);
    request.set_reason("lost");
    request.set_allow_own(allow_own);
    v1::Revocation answer;
    return Call(*inventory, &v1::InventoryService::Stub::RevokeCertificate, request, &answer);
  }
  absl::Status Restore(const std::string& subject) {
    v1::RestoreCertificateRequest request;
    request.set_subject(subject);
    v1::RestoreCertificateResponse answer;
    return Call(*inventory, &v1::InventoryService::Stub::RestoreCertificate, request, &answer);
  }
  absl::StatusOr<v1::CheckSessionResponse> CheckSession(const v1::Hello& hello) {
    v1::CheckSessionRequest request;
    *request.mutable_hello() = hello;
    v1::CheckSessionResponse answer;
    absl::Status status = Call(*hosts, &v1::HostService::Stub::CheckSession, request, &answer);
    if (!status.ok()) return status;
    return answer;
  }

  const std::string serial;
  std::unique_ptr<v1::PoolService::Stub> regions;
  std::unique_ptr<v1::InventoryService::Stub> inventory;
  std::unique_ptr<v1::HostService::Stub> hosts;
};

// An agent's session, read by hand.
struct Session {
  Session(Peer& peer, const v1::Hello& hello) {
    Peer::Limit(context);
    stream = peer.hosts->Session(&context);
    v1::AgentMessage first;
    *first.mutable_hello() = hello;
    stream->Write(first);
  }
  // Waits for the Welcome.
  bool Begun() {
    v1::ManagerMessage message;
    return stream->Read(&message) && message.has_welcome();
  }
  // Waits for the end. Whether the reason arrives is another matter: what is under way is cut off.
  absl::Status End() {
    v1::ManagerMessage message;
    while (stream->Read(&message)) {
    }
    return FromWire(stream->Finish(), context, "test");
  }
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AgentMessage, v1::ManagerMessage>> stream;
};

class RevocationTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(pki::InitAuthority(pki(), false).ok());
    rig_.OnCore([this] {
      rig_.sessions.Start({.on_segments = [](const auto&, const auto&, bool) {},
                           .on_events = [](const auto&, const auto&) {},
                           .on_session = [](const auto&, bool) {}});
    });
    std::promise<absl::Status> enrolled;
    rig_.pool.ChangePool(
        Caller::Admin("test"), {.method = "EnrolHost"},
        PlanFor(&PlanEnrol, {.host = "host-a", .identity = "cxlpool://host/host-a"}),
        [&](absl::Status status) { enrolled.set_value(std::move(status)); });
    ASSERT_TRUE(enrolled.get_future().get().ok());
    const pki::IssuedFiles manager = Issue(pki::LeafRole::kManager, "fm");
    auto tls = TlsSource::Load({manager.ca, manager.cert, manager.key}, CertificateUse::Manager());
    ASSERT_TRUE(tls.ok()) << tls.status();
    ServerOptions options;
    options.listen = {{"127.0.0.1:0", false}};
    options.tls = *tls;
    rig_.Serve(options);
  }

  std::string pki() const { return (rig_.directory / "pki").string(); }
  pki::IssuedFiles Issue(pki::LeafRole role, const std::string& name) {
    pki::LeafRequest leaf;
    leaf.role = role;
    leaf.name = name;
    leaf.force = true;
    const auto files = pki::IssueLeaf(pki(), leaf);
    EXPECT_TRUE(files.ok()) << files.status();
    return *files;
  }
  Peer MakePeer(pki::LeafRole role, const std::string& name) {
    return Peer(Issue(role, name), rig_.server->ports()[0]);
  }
  Peer Operator(const std::string& name) { return MakePeer(pki::LeafRole::kOperator, name); }
  Peer Host() { return MakePeer(pki::LeafRole::kHost, "host-a"); }
  v1::Hello Hello() { return FakeAgent("host-a", &rig_.world).Hello(); }
  std::string HostState(Peer& peer) {
    v1::ListHostsResponse answer;
    EXPECT_TRUE(Peer::Call(*peer.inventory, &v1::InventoryService::Stub::ListHosts,
                           v1::ListHostsRequest(), &answer)
                    .ok());
    return v1::Host::State_Name(answer.hosts(0).state());
  }

  ServerRig<SlowStore> rig_;
};

TEST_F(RevocationTest, ACertificateIsRefusedFromTheNextCallOnAndItsSuccessorIsNot) {
  Peer bob = Operator("bob"), old_alice = Operator("alice"), alice = Operator("alice");
  ASSERT_TRUE(old_alice.ListHosts().ok());
  ASSERT_TRUE(bob.Revoke(old_alice.serial).ok());
  const absl::Status refused = old_alice.ListHosts();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ReasonOf(refused), "CERTIFICATE_REVOKED");
  EXPECT_NE(refused.message().find("lost"), absl::string_view::npos) << refused;
  // Nor may it lift that, or do anything else.
  EXPECT_EQ(ReasonOf(old_alice.Restore(old_alice.serial)), "CERTIFICATE_REVOKED");
  EXPECT_EQ(ReasonOf(old_alice.Revoke(bob.serial)), "CERTIFICATE_REVOKED");
  EXPECT_TRUE(alice.ListHosts().ok());
  EXPECT_TRUE(bob.Revoke(old_alice.serial).ok());  // Again: no change.
  ASSERT_TRUE(bob.Restore(old_alice.serial).ok());
  EXPECT_TRUE(old_alice.ListHosts().ok());
  EXPECT_EQ(ReasonOf(bob.Restore(old_alice.serial)), "NOT_REVOKED");
}

TEST_F(RevocationTest, AnIdentityIsRefusedWhateverCertificateItShows) {
  Peer bob = Operator("bob"), old_alice = Operator("alice");
  ASSERT_TRUE(bob.Revoke("cxlpool://operator/alice").ok());
  Peer alice = Operator("alice");
  EXPECT_EQ(ReasonOf(old_alice.ListHosts()), "CERTIFICATE_REVOKED");
  EXPECT_EQ(ReasonOf(alice.ListHosts()), "CERTIFICATE_REVOKED");
  EXPECT_TRUE(bob.ListHosts().ok());
  ASSERT_TRUE(bob.Restore("cxlpool://operator/alice").ok());
  EXPECT_TRUE(alice.ListHosts().ok());
}

TEST_F(RevocationTest, NobodyLocksThemselvesOutByMistake) {
  Peer bob = Operator("bob");
  EXPECT_EQ(ReasonOf(bob.Revoke(bob.serial)), "REVOKES_CALLER");
  EXPECT_EQ(ReasonOf(bob.Revoke("cxlpool://operator/bob")), "REVOKES_CALLER");
  std::string written = "0x";
  for (const char c : bob.serial) written += absl::ascii_toupper(c);
  EXPECT_EQ(ReasonOf(bob.Revoke(written)), "REVOKES_CALLER");
  EXPECT_TRUE(bob.ListHosts().ok());
  EXPECT_TRUE(bob.Revoke(bob.serial, /*allow_own=*/true).ok());
  EXPECT_EQ(ReasonOf(bob.ListHosts()), "CERTIFICATE_REVOKED");
}

TEST_F(RevocationTest, WhatIsNeitherASerialNorAnIdentityIsRefused) {
  Peer bob = Operator("bob");
  for (const char* bad : {"", "alice", "cxlpool://operator/al ice", ":x", "12345g"}) {
    EXPECT_EQ(ReasonOf(bob.Revoke(bad)), "BAD_IDENTITY") << bad;
    EXPECT_EQ(ReasonOf(bob.Restore(bad)), "BAD_IDENTITY") << bad;
  }
  EXPECT_EQ(ReasonOf(Host().Revoke(bob.serial)), "ROLE_NOT_ALLOWED");
}

TEST_F(RevocationTest, StandingWatchesAndBackupsEndAtOnce) {
  Peer bob = Operator("bob"), alice = Operator("alice");
  grpc::ClientContext watching, backing;
  Peer::Limit(watching);
  Peer::Limit(backing);
  const auto watch = alice.regions->WatchRegions(&watching, v1::WatchRegionsRequest());
  v1::WatchRegionsResponse event;
  ASSERT_TRUE(watch->Read(&event));
  EXPECT_EQ(event.event(), v1::WatchRegionsResponse::SYNCED);
  const auto backup = alice.inventory->Backup(&backing, v1::BackupRequest());
  rig_.store.asked.get_future().get();
  ASSERT_TRUE(bob.Revoke(alice.serial).ok());
  EXPECT_FALSE(watch->Read(&event));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::CANCELLED);
  v1::BackupResponse piece;
  EXPECT_FALSE(backup->Read(&piece));
  const grpc::Status ended = backup->Finish();
  EXPECT_FALSE(ended.ok());
  EXPECT_NE(ended.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(RevocationTest, AHostsSessionEndsAtOnceAndItsNewCertificateBringsItBack) {
  Peer bob = Operator("bob"), old_host = Host();
  Session session(old_host, Hello());
  ASSERT_TRUE(session.Begun());
  EXPECT_EQ(HostState(bob), "ONLINE");
  ASSERT_TRUE(bob.Revoke(old_host.serial).ok());
  EXPECT_FALSE(session.End().ok());
  EXPECT_NE(HostState(bob), "ONLINE");
  Session again(old_host, Hello());
  EXPECT_EQ(ReasonOf(again.End()), "CERTIFICATE_REVOKED");
  EXPECT_EQ(ReasonOf(old_host.CheckSession(Hello()).status()), "CERTIFICATE_REVOKED");
  Peer host = Host();
  Session fresh(host, Hello());
  EXPECT_TRUE(fresh.Begun());
  EXPECT_EQ(HostState(bob), "ONLINE");
  ASSERT_TRUE(bob.Revoke("cxlpool://host/host-a").ok());
  EXPECT_FALSE(fresh.End().ok());
  EXPECT_NE(HostState(bob), "ONLINE");
}

TEST_F(RevocationTest, TheListSaysWhoWhenAndWhy) {
  Peer bob = Operator("bob");
  ASSERT_TRUE(bob.Revoke("cxlpool://operator/carol").ok());
  v1::ListRevocationsResponse all;
  ASSERT_TRUE(Peer::Call(*bob.inventory, &v1::InventoryService::Stub::ListRevocations,
                         v1::ListRevocationsRequest(), &all)
                  .ok());
  ASSERT_EQ(all.revocations_size(), 1);
  EXPECT_EQ(all.revocations(0).subject(), "cxlpool://operator/carol");
  EXPECT_EQ(all.revocations(0).reason(), "lost");
  EXPECT_EQ(all.revocations(0).revoked_by(), "cxlpool://operator/bob");
  EXPECT_NEAR(static_cast<double>(all.revocations(0).revoke_time().seconds()),
              static_cast<double>(absl::ToUnixSeconds(absl::Now())), 60);
}

TEST_F(RevocationTest, TheHostSaysWhenItsCertificateEnds) {
  Peer bob = Operator("bob"), host = Host();
  Session session(host, Hello());
  ASSERT_TRUE(session.Begun());
  v1::ListHostsResponse answer;
  ASSERT_TRUE(Peer::Call(*bob.inventory, &v1::InventoryService::Stub::ListHosts,
                         v1::ListHostsRequest(), &answer)
                  .ok());
  EXPECT_EQ(answer.hosts(0).certificate_serial(), host.serial);
  EXPECT_NEAR(static_cast<double>(answer.hosts(0).certificate_expire_time().seconds()),
              static_cast<double>(absl::ToUnixSeconds(absl::Now())) + 365 * 86400, 3600);
}

TEST_F(RevocationTest, CheckingASessionSaysWhatSessionWouldSayAndDisturbsNone) {
  Peer host = Host(), other = MakePeer(pki::LeafRole::kHost, "host-b");
  const auto free = host.CheckSession(Hello());
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_EQ(free->identity(), "cxlpool://host/host-a");
  EXPECT_EQ(free->active_peer(), "");
  Session session(host, Hello());
  ASSERT_TRUE(session.Begun());
  v1::Hello rival = Hello();
  rival.set_agent_id("00000000-0000-4000-8000-000000000009");
  const auto active = host.CheckSession(rival);
  ASSERT_TRUE(active.ok()) << active.status();
  EXPECT_NE(active->active_peer(), "");
  Peer bob = Operator("bob");
  EXPECT_EQ(HostState(bob), "ONLINE");
  EXPECT_EQ(ReasonOf(other.CheckSession(Hello()).status()), "NOT_ENROLLED");
  v1::Hello another = Hello();
  another.set_host("hosts/host-b");
  EXPECT_EQ(ReasonOf(host.CheckSession(another).status()), "WRONG_IDENTITY");
  v1::Hello unknown = Hello();
  unknown.set_host("hosts/host-b");
  EXPECT_EQ(ReasonOf(other.CheckSession(unknown).status()), "NOT_ENROLLED");
  EXPECT_EQ(ReasonOf(bob.CheckSession(Hello()).status()), "ROLE_NOT_ALLOWED");
}

}  // namespace
}  // namespace cxlpool::fm
