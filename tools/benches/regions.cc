#include "tools/benches/regions.h"

#include <google/protobuf/arena.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "proto/support/status_wire.h"
#include "tools/benches/channel.h"

namespace cxlpool::bench {
namespace {

constexpr absl::Duration kPageLimit = absl::Seconds(30);
constexpr uint32_t kPage = 1000;

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kPageLimit));
}

template <typename Message>
absl::StatusOr<Message*> Parse(const std::string& bytes, google::protobuf::Arena& arena) {
  auto* message = google::protobuf::Arena::CreateMessage<Message>(&arena);
  if (message->ParseFromString(bytes)) return message;
  return absl::InternalError("an answer of the manager does not parse");
}

}  // namespace

absl::Status ForEachAnswered(const std::vector<std::string>& answers, bool batch,
                             const RegionFn& take) {
  for (const std::string& bytes : answers) {
    google::protobuf::Arena arena;
    if (!batch) {
      const auto answer = Parse<v1::AllocateRegionResponse>(bytes, arena);
      if (!answer.ok()) return answer.status();
      take((*answer)->region());
      continue;
    }
    const auto answer = Parse<v1::BatchAllocateRegionsResponse>(bytes, arena);
    if (!answer.ok()) return answer.status();
    for (const v1::BatchResult& result : (*answer)->results()) {
      if (result.code() != 0) {
        return absl::InternalError(absl::StrCat("the manager refused: ", result.message()));
      }
      take(result.region());
    }
  }
  return absl::OkStatus();
}

absl::Status ForEachListed(const std::string& address, absl::Duration connect_limit,
                           const RegionFn& take) {
  auto channel = Connect(address, connect_limit);
  if (!channel.ok()) return channel.status();
  const auto stub = v1::PoolService::NewStub(*channel);
  v1::ListRegionsRequest request;
  request.set_page_size(kPage);
  do {
    grpc::ClientContext context;
    SetDeadline(context);
    google::protobuf::Arena arena;
    auto* page = google::protobuf::Arena::CreateMessage<v1::ListRegionsResponse>(&arena);
    const grpc::Status status = stub->ListRegions(&context, request, page);
    if (!status.ok()) return FromWire(status, context, address);
    for (const v1::Region& region : page->regions()) take(region);
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> CountRegions(const std::string& address, absl::Duration connect_limit) {
  auto channel = Connect(address, connect_limit);
  if (!channel.ok()) return channel.status();
  grpc::ClientContext context;
  SetDeadline(context);
  v1::Capacity capacity;
  const grpc::Status status =
      v1::PoolService::NewStub(*channel)->GetCapacity(&context, {}, &capacity);
  if (!status.ok()) return FromWire(status, context, address);
  return capacity.regions();
}

}  // namespace cxlpool::bench
