// What is reported to the manager: observations and progress as messages of host_service.proto.
//
// Pure functions, any thread.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_REPORTS_H_
#define CXLPOOL_HOST_AGENT_SERVICE_REPORTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cxlpool/v1/host_service.pb.h"
#include "host-agent/model/observation.h"
#include "host-agent/service/attachments.h"
#include "host-agent/service/opens.h"

namespace cxlpool::agent {

inline constexpr size_t kMaxReportedHolders = 32;
inline constexpr int kMaxReportedBlocks = 32;
inline constexpr size_t kMaxUnfitReason = 1024;
inline constexpr size_t kMaxErrorText = 1024;  // As much as the manager keeps.
// In one message so many have the numbers of processes and blocks: the manager takes 4 MiB of a
// message, and 131,072 elements, and a host whose Hello has more would never have a session.
inline constexpr int kMaxDetailedReports = 128;

// `prepared`: how HostMemory::Prepare went; its error is why the host takes nothing.
v1::HostInventory InventoryOf(const HostObservation& host, const absl::Status& prepared);

// Whether the inventory of `now` needs to be reported after that of `reported`. Spare DRAM
// flickers: only a change by an eighth counts.
bool InventoryChanged(const HostObservation& reported, const HostObservation& now);

v1::SegmentState SegmentStateOf(const Segment& segment, const HostObservation& host);

// What a SegmentReport contains, in plain values: they are looked at on every turn and seldom have
// news, so they are compared as they are, and only news are made a message of.
struct SegmentStatus {
  struct Error {
    v1::SegmentError message;
    friend bool operator==(const Error& a, const Error& b) {
      return a.message.SerializeAsString() == b.message.SerializeAsString();
    }
  };

  AttachmentKey key;  // Empty: no Offer names it.
  uint64_t serial = 0;
  std::vector<uint64_t> others;  // Of a stripe set. Not reported: but another set is news.
  v1::SegmentState state = v1::SEGMENT_STATE_UNSPECIFIED;
  uint32_t extent_index = 0;
  uint32_t slot = 0;
  std::string host_bridge;
  std::string memdev;
  std::string host_region;
  std::string dax_device;
  std::optional<int> numa_node;
  uint64_t hpa_bytes = 0;
  uint32_t online_blocks = 0;
  uint32_t total_blocks = 0;
  std::optional<Error> error;
  bool is_open = false;  // How many have it open is no news, but whether anybody has.
  friend bool operator==(const SegmentStatus&, const SegmentStatus&) = default;
};

// Each offered segment, then each memdev that no Offer names. `opens`: how many have it open.
void ForEachStatus(const AttachmentTable& attachments, const OpensTable& opens,
                   const HostObservation& host,
                   absl::FunctionRef<void(const SegmentStatus& status, uint32_t opens)> report);

// Into an empty `report`.
void FillReport(const SegmentStatus& status, uint32_t opens, v1::SegmentReport& report);

// One more of a message.
void AddReport(const SegmentStatus& status, uint32_t opens,
               google::protobuf::RepeatedPtrField<v1::SegmentReport>* reports);

// A failed step. INVALID_ARGUMENT and UNIMPLEMENTED will not get better by trying: permanent.
v1::SegmentError ErrorOf(const absl::Status& status);

// What the segment is now, as the API shows it, and the Attachment.
v1::Segment SegmentMessage(const Segment& segment, const HostObservation& host);
v1::Attachment::State AttachmentStateOf(const Attachment& attachment, const HostObservation& host);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_REPORTS_H_
