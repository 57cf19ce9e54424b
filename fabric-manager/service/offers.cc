#include "fabric-manager/service/offers.h"

#include "proto/support/mutant.h"
#include "proto/support/names.h"

namespace cxlpool::fm {

v1::Offer::Want RecordedWant(AttachmentState state, bool detaching) {
  if (state == AttachmentState::kEjecting) return v1::Offer::WANT_EJECTED;
  if (detaching) return v1::Offer::WANT_OFFLINE;
  // Not bound yet: nothing to bring online.
  if (state == AttachmentState::kWanted) return v1::Offer::WANT_UNSPECIFIED;
  return v1::Offer::WANT_ONLINE;
}

v1::Owner ToProto(const Owner& owner) {
  v1::Owner out;
  out.set_uid(owner.uid);
  out.set_pid(owner.pid);
  out.set_start_ticks(owner.start_ticks);
  out.set_incarnation(owner.incarnation);
  return out;
}

v1::OpenTo ToProto(const OpenTo& open_to) {
  v1::OpenTo out;
  out.mutable_uids()->Add(open_to.uids.begin(), open_to.uids.end());
  out.mutable_gids()->Add(open_to.gids.begin(), open_to.gids.end());
  out.set_everybody(open_to.everybody);
  return out;
}

// What the agent is to be offered of an Attachment, from the records and from what is wanted of
// each part. Equal terms make equal Offers, so that one is sent only where these differ.
OfferTerms TermsOf(const Region& region, const Attachment& attachment, const OfferedWants& wants) {
  OfferTerms terms{.region_id = region.id,
                   .tenant = region.tenant,
                   .request_id = attachment.request_id,
                   .want = v1::Offer::WANT_UNSPECIFIED,
                   .mode = attachment.mode,
                   .zone = attachment.zone,
                   .access = attachment.access,
                   .sharing = region.sharing,
                   .interleave_ways = region.interleave_ways,
                   .interleave_granularity_bytes = region.interleave_granularity_bytes,
                   .owner = std::nullopt,
                   .maker_uid = std::nullopt,
                   .open_to = {},
                   .targets = {}};
  // What a user of another host says of user ids is not meant for this one. An operator means all.
  const bool here = !region.maker.has_value() || region.maker->host.str() == attachment.host ||
                    CXLPOOL_MUTANT("uids-mean-the-same-everywhere");
  if (here && region.maker.has_value()) terms.maker_uid = region.maker->uid;
  // Nor is a process of its. The agent here would take it for dead, since it is of another boot,
  // and release the Region as soon as no other host stands in the way.
  if (here || CXLPOOL_MUTANT("owner-is-offered-everywhere")) terms.owner = region.owner;
  if (here) terms.open_to = region.open_to;
  terms.targets.reserve(attachment.segments.size());
  for (size_t part = 0; part < attachment.parts.size(); ++part) {
    const v1::Offer::Want want = wants[part];
    if (want == v1::Offer::WANT_UNSPECIFIED) continue;
    // An Offer as a whole wants what is wanted of the first part that it is of.
    if (terms.want == v1::Offer::WANT_UNSPECIFIED) terms.want = want;
    for (size_t i = attachment.parts[part].first_segment; i < attachment.EndOf(part); ++i) {
      const Segment& segment = attachment.segments[i];
      terms.targets.push_back({.extent_index = segment.extent_index,
                               .slot = segment.slot,
                               .serial = segment.serial,
                               .length_bytes = region.extents[segment.extent_index].length_bytes,
                               .want = want,
                               .host_bridge = segment.host_bridge});
    }
  }
  return terms;
}

// The message for the agent. Extents that are interleaved become one segment of several targets; a
// part that goes another way than the rest says so by its own want.
v1::Offer MakeOffer(const Uuid& tag, uint64_t generation, const OfferTerms& terms,
                    bool hardware_coherent) {
  v1::Offer offer;
  offer.set_region_tag(FormatUuid(tag.bytes()));
  offer.set_region_name(ResourceName("regions", terms.region_id));
  offer.set_attachment_generation(generation);
  offer.set_want(terms.want);
  offer.set_mode(terms.mode == Mode::kSystemRam ? v1::SYSTEM_RAM : v1::DEVDAX);
  const bool read_only = terms.access == Access::kReadOnly && !CXLPOOL_MUTANT("offer-lets-write");
  offer.set_access(read_only ? v1::READ_ONLY : v1::READ_WRITE);
  offer.set_sharing(static_cast<v1::Sharing>(terms.sharing));
  offer.set_coherence(hardware_coherent ? v1::HARDWARE : v1::SOFTWARE);
  if (terms.mode == Mode::kSystemRam && !CXLPOOL_MUTANT("offer-without-zone")) {
    offer.set_zone(static_cast<v1::MemoryZone>(terms.zone));
  }
  if (terms.owner.has_value()) *offer.mutable_owner() = ToProto(*terms.owner);
  if (!CXLPOOL_MUTANT("offer-without-tenant")) {
    offer.set_tenant(ResourceName("tenants", terms.tenant));
  }
  if (!terms.request_id.empty() && !CXLPOOL_MUTANT("offer-without-request")) {
    offer.set_request_id(FormatUuid(terms.request_id.bytes()));
  }
  if (terms.maker_uid.has_value()) offer.set_maker_uid(*terms.maker_uid);
  if (!terms.open_to.nobody()) *offer.mutable_open_to() = ToProto(terms.open_to);
  for (const OfferTerms::Target& part : terms.targets) {
    if (part.extent_index % terms.interleave_ways == 0) {
      v1::OfferedSegment& offered = *offer.add_segments();
      offered.set_extent_index(part.extent_index);
      offered.set_host_bridge(part.host_bridge);
      if (part.want != terms.want) offered.set_want(part.want);
      if (terms.interleave_ways > 1) {
        offered.set_interleave_granularity_bytes(terms.interleave_granularity_bytes);
      }
    }
    v1::OfferedSegment& offered = *offer.mutable_segments(offer.segments_size() - 1);
    offered.set_length_bytes(offered.length_bytes() + part.length_bytes);
    v1::Target& target = *offered.add_targets();
    target.set_slot(part.slot);
    target.set_serial(part.serial);
  }
  return offer;
}

}  // namespace cxlpool::fm
