// A fabric without a switch: devices that every host sees whole. The hosts' agents stand in for it
// (proto/cxlpool/v1/host_service.proto, "Shared devices"; AgentTasks). A grant in an agent's
// keeping stands for an LD in a slot: to bind is to grant, to unbind is to revoke, and what a host
// has is what its agent shows when it is looked at.
//
// What holds, and why:
//   a host's life       the boot id of its agent's session. Grants do not outlive it.
//                       Without a session a host is not reachable, and nothing is believed of it.
//                       One under another boot id proves that the former life has ended
//                       (kHostGone).
//   claim               the session of the host's agent: it has one at a time, and what was asked
//                       in a former one and has not begun is not done. A clear that has begun goes
//                       on; which ones may is written down on this manager's machine
//                       (shared_state.h). Where another one may have asked, each host that the
//                       records know has to answer this manager, or be off, before any byte is said
//                       to be clear.
//   proof of an unbind  the agent shows the device with its mark, and on it no such grant and no
//                       DAX device over these bytes. There is only its word for that: nothing keeps
//                       the host's root from storing.
//   which device it is  its mark, and never a name or a serial (shared_devices.cc). Nothing is
//                       granted to a host before it was proven, both ways, that it reaches it.
//   clearing            by an agent, and read back by another host's where there is one
//                       (shared_scrub.cc).
//
// Hosts have neither slots nor sockets: each has slots 1 to kSharedSlots.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_SHARED_SHARED_BACKEND_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_SHARED_SHARED_BACKEND_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cxlpool/v1/host_service.pb.h"
#include "fabric-manager/adapters/fabric_shared/shared_state.h"
#include "fabric-manager/ports/agent_tasks.h"
#include "fabric-manager/ports/fabric_settings.h"
#include "fabric-manager/ports/fabric_shell.h"
#include "proto/support/loop.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

inline constexpr char kSharedLogSubject[] = "fabric-shared";

struct SharedTiming {
  absl::Duration answer = absl::Seconds(2);      // Of an agent, while devices are proven.
  absl::Duration clear = absl::Seconds(30);      // Of an agent, to a piece that is cleared.
  absl::Duration watch = absl::Seconds(2);       // Between two looks at a host that has something.
  absl::Duration patience = absl::Seconds(3);    // Of Discover, with one host.
  absl::Duration operation = absl::Seconds(10);  // A Bind or BeginUnbind as a whole.
  absl::Duration fence_confirmed = absl::Seconds(30);  // As FabricShell::Options has it.
};

struct SharedFabricConfig {
  std::string state_directory;  // Absolute; made where missing (shared_state.h).
  bool coherent = false;        // The hardware keeps hosts' caches coherent: nothing is flushed.
  TopologyTables tables = {};   // Devices and hosts, until Configure.
  uint64_t clear_bytes = 64 << 20;  // That an agent clears at a time; more where it has to be.
  SharedTiming timing = {};
  FenceProgram fence = {};
};

// A FabricReader (shared_settings.cc): of the driver's own keys of [fabric], and devices that say
// at most which host is to mark which device of its own (HOST/NAME).
FabricSettings ReadSharedFabric(TomlReader& fabric, const FenceProgram& fence);
// What the driver is opened with.
SharedFabricConfig ReadSharedConfig(TomlReader& fabric, const FenceProgram& fence);

class SharedBackend : public FabricBackend {
 public:
  // `tasks` outlives the driver, and is stopped before the driver ends. BAD_CONFIG; errors of
  // SharedState::Open.
  static absl::StatusOr<std::unique_ptr<FabricDriver>> Open(SharedFabricConfig config,
                                                            AgentTasks* tasks);
  ~SharedBackend() override;

  FabricCapabilities capabilities() const override;
  std::vector<FabricDevice> devices() const override;
  std::vector<std::string> hosts() const override;
  void Start(const KnownFabric& known, Sink sink) override;
  absl::Status Configure(const FabricParts& parts) override;
  bool HasHost(const HostEntry& host) const override;
  void Forget(const std::string& host) override;
  void Meet(const std::string& host, const std::string& life) override;
  absl::StatusOr<DeviceLook> LookAtDevices(absl::Duration deadline) override;
  absl::StatusOr<SeenDevices> ShowDevices(const std::string& host,
                                          absl::Duration deadline) override;
  absl::StatusOr<uint64_t> Claim(const std::string& host, absl::Duration deadline) override;
  HostLook LookAt(const std::string& host, absl::Duration deadline) override;
  absl::StatusOr<BoundLd> Bind(const BindRequest& request, absl::Duration deadline) override;
  absl::StatusOr<bool> BeginUnbind(const Binding& binding, absl::Duration deadline) override;
  absl::StatusOr<bool> IsUnbound(const Binding& binding, absl::Duration deadline) override;
  bool SeesEnds() const override { return false; }
  absl::Status EndLife(const std::string& host, const std::string& life) override;
  absl::StatusOr<std::unique_ptr<FabricScrub>> BeginScrub(const Slice& slice) override;
  bool Idle(const std::string& lane, int wake_fd, absl::Duration at_most) override;

 private:
  friend class SharedScrub;

  // Whether a host reaches a device.
  struct Proof {
    std::string life;         // Of the host, that this holds for.
    std::string why;          // Empty: proven. Otherwise what was seen instead, for people.
    bool was_proven = false;  // In this session of its agent.
  };
  struct Device {
    DeviceEntry entry;
    v1::DeviceMark mark;       // id is empty: nobody has shown one yet. Its nonce is the last one.
    uint64_t align_bytes = 0;  // The largest that a host has shown; it divides the granule.
    // Nonces that an agent was asked to write and has not answered: they may appear at any time.
    std::deque<uint64_t> unsettled;
    // Odd while a nonce is being written, and another number after each write and each proof: a
    // look tells something of a proof only where it began and ended under the same even one.
    uint64_t writes = 0;
    std::map<std::string, Proof> proofs;     // By host.
    std::optional<v1::DeviceMark> to_write;  // The first mark, as it was asked for.

    bool MayShow(uint64_t nonce) const;
  };
  using Piece = std::tuple<std::string, uint64_t, uint64_t>;  // Device, first byte, length.
  struct Host {
    bool met = false;
    uint64_t sessions = 0;              // How many began or ended: no proof outlives one.
    std::string life;                   // As the records may have it: of Meet, or last shown.
    std::string successor;              // The life by which that one was reported as gone.
    std::string ended;                  // The life that EndLife ended.
    bool off = false;                   // Since then it was heard in no other one.
    uint64_t claimed = 0;               // The session of its agent that is the claim; 0: none.
    std::map<Piece, uint32_t> foreign;  // With the slot that it was shown in.
    uint32_t next_foreign = 0;          // Never the same slot for two pieces.
    std::vector<BoundLd> bound;         // As last seen.
    absl::Duration looked;              // When.

    bool EndedIn(const std::string& of) const { return !of.empty() && ended == of; }
  };
  // What an agent has shown, in which life, and in which session.
  struct Seen {
    std::string life;
    uint64_t session = 0;  // Host::sessions
    v1::DeviceLook look;
  };

  SharedBackend(SharedFabricConfig config, SharedState state, AgentTasks* tasks)
      : config_(std::move(config)), state_(std::move(state)), tasks_(tasks) {}

  void TakeTables(const TopologyTables& tables);
  void OnSession(const std::string& host);
  // It was fenced, and was not heard in another life since: whatever it was asked for, in any life,
  // is over.
  bool IsOff(const std::string& host);
  // The operator has said, by retiring or removing it, that it is off.
  bool IsGivenUp(const std::string& host);
  void TellIfGone(const std::string& host, const std::string& life);
  static v1::DeviceTask LookTask();
  // `session` not 0: in that one only.
  absl::StatusOr<v1::DeviceLook> Ask(const std::string& host, const std::string& life,
                                     v1::DeviceTask task, absl::Duration deadline,
                                     uint64_t session = 0);
  absl::StatusOr<v1::DeviceLook> AskLook(const std::string& host, const std::string& life,
                                         absl::Duration deadline, uint64_t session = 0);
  HostLook Unreachable(const std::string& host, absl::string_view why);
  HostLook TakeLook(const std::string& host, const std::string& life, const v1::DeviceLook& seen,
                    const std::map<std::string, uint64_t>& writes);
  // Of a grant or a foreign piece: whether its device is the pool's, as far as anybody can tell.
  bool IsOurs(const v1::DeviceGrant& grant, const v1::DeviceLook& seen)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<BoundLd> ForeignLd(Host& host, const std::string& id, const v1::DeviceGrant& piece)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepUnseen(Host& host, const std::map<Piece, uint32_t>& former, const v1::DeviceLook& seen,
                  HostLook& look) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<FabricEvent> LostSince(Host& host, const HostLook& look)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- Which device it is: shared_devices.cc. All but CheckProofs on kDeviceLane.

  // Which hosts have shown what; those that were asked and did not answer are left out. False:
  // there was no time for all.
  bool LookAtUnproven(absl::Duration deadline, std::map<std::string, Seen>& seen);
  // Asks these hosts, some at a time. Answers how many were asked before the deadline.
  size_t AskForLooks(const std::vector<std::string>& hosts, absl::Duration deadline,
                     std::map<std::string, Seen>& seen);
  // The device that is shown with our mark of device `id`; with `mark`, with the mark of that id.
  // One that is shown as unfit does not count.
  absl::StatusOr<const v1::SharedDevice*> FindByMark(const v1::DeviceLook& look,
                                                     const std::string& id,
                                                     const std::string& mark) const;
  // That device, where it is as large and as finely divided as the entry says, too.
  absl::StatusOr<const v1::SharedDevice*> FindMarked(const v1::DeviceLook& look,
                                                     const DeviceEntry& entry,
                                                     const std::string& mark) const;
  std::string TakeFirstMark(const std::string& id, const std::map<std::string, Seen>& seen);
  std::string WriteFirstMark(const std::string& id, std::map<std::string, Seen>& seen,
                             absl::Duration deadline);
  // Empty: the host is proven to reach it.
  std::string Prove(const std::string& id, const std::string& host, const Seen& seen,
                    absl::Duration deadline);
  std::string ProveAnew(const std::string& id, const std::string& host, absl::Duration deadline);
  // Empty: what `writer` stores, `reader` loads.
  absl::StatusOr<std::string> Compare(const std::string& id, const std::string& writer,
                                      const std::string& reader, bool writer_is_proven,
                                      absl::Duration deadline);
  void SettleNonce(const std::string& id, uint64_t nonce, bool written);
  absl::Status WriteNonce(const std::string& id, const std::string& host, const std::string& name,
                          uint64_t nonce, absl::Duration deadline);
  // Whether what a proven host shows now goes with what it has proven.
  std::vector<std::string> CheckProofs(const std::string& host, const std::string& life,
                                       const v1::DeviceLook& seen,
                                       const std::map<std::string, uint64_t>& writes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string WhyMissing(const Device& device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsProven(const Device& device, const std::string& host)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What Prove found of a host that has shown this: nothing, if its session has ended meanwhile.
  // True: it is news.
  bool TakeProof(Device& device, const std::string& host, const Seen& shown, std::string why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t SessionOf(const std::string& host);
  // Hosts that reach the device, and have a session.
  std::vector<std::string> HostsOf(const std::string& device);

  // --- Clearing: shared_scrub.cc. On kScrubLane.

  absl::Status Settle(const Slice& slice, absl::Duration deadline);
  absl::Status AwaitAll(const Slice& slice, absl::Duration deadline);
  absl::Status AskWhether(const std::string& host, const std::string& life,
                          const std::string& asked, const Slice* cleared, absl::Duration deadline);
  v1::DeviceTask CheckOf(const Slice& slice);

  const SystemClock clock_;
  const SharedFabricConfig config_;  // Its tables are not looked at any more.
  SharedState state_;                // Its clearings are of kScrubLane.
  AgentTasks* const tasks_;
  Sink sink_;  // Set by Start.

  mutable Mutex mutex_;  // Held by nobody who asks an agent.
  std::map<std::string, Host> hosts_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Device> devices_ ABSL_GUARDED_BY(mutex_);
  // Slice to the host that let it go last.
  std::map<Piece, std::string> released_ ABSL_GUARDED_BY(mutex_);
  // Hosts that a manager on another machine may have asked to clear something, and that have not
  // answered this one yet. One that is no longer listed, or is retired, is off, as the operator has
  // said.
  std::set<std::string> unheard_ ABSL_GUARDED_BY(mutex_);
  // Listed and not retired, as of Configure; nothing: that has not come yet.
  std::optional<std::set<std::string>> in_use_ ABSL_GUARDED_BY(mutex_);
  std::string asked_last_;  // Of LookAtUnproven; on kDeviceLane.
};

// Whether [a, a + length) and [b, b + length) have a byte in common, whatever an agent says.
bool Overlap(uint64_t a_bytes, uint64_t a_length, uint64_t b_bytes, uint64_t b_length);

// The agent did not answer, or not with how it ended: what was asked for may have been done, or may
// still be.
bool IsNoWord(const absl::Status& status);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_SHARED_SHARED_BACKEND_H_
