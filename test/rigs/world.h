// What outlives managers in their tests: hardware and hosts, as a test wants them.
#ifndef CXLPOOL_TEST_RIGS_WORLD_H_
#define CXLPOOL_TEST_RIGS_WORLD_H_

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cxlpool/v1/host_service.pb.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

inline constexpr uint64_t kGranule = 256ull << 20;

// What outlives the manager: bound LDs, host regions, which bytes were scrubbed.
struct World {
  struct HostLd {
    BoundLd ld;
    v1::SegmentState state = v1::SEGMENT_ABSENT;
  };
  std::map<uint64_t, HostLd> bound;  // By serial.
  std::set<uint64_t> serials_ever;
  std::vector<Slice> scrubbed;
  bool plain_hardware = false;  // The fabric is a BareFabric.
  bool hold_offline = false;    // Agents answer HOLDERS instead of going offline.
  bool refuse_online = false;   // Agents answer a permanent error instead of going online.
  int binds = 0;
  bool any_order = false;    // Its hosts have no decoder stack.
  bool slow_binds = false;   // Binds take effect, and answer, when `slow` is run.
  bool slow_proofs = false;  // Nothing is proven; it is answered so when `slow` is run.
  bool slow_looks = false;   // What a look at everything saw is answered when `slow` is run.
  std::vector<std::function<void()>> slow;
  bool lose_binds = false;  // Binds take effect, and answer `lost_bind`.
  absl::Status lost_bind = absl::DeadlineExceededError("the switch does not answer");
  int failing_scrubs = 0;                // So many fail.
  std::set<std::string> not_scrubbable;  // Devices that nobody can clear.
  bool refuse_fence = false;
  FenceScope fence = FenceScope::kHost;
  std::set<std::string> unreachable;         // Hosts that the fabric cannot be asked about.
  int failing_discovers = 0;                 // So many fail.
  std::map<std::string, std::string> lives;  // Of hosts' sides of the fabric; not here: "1".
  std::vector<TopologyTables> configured;    // Every one that the driver was given.
  std::set<std::string> retired;             // As the driver was last told.
  bool follows_topology = false;             // Shows what it was given, instead of what is below.
  // What the configuration names, and what stands behind it.
  std::vector<std::string> hosts = {"host-a", "host-b"};
  std::vector<uint32_t> slots = {10, 11, 30, 31};
  std::vector<FabricDevice> devices = {{"cmm-0", "cmm-0", 8 * kGranule, kGranule, "first"},
                                       {"cmm-1", "cmm-1", 8 * kGranule, kGranule, "second"}};
  static World OfPlainHardware() {
    World world;
    world.plain_hardware = true;
    world.fence = FenceScope::kBinding;
    for (FabricDevice& device : world.devices) device.max_lds = 8;
    return world;
  }
  const FabricDevice* FindDevice(const std::string& id) const {
    const auto device = std::find_if(devices.begin(), devices.end(),
                                     [&](const FabricDevice& d) { return d.id == id; });
    return device == devices.end() ? nullptr : &*device;
  }
  // Of devices that place their LDs themselves: the granules of each LD, by device and number, and
  // the bytes of each granule, by device and place; not here: zeroes.
  std::map<std::pair<std::string, uint64_t>, std::vector<uint64_t>> lds;
  std::map<std::pair<std::string, uint64_t>, std::string> bytes;
  std::set<std::string> hung;  // Hosts that do not answer.
  // Where several threads live in it: who holds this, and who waits for `hung` to change.
  struct Threads {
    Mutex mutex;
    std::condition_variable changed;
  };
  std::shared_ptr<Threads> threads = std::make_shared<Threads>();
  // Where a bench times the manager: a clock, and what was spent here instead. Nothing here looks
  // at all that is bound then, for the caches' sake: of_host says which serials are.
  std::function<absl::Duration()> clock;
  absl::Duration spent_here;
  std::map<std::string, std::set<uint64_t>> of_host;
  // Calls visit(serial, HostLd) for what is bound to the host; empty: to any.
  template <typename Visit>
  void ForEachOf(const std::string& host, Visit visit) {
    if (!clock || host.empty()) {
      for (auto& [serial, on] : bound) {
        if (host.empty() || on.ld.host == host) visit(serial, on);
      }
      return;
    }
    for (const uint64_t serial : of_host[host]) {
      if (const auto on = bound.find(serial); on != bound.end()) visit(serial, on->second);
    }
  }
  std::string LifeOf(const std::string& host) const {
    const auto life = lives.find(host);
    return life == lives.end() ? "1" : life->second;
  }
};

// Counts its life as time that is not the manager's (World::spent_here).
class InTheWorld {
 public:
  explicit InTheWorld(World* world) : world_(world), began_(Now()) {}
  ~InTheWorld() { world_->spent_here += Now() - began_; }

 private:
  absl::Duration Now() const { return world_->clock ? world_->clock() : absl::ZeroDuration(); }

  World* const world_;
  const absl::Duration began_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_WORLD_H_
