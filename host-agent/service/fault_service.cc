#include "host-agent/service/fault_service.h"

#include <algorithm>
#include <string>
#include <utility>

#include "proto/support/mutant.h"

namespace cxlpool::agent {
namespace {

// Of faults and of sizes together: they share an answer's room.
int Count(const v1::LocalFaultsResponse& response) {
  return response.faults_size() + response.sizes_size();
}

}  // namespace

// Answers at once if there is news, otherwise when there is some or when the time that the caller
// waits is over.
void FaultService::Ask(uint64_t connection, const v1::LocalFaultsRequest& request, MayOpen may_open,
                       FaultsDone done) {
  const absl::Duration wait = std::min(absl::Milliseconds(request.wait_ms()), kMaxFaultsWait);
  Waiting waiting = {.after = request.after(),
                     .may_open = std::move(may_open),
                     .done = std::move(done),
                     .deadline = clock_->Elapsed() + wait};
  // A number that this agent has not reached came from an agent before it: begin at the start.
  if (waiting.after > core_->faults().last_sequence()) waiting.after = 0;
  if (TryToFinish(waiting)) return;
  const absl::Duration deadline = waiting.deadline;
  waiting_.emplace(connection, std::move(waiting));
  timer_.By(deadline);
}

// Answers whoever can be answered now. Says when the first of the others must be.
absl::Duration FaultService::Serve() {
  absl::Duration next = absl::InfiniteDuration();
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const bool finished = TryToFinish(it->second);
    if (!finished) next = std::min(next, it->second.deadline);
    it = finished ? waiting_.erase(it) : std::next(it);
  }
  return next;
}

// Whether it was answered. News that the caller may not hear is no answer: it waits on behind it.
bool FaultService::TryToFinish(Waiting& waiting) {
  const bool is_news = core_->faults().last_sequence() > waiting.after;
  if (!is_news && clock_->Elapsed() < waiting.deadline) return false;
  v1::LocalFaultsResponse response = Collect(waiting);
  if (Count(response) == 0 && clock_->Elapsed() < waiting.deadline) {
    waiting.after = response.last();  // Of others' Regions.
    return false;
  }
  std::move(waiting.done)(std::move(response));
  return true;
}

// Faults and changes of size that came after that number.
std::vector<FaultService::News> FaultService::After(uint64_t sequence) const {
  std::vector<News> news;
  for (const FaultTable::Fault& fault : core_->faults().faults()) {
    if (fault.sequence > sequence) news.push_back({fault.sequence, &fault.key, &fault});
  }
  for (const auto& [key, size] : core_->sizes().sizes()) {
    if (size.sequence > sequence) news.push_back({size.sequence, &key, nullptr, size.bytes});
  }
  // An answer may have room for the first of them only, and the next begins behind these.
  if (!CXLPOOL_MUTANT("news-out-of-order")) {
    std::sort(news.begin(), news.end(),
              [](const News& a, const News& b) { return a.sequence < b.sequence; });
  }
  return news;
}

// As much as a packet has room for. What the caller has no right to know is left out, and counts as
// reported in `last`, so that it is not looked at again.
v1::LocalFaultsResponse FaultService::Collect(const Waiting& waiting) const {
  v1::LocalFaultsResponse response;
  response.set_last(core_->faults().last_sequence());
  size_t bytes = 0;
  for (const News& news : After(waiting.after)) {
    const auto attachment = core_->attachments().all().find(*news.key);
    if (attachment == core_->attachments().all().end()) continue;
    const bool is_size = news.fault == nullptr;
    if (!(is_size && CXLPOOL_MUTANT("sizes-for-everybody")) &&
        !waiting.may_open(attachment->second.offer)) {
      continue;
    }
    if (Count(response) == kMaxFaultsAnAnswer || bytes > kMaxFaultsBytes) {
      response.set_last(news.sequence - 1);
      break;
    }
    const std::string& name = attachment->second.offer.region_name();
    if (is_size) {
      v1::LocalSize& entry = *response.add_sizes();
      entry.set_name(name);
      entry.set_tag(news.key->tag);
      entry.set_size_bytes(news.size_bytes);
      bytes += entry.ByteSizeLong();
      continue;
    }
    v1::LocalFault& entry = *response.add_faults();
    entry.set_name(name);
    entry.set_tag(news.key->tag);
    entry.set_region_offset_bytes(news.fault->range.offset_bytes);
    entry.set_length_bytes(news.fault->range.length_bytes);
    entry.set_message(news.fault->message);
    bytes += entry.ByteSizeLong();
  }
  return response;
}

}  // namespace cxlpool::agent
