// bench-watch-echo ADDRESS EVENT_FILE: the emptiest server that has watchers.
//
// Each AllocateRegion writes the bytes of EVENT_FILE, which are ready, to every WatchRegions
// stream; and a stream gets them once when it begins. The callback API; no message is parsed or
// serialised.
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "cxlpool/v1/pool_service.grpc.pb.h"

namespace {

using Pool = cxlpool::v1::PoolService;
using Base = Pool::WithRawCallbackMethod_AllocateRegion<
    Pool::WithRawCallbackMethod_WatchRegions<Pool::CallbackService>>;

class WatchEcho final : public Base {
 public:
  explicit WatchEcho(const std::string& event) {
    const grpc::Slice slice(event);
    event_ = grpc::ByteBuffer(&slice, 1);
  }

  grpc::ServerUnaryReactor* AllocateRegion(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer*,
                                           grpc::ByteBuffer* response) override {
    *response = event_;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    const std::lock_guard lock(mutex_);
    for (Watcher* watcher : watchers_) watcher->Push();
    return reactor;
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchRegions(grpc::CallbackServerContext*,
                                                           const grpc::ByteBuffer*) override {
    auto* watcher = new Watcher(this);
    {
      const std::lock_guard lock(mutex_);
      watchers_.insert(watcher);
    }
    watcher->Push();
    return watcher;
  }

 private:
  class Watcher final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
   public:
    explicit Watcher(WatchEcho* echo) : echo_(echo) {}

    void Push() {
      const std::lock_guard lock(mutex_);
      ++waiting_;
      WriteLocked();
    }

   private:
    void OnWriteDone(bool ok) override {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      if (ok) WriteLocked();
    }
    void OnCancel() override {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      Finish(grpc::Status::CANCELLED);
    }
    void OnDone() override {
      {
        const std::lock_guard lock(echo_->mutex_);
        echo_->watchers_.erase(this);
      }
      delete this;
    }
    void WriteLocked() {
      if (writing_ || ended_ || waiting_ == 0) return;
      writing_ = true;
      --waiting_;
      StartWrite(&echo_->event_);
    }

    WatchEcho* const echo_;
    std::mutex mutex_;  // Of all below; taken after the server's.
    bool writing_ = false;
    bool ended_ = false;
    int waiting_ = 0;
  };

  grpc::ByteBuffer event_;
  std::mutex mutex_;
  std::unordered_set<Watcher*> watchers_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: " << argv[0] << " ADDRESS EVENT_FILE\n";
    return 64;
  }
  std::ifstream file(argv[2], std::ios::binary);
  const std::string event{std::istreambuf_iterator<char>(file), {}};
  if (event.empty()) {
    std::cerr << argv[2] << " cannot be read, or is empty\n";
    return 1;
  }
  WatchEcho echo(event);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(argv[1], grpc::InsecureServerCredentials());
  builder.RegisterService(&echo);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    std::cerr << "cannot listen on " << argv[1] << "\n";
    return 1;
  }
  server->Wait();
  return 0;
}
