// The lost bytes of this host's Regions, by Region and offset, as they are reported to
// applications.
//
// A memdev's bytes become a Region's by the Offer that names its serial: an event may come before
// that Offer (the agent has just started), so losses are kept by serial, and placed whenever Offers
// have changed. A fault goes with its Attachment, or with the part of it that had those bytes: what
// grows there afterwards is other memory. Bounded: kMaxLost losses, kMaxFaults an
// Attachment; what is beyond is dropped, and is in the manager's records all the same.
//
// Not thread-safe; owned by AgentCore.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_FAULT_TABLE_H_
#define CXLPOOL_HOST_AGENT_SERVICE_FAULT_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cxlpool/v1/host_service.pb.h"
#include "host-agent/model/observation.h"
#include "host-agent/service/attachments.h"

namespace cxlpool::agent {

struct RegionRange {
  uint64_t offset_bytes = 0;  // From the Region's first byte.
  uint64_t length_bytes = 0;
  friend bool operator==(const RegionRange&, const RegionRange&) = default;
};

// Where [dpa_bytes, dpa_bytes + length_bytes) of the memdev with `serial` is in the Region. With
// several targets in a segment the memdev's bytes are every so many of the segment's: then it is
// the range from the first to the last of them. Nothing: they are not the Region's.
std::optional<RegionRange> RangeInRegion(const Attachment& attachment, const HostObservation& host,
                                         uint64_t serial, uint64_t dpa_bytes,
                                         uint64_t length_bytes);

// An event of memory at a host address, as events of the memdevs that the memory is on. Empty: it
// is on none of the pool's. An event that has a serial is returned as it is.
std::vector<v1::HostEvent> ByMemdev(const HostObservation& host, v1::HostEvent event);

class FaultTable {
 public:
  static constexpr size_t kMaxLost = 4096;
  static constexpr size_t kMaxFaults = 256;

  struct Fault {
    uint64_t sequence = 0;  // Ascending from 1 in each agent process; sizes have others of these.
    AttachmentKey key;
    uint64_t serial = 0;
    RegionRange range;
    std::string message;
  };

  // Takes an event with `bytes_lost`; others are ignored.
  void Add(const v1::HostEvent& event);

  // Places what can be, drops the faults of Attachments that are gone or have that memdev no more,
  // and the losses of memdevs that neither an Offer names nor the host shows. Costs nothing while
  // there are no losses.
  void Place(const AttachmentTable& attachments, const HostObservation& host);

  // In order of their sequence.
  const std::vector<Fault>& faults() const { return faults_; }
  uint64_t last_sequence() const { return last_sequence_; }

  // The next number, for what is reported in one order with the faults (size_table.h).
  uint64_t TakeSequence() { return ++last_sequence_; }

 private:
  struct Lost {
    uint64_t dpa_bytes = 0;
    uint64_t length_bytes = 0;
    std::string message;
    std::optional<AttachmentKey> placed;
  };

  size_t CountOf(const AttachmentKey& key) const;

  std::map<uint64_t, std::vector<Lost>> lost_;  // By serial.
  size_t lost_count_ = 0;
  std::vector<Fault> faults_;
  uint64_t last_sequence_ = 0;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_FAULT_TABLE_H_
