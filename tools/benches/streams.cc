#include "tools/benches/streams.h"

#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/benches/channel.h"

namespace cxlpool::bench {
namespace {

grpc::ByteBuffer OneSlice(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

class CallbackStreams final : public Streams {
 public:
  CallbackStreams(const StreamsOptions& options,
                  const std::vector<std::shared_ptr<grpc::Channel>>& channels)
      : options_(options), open_(options.first.size()) {
    for (const auto& channel : channels) {
      stubs_.push_back(std::make_unique<grpc::GenericStub>(channel));
    }
    for (size_t i = 0; i < options.first.size(); ++i) {
      streams_.push_back(std::make_unique<Stream>(this));
      streams_.back()->Begin(*stubs_[i / options.per_connection], options.first[i]);
    }
  }

  ~CallbackStreams() override {
    for (const auto& stream : streams_) stream->Cancel();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_ == 0; });
  }

  uint64_t received() const override { return received_.load(std::memory_order_relaxed); }

  std::pair<uint64_t, uint64_t> LeastAndMost() const override {
    uint64_t least = UINT64_MAX, most = 0;
    for (const auto& stream : streams_) {
      least = std::min(least, stream->received());
      most = std::max(most, stream->received());
    }
    return {least, most};
  }

  absl::Status Await(uint64_t count, absl::Duration limit) override {
    std::unique_lock lock(mutex_);
    awaited_ = count;
    const bool there = changed_.wait_for(lock, absl::ToChronoMilliseconds(limit),
                                         [&] { return received() >= count || !failure_.ok(); });
    awaited_ = UINT64_MAX;
    if (!failure_.ok()) return failure_;
    if (there) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat(
        received(), " of ", count, " messages came within ", absl::FormatDuration(limit)));
  }

  const std::string* first_answer(size_t index) const override {
    return streams_[index]->received() == 0 ? nullptr : &streams_[index]->first_answer();
  }

 private:
  class Stream final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
   public:
    explicit Stream(CallbackStreams* all) : all_(all) {}

    void Begin(grpc::GenericStub& stub, const std::string& first) {
      stub.PrepareBidiStreamingCall(&context_, all_->options_.method, grpc::StubOptions(), this);
      message_ = OneSlice(first);
      StartWrite(&message_);
      StartRead(&incoming_);
      StartCall();
    }

    void Cancel() { context_.TryCancel(); }

    uint64_t received() const { return received_.load(std::memory_order_acquire); }
    const std::string& first_answer() const { return first_answer_; }

   private:
    void OnReadDone(bool ok) override {
      if (!ok) {
        all_->Broke();
        return;
      }
      if (all_->options_.keep_first_answer && received() == 0) {
        std::vector<grpc::Slice> slices;
        if (incoming_.Dump(&slices).ok()) {
          for (const grpc::Slice& slice : slices) {
            first_answer_.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
          }
        }
      }
      incoming_.Clear();
      received_.fetch_add(1, std::memory_order_release);
      all_->Received();
      StartRead(&incoming_);
    }

    void OnDone(const grpc::Status&) override { all_->Ended(); }

    CallbackStreams* const all_;
    grpc::ClientContext context_;
    grpc::ByteBuffer message_, incoming_;
    std::atomic<uint64_t> received_{0};
    std::string first_answer_;
  };

  void Received() {
    if (received_.fetch_add(1) + 1 < awaited_.load()) return;
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

  void Broke() {
    const std::lock_guard lock(mutex_);
    failure_ = absl::UnavailableError("the server ended a stream");
    changed_.notify_all();
  }

  void Ended() {
    const std::lock_guard lock(mutex_);
    --open_;
    changed_.notify_all();
  }

  const StreamsOptions options_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::atomic<uint64_t> received_{0};
  std::atomic<uint64_t> awaited_{UINT64_MAX};
  std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status failure_;  // Guarded by mutex_.
  size_t open_;           // Guarded by mutex_.
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Streams>> Streams::Open(const StreamsOptions& options,
                                                       absl::Duration limit) {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  while (channels.size() * static_cast<size_t>(options.per_connection) < options.first.size()) {
    auto channel = Connect(options.address, limit);
    if (!channel.ok()) return channel.status();
    channels.push_back(*std::move(channel));
  }
  return std::make_unique<CallbackStreams>(options, channels);
}

}  // namespace cxlpool::bench
