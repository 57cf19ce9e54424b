// What the manager is told: observations and progress as messages of host_service.proto.
//
// Pure functions, any thread.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_REPORTS_H_
#define CXLPOOL_HOST_AGENT_SERVICE_REPORTS_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "cxlpool/v1/host_service.pb.h"
#include "host-agent/model/observation.h"
#include "host-agent/service/attachments.h"
#include "host-agent/service/opens.h"

namespace cxlpool::agent {

inline constexpr size_t kMaxReportedHolders = 32;

v1::HostInventory InventoryOf(const HostObservation& host);

// Whether the manager needs to hear the inventory of `now` after that of `told`. Spare DRAM
// flickers: only a change by an eighth counts.
bool InventoryChanged(const HostObservation& told, const HostObservation& now);

v1::SegmentState SegmentStateOf(const Segment& segment, const HostObservation& host);

// Tells everything: each offered segment, then each memdev that no Offer names. `tell` may have the
// report until it returns: the next is made in the same place, for this is asked for at every turn
// and seldom has news.
void ReportAll(const AttachmentTable& attachments, const OpensTable& opens,
               const HostObservation& host, const std::function<void(v1::SegmentReport&)>& tell);

// The report in bytes, to tell whether there is news. How many have it open is no news, but whether
// anybody has. `report` is as before afterwards.
void NewsIn(v1::SegmentReport& report, std::string& bytes);

// A failed step. INVALID_ARGUMENT and UNIMPLEMENTED will not get better by trying: permanent.
v1::SegmentError ErrorOf(const absl::Status& status);

// What the segment is now, as the API shows it.
v1::Segment SegmentMessage(const Segment& segment, const HostObservation& host);
void FillSegment(const Segment& segment, const HostObservation& host, v1::Segment& message);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_REPORTS_H_
