#include "tools/benches/load.h"

#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/status_wire.h"
#include "tools/benches/channel.h"
#include "tools/benches/requests.h"

namespace cxlpool::bench {
namespace {

constexpr absl::Duration kCallLimit = absl::Seconds(10);

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string ToString(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  bytes.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
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
  void Measure(bool on) override { measured_ = on; }
  void Stop() override { stopping_ = true; }

  absl::Status failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  absl::StatusOr<End> Join(absl::Duration limit) override {
    {
      std::unique_lock lock(mutex_);
      if (!ended_.wait_for(lock, absl::ToChronoMilliseconds(limit),
                           [this] { return running_ == 0; })) {
        return absl::DeadlineExceededError(
            absl::StrCat(running_, " callers did not end within ", absl::FormatDuration(limit)));
      }
    }
    End end;
    for (const auto& caller : callers_) caller->Collect(end);
    return end;
  }

 private:
  class Caller {
   public:
    Caller(CallbackLoad* load, uint32_t number, std::shared_ptr<grpc::Channel> channel)
        : load_(load), stub_(std::move(channel)), request_(load->options_.request, number) {}

    void Next() {
      {
        const std::lock_guard lock(mutex_);
        context_.emplace();
      }
      context_->set_deadline(std::chrono::system_clock::now() +
                             absl::ToChronoMilliseconds(kCallLimit));
      sent_ = ToBuffer(request_.Next());
      began_ = load_->measured_.load(std::memory_order_relaxed) ? absl::GetCurrentTimeNanos() : 0;
      stub_.UnaryCall(&*context_, load_->options_.method, grpc::StubOptions(), &sent_, &response_,
                      [this](const grpc::Status& status) { Answered(status); });
    }

    void Cancel() {
      const std::lock_guard lock(mutex_);
      if (context_.has_value()) context_->TryCancel();
    }

    void Collect(End& end) {
      for (const grpc::ByteBuffer& answer : answers_) end.answers.push_back(ToString(answer));
      answers_.clear();
      end.latencies_us.insert(end.latencies_us.end(), latencies_us_.begin(), latencies_us_.end());
    }

   private:
    void Answered(const grpc::Status& status) {
      if (!status.ok()) {
        load_->Ended(FromWire(status, *context_, load_->options_.address));
        return;
      }
      if (began_ != 0 && load_->measured_.load(std::memory_order_relaxed)) {
        latencies_us_.push_back(static_cast<float>(absl::GetCurrentTimeNanos() - began_) / 1000);
      }
      if (load_->options_.keep_answers) {
        answers_.emplace_back().Swap(&response_);
      } else {
        response_.Clear();
      }
      load_->answered_.fetch_add(1, std::memory_order_relaxed);
      if (++calls_ == load_->options_.calls_per_caller || load_->stopping_) {
        load_->Ended(absl::OkStatus());
      } else {
        Next();
      }
    }

    CallbackLoad* const load_;
    grpc::GenericStub stub_;
    NumberedRequest request_;
    grpc::ByteBuffer sent_, response_;
    std::mutex mutex_;  // Of context_, which Cancel reads from another thread.
    std::optional<grpc::ClientContext> context_;
    uint64_t calls_ = 0;
    int64_t began_ = 0;  // 0: not timed.
    std::vector<grpc::ByteBuffer> answers_;
    std::vector<float> latencies_us_;
  };

  void Ended(absl::Status status) {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = std::move(status);
    if (--running_ == 0) ended_.notify_all();
  }

  const LoadOptions options_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> measured_{false};
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

namespace {

class OneCaller final : public Caller {
 public:
  OneCaller(std::string method, std::shared_ptr<grpc::Channel> channel)
      : method_(std::move(method)), stub_(std::move(channel)) {}

  absl::StatusOr<std::string> Call(const std::string& request) override {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kCallLimit));
    const grpc::ByteBuffer sent = ToBuffer(request);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> done;
    stub_.UnaryCall(&context, method_, grpc::StubOptions(), &sent, &response,
                    [&](grpc::Status status) { done.set_value(std::move(status)); });
    const grpc::Status status = done.get_future().get();
    if (!status.ok()) return FromWire(status, context, method_);
    return ToString(response);
  }

 private:
  const std::string method_;
  grpc::GenericStub stub_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Caller>> Caller::Connect(const std::string& address,
                                                        const std::string& method,
                                                        absl::Duration limit) {
  auto channel = bench::Connect(address, limit);
  if (!channel.ok()) return channel.status();
  return std::make_unique<OneCaller>(method, *std::move(channel));
}

absl::StatusOr<std::string> CallOnce(const std::string& address, const std::string& method,
                                     const std::string& request, absl::Duration limit) {
  auto caller = Caller::Connect(address, method, limit);
  if (!caller.ok()) return caller.status();
  return (*caller)->Call(NumberedRequest(request, 0).Next());
}

}  // namespace cxlpool::bench
