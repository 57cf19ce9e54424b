#include "fabric-manager/service/offers.h"

#include "proto/support/names.h"

namespace cxlpool::fm {

v1::Offer::Want RecordedWant(AttachmentState state, bool detaching) {
  if (state == AttachmentState::kEjecting) return v1::Offer::WANT_EJECTED;
  if (detaching) return v1::Offer::WANT_OFFLINE;
  // Not bound yet: nothing to bring online.
  if (state == AttachmentState::kWanted) return v1::Offer::WANT_UNSPECIFIED;
  return v1::Offer::WANT_ONLINE;
}

v1::Offer MakeOffer(const Region& region, const Attachment& attachment, const OfferedWants& wants,
                    bool hardware_coherent) {
  v1::Offer offer;
  offer.set_region_tag(FormatUuid(region.tag.bytes()));
  offer.set_region_name(ResourceName("regions", region.id));
  offer.set_attachment_generation(attachment.generation);
  // An Offer wants something; that of a base which is not bound is its tail's.
  const auto want_all = wants.base == v1::Offer::WANT_UNSPECIFIED ? wants.tail : wants.base;
  offer.set_want(want_all);
  offer.set_mode(attachment.mode == Mode::kSystemRam ? v1::SYSTEM_RAM : v1::DEVDAX);
  offer.set_access(attachment.access == Access::kReadOnly ? v1::READ_ONLY : v1::READ_WRITE);
  offer.set_sharing(static_cast<v1::Sharing>(region.sharing));
  offer.set_coherence(hardware_coherent ? v1::HARDWARE : v1::SOFTWARE);
  offer.set_tenant(ResourceName("tenants", region.tenant));
  for (size_t i = 0; i < attachment.segments.size(); ++i) {
    const bool tail = attachment.tail.has_value() && i >= attachment.tail->first_segment;
    const v1::Offer::Want want = tail ? wants.tail : wants.base;
    if (want == v1::Offer::WANT_UNSPECIFIED) continue;
    const Segment& segment = attachment.segments[i];
    const uint64_t length = region.extents[segment.extent_index].length_bytes;
    if (segment.extent_index % region.interleave_ways == 0) {
      v1::OfferedSegment& offered = *offer.add_segments();
      offered.set_extent_index(segment.extent_index);
      offered.set_host_bridge(segment.host_bridge);
      if (want != want_all) offered.set_want(want);
      if (region.interleave_ways > 1) {
        offered.set_interleave_granularity_bytes(region.interleave_granularity_bytes);
      }
    }
    v1::OfferedSegment& offered = *offer.mutable_segments(offer.segments_size() - 1);
    offered.set_length_bytes(offered.length_bytes() + length);
    v1::Target& target = *offered.add_targets();
    target.set_slot(segment.slot);
    target.set_serial(segment.serial);
  }
  return offer;
}

}  // namespace cxlpool::fm
