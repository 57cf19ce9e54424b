#include "host-agent/service/host_event_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cxlpool::agent {
namespace {

// Whether the manager wants a memdev to stay: some Offer names it and does not want it ejected.
// Orphans, which no Offer names, are nobody's to want.
bool IsOfferedAndNotToGo(uint64_t serial, const AttachmentTable& attachments) {
  for (const auto& [key, attachment] : attachments.all()) {
    if (key == kOrphans) continue;
    for (const Segment& segment : attachment.segments) {
      if (segment.desired.want == Want::kEjected) continue;
      const auto& targets = segment.desired.targets;
      if (std::any_of(targets.begin(), targets.end(),
                      [serial](const DesiredTarget& t) { return t.serial == serial; })) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

// Bytes that were lost are told of once, and stay known until their memdev is gone. Everything else
// is told of again after a minute, so that a fault that goes on does not look as if it had ended.
// Nothing is noted of an event that finds no room: the next one like it gets another chance.
bool HostEventLog::Add(v1::HostEvent event, absl::Duration now) {
  const Key key = {event.serial(), event.kind(), event.dpa_bytes(), event.length_bytes()};
  const auto known = known_.find(key);
  if (known != known_.end()) {
    if (known->second.bytes_lost && event.bytes_lost()) return false;
    if (!event.bytes_lost() && now - known->second.reported_at < kRepeatEvent) return false;
  }
  if (!MakeRoom(event, now)) return false;
  Known& entry = known_[key];
  entry.reported_at = now;
  entry.bytes_lost |= event.bytes_lost();
  event.set_sequence(++last_sequence_);
  waiting_.push_back(std::move(event));
  return true;
}

// Whether there is room for `event`. Of what is known, entries go that would be repeated by now
// anyway. Of what waits for the manager, the oldest event without lost bytes gives way, and only to
// one with lost bytes.
bool HostEventLog::MakeRoom(const v1::HostEvent& event, absl::Duration now) {
  if (known_.size() >= kMaxKnown) {
    std::erase_if(known_, [now](const auto& entry) {
      return !entry.second.bytes_lost && now - entry.second.reported_at >= kRepeatEvent;
    });
    if (known_.size() >= kMaxKnown) return false;
  }
  if (waiting_.size() < kMaxWaiting) return true;
  const auto lesser = std::find_if(waiting_.begin(), waiting_.end(),
                                   [](const v1::HostEvent& e) { return !e.bytes_lost(); });
  if (lesser == waiting_.end() || !event.bytes_lost()) return false;
  waiting_.erase(lesser);
  return true;
}

void HostEventLog::OnSeen(uint64_t sequence) {
  while (!waiting_.empty() && waiting_.front().sequence() <= sequence) waiting_.pop_front();
}

// Where all that waits has been sent, events that gave way to others (MakeRoom) count as sent, too:
// their sequences never come.
bool HostEventLog::TakeUnsent(v1::Report& report) {
  if (reported_ == last_sequence_) return false;
  auto next = std::upper_bound(
      waiting_.begin(), waiting_.end(), reported_,
      [](uint64_t reported, const v1::HostEvent& event) { return reported < event.sequence(); });
  for (; next != waiting_.end() && report.events_size() < kMaxEventsAReport; ++next) {
    *report.add_events() = *next;
  }
  reported_ = next == waiting_.end() ? last_sequence_ : std::prev(next)->sequence();
  return report.events_size() > 0;
}

void HostEventLog::ForgetGone(const HostObservation& host) {
  std::erase_if(known_, [&host](const auto& entry) {
    return FindMemdev(host, entry.first.serial) == nullptr;
  });
}

std::vector<v1::HostEvent> SurpriseRemovals(const HostObservation& before,
                                            const HostObservation& now,
                                            const AttachmentTable& attachments) {
  std::vector<v1::HostEvent> events;
  for (const ObservedMemdev& memdev : before.memdevs) {
    if (FindMemdev(now, memdev.serial) != nullptr ||
        !IsOfferedAndNotToGo(memdev.serial, attachments)) {
      continue;
    }
    v1::HostEvent event;
    event.set_serial(memdev.serial);
    event.set_kind(v1::HostEvent::SURPRISE_REMOVAL);
    event.set_severity(v1::HostEvent::FATAL);
    event.set_text(absl::StrCat(memdev.name, " in slot ", memdev.slot, " is gone"));
    events.push_back(std::move(event));
  }
  return events;
}

// "serial 0x51 at 0x1000 + 64: media error (bytes lost)"; the place only where there is a length.
std::string DescribeEvent(const v1::HostEvent& event) {
  std::string where;
  if (event.length_bytes() != 0) {
    where = absl::StrCat(" at 0x", absl::Hex(event.dpa_bytes()), " + ", event.length_bytes());
  }
  return absl::StrCat("serial 0x", absl::Hex(event.serial()), where, ": ", event.text(),
                      event.bytes_lost() ? " (bytes lost)" : "");
}

}  // namespace cxlpool::agent
