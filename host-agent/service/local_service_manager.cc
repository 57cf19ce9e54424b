// What LocalService asks the manager for: Allocate and Release.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "host-agent/service/local_service.h"
#include "host-agent/service/posted.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {

absl::Status LocalService::Admit(const LocalPeer& peer, const v1::LocalAllocateRequest& request) {
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

void LocalService::Allocate(const v1::LocalAllocateRequest& request, Pending pending) {
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
  if (!CXLPOOL_MUTANT("maker-not-told")) forward.set_maker_uid(pending.peer.uid);
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
  link_->Allocate(std::move(forward), Posted(executor_, alive_, std::move(answered)));
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
  const uint64_t connection = pending.peer.connection;
  const uint64_t number = pending.number;
  Keep(std::move(pending));
  auto got = [this, connection, number,
              id = request.request_id()](const absl::StatusOr<v1::Region>& region) {
    OnGot(connection, number, id, region);
  };
  link_->Get(std::move(ask), Posted(executor_, alive_, std::move(got)));
}

void LocalService::OnGot(uint64_t connection, uint64_t number, const std::string& request_id,
                         const absl::StatusOr<v1::Region>& region) {
  std::optional<Pending> pending = TakePending(connection, number);
  if (!pending.has_value()) return;
  if (!region.ok()) return std::move(pending->done)(RefusedReply(region.status()));
  ReleaseIfMay(request_id, region->tag(), RightsOf(*region), *std::move(pending));
}

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
  link_->Release(std::move(forward), Posted(executor_, alive_, std::move(answered)));
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
