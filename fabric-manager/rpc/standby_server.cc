#include "fabric-manager/rpc/standby_server.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/rpc/calls.h"
#include "fabric-manager/rpc/grpc_front.h"
#include "fabric-manager/rpc/refused_peers.h"
#include "grpc/health/v1/health.pb.h"
#include "proto/support/mutant.h"
#include "proto/support/peer_identity.h"
#include "proto/support/refusal.h"
#include "proto/support/status_wire.h"

namespace cxlpool::fm {
namespace {

// `facts` is null where the caller is nobody that is known.
absl::Status NotLeader(const StandbyFacts* facts) {
  std::vector<std::pair<std::string, std::string>> metadata;
  if (facts != nullptr) {
    if (!facts->leader.empty()) metadata.emplace_back("leader", facts->leader);
    metadata.emplace_back("epoch", absl::StrCat(facts->epoch));
    metadata.emplace_back("revision", absl::StrCat(facts->revision));
  }
  return Refuse(absl::StatusCode::kUnavailable, "NOT_LEADER",
                "this fabric manager is a standby: it does not lead the pool",
                "name all managers of the pool, as in --manager A,B, so that the one that leads "
                "is found",
                std::move(metadata));
}

// Says NOT_SERVING and ends: by OK where that is the whole answer, else by `end`.
class NotServing final : public grpc::ServerGenericBidiReactor {
 public:
  explicit NotServing(const grpc::Status& end) {
    grpc::health::v1::HealthCheckResponse response;
    response.set_status(grpc::health::v1::HealthCheckResponse::NOT_SERVING);
    if (CXLPOOL_MUTANT("standby-serves")) response.set_status(response.SERVING);
    answer_ = ToBytes(response);
    StartWriteAndFinish(&answer_, grpc::WriteOptions(), end);
  }

 private:
  void OnDone() override { delete this; }

  grpc::ByteBuffer answer_;
};

// One answer for every method, so that no request is ever parsed.
class Standby final : public StandbyServer, private grpc::CallbackGenericService {
 public:
  Standby(const ConnectionLimits& limits, std::function<StandbyFacts()> facts)
      : facts_(std::move(facts)), front_(limits, &refused_) {}

  absl::Status Listen(const ServerOptions& options) {
    return front_.Start(options.listen, options.tls, this);
  }

  void Shutdown(absl::Duration grace) override { front_.Shutdown(grace); }

  std::vector<int> ports() const override { return front_.ports(); }

 private:
  // Health is asked by load balancers, which know a status and no refusal: a check is answered, and
  // a watch hears the same and then ends as every call does. A caller that may not connect is
  // told only that.
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    const absl::Status answer = AnswerTo(*context);
    const bool of_health = absl::StartsWith(context->method(), "/grpc.health.v1.Health/");
    if (!of_health || ReasonOf(answer) != "NOT_LEADER") {
      return RefusedCall::Now(*context, answer, &note_empty_);
    }
    const bool check = absl::EndsWith(context->method(), "/Check");
    return new NotServing(check ? grpc::Status::OK : ToWire(answer, *context));
  }

  // A peer that is known has its connection counted as its own, as with a manager that leads; one
  // that has more than it may hears that. Without a certificate there is nothing to go by: a token
  // could only be judged with the pool's records.
  absl::Status AnswerTo(const grpc::GenericCallbackServerContext& context) {
    const absl::StatusOr<PeerIdentity> identity = IdentityOf(*context.auth_context());
    if (!identity.ok()) return NotLeader(nullptr);
    const bool local = !context.auth_context()->IsPeerAuthenticated();
    absl::Status proven = front_.listener().Prove(context.peer(), local ? "" : identity->uri,
                                                  identity->role == Role::kHost);
    if (!proven.ok()) return proven;
    const StandbyFacts facts = facts_();
    return NotLeader(&facts);
  }

  const SystemClock clock_;
  RefusedPeers refused_{&clock_};
  const std::function<StandbyFacts()> facts_;
  const NoteEmpty note_empty_ = [this](const auto& peer, bool has_certificate) {
    front_.listener().NoteEmptyCall(peer, has_certificate);
  };
  GrpcFront front_;  // Last: its threads use all of the above.
};

}  // namespace

absl::StatusOr<std::unique_ptr<StandbyServer>> StandbyServer::Start(
    const ServerOptions& options, std::function<StandbyFacts()> facts) {
  auto server = std::make_unique<Standby>(options.connections, std::move(facts));
  if (absl::Status status = server->Listen(options); !status.ok()) return status;
  return server;
}

}  // namespace cxlpool::fm
