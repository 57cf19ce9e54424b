// Runs the operator's drain hook before a segment is taken from its users, and again, after a
// backoff, when the segment is still found held.
//
// The hook is no rung: it holds up its own segment only, for no longer than its own deadline, and
// its failure is only reported. Which runs there were is noted in the Segment (attachments.h), so
// that it goes with the segment's want.
//
// Runs wholly on the core's thread, like AgentCore, which owns it.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_DRAIN_KEEPER_H_
#define CXLPOOL_HOST_AGENT_SERVICE_DRAIN_KEEPER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "host-agent/ports/drain_hook.h"
#include "host-agent/ports/host_memory.h"
#include "host-agent/service/agent_metrics.h"
#include "host-agent/service/attachments.h"
#include "host-agent/service/opens.h"
#include "host-agent/service/posted.h"

namespace cxlpool::agent {

class DrainKeeper {
 public:
  // What it looks at outlives it. `on_drained` is called when a run has ended: the segment may be
  // taken down now.
  DrainKeeper(Executor* executor, Clock* clock, HostMemory* memory, AttachmentTable* attachments,
              const OpensTable* opens, const HostObservation* observation, AgentMeters* meters,
              std::function<void()> on_drained)
      : executor_(executor),
        clock_(clock),
        memory_(memory),
        attachments_(attachments),
        opens_(opens),
        observation_(observation),
        meters_(meters),
        on_drained_(std::move(on_drained)) {}

  // It outlives this. Null, as at first: no segment waits.
  void SetHook(DrainHook* hook) { hook_ = hook; }

  // Whether the segment has to wait for the hook before a rung takes it from its users. Begins a
  // run if one is due. `region_serial`: as in HostMemory::FindHolders.
  bool MustWait(const AttachmentKey& key, const Segment& segment, uint64_t region_serial);

  // When the hook may run again for a segment that is still held; InfiniteDuration: no run is
  // planned.
  absl::Duration NextRun(const Segment& segment) const;

  // To be called with each error of a segment. Where the error says that somebody holds the memory,
  // the hook is run again before the next try. Answers the error, completed by how the last run
  // failed.
  static v1::SegmentError NoteError(Segment& segment, v1::SegmentError error);

 private:
  static constexpr char kSubject[] = "agent";  // Whose lines in the log these are.

  void Run(const AttachmentKey& key, const Segment& segment, uint64_t region_serial);
  DrainRequest RequestFor(const AttachmentKey& key, const Segment& segment) const;
  void OnDrained(const AttachmentKey& key, uint64_t first_serial, const absl::Status& status);

  template <typename F>
  auto OnCore(F function) {
    return Posted(executor_, alive_, std::move(function));
  }

  Executor* const executor_;
  Clock* const clock_;
  HostMemory* const memory_;
  AttachmentTable* const attachments_;
  const OpensTable* const opens_;
  const HostObservation* const observation_;
  AgentMeters* const meters_;
  const std::function<void()> on_drained_;
  DrainHook* hook_ = nullptr;

  std::set<std::pair<AttachmentKey, uint64_t>> running_;  // Segments, by first serial.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_DRAIN_KEEPER_H_
