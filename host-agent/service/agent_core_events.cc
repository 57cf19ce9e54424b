// AgentCore's share in what the kernel tells by itself: logged, told to the manager and to
// applications, and a reason to look.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "host-agent/service/agent_core.h"
#include "proto/support/log.h"

namespace cxlpool::agent {
namespace {

constexpr char kEventsSubject[] = "events";

std::string Describe(const v1::HostEvent& event) {
  std::string where;
  if (event.length_bytes() != 0) {
    where = absl::StrCat(" at 0x", absl::Hex(event.dpa_bytes()), " + ", event.length_bytes());
  }
  return absl::StrCat("serial 0x", absl::Hex(event.serial()), where, ": ", event.text(),
                      event.bytes_lost() ? " (bytes lost)" : "");
}

bool SameMemdevs(const HostObservation& a, const HostObservation& b) {
  return std::equal(
      a.memdevs.begin(), a.memdevs.end(), b.memdevs.begin(), b.memdevs.end(),
      [](const ObservedMemdev& x, const ObservedMemdev& y) { return x.serial == y.serial; });
}

}  // namespace

void AgentCore::TakeEvents(std::vector<v1::HostEvent> events) {
  if (stopped_) return;
  bool is_news = events.empty();  // Some were lost.
  for (v1::HostEvent& event : events) is_news |= AddEvent(std::move(event));
  if (!is_news) return;
  faults_.Place(attachments_, observation_);
  if (observed_) SendReports();
  TellOfChange();
  look_again_ = looking_;
  Look();
}

bool AgentCore::AddEvent(v1::HostEvent event) {
  if (!events_.Add(event, clock_->Elapsed())) return false;
  LogWarning(kEventsSubject, Describe(event));
  faults_.Add(event);
  return true;
}

// Called before `seen` takes the place of what was seen last.
void AgentCore::CompareMemdevs(const HostObservation& seen) {
  if (!observed_ || SameMemdevs(observation_, seen)) return;
  for (v1::HostEvent& event : SurpriseRemovals(observation_, seen, attachments_)) {
    AddEvent(std::move(event));
  }
  events_.ForgetGone(seen);
}

void AgentCore::OnEventsSeen(const v1::EventsSeen& seen) { events_.OnSeen(seen.sequence()); }

void AgentCore::SendEvents() {
  while (true) {
    v1::Report report;
    if (!events_.Tell(report)) return;
    link_->Send(std::move(report));
  }
}

}  // namespace cxlpool::agent
