#include "host-agent/service/local_service.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "host-agent/service/reports.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

absl::Status NotAttached(const std::string& name) {
  return Refuse(absl::StatusCode::kNotFound, "NOT_ATTACHED",
                absl::StrCat(name, " is not attached to this host"), "attach it to this host first",
                {{"region", name}});
}

absl::Status NotOnlineYet(const std::string& name, absl::string_view why) {
  return Refuse(absl::StatusCode::kUnavailable, "NOT_ONLINE_YET",
                absl::StrCat(name, " is not online yet", why.empty() ? "" : ": ", why),
                "open it again, with wait_ms to wait for it", {{"region", name}});
}

bool MayComeOnline(const absl::Status& status) { return ReasonOf(status) == "NOT_ONLINE_YET"; }

v1::Attachment::State AttachmentStateOf(const Attachment& attachment, const HostObservation& host) {
  bool any_memdev = false;
  bool stopped = true;
  bool failed = false;
  for (const Segment& segment : attachment.segments) {
    const v1::SegmentState state = SegmentStateOf(segment, host);
    any_memdev |= state != v1::SEGMENT_ABSENT;
    stopped &= state == v1::SEGMENT_ABSENT || state == v1::SEGMENT_PRESENT;
    failed |= segment.error.has_value();
  }
  switch (attachment.offer.want()) {
    case v1::Offer::WANT_EJECTED:
      return v1::Attachment::EJECTING;
    case v1::Offer::WANT_OFFLINE:
      if (stopped) return v1::Attachment::OFFLINE;
      return failed ? v1::Attachment::RELEASE_BLOCKED : v1::Attachment::ONLINE;
    default:
      break;
  }
  if (UsableSegments(attachment, host) > 0) return v1::Attachment::ONLINE;
  return any_memdev ? v1::Attachment::BOUND : v1::Attachment::WANTED;
}

std::string FirstError(const Attachment& attachment) {
  for (const Segment& segment : attachment.segments) {
    if (segment.error.has_value()) return segment.error->message();
  }
  return "";
}

// What an Open would give now; where it would give nothing, what there is to be.
uint64_t SizeOf(const Attachment& attachment, const HostObservation& host) {
  const size_t usable = UsableSegments(attachment, host);
  uint64_t bytes = 0;
  for (size_t i = 0; i < attachment.segments.size(); ++i) {
    if (usable == 0 || i < usable) bytes += attachment.segments[i].desired.length_bytes;
  }
  return bytes;
}

std::string TenantOf(const v1::Offer& offer) {
  return offer.tenant().empty() ? "tenants/default" : offer.tenant();
}

}  // namespace

absl::Status Releasing(const std::string& name) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "REGION_RELEASING",
                absl::StrCat(name, " is on its way off this host"),
                "attach it again once it is gone", {{"region", name}});
}

LocalReply RefusedReply(const absl::Status& status) {
  LocalReply reply;
  reply.response.set_code(static_cast<int>(status.code()));
  reply.response.set_message(std::string(status.message()));
  if (const std::optional<Refusal> refusal = RefusalOf(status)) {
    v1::ErrorInfo& error = *reply.response.mutable_error();
    error.set_reason(refusal->reason);
    error.set_remedy(refusal->remedy);
    for (const auto& [key, value] : refusal->metadata) (*error.mutable_metadata())[key] = value;
  }
  return reply;
}

LocalService::LocalService(LocalPolicy policy, AgentCore* core, Executor* executor, Clock* clock,
                           HostMemory* memory, ManagerLink* link)
    : policy_(std::move(policy)),
      core_(core),
      executor_(executor),
      clock_(clock),
      memory_(memory),
      link_(link),
      faults_(core, executor, clock) {
  core_->AddOnChange([this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired()) return;
    usage_.Saw(core_->attachments());
    ServeWaiters();
  });
}

LocalService::~LocalService() = default;

void LocalService::Handle(const LocalPeer& peer, v1::LocalRequest request, LocalDone done) {
  // The server ends connections that are idle and have nothing open.
  done = [this, connection = peer.connection, done = std::move(done)](LocalReply reply) mutable {
    reply.holds = core_->opens().CountFor(connection) != 0;
    std::move(done)(std::move(reply));
  };
  auto refuse = [&done](const absl::Status& status) { std::move(done)(RefusedReply(status)); };
  if (pending_.contains(peer.connection) || faults_.Waits(peer.connection)) {
    return refuse(Refuse(absl::StatusCode::kResourceExhausted, "REQUEST_PENDING",
                         "the previous request of this connection is not answered yet",
                         "wait for its answer"));
  }
  if (absl::Status s = CheckPeer(peer); !s.ok()) return refuse(s);
  if (request.protocol_version() != kLocalProtocolVersion) {
    return refuse(Refuse(absl::StatusCode::kFailedPrecondition,
                         request.protocol_version() < kLocalProtocolVersion ? "PROTOCOL_TOO_OLD"
                                                                            : "PROTOCOL_TOO_NEW",
                         absl::StrCat("this agent speaks local protocol ", kLocalProtocolVersion,
                                      ", not ", request.protocol_version()),
                         "use a libpool of the agent's release",
                         {{"min", absl::StrCat(kLocalProtocolVersion)},
                          {"max", absl::StrCat(kLocalProtocolVersion)}}));
  }
  Pending pending;
  pending.peer = peer;
  pending.number = ++last_number_;
  pending.done = std::move(done);
  switch (request.body_case()) {
    case v1::LocalRequest::kOpen:
      return Open(request.open(), std::move(pending));
    case v1::LocalRequest::kAllocate:
      return Allocate(request.allocate(), std::move(pending));
    case v1::LocalRequest::kRelease:
      return Release(request.release(), std::move(pending));
    case v1::LocalRequest::kList:
      return std::move(pending.done)(List(peer));
    case v1::LocalRequest::kClose:
      return std::move(pending.done)(Close(peer, request.close()));
    case v1::LocalRequest::kFaults:
      return Faults(request.faults(), std::move(pending));
    case v1::LocalRequest::BODY_NOT_SET:
      break;
  }
  std::move(pending.done)(
      RefusedReply(Refuse(absl::StatusCode::kInvalidArgument, "BAD_REQUEST",
                          "the request has no body", "use a libpool of the agent's release")));
}

void LocalService::ConnectionEnded(uint64_t connection) {
  pending_.erase(connection);
  faults_.Forget(connection);
  core_->opens().CloseConnection(connection);
  core_->Reconsider();
}

// --- Who may.

// Of a Region whose maker an older manager does not tell: its owner, if that is a process of this
// boot, and so of this host.
RegionRights LocalService::RightsOf(const v1::Offer& offer) const {
  RegionRights rights{.name = offer.region_name(),
                      .tenant = TenantOf(offer),
                      .maker_uid = std::nullopt,
                      .open_uids = {offer.open_to().uids().begin(), offer.open_to().uids().end()},
                      .open_gids = {offer.open_to().gids().begin(), offer.open_to().gids().end()},
                      .open_to_everybody = offer.open_to().everybody()};
  if (offer.has_maker_uid()) {
    rights.maker_uid = offer.maker_uid();
  } else if (offer.has_owner() && !offer.owner().incarnation().empty() &&
             offer.owner().incarnation() == core_->options().incarnation) {
    rights.maker_uid = offer.owner().uid();
  }
  return rights;
}

// The same, as the manager shows it to everybody: another host's user ids mean nobody here.
RegionRights LocalService::RightsOf(const v1::Region& region) const {
  v1::Offer offer;
  offer.set_region_name(region.name());
  offer.set_tenant(region.tenant());
  const bool here = !region.has_maker() || region.maker().host() == core_->options().host;
  if (here && region.has_maker()) offer.set_maker_uid(region.maker().uid());
  if (here) *offer.mutable_open_to() = region.open_to();
  if (region.has_owner() && !region.has_maker()) *offer.mutable_owner() = region.owner();
  return RightsOf(offer);
}

absl::Status LocalService::MayOpen(const LocalPeer& peer, const v1::Offer& offer) const {
  return CheckOpen(policy_, peer.uid, peer.gids, RightsOf(offer));
}

// --- Open.

void LocalService::Open(const v1::LocalOpenRequest& request, Pending pending) {
  if (absl::StatusOr<std::string> id = ParseResourceName("regions", request.name()); !id.ok()) {
    return std::move(pending.done)(RefusedReply(id.status()));
  }
  pending.name = request.name();
  pending.access = request.access() == v1::READ_ONLY ? v1::READ_ONLY : v1::READ_WRITE;
  pending.at_most_bytes = request.at_most_bytes();
  if (core_->attachments().FindByTag(request.tag()) != nullptr) pending.tag = request.tag();
  WaitFor(std::move(pending), absl::Milliseconds(request.wait_ms()));
}

const std::pair<const AttachmentKey, Attachment>* LocalService::Find(const std::string& name,
                                                                     const std::string& tag) const {
  const AttachmentTable& attachments = core_->attachments();
  if (!tag.empty()) return attachments.FindByTag(tag);
  if (const auto* found = attachments.FindByName(name)) return found;
  // No name looks like a tag.
  const absl::string_view id = absl::StripPrefix(name, "regions/");
  return ParseUuid(id).ok() ? attachments.FindByTag(absl::AsciiStrToLower(id)) : nullptr;
}

absl::StatusOr<LocalReply> LocalService::OpenNow(const Pending& pending) {
  const LocalPeer& peer = pending.peer;
  const std::string& name = pending.name;
  const v1::Access access = pending.access;
  const auto* found = Find(name, pending.tag);
  if (found == nullptr) {
    if (core_->welcomed()) return NotAttached(name);
    return NotOnlineYet(name, "the agent has not reached the manager since it started");
  }
  const auto& [key, attachment] = *found;
  const v1::Offer& offer = attachment.offer;
  if (absl::Status s = MayOpen(peer, offer); !s.ok() && !CXLPOOL_MUTANT("open-judges-nobody")) {
    return s;
  }
  if (!attachment.wanted_online()) return Releasing(name);
  if (!core_->opens().HasRoom(key, peer.connection, name)) {
    return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_OPENS",
                  absl::StrCat("this connection has ", OpensTable::kMaxUses, " Regions open, or ",
                               name, " under ", OpensTable::kMaxNames, " names"),
                  "close some, or use another connection", {{"region", name}});
  }
  if (offer.access() == v1::READ_ONLY && access != v1::READ_ONLY) {
    return Refuse(absl::StatusCode::kPermissionDenied, "ATTACHMENT_READ_ONLY",
                  absl::StrCat(name, " is attached to this host READ_ONLY"), "open it READ_ONLY",
                  {{"region", name}});
  }
  std::span<const Segment> segments(attachment.segments);
  segments = segments.first(UsableSegments(attachment, core_->observation()));
  if (segments.empty()) return NotOnlineYet(name, FirstError(attachment));
  if (segments.size() > kMaxDescriptors) {
    return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_SEGMENTS",
                  absl::StrCat(name, " has more than ", kMaxDescriptors, " segments"),
                  "allocate it in fewer extents");
  }
  for (const Segment& segment : segments) {
    if (core_->TakingDown(key, segment.desired.first_serial())) return NotOnlineYet(name, "");
  }
  LocalReply reply;
  v1::LocalOpenResponse& open = *reply.response.mutable_open();
  open.set_name(name);
  open.set_tag(offer.region_tag());
  open.set_generation(offer.attachment_generation());
  open.set_access(access);
  open.set_mode(offer.mode());
  if (!CXLPOOL_MUTANT("open-without-coherence")) open.set_coherence(offer.coherence());
  std::vector<uint64_t> opened;
  uint64_t region_offset = 0;
  for (const Segment& segment : segments) {
    if (pending.at_most_bytes != 0 && region_offset >= pending.at_most_bytes) break;
    const uint64_t serial = segment.desired.first_serial();
    const ObservedHostRegion* region = FindHostRegion(core_->observation(), serial);
    opened.push_back(serial);
    if (offer.mode() == v1::SYSTEM_RAM) {
      if (region->numa_node.has_value() && !open.has_numa_node()) {
        open.set_numa_node(*region->numa_node);
      }
      region_offset += segment.desired.length_bytes;
      continue;
    }
    absl::StatusOr<UniqueFd> fd = memory_->OpenDax(serial, access == v1::READ_ONLY);
    if (!fd.ok()) return fd.status();
    v1::LocalSegment& mapped = *open.add_segments();
    mapped.set_fd_index(static_cast<uint32_t>(reply.descriptors.size()));
    mapped.set_length_bytes(segment.desired.length_bytes);
    if (!CXLPOOL_MUTANT("segments-lie-on-each-other")) {
      mapped.set_region_offset_bytes(region_offset);
    }
    mapped.set_alignment_bytes(region->dax_align_bytes);
    region_offset += segment.desired.length_bytes;
    reply.descriptors.push_back(*std::move(fd));
  }
  open.set_size_bytes(region_offset);
  const ProcessId process = {static_cast<uint32_t>(std::max(peer.pid, 0)), peer.start_ticks};
  core_->opens().Open(key, {peer.connection, process, name}, opened);
  core_->TellOpens();
  return reply;
}

// --- Waiting.

void LocalService::Keep(Pending pending) {
  const uint64_t connection = pending.peer.connection;
  pending_.emplace(connection, std::move(pending));
}

void LocalService::WaitFor(Pending pending, absl::Duration wait) {
  wait = std::min(wait, kMaxLocalWait);
  pending.deadline = clock_->Elapsed() + wait;
  if (TryToFinish(pending)) return;
  Keep(std::move(pending));
  executor_->PostAfter(wait, [this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) ServeWaiters();
  });
}

bool LocalService::TryToFinish(Pending& pending) {
  pending.seen |= Find(pending.name, pending.tag) != nullptr;
  absl::StatusOr<LocalReply> reply = OpenNow(pending);
  if (reply.ok()) {
    std::move(pending.done)(*std::move(reply));
    return true;
  }
  absl::Status why = reply.status();
  const bool may_come = MayComeOnline(why) || (pending.allocated && !pending.seen);
  if (may_come && clock_->Elapsed() < pending.deadline) return false;
  if (pending.allocated && may_come) {
    why = Refuse(absl::StatusCode::kDeadlineExceeded, "NOT_ONLINE_YET",
                 absl::StrCat(pending.name, " is allocated and not online yet"),
                 "open it by name later, or release it", {{"region", pending.name}});
  } else if (pending.allocated && absl::IsNotFound(why)) {
    why = Releasing(pending.name);  // It came, and was undone.
  }
  std::move(pending.done)(RefusedReply(why));
  return true;
}

void LocalService::ServeWaiters() {
  for (auto it = pending_.begin(); it != pending_.end();) {
    const bool finished = !it->second.name.empty() && TryToFinish(it->second);
    it = finished ? pending_.erase(it) : std::next(it);
  }
  faults_.Serve();
}

// --- From what is attached.

void LocalService::Faults(const v1::LocalFaultsRequest& request, Pending pending) {
  faults_.Ask(
      pending.peer.connection, request,
      [this, peer = pending.peer](const v1::Offer& offer) { return MayOpen(peer, offer).ok(); },
      [done = std::move(pending.done)](v1::LocalFaultsResponse response) mutable {
        LocalReply reply;
        *reply.response.mutable_faults() = std::move(response);
        std::move(done)(std::move(reply));
      });
}

LocalReply LocalService::List(const LocalPeer& peer) const {
  LocalReply reply;
  v1::LocalListResponse& list = *reply.response.mutable_list();
  for (const auto& [key, attachment] : core_->attachments().all()) {
    if (key == kOrphans) continue;
    const v1::Offer& offer = attachment.offer;
    if (!MayOpen(peer, offer).ok() && !CXLPOOL_MUTANT("list-shows-all")) continue;
    v1::LocalRegion& region = *list.add_regions();
    region.set_name(offer.region_name());
    region.set_tag(offer.region_tag());
    region.set_size_bytes(SizeOf(attachment, core_->observation()));
    region.set_opens(core_->opens().CountOf(key));
    v1::Attachment& shown = *region.mutable_attachment();
    shown.set_host(core_->options().host);
    shown.set_mode(offer.mode());
    shown.set_access(offer.access());
    shown.set_coherence(offer.coherence());
    if (!CXLPOOL_MUTANT("list-without-zone")) shown.set_zone(offer.zone());
    shown.set_state(AttachmentStateOf(attachment, core_->observation()));
    shown.set_state_reason(FirstError(attachment));
    shown.set_detaching(!attachment.wanted_online());
    shown.set_generation(offer.attachment_generation());
    for (const Segment& segment : attachment.segments) {
      *shown.add_segments() = SegmentMessage(segment, core_->observation());
    }
  }
  return reply;
}

LocalReply LocalService::Close(const LocalPeer& peer, const v1::LocalCloseRequest& request) {
  core_->opens().Close(peer.connection, request.name());
  core_->Reconsider();
  LocalReply reply;
  reply.response.mutable_close();
  return reply;
}

}  // namespace cxlpool::agent
