// The stub against a real gRPC server in this process, on a Unix socket in a temporary directory.
#include "tools/cli/grpc_stub.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <vector>

#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "proto/support/refusal.h"
#include "proto/support/status_wire.h"
#include "proto/support/tls.h"
#include "tools/cli/testing.h"
#include "tools/pki/pki.h"

namespace cxlpool::cli {
namespace {

using testing::HasSubstr;

// Fails the first `failures` calls, then answers.
class FakePool : public v1::PoolService::Service {
 public:
  grpc::Status AllocateRegion(grpc::ServerContext* context,
                              const v1::AllocateRegionRequest* request,
                              v1::AllocateRegionResponse* response) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    request_ids.push_back(request->request_id());
    for (const auto& [key, value] : context->client_metadata()) {
      if (key == "user-agent") user_agent = std::string(value.data(), value.size());
    }
    if (static_cast<int>(request_ids.size()) <= failures) return ToWire(failure, *context);
    response->mutable_region()->set_name("regions/kv");
    response->set_revision(9);
    return grpc::Status::OK;
  }

  // Answers only when the test is over.
  grpc::Status GetRegion(grpc::ServerContext*, const v1::GetRegionRequest*, v1::Region*) override {
    std::unique_lock<std::mutex> lock(mutex_);
    released_.wait(lock, [this] { return is_released_; });
    return grpc::Status::CANCELLED;
  }

  grpc::Status WatchRegions(grpc::ServerContext* context, const v1::WatchRegionsRequest* request,
                            grpc::ServerWriter<v1::WatchRegionsResponse>* writer) override {
    if (request->start_revision() == 1) {
      return ToWire(Refused(absl::StatusCode::kOutOfRange, "REVISION_COMPACTED"), *context);
    }
    uint64_t revision = request->start_revision();
    while (writer->Write(Synced(++revision))) {
    }
    return grpc::Status::OK;
  }

  void Release() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_released_ = true;
    released_.notify_all();
  }

  int failures = 0;
  absl::Status failure;
  std::vector<std::string> request_ids;
  std::string user_agent;

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  bool is_released_ = false;
};

class GrpcStubTest : public testing::Test {
 protected:
  GrpcStubTest() {
    std::string name = (std::filesystem::temp_directory_path() / "cxlpool-cli-XXXXXX").string();
    dir_ = mkdtemp(name.data());
    address_ = "unix:" + (dir_ / "manager.sock").string();
    stub_ = MakeStub(address_);
  }
  ~GrpcStubTest() override {
    pool_.Release();
    stub_.reset();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
    std::filesystem::remove_all(dir_);
  }

  static std::unique_ptr<ManagerStub> MakeStub(const std::string& address) {
    ConnectionSettings settings;
    settings.manager = address;
    settings.insecure = true;
    auto stub = MakeGrpcStub(settings);
    EXPECT_TRUE(stub.ok()) << stub.status();
    return stub.ok() ? *std::move(stub) : nullptr;
  }

  void StartServer(
      std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials()) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address_, credentials, &port_);
    builder.RegisterService(&pool_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }

  v1::AllocateRegionRequest Request() const {
    v1::AllocateRegionRequest request;
    request.set_request_id("00000000-0000-4000-8000-000000000001");
    return request;
  }

  std::filesystem::path dir_;
  std::string address_;
  int port_ = 0;
  FakePool pool_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ManagerStub> stub_;
  SystemPacer pacer_;
};

// Starts the server once the first attempt has failed.
class StartOnRetry : public CallListener {
 public:
  explicit StartOnRetry(std::function<void()> start) : start_(std::move(start)) {}
  void OnRetry(const absl::Status& status, absl::Duration) override {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    if (++retries == 1) start_();
  }
  int retries = 0;

 private:
  const std::function<void()> start_;
};

TEST_F(GrpcStubTest, ReachesAManagerThatComesUpLate) {
  StartOnRetry listener([&] { StartServer(); });
  Connection connection(*stub_, pacer_, listener, absl::Seconds(60));
  const auto response = connection.Call(&ManagerStub::AllocateRegion, Request());
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->revision(), 9u);
  EXPECT_GE(listener.retries, 1);
  EXPECT_THAT(pool_.request_ids, testing::ElementsAre("00000000-0000-4000-8000-000000000001"));
  EXPECT_THAT(pool_.user_agent, testing::StartsWith("cxlpool/"));
}

// Over TCP, where a connection takes several steps to come about.
TEST_F(GrpcStubTest, ComesBackAfterTheManagerWasAway) {
  address_ = "127.0.0.1:0";
  StartServer();
  address_ = "127.0.0.1:" + std::to_string(port_);
  stub_ = MakeStub(address_);
  ASSERT_TRUE(stub_->AllocateRegion(Request(), absl::Seconds(60)).ok());
  server_->Shutdown(std::chrono::system_clock::now());
  server_.reset();
  StartOnRetry listener([&] { StartServer(); });
  Connection connection(*stub_, pacer_, listener, absl::Seconds(60));
  const auto response = connection.Call(&ManagerStub::AllocateRegion, Request());
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_LE(listener.retries, 3);
}

TEST_F(GrpcStubTest, KeepsTheRequestIdWhenTheManagerAsksForPatience) {
  pool_.failures = 2;
  pool_.failure = Refused(absl::StatusCode::kResourceExhausted, "QUEUE_FULL");
  StartServer();
  CountRetries listener;
  Connection connection(*stub_, pacer_, listener, absl::Seconds(60));
  ASSERT_TRUE(connection.Call(&ManagerStub::AllocateRegion, Request()).ok());
  EXPECT_THAT(pool_.request_ids, testing::SizeIs(3));
  EXPECT_THAT(pool_.request_ids, testing::Each("00000000-0000-4000-8000-000000000001"));
}

TEST_F(GrpcStubTest, CarriesTheManagersRefusal) {
  pool_.failures = 1;
  pool_.failure =
      Refuse(absl::StatusCode::kResourceExhausted, "POOL_FRAGMENTED", "needs 2 GiB in one extent",
             "raise --max-extents", {{"largest_free_bytes", "1073741824"}});
  StartServer();
  const auto response = stub_->AllocateRegion(Request(), absl::Seconds(60));
  EXPECT_TRUE(absl::IsResourceExhausted(response.status()));
  const auto refusal = RefusalOf(response.status());
  ASSERT_TRUE(refusal.has_value()) << response.status();
  EXPECT_EQ(refusal->reason, "POOL_FRAGMENTED");
  EXPECT_EQ(refusal->message, "needs 2 GiB in one extent");
  EXPECT_EQ(refusal->remedy, "raise --max-extents");
  EXPECT_THAT(refusal->metadata,
              testing::ElementsAre(testing::Pair("largest_free_bytes", "1073741824")));
}

TEST_F(GrpcStubTest, UnreachableSaysWhere) {
  const auto response = stub_->AllocateRegion(Request(), absl::Seconds(60));
  EXPECT_TRUE(absl::IsUnavailable(response.status())) << response.status();
  EXPECT_EQ(ReasonOf(response.status()), "MANAGER_UNREACHABLE");
  EXPECT_THAT(response.status().message(), HasSubstr(address_));
}

TEST_F(GrpcStubTest, StillUnreachableAtTheEndKeepsTheReason) {
  CountRetries listener;
  Connection connection(*stub_, pacer_, listener, absl::Milliseconds(1500));
  const auto response = connection.Call(&ManagerStub::AllocateRegion, Request());
  EXPECT_EQ(ReasonOf(response.status()), "MANAGER_UNREACHABLE") << response.status();
  EXPECT_THAT(response.status().message(), HasSubstr("No such file"));
}

TEST_F(GrpcStubTest, ASilentManagerIsGivenUpAtTheDeadline) {
  StartServer();
  const auto region = stub_->GetRegion({}, absl::Milliseconds(200));
  EXPECT_TRUE(absl::IsDeadlineExceeded(region.status())) << region.status();
  EXPECT_EQ(ReasonOf(region.status()), "NO_ANSWER");
}

TEST_F(GrpcStubTest, WatchHandsOverEventsUntilToldToStop) {
  StartServer();
  std::vector<uint64_t> revisions;
  bool opened = false;
  v1::WatchRegionsRequest request;
  request.set_start_revision(40);
  const absl::Status status = stub_->WatchRegions(
      request, absl::Seconds(60), [&] { opened = revisions.empty(); },
      [&](const v1::WatchRegionsResponse& event) {
        revisions.push_back(event.revision());
        return revisions.size() < 3;
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(opened);
  EXPECT_THAT(revisions, testing::ElementsAre(41, 42, 43));
}

TEST_F(GrpcStubTest, WatchCarriesTheRefusalThatEndsIt) {
  StartServer();
  v1::WatchRegionsRequest request;
  request.set_start_revision(1);
  const absl::Status status = stub_->WatchRegions(
      request, absl::Seconds(60), [] {}, [](const v1::WatchRegionsResponse&) { return true; });
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  EXPECT_EQ(ReasonOf(status), "REVISION_COMPACTED");
}

TEST_F(GrpcStubTest, AWatchThatHasNoConnectionDoesNotOpen) {
  const absl::Status status = stub_->WatchRegions(
      {}, absl::Seconds(60), [] { ADD_FAILURE() << "there is no manager"; },
      [](const v1::WatchRegionsResponse&) { return true; });
  EXPECT_EQ(ReasonOf(status), "MANAGER_UNREACHABLE");
}

// Two managers: the stub's, which leads where the test does not say otherwise, and a standby.
class SeveralManagersStubTest : public GrpcStubTest {
 protected:
  SeveralManagersStubTest() {
    standby_address_ = "unix:" + (dir_ / "standby.sock").string();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(standby_address_, grpc::InsecureServerCredentials());
    builder.RegisterService(&standby_);
    standby_server_ = builder.BuildAndStart();
    Hint(address_);
    stub_ = MakeStub(standby_address_ + "," + address_);
  }
  ~SeveralManagersStubTest() override {
    standby_server_->Shutdown(std::chrono::system_clock::now());
  }

  void Hint(const std::string& leader) {
    standby_.failures = 1000;
    standby_.failure = Refuse(absl::StatusCode::kUnavailable, "NOT_LEADER", "a standby",
                              "call the leader", {{"leader", leader}});
  }
  absl::StatusOr<v1::AllocateRegionResponse> Allocate(absl::Duration timeout) {
    Connection connection(*stub_, pacer_, listener_, timeout);
    return connection.Call(&ManagerStub::AllocateRegion, Request());
  }

  std::string standby_address_;
  FakePool standby_;
  std::unique_ptr<grpc::Server> standby_server_;
  CountRetries listener_;
};

TEST_F(SeveralManagersStubTest, TheOneThatLeadsIsFoundAndKept) {
  StartServer();
  for (int i = 0; i < 3; ++i) {
    const auto response = Allocate(absl::Seconds(60));
    ASSERT_TRUE(response.ok()) << response.status();
  }
  EXPECT_EQ(listener_.retries, 0);
  EXPECT_THAT(standby_.request_ids, testing::SizeIs(1)) << "the leader is called from then on";
  EXPECT_THAT(pool_.request_ids, testing::SizeIs(3));
  EXPECT_EQ(standby_.request_ids[0], pool_.request_ids[0]);
}

TEST_F(SeveralManagersStubTest, AStandbyThatTakesOverIsFound) {
  StartServer();
  ASSERT_TRUE(Allocate(absl::Seconds(60)).ok());
  server_->Shutdown(std::chrono::system_clock::now());
  standby_.failures = 0;
  const auto response = Allocate(absl::Seconds(60));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(listener_.retries, 0) << "there was no pause";
  EXPECT_THAT(standby_.request_ids, testing::SizeIs(2));
}

TEST_F(SeveralManagersStubTest, ARefusalLeadsNobodyElsewhere) {
  StartServer();
  Hint(address_);
  stub_ = MakeStub(standby_address_ + ",unix:" + (dir_ / "nobody.sock").string());
  const auto response = Allocate(absl::Milliseconds(700));
  EXPECT_EQ(ReasonOf(response.status()), "MANAGER_UNREACHABLE") << response.status();
  EXPECT_THAT(response.status().message(), HasSubstr("nobody.sock"));
  EXPECT_TRUE(pool_.request_ids.empty());
}

TEST_F(SeveralManagersStubTest, OneThatTakesNoConnectionHasOnlyItsPartOfTheTime) {
  // Its machine is there, and nobody accepts.
  const int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  ASSERT_EQ(bind(silent, reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(listen(silent, 8), 0);
  ASSERT_EQ(getsockname(silent, reinterpret_cast<sockaddr*>(&at), &size), 0);
  StartServer();
  stub_ = MakeStub("127.0.0.1:" + std::to_string(ntohs(at.sin_port)) + "," + address_);
  const absl::Duration begin = pacer_.Elapsed();
  const auto response = Allocate(absl::Seconds(10));
  EXPECT_TRUE(response.ok()) << response.status();
  EXPECT_LT(pacer_.Elapsed() - begin, absl::Seconds(8));
  close(silent);
}

TEST_F(SeveralManagersStubTest, EachIsAskedWhatItIs) {
  EXPECT_THAT(stub_->addresses(), testing::ElementsAre(standby_address_, address_));
  EXPECT_EQ(stub_->SelfAt(0, absl::Seconds(60)).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ReasonOf(stub_->SelfAt(1, absl::Seconds(60)).status()), "MANAGER_UNREACHABLE");
}

class GrpcStubTlsTest : public GrpcStubTest {
 protected:
  // An authority of its own in `name`, with one leaf.
  TlsFiles Issue(const std::string& name, pki::LeafRole role) {
    const std::string dir = (dir_ / name).string();
    EXPECT_TRUE(pki::InitAuthority(dir, /*force=*/true).ok());
    return IssueFrom(name, role);
  }
  TlsFiles IssueFrom(const std::string& name, pki::LeafRole role) {
    pki::LeafRequest leaf;
    leaf.role = role;
    leaf.name = "fm";
    const auto files = pki::IssueLeaf((dir_ / name).string(), leaf);
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? TlsFiles{files->ca, files->cert, files->key} : TlsFiles{};
  }

  absl::Status Allocate(const TlsFiles& files, const std::string& server_name) {
    ConnectionSettings settings;
    settings.manager = address_;
    settings.ca = files.ca;
    settings.cert = files.cert;
    settings.key = files.key;
    settings.server_name = server_name;
    const auto stub = MakeGrpcStub(settings);
    if (!stub.ok()) return stub.status();
    return (*stub)->AllocateRegion(Request(), absl::Seconds(60)).status();
  }
};

TEST_F(GrpcStubTlsTest, TrustsItsOwnPoolsManagerAlone) {
  const auto credentials = ServerTls(Issue("ours", pki::LeafRole::kManager));
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  StartServer(*credentials);
  const TlsFiles ours = IssueFrom("ours", pki::LeafRole::kOperator);
  EXPECT_TRUE(Allocate(ours, "fm.cxlpool").ok());

  const absl::Status other_name = Allocate(ours, "fm.other");
  EXPECT_EQ(ReasonOf(other_name), "MANAGER_NOT_TRUSTED") << other_name;
  EXPECT_TRUE(absl::IsUnauthenticated(other_name));

  const TlsFiles theirs = Issue("theirs", pki::LeafRole::kOperator);
  const absl::Status other_ca = Allocate(theirs, "fm.cxlpool");
  EXPECT_EQ(ReasonOf(other_ca), "MANAGER_NOT_TRUSTED") << other_ca;
}

TEST(MakeGrpcStubTest, RefusesAnInsecureAddressThatIsNotLocal) {
  ConnectionSettings settings;
  settings.manager = "192.0.2.1:7443";
  settings.insecure = true;
  EXPECT_EQ(ReasonOf(MakeGrpcStub(settings).status()), "INSECURE_ADDRESS");
}

TEST(MakeGrpcStubTest, RefusesTlsFilesThatAreNotThere) {
  ConnectionSettings settings;
  settings.manager = "192.0.2.1:7443";
  settings.ca = settings.cert = settings.key = "/nonexistent/x.pem";
  const auto stub = MakeGrpcStub(settings);
  ASSERT_FALSE(stub.ok());
  EXPECT_THAT(stub.status().message(), HasSubstr("/nonexistent/x.pem"));
}

}  // namespace
}  // namespace cxlpool::cli
