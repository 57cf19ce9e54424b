// What the core needs of a CXL fabric (CXL 3.1, 7.6 Fabric Manager API: Bind vPPB, Unbind vPPB, Set
// LD Allocations), whatever stands behind it.
//
// A driver knows devices, hosts, PCIe slots and which slice (LogicalDevice, LD) is bound where.
// It knows nothing of Regions' meaning, tenants or policy. Every call is idempotent, and after an
// unknown outcome the core calls Discover and believes that.
//
// A binding is named by where it is: host, slot and slice. Its LdKey, which says whose it is, is
// the pool's own name for it. Some fabrics can keep that name with the LD (FabricCapabilities::
// keeps_keys) and find the LD by it; a switch cannot, so every call on a bound LD carries both.
//
// Unbind alternates with the host agent, and they meet on (host, slot):
//   agent: memory offline, host region destroyed
//   driver: BeginUnbind          asks the host to let go
//   agent: powers the slot off
//   driver: AwaitUnbound         sees the proof that the host cannot reach the bytes
// Only that proof, or Fence's, lets bytes go to somebody else.
//
// What is not seen is not proven to be gone. What the records know and the configuration no longer
// names, or names by something else, is unknown: a driver learns at its start by which identities
// the pool knew its devices and hosts (KnownFabric), and what it finds in their place it reports as
// not reachable.
//
// Whose commands count. Each manager commits under an epoch (Writer::epoch) that is higher than
// that of the manager before it, which may still be there, stopped with a command in its hand. So a
// driver claims a host before it looks at it: at its first look, and after each time that it lost
// the host. The promise of a claim (FabricCapabilities::claims_hosts): no command that was given
// under a lower epoch makes bytes reachable on the host after it, and each that did is seen by the
// looks that follow; one that clears bytes may come late where the driver says at its top what
// stands in. A host that cannot be claimed is not reachable, which proves nothing and frees
// nothing.
//
// That is one half. A manager that was stopped may claim as well, when it goes on, and may hold
// intents that a later one has already undone. So the core believes no look, and uses no claim,
// before a commit of its own that began after the claim has succeeded; and a Bind names the claim
// that it was decided under, and has no effect under another. docs/adr/0044 has the argument.
//
// Calls come from the core's thread and must not block; completions come from any thread. Each
// completion arrives within the deadline the driver was configured with (DEADLINE_EXCEEDED).
// The contract is test/contract/fabric_driver_contract.h.
#ifndef CXLPOOL_FABRIC_MANAGER_PORTS_FABRIC_DRIVER_H_
#define CXLPOOL_FABRIC_MANAGER_PORTS_FABRIC_DRIVER_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "fabric-manager/model/pool/topology_entry.h"
#include "proto/support/executor.h"

namespace cxlpool::fm {

// Bytes [dpa, dpa + length) of one pool device. Where the device itself decides at which address a
// LD lies (FabricDevice::max_lds), it is the LD of this length and number dpa / capacity.
struct Slice {
  std::string device;  // Device id, for example "cmm-0".
  uint64_t dpa_bytes = 0;
  uint64_t length_bytes = 0;
  friend bool operator==(const Slice&, const Slice&) = default;
};

// Claims of a host are counted from here in each life of a driver.
inline constexpr uint64_t kFirstClaim = 1;

// The pool's name for one bind, for ever. Where the driver keeps keys, Discover gives it back.
struct LdKey {
  std::string host;           // Host id.
  std::string tag;            // Region UUID, 36 characters.
  uint64_t generation = 0;    // Of the Attachment; never reused.
  uint32_t extent_index = 0;  // Within the Region.
  friend bool operator==(const LdKey&, const LdKey&) = default;
};

// Which bound LD a call is about. A driver that keeps keys looks for the key; any other looks into
// the slot of `key.host`, where only an LD of just this slice is the one meant.
struct Binding {
  LdKey key;
  uint32_t slot = 0;
  Slice slice;
  uint64_t serial = 0;  // As BoundLd::serial was; 0: the core does not know it yet.
};

struct BindRequest {
  LdKey key;
  uint32_t slot = 0;  // Where in the host.
  Slice slice;
  bool read_only = false;  // The fabric itself drops the host's stores.
  // What the host should see, never 0 and unique for ever (the core counts them). A wish: granted
  // where the driver chooses_serial; BoundLd::serial says what the host does see.
  uint64_t serial = 0;
  // FabricHost::fabric_incarnation as the core's records have it. Under another one nothing is
  // bound: where the manager restarts, only the records distinguish the host from another.
  std::string incarnation = {};
  // FabricHost::claim, as of a look that the core believed. Under another claim nothing is bound.
  uint64_t claim = kFirstClaim;

  // How a call names the LD before Bind has answered.
  Binding binding() const { return {key, slot, slice, 0}; }
};

// What the fabric shows a host, read back.
struct BoundLd {
  std::string host;
  uint32_t slot = 0;
  Slice slice;
  bool read_only = false;
  uint64_t serial = 0;  // What the host sees.
  // BeginUnbind has been called and the host has not let go. A driver that keeps no keys knows it
  // of its own life only.
  bool unbinding = false;
  // Whose it is, where the driver keeps keys and bound it itself; its host is this host.
  std::optional<LdKey> key = {};

  // How a call names it; without a key, one that names only the host.
  Binding binding() const {
    return {key.value_or(LdKey{.host = host, .tag = {}}), slot, slice, serial};
  }
};

struct FabricDevice {
  std::string id;
  std::string serial;
  uint64_t capacity_bytes = 0;
  uint64_t granule_bytes = 0;
  // What stands behind the name, whatever the configuration calls it: differs where other storage
  // took its place. Empty: this fabric has none.
  std::string identity = {};
  // Holds bytes that somebody has written. Where no record knows the device they are somebody's.
  bool has_bytes = false;
  // Not 0: it is carved into LDs, so many at most, each of a size of its own and where the device
  // puts it (CXL 3.1, 7.6.7.4.3, Set LD Allocations; 9.13.3, dynamic capacity). Then LD n is the
  // slice at n * capacity_bytes. 0: any granules may be bound.
  uint32_t max_lds = 0;
};

struct FabricHost {
  std::string id;
  bool reachable = false;  // The fabric can be asked about it now.
  // Names one life of the host's side of the fabric (its QEMU process, its power) for ever. A
  // driver shows the host as reachable under a new value only once nothing that was bound under the
  // former one is bound any more, over restarts of the manager as well (KnownFabric).
  std::string fabric_incarnation;
  std::vector<uint32_t> slots;  // Where a LD can be bound, free or not.
  // Where one may still be bound, but none is bound any more: no longer configured.
  std::vector<uint32_t> closed_slots = {};
  std::string unreachable_reason = {};  // For people, where it is not reachable.
  // Devices that it was found not to reach, each with what was seen, for people. A device that is
  // not here is reached, or that is not known yet.
  std::map<std::string, std::string> unreached = {};
  // Where it is reachable: the claim that it was looked at under. Another number each time that it
  // had to be claimed anew.
  uint64_t claim = kFirstClaim;
};

// Everything the driver can see. LDs of hosts that are not reachable are unknown, not absent.
struct FabricView {
  std::vector<FabricDevice> devices;
  std::vector<FabricHost> hosts;
  std::vector<BoundLd> bound;
  // Devices that the driver was given and cannot show, each with why not, for people.
  std::map<std::string, std::string> missing_devices = {};

  bool Shows(const std::string& device) const {
    return std::any_of(devices.begin(), devices.end(),
                       [&](const FabricDevice& each) { return each.id == device; });
  }
};

// Leaves in `view` what DiscoverHost answers.
inline void KeepOnly(const std::string& host, FabricView& view) {
  view.devices.clear();
  std::erase_if(view.hosts, [&](const FabricHost& h) { return h.id != host; });
  std::erase_if(view.bound, [&](const BoundLd& ld) { return ld.host != host; });
}

// A device as one host sees it whole, on a fabric of such devices, whether the pool has it or not.
struct SeenDevice {
  // Whose mark it has, by which it is known.
  enum class Mark { kNone, kThisPool, kOtherPool };
  std::string host;
  std::string name;    // On that host.
  std::string serial;  // Empty: not known.
  uint64_t size_bytes = 0;
  uint64_t align_bytes = 0;  // A granule is a multiple of it; 0: not known.
  Mark mark = Mark::kNone;
  std::string mark_id;          // And what is in the mark: its own UUID,
  std::string marked_device;    // which device,
  std::string marked_pool;      // of which pool,
  uint64_t reserved_bytes = 0;  // and what is kept for it.
  std::string unfit_reason;     // Why the pool cannot have it, for people.
};
struct SeenDevices {
  std::vector<SeenDevice> devices;            // In order of host and name.
  std::map<std::string, std::string> silent;  // Host to why it could not be asked.
};

// What Fence can cut off.
enum class FenceScope {
  kNone,     // Nothing.
  kHost,     // A host's whole side of the fabric: it lives in another incarnation afterwards.
  kBinding,  // One binding at a time: the host goes on.
};

struct FabricCapabilities {
  std::string driver;                 // As operators write it in fabric.driver.
  uint64_t extent_granule_bytes = 0;  // Smallest slice it can bind.
  uint32_t max_lds_per_device = 0;    // 0: no limit.
  // Gives each LD the serial that Bind asks for. Otherwise the hardware has one already, which the
  // host may have seen under an earlier bind.
  bool chooses_serial = false;
  // Keeps the key of a bind, and that it is being unbound, with the LD for as long as it is bound,
  // over restarts of the manager too. Otherwise the core's records say whose a binding is.
  bool keeps_keys = false;
  // A host reaches no byte but those that are bound to it, whatever runs there.
  bool isolates = false;
  // BindRequest::read_only holds, whatever runs on the host. Otherwise the agent enforces it, and
  // the Attachment says so.
  bool enforces_read_only = false;
  // A slice can be bound to several hosts at a time. Otherwise every Region is EXCLUSIVE.
  bool shares_slices = false;
  bool hardware_coherent = false;  // One host's stores are seen by another without flushes.
  FenceScope fence = FenceScope::kNone;
  // Claims hosts (see the top). Otherwise a former manager has to have ended, as one has whose
  // store one process alone can open: records that several managers share are refused.
  bool claims_hosts = false;
  // It reaches a host by that host's agent alone.
  bool asks_agents = false;
  // Commands by which an operator adds a device, with what this driver finds it by.
  std::vector<std::string> add_device = {};

  // By itself, or by the operator's program.
  bool can_fence() const { return fence != FenceScope::kNone; }
};

// Something that happened by itself.
struct FabricEvent {
  enum class Kind {
    kLdLost,           // The LD in `slot` is gone: surprise removal, or the host ejected it.
    kHostReachable,    // Ask Discover again.
    kHostUnreachable,  // Says nothing about what is bound.
    // Proof: the host's side ended, so that nothing is bound under `incarnation` any more.
    kHostGone,
    kDevicesChanged,  // Which devices are there may have changed: Discover all, when there is time.
  };
  Kind kind = Kind::kHostReachable;
  std::string host = {};          // Not with kDevicesChanged.
  std::optional<LdKey> key = {};  // kLdLost only, where the driver keeps keys.
  std::string incarnation = {};   // kHostGone only.
  uint32_t slot = 0;              // kLdLost only.
};

// What the pool's records know of the fabric, from the life of an earlier manager.
struct KnownFabric {
  std::map<std::string, std::string> hosts;  // Id to the fabric_incarnation it was last seen in.
  uint64_t epoch = 0;                        // That this manager commits under. Of Start.
  // Hosts that a manager on another machine may have asked for something that is under way still:
  // what a driver has written down on this machine is not all. Of Start.
  std::set<std::string> unsettled = {};
};

// What the fabric is to consist of, and what the records know of it.
struct FabricParts {
  TopologyTables tables;
  KnownFabric known;
  // Hosts of the tables that are retired, by a commit: the operator has said that they are off.
  std::set<std::string> retired = {};
};

// What the next owner of scrubbed bytes reads.
enum class ScrubResult {
  kZero,        // Every byte was seen to be zero, or the storage is gone.
  kUnreadable,  // The former bytes cannot be read; what can is not zero for certain.
};
// How many bytes of the slice are clear so far. Any thread; may be empty.
using ScrubProgress = std::function<void(uint64_t done_bytes)>;

class FabricDriver {
 public:
  virtual ~FabricDriver() = default;

  virtual FabricCapabilities capabilities() const = 0;

  // Starts reporting events to `sink`, from any thread. Call once, before anything else.
  virtual void Start(KnownFabric known, absl::AnyInvocable<void(FabricEvent)> sink) = 0;

  // Goes by `parts` from now on: what is new comes in, what is the same stays as it is. A device
  // that is no longer listed is let go. A host that is no longer listed, or a slot of one, is
  // closed: it shows for as long as something is bound there, and nothing new is bound. A device or
  // host that the driver cannot find is no error: Discover says why not, and the next Configure
  // tries again.
  virtual void Configure(FabricParts parts, Done done) = 0;

  // Reads back what is really there. Claims each host first that is not claimed, as DiscoverHost
  // does.
  virtual void Discover(DoneWith<FabricView> done) = 0;

  // The same for one host only, and no devices; the cost depends on what the host has, not on how
  // many hosts there are. A host that the fabric does not know is not in the answer.
  virtual void DiscoverHost(std::string host, DoneWith<FabricView> done) = 0;

  // Asks the hosts (empty: all, else this one) what they see of devices that every host sees whole.
  // Nothing is changed, and nothing proven. UNIMPLEMENTED: this fabric is not of such devices.
  // NOT_FOUND/UNKNOWN_HOST: the fabric has no such host.
  virtual void ShowDevices(std::string /*host*/, DoneWith<SeenDevices> done) {
    std::move(done)(absl::UnimplementedError("not a fabric of shared devices"));
  }

  // Makes `slice` appear in the host's slot, carved out of its device first where that is needed,
  // and answers what the host will see there. Bound already under an equal request: OK, the same.
  // RESOURCE_EXHAUSTED/NO_FREE_PORT: another LD sits in the slot.
  // ALREADY_EXISTS/LD_CONFLICT: this key is bound with other arguments; where the driver keeps no
  // keys: this slice is in another slot of the host.
  // NOT_FOUND: UNKNOWN_HOST, UNKNOWN_DEVICE, UNKNOWN_SLOT.
  // UNAVAILABLE/HOST_UNREACHABLE: the fabric's side of the host is down, lives another life than
  // `request.incarnation`, or is not claimed as `request.claim`; nothing was done.
  // DEADLINE_EXCEEDED, UNKNOWN: unknown outcome: Discover.
  virtual void Bind(BindRequest request, DoneWith<BoundLd> done) = 0;

  // Asks the host to let go. Not bound, or begun before: OK.
  virtual void BeginUnbind(Binding binding, Done done) = 0;

  // OK is proof: the host cannot load or store these bytes any more. Not bound: OK at once, where
  // the host is one that the driver can look at. DEADLINE_EXCEEDED/UNBIND_NOT_PROVEN: no proof yet;
  // call again, or Fence.
  virtual void AwaitUnbound(Binding binding, absl::Duration timeout, Done done) = 0;

  // Cuts the host off from all of its LDs for certain. OK is proof for each of them.
  // UNIMPLEMENTED/NO_FENCE (FenceScope::kNone); FAILED_PRECONDITION/FENCE_FAILED: not confirmed.
  virtual void Fence(std::string host, Done done) = 0;

  // Clears the slice, so that its former bytes cannot be read any more, and answers what can be
  // read instead. A device that carves it has it back then. Interrupted or failed: call again. The
  // caller has proof that it is bound to no host. It waits for its turn as long as what is cleared
  // before it goes on, and a while longer; from there its deadline grows with the size
  // (DEADLINE_EXCEEDED/SCRUB_TIMEOUT). UNIMPLEMENTED/NOT_SCRUBBABLE: this fabric has no way to
  // clear it; nothing was done.
  virtual void Scrub(Slice slice, ScrubProgress progress, DoneWith<ScrubResult> done) = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_PORTS_FABRIC_DRIVER_H_
