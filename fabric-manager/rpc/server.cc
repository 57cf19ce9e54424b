#include "fabric-manager/rpc/server.h"

#include <grpc/grpc.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/rpc/access_rpc.h"
#include "fabric-manager/rpc/admission.h"
#include "fabric-manager/rpc/backup_rpc.h"
#include "fabric-manager/rpc/calls.h"
#include "fabric-manager/rpc/host_rpc.h"
#include "fabric-manager/rpc/inventory_rpc.h"
#include "fabric-manager/rpc/pool_rpc.h"
#include "fabric-manager/rpc/refusal_trail.h"
#include "fabric-manager/rpc/server_health.h"
#include "fabric-manager/rpc/standard_rpc.h"
#include "proto/support/address.h"
#include "proto/support/loop.h"
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

class Server final : public RpcServer {
 public:
  Server(const ServerOptions& options, Executor* executor, PoolService* pool,
         HostSessions* sessions, Store* store, const ViewHolder* views, WatchHub* watch)
      : refusal_trail_(&clock_, &answers_,
                       [pool](auto refusals) { pool->RecordRefusals(std::move(refusals)); }),
        backups_(store, options.store_directory, &answers_, options.meters),
        pool_(pool, views, watch, &answers_, options.fabric),
        inventory_(pool, views, &backups_, &answers_, &server_health_, options.fabric.driver),
        access_(pool, views, &answers_),
        host_(executor, sessions,
              [this](const auto& peer, const absl::Status& why) { Refused(peer, "", why); }),
        calls_(views, &admission_, &answers_,
               {.let_in = [this](const auto& peer,
                                 const Caller& caller) { return LetIn(peer, caller); },
                .refused = [this](const auto& peer, const auto& method,
                                  const absl::Status& why) { Refused(peer, method, why); },
                .empty = [this](const auto& peer) { listener_.NoteEmptyCall(peer); },
                .answered =
                    [this](const AnsweredCall& call) {
                      call_log_.Note(call);
                      refusal_trail_.NoteAnswered(call);
                    },
                .meters = options.meters},
               options.admins),
        listener_(options.connections, &refused_) {
    pool_.AddTo(calls_);
    inventory_.AddTo(calls_);
    access_.AddTo(calls_);
    host_.AddTo(calls_);
    health_.AddTo(calls_);
    AddReflection(calls_);
    calls_.WatchRoleBindings();
  }

  ~Server() override { Shutdown(absl::ZeroDuration()); }

  absl::Status Listen(const ServerOptions& options) {
    // Once more than it is shut down: the end of the library itself may wait 10 s for a poller of
    // connections that are gone (gRPC 1.51, tcp_posix.cc), and nothing here needs it.
    static std::once_flag stays_up;
    std::call_once(stays_up, grpc_init);
    grpc::EnableDefaultHealthCheckService(false);
    grpc::ServerBuilder builder;
    SetLimits(builder);
    builder.RegisterCallbackGenericService(&calls_);
    for (const ListenAddress& listen : options.listen) {
      if (absl::Status status = ListenOn(listen, options, builder); !status.ok()) return status;
    }
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("gRPC's server does not start");
    listener_.Start();
    return absl::OkStatus();
  }

  void SetServing(bool serving) override { server_health_.SetServing(serving); }

  void NoteStore(const absl::Status& status) override { server_health_.NoteStore(status); }

  void SetAdmins(const std::vector<std::string>& admins) override { calls_.SetAdmins(admins); }

  int watches() override { return admission_.CountOf(Admission::Kind::kWatch); }

  uint64_t watch_lag() override { return pool_.watch_lag(); }

  void Ping(Task task) override { listener_.Ping(std::move(task)); }

  void Shutdown(absl::Duration grace) override {
    listener_.Stop();
    if (server_ == nullptr) return;
    server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
    server_->Wait();
    server_.reset();
    answers_.Stop();  // Its timers know of calls and streams.
  }

  std::vector<int> ports() const override { return ports_; }

 private:
  static void SetLimits(grpc::ServerBuilder& builder) {
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
    // Agents ping every 10 s even when they have nothing to say.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
  }

  // Connections to the address are accepted by `listener_` and become gRPC's by an acceptor that
  // knows the credentials.
  absl::Status ListenOn(const ListenAddress& listen, const ServerOptions& options,
                        grpc::ServerBuilder& builder) {
    std::shared_ptr<grpc::ServerCredentials> credentials;
    if (listen.insecure) {
      if (absl::Status status = CheckInsecureAddress(listen.address); !status.ok()) return status;
      credentials = grpc::InsecureServerCredentials();
    } else {
      if (options.tls == nullptr) {
        return Refuse(absl::StatusCode::kInvalidArgument, "NO_TLS",
                      absl::StrCat("address ", listen.address, " needs TLS"),
                      "set [tls] ca, cert and key (`cxlpool pki issue manager fm` makes them), or "
                      "mark a loopback address insecure");
      }
      credentials = ServerTls(
          options.tls, listen.tokens ? ClientCertificate::kOptional : ClientCertificate::kRequired);
    }
    acceptors_.push_back(builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials));
    auto port = listener_.Listen(
        listen.address, !listen.insecure, [acceptor = acceptors_.back().get()](int fd) {
          grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
          connection.fd = fd;
          acceptor->HandleNewConnection(&connection);
        });
    if (!port.ok()) return port.status();
    ports_.push_back(*port);
    return absl::OkStatus();
  }

  absl::Status LetIn(const std::string& peer, const Caller& caller) {
    return listener_.Prove(peer, caller.is_local() ? "" : caller.identity(), caller.is_host());
  }
  // `method` is empty for the hello of a session.
  void Refused(const std::string& peer, const std::string& method, const absl::Status& why) {
    refusal_trail_.NoteUnread(method, peer, why);
    const bool is_agent = method.empty() || absl::StartsWith(method, "/cxlpool.v1.HostService/");
    const size_t colon = peer.rfind(':');
    const std::optional<Refusal> refusal = RefusalOf(why);
    refused_.Note(is_agent ? "an agent" : "a call",
                  colon == std::string::npos ? peer : peer.substr(0, colon), ReasonOf(why),
                  why.message(), refusal.has_value() ? refusal->remedy : "", is_agent);
  }

  SystemClock clock_;
  RefusedPeers refused_{&clock_};
  CallLog call_log_{&clock_};
  HealthRpc health_;
  Loop answers_{"fm-answers"};
  RefusalTrail refusal_trail_;
  ServerHealth server_health_{&clock_, &answers_, &health_, &refused_};
  BackupStreams backups_;
  PoolRpc pool_;
  InventoryRpc inventory_;
  AccessRpc access_;
  HostRpc host_;
  Admission admission_;
  Calls calls_;
  std::vector<int> ports_;
  std::vector<std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>> acceptors_;
  Listener listener_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const ServerOptions& options,
                                                            Executor* executor, PoolService* pool,
                                                            HostSessions* sessions, Store* store,
                                                            const ViewHolder* views,
                                                            WatchHub* watch) {
  auto server = std::make_unique<Server>(options, executor, pool, sessions, store, views, watch);
  if (absl::Status status = server->Listen(options); !status.ok()) return status;
  return server;
}

}  // namespace cxlpool::fm
