// The simulated rack: devices with bytes, hosts with slots and kernels, and what is bound where.
// The one truth of a simulation; SimFabric and SimHostMemory are the two hands that move it.
//
// It is also the judge of promises.md: whatever moves here is held against what must never happen,
// at that very moment, and the first breach ends the simulation (`violation`).
//
//   Bind            no byte is bound to two Regions; the serial is new in the host's incarnation;
//                   the bytes are zero or this Region's own, and so is poison in them; the intent
//                   is durable; no manager of a later epoch has claimed the host
//   Scrub           nobody can reach the bytes; they are on their way out of their Region
//   host stores     only into what is bound to the host, and to nobody else
//   taken down      nothing of an Attachment that is to stay is offlined, unbound from its driver,
//                   destroyed or powered off
//
// Legal faults of the rack, and no others:
//   a call is slow, fails before it did anything, or did it and answers UNKNOWN or too late;
//   Bind answers UNAVAILABLE although it did it (a lie); an LD vanishes (surprise removal);
//   an event comes that is not so (kLdLost of an LD that is there, kHostUnreachable), but never a
//   false kHostGone: that one is proof; the fabric cannot be asked about a host for a while;
//   a scrub that failed has cleared a part; a kernel refuses to offline, an application holds on;
//   bytes are lost (poison); the kernel tells of it, perhaps twice, or loses that event, and tells
//   of it again when the device's poison list is read;
//   a host stops (pause), and stores again when it goes on; shared: it does then what it was asked
//   for meanwhile, whoever has given it up; it restarts (reset: its kernel forgets, LDs stay
//   plugged), or loses power (kernel forgets, LDs are gone, new fabric incarnation).
// Not legal, for nothing could be built on it: a proof that is false (AwaitUnbound, Fence,
// kHostGone), a scrub that says OK and left bytes, a Discover that leaves out what is bound on a
// host that it calls reachable.
#ifndef CXLPOOL_TEST_SIM_RACK_H_
#define CXLPOOL_TEST_SIM_RACK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "host-agent/model/observation.h"
#include "host-agent/ports/host_memory.h"
#include "test/sim/scheduler.h"

namespace cxlpool::sim {

inline constexpr uint64_t kGranule = 256ull << 20;  // Of devices, extents, host regions, blocks.
inline constexpr uint64_t kWindowGranules = 64;     // Of host physical addresses, a bridge.

struct RackDevice {
  std::string id;
  // What each granule holds: 0 is zeros, else who wrote it last (HashOf of the Region's tag).
  std::vector<uint32_t> content;
  // What of each granule is lost: 0 is nothing, else whose it was (HashOf). Empty: none of any.
  std::vector<uint32_t> poison = {};
  uint64_t epoch = 0;  // The highest that it was claimed under: nobody of a lower one clears it.
};

// An LD that is bound, and what its host made of it.
struct PluggedLd {
  fm::BoundLd ld;
  size_t device = 0;
  uint64_t first = 0, end = 0;  // Granules.
  bool powered = false;         // The memdev is there.
  uint32_t bridge = 0;          // Index into the host's.
  uint32_t hash = 0;            // HashOf its tag: what its host stores.
  std::string memdev;           // Name, while powered.
};

struct RackBridge {
  std::string name;
  std::vector<uint32_t> slots;
  uint32_t max_regions = 4;
};

struct RackHost {
  std::string id;
  uint32_t boots = 1;         // Of its kernel: the incarnation.
  uint32_t fabric_boots = 1;  // Of its side of the fabric.
  bool shared = false;        // Rack::shared.
  std::string life() const {  // Its fabric_incarnation.
    return shared ? incarnation() : std::to_string(fabric_boots);
  }
  bool powered = true;    // Off: there is nothing.
  bool reachable = true;  // The fabric can be asked about it.
  std::vector<RackBridge> bridges;
  std::map<uint32_t, PluggedLd> slots;             // What is plugged, by slot.
  std::vector<agent::ObservedHostRegion> regions;  // Of its kernel, in order of address.
  std::set<uint64_t> serials_seen;                 // In this incarnation of the fabric.
  bool refuses_offline = false;                    // Blocks stay online.
  std::set<uint64_t> held;      // Serials (first of a host region) that a foreign process has open.
  bool prepared = false;        // The kernel takes no new DAX device by itself, since this boot.
  std::set<uint64_t> hopeless;  // First serials of host regions that its kernel cannot make.
  uint32_t names = 0;           // Of memdevs and kernel regions given out in this boot.
  // The highest epoch that it was claimed under: no command of a lower one counts. But whoever
  // claims it last has it, whatever its epoch: no bind under another claim counts.
  uint64_t epoch = 0;
  uint64_t claims = 0;               // Times that it was claimed,
  LifeId claimed_by = kWorld;        // and by whom last.
  std::vector<LifeId> fabric_calls;  // Of whom calls are about to take effect here.
  // Shared: agents that have tasks which came while they stood still. They do them when they go on.
  std::vector<LifeId> late_tasks;
  bool does_late_task = false;  // Now, whatever has become of the session that it came in.

  std::string incarnation() const;  // Boot id.
  const RackBridge* BridgeOf(uint32_t slot) const;
};

class Rack {
 public:
  // What the records say, as far as they are durable: who judges intents.
  struct Judge {
    // Whether a durable record wants this LD bound there, now.
    std::function<bool(const fm::LdKey&, const fm::Slice&, const std::string& host, uint32_t slot,
                       uint64_t serial)>
        intends;
    // Whether the bytes are on their way out of `tag`'s Region, or of nobody.
    std::function<bool(const fm::Slice&)> leaving;
    // Whether the host is to keep what has this serial: its Attachment is ONLINE and stays.
    std::function<bool(const std::string& host, uint64_t serial)> stays;
  };

  // Called with every breach.
  using Violation = std::function<void(const std::string& what)>;

  // What the judge lacks is not judged.
  Rack(Scheduler* scheduler, Judge judge, Violation violation)
      : scheduler_(scheduler), judge_(std::move(judge)), violation_(std::move(violation)) {}
  Rack(const Rack&) = delete;
  Rack& operator=(const Rack&) = delete;

  std::vector<RackDevice> devices;
  std::map<std::string, RackHost> hosts;
  uint32_t max_lds_per_device = 0;
  // Hosts see the devices whole, and their agents stand in for a switch: an LD is a grant. A memdev
  // is there with it, it is gone with the kernel's life, there is no decoder stack, and the fabric
  // can ask nothing of a host whose agent has no session.
  bool shared = false;
  struct AgentSession {
    LifeId agent = kWorld;  // kWorld: there is none.
    bool stands = false;    // The host does, and nobody has noticed.
  };
  // Shared: of the host's agent. May be null: each has one.
  std::function<AgentSession(const RackHost&)> session_of;
  AgentSession SessionOf(const RackHost& host) const;
  // Shared: that this host was asked, in this life, to clear these bytes, and may still do it. The
  // fabric driver's own notes, which outlive it.
  struct Clearing {
    std::string host, life;
    fm::Slice slice;
  };
  std::vector<Clearing> clearings;

  // What came of managers that stood still while another took over: it had no effect.
  uint64_t dropped_binds = 0;
  uint64_t dropped_scrubs = 0;

  // Of each manager that has a driver: another has claimed that host from it.
  std::map<LifeId, std::function<void(const std::string& host)>> on_evicted;

  // Called with every move as a line. May be null.
  std::function<void(absl::string_view)> trace;
  // A host went dark, by Fence or PowerLost: its agent is over. Called when it is done.
  std::function<void(const std::string& host)> on_dark;

  RackHost* FindHost(const std::string& id);
  RackDevice* FindDevice(const std::string& id);

  // --- The fabric's hand (rack.cc). Errors as in fabric_driver.h.
  absl::StatusOr<fm::BoundLd> Bind(const fm::BindRequest& request);
  absl::Status BeginUnbind(const fm::LdKey& key);
  // An answer would come now: the host is not behind with what it was asked for before.
  bool CanAsk(const RackHost& host) const;
  bool IsBound(const fm::LdKey& key) const;  // Also on a host that is not reachable.
  // As far as the fabric can ask: true on a host that it cannot ask.
  bool MayBeBound(const fm::LdKey& key) const;
  void Fence(const std::string& host);  // Powers it off: kernel, LDs and all.
  // Clears granules [first, first + count) of the slice; the judge looks at the whole slice.
  void Scrub(const fm::Slice& slice, uint64_t first, uint64_t count);
  fm::FabricView Look() const;

  // --- A host's hand (rack_host.cc). Errors as in host_memory.h.
  // The memdev of `serial` appears, if the LD is in the slot. False: it is not there (yet).
  bool PowerOn(RackHost& host, uint32_t slot, uint64_t serial);
  // Makes it; the host's applications store into it at once.
  absl::Status CreateHostRegion(RackHost& host, const agent::HostRegionSpec& spec);
  absl::Status BindDax(RackHost& host, uint64_t serial, agent::DaxDriver driver);
  absl::Status OnlineBlocks(RackHost& host, uint64_t serial,
                            agent::MemoryZone zone = agent::MemoryZone::kMovable);
  // Where the host refuses, half of them goes.
  absl::Status OfflineBlocks(RackHost& host, uint64_t serial);
  absl::Status UnbindDax(RackHost& host, uint64_t serial);
  absl::Status DestroyHostRegion(RackHost& host, uint64_t serial);
  // Ejects: the LD is gone from the slot, if the fabric has begun the unbind; else the memdev
  // alone.
  absl::Status PowerOff(RackHost& host, uint32_t slot, uint64_t serial);
  agent::HostObservation Observe(const RackHost& host) const;

  // --- What happens by itself (rack_host.cc).
  // The applications of the host store into everything that they can reach.
  void Store(RackHost& host);
  void Remove(RackHost& host, uint32_t slot);  // Surprise. Nothing there: no effect.
  void Reset(RackHost& host);                  // New incarnation; LDs stay plugged, unpowered.
  void PowerLost(RackHost& host);              // Off, LDs gone, new fabric incarnation.
  void PowerBack(RackHost& host);              // New incarnation, nothing plugged.
  // The last granule of what is in the slot has lost bytes, until it is scrubbed. False: there is
  // no memdev that is on.
  bool Poison(RackHost& host, uint32_t slot);
  struct PoisonSeen {
    uint64_t serial = 0;
    uint64_t dpa_bytes = 0;  // Of the LD.
  };
  // The poison lists of the host's memdevs.
  std::vector<PoisonSeen> PoisonOn(const RackHost& host) const;
  bool AnyPoison() const;

  // Why an LD left its slot.
  enum class Gone { kUnbound, kRemoved, kDark };
  using OnGone = std::function<void(const fm::BoundLd&, Gone)>;
  // Until Unsubscribe: called with every LD that left a slot, after it did.
  uint32_t Subscribe(OnGone on_gone);
  void Unsubscribe(uint32_t subscription);

  static uint32_t HashOf(const std::string& tag);  // Never 0.

  // For what the two hands find themselves.
  void Breach(const std::string& what);

 private:
  absl::Status CheckBind(const fm::BindRequest& request) const;
  void JudgeBind(const RackHost& host, const fm::BindRequest& request, const PluggedLd& plugged);
  // The host that reaches granules of the device; null for nobody.
  const PluggedLd* Reaches(size_t device, uint64_t first, uint64_t end,
                           const std::string& except_tag) const;
  // One that is to stay goes: a breach.
  void JudgeDown(const RackHost& host, const std::vector<uint64_t>& serials, const char* how);
  void LeaveSlot(RackHost& host, uint32_t slot, Gone gone);
  void ForgetKernel(RackHost& host);
  void StoreInto(RackHost& host, const agent::ObservedHostRegion& region);
  void Say(absl::string_view what, const RackHost& host, uint64_t serial);

  Scheduler* const scheduler_;
  const Judge judge_;
  const Violation violation_;
  std::vector<std::pair<uint32_t, OnGone>> on_gone_;
  uint32_t subscriptions_ = 0;
};

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_RACK_H_
