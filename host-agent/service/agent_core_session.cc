// AgentCore's side of the session with the manager: what it hears, and what it takes from there.
#include <utility>

#include "host-agent/service/agent_core.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr size_t kMaxWaitingHellos = 8;
constexpr absl::Duration kSayAgain = absl::Minutes(10);  // What only an operator can change.

}  // namespace

void AgentCore::MakeHello(DoneWith<v1::Hello> done) {
  if (hellos_.size() >= kMaxWaitingHellos) {
    return std::move(done)(absl::ResourceExhaustedError("too many sessions are being opened"));
  }
  hellos_.push_back(std::move(done));
  Look();
}

void AgentCore::AnswerHellos(const absl::Status& status) {
  if (hellos_.empty()) return;
  std::vector<DoneWith<v1::Hello>> hellos = std::exchange(hellos_, {});
  if (!status.ok()) {
    for (DoneWith<v1::Hello>& done : hellos) std::move(done)(status);
    return;
  }
  v1::Hello hello = TellAll();
  DoneWith<v1::Hello> last = std::move(hellos.back());
  hellos.pop_back();
  for (DoneWith<v1::Hello>& done : hellos) std::move(done)(hello);
  std::move(last)(std::move(hello));
}

v1::Hello AgentCore::TellAll() {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_host(options_.host);
  hello.set_incarnation(options_.incarnation);
  hello.set_agent_id(options_.agent_id);
  hello.set_agent_version(options_.agent_version);
  hello.set_kernel_release(options_.kernel_release);
  *hello.mutable_inventory() = InventoryOf(observation_, prepared_);
  reported_inventory_ = observation_;
  reported_prepared_ = prepared_;
  reported_segments_.clear();
  ForEachStatus(attachments_, opens_, observation_,
                [&](const SegmentStatus& status, uint32_t opens) {
                  FillReport(status, opens, *hello.add_segments());
                  reported_segments_[status.serial].last = status;
                });
  return hello;
}

void AgentCore::OnWelcome(v1::Welcome welcome) {
  LogInfo(kSubject, "session with manager ", welcome.manager_version(), ", ", welcome.offers_size(),
          " offers");
  session_up_ = true;
  refused_ = absl::OkStatus();
  last_lost_.clear();
  if (!CXLPOOL_MUTANT("events-are-told-once")) events_.Rewind();
  welcomed_ = true;
  if (!CXLPOOL_MUTANT("granule-is-not-taken")) pool_granule_bytes_ = welcome.granule_bytes();
  std::vector<AttachmentKey> offered;
  for (v1::Offer& offer : *welcome.mutable_offers()) {
    offered.push_back(KeyOf(offer));
    TakeOffer(std::move(offer));
  }
  if (!CXLPOOL_MUTANT("keep-old-offers")) attachments_.KeepOnly(offered);
  if (on_offers_) on_offers_(nullptr);
  Advance();
}

void AgentCore::OnOffer(v1::Offer offer) {
  const AttachmentKey key = KeyOf(offer);
  if (!TakeOffer(std::move(offer))) return;
  if (on_offers_) on_offers_(&key);
  Advance();
}

bool AgentCore::TakeOffer(v1::Offer offer) {
  const AttachmentKey key = KeyOf(offer);
  const absl::Status status = attachments_.Put(std::move(offer));
  if (status.ok()) return true;
  LogError(kSubject, status.message());
  v1::Report report;
  v1::SegmentReport& segment = *report.add_segments();
  segment.set_region_tag(key.tag);
  segment.set_attachment_generation(key.generation);
  *segment.mutable_error() = ErrorOf(status);
  link_->Send(std::move(report));
  return false;
}

void AgentCore::OnWithdraw(const v1::Withdraw& withdraw) {
  const AttachmentKey key = {.generation = withdraw.attachment_generation(),
                             .tag = withdraw.region_tag()};
  attachments_.Erase(key);
  if (on_offers_) on_offers_(&key);
  Advance();
}

void AgentCore::OnLost(absl::Status why, bool permanent) {
  // The link dials for as long as it takes: each reason is said once, not once a try; one that only
  // an operator can change, again after kSayAgain.
  const std::string said(why.message());
  const absl::Duration now = clock_->Elapsed();
  const bool news = said != last_lost_ || (permanent && now - said_lost_at_ >= kSayAgain);
  if (session_up_ && !permanent) {
    LogWarning(kSubject, "lost the manager: ", said);
  } else if (news && permanent) {
    LogError(kSubject, "the manager refuses this agent: ", said);
  } else if (news && !ReasonOf(why).empty()) {
    LogError(kSubject, "no session with the manager: ", said);
  }
  if (news) said_lost_at_ = now;
  last_lost_ = said;
  session_up_ = false;
  refused_ = permanent ? std::move(why) : absl::OkStatus();
}

void AgentCore::SendReports() {
  if (!session_up_) return;
  SendEvents();
  v1::Report changes;
  ++report_round_;
  ForEachStatus(attachments_, opens_, observation_,
                [&](const SegmentStatus& status, uint32_t opens) {
                  ReportedSegment& reported = reported_segments_[status.serial];
                  reported.round = report_round_;
                  reported.next.reset();
                  if (reported.last == status) return;
                  FillReport(status, opens, *changes.add_segments());
                  reported.next = status;
                });
  for (auto it = reported_segments_.begin(); it != reported_segments_.end();) {
    auto& [serial, reported] = *it;
    if (reported.round == report_round_) {
      if (reported.next.has_value()) reported.last = std::move(reported.next);
      ++it;
      continue;
    }
    if (FindMemdev(observation_, serial) == nullptr) {
      v1::SegmentReport& gone = *changes.add_segments();  // Was found, or withdrawn; is no more.
      gone.set_serial(serial);
      gone.set_state(v1::SEGMENT_ABSENT);
    }
    it = reported_segments_.erase(it);
  }
  if (InventoryChanged(reported_inventory_, observation_) || reported_prepared_ != prepared_) {
    reported_inventory_ = observation_;
    reported_prepared_ = prepared_;
    *changes.mutable_inventory() = InventoryOf(observation_, prepared_);
  }
  if (changes.segments_size() == 0 && !changes.has_inventory()) return;
  if (probe_) probe_("before-Report");
  link_->Send(std::move(changes));
}

}  // namespace cxlpool::agent
