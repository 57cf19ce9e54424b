// What the manager is told: observations and progress as messages of host_service.proto.
//
// Pure functions, any thread.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_REPORTS_H_
#define CXLPOOL_HOST_AGENT_SERVICE_REPORTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cxlpool/v1/host_service.pb.h"
#include "host-agent/model/observation.h"
#include "host-agent/service/attachments.h"
#include "host-agent/service/opens.h"

namespace cxlpool::agent {

inline constexpr size_t kMaxReportedHolders = 32;

v1::HostInventory InventoryOf(const HostObservation& host);

// Whether the manager needs to hear of `now` after `told`. Spare DRAM flickers: only a change by
// an eighth counts.
bool InventoryChanged(const v1::HostInventory& told, const v1::HostInventory& now);

v1::SegmentState SegmentStateOf(const Segment& segment, const HostObservation& host);

// Everything: each offered segment, then each memdev that no Offer names.
std::vector<v1::SegmentReport> ReportsOf(const AttachmentTable& attachments,
                                         const OpensTable& opens, const HostObservation& host);

// The report in bytes, to tell whether there is news. How many have it open is no news, but whether
// anybody has.
std::string NewsIn(v1::SegmentReport report);

// A failed step. INVALID_ARGUMENT and UNIMPLEMENTED will not get better by trying: permanent.
v1::SegmentError ErrorOf(const absl::Status& status);

// What the segment is now, as the API shows it.
v1::Segment SegmentMessage(const Segment& segment, const HostObservation& host);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_REPORTS_H_
