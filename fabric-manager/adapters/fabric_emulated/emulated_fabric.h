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
//   identity             ROOT/identity names the directory for ever, hosts/HOST/incarnation one
//                        life of a host's side, hosts/HOST/ended the lives before it. In another
//                        directory, or one that was made anew, a host that the records know is not
//                        reachable.
//
// A slot that is no longer configured is closed and not forgotten: what is bound there shows, and
// can be unbound. A file of ours that cannot be read makes its host unreachable: nobody knows what
// it said.
//
// All file work runs on one thread of the driver's own; so do all completions and events.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_EMULATED_EMULATED_FABRIC_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_EMULATED_EMULATED_FABRIC_H_

#include <sys/types.h>

#include <atomic>
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
#include "fabric-manager/ports/fabric_driver.h"
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
};

struct EmulatedFabricConfig {
  std::string root_directory;  // Absolute. Made where missing; one driver at a time.
  std::vector<EmulatedDeviceConfig> devices;
  std::vector<EmulatedHostConfig> hosts;
  absl::Duration poll_interval = absl::Milliseconds(10);    // While somebody awaits a proof.
  absl::Duration watch_interval = absl::Milliseconds(250);  // For LDs removed behind our back.
};

// A short value that is kept as a symbolic link's target. Reading: empty where there is none.
absl::StatusOr<std::string> ReadValue(const std::string& path);
absl::Status WriteValue(const std::string& path, const std::string& value);
// The lives of a host that fences have ended, the last one first; as many as are kept.
std::vector<std::string> EndedLives(const std::string& host_directory);
inline constexpr size_t kEndedLives = 16;

class EmulatedFabric : public FabricDriver {
 public:
  // INVALID_ARGUMENT/BAD_CONFIG. FAILED_PRECONDITION/FABRIC_BUSY: another driver has the root.
  static absl::StatusOr<std::unique_ptr<EmulatedFabric>> Open(EmulatedFabricConfig config);

  // Answers everything that is still waiting with CANCELLED.
  ~EmulatedFabric() override;

  FabricCapabilities capabilities() const override;
  void Start(KnownFabric known, absl::AnyInvocable<void(FabricEvent)> sink) override;
  void Discover(DoneWith<FabricView> done) override;
  void Bind(BindRequest request, DoneWith<BoundLd> done) override;
  void BeginUnbind(Binding binding, Done done) override;
  void AwaitUnbound(Binding binding, absl::Duration timeout, Done done) override;
  void Fence(std::string host, Done done) override;
  void Scrub(std::string tag, uint32_t extent_index, Slice slice, Done done) override;

 private:
  struct Slot {
    explicit Slot(SlotFiles slot_files) : files(std::move(slot_files)) {}
    SlotFiles files;
    std::optional<BoundLd> ld;  // As last read or written.
    bool closed = false;        // Not configured any more: nothing new is bound here.
    absl::Status unreadable;    // Why nobody knows what is bound here; OK: `ld` says it.
  };
  struct FenceJob {
    std::list<std::string> extents;  // Still to swap.
    std::unique_ptr<ExtentSwap> swap;
    std::vector<Done> waiting;
  };
  struct Host {
    EmulatedHostConfig config;
    std::string directory;
    std::string incarnation;
    std::map<uint32_t, Slot> slots;
    std::optional<FenceJob> fence;
    absl::Status unknown;  // Why nothing can be said of it; OK: something can.
    uid_t agent_uid() const;
  };
  struct Waiter {
    LdKey key;
    absl::Duration deadline;  // On clock_.
    Done done;
  };

  explicit EmulatedFabric(EmulatedFabricConfig config) : config_(std::move(config)) {}
  absl::Status Prepare();
  absl::Status PrepareHost(const EmulatedHostConfig& host);

  // Runs `task` on the thread; false where too much waits already.
  bool Admit(Task task);

  // The rest runs on the thread.
  absl::StatusOr<FabricView> DiscoverNow();
  absl::StatusOr<BoundLd> BindNow(const BindRequest& request);
  absl::Status CheckBind(const BindRequest& request) const;
  absl::Status BeginUnbindNow(const LdKey& key);
  absl::Status ScrubNow(const std::string& tag, uint32_t extent_index, const Slice& slice);
  absl::Status ScrubExtent(const std::string& extent);
  // Which files hold bytes of a slice: ROOT/slices/DEVICE@DPA+LENGTH leads to the extent's name,
  // from before its first bind until its scrub.
  absl::Status NoteSlice(const Slice& slice, const std::string& extent) const;
  struct NotedSlice {
    std::string path;
    std::string extent;
  };
  absl::StatusOr<std::vector<NotedSlice>> NotedOn(const Slice& slice) const;
  // True: proven, and the FabricSide is gone.
  absl::StatusOr<bool> TryUnbind(const LdKey& key);
  absl::Status Reload(const std::string& host, uint32_t number, Slot& slot);
  // Looks whether the host is the one that the records know.
  void Recognize(const std::string& id, Host& host, const KnownFabric& known);
  // Reads all its slots. HOST_UNREACHABLE: it is not the one that the records know, or a file of
  // its slots cannot be read; UNKNOWN_HOST.
  absl::Status CheckHost(const std::string& id);
  // Reports the LD as lost if it is not there any more.
  void CheckSlot(const std::string& host, uint32_t number, Slot& slot);
  // Checked; null where the LD is not bound. Errors as of CheckHost: nobody can tell.
  absl::StatusOr<Slot*> FindSlot(const LdKey& key);
  bool BoundElsewhere(const std::string& extent, const std::string& host) const;
  bool BeingFenced(const std::string& extent) const;
  void PollWaiters();
  void Watch();
  void StartFence(Host& host, Done done);
  void StepFence(const std::string& host_id);
  absl::Status FinishFence(Host& host);
  void EndFence(Host& host, absl::Status status);
  absl::Status RenewIncarnation(Host& host) const;
  absl::Status AddSlots(Host& host);

  const EmulatedFabricConfig config_;
  const SystemClock clock_;
  std::atomic<size_t> pending_ = 0;

  // Touched by the thread alone, once it runs.
  UniqueFd lock_;
  std::string identity_;  // Of the root directory.
  std::optional<ExtentFiles> extents_;
  std::map<std::string, Host> hosts_;
  std::list<Waiter> waiters_;
  bool polling_ = false;
  absl::AnyInvocable<void(FabricEvent)> sink_;

  std::unique_ptr<Loop> loop_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_EMULATED_EMULATED_FABRIC_H_
