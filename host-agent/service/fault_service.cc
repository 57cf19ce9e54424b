#include "host-agent/service/fault_service.h"

#include <algorithm>
#include <utility>

namespace cxlpool::agent {

void FaultService::Ask(uint64_t connection, const v1::LocalFaultsRequest& request, MayOpen may_open,
                       FaultsDone done) {
  const absl::Duration wait = std::min(absl::Milliseconds(request.wait_ms()), kMaxFaultsWait);
  Waiting waiting = {.after = request.after(),
                     .may_open = std::move(may_open),
                     .done = std::move(done),
                     .deadline = clock_->Elapsed() + wait};
  // Of an agent before this one: it does not know what came since.
  if (waiting.after > core_->faults().last_sequence()) waiting.after = 0;
  if (TryToFinish(waiting)) return;
  waiting_.emplace(connection, std::move(waiting));
  executor_->PostAfter(wait, [this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) Serve();
  });
}

void FaultService::Serve() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    it = TryToFinish(it->second) ? waiting_.erase(it) : std::next(it);
  }
}

bool FaultService::TryToFinish(Waiting& waiting) {
  const bool is_news = core_->faults().last_sequence() > waiting.after;
  if (!is_news && clock_->Elapsed() < waiting.deadline) return false;
  v1::LocalFaultsResponse response = Collect(waiting);
  if (response.faults_size() == 0 && clock_->Elapsed() < waiting.deadline) {
    waiting.after = response.last();  // Of others' Regions.
    return false;
  }
  std::move(waiting.done)(std::move(response));
  return true;
}

v1::LocalFaultsResponse FaultService::Collect(const Waiting& waiting) const {
  const FaultTable& table = core_->faults();
  v1::LocalFaultsResponse response;
  response.set_last(table.last_sequence());
  size_t bytes = 0;
  for (const FaultTable::Fault& fault : table.faults()) {
    if (fault.sequence <= waiting.after) continue;
    const auto attachment = core_->attachments().all().find(fault.key);
    if (attachment == core_->attachments().all().end() ||
        !waiting.may_open(attachment->second.offer)) {
      continue;
    }
    if (response.faults_size() == kMaxFaultsAnAnswer || bytes > kMaxFaultsBytes) {
      response.set_last(fault.sequence - 1);
      break;
    }
    v1::LocalFault& entry = *response.add_faults();
    entry.set_name(attachment->second.offer.region_name());
    entry.set_tag(fault.key.tag);
    entry.set_region_offset_bytes(fault.range.offset_bytes);
    entry.set_length_bytes(fault.range.length_bytes);
    entry.set_message(fault.message);
    bytes += entry.ByteSizeLong();
  }
  return response;
}

}  // namespace cxlpool::agent
