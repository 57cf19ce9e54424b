// What an agent is told of an Attachment.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_OFFERS_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_OFFERS_H_

#include "cxlpool/v1/host_service.pb.h"
#include "fabric-manager/model/region.h"

namespace cxlpool::fm {

// Pure. `attachment` is one of `region`'s.
v1::Offer MakeOffer(const Region& region, const Attachment& attachment, v1::Offer::Want want,
                    bool hardware_coherent);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_OFFERS_H_
