// What the host's kernel reported of the pool's memdevs, until the manager has it for good.
//
// Each event gets a sequence number, is reported once in each session, and again in the next
// one until an EventsSeen says that it is durable. The kernel repeats itself (each look at a poison
// list reports all of it): a loss of bytes is news once, for as long as its memdev is there;
// any other event once a minute. Events are equal that have the same serial, kind, DPA and length.
//
// Bounded: kMaxWaiting events that the manager has not seen (the oldest of those without lost bytes
// go first), kMaxKnown that are known. A loss of bytes for which there is no room is not
// remembered, so that the next look at the poison list brings it again.
//
// Not thread-safe; owned by AgentCore.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_HOST_EVENT_LOG_H_
#define CXLPOOL_HOST_AGENT_SERVICE_HOST_EVENT_LOG_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cxlpool/v1/host_service.pb.h"
#include "host-agent/model/observation.h"
#include "host-agent/service/attachments.h"

namespace cxlpool::agent {

inline constexpr int kMaxEventsAReport = 256;
inline constexpr absl::Duration kRepeatEvent = absl::Minutes(1);

class HostEventLog {
 public:
  static constexpr size_t kMaxWaiting = 1024;
  static constexpr size_t kMaxKnown = 4096;

  // Takes an event, without `sequence`; false if it is no news. `now`: Clock::Elapsed.
  bool Add(v1::HostEvent event, absl::Duration now);

  // A new session: nothing has been reported in it.
  void Rewind() { reported_ = 0; }

  // Those up to `sequence` need not be reported again.
  void OnSeen(uint64_t sequence);

  // Puts up to kMaxEventsAReport events that were not sent in this session into an empty report,
  // and counts them as sent. False: there are none.
  bool TakeUnsent(v1::Report& report);

  // Forgets what was reported of memdevs that are gone: a serial does not come back.
  void ForgetGone(const HostObservation& host);

 private:
  struct Key {
    uint64_t serial = 0;
    int kind = 0;
    uint64_t dpa_bytes = 0;
    uint64_t length_bytes = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Known {
    absl::Duration reported_at;
    bool bytes_lost = false;
  };

  bool MakeRoom(const v1::HostEvent& event, absl::Duration now);

  std::deque<v1::HostEvent> waiting_;  // In order of their sequence.
  std::map<Key, Known> known_;
  uint64_t last_sequence_ = 0;
  uint64_t reported_ = 0;  // Up to which sequence in this session.
};

// A SURPRISE_REMOVAL for each memdev that was there and is not, though an Offer names it and does
// not want it ejected: no one had asked for that.
std::vector<v1::HostEvent> SurpriseRemovals(const HostObservation& before,
                                            const HostObservation& now,
                                            const AttachmentTable& attachments);

// For the log.
std::string DescribeEvent(const v1::HostEvent& event);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_HOST_EVENT_LOG_H_
