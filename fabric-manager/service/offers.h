// What an agent is told of an Attachment.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_OFFERS_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_OFFERS_H_

#include "cxlpool/v1/host_service.pb.h"
#include "fabric-manager/model/region.h"

namespace cxlpool::fm {

// What is wanted of each part. WANT_UNSPECIFIED: the part is not offered (yet), because the fabric
// does not show it to the host.
struct OfferedWants {
  v1::Offer::Want base = v1::Offer::WANT_UNSPECIFIED;
  v1::Offer::Want tail = v1::Offer::WANT_UNSPECIFIED;
  friend bool operator==(const OfferedWants&, const OfferedWants&) = default;
};

// What a part's recorded state says that the host should do.
v1::Offer::Want RecordedWant(AttachmentState state, bool detaching);

// Pure. `attachment` is one of `region`'s. Each stripe set is one segment of the Offer.
v1::Offer MakeOffer(const Region& region, const Attachment& attachment, const OfferedWants& wants,
                    bool hardware_coherent);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_OFFERS_H_
