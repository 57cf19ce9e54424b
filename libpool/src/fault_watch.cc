#include <algorithm>
#include <condition_variable>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "cxlpool/faults.h"
#include "libpool/src/connection.h"
#include "libpool/src/deadline.h"
#include "libpool/src/errors.h"
#include "libpool/src/reply.h"
#include "proto/support/mutant.h"
#include "proto/support/mutex.h"

namespace cxlpool {
namespace libpool {
namespace {

constexpr uint32_t kWaitMs = 30'000;  // For the next fault, in one request.
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(5);
// An agent that restarts reports all again. Beyond this some are forgotten, and reported once more.
constexpr size_t kMaxRemembered = 16'384;
// Above any offset and length of a Region: sums of two do not wrap.
constexpr uint64_t kMaxBytes = uint64_t{1} << 56;

}  // namespace

// The thread that asks, and its connection.
class FaultWatcher {
 public:
  FaultWatcher(std::string path, absl::Duration timeout, std::function<void(const Fault&)> on_fault)
      : path_(std::move(path)), timeout_(timeout), on_fault_(std::move(on_fault)) {}

  ~FaultWatcher() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      if (connection_.has_value()) connection_->Interrupt();
    }
    stopped_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Start() {
    absl::StatusOr<v1::LocalFaultsResponse> first = Ask(0);
    if (!first.ok()) return first.status();
    thread_ = std::thread([this, first = *std::move(first)] { Run(first); });
    return absl::OkStatus();
  }

  absl::Status Check() const {
    MutexLock lock(mutex_);
    return status_;
  }

 private:
  void Run(const v1::LocalFaultsResponse& first) {
    Tell(first);
    absl::Duration pause = kFirstPause;
    while (true) {
      absl::StatusOr<v1::LocalFaultsResponse> answer = Ask(kWaitMs);
      {
        MutexLock lock(mutex_);
        if (stopping_) return;
        status_ = answer.status();
        if (!answer.ok()) {
          // A new connection begins at the beginning: another agent counts anew.
          connection_.reset();
          if (!CXLPOOL_MUTANT("faults-since-the-last-agent")) after_ = 0;
          const Deadline until = After(pause);
          while (!stopping_ && RemainingMs(until, 1) > 0) stopped_.wait_until(lock.native(), until);
          if (stopping_) return;
        }
      }
      pause = answer.ok() ? kFirstPause : std::min(2 * pause, kLongestPause);
      if (answer.ok()) Tell(*answer);
    }
  }

  // Only this thread, or Start before there is one, replaces the connection; the destructor may
  // interrupt it meanwhile.
  absl::StatusOr<v1::LocalFaultsResponse> Ask(uint32_t wait_ms) {
    const Deadline deadline = After(timeout_ + absl::Milliseconds(wait_ms));
    if (!connection_.has_value()) {
      absl::StatusOr<Connection> connection =
          Connection::Connect(path_, After(std::min(timeout_, kLongestPause)));
      if (!connection.ok()) return connection.status();
      MutexLock lock(mutex_);
      connection_ = *std::move(connection);
      if (stopping_) connection_->Interrupt();
    }
    v1::LocalRequest request;
    request.set_protocol_version(kProtocolVersion);
    request.mutable_faults()->set_after(after_);
    request.mutable_faults()->set_wait_ms(wait_ms);
    if (absl::Status status = connection_->Send(request, deadline); !status.ok()) return status;
    absl::StatusOr<Reply> reply = connection_->Receive(deadline);
    if (!reply.ok()) return reply.status();
    if (absl::Status status = StatusOf(reply->message); !status.ok()) return status;
    if (!reply->message.has_faults()) return BadReply("the answer to another question");
    after_ = reply->message.faults().last();
    return std::move(*reply->message.mutable_faults());
  }

  void Tell(const v1::LocalFaultsResponse& answer) {
    for (const v1::LocalFault& fault : answer.faults()) {
      if (fault.length_bytes() == 0 || fault.length_bytes() > kMaxBytes ||
          fault.region_offset_bytes() > kMaxBytes) {
        continue;  // No fault that a Region can have.
      }
      if (reported_.size() >= kMaxRemembered) reported_.clear();
      if (!reported_.emplace(fault.tag(), fault.region_offset_bytes(), fault.length_bytes())
               .second) {
        continue;
      }
      on_fault_({.name = fault.name(),
                 .tag = fault.tag(),
                 .region_offset_bytes = fault.region_offset_bytes(),
                 .length_bytes = fault.length_bytes(),
                 .message = fault.message()});
      MutexLock lock(mutex_);
      if (stopping_) return;
    }
  }

  // Constant.
  const std::string path_;
  const absl::Duration timeout_;
  const std::function<void(const Fault&)> on_fault_;

  // The thread's. `connection_` is replaced with the mutex held.
  std::optional<Connection> connection_;
  uint64_t after_ = 0;
  std::set<std::tuple<std::string, uint64_t, uint64_t>> reported_;

  mutable Mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace libpool

FaultWatch::FaultWatch(std::unique_ptr<libpool::FaultWatcher> watcher)
    : watcher_(std::move(watcher)) {}
FaultWatch::FaultWatch(FaultWatch&&) noexcept = default;
FaultWatch& FaultWatch::operator=(FaultWatch&&) noexcept = default;
FaultWatch::~FaultWatch() = default;

absl::StatusOr<FaultWatch> FaultWatch::Start(const ConnectOptions& options,
                                             std::function<void(const Fault&)> on_fault) {
  if (on_fault == nullptr) {
    return libpool::BadArgument("there is no on_fault", "say what to call");
  }
  if (absl::Status status = libpool::CheckTimeout(options); !status.ok()) return status;
  auto watcher = std::make_unique<libpool::FaultWatcher>(libpool::SocketPath(options),
                                                         options.timeout, std::move(on_fault));
  if (absl::Status status = watcher->Start(); !status.ok()) return status;
  return FaultWatch(std::move(watcher));
}

absl::Status FaultWatch::Check() const { return watcher_->Check(); }

}  // namespace cxlpool
