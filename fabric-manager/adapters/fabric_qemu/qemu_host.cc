#include "fabric-manager/adapters/fabric_qemu/qemu_host.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

void Clear(const UniqueFd& event) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = ::read(event.get(), &count, sizeof(count));
}

}  // namespace

QemuHost::QemuHost(QemuHostConfig config, std::shared_ptr<const QemuDevices> devices,
                   QemuTiming timing, std::shared_ptr<QemuProcesses> processes)
    : config_(std::move(config)),
      devices_(std::move(devices)),
      timing_(timing),
      processes_(std::move(processes)),
      interrupt_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      backoff_(timing.reconnect_min) {}

void QemuHost::Meet(const std::string& life) {
  RememberFormer(life);
  met_ = true;
  Connect();
}

// Slots are shown also where QEMU does not answer: they are what was last read.
HostLook QemuHost::Look(absl::Duration deadline) {
  operation_deadline_ = deadline;
  const bool reachable = client_ != nullptr && Refresh().ok();
  TakeDeleted();
  HostLook look;
  look.host.id = config_.id;
  look.host.reachable = reachable;
  look.host.fabric_incarnation = Incarnation();
  for (const auto& [slot, port] : ports_) {
    look.host.slots.push_back(slot);
    for (const auto& [id, where] : foreign_) {
      if (where == port) look.foreign[slot] = id;
    }
  }
  if (!reachable) {
    look.host.unreachable_reason = std::string(Unreachable().message());
    return look;
  }
  for (const auto& [id, ld] : known_) look.bound.push_back(ld);
  return look;
}

// The interrupt that made way for the fence must not break off the fence's own commands.
absl::Status QemuHost::Fence() {
  Clear(interrupt_);
  return FenceNow();
}

void QemuHost::Interrupt() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(interrupt_.get(), &one, sizeof(one));
}

// Connects where there is no connection, and listens: for what QEMU says has gone, for the end of
// the connection and of the process.
bool QemuHost::Idle(int wake_fd, absl::Duration at_most) {
  if (met_ && client_ == nullptr && clock_.Elapsed() >= next_connect_) Connect();
  operation_deadline_ = clock_.Elapsed() + timing_.operation;
  TakeDeleted();
  // Negative descriptors are left out by poll.
  pollfd polls[] = {{wake_fd, POLLIN, 0},
                    {client_ != nullptr ? client_->fd() : -1, POLLIN, 0},
                    {process_.has_value() ? process_->pidfd() : -1, POLLIN, 0}};
  absl::Duration wait = std::min(at_most, NextMoment() - clock_.Elapsed());
  if (news_ || wait < absl::ZeroDuration()) wait = absl::ZeroDuration();
  // Rounded up, or the last millisecond would be spent spinning.
  ::poll(polls, std::size(polls),
         static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(wait, absl::Milliseconds(1)))));
  operation_deadline_ = clock_.Elapsed() + timing_.operation;
  if (client_ != nullptr && polls[1].revents != 0) {
    if (absl::Status status = client_->Drain(); !status.ok()) Disconnect(status);
    TakeDeleted();
  }
  if (process_.has_value() && process_->HasExited()) OnProcessExit();
  return std::exchange(news_, false);
}

absl::Duration QemuHost::NextMoment() const {
  if (client_ == nullptr) return met_ ? next_connect_ : absl::InfiniteDuration();
  return look_again_ ? clock_.Elapsed() : absl::InfiniteDuration();
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
