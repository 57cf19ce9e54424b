#include "host-agent/service/local_service.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "host-agent/service/reports.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "proto/support/unknown_field.h"

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

absl::Status ManyExtents(const std::string& name) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "MANY_EXTENTS",
                absl::StrCat(name.empty() ? "a Region of several extents" : name,
                             " would be several files, and a path is one"),
                "allocate it with max_extents = 1, or open it without as_file", {{"region", name}});
}

// The error of an allocation that was carried out, and could then not be opened. It says that the
// Region is there, since the caller could not know. The Region is not released for the caller:
// the request_id may be that of an earlier allocation.
absl::Status StillAllocated(const std::string& name, const absl::Status& why) {
  std::optional<Refusal> refusal = RefusalOf(why);
  if (!refusal.has_value()) return why;
  absl::StrAppend(&refusal->message, "; ", name, " is allocated");
  absl::StrAppend(&refusal->remedy, refusal->remedy.empty() ? "" : ", or ", "release ", name);
  return refusal->ToStatus();
}

bool MayComeOnline(const absl::Status& status) { return ReasonOf(status) == "NOT_ONLINE_YET"; }

// The node of one more of a system-ram Region's segments.
void AddNode(int node, v1::LocalOpenResponse& open) {
  if (!open.has_numa_node()) open.set_numa_node(node);
  const auto& known = open.numa_nodes();
  if (!known.empty() && CXLPOOL_MUTANT("node-of-the-first-segment")) return;
  if (std::find(known.begin(), known.end(), node) == known.end()) open.add_numa_nodes(node);
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

// A name for the device that no other device ever has.
std::string DeviceOf(const v1::Offer& offer, uint64_t serial) {
  return absl::StrCat(offer.region_tag(), "/", offer.attachment_generation(), "/", serial);
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
                           HostMemory* memory, ManagerLink* link, DevicePaths* paths)
    : policy_(std::move(policy)),
      core_(core),
      clock_(clock),
      memory_(memory),
      calls_(&policy_, link, executor),
      faults_(core, executor, clock),
      paths_(paths),
      holders_(core, executor, clock, link),
      timer_(executor, clock, [this] { return ServeWaiters(); }) {
  core_->AddOnChange([this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired()) return;
    usage_.Saw(core_->attachments());
    DropPathsOfGone();
    ServeWaiters();
    faults_.Serve();
    holders_.Saw();
  });
}

LocalService::~LocalService() = default;

// Judges the peer, then hands the request on. `done` is called exactly once, unless the connection
// ends before. A connection has one request at a time.
void LocalService::Handle(const LocalPeer& peer, v1::LocalRequest request, LocalDone done,
                          UniqueFd page) {
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
  const bool changes = request.has_allocate() || request.has_release();
  if (changes && !CXLPOOL_MUTANT("unknown-local-demands-are-dropped")) {
    if (absl::Status s = CheckFields(request, "agent"); !s.ok()) return refuse(s);
  }
  if (!v1::Access_IsValid(request.open().access())) {  // It would be taken for READ_WRITE.
    return refuse(Refuse(absl::StatusCode::kInvalidArgument, "BAD_REQUEST",
                         "the Region is to be opened by an access that this agent does not know",
                         "use a libpool of the agent's release"));
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
    case v1::LocalRequest::kUsage:
      return std::move(pending.done)(TakeUsage(peer, std::move(page)));
    case v1::LocalRequest::BODY_NOT_SET:
      break;
  }
  std::move(pending.done)(
      RefusedReply(Refuse(absl::StatusCode::kInvalidArgument, "BAD_REQUEST",
                          "the request has no body", "use a libpool of the agent's release")));
}

// The core plans anew only where something was open: else everybody who connects and hangs up, over
// and over, would have it do nothing else.
void LocalService::ConnectionEnded(uint64_t connection) {
  const bool had_uses = core_->opens().CountFor(connection) != 0;
  pending_.erase(connection);
  faults_.Forget(connection);
  core_->opens().CloseConnection(connection);
  holders_.Forget(connection);
  paths_.CloseConnection(connection);
  if (had_uses || CXLPOOL_MUTANT("every-end-is-planned-for")) core_->Reconsider();
}

// --- Who may.

// An older manager does not send the maker of a Region: then the owner counts as the maker, if that
// is a process of this boot, and so of this host.
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

// The same for a Region that has no Offer here. The user ids of another host mean nothing here.
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
  pending.as_file = request.as_file();
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

// Opens what is usable now: all segments up to the first one that is not online. The use is noted
// last, so that an error leaves nothing behind.
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
  // A rung under way may take it at any moment, though it still shows as online.
  for (const Segment& segment : segments) {
    if (core_->TakingDown(key, segment.desired.first_serial())) return NotOnlineYet(name, "");
  }
  if (pending.as_file) {
    if (absl::Status s = CheckAsFile(peer, offer.mode(), name); !s.ok()) return s;
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
  std::string node;
  uint64_t region_offset = 0;
  for (const Segment& segment : segments) {
    if (pending.at_most_bytes != 0 && region_offset >= pending.at_most_bytes) break;
    const uint64_t serial = segment.desired.first_serial();
    const ObservedHostRegion* region = FindHostRegion(core_->observation(), serial);
    opened.push_back(serial);
    if (offer.mode() == v1::SYSTEM_RAM) {
      if (region->numa_node.has_value()) AddNode(*region->numa_node, open);
      region_offset += segment.desired.length_bytes;
      continue;
    }
    absl::StatusOr<OpenedDax> dax = memory_->OpenDax(serial, access == v1::READ_ONLY);
    if (!dax.ok()) return dax.status();
    v1::LocalSegment& mapped = *open.add_segments();
    mapped.set_fd_index(static_cast<uint32_t>(reply.descriptors.size()));
    mapped.set_offset_bytes(dax->offset_bytes);
    mapped.set_length_bytes(segment.desired.length_bytes);
    if (!CXLPOOL_MUTANT("segments-lie-on-each-other")) {
      mapped.set_region_offset_bytes(region_offset);
    }
    mapped.set_alignment_bytes(region->dax_align_bytes);
    region_offset += segment.desired.length_bytes;
    reply.descriptors.push_back(std::move(dax->fd));
    node = std::move(dax->node);
  }
  open.set_size_bytes(region_offset);
  if (pending.as_file) {
    if (absl::Status s = ShowPath(pending, offer, opened.front(), node, open); !s.ok()) return s;
  }
  const ProcessId process = {static_cast<uint32_t>(std::max(peer.pid, 0)), peer.start_ticks};
  core_->opens().Open(key, {peer.connection, process, name}, opened);
  core_->ReportOpensSoon();
  holders_.Opened(key, peer.connection, peer.uid, peer.program);
  return reply;
}

absl::Status LocalService::CheckAsFile(const LocalPeer& peer, v1::AttachmentMode mode,
                                       const std::string& name) const {
  if (mode == v1::SYSTEM_RAM) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NOT_DEVDAX",
                  absl::StrCat(name.empty() ? "a system-ram Region" : name,
                               " is a NUMA node, and no device that has a path"),
                  "use mode devdax, or open it without as_file", {{"region", name}});
  }
  return paths_.CheckCaller(peer.pid);
}

absl::Status LocalService::ShowPath(const Pending& pending, const v1::Offer& offer, uint64_t serial,
                                    const std::string& node, v1::LocalOpenResponse& open) {
  if (open.segments_size() > 1) return ManyExtents(pending.name);
  // The manager's own names are safe in a path; any other is refused.
  const absl::StatusOr<std::string> folder = ParseResourceName("regions", offer.region_name());
  if (!folder.ok()) return folder.status();
  absl::StatusOr<std::string> path = paths_.Open(
      {.node = node, .which = DeviceOf(offer, serial), .folder = *folder}, pending.peer.connection,
      pending.name, {.uid = pending.peer.uid, .writable = pending.access != v1::READ_ONLY});
  if (!path.ok()) return path.status();
  open.mutable_segments(0)->set_path(*std::move(path));
  return absl::OkStatus();
}

// A device goes by force (surprise removal, a fence) while connections have it open: its name may
// be another Region's next.
void LocalService::DropPathsOfGone() {
  if (paths_.empty()) return;
  std::set<std::string> devices;
  for (const auto& [key, attachment] : core_->attachments().all()) {
    for (const Segment& segment : attachment.segments) {
      const uint64_t serial = segment.desired.first_serial();
      const ObservedHostRegion* region = FindHostRegion(core_->observation(), serial);
      if (region == nullptr || region->dax_device.empty()) continue;
      devices.insert(DeviceOf(attachment.offer, serial));
    }
  }
  paths_.KeepOnly(devices);
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
  const absl::Duration deadline = pending.deadline;
  Keep(std::move(pending));
  timer_.By(deadline);
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
  } else if (pending.allocated && ReasonOf(why) != "REGION_RELEASING") {
    why = StillAllocated(pending.name, why);
  }
  std::move(pending.done)(RefusedReply(why));
  return true;
}

absl::Duration LocalService::ServeWaiters() {
  absl::Duration next = absl::InfiniteDuration();
  for (auto it = pending_.begin(); it != pending_.end();) {
    const bool waits = !it->second.name.empty();
    const bool finished = waits && TryToFinish(it->second);
    if (waits && !finished) next = std::min(next, it->second.deadline);
    it = finished ? pending_.erase(it) : std::next(it);
  }
  return next;
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

LocalReply LocalService::TakeUsage(const LocalPeer& peer, UniqueFd page) {
  if (!page.valid()) {
    return RefusedReply(Refuse(absl::StatusCode::kInvalidArgument, "BAD_USAGE_PAGE",
                               "no page of counters came with the request: one descriptor, of a "
                               "memfd of 4096 bytes that is sealed against shrinking",
                               "use a libpool of the agent's release"));
  }
  if (absl::Status s = holders_.TakePage(peer.connection, std::move(page)); !s.ok()) {
    return RefusedReply(s);
  }
  LocalReply reply;
  reply.response.mutable_usage();
  return reply;
}

LocalReply LocalService::Close(const LocalPeer& peer, const v1::LocalCloseRequest& request) {
  const bool had_uses = core_->opens().CountFor(peer.connection) != 0;
  core_->opens().Close(peer.connection, request.name());
  holders_.Closed();
  paths_.Close(peer.connection, request.name());
  if (had_uses) core_->Reconsider();
  LocalReply reply;
  reply.response.mutable_close();
  return reply;
}

absl::Status LocalService::Admit(const LocalPeer& peer, const v1::LocalAllocateRequest& request) {
  absl::Status may_name = CheckNewName(policy_, peer.uid, request.region_id());
  if (!may_name.ok()) return may_name;
  if (!request.persistent() && (peer.pid <= 0 || peer.start_ticks == 0)) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "OWNER_UNKNOWN",
                  "the Region is to live as long as the calling process, which the agent cannot "
                  "see: it is in a PID namespace of its own, or has ended",
                  "allocate it persistent, or run the program in the agent's PID namespace");
  }
  const UserRule* rule = FindRule(policy_.users, peer.uid, peer.gids);
  if (rule == nullptr) return absl::OkStatus();
  const std::string name =
      request.region_id().empty() ? "" : ResourceName("regions", request.region_id());
  const UserUsage used =
      usage_.Of({peer.uid, request.request_id()}, name, core_->attachments(), clock_->Elapsed());
  const uint64_t bytes = HeldBytes(request);
  if (absl::Status s = CheckAllocate(*rule, peer.uid, used, bytes, request.persistent());
      !s.ok() || request.persistent()) {
    return s;
  }
  return usage_.Begin({peer.uid, request.request_id()}, bytes, clock_->Elapsed());
}

// What the manager will set aside, as far as this host can tell: whole granules.
uint64_t LocalService::HeldBytes(const v1::LocalAllocateRequest& request) const {
  uint64_t unit = core_->granule_bytes();
  if (request.mode() == v1::SYSTEM_RAM) {
    unit = std::max(unit, core_->observation().memory_block_bytes);
  }
  const uint64_t size = request.size_bytes();
  if (CXLPOOL_MUTANT("limits-count-what-was-asked")) return size;
  if (size == 0 || size > UINT64_MAX - unit) return size;  // The manager refuses it.
  return (size + unit - 1) / unit * unit;
}

// Asks the manager for a Region on this host, then waits until it can be opened (OnAllocated). The
// calling process becomes the owner, unless the Region is to be persistent.
void LocalService::Allocate(const v1::LocalAllocateRequest& request, Pending pending) {
  pending.as_file = request.as_file();
  if (request.as_file()) {
    absl::Status s = CheckAsFile(pending.peer, request.mode(), "");
    if (s.ok() && request.max_extents() > 1) s = ManyExtents("");
    if (!s.ok()) return std::move(pending.done)(RefusedReply(s));
  }
  if (absl::Status s = Admit(pending.peer, request); !s.ok()) {
    return std::move(pending.done)(RefusedReply(s));
  }
  v1::AllocateRegionRequest forward;
  if (!request.persistent()) {
    v1::Owner& owner = *forward.mutable_owner();
    owner.set_uid(pending.peer.uid);
    owner.set_pid(static_cast<uint32_t>(pending.peer.pid));
    owner.set_start_ticks(pending.peer.start_ticks);
    owner.set_incarnation(core_->options().incarnation);
  }
  forward.set_request_id(request.request_id());
  forward.set_region_id(request.region_id());
  forward.set_tenant(TenantFor(policy_, pending.peer.uid, pending.peer.gids));
  if (!CXLPOOL_MUTANT("maker-not-sent")) forward.set_maker_uid(pending.peer.uid);
  if (request.has_open_to() && !CXLPOOL_MUTANT("local-open-to-dropped")) {
    *forward.mutable_open_to() = request.open_to();
  }
  forward.set_size_bytes(request.size_bytes());
  if (!CXLPOOL_MUTANT("local-sharing-dropped")) forward.set_sharing(request.sharing());
  forward.set_host(core_->options().host);
  forward.set_mode(request.mode());
  if (!CXLPOOL_MUTANT("local-zone-dropped")) forward.set_zone(request.zone());
  forward.set_access(v1::READ_WRITE);
  if (!CXLPOOL_MUTANT("local-extents-dropped")) forward.set_max_extents(request.max_extents());
  if (request.as_file() && !CXLPOOL_MUTANT("as-file-in-pieces")) forward.set_max_extents(1);
  const uint64_t connection = pending.peer.connection;
  const uint64_t number = pending.number;
  pending.allocated = true;
  pending.deadline =
      clock_->Elapsed() + (request.wait_ms() == 0
                               ? kDefaultAllocateWait
                               : std::min(absl::Milliseconds(request.wait_ms()), kMaxLocalWait));
  const uint32_t uid = pending.peer.uid;
  Keep(std::move(pending));
  auto answered = [this, connection, number, id = UserUsageTable::Call{uid, request.request_id()}](
                      absl::StatusOr<v1::AllocateRegionResponse> response) {
    usage_.End(id, response, clock_->Elapsed());
    OnAllocated(connection, number, std::move(response));
  };
  calls_.Allocate(uid, std::move(forward), std::move(answered));
}

void LocalService::OnAllocated(uint64_t connection, uint64_t number,
                               absl::StatusOr<v1::AllocateRegionResponse> response) {
  std::optional<Pending> taken = TakePending(connection, number);
  if (!taken.has_value()) return;
  Pending pending = *std::move(taken);
  if (!response.ok()) return std::move(pending.done)(RefusedReply(response.status()));
  const v1::Region& region = response->region();
  if (region.state() != v1::Region::RESERVED && region.state() != v1::Region::ALLOCATED) {
    return std::move(pending.done)(RefusedReply(Releasing(region.name())));
  }
  pending.name = region.name();
  pending.tag = region.tag();
  const absl::Duration left = pending.deadline - clock_->Elapsed();
  WaitFor(std::move(pending), std::max(left, absl::ZeroDuration()));
}

// What this host has no Offer of may have been allocated a moment ago, or be another's: the manager
// is asked what it is, so that it is judged like everything else.
void LocalService::Release(const v1::LocalReleaseRequest& request, Pending pending) {
  if (absl::StatusOr<std::string> id = ParseResourceName("regions", request.name()); !id.ok()) {
    return std::move(pending.done)(RefusedReply(id.status()));
  }
  if (!core_->welcomed() && !CXLPOOL_MUTANT("release-before-welcome")) {
    return std::move(pending.done)(RefusedReply(
        Refuse(absl::StatusCode::kUnavailable, "MANAGER_NOT_HEARD",
               absl::StrCat("the agent has not heard from the manager since it started, and does "
                            "not know whose ",
                            request.name(), " is"),
               "release it again in a moment", {{"region", request.name()}})));
  }
  if (const auto* found = Find(request.name(), "")) {
    const v1::Offer& offer = found->second.offer;
    return ReleaseIfMay(request.request_id(), offer.region_tag(), RightsOf(offer),
                        std::move(pending));
  }
  v1::GetRegionRequest ask;
  ask.set_name(request.name());
  const uint32_t uid = pending.peer.uid;
  const uint64_t connection = pending.peer.connection;
  const uint64_t number = pending.number;
  Keep(std::move(pending));
  auto got = [this, connection, number,
              id = request.request_id()](const absl::StatusOr<v1::Region>& region) {
    OnGot(connection, number, id, region);
  };
  calls_.Get(uid, std::move(ask), std::move(got));
}

void LocalService::OnGot(uint64_t connection, uint64_t number, const std::string& request_id,
                         const absl::StatusOr<v1::Region>& region) {
  std::optional<Pending> pending = TakePending(connection, number);
  if (!pending.has_value()) return;
  if (!region.ok()) return std::move(pending->done)(RefusedReply(region.status()));
  ReleaseIfMay(request_id, region->tag(), RightsOf(*region), *std::move(pending));
}

// The Region that was judged is the one that is released: it is named by its tag, since its name
// may be another's by now, and the manager checks again what was found of it.
void LocalService::ReleaseIfMay(const std::string& request_id, const std::string& tag,
                                const RegionRights& rights, Pending pending) {
  const LocalPeer& peer = pending.peer;
  if (absl::Status s = CheckRelease(policy_, peer.uid, peer.gids, rights);
      !s.ok() && !CXLPOOL_MUTANT("release-judges-nobody")) {
    return std::move(pending.done)(RefusedReply(s));
  }
  v1::ReleaseRegionRequest forward;
  forward.set_request_id(request_id);
  forward.set_name(CXLPOOL_MUTANT("release-by-name") ? rights.name : ResourceName("regions", tag));
  forward.set_detach_all(true);
  // What was found, for the manager to check: root may release whatever it is.
  if (!IsPrivileged(peer)) {
    forward.set_tenant(rights.tenant);
    if (rights.maker_uid == peer.uid) forward.set_maker_uid(peer.uid);
  }
  const uint32_t uid = peer.uid;
  const uint64_t connection = peer.connection;
  const uint64_t number = pending.number;
  Keep(std::move(pending));
  auto answered = [this, connection,
                   number](const absl::StatusOr<v1::ReleaseRegionResponse>& response) {
    std::optional<Pending> pending = TakePending(connection, number);
    if (!pending.has_value()) return;
    LocalReply reply;
    reply.response.mutable_release();
    std::move(pending->done)(response.ok() ? std::move(reply) : RefusedReply(response.status()));
  };
  calls_.Release(uid, std::move(forward), std::move(answered));
}

// The request, if its connection still waits for the answer.
std::optional<LocalService::Pending> LocalService::TakePending(uint64_t connection,
                                                               uint64_t number) {
  const auto it = pending_.find(connection);
  if (it == pending_.end() || it->second.number != number) return std::nullopt;  // It has hung up.
  Pending pending = std::move(it->second);
  pending_.erase(it);
  return pending;
}

}  // namespace cxlpool::agent
