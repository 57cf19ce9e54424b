#include "fabric-manager/service/offers.h"

#include "proto/support/names.h"

namespace cxlpool::fm {

v1::Offer MakeOffer(const Region& region, const Attachment& attachment, v1::Offer::Want want,
                    bool hardware_coherent) {
  v1::Offer offer;
  offer.set_region_tag(FormatUuid(region.tag));
  offer.set_region_name(ResourceName("regions", region.id));
  offer.set_attachment_generation(attachment.generation);
  offer.set_want(want);
  offer.set_mode(attachment.mode == Mode::kSystemRam ? v1::SYSTEM_RAM : v1::DEVDAX);
  offer.set_access(attachment.access == Access::kReadOnly ? v1::READ_ONLY : v1::READ_WRITE);
  offer.set_sharing(static_cast<v1::Sharing>(region.sharing));
  offer.set_coherence(hardware_coherent ? v1::HARDWARE : v1::SOFTWARE);
  offer.set_tenant(ResourceName("tenants", region.tenant));
  for (const Segment& segment : attachment.segments) {
    v1::OfferedSegment& offered = *offer.add_segments();
    offered.set_extent_index(segment.extent_index);
    offered.set_length_bytes(region.extents[segment.extent_index].length_bytes);
    offered.set_host_bridge(segment.host_bridge);
    v1::Target& target = *offered.add_targets();
    target.set_slot(segment.slot);
    target.set_serial(segment.serial);
  }
  return offer;
}

}  // namespace cxlpool::fm
