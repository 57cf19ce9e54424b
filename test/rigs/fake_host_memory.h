// A host in memory, for tests of the core: does what Linux would, in one posted task a call, and
// fails, lies or keeps silent where a test says so. Not thread-safe.
#ifndef CXLPOOL_TEST_RIGS_FAKE_HOST_MEMORY_H_
#define CXLPOOL_TEST_RIGS_FAKE_HOST_MEMORY_H_

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "host-agent/model/online_plan.h"
#include "host-agent/ports/host_memory.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {

class FakeHostMemory : public HostMemory {
 public:
  explicit FakeHostMemory(Executor* executor) : executor_(executor) {
    for (int b = 0; b < 2; ++b) {
      host.bridges.push_back(
          {.name = absl::StrCat("ACPI0016:0", b),
           .slots = {static_cast<uint32_t>(2 * b + 1), static_cast<uint32_t>(2 * b + 2)},
           .max_regions = 4,
           .window_bytes = uint64_t{16} << 30,
           .free_window_bytes = uint64_t{16} << 30});
    }
    host.memory_block_bytes = uint64_t{128} << 20;
  }

  // What a test sets and looks at.
  HostObservation host;
  std::vector<std::string> calls;                // "PowerOn 0x51", in order.
  std::map<std::string, absl::Status> failures;  // By call name, until taken out.
  std::set<std::string> lies;                    // Report success, do nothing.
  bool kernel_picks_zone = false;                // Blocks come online outside of ZONE_MOVABLE.
  std::set<uint64_t> hangs;                      // Serials whose offlining runs into its deadline.
  std::set<std::string> silent;                  // Answer only when Resume is called.
  std::vector<int> holders;                      // Their pids.
  static constexpr uint64_t kHolderStart = 900;
  absl::Status prepare;
  std::map<uint32_t, uint64_t> plugged;  // Slot → serial, as the fabric has it.
  std::map<uint64_t, int> nodes = {};    // Of host regions, by serial; 2 where nothing is said.
  std::vector<HostRegionSpec> specs;     // Of every host region made.
  int opens = 0;
  bool no_nodes = false;  // Its devices are parts of files.

  void Resume() {
    silent.clear();
    for (Task& task : std::exchange(waiting_, {})) executor_->Post(std::move(task));
  }

  // The memdev vanishes; a host region on it stays.
  void Unplug(uint32_t slot) {
    plugged.erase(slot);
    std::erase_if(host.memdevs, [&](const ObservedMemdev& m) { return m.slot == slot; });
  }

  // As after a fatal PCIe error: host region and memdev stay.
  void LoseDax(uint64_t serial) {
    ObservedHostRegion& region = *Region(serial);
    region.dax_device.clear();
    region.dax_driver = DaxDriver::kNone;
    region.online_blocks = region.total_blocks = 0;
  }

  void Prepare(Done done) override {
    executor_->Post([this, done = std::move(done)]() mutable { std::move(done)(prepare); });
  }
  void Observe(DoneWith<HostObservation> done) override {
    executor_->Post([this, done = std::move(done)]() mutable { std::move(done)(host); });
  }

  void PowerOn(uint32_t slot, uint64_t serial, Done done) override {
    Do("PowerOn", serial, std::move(done), [this, slot, serial]() -> absl::Status {
      if (plugged[slot] != serial) return absl::DeadlineExceededError("no memdev");
      if (FindMemdev(host, serial) != nullptr) return absl::OkStatus();
      host.memdevs.push_back({.serial = serial,
                              .slot = slot,
                              .name = absl::StrCat("mem", slot),
                              .size_bytes = 0,
                              .host_bridge = host.bridges[(slot - 1) / 2].name});
      return absl::OkStatus();
    });
  }
  void CreateHostRegion(HostRegionSpec spec, Done done) override {
    Do("CreateHostRegion", spec.serials[0], std::move(done), [this, spec]() {
      specs.push_back(spec);
      if (ObservedHostRegion* there = Region(spec.serials[0])) {
        there->dax_device = "dax9.0";
        return absl::OkStatus();
      }
      ObservedHostRegion region;
      region.name = absl::StrCat("region", host.regions.size());
      region.serials = spec.serials;
      region.committed = true;
      region.size_bytes = spec.size_bytes;
      region.dax_device = absl::StrCat("dax", host.regions.size(), ".0");
      region.numa_node = nodes.contains(spec.serials[0]) ? nodes[spec.serials[0]] : 2;
      region.dax_align_bytes = uint64_t{2} << 20;
      host.regions.push_back(region);
      return absl::OkStatus();
    });
  }
  void BindDax(uint64_t serial, DaxDriver driver, Done done) override {
    Change("BindDax", serial, std::move(done), [driver](ObservedHostRegion& region) {
      region.dax_driver = driver;
      if (driver == DaxDriver::kKmem) region.total_blocks = 4;
    });
  }
  void OnlineBlocks(uint64_t serial, MemoryZone zone, Done done) override {
    Change("OnlineBlocks", serial, std::move(done), [this, zone](ObservedHostRegion& region) {
      region.online_blocks = region.total_blocks;
      region.all_movable = zone == MemoryZone::kMovable && !kernel_picks_zone;
    });
  }
  void OfflineBlocks(uint64_t serial, absl::Duration patience, Done done) override {
    if (hangs.contains(serial)) {
      calls.push_back(absl::StrCat("OfflineBlocks 0x", absl::Hex(serial), " hangs for ",
                                   absl::FormatDuration(patience)));
      return executor_->PostAfter(patience, [done = std::move(done)]() mutable {
        std::move(done)(Refuse(absl::StatusCode::kFailedPrecondition, "BLOCKS_BUSY", "stopped", "",
                               {{"cause", "timeout"}}));
      });
    }
    Change("OfflineBlocks", serial, std::move(done),
           [](ObservedHostRegion& region) { region.online_blocks = 0; });
  }
  void UnbindDax(uint64_t serial, Done done) override {
    Change("UnbindDax", serial, std::move(done), [](ObservedHostRegion& region) {
      region.dax_driver = DaxDriver::kNone;
      region.total_blocks = 0;
    });
  }
  void DestroyHostRegion(uint64_t serial, Done done) override {
    Do("DestroyHostRegion", serial, std::move(done), [this, serial]() {
      const ObservedHostRegion* region = FindHostRegion(host, serial);
      std::erase_if(host.regions, [=](const ObservedHostRegion& r) {
        return serial == 0 ? IsAnonymousOrphan(r) : &r == region;
      });
      return absl::OkStatus();
    });
  }
  void PowerOff(uint32_t, uint64_t serial, Done done) override {
    Do("PowerOff", serial, std::move(done), [this, serial]() {
      std::erase_if(host.memdevs, [&](const ObservedMemdev& m) { return m.serial == serial; });
      return absl::OkStatus();
    });
  }
  void FindHolders(uint64_t serial, DoneWith<std::vector<ProcessId>> done) override {
    calls.push_back(absl::StrCat("FindHolders 0x", absl::Hex(serial)));
    executor_->Post([this, done = std::move(done)]() mutable {
      std::vector<ProcessId> found;
      for (const int pid : holders) found.push_back({static_cast<uint32_t>(pid), kHolderStart});
      std::move(done)(std::move(found));
    });
  }
  absl::StatusOr<OpenedDax> OpenDax(uint64_t serial, bool read_only) override {
    ++opens;
    UniqueFd fd(::open("/dev/zero", (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC));
    const ObservedHostRegion* region = Region(serial);
    if (region == nullptr || no_nodes) return fd;
    return OpenedDax(std::move(fd), 0, absl::StrCat("/dev/", region->dax_device));
  }

  ObservedHostRegion* Region(uint64_t serial) {
    return const_cast<ObservedHostRegion*>(FindHostRegion(host, serial));
  }

 private:
  // Of a host region, which may be gone by the time: memory is unplugged at any moment.
  void Change(const std::string& name, uint64_t serial, Done done,
              absl::AnyInvocable<void(ObservedHostRegion&) &&> work) {
    Do(name, serial, std::move(done),
       [this, serial, work = std::move(work)]() mutable -> absl::Status {
         ObservedHostRegion* region = Region(serial);
         if (region == nullptr) return absl::NotFoundError("the host region is gone");
         std::move(work)(*region);
         return absl::OkStatus();
       });
  }
  void Do(const std::string& name, uint64_t serial, Done done,
          absl::AnyInvocable<absl::Status() &&> work) {
    calls.push_back(absl::StrCat(name, " 0x", absl::Hex(serial)));
    Task task = [this, name, done = std::move(done), work = std::move(work)]() mutable {
      if (const auto it = failures.find(name); it != failures.end()) {
        return std::move(done)(it->second);
      }
      std::move(done)(lies.contains(name) ? absl::OkStatus() : std::move(work)());
    };
    if (silent.contains(name)) {
      waiting_.push_back(std::move(task));
    } else {
      executor_->Post(std::move(task));
    }
  }

  Executor* const executor_;
  std::vector<Task> waiting_;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_TEST_RIGS_FAKE_HOST_MEMORY_H_
