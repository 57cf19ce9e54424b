// A fabric without CXL: slots are directories, extents are files, and the host agent's emulated
// memory adapter is the other side. See proto/cxlpool/emulated/v1/slot.proto for the layout.
//
// What holds without hardware, and why:
//   proof of an unbind   the agent's own word (`powered: false`); Scrub does not rest on it, for
//                        it truncates the file, so a map that was kept gets SIGBUS.
//   fence                the host's extents move to new inodes and the old ones are truncated.
//                        Where the agent runs as a user of its own it cannot open the new ones;
//                        where it runs as the manager's user it must heed the absent FabricSide.
//   read-only            not enforced here; the agent opens the extent O_RDONLY.
//   claim                ROOT/lock is locked as long as the driver lives: no other manager has it.
//   identity             ROOT/identity names the directory for ever, hosts/HOST/incarnation one
//                        life of a host's side, hosts/HOST/ended the lives before it. In another
//                        directory, or one that was made again, a host that the records know is not
//                        reachable.
//
// A slot that is no longer listed is closed and not forgotten: what is bound there shows, and
// can be unbound. A file of ours that cannot be read makes its host unreachable: what was in
// it is not known.
//
// All file work runs on one lane (fabric_backend.h).
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_EMULATED_EMULATED_FABRIC_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_EMULATED_EMULATED_FABRIC_H_

#include <sys/types.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/adapters/fabric_emulated/extent_files.h"
#include "fabric-manager/adapters/fabric_emulated/slot_files.h"
#include "fabric-manager/ports/fabric_settings.h"
#include "fabric-manager/ports/fabric_shell.h"
#include "proto/support/loop.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::fm {

struct EmulatedDeviceConfig {
  std::string id;
  std::string serial;
  uint64_t capacity_bytes = 0;
  uint64_t granule_bytes = 0;  // Divides the capacity.
};

struct EmulatedHostConfig {
  std::string id;
  std::vector<uint32_t> slots;
  std::optional<uid_t> agent_uid;  // Default: the manager's own user.
  friend bool operator==(const EmulatedHostConfig&, const EmulatedHostConfig&) = default;
};

struct EmulatedFabricConfig {
  std::string root_directory;  // Absolute. Made where missing; one driver at a time.
  std::vector<EmulatedDeviceConfig> devices;
  std::vector<EmulatedHostConfig> hosts;
  absl::Duration poll_interval = absl::Milliseconds(10);    // While somebody awaits a proof.
  absl::Duration watch_interval = absl::Milliseconds(250);  // For LDs removed behind our back.
  FenceProgram fence = {};
};

// The devices and hosts that `tables` name, in place of those of `config`.
void SetParts(EmulatedFabricConfig& config, const TopologyTables& tables);

// A FabricReader (emulated_settings.cc): of the driver's own key of [fabric], and hosts that have
// slots.
FabricSettings ReadEmulatedFabric(TomlReader& fabric, const FenceProgram& fence);
// What the driver is opened with.
EmulatedFabricConfig ReadEmulatedConfig(TomlReader& fabric, const FenceProgram& fence);

// A short value that is kept as a symbolic link's target. Reading: empty where there is none; never
// a part of a value. The bound is Linux's: no link's target is longer.
inline constexpr size_t kMaxValueBytes = 4095;
absl::StatusOr<std::string> ReadValue(const std::string& path);
absl::Status WriteValue(const std::string& path, const std::string& value);
// The lives of a host that fences have ended, the last one first; as many as are kept.
std::vector<std::string> EndedLives(const std::string& host_directory);
inline constexpr size_t kEndedLives = 16;

class EmulatedFabric : public FabricBackend {
 public:
  // INVALID_ARGUMENT/BAD_CONFIG. FAILED_PRECONDITION/FABRIC_BUSY: another driver has the root.
  static absl::StatusOr<std::unique_ptr<FabricDriver>> Open(EmulatedFabricConfig config);

  FabricCapabilities capabilities() const override;
  std::vector<FabricDevice> devices() const override;
  std::vector<std::string> hosts() const override;
  std::string LaneOf(const std::string&) const override { return "emulated"; }
  void Start(const KnownFabric& known, Sink sink) override;
  absl::Status Configure(const FabricParts& parts) override;
  bool HasHost(const HostEntry& host) const override;
  void Forget(const std::string& host) override { hosts_.erase(host); }
  void Meet(const std::string& host, const std::string& life) override;
  HostLook LookAt(const std::string& host, absl::Duration deadline) override;
  absl::StatusOr<BoundLd> Bind(const BindRequest& request, absl::Duration deadline) override;
  absl::StatusOr<bool> BeginUnbind(const Binding& binding, absl::Duration deadline) override;
  absl::StatusOr<bool> IsUnbound(const Binding& binding, absl::Duration deadline) override;
  absl::StatusOr<bool> Fence(const std::string& host, absl::Duration deadline) override;
  absl::StatusOr<std::unique_ptr<FabricScrub>> BeginScrub(const Slice& slice) override;
  bool Idle(const std::string& lane, int wake_fd, absl::Duration at_most) override;

  // Clears what was ever bound at these bytes.
  absl::Status ScrubNow(const Slice& slice);

 private:
  struct Slot {
    explicit Slot(SlotFiles slot_files) : files(std::move(slot_files)) {}
    SlotFiles files;
    std::optional<BoundLd> ld;  // As last read or written.
    bool closed = false;        // Not listed any more: nothing new is bound here.
    absl::Status unreadable;    // Why it is not known what is bound here; OK: `ld` is.
  };
  struct FenceJob {
    std::list<std::string> extents;  // Still to swap.
    std::unique_ptr<ExtentSwap> swap;
  };
  struct Host {
    EmulatedHostConfig config;
    std::string directory;
    std::string incarnation;
    std::map<uint32_t, Slot> slots;
    std::optional<FenceJob> fence;
    absl::Status unknown;  // Why its state is not known; OK: it is known.
    uid_t agent_uid() const;
  };
  explicit EmulatedFabric(EmulatedFabricConfig config) : config_(std::move(config)) {}
  absl::Status Prepare();
  // Where a test wants to know (CXLPOOL_FABRIC_EFFECTS): what took effect, and under which epoch.
  void NoteEffect(const std::string& what) const;
  absl::Status PrepareHost(const EmulatedHostConfig& host);

  absl::Status ScrubExtent(const std::string& extent);
  // Which files hold bytes of a slice: ROOT/slices/DEVICE@DPA+LENGTH leads to the extent's name,
  // from before its first bind until its scrub; to several, where another was bound there
  // unscrubbed.
  absl::Status NoteSlice(const Slice& slice, const std::string& extent) const;
  struct NotedSlice {
    std::string path;
    std::vector<std::string> extents;
  };
  absl::StatusOr<std::vector<NotedSlice>> NotedOn(const Slice& slice) const;
  absl::Status Reload(const std::string& host, uint32_t number, Slot& slot);
  // Reads all its slots. HOST_UNREACHABLE: it is not the one that the records know, or a file of
  // its slots cannot be read.
  absl::Status CheckHost(const std::string& id);
  // Reports the LD as lost if it is not there any more.
  void CheckSlot(const std::string& host, uint32_t number, Slot& slot);
  // Checked; null where the LD is not bound. Errors as for CheckHost: that is not known.
  absl::StatusOr<Slot*> FindSlot(const LdKey& key);
  bool BoundElsewhere(const std::string& extent, const std::string& host) const;
  bool BeingFenced(const std::string& extent) const;
  void Watch();
  absl::Status StartFence(Host& host);
  absl::StatusOr<bool> StepFence(Host& host);
  absl::Status FinishFence(Host& host);
  absl::Status RenewIncarnation(Host& host) const;
  absl::Status AddSlots(Host& host);

  const SystemClock clock_;

  // Used only by the lane, once it runs.
  EmulatedFabricConfig config_;  // Without the hosts, which are in `hosts_`.
  UniqueFd lock_;
  UniqueFd effects_;      // The file of NoteEffect; not valid: there is none.
  uint64_t epoch_ = 0;    // Of the manager.
  std::string identity_;  // Of the root directory.
  std::optional<ExtentFiles> extents_;
  std::map<std::string, Host> hosts_;
  absl::Duration watched_ = absl::ZeroDuration();  // When Watch last ran.
  Sink sink_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_EMULATED_EMULATED_FABRIC_H_
