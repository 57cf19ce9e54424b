// What the agents of hosts are offered of each Attachment, and what they say of its segments.
//
// An Offer stands until another one replaces it or it is withdrawn, over sessions of the agent too:
// what is offered (Track::wants) is sent only where it, or what it says, has become another. What
// an agent said (Track::known, on the host's side) holds as long as its session does: an agent says
// nothing twice within one.
//
// Runs wholly on the executor.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_AGENT_SIDE_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_AGENT_SIDE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fabric-manager/service/active_regions.h"
#include "fabric-manager/service/host_sessions.h"
#include "fabric-manager/service/probe.h"
#include "fabric-manager/service/track_table.h"
#include "fabric-manager/service/writer.h"

namespace cxlpool::fm {

class AgentSide {
 public:
  AgentSide(const Writer* writer, HostSessions* sessions, TrackTable* tracks, ActiveRegions* active,
            ProbePoints* probe, bool hardware_coherent)
      : hardware_coherent_(hardware_coherent),
        writer_(writer),
        sessions_(sessions),
        tracks_(tracks),
        active_(active),
        probe_(probe) {}

  // Offers what the records say of an Attachment that an earlier manager may have offered.
  void OfferAsRecorded(const Region& region, const Attachment& attachment, Track& track);
  // Offers that `part` becomes `want`; WANT_UNSPECIFIED: it is not offered any more.
  void Offer(const Region& region, const Attachment& attachment, size_t part, Track& track,
             v1::Offer::Want want);
  // Sends anew what stands, as the Region is now, where that has become another.
  void FollowCommitted(const Region& region, const Attachment& attachment, Track& track);
  // The Attachment is nothing to its agent any more.
  void Withdraw(const Region& region, uint64_t generation, Track& track);

  // A session of the host began or ended.
  void OnSession(const std::string& host, bool online);
  // `complete`: it is all that the host has, and what is not in it is absent.
  void OnSegments(const std::string& host, const SegmentReports& reports, bool complete);
  // Segments have other serials now than they had (`before`, in order): what the host said was of
  // those. Of segments that kept theirs it says nothing twice.
  void ForgetSerials(Key key, uint64_t generation, const std::vector<uint64_t>& before);

  // Hosts where an application has a segment beyond the first `keep_extents` extents open, as their
  // agents last said.
  std::vector<std::string> HostsUsing(const Region& region, size_t keep_extents) const;

 private:
  // As track.wants says.
  void Send(const Region& region, const Attachment& attachment, Track& track);
  RegionPtr FindBySerial(const std::string& host, uint64_t serial) const;
  void Take(const Region& region, const Attachment& attachment, const v1::SegmentReport& report);

  const bool hardware_coherent_;  // As the driver says of itself.
  const Writer* const writer_;
  HostSessions* const sessions_;
  TrackTable* const tracks_;
  ActiveRegions* const active_;
  ProbePoints* const probe_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_AGENT_SIDE_H_
