#include "proto/support/status_wire.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>

#include "cxlpool/v1/inventory_service.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "proto/support/refusal.h"

namespace cxlpool {
namespace {

using ::testing::HasSubstr;

// Answers every GetTopology with one status.
class Refuser final : public v1::InventoryService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetTopology(grpc::CallbackServerContext* context,
                                        const v1::GetTopologyRequest*, v1::Topology*) override {
    auto* reactor = context->DefaultReactor();
    const std::lock_guard lock(mutex);
    if (!raw_info.empty()) context->AddTrailingMetadata(kErrorInfoKey, raw_info);
    reactor->Finish(ToWire(status, *context));
    return reactor;
  }

  std::mutex mutex;  // Of what follows: gRPC's threads read it.
  absl::Status status;
  std::string raw_info;
};

// Over a real connection: an in-process channel has no limit on metadata.
class StatusWireTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    stub_ = v1::InventoryService::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                                              grpc::InsecureChannelCredentials()));
  }

  absl::Status RoundTrip(const absl::Status& status) {
    {
      const std::lock_guard lock(service_.mutex);
      service_.status = status;
    }
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::Topology answer;
    return FromWire(stub_->GetTopology(&context, {}, &answer), context, "127.0.0.1");
  }

  Refuser service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::InventoryService::Stub> stub_;
};

TEST_F(StatusWireTest, OkStaysOk) { EXPECT_TRUE(RoundTrip(absl::OkStatus()).ok()); }

TEST_F(StatusWireTest, RefusalArrivesAsItWasMade) {
  const absl::Status sent =
      Refuse(absl::StatusCode::kResourceExhausted, "POOL_FRAGMENTED",
             "region \"kv\" needs 64 GiB in one extent; largest free is 48 GiB on cmm-2",
             "use --max-extents 2", {{"device", "cmm-2"}, {"largest_free_bytes", "51539607552"}});
  EXPECT_EQ(RoundTrip(sent), sent);
}

TEST_F(StatusWireTest, EveryCodeKeepsItsNumber) {
  for (int code = 1; code <= 16; ++code) {
    const auto sent = Refusal{static_cast<absl::StatusCode>(code), "REASON", "text", "", {}};
    EXPECT_EQ(RoundTrip(sent.ToStatus()), sent.ToStatus()) << code;
  }
}

TEST_F(StatusWireTest, StatusWithoutARefusalKeepsCodeAndMessage) {
  const absl::Status got = RoundTrip(absl::InternalError("a \xc3\xbc and a % sign"));
  EXPECT_EQ(got, absl::InternalError("a \xc3\xbc and a % sign"));
}

TEST_F(StatusWireTest, OversizedRefusalIsCutButArrives) {
  Refusal refusal{absl::StatusCode::kInvalidArgument, "BAD_NAME", "", "shorten it", {}};
  for (int i = 0; i < 4000; ++i) refusal.message += "\xc3\xbc";
  refusal.metadata = {{"host", "host-a"},
                      {"huge", std::string(20000, 'x')},
                      {"region", "kv"},
                      {"regions", std::string(2000, 'x')}};
  const absl::Status got = RoundTrip(refusal.ToStatus());
  EXPECT_EQ(got.code(), absl::StatusCode::kInvalidArgument);
  const auto back = RefusalOf(got);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->reason, "BAD_NAME");
  EXPECT_EQ(back->remedy, "shorten it");
  EXPECT_LE(got.message().size(), 2048u);
  EXPECT_EQ(back->metadata,
            (std::vector<std::pair<std::string, std::string>>{
                {"host", "host-a"}, {"region", "kv"}, {"regions", std::string(2000, 'x')}}));
}

// What grpcurl, buf curl and gateways look at.
TEST_F(StatusWireTest, ARefusalTravelsAsStandardDetailsToo) {
  service_.status = Refuse(absl::StatusCode::kNotFound, "UNKNOWN_REGION", "there is no regions/kv",
                           "see `cxlpool region list`", {{"region", "regions/kv"}});
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::Topology answer;
  const grpc::Status got = stub_->GetTopology(&context, {}, &answer);
  EXPECT_EQ(got.error_message(),
            "UNKNOWN_REGION: there is no regions/kv (see `cxlpool region list`)");
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(got.error_details()));
  EXPECT_EQ(details.code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(details.message(), got.error_message());
  ASSERT_EQ(details.details_size(), 1);
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "UNKNOWN_REGION");
  EXPECT_EQ(info.domain(), "cxlpool");
  EXPECT_EQ(info.metadata().at("region"), "regions/kv");
  EXPECT_EQ(info.metadata().at("remedy"), "see `cxlpool region list`");
}

TEST_F(StatusWireTest, GarbageInPlaceOfErrorInfoIsLeftOut) {
  service_.raw_info = std::string("\xff\xff\xff garbage", 11);
  const absl::Status got = RoundTrip(absl::NotFoundError("no such thing"));
  EXPECT_EQ(got, absl::NotFoundError("no such thing"));
}

TEST_F(StatusWireTest, ManagerThatIsAwayIsNamed) {
  server_->Shutdown();
  server_.reset();
  const absl::Status got = RoundTrip(absl::OkStatus());
  EXPECT_EQ(got.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(got), "MANAGER_UNREACHABLE");
  EXPECT_THAT(std::string(got.message()), HasSubstr("127.0.0.1"));
}

}  // namespace
}  // namespace cxlpool
