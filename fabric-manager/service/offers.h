// What an agent learns of an Attachment.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_OFFERS_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_OFFERS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cxlpool/v1/host_service.pb.h"
#include "fabric-manager/model/pool/region.h"

namespace cxlpool::fm {

v1::Owner ToProto(const Owner& owner);
v1::OpenTo ToProto(const OpenTo& open_to);

// What is wanted of each part of an Attachment. WANT_UNSPECIFIED: the part is not offered (yet),
// because the fabric does not show it to the host, or there is no such part.
using OfferedWants = std::array<v1::Offer::Want, kMaxParts>;

// What a part's recorded state says that the host should do.
v1::Offer::Want RecordedWant(AttachmentState state, bool detaching);

// What an Offer says, but for what an Attachment keeps for life (tag, generation). Most changes of
// a Region leave its Offers as they are, and these show it for less than the messages would.
struct OfferTerms {
  struct Target {
    uint32_t extent_index = 0;
    uint32_t slot = 0;
    uint64_t serial = 0;
    uint64_t length_bytes = 0;
    v1::Offer::Want want = v1::Offer::WANT_UNSPECIFIED;
    std::string host_bridge;
    friend bool operator==(const Target&, const Target&) = default;
  };
  std::string region_id;
  Interned tenant;
  Uuid request_id;  // Attachment::request_id.
  v1::Offer::Want want = v1::Offer::WANT_UNSPECIFIED;
  Mode mode = Mode::kDevdax;
  Zone zone = Zone::kMovable;
  Access access = Access::kReadWrite;
  Sharing sharing = Sharing::kExclusive;
  uint32_t interleave_ways = 1;
  uint32_t interleave_granularity_bytes = 0;
  std::optional<Owner> owner;
  // Users of the Attachment's host: a user id means nobody anywhere else.
  std::optional<uint32_t> maker_uid;
  OpenTo open_to;
  std::vector<Target> targets;  // Of the parts that are offered.
  friend bool operator==(const OfferTerms&, const OfferTerms&) = default;
};

// Pure. `attachment` is one of `region`'s.
OfferTerms TermsOf(const Region& region, const Attachment& attachment, const OfferedWants& wants);

// Pure. Each stripe set is one segment of the Offer.
v1::Offer MakeOffer(const Uuid& tag, uint64_t generation, const OfferTerms& terms,
                    bool hardware_coherent);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_OFFERS_H_
