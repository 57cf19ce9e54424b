// The fabric that tests of the manager's core run on.
#ifndef CXLPOOL_TEST_RIGS_FAKE_FABRIC_H_
#define CXLPOOL_TEST_RIGS_FAKE_FABRIC_H_

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "proto/support/refusal.h"
#include "test/rigs/world.h"

namespace cxlpool::fm {

// A fabric of a world, for one life of the manager.
class WorldFabric : public FabricDriver {
 public:
  virtual void Emit(FabricEvent event) = 0;
  // Lets threads of its own go on, if it has any, and gives the answers that are there.
  virtual void GoOn() {}

  bool dead = false;  // The manager is: nobody calls any more.
  KnownFabric started_with;
};

// Has all luxuries, and answers at once.
class FakeFabric : public WorldFabric {
 public:
  explicit FakeFabric(World* world) : world_(world) {}

  FabricCapabilities capabilities() const override {
    return {.driver = "fake",
            .extent_granule_bytes = kGranule,
            .max_lds_per_device = 0,
            .chooses_serial = true,
            .keeps_keys = true,
            .isolates = true,
            .enforces_read_only = true,
            .shares_slices = true,
            .hardware_coherent = true,
            .fence = world_->fence};
  }
  void Start(KnownFabric known, absl::AnyInvocable<void(FabricEvent)> sink) override {
    started_with = std::move(known);
    sink_ = std::move(sink);
  }
  void Configure(FabricParts parts, Done done) override {
    world_->configured.push_back(parts.tables);
    world_->retired = parts.retired;
    if (world_->follows_topology) {
      world_->hosts.clear();
      for (const HostEntry& host : parts.tables.hosts) world_->hosts.push_back(host.id);
      world_->devices.clear();
      for (const DeviceEntry& device : parts.tables.devices) {
        world_->devices.push_back({device.id, device.serial, device.capacity_bytes,
                                   device.granule_bytes, "storage of " + device.id});
      }
    }
    std::move(done)(absl::OkStatus());
  }
  void Discover(DoneWith<FabricView> done) override {
    if (!world_->slow_looks) return std::move(done)(Look(""));
    auto held = std::make_shared<std::pair<absl::StatusOr<FabricView>, DoneWith<FabricView>>>(
        Look(""), std::move(done));
    world_->slow.push_back([held] { std::move(held->second)(std::move(held->first)); });
  }
  void DiscoverHost(std::string host, DoneWith<FabricView> done) override {
    std::move(done)(Look(host));
  }
  // `only`: one host; empty: all, and the devices.
  absl::StatusOr<FabricView> Look(const std::string& only) const {
    const InTheWorld here(world_);
    if (world_->failing_discovers > 0) {
      --world_->failing_discovers;
      return absl::UnavailableError("the switch does not answer");
    }
    FabricView view;
    if (only.empty()) view.devices = world_->devices;
    std::set<std::string> reachable;
    for (const std::string& host : world_->hosts) {
      if (!only.empty() && host != only) continue;
      const bool answers = !world_->unreachable.contains(host);
      view.hosts.push_back({host, answers, world_->LifeOf(host), world_->slots});
      if (answers) reachable.insert(host);
    }
    const std::set<uint32_t> slots(world_->slots.begin(), world_->slots.end());
    world_->ForEachOf(only, [&](uint64_t, const World::HostLd& on) {
      const bool seen = reachable.contains(on.ld.host) && slots.contains(on.ld.slot);
      if (seen) view.bound.push_back(on.ld);
    });
    return view;
  }
  void Bind(BindRequest request, DoneWith<BoundLd> done) override {
    if (dead) return;
    if (world_->slow_binds) {
      auto held = std::make_shared<std::pair<BindRequest, DoneWith<BoundLd>>>(std::move(request),
                                                                              std::move(done));
      world_->slow.push_back(
          [this, held] { BindNow(std::move(held->first), std::move(held->second)); });
      return;
    }
    BindNow(std::move(request), std::move(done));
  }
  void BindNow(BindRequest request, DoneWith<BoundLd> done) {
    absl::StatusOr<BoundLd> bound = Bound(std::move(request));
    std::move(done)(std::move(bound));
  }
  absl::StatusOr<BoundLd> Bound(BindRequest request) {
    const InTheWorld here(world_);
    if (request.incarnation != world_->LifeOf(request.key.host)) {
      return absl::UnavailableError("another life");
    }
    const Binding binding = request.binding();
    const BoundLd* there = nullptr;
    world_->ForEachOf(world_->clock ? request.key.host : "", [&](uint64_t, const auto& host) {
      if (host.ld.key == binding.key) there = &host.ld;
      // The promise that everything rests on: no byte is bound twice, but for sharing.
      if (host.ld.slice == request.slice && host.ld.key->tag != request.key.tag) std::abort();
    });
    if (there != nullptr) return *there;
    const uint64_t serial = request.serial;
    if (!world_->serials_ever.insert(serial).second) std::abort();
    ++world_->binds;
    BoundLd ld{request.key.host, request.slot, request.slice, request.read_only,
               serial,           false,        request.key};
    world_->bound[serial] = {ld, v1::SEGMENT_ABSENT};
    world_->of_host[ld.host].insert(serial);
    if (world_->lose_binds) return world_->lost_bind;
    return ld;
  }
  void BeginUnbind(Binding binding, Done done) override {
    if (dead) return;
    for (auto& [serial, host] : world_->bound) {
      if (host.ld.key == binding.key) host.ld.unbinding = true;
    }
    std::move(done)(absl::OkStatus());
  }
  void AwaitUnbound(Binding binding, absl::Duration, Done done) override {
    if (dead) return;
    if (world_->slow_proofs) {
      auto held = std::make_shared<Done>(std::move(done));
      world_->slow.push_back([held] {
        Done answer = std::move(*held);
        std::move(answer)(absl::DeadlineExceededError("still bound"));
      });
      return;
    }
    for (auto& [serial, host] : world_->bound) {
      if (host.ld.key == binding.key) {
        std::move(done)(absl::DeadlineExceededError("still bound"));
        return;
      }
    }
    std::move(done)(absl::OkStatus());
  }
  void Fence(std::string host, Done done) override {
    if (world_->refuse_fence) {
      std::move(done)(absl::FailedPreconditionError("the host's power cannot be cut"));
      return;
    }
    std::erase_if(world_->bound, [&](const auto& entry) { return entry.second.ld.host == host; });
    std::move(done)(absl::OkStatus());
  }
  void Scrub(Slice slice, ScrubProgress, DoneWith<ScrubResult> done) override {
    if (dead) return;
    for (const auto& [serial, host] : world_->bound) {
      if (host.ld.slice == slice) std::abort();  // Somebody can still reach the bytes.
    }
    if (world_->failing_scrubs > 0) {
      --world_->failing_scrubs;
      std::move(done)(absl::UnavailableError("the device is busy"));
      return;
    }
    if (world_->not_scrubbable.contains(slice.device)) {
      std::move(done)(Refuse(absl::StatusCode::kUnimplemented, "NOT_SCRUBBABLE",
                             "the device has no command that clears", "clear it by hand"));
      return;
    }
    world_->scrubbed.push_back(slice);
    std::move(done)(ScrubResult::kZero);
  }
  void Emit(FabricEvent event) override { sink_(std::move(event)); }

 private:
  World* const world_;
  absl::AnyInvocable<void(FabricEvent)> sink_;
};

// A BareFabric below FabricShell (shell_fabric.cc), for a core that lives in one thread: the
// threads of its driver run in GoOn alone, and what they answer is given there.
std::unique_ptr<WorldFabric> MakeShellFabric(World* world);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_FAKE_FABRIC_H_
