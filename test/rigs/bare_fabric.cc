#include "test/rigs/bare_fabric.h"

#include <cstdlib>
#include <utility>

namespace cxlpool::fm {
namespace {

uint64_t NumberOf(const World& world, const Slice& slice) {
  return slice.dpa_bytes / world.FindDevice(slice.device)->capacity_bytes;
}

// The hardware's own, on each host another: the host may have met it before.
uint64_t SerialOf(const World& world, const Slice& slice, const std::string& host) {
  const auto index = static_cast<uint64_t>(world.FindDevice(slice.device) - world.devices.data());
  return 0x5e00'0000 + (index << 16) + (NumberOf(world, slice) << 8) +
         static_cast<unsigned char>(host.back());
}

// What the hardware can say of it.
BoundLd AsSaid(BoundLd ld) {
  ld.key.reset();
  ld.unbinding = false;
  return ld;
}

class BareScrub : public FabricScrub {
 public:
  BareScrub(World* world, const Slice& slice) : world_(world), slice_(slice) {}

  absl::StatusOr<bool> Step(absl::Duration) override {
    MutexLock lock(world_->threads->mutex);
    const uint64_t granule = world_->FindDevice(slice_.device)->granule_bytes;
    const auto& own = world_->lds.at({slice_.device, NumberOf(*world_, slice_)});
    world_->bytes.erase({slice_.device, own.at(done_ / granule)});
    done_ += granule;
    if (done_ < slice_.length_bytes) return false;
    world_->scrubbed.push_back(slice_);
    return true;
  }
  uint64_t done_bytes() const override { return done_; }

 private:
  World* const world_;
  const Slice slice_;
  uint64_t done_ = 0;
};

}  // namespace

FabricCapabilities BareFabric::capabilities() const {
  return {.driver = "bare", .isolates = true, .hardware_coherent = true, .fence = world_->fence};
}

void BareFabric::Start(const KnownFabric&, Sink sink) {
  MutexLock lock(world_->threads->mutex);
  sink_ = std::move(sink);
  // What is being unbound a switch knows for as long as one manager lives.
  for (auto& [serial, on] : world_->bound) on.ld.unbinding = false;
}

void BareFabric::Meet(const std::string& host, const std::string& life) {
  MutexLock lock(world_->threads->mutex);
  if (!life.empty() && life != world_->LifeOf(host)) strangers_.insert(host);
}

absl::StatusOr<DeviceLook> BareFabric::LookAtDevices(absl::Duration) {
  MutexLock lock(world_->threads->mutex);
  if (world_->failing_discovers == 0) return DeviceLook{world_->devices};
  --world_->failing_discovers;
  return absl::UnavailableError("the switch does not answer");
}

HostLook BareFabric::LookAt(const std::string& host, absl::Duration) {
  MutexLock lock(world_->threads->mutex);
  HostLook look;
  look.host.id = host;
  look.host.reachable = Answers(lock, host);
  look.host.fabric_incarnation = world_->LifeOf(host);
  if (!look.host.reachable) look.host.unreachable_reason = "another switch, or none";
  look.host.slots = world_->slots;
  for (const auto& [serial, on] : world_->bound) {
    if (on.ld.host == host) look.bound.push_back(AsSaid(on.ld));
  }
  return look;
}

// Takes the first granules that no LD has, with whatever is in them.
absl::Status BareFabric::Carve(const Slice& slice, absl::Duration) {
  MutexLock lock(world_->threads->mutex);
  const FabricDevice& device = *world_->FindDevice(slice.device);
  const size_t count = slice.length_bytes / device.granule_bytes;
  auto& own = world_->lds[{slice.device, NumberOf(*world_, slice)}];
  if (own.size() == count) return absl::OkStatus();
  own.clear();
  std::set<uint64_t> used;
  for (const auto& [ld, granules] : world_->lds) {
    if (ld.first == slice.device) used.insert(granules.begin(), granules.end());
  }
  for (uint64_t i = 0; i < device.capacity_bytes / device.granule_bytes; ++i) {
    if (!used.contains(i) && own.size() < count) own.push_back(i);
  }
  if (own.size() == count) return absl::OkStatus();
  own.clear();
  return absl::ResourceExhaustedError("the device has no room");
}

absl::Status BareFabric::Return(const Slice& slice, absl::Duration) {
  MutexLock lock(world_->threads->mutex);
  world_->lds.erase({slice.device, NumberOf(*world_, slice)});
  return absl::OkStatus();
}

absl::StatusOr<BoundLd> BareFabric::Bind(const BindRequest& request, absl::Duration) {
  MutexLock lock(world_->threads->mutex);
  const std::string& host = request.key.host;
  if (!Answers(lock, host)) return absl::UnavailableError("the switch does not answer");
  for (const auto& [serial, on] : world_->bound) {
    // No byte is ever bound twice, but for sharing.
    if (on.ld.slice == request.slice && on.ld.key->tag != request.key.tag) std::abort();
  }
  ++world_->binds;
  BoundLd ld{.host = host,
             .slot = request.slot,
             .slice = request.slice,
             .serial = SerialOf(*world_, request.slice, host),
             .key = request.key};
  world_->bound[ld.serial] = {ld};
  return AsSaid(ld);
}

absl::StatusOr<bool> BareFabric::BeginUnbind(const Binding& binding, absl::Duration) {
  MutexLock lock(world_->threads->mutex);
  if (!Answers(lock, binding.key.host)) {
    return absl::UnavailableError("the switch does not answer");
  }
  if (World::HostLd* on = Find(binding); on != nullptr) on->ld.unbinding = true;
  return true;
}

absl::StatusOr<bool> BareFabric::IsUnbound(const Binding& binding, absl::Duration) {
  MutexLock lock(world_->threads->mutex);
  if (!Answers(lock, binding.key.host)) {
    return absl::UnavailableError("the switch does not answer");
  }
  const World::HostLd* on = Find(binding);
  if (on == nullptr) return true;
  if (on->state != v1::SEGMENT_ABSENT || !on->ld.unbinding) return false;
  world_->bound.erase(on->ld.serial);
  return true;
}

absl::StatusOr<bool> BareFabric::FenceBinding(const Binding& binding, absl::Duration deadline) {
  if (world_->fence != FenceScope::kBinding) return FabricBackend::FenceBinding(binding, deadline);
  MutexLock lock(world_->threads->mutex);
  if (const World::HostLd* on = Find(binding); on != nullptr) world_->bound.erase(on->ld.serial);
  return true;
}

absl::StatusOr<std::unique_ptr<FabricScrub>> BareFabric::BeginScrub(const Slice& slice) {
  MutexLock lock(world_->threads->mutex);
  for (const auto& [serial, on] : world_->bound) {
    if (on.ld.slice == slice) std::abort();  // Somebody can still reach the bytes.
  }
  return std::make_unique<BareScrub>(world_, slice);
}

void BareFabric::Interrupt(const std::string& lane) {
  MutexLock lock(world_->threads->mutex);
  interrupted_.insert(lane);
  world_->threads->changed.notify_all();
}

// Hangs with the host, whatever the deadline is.
bool BareFabric::Answers(MutexLock& lock, const std::string& host) {
  world_->threads->changed.wait(
      lock.native(), [&] { return !world_->hung.contains(host) || interrupted_.contains(host); });
  return !strangers_.contains(host) && !world_->hung.contains(host);
}

// Where just this slice is bound in this slot; null: it is not there.
World::HostLd* BareFabric::Find(const Binding& binding) {
  for (auto& [serial, on] : world_->bound) {
    if (on.ld.host == binding.key.host && on.ld.slot == binding.slot &&
        on.ld.slice == binding.slice) {
      return &on;
    }
  }
  return nullptr;
}

}  // namespace cxlpool::fm
