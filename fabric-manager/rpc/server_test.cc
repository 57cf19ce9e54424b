// The services as a client sees them, over a Unix socket in one process: batches and backup, whose
// answers are made on other threads than the calls.
#include "fabric-manager/rpc/server.h"

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cxlpool/v1/inventory_service.grpc.pb.h"
#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "proto/support/mutex.h"
#include "proto/support/status_wire.h"
#include "test/rigs/server_rig.h"

namespace cxlpool::fm {
namespace {

// Writes what a test says, when it says so.
class BackupStore : public MemoryStore {
 public:
  using MemoryStore::MemoryStore;

  void Backup(std::string path, DoneWith<StoreBackup> done) override {
    MutexLock lock(mutex_);
    if (full_) {
      std::move(done)(
          Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL", "no space", "make some"));
      return;
    }
    done_ = std::move(done);
    path_ = std::move(path);
    asked_.notify_all();
  }
  // The path of the one that is under way; empty: there is none, and none begins.
  std::string Asked() {
    MutexLock lock(mutex_);
    asked_.wait_for(lock.native(), kPatience,
                    [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return done_ != nullptr; });
    return done_ == nullptr ? "" : path_;
  }
  // Whether every backup fails at once.
  void SetFull(bool full) {
    MutexLock lock(mutex_);
    full_ = full;
  }
  void Answer(absl::StatusOr<StoreBackup> answer) {
    DoneWith<StoreBackup> done;
    {
      MutexLock lock(mutex_);
      done = std::exchange(done_, nullptr);
    }
    std::move(done)(std::move(answer));
  }

 private:
  Mutex mutex_;
  std::condition_variable asked_;
  bool full_ ABSL_GUARDED_BY(mutex_) = false;
  std::string path_ ABSL_GUARDED_BY(mutex_);
  DoneWith<StoreBackup> done_ ABSL_GUARDED_BY(mutex_);  // Null: no backup is under way.
};

class ServerTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string address = absl::StrCat("unix:", (rig_.directory / "fm.sock").string());
    ServerOptions options;
    options.listen = {{address, true}};
    rig_.Serve(options);
    channel_ = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    regions_ = v1::PoolService::NewStub(channel_);
    inventory_ = v1::InventoryService::NewStub(channel_);
  }

  template <typename Stub, typename Request, typename Response>
  absl::Status Call(Stub& stub,
                    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    return FromWire((stub.*method)(&context, request, response), context, "test");
  }
  absl::Status Allocate(const v1::BatchAllocateRegionsRequest& request,
                        v1::BatchAllocateRegionsResponse* response) {
    return Call(*regions_, &v1::PoolService::Stub::BatchAllocateRegions, request, response);
  }

  static v1::AllocateRegionRequest One(const std::string& id) {
    v1::AllocateRegionRequest request;
    request.set_request_id(FormatUuid(RandomUuid()));
    request.set_region_id(id);
    request.set_size_bytes(1);
    return request;
  }

  // Nothing of a backup lies in the store's directory any more.
  bool StoreIsClean() const { return std::filesystem::is_empty(rig_.directory / "store"); }

  ServerRig<BackupStore> rig_;
  BackupStore& store_ = rig_.store;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::PoolService::Stub> regions_;
  std::unique_ptr<v1::InventoryService::Stub> inventory_;
};

TEST_F(ServerTest, ABatchAnswersEachInItsPlace) {
  v1::BatchAllocateRegionsRequest request;
  for (int i = 0; i < 1000; ++i) *request.add_requests() = One(absl::StrCat("r-", i));
  request.mutable_requests(7)->set_region_id("r-6");
  request.mutable_requests(8)->set_request_id("no uuid");
  request.mutable_requests(9)->set_size_bytes(uint64_t{1} << 60);
  v1::BatchAllocateRegionsResponse response;
  ASSERT_TRUE(Allocate(request, &response).ok());
  ASSERT_EQ(response.results_size(), 1000);
  for (int i = 0; i < 1000; ++i) {
    const v1::BatchResult& result = response.results(i);
    EXPECT_EQ(result.request_id(), request.requests(i).request_id());
    if (i >= 7 && i <= 9) {
      EXPECT_NE(result.code(), 0);
      EXPECT_FALSE(result.has_region());
      continue;
    }
    EXPECT_EQ(result.code(), 0) << result.message();
    EXPECT_EQ(result.region().name(), absl::StrCat("regions/r-", i));
    EXPECT_EQ(result.revision(), result.region().revision());
  }
  EXPECT_EQ(response.results(7).error().reason(), "REGION_EXISTS");
  EXPECT_EQ(response.results(8).error().reason(), "BAD_REQUEST_ID");
  EXPECT_EQ(response.results(9).error().reason(), "POOL_FULL");
  EXPECT_NE(response.results(9).message(), "");

  v1::BatchReleaseRegionsRequest release;
  for (const char* name : {"regions/r-0", "regions/nobody", "regions/r-1"}) {
    v1::ReleaseRegionRequest& one = *release.add_requests();
    one.set_request_id(FormatUuid(RandomUuid()));
    one.set_name(name);
  }
  v1::BatchReleaseRegionsResponse released;
  ASSERT_TRUE(
      Call(*regions_, &v1::PoolService::Stub::BatchReleaseRegions, release, &released).ok());
  EXPECT_EQ(released.results(0).region().name(), "regions/r-0");
  EXPECT_EQ(released.results(1).error().reason(), "UNKNOWN_REGION");
  EXPECT_EQ(released.results(2).code(), 0);
}

TEST_F(ServerTest, ABatchThatIsWrongAsAWholeDoesNothing) {
  v1::BatchAllocateRegionsRequest request;
  v1::BatchAllocateRegionsResponse response;
  EXPECT_EQ(ReasonOf(Allocate(request, &response)), "BAD_BATCH");
  for (int i = 0; i < 1001; ++i) *request.add_requests() = One("");
  EXPECT_EQ(ReasonOf(Allocate(request, &response)), "BATCH_TOO_LARGE");
  request.mutable_requests()->DeleteSubrange(2, 999);
  request.mutable_requests(1)->set_validate_only(true);
  EXPECT_EQ(ReasonOf(Allocate(request, &response)), "BAD_BATCH");
  EXPECT_EQ(rig_.views.Get()->regions.size(), 0u);
  request.mutable_requests(0)->set_validate_only(true);
  ASSERT_TRUE(Allocate(request, &response).ok());
  EXPECT_EQ(response.results(1).region().size_bytes(), kGranule);
  EXPECT_EQ(rig_.views.Get()->regions.size(), 0u);
}

// One Backup call.
struct Download {
  explicit Download(v1::InventoryService::Stub& stub) {
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    reader = stub.Backup(&context, v1::BackupRequest());
  }
  absl::Status ReadAll() {
    v1::BackupResponse piece;
    while (reader->Read(&piece)) {
      EXPECT_FALSE(last);
      EXPECT_LE(piece.data().size(), size_t{1} << 20);
      if (data.empty()) {
        revision = piece.revision();
        total = piece.total_bytes();
      }
      data += piece.data();
      last = piece.last();
    }
    return FromWire(reader->Finish(), context, "test");
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::BackupResponse>> reader;
  std::string data;
  uint64_t revision = 0, total = 0;
  bool last = false;
};

// A cancelled call is over for its client at once. The server may hear of that later, and refuses
// another backup until then. False: it never did.
bool AwaitTheEndOfBackups(v1::InventoryService::Stub& stub, BackupStore& store) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  std::string reason;
  store.SetFull(true);
  do {
    reason = ReasonOf(Download(stub).ReadAll());
  } while (reason == "BACKUP_IN_PROGRESS" && std::chrono::steady_clock::now() < until);
  store.SetFull(false);
  return reason == "STORE_FULL";
}

TEST_F(ServerTest, ABackupComesInPiecesAndLeavesNothing) {
  std::string text(5'000'000, 'x');
  for (size_t i = 0; i < text.size(); i += 1000) text[i] = static_cast<char>('a' + i / 1000 % 26);
  for (int again = 0; again < 2; ++again) {
    Download download(*inventory_);
    const std::string path = store_.Asked();
    EXPECT_TRUE(path.starts_with((rig_.directory / "store/.backup-").string())) << path;
    {
      Download second(*inventory_);
      EXPECT_EQ(ReasonOf(second.ReadAll()), "BACKUP_IN_PROGRESS");
    }
    std::ofstream(path) << text;
    store_.Answer(StoreBackup{41, text.size()});
    ASSERT_TRUE(download.ReadAll().ok());
    EXPECT_TRUE(download.last);
    EXPECT_EQ(download.revision, 41u);
    EXPECT_EQ(download.total, text.size());
    EXPECT_EQ(download.data, text);
    EXPECT_TRUE(StoreIsClean());
  }
}

TEST_F(ServerTest, ABackupThatCannotBeMadeSaysWhy) {
  {
    Download download(*inventory_);
    store_.Asked();
    store_.Answer(
        Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL", "no space", "make some"));
    EXPECT_EQ(ReasonOf(download.ReadAll()), "STORE_FULL");
  }
  {
    Download download(*inventory_);
    std::ofstream(store_.Asked()) << "short";
    store_.Answer(StoreBackup{41, 100});
    EXPECT_EQ(ReasonOf(download.ReadAll()), "STORE_IO");
  }
  EXPECT_TRUE(StoreIsClean());
}

TEST_F(ServerTest, AClientThatGoesAwayEndsItsBackup) {
  {
    // While the copy is being made: the next has to wait for the store all the same.
    Download download(*inventory_);
    const std::string path = store_.Asked();
    ASSERT_NE(path, "");
    download.context.TryCancel();
    EXPECT_TRUE(absl::IsCancelled(download.ReadAll()));
    std::ofstream(path) << "x";
    store_.Answer(StoreBackup{41, 1});
  }
  EXPECT_TRUE(StoreIsClean());
  ASSERT_TRUE(AwaitTheEndOfBackups(*inventory_, store_));
  {
    // While it is being sent.
    Download download(*inventory_);
    std::ofstream(store_.Asked()) << std::string(64 << 20, 'x');
    store_.Answer(StoreBackup{41, 64 << 20});
    v1::BackupResponse piece;
    ASSERT_TRUE(download.reader->Read(&piece));
    download.context.TryCancel();
    EXPECT_TRUE(absl::IsCancelled(download.ReadAll()));
  }
  EXPECT_TRUE(StoreIsClean());
}

TEST_F(ServerTest, WhatDoesNotParseIsToldSo) {
  for (const char* path :
       {"/cxlpool.v1.PoolService/AllocateRegion", "/cxlpool.v1.PoolService/WatchRegions",
        "/cxlpool.v1.InventoryService/Backup", "/cxlpool.v1.HostService/Session"}) {
    RawCall call(channel_, path);
    call.Send("\xff\xff\xff", true);
    EXPECT_EQ(ReasonOf(call.End()), "BAD_REQUEST") << path;
  }
}

TEST_F(ServerTest, AMethodThatIsNotThereIsNamed) {
  RawCall call(channel_, "/cxlpool.v1.PoolService/FoldRegion");
  const absl::Status end = call.End();
  EXPECT_EQ(ReasonOf(end), "UNKNOWN_METHOD") << end;
  EXPECT_NE(end.message().find("FoldRegion"), std::string::npos) << end;
}

TEST_F(ServerTest, ASessionThatSaysNothingIsEnded) {
  const auto began = std::chrono::steady_clock::now();
  RawCall call(channel_, "/cxlpool.v1.HostService/Session");
  EXPECT_EQ(ReasonOf(call.End()), "BAD_HELLO");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
}

TEST_F(ServerTest, ARequestThatDoesNotComeIsNotWaitedFor) {
  const auto began = std::chrono::steady_clock::now();
  RawCall call(channel_, "/cxlpool.v1.PoolService/GetCapacity");
  EXPECT_EQ(ReasonOf(call.End()), "REQUEST_TIMEOUT");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(40));
}

}  // namespace
}  // namespace cxlpool::fm
