// What LocalService asks the manager for: Allocate and Release.

#include <algorithm>
#include <utility>

#include "host-agent/service/local_service.h"
#include "host-agent/service/posted.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {

absl::Status LocalService::Admit(const LocalPeer& peer, const v1::LocalAllocateRequest& request) {
  if (!request.persistent() && (peer.pid <= 0 || peer.start_ticks == 0)) {
    return Refusal{absl::StatusCode::kFailedPrecondition,
                   "OWNER_UNKNOWN",
                   "the Region is to live as long as the calling process, which the agent cannot "
                   "see: it is in a PID namespace of its own, or has ended",
                   "allocate it persistent, or run the program in the agent's PID namespace",
                   {}}
        .ToStatus();
  }
  const UserRule* rule = RuleOf(peer);
  if (rule == nullptr) return absl::OkStatus();
  const std::string name =
      request.region_id().empty() ? "" : ResourceName("regions", request.region_id());
  const UserUsage used =
      usage_.Of(peer.uid, request.request_id(), name, core_->attachments(), clock_->Elapsed());
  if (absl::Status s =
          CheckAllocate(*rule, peer.uid, used, request.size_bytes(), request.persistent());
      !s.ok() || request.persistent()) {
    return s;
  }
  return usage_.Begin(request.request_id(), peer.uid, request.size_bytes(), clock_->Elapsed());
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
  forward.set_tenant(TenantFor(pending.peer));
  forward.set_size_bytes(request.size_bytes());
  forward.set_sharing(request.sharing());
  forward.set_host(core_->options().host);
  forward.set_mode(request.mode());
  forward.set_zone(request.zone());
  forward.set_access(v1::READ_WRITE);
  forward.set_max_extents(request.max_extents());
  const uint64_t connection = pending.peer.connection;
  const uint64_t number = pending.number;
  pending.allocated = true;
  pending.deadline =
      clock_->Elapsed() + (request.wait_ms() == 0
                               ? kDefaultAllocateWait
                               : std::min(absl::Milliseconds(request.wait_ms()), kMaxLocalWait));
  Keep(std::move(pending));
  auto answered = [this, connection, number,
                   id = request.request_id()](absl::StatusOr<v1::AllocateRegionResponse> response) {
    usage_.End(id, response, clock_->Elapsed());
    OnAllocated(connection, number, std::move(response));
  };
  link_->Allocate(std::move(forward), Posted(executor_, alive_, std::move(answered)));
}

void LocalService::OnAllocated(uint64_t connection, uint64_t number,
                               absl::StatusOr<v1::AllocateRegionResponse> response) {
  const auto it = pending_.find(connection);
  if (it == pending_.end() || it->second.number != number) return;  // It has hung up.
  Pending pending = std::move(it->second);
  pending_.erase(it);
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

void LocalService::Release(const v1::LocalReleaseRequest& request, Pending pending) {
  if (absl::StatusOr<std::string> id = ParseResourceName("regions", request.name()); !id.ok()) {
    return std::move(pending.done)(RefusedReply(id.status()));
  }
  // Not attached: it may have been allocated a moment ago. The manager lets a host release only
  // what is attached to it and to no other.
  if (const auto* found = core_->attachments().FindByName(request.name())) {
    if (absl::Status s = CheckTenant(pending.peer, found->second.offer); !s.ok()) {
      return std::move(pending.done)(RefusedReply(s));
    }
  }
  v1::ReleaseRegionRequest forward;
  forward.set_request_id(request.request_id());
  forward.set_name(request.name());
  forward.set_detach_all(true);
  const uint64_t connection = pending.peer.connection;
  const uint64_t number = pending.number;
  Keep(std::move(pending));
  auto answered = [this, connection,
                   number](const absl::StatusOr<v1::ReleaseRegionResponse>& response) {
    const auto it = pending_.find(connection);
    if (it == pending_.end() || it->second.number != number) return;
    LocalDone done = std::move(it->second.done);
    pending_.erase(it);
    LocalReply reply;
    reply.response.mutable_release();
    std::move(done)(response.ok() ? std::move(reply) : RefusedReply(response.status()));
  };
  link_->Release(std::move(forward), Posted(executor_, alive_, std::move(answered)));
}

}  // namespace cxlpool::agent
