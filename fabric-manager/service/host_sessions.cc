#include "fabric-manager/service/host_sessions.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/model/space/bytes.h"
#include "fabric-manager/service/holders.h"
#include "proto/support/certificate.h"
#include "proto/support/check.h"
#include "proto/support/cxl_host.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxBridges = 256;
constexpr size_t kMaxSlotsPerBridge = kSharedSlots;
constexpr int kMaxSharedDevices = 4096;
constexpr int kMaxGrants = 4 * kSharedSlots;
constexpr size_t kMaxName = 64;
constexpr size_t kMaxUnfitReason = 1024;
constexpr size_t kMaxAgentVersion = 64;
constexpr size_t kMaxKernelRelease = 128;
// Each costs a new view of all hosts.
constexpr int kShownPerTick = 32;
constexpr absl::Duration kLogRefusalsEvery = absl::Seconds(1);
constexpr uint64_t kMaxUnitBytes = uint64_t{64} << 30;
// Linux makes host regions of whole 256 MiB. What is larger than that and so many granules of the
// pool's devices, or than 2 GiB, would round up the Regions of every host.
constexpr uint64_t kUsualRegionGranule = uint64_t{256} << 20;
constexpr uint64_t kMaxRegionGranule = uint64_t{2} << 30;
constexpr uint64_t kMaxGranulesOfDevices = 8;

// Of a moment that was noted by Clock::Elapsed.
absl::Time TimeOf(const Clock& clock, int64_t elapsed_ns) {
  return clock.Now() - (clock.Elapsed() - absl::Nanoseconds(elapsed_ns));
}

Bridge ToBridge(const v1::BridgeInventory& in) {
  Bridge bridge{.name = in.name(),
                .slots = {in.slots().begin(), in.slots().end()},
                .max_regions = in.max_regions(),
                .depth_unknown = in.depth_unknown() && !CXLPOOL_MUTANT("depth-unknown-is-lost"),
                .live_regions = in.live_regions(),
                .blocked = in.blocked(),
                .blocking_serial = in.blocking_serial(),
                .window_bytes = in.window_bytes(),
                .free_window_bytes = CXLPOOL_MUTANT("window-for-free-window")
                                         ? in.window_bytes()
                                         : in.free_window_bytes(),
                .any_order = in.any_order()};
  return bridge;
}

absl::Status CheckInventory(const v1::HostInventory& inventory) {
  bool good = static_cast<size_t>(inventory.bridges_size()) <= kMaxBridges;
  std::vector<uint32_t> slots;
  for (const v1::BridgeInventory& bridge : inventory.bridges()) {
    good = good && static_cast<size_t>(bridge.slots_size()) <= kMaxSlotsPerBridge &&
           bridge.name().size() <= kMaxName;
    if (good) slots.insert(slots.end(), bridge.slots().begin(), bridge.slots().end());
  }
  std::sort(slots.begin(), slots.end());
  good = good && std::adjacent_find(slots.begin(), slots.end()) == slots.end();
  // Units of everybody's Regions follow these: an agent must not be able to spoil them.
  for (uint64_t unit : {inventory.region_granule_bytes(), inventory.memory_block_bytes()}) {
    good = good && unit <= kMaxUnitBytes && (unit & (unit - 1)) == 0;
  }
  if (good) return absl::OkStatus();
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_HELLO",
                absl::StrCat("the inventory has more than ", kMaxBridges,
                             " host bridges, more than ", kMaxSlotsPerBridge,
                             " slots on one, a slot twice, or a unit that is no power of two"),
                "report what the host really has");
}

// The pool's largest granule: what Regions are multiples of, no matter which host attaches them.
uint64_t GranuleOf(const PoolState& state) {
  uint64_t granule = state.limits().extent_granule_bytes;
  for (const auto& [id, device] : state.devices()) {
    granule = std::max(granule, device.granule_bytes);
  }
  return granule;
}

// Why a host with this granule could attach nothing without harm to the others; empty: it can.
std::string WhyUnfit(const PoolState& state, uint64_t region_granule_bytes) {
  const uint64_t most = std::min(
      kMaxRegionGranule, std::max(kUsualRegionGranule, GranuleOf(state) * kMaxGranulesOfDevices));
  if (region_granule_bytes <= most) return "";
  return absl::StrCat("its agent reports host regions in multiples of ",
                      FormatBytes(region_granule_bytes), "; at most ", FormatBytes(most),
                      " go with this pool: see `cxlpool-agent check` there");
}

}  // namespace

HostSessions::HostSessions(Options options, Executor* executor, Clock* clock, Writer* writer)
    : options_(options), executor_(executor), clock_(clock), writer_(writer) {}

void HostSessions::Start(Listener listener) {
  listener_ = std::move(listener);
  Tick();
}

// Whether a peer with this identity may speak for the host that its Hello names. The certificate is
// judged before the host's record: who has no right to an answer gets the same one in every case.
absl::Status HostSessions::Admit(const SessionIdentity& identity, const v1::Hello& hello,
                                 std::string& host) const {
  const std::string versions = absl::StrCat("the agent speaks protocol ", hello.protocol_version(),
                                            ", this manager ", kHostProtocolVersion);
  if (hello.protocol_version() < kHostProtocolVersion) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "PROTOCOL_TOO_OLD", versions,
        "update cxlpool-agent on this host",
        {{"min", absl::StrCat(kHostProtocolVersion)}, {"max", absl::StrCat(kHostProtocolVersion)}});
  }
  if (hello.protocol_version() > kHostProtocolVersion) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "PROTOCOL_TOO_NEW", versions,
        "update cxlpool-fm before its agents",
        {{"min", absl::StrCat(kHostProtocolVersion)}, {"max", absl::StrCat(kHostProtocolVersion)}});
  }
  auto id = ParseResourceName("hosts", hello.host());
  if (!id.ok()) return id.status();
  host = *std::move(id);
  if (hello.incarnation().empty() || hello.incarnation().size() > 64 ||
      !ParseUuid(hello.agent_id()).ok()) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_HELLO",
                  "hello needs the kernel's boot id as incarnation and a UUID as agent_id",
                  "update cxlpool-agent on this host");
  }
  if (absl::Status status = CheckInventory(hello.inventory()); !status.ok()) return status;
  // As in every later report. Each is looked for on the thread that serves all others.
  if (static_cast<size_t>(hello.segments_size()) > options_.max_segments &&
      !CXLPOOL_MUTANT("hello-without-end")) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_HELLO",
                  absl::StrCat("hello reports ", hello.segments_size(), " segments; at most ",
                               options_.max_segments, " are taken"),
                  "update cxlpool-agent on this host");
  }
  if (!identity.insecure_local) {
    absl::Status status =
        CheckRevoked(writer_->state().access_rules().revocations, identity.uri, identity.serial);
    if (!status.ok()) return status;
  }
  const Host* known = writer_->state().FindHost(host);
  if (!identity.insecure_local &&
      (known == nullptr || known->retired || identity.uri != known->identity)) {
    // One answer for a host that is not there and one that is somebody else's: a host learns
    // nothing of others by asking.
    return Refuse(absl::StatusCode::kPermissionDenied, "WRONG_IDENTITY",
                  absl::StrCat("the certificate is for ", identity.uri, ", and host \"", host,
                               "\" is not enrolled with it"),
                  // An identity of our own is its host's and cannot be enrolled for another.
                  absl::StartsWith(identity.uri, "cxlpool://")
                      ? absl::StrCat("give the agent the certificate of this host: `cxlpool pki "
                                     "issue host ",
                                     host, "`")
                      : absl::StrCat("give the agent the certificate of this host, or run `cxlpool "
                                     "host enrol ",
                                     host, " --identity ", identity.uri, "`"),
                  {{"host", host}});
  }
  if (known == nullptr) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_HOST",
                  absl::StrCat("host \"", host, "\" is not enrolled"),
                  absl::StrCat("run `cxlpool host enrol ", host, "`"), {{"host", host}});
  }
  if (known->retired) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "HOST_RETIRED",
                  absl::StrCat("host \"", host, "\" is retired"),
                  absl::StrCat("run `cxlpool host enrol ", host, "` to bring it back"),
                  {{"host", host}});
  }
  return absl::OkStatus();
}

absl::Status HostSessions::CheckRival(const SessionPeer& peer, const v1::Hello& hello,
                                      const std::string& host) const {
  const auto session = sessions_.find(host);
  if (!CXLPOOL_MUTANT("two-agents-of-one-boot") && session != sessions_.end() &&
      session->second.incarnation == hello.incarnation() &&
      session->second.agent_id != hello.agent_id()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "SESSION_ACTIVE",
                  absl::StrCat("another agent of host \"", host, "\" is connected from ",
                               session->second.peer->address(), "; this one is ", peer.address()),
                  "stop one of the two agents",
                  {{"host", host}, {"peer", session->second.peer->address()}});
  }
  return absl::OkStatus();
}

// The newest session of a host counts: one that it has is ended first, so that what the old agent
// still sends is nobody's. The Welcome carries every Offer that stands, and the agent's own words
// about its segments are complete.
void HostSessions::OnHello(std::shared_ptr<SessionPeer> peer, const SessionIdentity& identity,
                           const v1::Hello& hello) {
  std::string host;
  absl::Status status = Admit(identity, hello, host);
  if (status.ok()) status = CheckRival(*peer, hello, host);
  Meters& meters = writer_->meters();
  if (!status.ok()) {
    meters.sessions_refused.Add();
    meters.refusals.Add(ReasonOrCode(status));
    NoteRefused(peer->address(), status);
    peer->Close(status);
    return;
  }
  if (sessions_.contains(host)) meters.sessions_replaced.Add();
  meters.sessions_opened.Add();
  Drop(host, Refuse(absl::StatusCode::kAborted, "SESSION_REPLACED",
                    absl::StrCat("a newer session of host \"", host, "\" began"),
                    "nothing: the newest session counts"));
  CXLPOOL_CHECK(!sessions_.contains(host), "host ", host,
                " got a session while its last one ended");
  const Host& known = *writer_->state().FindHost(host);
  Session& session = sessions_[host];
  session = Session{.number = next_session_++,
                    .peer = std::move(peer),
                    .incarnation = hello.incarnation(),
                    .agent_id = hello.agent_id(),
                    .identity = identity,
                    .host_key = known.key,
                    .enrolled_as = known.identity};
  session.peer->host_ = host;
  session.peer->session_ = session.number;
  OnHeartbeat(*session.peer, session.number);
  {
    const LogScope scope({.host = host});
    LogInfo("sessions", "host ", host, " is online: session ", session.number, ", agent ",
            CutText(hello.agent_version(), kMaxAgentVersion), ", kernel ",
            CutText(hello.kernel_release(), kMaxKernelRelease));
  }
  TakeInventory(host, hello.inventory(), &hello);
  WarnOf(host, session);
  v1::ManagerMessage message;
  message.set_session(session.number);
  v1::Welcome& welcome = *message.mutable_welcome();
  welcome.set_protocol_version(kHostProtocolVersion);
  welcome.set_heartbeat_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(options_.heartbeat)));
  const absl::Duration lease =
      CXLPOOL_MUTANT("lease-is-the-heartbeat") ? options_.heartbeat : options_.lease;
  welcome.set_lease_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(lease)));
  welcome.set_manager_version(CXLPOOL_VERSION);
  welcome.set_granule_bytes(GranuleOf(writer_->state()));
  welcome.set_epoch(epoch_);
  for (const auto& [generation, offer] : offers_[host]) *welcome.add_offers() = offer;
  session.peer->Send(std::move(message));
  listener_.on_session(host, true);
  listener_.on_segments(host, hello.segments(), !CXLPOOL_MUTANT("hello-is-not-complete"));
}

// An agent that is refused dials again and again: a line a second says it all.
void HostSessions::NoteRefused(const std::string& address, const absl::Status& why) {
  const absl::Duration now = clock_->Elapsed();
  if (now - refusal_logged_ < kLogRefusalsEvery) {
    ++refusals_not_logged_;
    return;
  }
  refusal_logged_ = now;
  const uint64_t others = std::exchange(refusals_not_logged_, 0);
  LogWarning(
      "sessions", "refused agent at ", address, ": ", why.message(),
      others == 0 ? "" : absl::StrCat(" (and ", others, " others since the last such line)"));
}

HostSessions::SessionMap::iterator HostSessions::Find(const SessionPeer* peer) {
  const auto it = sessions_.find(peer->host_);
  if (CXLPOOL_MUTANT("hear-old-sessions")) return it;
  return it != sessions_.end() && it->second.peer.get() == peer ? it : sessions_.end();
}

// What an agent says in its current session. An agent that says more than any host can have is cut
// off, so that it costs the others nothing.
void HostSessions::OnMessage(SessionPeer* peer, const v1::AgentMessage& message) {
  const auto it = Find(peer);
  if (it == sessions_.end()) return;
  const bool current = message.session() == it->second.number;
  if (!CXLPOOL_MUTANT("hear-old-sessions") && !current) return;
  OnHeartbeat(*peer, message.session());
  const std::string host = it->first;
  if (message.has_device_answer()) return TakeDeviceAnswer(host, message.device_answer());
  if (!message.has_report()) return;
  const v1::Report& report = message.report();
  if (static_cast<size_t>(report.segments_size()) > options_.max_segments ||
      static_cast<size_t>(report.events_size()) > options_.max_events ||
      (report.has_inventory() && !CheckInventory(report.inventory()).ok())) {
    Drop(host, Refuse(absl::StatusCode::kInvalidArgument, "BAD_REPORT",
                      "a report is larger than any host can be", "update cxlpool-agent"));
    return;
  }
  if (report.has_inventory() && !CXLPOOL_MUTANT("inventory-of-hello-stays")) {
    TakeInventory(host, report.inventory(), nullptr);
  }
  if (report.has_holders()) {
    HostRuntime runtime = writer_->state().Runtime(host);
    runtime.holders = TakeHolders(writer_->state(), host, report.holders(), clock_->Now());
    writer_->SetRuntime(host, std::move(runtime));
  }
  listener_.on_segments(host, report.segments(), false);
  if (!report.events().empty() && !CXLPOOL_MUTANT("events-end-here")) {
    listener_.on_events(host, report.events());
  }
}

void HostSessions::TakeDeviceAnswer(const std::string& host, const v1::DeviceAnswer& answer) {
  const v1::DeviceLook& look = answer.look();
  if (look.devices_size() > kMaxSharedDevices || look.grants_size() > kMaxGrants ||
      look.foreign_size() > kMaxGrants) {
    Drop(host, Refuse(absl::StatusCode::kInvalidArgument, "BAD_REPORT",
                      "an answer about shared devices is larger than any host can be",
                      "update cxlpool-agent"));
    return;
  }
  if (listener_.on_device_answer) listener_.on_device_answer(host, answer);
}

void HostSessions::OnHeartbeat(SessionPeer& peer, uint64_t session) const {
  if (session == 0 || peer.session_.load(std::memory_order_relaxed) != session) return;
  peer.last_heard_ns_.store(absl::ToInt64Nanoseconds(clock_->Elapsed()), std::memory_order_relaxed);
}

void HostSessions::OnClosed(const SessionPeer* peer) {
  const auto it = Find(peer);
  if (it == sessions_.end()) return;
  const std::string host = it->first;
  Drop(host, absl::CancelledError("the stream ended"));
}

// What readers and the planner know of a host from now on. `hello`: it begins a session; null: a
// later report, which says nothing of the agent itself.
void HostSessions::TakeInventory(const std::string& host, const v1::HostInventory& inventory,
                                 const v1::Hello* hello) {
  HostRuntime runtime = writer_->state().Runtime(host);
  runtime.online = true;
  runtime.last_heartbeat = clock_->Now();
  if (hello != nullptr) {
    runtime.incarnation = hello->incarnation();
    runtime.unreached.clear();  // Somebody may have put it right: it is looked at anew.
    runtime.agent_version = CutText(hello->agent_version(), kMaxAgentVersion);
    runtime.kernel_release = CutText(hello->kernel_release(), kMaxKernelRelease);
    const SessionIdentity& identity = sessions_.at(host).identity;
    runtime.certificate_serial = identity.serial;
    if (!CXLPOOL_MUTANT("certificate-end-is-lost")) runtime.certificate_end = identity.end;
  }
  runtime.bridges.clear();
  for (const v1::BridgeInventory& bridge : inventory.bridges()) {
    runtime.bridges.push_back(ToBridge(bridge));
  }
  runtime.memory_block_bytes = inventory.memory_block_bytes();
  runtime.region_granule_bytes = inventory.region_granule_bytes();
  if (!CXLPOOL_MUTANT("page-struct-spare-is-lost")) {
    runtime.page_struct_spare_bytes = inventory.page_struct_spare_bytes();
  }
  runtime.unfit_reason = CutText(inventory.unfit_reason(), kMaxUnfitReason);
  const std::string unfit = WhyUnfit(writer_->state(), inventory.region_granule_bytes());
  if (!unfit.empty() && !CXLPOOL_MUTANT("one-host-sets-everybodys-unit")) {
    if (runtime.unfit_reason.empty()) {
      LogWarning("sessions", "host ", host, " takes nothing: ", unfit);
      runtime.unfit_reason = unfit;
    }
    runtime.region_granule_bytes = 0;  // Not known: it is counted with for nobody.
  }
  writer_->SetRuntime(host, std::move(runtime));
}

void HostSessions::Drop(const std::string& host, const absl::Status& why) {
  const auto it = sessions_.find(host);
  if (it == sessions_.end()) return;
  const std::shared_ptr<SessionPeer> peer = std::move(it->second.peer);
  const Host* known = writer_->state().FindHost(host);
  const bool is_same = known != nullptr && known->key == it->second.host_key;
  if (ReasonOf(why) != "SESSION_REPLACED") writer_->meters().sessions_lost.Add();
  {
    const LogScope scope({.host = host});
    LogInfo("sessions", "host ", host, " is offline: session ", it->second.number,
            " ended: ", why.message());
  }
  sessions_.erase(it);
  peer->session_ = 0;
  peer->Close(why);
  HostRuntime runtime = writer_->state().Runtime(host);
  runtime.online = false;
  // Of many hosts what was shown last may be old, and people are told since when it is away. Of the
  // next host of that id no agent has been heard.
  runtime.last_heartbeat =
      is_same ? TimeOf(*clock_, peer->last_heard_ns_.load(std::memory_order_relaxed))
              : absl::InfinitePast();
  if (!CXLPOOL_MUTANT("holders-outlive-their-session")) runtime.holders = nullptr;
  writer_->SetRuntime(host, std::move(runtime));
  listener_.on_session(host, false);
}

void HostSessions::SetOffer(const std::string& host, v1::Offer offer) {
  v1::Offer& kept = offers_[host][offer.attachment_generation()];
  kept = std::move(offer);
  const auto session = sessions_.find(host);
  if (session == sessions_.end()) return;
  v1::ManagerMessage message;
  message.set_session(session->second.number);
  *message.mutable_offer() = kept;
  session->second.peer->Send(std::move(message));
}

void HostSessions::Withdraw(const std::string& host, const std::string& tag, uint64_t generation) {
  offers_[host].erase(generation);
  const auto session = sessions_.find(host);
  if (session == sessions_.end()) return;
  v1::ManagerMessage message;
  message.set_session(session->second.number);
  message.mutable_withdraw()->set_region_tag(tag);
  message.mutable_withdraw()->set_attachment_generation(generation);
  session->second.peer->Send(std::move(message));
}

void HostSessions::SendEventsSeen(const std::string& host, uint64_t sequence) {
  const auto session = sessions_.find(host);
  if (session == sessions_.end()) return;
  v1::ManagerMessage message;
  message.set_session(session->second.number);
  message.mutable_events_seen()->set_sequence(sequence);
  session->second.peer->Send(std::move(message));
}

void HostSessions::SendTask(const std::string& host, v1::DeviceTask task) {
  const auto session = sessions_.find(host);
  if (session == sessions_.end()) return;
  v1::ManagerMessage message;
  message.set_session(session->second.number);
  *message.mutable_device_task() = std::move(task);
  session->second.peer->Send(std::move(message));
}

void HostSessions::End(const std::string& host, const absl::Status& why) { Drop(host, why); }

absl::StatusOr<v1::CheckSessionResponse> HostSessions::Check(const SessionIdentity& identity,
                                                             const v1::Hello& hello) const {
  std::string host;
  if (absl::Status status = Admit(identity, hello, host); !status.ok()) return status;
  v1::CheckSessionResponse answer;
  answer.set_identity(writer_->state().FindHost(host)->identity);
  answer.set_manager_version(CXLPOOL_VERSION);
  if (const auto session = sessions_.find(host); session != sessions_.end()) {
    answer.set_active_peer(session->second.peer->address());
  }
  return answer;
}

// What Admit would say of the peer today; but where the host's record has changed, the words say
// so.
absl::Status HostSessions::CheckWelcome(const std::string& host, const Session& session) const {
  const PoolState& state = writer_->state();
  // Without TLS nobody shows a certificate that could be revoked.
  if (!session.identity.insecure_local && !CXLPOOL_MUTANT("revoked-sessions-stand")) {
    absl::Status status = CheckRevoked(state.access_rules().revocations, session.identity.uri,
                                       session.identity.serial);
    if (!status.ok()) return status;
  }
  const Host* known = state.FindHost(host);
  // Another one may have its id by now: the agent has to come to that one anew.
  if (known == nullptr || known->key != session.host_key) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_HOST",
                  absl::StrCat("host \"", host, "\" was removed"),
                  absl::StrCat("run `cxlpool host enrol ", host, "`"));
  }
  if (known->retired) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "HOST_RETIRED",
                  absl::StrCat("host \"", host, "\" was retired"),
                  absl::StrCat("`cxlpool host enrol ", host, "` brings it back"));
  }
  if (known->identity != session.enrolled_as) {
    return Refuse(absl::StatusCode::kPermissionDenied, "WRONG_IDENTITY",
                  absl::StrCat("host \"", host, "\" was enrolled with another certificate"),
                  "give the agent the new certificate");
  }
  return absl::OkStatus();
}

void HostSessions::EndUnwelcome() {
  std::vector<std::pair<std::string, absl::Status>> unwelcome;
  for (const auto& [host, session] : sessions_) {
    // What is only planned may be refused yet; it is judged when it is durable.
    const Host* const known = writer_->state().FindHost(host);
    if (known != nullptr && !writer_->IsDurable(known->key)) continue;
    absl::Status status = CheckWelcome(host, session);
    if (!status.ok()) unwelcome.emplace_back(host, std::move(status));
  }
  for (const auto& [host, status] : unwelcome) Drop(host, status);
}

void HostSessions::WarnOf(const std::string& host, const Session& session) const {
  const absl::Time now = clock_->Now();
  if (session.identity.end > now + kCertificateWarning) return;
  CertificateFacts facts;
  facts.not_after = session.identity.end;
  LogWarning("sessions", "the certificate of host ", host, " (", session.identity.serial, ") ",
             EndText(facts, now), " (`cxlpool pki renew host ", host,
             "`, put it in its place on the host, and reload the agent)");
}

void HostSessions::WarnOfCertificates() {
  // A clock that was set back must not keep it quiet.
  const absl::Time now = clock_->Now();
  if (now >= warned_ && now < warned_ + absl::Hours(24)) return;
  warned_ = now;
  for (const auto& [host, session] : sessions_) WarnOf(host, session);
}

bool HostSessions::Online(const std::string& host) const { return sessions_.contains(host); }

std::string HostSessions::LifeOf(const std::string& host) const {
  const auto session = sessions_.find(host);
  return session == sessions_.end() ? "" : session->second.incarnation;
}

void HostSessions::Tick() {
  std::vector<std::string> silent;
  const absl::Duration now = clock_->Elapsed();
  for (const auto& [host, session] : sessions_) {
    const absl::Duration heard =
        absl::Nanoseconds(session.peer->last_heard_ns_.load(std::memory_order_relaxed));
    if (now - heard > options_.lease) silent.push_back(host);
  }
  for (const std::string& host : silent) {
    Drop(host, Refuse(absl::StatusCode::kDeadlineExceeded, "LEASE_EXPIRED",
                      absl::StrCat("nothing was heard of host \"", host, "\" for ",
                                   absl::FormatDuration(options_.lease)),
                      "nothing: the agent dials again; its memory stays as it is"));
  }
  ShowHeartbeats();
  WarnOfCertificates();
  executor_->PostAfter(options_.heartbeat / 2, [this] { Tick(); });
}

void HostSessions::ShowHeartbeats() {
  std::vector<std::pair<std::string, HostRuntime>> runtimes;
  auto it = sessions_.upper_bound(shown_);
  for (int n = std::min<int>(kShownPerTick, sessions_.size()); n > 0; --n, ++it) {
    if (it == sessions_.end()) it = sessions_.begin();
    shown_ = it->first;
    const int64_t heard_ns = it->second.peer->last_heard_ns_.load(std::memory_order_relaxed);
    if (std::exchange(it->second.shown_ns, heard_ns) == heard_ns) continue;
    HostRuntime runtime = writer_->state().Runtime(shown_);
    runtime.last_heartbeat = TimeOf(*clock_, heard_ns);
    runtimes.emplace_back(shown_, std::move(runtime));
  }
  if (!runtimes.empty()) writer_->SetRuntimes(std::move(runtimes));
}

}  // namespace cxlpool::fm
