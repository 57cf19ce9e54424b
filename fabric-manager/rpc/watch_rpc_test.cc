// WatchRegions as a client sees it, over gRPC in one process.
#include "fabric-manager/rpc/watch_rpc.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "proto/support/refusal.h"
#include "proto/support/status_wire.h"

namespace cxlpool::fm {
namespace {

// One stream, read by hand.
class Reader {
 public:
  Reader(grpc::Server* server, uint64_t start_revision, const std::string& name = "")
      : Reader(server->InProcessChannel({}), start_revision, name) {}
  Reader(const std::shared_ptr<grpc::Channel>& channel, uint64_t start_revision,
         const std::string& name = "")
      : stub_(v1::PoolService::NewStub(channel)) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    v1::WatchRegionsRequest request;
    request.set_start_revision(start_revision);
    request.set_name(name);
    stream_ = stub_->WatchRegions(&context_, request);
  }
  ~Reader() {
    context_.TryCancel();
    if (!ended_) stream_->Finish().ok();
  }

  v1::WatchRegionsResponse Next() {
    v1::WatchRegionsResponse message;
    EXPECT_TRUE(stream_->Read(&message));
    return message;
  }
  // Up to and with `revision`.
  std::vector<v1::WatchRegionsResponse> Until(uint64_t revision) {
    std::vector<v1::WatchRegionsResponse> all;
    do {
      all.push_back(Next());
    } while (all.back().revision() != 0 && all.back().revision() < revision);
    return all;
  }
  absl::Status End() {
    v1::WatchRegionsResponse message;
    while (stream_->Read(&message)) {
    }
    ended_ = true;
    return FromWire(stream_->Finish(), context_, "test");
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::PoolService::Stub> stub_;
  std::unique_ptr<grpc::ClientReader<v1::WatchRegionsResponse>> stream_;
  bool ended_ = false;
};

class WatchRpcTest : public testing::Test {
 protected:
  static constexpr size_t kRing = 4096;
  static constexpr char kAlice[] = "cxlpool://operator/alice";

  WatchRpcTest() {
    hub_.Reset(10);
    Show(10);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    calls_.Add("/cxlpool.v1.PoolService/WatchRegions", Admission::Kind::kWatch,
               [this](Admitted admitted) {
                 if (as_.has_value()) admitted.caller = *as_;
                 return streams_.Start(&calls_, std::move(admitted));
               });
    builder.RegisterCallbackGenericService(&calls_);
    server_ = builder.BuildAndStart();
  }
  ~WatchRpcTest() override {
    server_->Shutdown();
    timer_.Stop();
  }

  static RegionPtr MakeRegion(Key key, uint64_t revision) {
    Region region;
    region.key = key;
    region.id = absl::StrCat("r-", key);
    region.tenant = "ml";
    region.requests = {{{kAlice, "AllocateRegion", Uuid(std::string(16, 'r'))}, 1}};
    region.revision = revision;
    return std::make_shared<const Region>(std::move(region));
  }
  // The view that new streams begin with.
  void Show(uint64_t revision, Key regions = 0) {
    Publication publication;
    publication.revision = revision;
    for (Key key = 1; key <= regions; ++key) {
      const RegionPtr region = MakeRegion(key, revision);
      publication.regions.push_back({region});
    }
    publication.has_numbers = true;
    publication.device_infos = std::make_shared<const std::vector<DeviceView>>();
    publication.tenant_infos = std::make_shared<const std::vector<TenantView>>();
    publication.topology = std::make_shared<const Topology>();
    views_.Publish(publication);
  }
  void Change(Key key, uint64_t revision, bool removed = false) {
    std::vector<WatchEvent> events;
    events.push_back({revision, MakeRegion(key, revision), removed});
    hub_.Publish(std::move(events));
  }

  static CallHooks CountingIn(Meters* meters) {
    CallHooks hooks;
    hooks.meters = meters;
    return hooks;
  }
  uint64_t Dropped() const { return meters_.watches_dropped.value(); }

  // Waits until nobody keeps it any more.
  template <typename Kept>
  static bool IsForgotten(const std::weak_ptr<Kept>& kept) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!kept.expired() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return kept.expired();
  }

  std::optional<Caller> as_;  // Nothing: callers are whom the connection says.
  Meters meters_;
  ViewHolder views_;
  WatchHub hub_{kRing};
  WatchStreams streams_{&views_, &hub_, {}};
  Admission admission_;
  Loop timer_{"watch-test"};
  Calls calls_{&views_, &admission_, &timer_, CountingIn(&meters_)};
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

TEST_F(WatchRpcTest, ShowsWhatThereIsAndThenEachChange) {
  Reader reader(server_.get(), 0);
  const auto synced = reader.Next();
  EXPECT_EQ(synced.event(), v1::WatchRegionsResponse::SYNCED);
  EXPECT_EQ(synced.revision(), 10u);
  Change(1, 11);
  Change(1, 12, true);
  const auto changed = reader.Next();
  EXPECT_EQ(changed.event(), v1::WatchRegionsResponse::CHANGED);
  EXPECT_EQ(changed.region().name(), "regions/r-1");
  EXPECT_EQ(changed.revision(), 11u);
  EXPECT_EQ(reader.Next().event(), v1::WatchRegionsResponse::REMOVED);
}

TEST_F(WatchRpcTest, ShowsManyRegionsOverAConnection) {
  Show(10, 300);
  Reader reader(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", port_), grpc::InsecureChannelCredentials()),
      0);
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(reader.Next().event(), v1::WatchRegionsResponse::CHANGED);
  }
  EXPECT_EQ(reader.Next().event(), v1::WatchRegionsResponse::SYNCED);
  for (uint64_t revision = 11; revision <= 20; ++revision) Change(revision, revision);
  EXPECT_EQ(reader.Until(20).size(), 10u);
}

TEST_F(WatchRpcTest, ReconnectsMissNothingAndSeeNothingTwice) {
  constexpr uint64_t kLast = 1010;
  std::thread publisher([this] {
    for (uint64_t revision = 11; revision <= kLast; ++revision) Change(revision, revision);
  });
  uint64_t seen = 10;
  for (int reconnects = 0; seen < kLast; ++reconnects) {
    // A revision that has not come yet is refused; this one has.
    Reader reader(server_.get(), seen);
    for (int n = 0; n < 7 * (reconnects + 1) && seen < kLast; ++n) {
      const uint64_t next = reader.Next().revision();
      ASSERT_EQ(next, seen + 1);
      seen = next;
    }
  }
  publisher.join();
}

TEST_F(WatchRpcTest, ACompactedRevisionIsToldToList) {
  for (uint64_t revision = 11; revision <= 11 + kRing; ++revision) Change(1, revision);
  EXPECT_EQ(ReasonOf(Reader(server_.get(), 10).End()), "REVISION_COMPACTED");
  EXPECT_EQ(ReasonOf(Reader(server_.get(), 100000).End()), "REVISION_UNKNOWN");
  EXPECT_EQ(Dropped(), 0u) << "neither had begun";
}

TEST_F(WatchRpcTest, ASlowReaderGetsTheLatestOfEachRegionInOrder) {
  constexpr uint64_t kRegions = 10, kLast = 10 + 3000;
  Reader reader(server_.get(), 0);
  reader.Next();
  for (uint64_t revision = 11; revision <= kLast; ++revision) Change(revision % kRegions, revision);
  const auto events = reader.Until(kLast);
  EXPECT_LT(events.size(), 1000u);
  uint64_t before = 10;
  std::vector<uint64_t> latest(kRegions);
  for (const auto& event : events) {
    EXPECT_GT(event.revision(), before);
    before = event.revision();
    latest[before % kRegions] = before;
  }
  for (uint64_t revision = kLast - kRegions + 1; revision <= kLast; ++revision) {
    EXPECT_EQ(latest[revision % kRegions], revision);
  }
}

// It has a few batches ready for a reader that takes none, and no more: each is of another Region.
TEST_F(WatchRpcTest, HowFarTheSlowestIsBehind) {
  constexpr uint64_t kLast = 10 + 3000;
  EXPECT_EQ(streams_.Lag(), 0u);
  Reader reader(server_.get(), 0);
  reader.Next();
  EXPECT_EQ(streams_.Lag(), 0u);
  for (uint64_t revision = 11; revision <= kLast; ++revision) Change(revision, revision);
  EXPECT_GT(streams_.Lag(), 1000u);
  reader.Until(kLast);
  EXPECT_EQ(streams_.Lag(), 0u);
}

TEST_F(WatchRpcTest, AReaderThatFellOutOfTheRingIsToldToList) {
  Reader reader(server_.get(), 0);
  reader.Next();
  for (uint64_t revision = 11; revision <= 11 + 2 * kRing; ++revision) Change(revision, revision);
  EXPECT_EQ(ReasonOf(reader.End()), "REVISION_COMPACTED");
  EXPECT_EQ(Dropped(), 1u);
}

TEST_F(WatchRpcTest, AReaderThatTakesNothingDoesNotKeepThePoolAsItWas) {
  Show(10, 2000);
  const std::weak_ptr<const PoolView> kept = views_.Get();
  Reader reader(server_.get(), 0);
  EXPECT_EQ(reader.Next().event(), v1::WatchRegionsResponse::CHANGED);
  Show(11);
  views_.Get();
  EXPECT_FALSE(kept.expired()) << "it may still be read";
  for (uint64_t revision = 11; revision <= 11 + 2 * kRing; ++revision) Change(1, revision);
  EXPECT_TRUE(IsForgotten(kept));
  EXPECT_EQ(ReasonOf(reader.End()), "REVISION_COMPACTED");
  EXPECT_EQ(Dropped(), 1u);
}

// Of what a tenant was shown its stream says, once that is gone, how it was last.
TEST_F(WatchRpcTest, AReaderThatTakesNothingMoreDoesNotKeepWhatItWasShown) {
  as_ = Caller::User(kAlice, PoolRole::kTenant, {"ml"});
  Show(10, 1);
  const std::weak_ptr<const Region> shown = views_.Get()->regions.Find("r-1");
  Reader reader(server_.get(), 0);
  EXPECT_EQ(reader.Next().event(), v1::WatchRegionsResponse::CHANGED);
  EXPECT_EQ(reader.Next().event(), v1::WatchRegionsResponse::SYNCED);
  Show(11, 1);
  views_.Get();
  EXPECT_FALSE(shown.expired()) << "it may go yet";
  for (uint64_t revision = 11; revision <= 11 + 2 * kRing; ++revision) Change(revision, revision);
  EXPECT_TRUE(IsForgotten(shown));
  EXPECT_EQ(ReasonOf(reader.End()), "REVISION_COMPACTED");
  EXPECT_EQ(Dropped(), 1u);
}

TEST_F(WatchRpcTest, FollowsOneRegionAlone) {
  Reader reader(server_.get(), 10, "regions/r-2");
  Change(1, 11);
  Change(2, 12);
  Change(3, 13);
  Change(2, 14);
  EXPECT_EQ(reader.Next().revision(), 12u);
  EXPECT_EQ(reader.Next().revision(), 14u);
}

TEST_F(WatchRpcTest, EveryWatcherHearsOfEveryChange) {
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < 50; ++i) readers.push_back(std::make_unique<Reader>(server_.get(), 10));
  for (uint64_t revision = 11; revision <= 40; ++revision) {
    Change(revision, revision);
    for (const auto& reader : readers) ASSERT_EQ(reader->Next().revision(), revision);
  }
}

}  // namespace
}  // namespace cxlpool::fm
