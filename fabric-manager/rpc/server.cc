#include "fabric-manager/rpc/server.h"

#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <sys/stat.h>

#include <list>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/rpc/admission.h"
#include "fabric-manager/rpc/backup_rpc.h"
#include "fabric-manager/rpc/calls.h"
#include "fabric-manager/rpc/host_rpc.h"
#include "fabric-manager/rpc/inventory_rpc.h"
#include "fabric-manager/rpc/pool_rpc.h"
#include "proto/support/address.h"
#include "proto/support/loop.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr int kMaxMessageBytes = 4 << 20;
constexpr size_t kMaxMemoryBytes = size_t{512} << 20;  // gRPC's own buffers.
constexpr int kMaxThreads = 64;
constexpr int kMaxStreamsPerConnection = 256;

class Server final : public RpcServer {
 public:
  Server(const ServerOptions& options, Executor* executor, PoolService* pool,
         HostSessions* sessions, Store* store, const ViewHolder* views, WatchHub* watch)
      : backups_(store, options.store_directory, &answers_),
        pool_(pool, views, watch, &answers_, options.hardware_coherent),
        inventory_(pool, views, &backups_, &answers_, options.fabric),
        host_(executor, sessions),
        calls_(views, &admission_, &answers_) {
    pool_.AddTo(calls_);
    inventory_.AddTo(calls_);
    host_.AddTo(calls_);
  }

  ~Server() override { Shutdown(absl::ZeroDuration()); }

  absl::Status Listen(const ServerOptions& options) {
    // Once more than it is shut down: the end of the library itself may wait 10 s for a poller of
    // connections that are gone (gRPC 1.51, tcp_posix.cc), and nothing here needs it.
    static std::once_flag stays_up;
    std::call_once(stays_up, grpc_init);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    grpc::ResourceQuota quota("cxlpool-fm");
    quota.Resize(kMaxMemoryBytes).SetMaxThreads(kMaxThreads);
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Agents ping every 10 s even when they have nothing to say.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
    for (const ListenAddress& listen : options.listen) {
      std::shared_ptr<grpc::ServerCredentials> credentials;
      if (listen.insecure) {
        if (absl::Status status = CheckInsecureAddress(listen.address); !status.ok()) return status;
        credentials = grpc::InsecureServerCredentials();
      } else {
        if (options.tls == nullptr) {
          return Refusal{absl::StatusCode::kInvalidArgument,
                         "NO_TLS",
                         absl::StrCat("address ", listen.address, " needs TLS"),
                         "set [tls] ca, cert and key (`cxlpool pki issue manager fm` makes them), "
                         "or mark a loopback address insecure",
                         {}}
              .ToStatus();
        }
        credentials = ServerTls(options.tls);
      }
      bound_.push_back(0);
      builder.AddListeningPort(listen.address, credentials, &bound_.back());
    }
    builder.RegisterCallbackGenericService(&calls_);
    // A Unix socket is the operator's alone from the moment it is there.
    const mode_t mask = umask(0177);
    server_ = builder.BuildAndStart();
    umask(mask);
    if (server_ == nullptr) {
      std::string addresses;
      for (const ListenAddress& listen : options.listen) {
        absl::StrAppend(&addresses, addresses.empty() ? "" : ", ", listen.address);
      }
      return Refusal{absl::StatusCode::kUnavailable,
                     "CANNOT_LISTEN",
                     absl::StrCat("cannot listen on ", addresses),
                     "see whether another process has the address (ss -ltnp)",
                     {}}
          .ToStatus();
    }
    return absl::OkStatus();
  }

  void SetServing(bool serving) override {
    server_->GetHealthCheckService()->SetServingStatus(serving);
  }

  void Shutdown(absl::Duration grace) override {
    if (server_ == nullptr) return;
    server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
    server_->Wait();
    server_.reset();
    answers_.Stop();  // Its timers know of calls and streams.
  }

  std::vector<int> ports() const override { return {bound_.begin(), bound_.end()}; }

 private:
  Loop answers_{"fm-answers"};
  BackupStreams backups_;
  PoolRpc pool_;
  InventoryRpc inventory_;
  HostRpc host_;
  Admission admission_;
  Calls calls_;
  std::list<int> bound_;  // gRPC keeps pointers to its elements.
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
