#include "fabric-manager/rpc/grpc_front.h"

#include <grpc/grpc.h>
#include <grpcpp/resource_quota.h>

#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/address.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr int kMaxMessageBytes = 4 << 20;
constexpr size_t kMaxMemoryBytes = size_t{512} << 20;  // gRPC's own buffers.
constexpr int kMaxThreads = 64;
constexpr int kMaxStreamsPerConnection = 256;
constexpr int kHandshakeMs = 5000;  // From the hand-over to the first frame of HTTP/2.
constexpr int kIdleMs =
    5 * 60'000;  // A connection without calls; clients dial again by themselves.

void SetLimits(grpc::ServerBuilder& builder) {
  grpc::ResourceQuota quota("cxlpool-fm");
  quota.Resize(kMaxMemoryBytes).SetMaxThreads(kMaxThreads);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // A message that is compressed could become any size: gRPC refuses the call when its headers
  // say so, with UNIMPLEMENTED and the name of the algorithm.
  const bool compression = CXLPOOL_MUTANT("compressed-is-inflated");
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, compression);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, compression);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, compression ? 1 : 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  // What a stream may send before it is read stays at HTTP/2's 64 KiB.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
  // Those that have another manager to turn to ping every 1.2 s, even when they have nothing to
  // say.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
}

}  // namespace

absl::Status GrpcFront::Start(const std::vector<ListenAddress>& listen,
                              const std::shared_ptr<TlsSource>& tls,
                              grpc::CallbackGenericService* calls) {
  // Once more than it is shut down: the end of the library itself may wait 10 s for a poller of
  // connections that are gone (gRPC 1.51, tcp_posix.cc), and nothing here needs it.
  static std::once_flag stays_up;
  std::call_once(stays_up, grpc_init);
  grpc::EnableDefaultHealthCheckService(false);
  grpc::ServerBuilder builder;
  SetLimits(builder);
  builder.RegisterCallbackGenericService(calls);
  for (const ListenAddress& one : listen) {
    if (absl::Status status = ListenOn(one, tls, builder); !status.ok()) return status;
  }
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::InternalError("gRPC's server does not start");
  listener_.Start();
  return absl::OkStatus();
}

// Connections to the address are accepted by `listener_` and become gRPC's by an acceptor that
// knows the credentials.
absl::Status GrpcFront::ListenOn(const ListenAddress& listen, const std::shared_ptr<TlsSource>& tls,
                                 grpc::ServerBuilder& builder) {
  std::shared_ptr<grpc::ServerCredentials> credentials;
  if (listen.insecure) {
    if (absl::Status status = CheckInsecureAddress(listen.address); !status.ok()) return status;
    credentials = grpc::InsecureServerCredentials();
  } else {
    if (tls == nullptr) {
      return Refuse(absl::StatusCode::kInvalidArgument, "NO_TLS",
                    absl::StrCat("address ", listen.address, " needs TLS"),
                    "set [tls] ca, cert and key (`cxlpool pki issue manager fm` makes them), or "
                    "mark a loopback address insecure");
    }
    credentials =
        ServerTls(tls, listen.tokens ? ClientCertificate::kOptional : ClientCertificate::kRequired);
  }
  acceptors_.push_back(builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials));
  auto port = listener_.Listen(
      listen.address, !listen.insecure,
      [acceptor = acceptors_.back().get()](int fd) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
        connection.fd = fd;
        acceptor->HandleNewConnection(&connection);
      },
      listen.tokens);
  if (!port.ok()) return port.status();
  ports_.push_back(*port);
  return absl::OkStatus();
}

void GrpcFront::Shutdown(absl::Duration grace) {
  listener_.Stop();
  if (server_ == nullptr) return;
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
  server_->Wait();
  server_.reset();
}

}  // namespace cxlpool::fm
