// For tests: a pool of two devices and three hosts, and a context that counts.
#ifndef CXLPOOL_TEST_MODEL_MODEL_RIG_H_
#define CXLPOOL_TEST_MODEL_MODEL_RIG_H_

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/plans/planner.h"
#include "fabric-manager/model/pool/pool_state.h"
#include "fabric-manager/model/space/bytes.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

inline constexpr uint64_t kUnit = 256 * kMiB;
inline const Caller kAlice = Caller::Admin("cxlpool://operator/alice");  // Who asks.

class ModelRig {
 public:
  ModelRig() {
    context_.next_id = [this] { return next_id_++; };
    context_.make_tag = [this] {
      std::string tag(16, '\0');
      const uint64_t n = ++tags_;
      for (int i = 0; i < 8; ++i) tag[i] = static_cast<char>((n * 0x9E3779B97F4A7C15u) >> (8 * i));
      return Uuid(tag);
    };
    context_.now = absl::FromUnixSeconds(1'700'000'000);
    context_.revision = 1;
    context_.shares_slices = true;
    context_.isolates = true;
    context_.enforces_read_only = true;
    context_.fabric = {.slots = true, .uid = true};
  }

  // Applies, and counts the revision up.
  Change Commit(const Change& change) {
    auto inverse = state_.Apply(change);
    EXPECT_TRUE(inverse.ok()) << inverse.status();
    ++context_.revision;
    return inverse.ok() ? *std::move(inverse) : Change{};
  }
  void AddDevice(const std::string& id, uint64_t capacity = 4 * kGiB, uint64_t granule = 2 * kMiB) {
    Commit({Device{.key = next_id_++,
                   .id = id,
                   .serial = "sn-" + id,
                   .capacity_bytes = capacity,
                   .granule_bytes = granule,
                   .reachable = true,
                   .service_reason = {}}});
  }
  // `bridges` bridges of `slots` slots each: slots 16, 17, ...
  HostRuntime MakeRuntime(int bridges, int slots) const {
    HostRuntime runtime;
    runtime.online = true;
    runtime.fabric_reachable = true;
    runtime.region_granule_bytes = kUnit;
    runtime.memory_block_bytes = 128 * kMiB;
    uint32_t slot = 16;
    for (int i = 0; i < bridges; ++i) {
      Bridge bridge;
      bridge.name = absl::StrCat("bridge-", i);
      bridge.max_regions = 4;
      bridge.window_bytes = bridge.free_window_bytes = 4 * kGiB;
      for (int k = 0; k < slots; ++k, ++slot) {
        bridge.slots.push_back(slot);
        runtime.fabric_slots.push_back(slot);
      }
      runtime.bridges.push_back(bridge);
    }
    return runtime;
  }
  void AddHost(const std::string& id, int bridges = 4, int slots = 2) {
    Commit(PlanEnrol(state_, kAlice, {.host = id}, context_).value());
    state_.SetRuntime(id, MakeRuntime(bridges, slots));
  }
  void AddPool() {
    AddDevice("cmm-0");
    AddDevice("cmm-1");
    for (const char* host : {"host-a", "host-b", "host-c"}) AddHost(host);
  }

  Request NewRequest(const std::string& method) {
    std::string id = absl::StrCat(next_request_++);
    id.insert(0, 16 - id.size(), '0');
    return {{"cxlpool://operator/alice", method, Uuid(id)}, 1};
  }
  AllocateSpec Allocation(const std::string& id, uint64_t size, const std::string& host = "") {
    AllocateSpec spec;
    spec.caller = kAlice;
    spec.request = NewRequest("AllocateRegion");
    spec.region_id = id;
    spec.size_bytes = size;
    spec.host = host;
    return spec;
  }

  absl::StatusOr<RegionPtr> Allocate(const AllocateSpec& spec) {
    return Take(PlanAllocate(state_, spec, context_));
  }
  absl::StatusOr<RegionPtr> Attach(const std::string& id, const std::string& host,
                                   Access access = Access::kReadWrite, Mode mode = Mode::kDevdax) {
    return Take(PlanAttach(state_, {NewRequest("AttachRegion"), kAlice, id, host, mode, access, ""},
                           context_));
  }
  absl::StatusOr<RegionPtr> Detach(const std::string& id, const std::string& host) {
    return Take(PlanDetach(state_, {NewRequest("DetachRegion"), kAlice, id, host, ""}, context_));
  }
  absl::StatusOr<RegionPtr> Release(const std::string& id, bool detach_all = false,
                                    const std::string& by_host = "") {
    ReleaseSpec spec;
    spec.request = NewRequest("ReleaseRegion");
    spec.caller = kAlice;
    if (!by_host.empty()) {
      spec.caller = Caller::OfHost(by_host, absl::StrCat("cxlpool://host/", by_host));
      spec.request.id.principal = absl::StrCat("cxlpool://host/", by_host);
    }
    spec.region_id = id;
    spec.detach_all = detach_all;
    return Take(PlanRelease(state_, spec, context_));
  }
  absl::StatusOr<RegionPtr> Resize(const std::string& id, uint64_t size, uint32_t max_extents = 1,
                                   const InUseFn& in_use = nullptr) {
    return Take(PlanResize(state_, {NewRequest("ResizeRegion"), kAlice, id, size, max_extents, ""},
                           in_use, context_));
  }
  absl::StatusOr<RegionPtr> Rename(const std::string& id, const std::string& name) {
    return Take(PlanRename(state_, {NewRequest("RenameRegion"), kAlice, id, name, ""}, context_));
  }
  void SetTenant(const std::string& id, uint64_t quota, uint64_t reserved = 0,
                 uint64_t host_cap = 0) {
    Commit(PlanSetTenant(state_, kAlice, {0, id, quota, reserved, host_cap}, context_).value());
  }

  std::map<std::string, Key> RegionsById() const {
    std::map<std::string, Key> all;
    for (const auto& [key, region] : state_.regions()) all[region->id] = key;
    return all;
  }

  // Records what `edit` makes of the Region.
  template <typename Edit>
  void Rewrite(const std::string& id, Edit edit) {
    auto edited = std::make_shared<Region>(**state_.FindRegionById(id));
    edit(*edited);
    edited->revision = context_.revision;
    Commit({RegionPtr(edited)});
  }
  // As if it had climbed all the way.
  void BringUp(const std::string& id) {
    Rewrite(id, [](Region& region) {
      region.state = RegionState::kAllocated;
      for (Attachment& a : region.attachments) a.settled().state = AttachmentState::kOnline;
    });
  }

  PoolState& state() { return state_; }
  PlanContext& context() { return context_; }
  uint64_t next_id() const { return next_id_; }

 private:
  absl::StatusOr<RegionPtr> Take(absl::StatusOr<Plan> plan) {
    if (!plan.ok()) return plan.status();
    if (!plan->change.empty()) Commit(plan->change);
    return plan->region;
  }

  PoolState state_;
  PlanContext context_;
  uint64_t next_id_ = 16;
  uint64_t tags_ = 0;
  uint64_t next_request_ = 1;
};

// The value of `key` in a refusal's metadata, or "".
inline std::string MetadataOf(const absl::Status& status, const std::string& key) {
  const auto refusal = RefusalOf(status);
  if (!refusal.has_value()) return "";
  for (const auto& [k, v] : refusal->metadata) {
    if (k == key) return v;
  }
  return "";
}

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_MODEL_MODEL_RIG_H_
