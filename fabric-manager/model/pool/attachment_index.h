// What Attachments take of the hosts: which slots, and how many bytes for each tenant; and whose a
// serial or a generation is.
//
// Invariants: a host's slot holds one segment; serials and generations are unique in the pool.
// Derived from the records, never stored. Not thread-safe; owned by PoolState.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_POOL_ATTACHMENT_INDEX_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_POOL_ATTACHMENT_INDEX_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/model/pool/host.h"
#include "fabric-manager/model/pool/region.h"

namespace cxlpool::fm {

class AttachmentIndex {
 public:
  // INTERNAL: a slot, a serial or a generation is somebody else's. Nothing has changed then.
  absl::Status Add(const Region& region);
  void Remove(const Region& region);
  // The same Attachments with the same segments, each further on: nothing else of them is indexed
  // anew. False, and nothing was done: they are others, or take what they had given back.
  bool Move(const Region& before, const Region& now);

  const std::vector<OccupiedSlot>& Occupied(absl::string_view host) const;  // In order of slot.
  // Bytes of the tenant's Regions attached to the host, whatever their Attachments' states.
  uint64_t AttachedBytes(absl::string_view host, Interned tenant) const;
  std::optional<Key> FindBySerial(uint64_t serial) const;  // The Region that has it.
  bool KnowsGeneration(uint64_t generation) const { return generations_.contains(generation); }

  // INTERNAL says in what it is not the same as `other`, which was made from the same Regions.
  absl::Status Compare(const AttachmentIndex& other) const;

 private:
  struct HostUse {
    std::vector<OccupiedSlot> occupied;
    std::map<Interned, uint64_t> attached;  // Bytes by tenant.
    friend bool operator==(const HostUse&, const HostUse&) = default;
  };

  absl::Status Check(const Region& region) const;

  absl::node_hash_map<std::string, HostUse> hosts_;
  absl::flat_hash_map<uint64_t, Key> by_serial_;
  absl::flat_hash_set<uint64_t> generations_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_ATTACHMENT_INDEX_H_
