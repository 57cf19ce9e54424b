// How the records and the fabric name one LD. A record says host, slot, extent and serial of each
// segment; the fabric shows a BoundLd. These say one in the words of the other, and whether both
// are the same LD. Pure.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_LD_NAMES_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_LD_NAMES_H_

#include <cstdint>

#include "fabric-manager/model/pool/region.h"
#include "fabric-manager/ports/fabric_driver.h"

namespace cxlpool::fm {

Slice SliceOf(const Extent& extent);

// Whose the LD of a segment is. `attachment` is one of `region`'s, `segment` an index of it.
LdKey KeyFor(const Region& region, const Attachment& attachment, uint32_t segment);

// Likewise, and where the records have it.
Binding BindingFor(const Region& region, const Attachment& attachment, uint32_t segment);

// Whether the LD is made of just the bytes that the records give the segment.
bool HasBytes(const Region& region, const Segment& segment, const BoundLd& ld);

// Whether the Region has this very LD: by key, place, serial and bytes. An LD without a key is
// nobody's. Where hardware has serials of its own (not `chooses_serial`), a record has the serial
// that the pool asked for until the real one is recorded, and until then any serial will do.
bool Names(const Region& region, const BoundLd& ld, bool chooses_serial);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_LD_NAMES_H_
