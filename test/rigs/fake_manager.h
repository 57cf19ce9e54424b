// A manager for the link's tests: it records what agents say, and says what the test tells it to.
#ifndef CXLPOOL_TEST_RIGS_FAKE_MANAGER_H_
#define CXLPOOL_TEST_RIGS_FAKE_MANAGER_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cxlpool/v1/host_service.grpc.pb.h"
#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "proto/support/status_wire.h"

namespace cxlpool::agent {

// State that gRPC's threads change and the test waits for.
class Watched {
 public:
  template <typename Change>
  void Set(Change change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  // False: the condition has not come true for 20 s.
  template <typename Condition>
  bool Await(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), condition);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

class FakeSession : public grpc::ServerBidiReactor<v1::AgentMessage, v1::ManagerMessage> {
 public:
  FakeSession(Watched& watched, grpc::CallbackServerContext* context)
      : watched_(watched), context_(context) {
    StartRead(&incoming_);
  }

  void Say(v1::ManagerMessage message) {
    watched_.Await([&] { return !writing_; });
    watched_.Set([&] { writing_ = true; });
    outgoing_ = std::move(message);
    StartWrite(&outgoing_);
  }

  void End(const absl::Status& status) {
    bool first = false;
    watched_.Set([&] { first = !std::exchange(finished_, true); });
    if (first) Finish(ToWire(status, *context_));
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End(absl::OkStatus());
    bool read = true;
    watched_.Set([&] {
      heard.push_back(incoming_);
      read = !std::exchange(stops_reading, false);
    });
    if (read) StartRead(&incoming_);
  }
  void OnWriteDone(bool) override {
    watched_.Set([&] { writing_ = false; });
  }
  void OnCancel() override { End(absl::CancelledError("cancelled")); }
  void OnDone() override {
    watched_.Set([&] { over = true; });
  }

  std::vector<v1::AgentMessage> heard;  // Read inside Watched::Await.
  bool over = false;
  bool stops_reading = false;  // After the next message. Set inside Watched::Set.

 private:
  Watched& watched_;
  grpc::CallbackServerContext* const context_;
  v1::AgentMessage incoming_;
  v1::ManagerMessage outgoing_;
  bool writing_ = false;
  bool finished_ = false;
};

class FakeManager {
 public:
  explicit FakeManager(
      std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials())
      : credentials_(std::move(credentials)), hosts_(*this), pool_(*this) {
    Start();
  }
  ~FakeManager() { Stop(); }

  // Again on the same port; and on `unix_path`, where there is one by then.
  void Start() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), credentials_, &port);
    if (!unix_path.empty()) builder.AddListeningPort("unix:" + unix_path, credentials_);
    builder.RegisterService(&hosts_);
    builder.RegisterService(&pool_);
    server_ = builder.BuildAndStart();
  }
  void Stop() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port); }

  // The session of that number, counted from 0, once it has said Hello; nullptr: it never did.
  FakeSession* Session(size_t index) {
    const bool there =
        watched.Await([&] { return sessions.size() > index && !sessions[index]->heard.empty(); });
    return there ? sessions[index].get() : nullptr;
  }

  Watched watched;
  std::vector<std::unique_ptr<FakeSession>> sessions;
  // Answers AllocateRegion; unset: never.
  std::function<absl::Status(const v1::AllocateRegionRequest&, v1::AllocateRegionResponse*)>
      allocate;
  int calls = 0;
  int port = 0;
  std::string unix_path;

 private:
  class Hosts : public v1::HostService::CallbackService {
   public:
    explicit Hosts(FakeManager& manager) : manager_(manager) {}
    grpc::ServerBidiReactor<v1::AgentMessage, v1::ManagerMessage>* Session(
        grpc::CallbackServerContext* context) override {
      auto session = std::make_unique<FakeSession>(manager_.watched, context);
      FakeSession* const raw = session.get();
      manager_.watched.Set([&] { manager_.sessions.push_back(std::move(session)); });
      return raw;
    }

   private:
    FakeManager& manager_;
  };

  class Pool : public v1::PoolService::CallbackService {
   public:
    explicit Pool(FakeManager& manager) : manager_(manager) {}
    grpc::ServerUnaryReactor* AllocateRegion(grpc::CallbackServerContext* context,
                                             const v1::AllocateRegionRequest* request,
                                             v1::AllocateRegionResponse* response) override {
      manager_.watched.Set([&] { ++manager_.calls; });
      if (!manager_.allocate) return new Silent;
      auto* reactor = context->DefaultReactor();
      reactor->Finish(ToWire(manager_.allocate(*request, response), *context));
      return reactor;
    }

   private:
    struct Silent : grpc::ServerUnaryReactor {
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    FakeManager& manager_;
  };

  std::shared_ptr<grpc::ServerCredentials> credentials_;
  Hosts hosts_;
  Pool pool_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_TEST_RIGS_FAKE_MANAGER_H_
