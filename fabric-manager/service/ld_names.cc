#include "fabric-manager/service/ld_names.h"

#include "proto/support/names.h"

namespace cxlpool::fm {

Slice SliceOf(const Extent& extent) {
  return {extent.device.str(), extent.dpa_bytes, extent.length_bytes};
}

LdKey KeyFor(const Region& region, const Attachment& attachment, uint32_t segment) {
  const Segment& own = attachment.segments[segment];
  return {attachment.host, FormatUuid(region.tag.bytes()), attachment.generation,
          own.ld_index.value_or(own.extent_index)};
}

Binding BindingFor(const Region& region, const Attachment& attachment, uint32_t segment) {
  const Segment& own = attachment.segments[segment];
  return {KeyFor(region, attachment, segment), own.slot, SliceOf(region.extents[own.extent_index]),
          own.serial};
}

bool HasBytes(const Region& region, const Segment& segment, const BoundLd& ld) {
  const Extent& extent = region.extents[segment.extent_index];
  return extent.device.str() == ld.slice.device && extent.dpa_bytes == ld.slice.dpa_bytes &&
         extent.length_bytes == ld.slice.length_bytes;
}

bool Names(const Region& region, const BoundLd& ld, bool chooses_serial) {
  if (!ld.key.has_value()) return false;
  for (const Attachment& attachment : region.attachments) {
    if (attachment.generation != ld.key->generation || attachment.host != ld.host) continue;
    for (const Segment& segment : attachment.segments) {
      const bool wish = !chooses_serial && (segment.serial & kSerialBase) == kSerialBase;
      if (segment.ld_index.value_or(segment.extent_index) == ld.key->extent_index &&
          segment.slot == ld.slot && (wish || segment.serial == ld.serial) &&
          HasBytes(region, segment, ld)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace cxlpool::fm
