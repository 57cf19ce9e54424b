#include "fabric-manager/rpc/server.h"

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
#include "proto/support/loop.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

std::function<std::vector<CertificateEnd>()> CertificatesOf(const ServerOptions& options) {
  return [tls = options.tls, etcd = options.etcd_certificates] { return EndsOf(tls.get(), etcd); };
}

// What belongs together for as long as it listens. A member is used by those that come after it,
// and ends after them.
class Server final : public RpcServer {
 public:
  Server(const ServerOptions& options, Executor* executor, PoolService* pool,
         HostSessions* sessions, Store* store, const ViewHolder* views, WatchHub* watch)
      : refusal_trail_(&clock_, &answers_,
                       [pool](auto refusals) { pool->RecordRefusals(std::move(refusals)); }),
        server_health_(&clock_, &answers_, &health_, &refused_,
                       {options.meters, CertificatesOf(options), options.database,
                        [pool] { pool->TryStore(); }}),
        backups_(store, options.store_directory, &answers_, options.meters),
        pool_(pool, views, watch, &answers_, options.fabric),
        inventory_(pool, views, &backups_, &answers_, &server_health_, options.fabric.driver),
        access_(pool, views, &answers_, options.epoch),
        host_(executor, sessions,
              [this](const auto& peer, const absl::Status& why) { Refused(peer, "", why); }),
        calls_(views, &admission_, &answers_,
               {.let_in = [this](const auto& peer,
                                 const Caller& caller) { return LetIn(peer, caller); },
                .refused = [this](const auto& peer, const auto& method,
                                  const absl::Status& why) { Refused(peer, method, why); },
                .empty =
                    [this](const auto& peer, bool has_certificate) {
                      front_.listener().NoteEmptyCall(peer, has_certificate);
                    },
                .answered =
                    [this](const AnsweredCall& call) {
                      call_log_.Note(call);
                      refusal_trail_.NoteAnswered(call);
                    },
                .meters = options.meters},
               options.admins),
        front_(options.connections, &refused_) {
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
    return front_.Start(options.listen, options.tls, &calls_);
  }

  void SetServing(bool serving) override { server_health_.SetServing(serving); }

  void NoteStore(const absl::Status& status) override { server_health_.NoteStore(status); }

  void SetAdmins(const std::vector<std::string>& admins) override { calls_.SetAdmins(admins); }

  int watches() override { return admission_.CountOf(Admission::Kind::kWatch); }

  uint64_t watch_lag() override { return pool_.watch_lag(); }

  void Ping(Task task) override { front_.listener().Ping(std::move(task)); }

  // The loop's timers know of calls and streams: it ends before they do, also where nothing was
  // ever served.
  void Shutdown(absl::Duration grace) override {
    front_.Shutdown(grace);
    answers_.Stop();
  }

  std::vector<int> ports() const override { return front_.ports(); }

 private:
  // A connection's identity is known with its first call. From then on it counts for that identity,
  // which may have only so many. A caller without TLS has no identity.
  absl::Status LetIn(const std::string& peer, const Caller& caller) {
    const std::string none;
    return front_.listener().Prove(peer, caller.is_local() ? none : caller.identity(),
                                   caller.is_host());
  }
  // Notes who was turned away, in the audit trail and in the health's list of peers. Agents are
  // noted apart from other callers: the operator repairs that elsewhere. `method` is empty for the
  // hello of a session.
  // The peer's port is left out: it is another one each time.
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
  ServerHealth server_health_;
  BackupStreams backups_;
  PoolRpc pool_;
  InventoryRpc inventory_;
  AccessRpc access_;
  HostRpc host_;
  Admission admission_;
  Calls calls_;
  GrpcFront front_;
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
