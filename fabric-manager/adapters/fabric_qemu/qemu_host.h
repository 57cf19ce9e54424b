// One host of the QEMU fabric: its QMP connection and what it shows.
//
// The truth about a host is one QEMU process, named by boot, pid and start time. What is bound is
// what that process shows; when it has ended, as its pidfd says, nothing is. As long as it has not
// ended, no other process is taken for the host, even one that answers on the same socket. The
// pool's records remember it over restarts of the manager, before anything is bound in it.
//
// `known_` is what the process shows: read at the first connection to it, kept current by our own
// binds, and held against its list of devices at each later connection, whenever DEVICE_DELETED
// comes, and before anything is decided on it: what is new is read then. The event is
// no more than a reason to look: it can come late, when another LD is plugged by the same id, or
// while no connection stood. An LD is gone when it is not plugged in and no address space of the
// process maps its memory; the one without the other is not enough.
//
// A claim (fabric_driver.h) is a connection. A QMP socket serves one client; Claim ends the
// connection of whoever has it still, by a second socket (`yank` of the first one's chardev), and
// is then greeted on the first. Once QEMU has answered one command of ours there, all that came
// there before is done, and whoever had it has nothing left to send by. Without a claim a
// connection is used for nothing but knowing that QEMU is there. Nothing is ever done, or looked
// at, by the second socket: commands of the first one may still take effect after what that one
// shows.
//
// All of it blocks, and runs on the host's lane (fabric_backend.h); Interrupt: any thread.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_HOST_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_HOST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_process.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_settings.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_tree.h"
#include "fabric-manager/adapters/fabric_qemu/qmp_client.h"
#include "fabric-manager/ports/fabric_backend.h"
#include "proto/support/loop.h"
#include "proto/support/mutex.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::fm {

inline constexpr char kQemuLogSubject[] = "fabric-qemu";

// Which process is which host, so that one QEMU is never taken for two: of the processes that
// answer now and of those that the records know. And how often each host was claimed. Any thread.
class QemuProcesses {
 public:
  // The host that `incarnation` belongs to: `host`, unless another claimed it before.
  std::string Claim(const std::string& incarnation, const std::string& host) {
    MutexLock lock(mutex_);
    return hosts_.try_emplace(incarnation, host).first->second;
  }

  // The number of a new claim of the host: one that no claim of it had before, also where another
  // QemuHost has taken the place of the one that had it, or the host was away meanwhile.
  uint64_t NextClaim(const std::string& host) {
    MutexLock lock(mutex_);
    return ++claims_.try_emplace(host, kFirstClaim - 1).first->second;
  }

  // The host is no part of the pool any more: its processes may become another's.
  void Forget(const std::string& host) {
    MutexLock lock(mutex_);
    std::erase_if(hosts_, [&](const auto& entry) { return entry.second == host; });
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::string> hosts_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> claims_ ABSL_GUARDED_BY(mutex_);  // The last one of each host.
};

// Which file is which device, by canonical paths; also of devices whose file cannot be opened, so
// that what is bound of one has its name. Any thread.
class QemuDevices {
 public:
  void Set(std::map<std::string, std::string> paths) {
    MutexLock lock(mutex_);
    if (paths == paths_) return;
    paths_ = std::move(paths);
    ++version_;
  }
  std::string PathOf(const std::string& device) const {
    MutexLock lock(mutex_);
    const auto it = paths_.find(device);
    return it == paths_.end() ? "" : it->second;
  }
  // Empty: it is no device of the pool.
  std::string DeviceAt(const std::string& path) const {
    MutexLock lock(mutex_);
    for (const auto& [device, own] : paths_) {
      if (own == path) return device;
    }
    return "";
  }
  // Another one after each change.
  uint64_t version() const {
    MutexLock lock(mutex_);
    return version_;
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::string> paths_ ABSL_GUARDED_BY(mutex_);  // By device id.
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 1;
};

class QemuHost {
 public:
  using EventSink = std::function<void(FabricEvent)>;

  // `devices` and `processes` are shared with the other hosts.
  QemuHost(QemuHostConfig config, std::shared_ptr<const QemuDevices> devices, QemuTiming timing,
           std::shared_ptr<QemuProcesses> processes);

  const QemuHostConfig& config() const { return config_; }

  // False where the machine gave it no descriptor; then it is of no use.
  bool valid() const { return interrupt_.valid(); }

  // Call once, first.
  void Start(EventSink sink) { sink_ = std::move(sink); }

  // As FabricBackend names them; deadlines likewise.
  void Meet(const std::string& life);
  absl::StatusOr<uint64_t> Claim(absl::Duration deadline);
  HostLook Look(absl::Duration deadline);
  absl::StatusOr<BoundLd> Bind(const BindRequest& request, absl::Duration deadline);
  absl::StatusOr<bool> BeginUnbind(const LdKey& key, absl::Duration deadline);
  absl::StatusOr<bool> IsUnbound(const LdKey& key, absl::Duration deadline);
  absl::Status Fence();
  void Interrupt();
  bool Idle(int wake_fd, absl::Duration at_most);

 private:
  absl::Duration NextMoment() const;

  // The connection and the process behind it.
  void RememberFormer(const std::string& known);
  // `evict`: from another client that has the socket.
  void Connect(bool evict);
  absl::Status TryConnect(bool evict);
  absl::Status Identify(std::unique_ptr<QmpClient>& client, bool evict,
                        std::optional<QemuProcess>& fresh);
  absl::StatusOr<std::unique_ptr<QmpClient>> Dial(const std::string& path);
  // `client`, where that is not greeted because of another client; null: it could not even wait.
  absl::Status Evict(std::unique_ptr<QmpClient>& client);
  // Whether there is a connection that is claimed.
  bool IsClaimed() const { return client_ != nullptr && claimed_; }
  absl::StatusOr<nlohmann::json> Call(const std::string& command, const nlohmann::json& arguments);
  void Disconnect(const absl::Status& why);
  void OnProcessExit();
  absl::Status FenceNow();
  std::string Incarnation() const;  // Empty: which process is the host is not known.
  absl::Status Unreachable() const;

  // What is plugged in.
  absl::Status Refresh();
  // Forgets what is bound of a file that was no device of the pool, after the devices have changed.
  void ForgetLdsOfNoDevice();
  absl::Status ReadNew(const std::string& device_id);
  // Looks for LDs that were unplugged while the host still maps them: it can still reach them.
  absl::Status FindUnpluggedButMapped(const std::set<std::string>& plugged);
  absl::Status AdoptUnpluggedButMapped(const std::string& device_id, const LdKey& key,
                                       const std::string& backend);
  // Looks what is there if QEMU reported that something has gone.
  void TakeDeleted();
  void Gone(const std::string& device_id);
  BoundLd MakeLd(const LdKey& key, const QemuMemory& memory) const;
  absl::Status Plug(const BindRequest& request, const std::string& port);
  // Nothing: the guest is busy; try again.
  std::optional<absl::Status> TryUnplug(const std::string& device_id);
  // OK: proven unbound. UNAVAILABLE: not known now. FAILED_PRECONDITION: bound.
  absl::Status Proof(const std::string& device_id) const;
  void Emit(FabricEvent::Kind kind, const BoundLd* lost = nullptr);
  void EmitGone();

  const QemuHostConfig config_;
  const std::shared_ptr<const QemuDevices> devices_;
  const QemuTiming timing_;
  const std::shared_ptr<QemuProcesses> processes_;
  const SystemClock clock_;

  UniqueFd interrupt_;  // eventfd: leave off what is under way.

  // Used only by the lane.
  EventSink sink_;
  std::unique_ptr<QmpClient> client_;  // Null: not reachable.
  bool claimed_ = false;               // This connection.
  uint64_t claim_ = kFirstClaim - 1;   // The last claim.
  std::optional<QemuProcess> process_;
  std::string life_;       // Of process_, as the records have it.
  std::string elsewhere_;  // Likewise, of the one that they know, where it may run on another
                           // machine; then no other is taken for the host. Empty: it is none such.
  std::string ended_;  // Incarnation of the process that was the host and has ended; empty: none.
  std::map<uint32_t, std::string> ports_;        // Slot number to port id.
  std::map<std::string, BoundLd> known_;         // By device id.
  std::map<std::string, std::string> backends_;  // Of what is known: device id to backend id.
  bool looked_for_mapped_ = false;               // Since it was connected.
  uint64_t devices_version_ = 0;                 // With which `known_` was read.
  std::map<std::string, std::string> foreign_;   // Device id to port id, of CXL memory not ours.
  // DEVICE_DELETED came. It is only a reason to look: it may come later than the list lacks the
  // device, when another has been plugged by the same id.
  bool look_again_ = false;
  bool met_ = false;   // Meet has been called: which process the records know is known.
  bool news_ = false;  // Something is gone, or can be asked again: look what is awaited.
  absl::Duration operation_deadline_;
  absl::Duration next_connect_;
  absl::Duration backoff_;
  absl::Status down_;  // Why it is not reachable.
  bool reported_unreachable_ = false;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_HOST_H_
