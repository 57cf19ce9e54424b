#include "fabric-manager/adapters/fabric_qemu/qemu_host.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxWork = 4096;

void Signal(const UniqueFd& event) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(event.get(), &one, sizeof(one));
}

void Clear(const UniqueFd& event) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = ::read(event.get(), &count, sizeof(count));
}

absl::Status Stopping() { return absl::CancelledError("the QEMU fabric is stopping"); }

}  // namespace

QemuHost::QemuHost(QemuHostConfig config, std::vector<QemuDeviceConfig> devices, QemuTiming timing,
                   std::shared_ptr<QemuProcesses> processes)
    : config_(std::move(config)),
      devices_(std::move(devices)),
      timing_(timing),
      processes_(std::move(processes)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      interrupt_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      backoff_(timing.reconnect_min) {}

QemuHost::~QemuHost() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  Signal(interrupt_);
  Signal(wake_);
  if (thread_.joinable()) thread_.join();
  Stop();
}

void QemuHost::Start(std::string known, EventSink sink) {
  sink_ = std::move(sink);
  thread_ = std::thread([this, known = std::move(known)] {
    RememberFormer(known);
    Run();
  });
  pthread_setname_np(thread_.native_handle(),
                     absl::StrCat("qmp-", config_.id).substr(0, 15).c_str());
}

void QemuHost::Enqueue(absl::Duration deadline, Job job, bool first) {
  absl::Status refused;
  {
    MutexLock lock(mutex_);
    if (stopping_) {
      refused = Stopping();
    } else if (work_.size() >= kMaxWork && !first) {
      refused = Refusal{.code = absl::StatusCode::kResourceExhausted,
                        .reason = "FABRIC_OVERLOADED",
                        .message = absl::StrCat("host ", config_.id, " has ", kMaxWork,
                                                " fabric calls waiting"),
                        .remedy = "try again later",
                        .metadata = {}}
                    .ToStatus();
    } else if (first) {
      work_.push_front(Work{deadline, std::move(job)});
    } else {
      work_.push_back(Work{deadline, std::move(job)});
    }
  }
  if (!refused.ok()) {
    std::move(job)(std::move(refused));
    return;
  }
  if (first) Signal(interrupt_);
  Signal(wake_);
}

void QemuHost::Discover(DoneWith<Report> done) {
  // Never too late to say what is known.
  Enqueue(absl::InfiniteDuration(), [this, done = std::move(done)](absl::Status status) mutable {
    if (status.ok()) {
      std::move(done)(ReportNow());
    } else {
      std::move(done)(std::move(status));
    }
  });
}

void QemuHost::Bind(BindRequest request, DoneWith<BoundLd> done) {
  Enqueue(
      clock_.Elapsed() + timing_.operation,
      [this, request = std::move(request), done = std::move(done)](absl::Status status) mutable {
        if (!status.ok()) {
          std::move(done)(std::move(status));
        } else {
          std::move(done)(BindNow(request));
        }
      });
}

void QemuHost::BeginUnbind(LdKey key, Done done) {
  Enqueue(clock_.Elapsed() + timing_.operation,
          [this, key = std::move(key), done = std::move(done)](absl::Status status) mutable {
            if (!status.ok()) {
              std::move(done)(std::move(status));
            } else {
              BeginUnbindNow(std::move(key), std::move(done));
            }
          });
}

void QemuHost::Fence(Done done) {
  Enqueue(
      absl::InfiniteDuration(),
      [this, done = std::move(done)](absl::Status status) mutable {
        Clear(interrupt_);
        std::move(done)(status.ok() ? FenceNow() : std::move(status));
      },
      /*first=*/true);
}

void QemuHost::Run() {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
    }
    if (client_ == nullptr && clock_.Elapsed() >= next_connect_) Connect();
    RunWork();
    TakeDeleted();
    RetryUnbinds();
    CheckWaiters();
    Sleep();
  }
}

void QemuHost::RunWork() {
  while (true) {
    Work work;
    {
      MutexLock lock(mutex_);
      if (stopping_ || work_.empty()) return;
      work = std::move(work_.front());
      work_.pop_front();
    }
    const absl::Duration now = clock_.Elapsed();
    operation_deadline_ = now + timing_.operation;
    if (now <= work.deadline) {
      std::move(work.job)(absl::OkStatus());
    } else {
      std::move(work.job)(Refusal{
          .code = absl::StatusCode::kUnavailable,
          .reason = "FABRIC_TIMEOUT",
          .message = absl::StrCat("host ", config_.id, "'s QEMU was too slow; nothing was done"),
          .remedy = "try again",
          .metadata = {}}.ToStatus());
    }
    TakeDeleted();
  }
}

absl::Duration QemuHost::NextMoment() const {
  if (look_again_ && client_ != nullptr) return clock_.Elapsed();
  absl::Duration next = clock_.Elapsed() + absl::Minutes(1);
  if (client_ == nullptr) next = std::min(next, next_connect_);
  for (const Unbind& unbind : unbinds_) next = std::min(next, unbind.next_try);
  for (const Waiter& waiter : waiters_) {
    next = std::min({next, waiter.deadline, next_recheck_});
  }
  return next;
}

void QemuHost::Sleep() {
  // Negative descriptors are left out by poll.
  pollfd polls[] = {{wake_.get(), POLLIN, 0},
                    {client_ != nullptr ? client_->fd() : -1, POLLIN, 0},
                    {process_.has_value() ? process_->pidfd() : -1, POLLIN, 0}};
  const absl::Duration wait = std::max(NextMoment() - clock_.Elapsed(), absl::ZeroDuration());
  // Rounded up, or the last millisecond would be spent spinning.
  ::poll(polls, std::size(polls),
         static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(wait, absl::Milliseconds(1)))));
  Clear(wake_);
  operation_deadline_ = clock_.Elapsed() + timing_.operation;
  if (client_ != nullptr && polls[1].revents != 0) {
    if (absl::Status status = client_->Drain(); !status.ok()) Disconnect(status);
  }
  if (process_.has_value() && process_->HasExited()) OnProcessExit();
}

void QemuHost::Stop() {
  std::deque<Work> work;
  {
    MutexLock lock(mutex_);
    work.swap(work_);
  }
  for (Work& item : work) std::move(item.job)(Stopping());
  for (Unbind& unbind : unbinds_) std::move(unbind.done)(Stopping());
  for (Waiter& waiter : waiters_) std::move(waiter.done)(Stopping());
}

void QemuHost::Emit(FabricEvent::Kind kind, const BoundLd* lost) {
  FabricEvent event{.kind = kind, .host = config_.id};
  if (lost != nullptr) {
    event.key = lost->key;
    event.slot = lost->slot;
  }
  sink_(std::move(event));
}

void QemuHost::EmitGone() {
  sink_({.kind = FabricEvent::Kind::kHostGone, .host = config_.id, .incarnation = ended_});
}

}  // namespace cxlpool::fm
