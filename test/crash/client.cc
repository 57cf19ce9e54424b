#include "test/crash/client.h"

#include <grpcpp/create_channel.h>

#include "absl/strings/str_cat.h"

namespace cxlpool::crash {

Client::Client(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20000);  // An attempt may take so long.
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetMaxReceiveMessageSize(64 << 20);
  channel_ =
      grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
  pool_ = v1::PoolService::NewStub(channel_);
  inventory_ = v1::InventoryService::NewStub(channel_);
  access_ = v1::AccessService::NewStub(channel_);
}

absl::StatusOr<v1::ListRegionsResponse> Client::Regions() {
  v1::ListRegionsRequest request;
  request.set_page_size(1000);
  auto page = Call(&PoolStub::ListRegions, request);
  if (page.ok() && !page->next_page_token().empty()) {
    return absl::InternalError("a trial keeps fewer than 1000 Regions");
  }
  return page;
}

bool Unanswered(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
      return true;
    default:
      return false;
  }
}

}  // namespace cxlpool::crash
