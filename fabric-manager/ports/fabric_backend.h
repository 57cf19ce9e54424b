// One fabric, one blocking call at a time: what a new adapter has to write. FabricShell
// (fabric_shell.h) makes a FabricDriver of it, with queues, deadlines, waiting and the checks that
// every fabric needs.
//
// Threads. Calls about a host come on the lane that LaneOf names: one thread, one call after the
// other. Scrubs come on the lane of kScrubLane, looks at the devices on that of kDeviceLane.
// Different lanes run beside each other; a backend that cannot have that names one lane for all.
//
// A call returns by its deadline (SystemClock::Elapsed), or soon after Interrupt. While it does
// not, the shell answers for it and only its own lane stands still.
#ifndef CXLPOOL_FABRIC_MANAGER_PORTS_FABRIC_BACKEND_H_
#define CXLPOOL_FABRIC_MANAGER_PORTS_FABRIC_BACKEND_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fabric-manager/ports/fabric_driver.h"

namespace cxlpool::fm {

inline constexpr char kScrubLane[] = "<scrubs>";
inline constexpr char kDeviceLane[] = "<devices>";

// What one host shows.
struct HostLook {
  FabricHost host;
  std::vector<BoundLd> bound;
  // Slots that hold something which is no LD of the pool's, with what to call it.
  std::map<uint32_t, std::string> foreign = {};
};

// A slice on its way to zero. Dropped half-way: nothing is remembered.
class FabricScrub {
 public:
  virtual ~FabricScrub() = default;

  // Does a piece, some tens of milliseconds of work, so that scrubs go on in turns. True: done.
  virtual absl::StatusOr<bool> Step(absl::Duration deadline) = 0;

  virtual uint64_t done_bytes() const = 0;  // Cleared and verified so far.
  virtual ScrubResult result() const { return ScrubResult::kZero; }
};

// The devices that are there, and why others that the fabric was given are not, for people.
struct DeviceLook {
  std::vector<FabricDevice> devices;
  std::map<std::string, std::string> missing = {};
};

class FabricBackend {
 public:
  using Sink = std::function<void(FabricEvent)>;

  virtual ~FabricBackend() = default;

  // FabricCapabilities::extent_granule_bytes is left to the shell.
  virtual FabricCapabilities capabilities() const = 0;
  virtual std::vector<FabricDevice> devices() const = 0;  // As of Open, or the last Configure.
  virtual std::vector<std::string> hosts() const = 0;     // Likewise.
  virtual std::string LaneOf(const std::string& whom) const { return whom; }

  // Before any lane runs. `sink` takes events from any thread from now on.
  virtual void Start(const KnownFabric& known, Sink sink) = 0;

  // Goes by `parts` from now on: takes in what is new or has another description. On kDeviceLane.
  // What is no longer listed is the shell's to hide; a device may be let go at once, a host stays
  // until Forget. What cannot be found is no error, but missing (LookAtDevices) or not reachable.
  // FAILED_PRECONDITION/FABRIC_BUSY: another manager has one of the devices, and all else is done.
  // A fabric that is what it is does nothing.
  virtual absl::Status Configure(const FabricParts& /*parts*/) { return absl::OkStatus(); }

  // Whether it has this host, by just this description; otherwise its lane is closed before
  // Configure, and the host met again afterwards.
  virtual bool HasHost(const HostEntry& /*host*/) const { return true; }

  // The host is listed no more, its lane is closed, and nothing is bound there. On kDeviceLane.
  virtual void Forget(const std::string& /*host*/) {}

  // The first call about each host: the records know it in this life (empty: in none). A life that
  // is found to have ended is reported as kHostGone; where that cannot be found out, the host is
  // not reachable until it can.
  virtual void Meet(const std::string& host, const std::string& life) = 0;

  // The devices that are there now. On kDeviceLane.
  virtual absl::StatusOr<DeviceLook> LookAtDevices(absl::Duration /*deadline*/) {
    return DeviceLook{devices()};
  }

  // As FabricDriver::ShowDevices; `host` is one that it has, or empty. On kDeviceLane.
  virtual absl::StatusOr<SeenDevices> ShowDevices(const std::string& /*host*/,
                                                  absl::Duration /*deadline*/) {
    return absl::UnimplementedError("not a fabric of shared devices");
  }

  // Claims the host under this manager's epoch (FabricDriver), before each look; answers which
  // claim it is, from kFirstClaim on. It is claimed already: the same. Until this has succeeded,
  // and from the moment that the claim is lost, the host is not reachable for any of the calls
  // below. As it is here, enough for a fabric that one process has for itself until it ends.
  virtual absl::StatusOr<uint64_t> Claim(const std::string& /*host*/, absl::Duration /*deadline*/) {
    return kFirstClaim;
  }

  // What the host shows now. Not to be reachable is an answer, with its reason.
  virtual HostLook LookAt(const std::string& host, absl::Duration deadline) = 0;

  // Plugs the slice in. The shell has just looked: slice, slot and life of the host are right, and
  // neither the slot nor this LD is bound. Errors as for FabricDriver::Bind.
  virtual absl::StatusOr<BoundLd> Bind(const BindRequest& request, absl::Duration deadline) = 0;

  // Of a device with FabricDevice::max_lds. The LD that the slice names is to have its length, and
  // no host has it: before each Bind and each scrub. It has already: OK, and its bytes stay.
  // RESOURCE_EXHAUSTED: the device has no room; ALREADY_EXISTS/LD_CONFLICT: bound, in another
  // length. Comes on a host's lane or on kScrubLane.
  virtual absl::Status Carve(const Slice& slice, absl::Duration deadline);

  // After each scrub: the device has the LD's memory back. It is not there: OK. On kScrubLane.
  virtual absl::Status Return(const Slice& slice, absl::Duration deadline);

  // True: begun, or not bound. False: the host is busy with something else; ask again.
  virtual absl::StatusOr<bool> BeginUnbind(const Binding& binding, absl::Duration deadline) = 0;

  // True is proof, as in FabricDriver::AwaitUnbound.
  virtual absl::StatusOr<bool> IsUnbound(const Binding& binding, absl::Duration deadline) = 0;

  // FenceScope::kHost: ends the host's side of the fabric, a piece at a time. True: done, and proof
  // for all of its LDs. Never two of one host at once.
  virtual absl::StatusOr<bool> Fence(const std::string& host, absl::Duration deadline);

  // FenceScope::kBinding: cuts the host off from this LD, whatever it does with it. True is proof;
  // false: ask again.
  virtual absl::StatusOr<bool> FenceBinding(const Binding& binding, absl::Duration deadline);

  // Whether LookAt shows by itself that a life of a host has ended. Otherwise only its next one
  // does, and of a host that never comes back the operator's fence program has to say it: see
  // EndLife.
  virtual bool SeesEnds() const { return true; }

  // Of a fabric that does not see ends: the host's power is off, says who cut it and was asked
  // again. OK: it was taken as the end of this life, and reported as kHostGone.
  // FAILED_PRECONDITION/ FENCE_FAILED: the host is heard in this life. Any thread.
  virtual absl::Status EndLife(const std::string& host, const std::string& life);

  // On kScrubLane, as is what comes of it. NOT_SCRUBBABLE: it has no way to.
  virtual absl::StatusOr<std::unique_ptr<FabricScrub>> BeginScrub(const Slice& slice);

  // Leave off what is under way on the lane: a fence comes, or the end. Any thread.
  virtual void Interrupt(const std::string& /*lane*/) {}

  // May come before Meet. Nothing is to be done on the lane until `wake_fd` can be read, or for
  // `at_most`: listen to the fabric, connect again. True: look at once whether what is awaited has
  // come.
  virtual bool Idle(const std::string& lane, int wake_fd, absl::Duration at_most);
};

// FAILED_PRECONDITION/FENCE_FAILED: the host may still reach what is bound there, and why.
absl::Status FenceFailed(const std::string& host, absl::string_view why, std::string remedy);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_PORTS_FABRIC_BACKEND_H_
