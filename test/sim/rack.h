// The simulated rack: devices with bytes, hosts with slots and kernels, and what is bound where.
// The one truth of a simulation; SimFabric and SimHostMemory are the two hands that move it.
//
// It is also the judge of promises.md: whatever moves here is held against what must never happen,
// at that very moment, and the first breach ends the simulation (`violation`).
//
//   Bind            no byte is bound to two Regions; the serial is new in the host's incarnation;
//                   the bytes are zero or this Region's own; the intent is durable
//   Scrub           nobody can reach the bytes; they are on their way out of their Region
//   host stores     only into what is bound to the host
//   taken down      no host region of an Attachment that is to stay is destroyed or ejected
//
// Legal faults of the rack, and no others:
//   a call is slow, fails before it did anything, or did it and answers UNKNOWN or too late;
//   Bind answers UNAVAILABLE although it did it (a lie); an LD vanishes (surprise removal);
//   an event comes that is not so (kLdLost of an LD that is there, kHostUnreachable), but never a
//   false kHostGone: that one is proof; the fabric cannot be asked about a host for a while;
//   a scrub that failed has cleared a part; a kernel refuses to offline, an application holds on;
//   a host stops (pause), restarts (reset: its kernel forgets, LDs stay plugged), or loses power
//   (kernel forgets, LDs are gone, new fabric incarnation).
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
#include <vector>

#include "fabric-manager/ports/fabric_driver.h"
#include "host-agent/model/observation.h"
#include "test/sim/scheduler.h"

namespace cxlpool::sim {

inline constexpr uint64_t kGranule = 256ull << 20;  // Of devices, extents, host regions, blocks.

struct RackDevice {
  std::string id;
  // What each granule holds: 0 is zeros, else who wrote it last (HashOf of the Region's tag).
  std::vector<uint32_t> content;
};

// An LD that is bound, and what its host made of it.
struct PluggedLd {
  fm::BoundLd ld;
  size_t device = 0;
  uint64_t first = 0, end = 0;  // Granules.
  bool powered = false;         // The memdev is there.
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
  bool powered = true;        // Off: there is nothing.
  bool reachable = true;      // The fabric can be asked about it.
  std::vector<RackBridge> bridges;
  std::map<uint32_t, PluggedLd> slots;             // What is plugged, by slot.
  std::vector<agent::ObservedHostRegion> regions;  // Of its kernel, in order of address.
  std::set<uint64_t> serials_seen;                 // In this incarnation of the fabric.
  bool refuses_offline = false;                    // Blocks stay online.
  std::set<uint64_t> held;  // Serials (first of a host region) that a foreign process has open.

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
    std::function<bool(const std::string& tag, const fm::Slice&)> leaving;
    // Whether the host is to keep what has this serial: its Attachment is ONLINE and stays.
    std::function<bool(const std::string& host, uint64_t serial)> stays;
  };

  // The first breach, with the time; later ones are not heard of.
  using Violation = std::function<void(const std::string& what)>;

  Rack(Scheduler* scheduler, Judge judge, Violation violation)
      : scheduler_(scheduler), judge_(std::move(judge)), violation_(std::move(violation)) {}

  std::vector<RackDevice> devices;
  std::map<std::string, RackHost> hosts;
  uint32_t max_lds_per_device = 0;

  // --- The fabric's hand (sim_fabric.cc). Errors as in fabric_driver.h.
  absl::StatusOr<fm::BoundLd> Bind(const fm::BindRequest& request);
  void BeginUnbind(const fm::LdKey& key);
  bool IsBound(const fm::LdKey& key) const;  // Also on a host that is not reachable.
  void Fence(const std::string& host);       // Powers it off: kernel, LDs and all.
  // Clears granules [first, first + count) of the slice; the judge looks at the whole slice.
  void Scrub(const std::string& tag, const fm::Slice& slice, uint64_t first, uint64_t count);
  fm::FabricView Look() const;

  // --- A host's hand (sim_host_memory.cc).
  // The memdev of `serial` appears, if the LD is in the slot. False: it is not there (yet).
  bool PowerOn(RackHost& host, uint32_t slot, uint64_t serial);
  // Makes it; the host's applications store into it at once. Errors as in host_memory.h.
  absl::Status CreateHostRegion(RackHost& host, const std::string& bridge,
                                const std::vector<uint64_t>& serials, uint64_t size_bytes);
  // Takes it away, also a half-made one.
  void DestroyHostRegion(RackHost& host, uint64_t serial);
  // Ejects: the LD is gone from the slot, if the fabric has begun the unbind; else the memdev
  // alone.
  absl::Status PowerOff(RackHost& host, uint32_t slot, uint64_t serial);
  agent::HostObservation Observe(const RackHost& host) const;

  // --- What happens by itself.
  // The applications of the host store into everything that they can reach.
  void Store(RackHost& host);
  void Remove(RackHost& host, uint32_t slot);  // Surprise. Nothing there: no effect.
  void Reset(RackHost& host);                  // New incarnation; LDs stay plugged, unpowered.
  void PowerLost(RackHost& host);              // Off, LDs gone.
  void PowerBack(RackHost& host);              // New incarnation, nothing plugged.

  // Called with every LD that left a slot, whatever took it.
  std::function<void(const fm::BoundLd&)> on_gone;

  static uint32_t HashOf(const std::string& tag);  // Never 0.

 private:
  void Breach(const std::string& what) { violation_(what); }

  Scheduler* const scheduler_;
  const Judge judge_;
  const Violation violation_;
};

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_RACK_H_
