#include "tools/benches/channel.h"

#include <grpcpp/create_channel.h>

#include <chrono>

#include "absl/strings/str_cat.h"

namespace cxlpool::bench {
namespace {

constexpr int kMaxAnswerBytes = 64 << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& address,
                                                       absl::Duration limit) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A server that is only just starting refuses at first.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  if (channel->WaitForConnected(std::chrono::system_clock::now() +
                                absl::ToChronoMilliseconds(limit))) {
    return channel;
  }
  return absl::UnavailableError(
      absl::StrCat("nobody answered on ", address, " within ", absl::FormatDuration(limit)));
}

}  // namespace cxlpool::bench
