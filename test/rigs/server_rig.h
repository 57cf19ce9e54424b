// For tests: a whole RpcServer in one process, on a store in memory and a fabric of nothing, and a
// client that calls methods by path.
#ifndef CXLPOOL_TEST_RIGS_SERVER_RIG_H_
#define CXLPOOL_TEST_RIGS_SERVER_RIG_H_

#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "fabric-manager/rpc/server.h"
#include "proto/support/loop.h"
#include "proto/support/status_wire.h"
#include "test/rigs/service_rig.h"

namespace cxlpool::fm {

// No wait of a test is longer.
inline constexpr std::chrono::seconds kPatience{60};

// `Store` is a MemoryStore. A device of 2000 granules is there.
template <typename StoreType>
class ServerRig {
 public:
  ServerRig() {
    // gRPC 1.51 goes down with its last user, and after a cancelled stream that can take 10 s.
    static const int up = [] {
      grpc_init();
      return 0;
    }();
    (void)up;
    std::string name = (std::filesystem::temp_directory_path() / "cxlpool-rpc-XXXXXX").string();
    directory = mkdtemp(name.data());
    std::filesystem::create_directory(directory / "store");
    std::promise<absl::Status> opened;
    writer.SetFabric(fabric.capabilities());
    writer.Open({.on_committed = [](const auto&) {}, .on_fatal = [](const absl::Status&) {}},
                [&](absl::Status status) { opened.set_value(std::move(status)); });
    EXPECT_TRUE(opened.get_future().get().ok());
    AddDevice("cmm-0", 2000);
  }
  ~ServerRig() {
    if (server != nullptr) server->Shutdown(absl::Seconds(1));
    loop.Stop();
    std::filesystem::remove_all(directory);
  }

  void Serve(ServerOptions options) {
    options.fabric.driver = "fake";
    options.store_directory = (directory / "store").string();
    auto started = RpcServer::Start(options, &loop, &pool, &sessions, &store, &views, &watch);
    ASSERT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
  }
  // A device that the fabric reaches.
  void AddDevice(const std::string& id, uint64_t granules) {
    std::promise<void> added;
    writer.Submit(
        Audit{{}, "test", "test", ""},
        [&](const PoolState&, PlanContext& context) -> absl::StatusOr<Proposal> {
          return Proposal::Of(Device{.key = context.next_id(),
                                     .id = id,
                                     .serial = id,
                                     .capacity_bytes = granules * kGranule,
                                     .granule_bytes = kGranule,
                                     .service_reason = {}},
                              nullptr);
        },
        [&](const absl::StatusOr<Committed>& got) {
          EXPECT_TRUE(got.ok()) << got.status();
          writer.SetReachable({{id, ""}});
          added.set_value();
        });
    added.get_future().get();
  }
  // The host's agent has said hello: four slots under one bridge.
  void BringUp(const std::string& host) {
    OnCore([&] {
      HostRuntime runtime = writer.state().Runtime(host);
      runtime.online = true;
      runtime.fabric_reachable = true;
      runtime.fabric_slots = {1, 2, 3, 4};
      runtime.region_granule_bytes = kGranule;
      runtime.bridges = {Bridge{.name = "b0",
                                .slots = {1, 2, 3, 4},
                                .max_regions = 4,
                                .window_bytes = 64 * kGranule,
                                .free_window_bytes = 64 * kGranule}};
      writer.SetRuntime(host, std::move(runtime));
    });
  }
  // Runs `task` on the core's thread.
  void OnCore(std::function<void()> task) {
    std::promise<void> done;
    loop.Post([&] {
      task();
      done.set_value();
    });
    done.get_future().get();
  }

  std::filesystem::path directory;
  SystemClock clock;
  Loop loop{"server-test"};
  World world;
  StoreType store{std::make_shared<MemoryDisk>(), &loop};
  ViewHolder views;
  WatchHub watch;
  Writer writer{{.fabric = {.slots = true}}, &loop, &clock, &store, &views, &watch};
  FakeFabric fabric{&world};
  HostSessions sessions{{.lease = absl::Minutes(5)}, &loop, &clock, &writer};
  Reconciler reconciler{{}, &loop, &clock, &writer, &fabric, &sessions, nullptr};
  PoolService pool{&loop, &writer, &reconciler, &sessions};
  std::unique_ptr<RpcServer> server;
};

// A call by path, with bytes that gRPC does not look at.
class RawCall {
 public:
  RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
          std::chrono::seconds limit = kPatience)
      : stub_(channel) {
    context_.set_deadline(std::chrono::system_clock::now() + limit);
    stream_ = stub_.PrepareCall(&context_, path, &queue_);
    stream_->StartCall(this);
    Await();
  }
  ~RawCall() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  // Sends one message; `last`: and no more.
  void Send(const std::string& text, bool last) {
    const grpc::Slice slice(text);
    stream_->Write(grpc::ByteBuffer(&slice, 1),
                   last ? grpc::WriteOptions().set_last_message() : grpc::WriteOptions(), this);
    Await();
  }
  // The next answer as a message; false: there is none.
  template <typename Message>
  bool Read(Message* message) {
    grpc::ByteBuffer bytes;
    stream_->Read(&bytes, this);
    return Await() && grpc::SerializationTraits<Message>::Deserialize(&bytes, message).ok();
  }
  // Reads an answer without a look at it.
  void Skip() {
    grpc::ByteBuffer bytes;
    stream_->Read(&bytes, this);
    Await();
  }
  absl::Status End() {
    grpc::Status status;
    stream_->Finish(&status, this);
    Await();
    return FromWire(status, context_, "test");
  }

 private:
  bool Await() {
    void* tag;
    bool ok = false;
    queue_.Next(&tag, &ok);
    return ok;
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_SERVER_RIG_H_
