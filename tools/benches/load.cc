#include "tools/benches/load.h"

#include <grpcpp/create_channel.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "proto/support/status_wire.h"

namespace cxlpool::bench {
namespace {

constexpr absl::Duration kCallLimit = absl::Seconds(10);
constexpr int kMaxAnswerBytes = 16 << 20;
constexpr uint32_t kPage = 1000;

using Clock = std::chrono::system_clock;

// A connection of its own: gRPC would let equal channels share one.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& address,
                                                       absl::Duration limit) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A server that is only just starting refuses at first.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  if (channel->WaitForConnected(Clock::now() + absl::ToChronoMilliseconds(limit))) return channel;
  return absl::UnavailableError(
      absl::StrCat("nobody answered on ", address, " within ", absl::FormatDuration(limit)));
}

v1::AllocateRegionRequest MakeRequest(uint64_t size_bytes) {
  v1::AllocateRegionRequest request;
  request.set_size_bytes(size_bytes);
  return request;
}

// In the form of a UUID; its parts say which load, caller and call it is.
std::string MakeRequestId(uint64_t seed, uint32_t caller, uint64_t call) {
  return absl::StrFormat("%08x-%04x-4%03x-8000-%012x", seed & 0xffffffff, caller & 0xffff,
                         (seed >> 32) & 0xfff, call & 0xffffffffffff);
}

class CallbackLoad final : public Load {
 public:
  CallbackLoad(const LoadOptions& options, std::vector<std::shared_ptr<grpc::Channel>> channels)
      : options_(options), running_(options.callers) {
    for (int i = 0; i < options.callers; ++i) {
      callers_.push_back(std::make_unique<Caller>(this, i, channels[i % channels.size()]));
    }
    for (const auto& caller : callers_) caller->Next();
  }

  // Callers hold pointers to this: they have to end first.
  ~CallbackLoad() override {
    stopping_ = true;
    for (const auto& caller : callers_) caller->Cancel();
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return running_ == 0; });
  }

  uint64_t answered() const override { return answered_.load(std::memory_order_relaxed); }

  absl::Status failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  absl::StatusOr<std::vector<v1::Region>> Join(absl::Duration limit) override {
    {
      std::unique_lock lock(mutex_);
      if (!ended_.wait_for(lock, absl::ToChronoMilliseconds(limit),
                           [this] { return running_ == 0; })) {
        return absl::DeadlineExceededError(
            absl::StrCat(running_, " callers did not end within ", absl::FormatDuration(limit)));
      }
    }
    std::vector<v1::Region> all;
    all.reserve(answered());
    for (const auto& caller : callers_) caller->Move(all);
    return all;
  }

 private:
  class Caller {
   public:
    Caller(CallbackLoad* load, uint32_t number, std::shared_ptr<grpc::Channel> channel)
        : load_(load),
          number_(number),
          stub_(v1::PoolService::NewStub(std::move(channel))),
          request_(MakeRequest(load->options_.size_bytes)) {}

    void Next() {
      {
        const std::lock_guard lock(mutex_);
        context_.emplace();
      }
      context_->set_deadline(Clock::now() + absl::ToChronoMilliseconds(kCallLimit));
      request_.set_request_id(MakeRequestId(load_->options_.seed, number_, ++calls_));
      stub_->async()->AllocateRegion(&*context_, &request_, &response_,
                                     [this](const grpc::Status& status) { Answered(status); });
    }

    void Cancel() {
      const std::lock_guard lock(mutex_);
      if (context_.has_value()) context_->TryCancel();
    }

    void Move(std::vector<v1::Region>& to) {
      std::move(answers_.begin(), answers_.end(), std::back_inserter(to));
      answers_.clear();
    }

   private:
    void Answered(const grpc::Status& status) {
      if (status.ok()) {
        answers_.emplace_back().Swap(response_.mutable_region());
        load_->answered_.fetch_add(1, std::memory_order_relaxed);
        if (!load_->stopping_) return Next();
      }
      load_->Ended(FromWire(status, *context_, load_->options_.address));
    }

    CallbackLoad* const load_;
    const uint32_t number_;
    const std::unique_ptr<v1::PoolService::Stub> stub_;
    v1::AllocateRegionRequest request_;
    v1::AllocateRegionResponse response_;
    std::mutex mutex_;  // Of context_, which Cancel reads from another thread.
    std::optional<grpc::ClientContext> context_;
    uint64_t calls_ = 0;
    std::vector<v1::Region> answers_;
  };

  void Ended(absl::Status status) {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = std::move(status);
    if (--running_ == 0) ended_.notify_all();
  }

  const LoadOptions options_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> answered_{0};
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  absl::Status failure_;  // Guarded by mutex_.
  int running_;           // Guarded by mutex_.
  std::vector<std::unique_ptr<Caller>> callers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Load>> Load::Start(const LoadOptions& options,
                                                  absl::Duration connect_limit) {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < options.connections; ++i) {
    auto channel = Connect(options.address, connect_limit);
    if (!channel.ok()) return channel.status();
    channels.push_back(*std::move(channel));
  }
  return std::make_unique<CallbackLoad>(options, std::move(channels));
}

absl::StatusOr<v1::AllocateRegionResponse> AllocateOnce(const LoadOptions& options,
                                                        absl::Duration connect_limit) {
  auto channel = Connect(options.address, connect_limit);
  if (!channel.ok()) return channel.status();
  grpc::ClientContext context;
  context.set_deadline(Clock::now() + absl::ToChronoMilliseconds(kCallLimit));
  v1::AllocateRegionRequest request = MakeRequest(options.size_bytes);
  request.set_request_id(MakeRequestId(options.seed, 0, 0));
  v1::AllocateRegionResponse response;
  const grpc::Status status =
      v1::PoolService::NewStub(*channel)->AllocateRegion(&context, request, &response);
  if (!status.ok()) return FromWire(status, context, options.address);
  return response;
}

absl::StatusOr<std::vector<v1::Region>> ListAll(const std::string& address,
                                                absl::Duration connect_limit) {
  auto channel = Connect(address, connect_limit);
  if (!channel.ok()) return channel.status();
  const auto stub = v1::PoolService::NewStub(*channel);
  std::vector<v1::Region> all;
  v1::ListRegionsRequest request;
  request.set_page_size(kPage);
  do {
    grpc::ClientContext context;
    context.set_deadline(Clock::now() + absl::ToChronoMilliseconds(kCallLimit));
    v1::ListRegionsResponse page;
    const grpc::Status status = stub->ListRegions(&context, request, &page);
    if (!status.ok()) return FromWire(status, context, address);
    for (v1::Region& region : *page.mutable_regions()) all.push_back(std::move(region));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return all;
}

}  // namespace cxlpool::bench
