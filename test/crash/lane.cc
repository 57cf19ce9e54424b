#include "test/crash/lane.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/names.h"
#include "test/crash/pool.h"

namespace cxlpool::crash {
namespace {

constexpr size_t kFew = 6;    // Live Regions; then it rather allocates,
constexpr size_t kMany = 40;  // and with so many it releases.
constexpr size_t kMaxBatch = 12;
constexpr uint64_t kMaxLanes = 16;

auto CallOf(Client& client, const v1::AllocateRegionRequest& request) {
  return client.Call(&PoolStub::AllocateRegion, request);
}
auto CallOf(Client& client, const v1::BatchAllocateRegionsRequest& request) {
  return client.Call(&PoolStub::BatchAllocateRegions, request);
}
auto CallOf(Client& client, const v1::ReleaseRegionRequest& request) {
  return client.Call(&PoolStub::ReleaseRegion, request);
}
auto CallOf(Client& client, const v1::BatchReleaseRegionsRequest& request) {
  return client.Call(&PoolStub::BatchReleaseRegions, request);
}
auto CallOf(Client& client, const v1::ResizeRegionRequest& request) {
  return client.Call(&PoolStub::ResizeRegion, request);
}
auto CallOf(Client& client, const v1::RenameRegionRequest& request) {
  return client.Call(&PoolStub::RenameRegion, request);
}
auto CallOf(Client& client, const v1::AttachRegionRequest& request) {
  return client.Call(&PoolStub::AttachRegion, request);
}
auto CallOf(Client& client, const v1::DetachRegionRequest& request) {
  return client.Call(&PoolStub::DetachRegion, request);
}
auto CallOf(Client& client, const v1::SetTenantRequest& request) {
  return client.Call(&InventoryStub::SetTenant, request);
}

}  // namespace

Lane::Lane(int number) : number_(number), tenant_(absl::StrCat("tenants/lane-", number)) {}

absl::Status Lane::Run(Client& client, const LaneLife& life, const std::atomic<bool>& stop) {
  random_.seed(life.seed);
  absl::Status status = Settle(client);
  while (status.ok() && !stop) status = Send(client, Choose(life));
  return status.code() == absl::StatusCode::kUnavailable ? absl::OkStatus() : status;
}

absl::Status Lane::Settle(Client& client) {
  if (!ledger_.pending.has_value()) return absl::OkStatus();
  return Send(client, *std::exchange(ledger_.pending, std::nullopt));
}

absl::Status Lane::Send(Client& client, Call call) {
  ++call.sent;
  return std::visit(
      [&](const auto& request) -> absl::Status {
        const auto answer = CallOf(client, request);
        if (!answer.ok() && Unanswered(answer.status())) {
          ledger_.pending = std::move(call);
          return absl::UnavailableError("no answer");
        }
        ++answered_;
        if (call.sent > 1) ++retried_;
        if (!answer.ok()) return ledger_.TakeRefusal(call, answer.status());
        return ledger_.Take(call, *answer);
      },
      Call(call).request);
}

std::string Lane::RequestId() {
  std::string bytes;
  for (int i = 0; i < 16; ++i) bytes.push_back(static_cast<char>(random_()));
  return FormatUuid(bytes);
}

uint64_t Lane::Size() {
  const uint64_t rest = (next_size_++ * kMaxLanes + static_cast<uint64_t>(number_)) % kGranule;
  return Draw(8) * kGranule + rest + 1;
}

const Known& Lane::Any(const std::vector<const Known*>& live) { return *live[Draw(live.size())]; }

Call Lane::Choose(const LaneLife& life) {
  std::vector<const Known*> live;
  for (const auto& [tag, known] : ledger_.regions) {
    if (known.live()) live.push_back(&known);
  }
  uint64_t dice = Draw(100);
  if (live.size() < kFew) dice = Draw(40);
  if (live.size() > kMany) dice = 40 + Draw(35);
  if (dice < 30) return {Allocation(life), {}};
  if (dice < 40) {
    v1::BatchAllocateRegionsRequest batch;
    for (size_t i = 2 + Draw(kMaxBatch - 2); i > 0; --i) *batch.add_requests() = Allocation(life);
    return {batch, {}};
  }
  if (dice < 65) {
    const Known& known = Any(live);
    return {Release(known), {known.region.tag()}};
  }
  if (dice < 75) {
    Call call;
    v1::BatchReleaseRegionsRequest batch;
    for (size_t i = Draw(live.size()), n = 0; n < kMaxBatch / 2 && i < live.size(); ++i, ++n) {
      *batch.add_requests() = Release(*live[i]);
      call.tags.push_back(live[i]->region.tag());
    }
    call.request = batch;
    return call;
  }
  if (dice < 83) return Resize(Any(live));
  if (dice < 88) return Rename(Any(live));
  if (dice < 97 && !life.hosts.empty()) return AttachOrDetach(Any(live), life);
  return SetQuota();
}

v1::AllocateRegionRequest Lane::Allocation(const LaneLife& life) {
  v1::AllocateRegionRequest request;
  request.set_request_id(RequestId());
  // Without a name the manager makes one: a second Region of one request would show.
  if (Draw(2) == 0) request.set_region_id(absl::StrCat("l", number_, "-", next_name_++));
  const uint64_t dice = Draw(10);
  if (dice < 2) request.set_tenant(kTightTenant);
  if (dice == 2) request.set_tenant(tenant_);
  if (dice == 3) request.set_device(absl::StrCat("devices/", kSmallDevice));
  request.set_size_bytes(Size());
  request.set_max_extents(static_cast<uint32_t>(1 + Draw(3)));
  if (Draw(3) == 0) request.set_policy(v1::SPREAD);
  request.set_sharing(Draw(4) == 0 ? v1::MULTI_WRITER : v1::EXCLUSIVE);
  if (!life.hosts.empty() && Draw(3) == 0) request.set_host(life.hosts[Draw(life.hosts.size())]);
  return request;
}

v1::ReleaseRegionRequest Lane::Release(const Known& known) {
  v1::ReleaseRegionRequest request;
  request.set_request_id(RequestId());
  request.set_name(known.region.name());
  request.set_detach_all(true);
  return request;
}

Call Lane::Resize(const Known& known) {
  v1::ResizeRegionRequest request;
  request.set_request_id(RequestId());
  request.set_name(known.region.name());
  uint64_t held = 0;
  for (const v1::Extent& extent : known.region.extents()) held += extent.length_bytes();
  const bool grow = known.region.extents_size() == 1 || Draw(2) == 0;
  request.set_size_bytes(grow ? held + 1 + Draw(4 * kGranule)
                              : known.region.extents(0).length_bytes());
  request.set_max_extents(static_cast<uint32_t>(1 + Draw(2)));
  return {request, {known.region.tag()}};
}

Call Lane::Rename(const Known& known) {
  v1::RenameRegionRequest request;
  request.set_request_id(RequestId());
  request.set_name(known.region.name());
  request.set_new_region_id(absl::StrCat("l", number_, "-", next_name_++));
  return {request, {known.region.tag()}};
}

Call Lane::AttachOrDetach(const Known& known, const LaneLife& life) {
  const std::string& host = life.hosts[Draw(life.hosts.size())];
  const auto found = known.hosts.find(host);
  const auto fill = [&](auto request) {
    request.set_request_id(RequestId());
    request.set_name(known.region.name());
    request.set_host(host);
    return Call{request, {known.region.tag()}};
  };
  if (found != known.hosts.end() && found->second) return fill(v1::DetachRegionRequest());
  return fill(v1::AttachRegionRequest());
}

Call Lane::SetQuota() {
  v1::SetTenantRequest request;
  request.set_request_id(RequestId());
  request.mutable_tenant()->set_name(tenant_);
  request.mutable_tenant()->set_quota_bytes((1 + Draw(1000)) * kGiB * 1024);
  return {request, {}};
}

}  // namespace cxlpool::crash
