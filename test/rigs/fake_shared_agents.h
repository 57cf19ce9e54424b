// Agents of hosts with shared devices, and the devices: AgentTasks in memory, for tests.
//
// A storage is what lies behind a device: hosts that have a device of one storage see the same
// bytes. The agents keep to host_service.proto ("Shared devices"). Any thread.
#ifndef CXLPOOL_TEST_RIGS_FAKE_SHARED_AGENTS_H_
#define CXLPOOL_TEST_RIGS_FAKE_SHARED_AGENTS_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fabric-manager/ports/agent_tasks.h"
#include "proto/support/mutex.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

// Bytes that hosts share. Those behind the mark are kept sparsely.
struct FakeStorage {
  uint64_t size_bytes = 0;
  uint64_t align_bytes = 0;
  std::optional<v1::DeviceMark> mark;
  bool damaged = false;
  std::map<uint64_t, char> bytes;  // By DPA; not here: zero.
};
using FakeStoragePtr = std::shared_ptr<FakeStorage>;

class FakeSharedAgents : public AgentTasks {
 public:
  struct Host {
    std::string life;                               // Empty: no session.
    std::map<std::string, FakeStoragePtr> devices;  // By name there.
    std::vector<v1::DeviceGrant> grants;
    std::set<uint64_t> powered;  // Serials of grants that something was made of.
    std::vector<v1::DeviceGrant> foreign;
    bool hangs = false;        // Takes tasks, and answers when it goes on.
    bool clears_wait = false;  // Clears and checks alone do, and other tasks overtake them.
    // With the first such task its kernel hangs: the agent answers KERNEL_TIMEOUT to it and to all
    // others, and does the first one when the kernel goes on.
    v1::DeviceTask::WorkCase hangs_in = v1::DeviceTask::WORK_NOT_SET;
    bool kernel_hangs = false;
    bool cannot_clear = false;      // And says so.
    bool has_range = false;         // Somebody there has the bytes: refuses to clear and to check.
    bool finds_lost_bytes = false;  // In what it clears or checks.
    bool clear_does_nothing = false;  // And is said to be done.
    bool stores_are_lost = false;     // What it stores goes elsewhere.
    int looks = 0;
    int clears = 0, checks = 0, marks = 0;
  };

  // --- AgentTasks.

  std::string LifeOf(const std::string& host) override {
    MutexLock lock(mutex_);
    return hosts_[host].life;
  }

  uint64_t SessionOf(const std::string& host) override {
    MutexLock lock(mutex_);
    return hosts_[host].life.empty() ? 0 : begun_[host];
  }

  absl::StatusOr<v1::DeviceLook> Ask(const std::string& host, const std::string& life,
                                     uint64_t session, v1::DeviceTask task,
                                     absl::Duration timeout) override {
    const auto end =
        std::chrono::steady_clock::now() +
        absl::ToChronoNanoseconds(std::clamp(timeout, absl::ZeroDuration(), absl::Seconds(60)));
    MutexLock lock(mutex_);
    Host& own = hosts_[host];
    const auto there = [&] {
      return own.life == life && !life.empty() && !stopped_ &&
             (session == 0 || session == begun_[host]);
    };
    if (!there()) return NoSession(host);
    while (own.hangs || (own.clears_wait && task.has_clear())) {
      if (changed_.wait_until(lock.native(), end) == std::cv_status::timeout) {
        DoLate(host, std::move(task));
        return Refuse(absl::StatusCode::kDeadlineExceeded, "NO_ANSWER",
                      absl::StrCat("the agent of host ", host, " has not answered"), "wait");
      }
      if (!there()) return NoSession(host);
    }
    if (own.kernel_hangs || own.hangs_in == task.work_case()) {
      if (!std::exchange(own.kernel_hangs, true)) DoLate(host, std::move(task));
      return Refuse(absl::StatusCode::kDeadlineExceeded, "KERNEL_TIMEOUT",
                    "a task of the manager is still under way in the kernel", "wait");
    }
    return Do(own, task);
  }

  void SetOnSession(std::function<void(const std::string& host)> on_session) override {
    MutexLock lock(on_session_mutex_);
    on_session_ = std::move(on_session);
  }

  void Stop() override {
    MutexLock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

  // --- What happens to the hosts.

  // Calls edit(Host&).
  template <typename Edit>
  void Change(const std::string& host, Edit edit) {
    MutexLock lock(mutex_);
    edit(hosts_[host]);
    changed_.notify_all();
  }
  template <typename Read>
  auto Of(const std::string& host, Read read) {
    MutexLock lock(mutex_);
    return read(hosts_[host]);
  }

  // A session under this boot id begins (empty: the one that there is ends). A host in another boot
  // has no grants of the former one.
  void Session(const std::string& host, const std::string& life) {
    {
      MutexLock lock(mutex_);
      Host& own = hosts_[host];
      if (!life.empty() && booted_[host] != life) {
        own.grants.clear();
        own.powered.clear();
        booted_[host] = life;
      }
      own.life = life;
      if (!life.empty()) ++begun_[host];
      changed_.notify_all();
    }
    MutexLock lock(on_session_mutex_);
    if (on_session_) on_session_(host);
  }

  void Hang(const std::string& host, bool hangs) {
    MutexLock lock(mutex_);
    hosts_[host].hangs = hangs;
    if (!hangs) {
      hosts_[host].clears_wait = false;
      hosts_[host].hangs_in = v1::DeviceTask::WORK_NOT_SET;
      hosts_[host].kernel_hangs = false;
      for (const auto& task : std::exchange(late_, {})) task();
    }
    changed_.notify_all();
  }

  // As an agent under an Offer: takes it into use; lets go of it, which ends a revoked grant.
  void PowerOn(const std::string& host, uint64_t serial) {
    Change(host, [&](Host& own) { own.powered.insert(serial); });
  }
  void PowerOff(const std::string& host, uint64_t serial) {
    Change(host, [&](Host& own) {
      own.powered.erase(serial);
      std::erase_if(own.grants, [&](const v1::DeviceGrant& grant) {
        return grant.serial() == serial && grant.revoked();
      });
    });
  }
  // The grant goes, and nobody asked for that.
  void Remove(const std::string& host, uint64_t serial) {
    Change(host, [&](Host& own) {
      std::erase_if(own.grants, [&](const v1::DeviceGrant& g) { return g.serial() == serial; });
    });
  }

  FakeStoragePtr StorageOf(const std::string& host, const std::string& mark) {
    MutexLock lock(mutex_);
    return Find(hosts_[host], mark);
  }

 private:
  static absl::Status NoSession(const std::string& host) {
    return Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
                  absl::StrCat("the agent of host ", host, " has no session"), "start it");
  }
  static absl::Status Precondition(const std::string& reason, const std::string& message) {
    return FailedPrecondition(reason, message, "see there");
  }
  static bool Overlap(const v1::DeviceGrant& a, const v1::DeviceGrant& b) {
    return a.mark() == b.mark() && a.dpa_bytes() < b.dpa_bytes() + b.length_bytes() &&
           b.dpa_bytes() < a.dpa_bytes() + a.length_bytes();
  }
  static FakeStoragePtr Find(const Host& host, const std::string& mark) {
    for (const auto& [name, storage] : host.devices) {
      if (!storage->damaged && storage->mark.has_value() && storage->mark->id() == mark) {
        return storage;
      }
    }
    return nullptr;
  }

  // When the host goes on: Hang(host, false).
  void DoLate(const std::string& host, v1::DeviceTask task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    late_.push_back([this, host, task = std::move(task)] { Do(hosts_[host], task).IgnoreError(); });
  }

  static absl::StatusOr<v1::DeviceLook> Do(Host& host, const v1::DeviceTask& task) {
    switch (task.work_case()) {
      case v1::DeviceTask::kLook:
        return Look(host);
      case v1::DeviceTask::kGrant:
        return Grant(host, task.grant());
      case v1::DeviceTask::kRevoke:
        return Revoke(host, task.revoke());
      case v1::DeviceTask::kMark:
        return Mark(host, task.mark());
      case v1::DeviceTask::kClear:
        return Clear(host, task.clear());
      case v1::DeviceTask::WORK_NOT_SET:
        break;
    }
    return absl::UnimplementedError("no such task");
  }

  static absl::StatusOr<v1::DeviceLook> Look(Host& host) {
    ++host.looks;
    v1::DeviceLook look;
    for (const auto& [name, storage] : host.devices) {
      v1::SharedDevice& device = *look.add_devices();
      device.set_name(name);
      device.set_size_bytes(storage->size_bytes);
      device.set_align_bytes(storage->align_bytes);
      if (storage->damaged) {
        device.set_unfit_reason("its mark is damaged");
      } else if (storage->mark.has_value()) {
        *device.mutable_mark() = *storage->mark;
      }
    }
    for (const v1::DeviceGrant& grant : host.grants) *look.add_grants() = grant;
    for (const v1::DeviceGrant& piece : host.foreign) *look.add_foreign() = piece;
    return look;
  }

  static absl::StatusOr<v1::DeviceLook> Grant(Host& host, const v1::DeviceGrant& wanted) {
    if (Find(host, wanted.mark()) == nullptr) {
      return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_DEVICE", "no device here has that mark",
                    "look");
    }
    for (const v1::DeviceGrant& grant : host.grants) {
      if (grant.SerializeAsString() == wanted.SerializeAsString()) return v1::DeviceLook();
      if (grant.slot() == wanted.slot() || grant.serial() == wanted.serial()) {
        return Precondition("SLOT_TAKEN", "another grant is there");
      }
      if (Overlap(grant, wanted))
        return Precondition("RANGE_TAKEN", "another grant has these bytes");
    }
    for (const v1::DeviceGrant& piece : host.foreign) {
      if (Overlap(piece, wanted))
        return Precondition("RANGE_TAKEN", "a DAX device has these bytes");
    }
    host.grants.push_back(wanted);
    return v1::DeviceLook();
  }

  static absl::StatusOr<v1::DeviceLook> Revoke(Host& host, const v1::DeviceRevokeTask& task) {
    for (v1::DeviceGrant& grant : host.grants) {
      if (grant.slot() == task.slot() && grant.serial() == task.serial()) grant.set_revoked(true);
    }
    // Nobody has taken it into use, and an Offer that would is not there.
    std::erase_if(host.grants, [&](const v1::DeviceGrant& grant) {
      return grant.revoked() && !host.powered.contains(grant.serial());
    });
    return v1::DeviceLook();
  }

  static absl::StatusOr<v1::DeviceLook> Mark(Host& host, const v1::DeviceMarkTask& task) {
    ++host.marks;
    const auto device = host.devices.find(task.name());
    if (device == host.devices.end()) {
      return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_DEVICE", "no such device", "look");
    }
    FakeStorage& storage = *device->second;
    if (storage.damaged) {
      return Refuse(absl::StatusCode::kDataLoss, "MARK_DAMAGED", "half a mark is there", "restore");
    }
    if (storage.mark.has_value() && storage.mark->id() != task.mark().id()) {
      return Refuse(absl::StatusCode::kAlreadyExists, "MARK_FOREIGN", "another mark is there",
                    "erase it");
    }
    if (storage.mark.has_value()) {
      if (host.stores_are_lost) return v1::DeviceLook();
      storage.mark->set_nonce(task.mark().nonce());
      return v1::DeviceLook();
    }
    storage.mark = task.mark();
    storage.mark->set_was_zero(storage.bytes.empty());
    return v1::DeviceLook();
  }

  static absl::StatusOr<v1::DeviceLook> Clear(Host& host, const v1::DeviceClearTask& task) {
    if (host.has_range) return Precondition("RANGE_TAKEN", "DAX device dax0.3 has these bytes");
    const FakeStoragePtr storage = Find(host, task.mark());
    if (storage == nullptr) return Precondition("MARK_WRONG", "no device here has that mark");
    const auto first = storage->bytes.lower_bound(task.dpa_bytes());
    const auto end = storage->bytes.lower_bound(task.dpa_bytes() + task.length_bytes());
    if (task.only_check()) {
      ++host.checks;
      const bool zero = std::all_of(first, end, [](const auto& byte) { return byte.second == 0; });
      if (!zero) return Precondition("NOT_ZERO", "some bytes are not zero");
      return v1::DeviceLook();
    }
    ++host.clears;
    if (host.cannot_clear) return Precondition("DAX_CARVE", "the kernel makes no DAX device");
    if (!host.clear_does_nothing) storage->bytes.erase(first, end);
    if (host.finds_lost_bytes) {
      return Refuse(absl::StatusCode::kDataLoss, "BYTES_LOST", "4096 bytes are lost", "nothing");
    }
    return v1::DeviceLook();
  }

  Mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Host> hosts_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> begun_ ABSL_GUARDED_BY(mutex_);  // Sessions, by host.
  std::map<std::string, std::string> booted_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> late_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;

  Mutex on_session_mutex_;
  std::function<void(const std::string&)> on_session_ ABSL_GUARDED_BY(on_session_mutex_);
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_FAKE_SHARED_AGENTS_H_
