// A Region of the pool that this process has open.
//
// Made by Client::Allocate and Client::Open. While it (or a Mapping of it) lives, the host agent
// counts the Region as used and will not take it away without force. Destroying the last of them
// tells the agent, which takes one exchange with it; the bytes stay in the Region until somebody
// releases it, or until the process ends that allocated it without `persistent`.
//
// Name and size are those of the moment it was opened. A Region that is renamed stays open. One
// that grows stays as it was here: open it again to see the new bytes, and give the old object up
// when its mappings can go. One cannot shrink by what somebody has open.
//
// It may outlive its Client, and it survives a restart of the agent: descriptors and mappings
// belong to this process and go on working. The Client's next call opens it again with the new
// agent; Check() says whether that worked.
//
// Movable, not copyable. Threads: const functions any; move and destroy with nobody using it.
// A moved-from Region may only be assigned to or destroyed.
#ifndef CXLPOOL_REGION_H_
#define CXLPOOL_REGION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cxlpool/mapping.h"
#include "cxlpool/types.h"

namespace cxlpool {

struct MapOptions {
  // Map for writing? Unset: as access() allows.
  std::optional<bool> writable = {};
};

class Region {
 public:
  Region(Region&&) noexcept;
  Region& operator=(Region&&) noexcept;
  ~Region();

  const std::string& name() const;  // regions/{region}
  const std::string& tag() const;   // UUID; identity.
  uint64_t generation() const;      // Differs each time the name is used again.
  uint64_t size_bytes() const;      // What is open: at least what was asked for.
  Access access() const;            // Of the descriptors that the agent passed.
  Mode mode() const;
  Coherence coherence() const;

  // The NUMA node of a system-ram Region (see numa.h); nothing for devdax.
  std::optional<int> numa_node() const;

  // Maps the whole Region as one range. Each call makes a range of its own, of the same bytes.
  // PERMISSION_DENIED/MAP_FAILED, ErrnoOf EACCES: writable, but the Region is open READ_ONLY; it
  // is the kernel that refuses. FAILED_PRECONDITION: SYSTEM_RAM (use numa_node() and
  // BindToNode); BACKING_SHORT (released meanwhile). RESOURCE_EXHAUSTED/MAP_FAILED: no room in
  // the address space.
  absl::StatusOr<Mapping> Map(const MapOptions& options = {}) const;

  // OK while the agent knows of this use. Otherwise why the Region could not be opened again
  // after the connection was lost; retried by each call of the Client, except for
  // STALE_GENERATION, which stays. Does not ask the agent.
  absl::Status Check() const;

 private:
  friend class Client;
  explicit Region(std::shared_ptr<const OpenedRegion> opened);
  std::shared_ptr<const OpenedRegion> opened_;
};

}  // namespace cxlpool

#endif  // CXLPOOL_REGION_H_
