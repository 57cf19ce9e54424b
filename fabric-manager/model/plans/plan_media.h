// Memory that has lost bytes (poison, uncorrectable media errors): what becomes of the Extent that
// they are in.
//
// The Extent is marked bad (Region.bad), and its Region stays as it is: who uses it may still want
// what is whole. When the Region lets go of the Extent, at its end or by a smaller size, the Extent
// goes into a QUARANTINED Region of its own, `bad-DEVICE-N`, in the change that lets it go: it is
// never free in between. An operator who knows better releases that by force; it is scrubbed then,
// which writes every line anew and so clears poison.
//
// An Extent that its device cannot clear (NOT_SCRUBBABLE) is kept in the same way.
//
// Pure.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_PLANS_PLAN_MEDIA_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_PLANS_PLAN_MEDIA_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "fabric-manager/model/plans/planner.h"

namespace cxlpool::fm {

// Bytes [dpa_bytes, dpa_bytes + length_bytes) of the LD with that serial cannot be trusted.
struct MediaError {
  uint64_t serial = 0;
  uint64_t dpa_bytes = 0;  // Of the LD: 0 is the Extent's first byte.
  uint64_t length_bytes = 0;
  std::string what;  // Its kind, for people: "POISON".
};

// Marks an Extent of the Region; false: it was marked before, or there is none of that index.
bool MarkBad(Region& region, uint32_t extent_index, std::string reason);

// Marks what `host` reports. A host can report only on its own Attachments' LDs: another serial
// says nothing, and neither does an Extent that is marked already. Empty: nothing to do.
Change PlanMediaErrors(const PoolState& state, absl::string_view host,
                       const std::vector<MediaError>& errors, PlanContext& context);

// The state_reason of a Region that stands and has bad Extents: "MEDIA_ERROR: ..."; else "".
std::string MediaReasonOf(const Region& region);

// For a change that takes the Extents from `first_extent` on away from `region`, after that item:
// the Regions that keep the bad ones from everybody. Not those of a device that has failed: nobody
// is given anything there.
Change QuarantineBad(const PoolState& state, const Region& region, size_t first_extent,
                     PlanContext& context);

// Whether the Region is there for nothing but to keep bad Extents.
bool KeepsBadAlone(const Region& region);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_PLANS_PLAN_MEDIA_H_
