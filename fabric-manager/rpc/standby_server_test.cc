// A standby as its callers see it, over real connections: what it answers, to whom, and that
// another server listens where it did.
#include "fabric-manager/rpc/standby_server.h"

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cxlpool/v1/access_service.grpc.pb.h"
#include "cxlpool/v1/host_service.grpc.pb.h"
#include "grpc/health/v1/health.pb.h"
#include "proto/support/status_wire.h"
#include "test/rigs/server_rig.h"
#include "tools/pki/pki.h"

namespace cxlpool::fm {
namespace {

using Health = grpc::health::v1::HealthCheckResponse;
constexpr char kCapacityMethod[] = "/cxlpool.v1.PoolService/GetCapacity";

class StandbyServerTest : public testing::Test {
 protected:
  StandbyServerTest() {
    EXPECT_TRUE(pki::InitAuthority(Pki("pool"), false).ok());
    EXPECT_TRUE(pki::InitAuthority(Pki("other"), false).ok());
    manager_ = Issue("pool", pki::LeafRole::kManager, "fm");
    operator_ = Issue("pool", pki::LeafRole::kOperator, "ann");
    stranger_ = Issue("other", pki::LeafRole::kOperator, "eve");
    options_.tls =
        *TlsSource::Load({manager_.ca, manager_.cert, manager_.key}, CertificateUse::Manager());
    options_.listen = {{.address = "127.0.0.1:0"},
                       {.address = "127.0.0.1:0", .tokens = true},
                       {.address = Socket(), .insecure = true}};
    facts_ = {.leader = "b:7600", .epoch = 7, .revision = 40};
    auto started = StandbyServer::Start(options_, [this] { return facts_; });
    EXPECT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  std::string Pki(const std::string& name) const { return (rig_.directory / name).string(); }
  std::string Socket() const {
    return absl::StrCat("unix:", (rig_.directory / "fm.sock").string());
  }

  pki::IssuedFiles Issue(const std::string& authority, pki::LeafRole role,
                         const std::string& name) const {
    pki::LeafRequest request;
    request.role = role;
    request.name = name;
    return *pki::IssueLeaf(Pki(authority), request);
  }

  // With the certificate of `who`; `listen` is the address that it dials.
  std::shared_ptr<grpc::Channel> ChannelOf(const pki::IssuedFiles& who, size_t listen = 0) {
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("fm.cxlpool");
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(
        absl::StrCat("127.0.0.1:", server_->ports()[listen]),
        grpc::SslCredentials({TextOf(who.ca), TextOf(who.key), TextOf(who.cert)}), arguments);
  }
  // Of the file at `path`; empty: of none.
  static std::string TextOf(const std::string& path) {
    std::ostringstream text;
    if (!path.empty()) text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static std::map<std::string, std::string> MetadataOf(const absl::Status& status) {
    const auto refusal = RefusalOf(status);
    if (!refusal.has_value()) return {};
    return {refusal->metadata.begin(), refusal->metadata.end()};
  }
  static absl::Status Ask(const std::shared_ptr<grpc::Channel>& channel,
                          const std::string& path = kCapacityMethod) {
    return RawCall(channel, path).End();
  }

  ServerRig<MemoryStore> rig_;  // The manager that takes the place, and a directory.
  pki::IssuedFiles manager_, operator_, stranger_;
  ServerOptions options_;
  StandbyFacts facts_;
  std::unique_ptr<StandbyServer> server_;
};

TEST_F(StandbyServerTest, EveryCallIsToldWhoLeads) {
  const auto channel = ChannelOf(operator_);
  for (const char* path :
       {kCapacityMethod, "/cxlpool.v1.PoolService/AllocateRegion",
        "/cxlpool.v1.PoolService/WatchRegions", "/cxlpool.v1.HostService/Session",
        "/cxlpool.v1.AccessService/GetSelf", "/cxlpool.v1.NoService/NoMethod"}) {
    const absl::Status status = Ask(channel, path);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << path;
    EXPECT_EQ(ReasonOf(status), "NOT_LEADER") << path;
    EXPECT_EQ(MetadataOf(status), (std::map<std::string, std::string>{
                                      {"leader", "b:7600"}, {"epoch", "7"}, {"revision", "40"}}))
        << path;
  }
}

TEST_F(StandbyServerTest, AnUnknownLeaderIsLeftOut) {
  facts_ = {};
  EXPECT_EQ(MetadataOf(Ask(ChannelOf(operator_))),
            (std::map<std::string, std::string>{{"epoch", "0"}, {"revision", "0"}}));
}

TEST_F(StandbyServerTest, AStreamEndsAtOnceWhateverItSends) {
  const auto hosts = v1::HostService::NewStub(ChannelOf(operator_));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto stream = hosts->Session(&context);
  v1::AgentMessage hello;
  hello.mutable_hello()->set_host("hosts/host-a");
  stream->Write(hello);
  v1::ManagerMessage answer;
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(ReasonOf(FromWire(stream->Finish(), context, "test")), "NOT_LEADER");
}

TEST_F(StandbyServerTest, HealthChecksHearThatItDoesNotServe) {
  const auto channel = ChannelOf(operator_);
  for (const char* method : {"Check", "Watch"}) {
    RawCall call(channel, absl::StrCat("/grpc.health.v1.Health/", method));
    call.Send("", /*last=*/true);
    Health answer;
    ASSERT_TRUE(call.Read(&answer)) << method;
    EXPECT_EQ(answer.status(), Health::NOT_SERVING) << method;
    EXPECT_EQ(ReasonOf(call.End()), std::string(method) == "Check" ? "" : "NOT_LEADER");
  }
}

TEST_F(StandbyServerTest, AStrangerHearsNothing) {
  // Of another authority: the handshake fails, and no call comes to be.
  EXPECT_EQ(ReasonOf(Ask(ChannelOf({manager_.ca, stranger_.cert, stranger_.key}))),
            "MANAGER_UNREACHABLE");
  // Without a certificate, where tokens are shown: that it is to turn elsewhere, and no more.
  const absl::Status token = Ask(ChannelOf({manager_.ca, "", ""}, 1));
  EXPECT_EQ(ReasonOf(token), "NOT_LEADER");
  EXPECT_TRUE(MetadataOf(token).empty());
  EXPECT_EQ(MetadataOf(Ask(ChannelOf(operator_, 1))).count("leader"), 1u);
}

TEST_F(StandbyServerTest, WhoTakesOverListensOnTheSamePortsAtOnce) {
  // A stream that nobody reads is open, and so are the connections.
  const auto channel = ChannelOf(operator_);
  RawCall watch(channel, "/grpc.health.v1.Health/Watch");
  ASSERT_EQ(ReasonOf(Ask(channel)), "NOT_LEADER");
  const auto local = grpc::CreateChannel(Socket(), grpc::InsecureChannelCredentials());
  ASSERT_EQ(ReasonOf(Ask(local)), "NOT_LEADER");
  for (size_t i = 0; i < 2; ++i) {
    options_.listen[i].address = absl::StrCat("127.0.0.1:", server_->ports()[i]);
  }
  const absl::Time begin = absl::Now();
  server_->Shutdown(absl::Seconds(5));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(4));
  options_.epoch = 8;
  rig_.Serve(options_);
  ASSERT_NE(rig_.server, nullptr);
  EXPECT_EQ(rig_.server->ports(), server_->ports());
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  v1::Self self;
  const auto status =
      v1::AccessService::NewStub(local)->GetSelf(&context, v1::GetSelfRequest(), &self);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(self.epoch(), 8u);
  EXPECT_EQ(self.revision(), rig_.views.Get()->revision);
}

TEST_F(StandbyServerTest, AnAddressThatIsTakenIsNamed) {
  ServerOptions again = options_;
  again.listen = {{.address = absl::StrCat("127.0.0.1:", server_->ports()[0])}};
  const auto second = StandbyServer::Start(again, [] { return StandbyFacts(); });
  EXPECT_EQ(ReasonOf(second.status()), "CANNOT_LISTEN");
  again.tls = nullptr;
  EXPECT_EQ(ReasonOf(StandbyServer::Start(again, [] { return StandbyFacts(); }).status()),
            "NO_TLS");
}

}  // namespace
}  // namespace cxlpool::fm
