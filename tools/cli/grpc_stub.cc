#include "tools/cli/grpc_stub.h"

#include <grpc/grpc.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cxlpool/v1/access_service.grpc.pb.h"
#include "cxlpool/v1/inventory_service.grpc.pb.h"
#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "proto/support/address.h"
#include "proto/support/manager_rotation.h"
#include "proto/support/refusal.h"
#include "proto/support/status_wire.h"
#include "proto/support/tls.h"
#include "proto/support/tls_diagnosis.h"

namespace cxlpool::cli {
namespace {

using Pool = v1::PoolService::StubInterface;
using Inventory = v1::InventoryService::StubInterface;
using Access = v1::AccessService::StubInterface;

// A page of 1000 Regions, or the topology of a large rack.
constexpr int kMaxAnswerBytes = 64 * 1024 * 1024;
constexpr absl::Duration kDiagnosisTimeout = absl::Seconds(3);
constexpr absl::Duration kDialOneOfSeveral = absl::Seconds(3);

// Of the pings that find a manager whose machine is gone, and of the answer to each.
struct Keepalive {
  int time_ms;
  int timeout_ms;
  int without_data;  // So many in a row on a connection that is otherwise silent; 0: any number.
};
// No more often than a server with default settings takes; it also bounds unacknowledged data.
constexpr Keepalive kOneManager = {310'000, 20'000, 2};
// Of several another may lead by then. What is a replica takes a ping a second.
constexpr Keepalive kSeveralManagers = {2'000, 2'000, 0};

std::chrono::system_clock::time_point Deadline(absl::Duration limit) {
  return std::chrono::system_clock::now() + absl::ToChronoMilliseconds(limit);
}

// One manager, and the way to it.
struct Peer {
  Peer(std::string at, std::shared_ptr<grpc::Channel> over)
      : address(std::move(at)),
        channel(std::move(over)),
        pool(v1::PoolService::NewStub(channel)),
        inventory(v1::InventoryService::NewStub(channel)),
        access(v1::AccessService::NewStub(channel)) {}

  std::string address;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<Pool> pool;
  std::unique_ptr<Inventory> inventory;
  std::unique_ptr<Access> access;
  absl::Status last_failure;  // Why it could not be reached last.
};

class GrpcStub : public ManagerStub {
 public:
  // `tls`: what is shown to the managers; nothing without TLS. `token`: empty, or what is shown
  // besides.
  GrpcStub(std::vector<Peer> peers, std::vector<std::string> addresses,
           std::optional<TlsMaterial> tls, std::string server_name, std::string token)
      : tls_(std::move(tls)),
        server_name_(std::move(server_name)),
        authorization_(token.empty() ? "" : absl::StrCat("Bearer ", token)),
        peers_(std::move(peers)),
        rotation_(std::move(addresses)) {}

#define CXLPOOL_GRPC_METHOD(service, method, request_type, response_type)                 \
  Answer<v1::response_type> method(const v1::request_type& request, absl::Duration limit) \
      override {                                                                          \
    return Call(&service::method, request, limit);                                        \
  }
  CXLPOOL_MANAGER_METHODS(CXLPOOL_GRPC_METHOD)
#undef CXLPOOL_GRPC_METHOD

  absl::Status WatchRegions(const v1::WatchRegionsRequest& request, absl::Duration limit,
                            OnOpen on_open, OnEvent on_event) override {
    Peer& peer = Current();
    grpc::ClientContext context;
    Authorize(context);
    context.set_deadline(Deadline(limit));
    if (absl::Status status = Dial(peer, limit); !status.ok()) return status;
    if (peer.channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) on_open();
    const auto reader = peer.pool->WatchRegions(&context, request);
    v1::WatchRegionsResponse event;
    while (reader->Read(&event)) {
      rotation_.Reached();
      if (on_event(event)) continue;
      context.TryCancel();
      reader->Finish();
      return absl::OkStatus();
    }
    return WithCause(peer, reader->Finish(), context);
  }

  absl::Status Backup(const v1::BackupRequest& request, absl::Duration connect,
                      absl::Duration limit, OnPiece on_piece) override {
    Peer& peer = Current();
    grpc::ClientContext context;
    Authorize(context);
    if (absl::Status status = Dial(peer, connect); !status.ok()) return status;
    context.set_deadline(Deadline(limit));
    const auto reader = peer.inventory->Backup(&context, request);
    v1::BackupResponse piece;
    while (reader->Read(&piece)) {
      rotation_.Reached();
      const absl::Status status = on_piece(piece);
      if (status.ok()) continue;
      context.TryCancel();
      reader->Finish();
      return status;
    }
    return WithCause(peer, reader->Finish(), context);
  }

  bool Turn(absl::Status& why) override {
    return ManagerRotation::MayAnswerElsewhere(why) && rotation_.Turn(why);
  }

  std::vector<std::string> addresses() const override { return rotation_.addresses(); }

  Answer<v1::Self> SelfAt(size_t manager, absl::Duration limit) override {
    return CallAt(peers_[manager], &Access::GetSelf, v1::GetSelfRequest(), limit);
  }

 private:
  Peer& Current() { return peers_[rotation_.index()]; }

  void Authorize(grpc::ClientContext& context) const {
    if (!authorization_.empty()) context.AddMetadata("authorization", authorization_);
  }

  template <typename Stub>
  static Stub& StubOf(Peer& peer) {
    if constexpr (std::is_same_v<Stub, Pool>) {
      return *peer.pool;
    } else if constexpr (std::is_same_v<Stub, Access>) {
      return *peer.access;
    } else {
      return *peer.inventory;
    }
  }

  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request, absl::Duration limit) {
    auto answer = CallAt(Current(), method, request, limit);
    if (!ManagerRotation::MayAnswerElsewhere(answer.status())) rotation_.Reached();
    return answer;
  }

  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> CallAt(Peer& peer,
                                  grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                               Response*),
                                  const Request& request, absl::Duration limit) {
    grpc::ClientContext context;
    Authorize(context);
    context.set_deadline(Deadline(limit));
    if (absl::Status status = Dial(peer, limit); !status.ok()) return status;
    Response response;
    const grpc::Status status = (StubOf<Stub>(peer).*method)(&context, request, &response);
    if (status.ok()) return response;
    return WithCause(peer, status, context);
  }

  // The manager's own answer. A manager whose certificate is not accepted is reachable all the
  // same.
  absl::Status WithCause(Peer& peer, const grpc::Status& status,
                         const grpc::ClientContext& context) {
    const absl::Status answer = FromWire(status, context, peer.address);
    if (ReasonOf(answer) != "MANAGER_UNREACHABLE") return answer;
    const std::string text = absl::AsciiStrToLower(status.error_message());
    // gRPC does not say what is wrong with a certificate, or that the manager refuses ours.
    if (tls_.has_value() && !absl::StrContains(text, "failed to connect to remote host")) {
      absl::Status found = DiagnoseManager(peer.address, server_name_, *tls_, kDiagnosisTimeout);
      if (!found.ok()) return found;
    }
    if (absl::StrContains(text, "certificate verify failed") ||
        absl::StrContains(text, "is not in peer certificate")) {
      return Refuse(absl::StatusCode::kUnauthenticated, "MANAGER_NOT_TRUSTED",
                    absl::StrCat(peer.address, " shows a certificate that is not believed: ",
                                 status.error_message()),
                    "check ca and server_name (--ca, --server-name, or cli.toml) "
                    "against the manager's certificate, and that it has not expired",
                    {{"manager", peer.address}});
    }
    const bool unknown_name =
        absl::StrContains(text, "dns resolution") || absl::StrContains(text, "c-ares");
    peer.last_failure = unknown_name ? NoSuchName(peer) : answer;
    return peer.last_failure;
  }

  static absl::Status NoSuchName(const Peer& peer) {
    return Refuse(absl::StatusCode::kUnavailable, "MANAGER_UNREACHABLE",
                  absl::StrCat("the host name in ", peer.address, " cannot be resolved"),
                  "check the address (--manager, CXLPOOL_MANAGER, or cli.toml), and DNS",
                  {{"manager", peer.address}});
  }

  // Until connected, or one dial has failed (then the call says why). A call that fails at once
  // lends the channel no time to connect in: without this a lost connection would hardly come back.
  // One of several managers has its part of the time, and others are left with theirs.
  // UNAVAILABLE/MANAGER_UNREACHABLE: it is over; nothing was sent.
  absl::Status Dial(const Peer& peer, absl::Duration limit) const {
    if (peers_.size() > 1) {
      limit = std::min(limit / static_cast<int64_t>(peers_.size()), kDialOneOfSeveral);
    }
    const auto end = Deadline(limit);
    auto state = peer.channel->GetState(/*try_to_connect=*/true);
    while (state != GRPC_CHANNEL_READY && state != GRPC_CHANNEL_SHUTDOWN) {
      if (!peer.channel->WaitForStateChange(state, end)) return Unreachable(peer, limit);
      state = peer.channel->GetState(/*try_to_connect=*/true);
      if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) break;
    }
    return absl::OkStatus();
  }

  static absl::Status Unreachable(const Peer& peer, absl::Duration limit) {
    if (!peer.last_failure.ok()) return peer.last_failure;
    return Refuse(absl::StatusCode::kUnavailable, "MANAGER_UNREACHABLE",
                  absl::StrCat("cannot reach the fabric manager at ", peer.address,
                               ": no connection within ", absl::FormatDuration(limit)),
                  "check the address, and that the network lets it through",
                  {{"manager", peer.address}});
  }

  const std::optional<TlsMaterial> tls_;
  const std::string server_name_;
  const std::string authorization_;  // What goes along with each call; empty: nothing.
  std::vector<Peer> peers_;          // As in rotation_.
  ManagerRotation rotation_;
};

grpc::ChannelArguments Arguments(const ConnectionSettings& settings, const Keepalive& keepalive) {
  grpc::ChannelArguments arguments;
  arguments.SetUserAgentPrefix("cxlpool/" CXLPOOL_VERSION);
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  // connection.h paces the retries: the channel must be ready to dial when it tries.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);  // That is how long a dial may take.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive.time_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive.timeout_ms);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, keepalive.without_data);
  // The way to the manager is the one that was configured; the agent's is, too.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (!settings.insecure) arguments.SetSslTargetNameOverride(settings.server_name);
  return arguments;
}

// gRPC 1.51 takes itself down with its last user, and after a cancelled stream that can take 10 s:
// a command should end when it is done. So it stays up until the process ends.
void KeepGrpcUp() {
  static const bool up = [] {
    grpc_init();
    return true;
  }();
  static_cast<void>(up);
}

}  // namespace

// Reaches no manager: what is wrong here is wrong with the settings or the files that they name.
absl::StatusOr<std::unique_ptr<ManagerStub>> MakeGrpcStub(const ConnectionSettings& settings,
                                                          std::vector<std::string>* warnings) {
  KeepGrpcUp();
  absl::StatusOr<std::vector<std::string>> addresses = ParseAddressList(settings.manager);
  if (!addresses.ok()) return addresses.status();
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::optional<TlsMaterial> material;
  std::string token;
  if (!settings.token_file.empty()) {
    absl::StatusOr<std::string> read = ReadTokenFile(settings.token_file);
    if (!read.ok()) return read.status();
    token = *std::move(read);
  }
  if (settings.insecure) {
    for (const std::string& address : *addresses) {
      if (absl::Status status = CheckInsecureAddress(address); !status.ok()) return status;
    }
    credentials = grpc::InsecureChannelCredentials();
  } else {
    auto tls = LoadTls({.ca = settings.ca, .cert = settings.cert, .key = settings.key});
    if (!tls.ok()) return tls.status();
    credentials = ClientTlsOf(*tls);
    if (warnings != nullptr) *warnings = ExpiryWarnings(*tls, absl::Now());
    material = *std::move(tls);
  }
  const auto arguments =
      Arguments(settings, addresses->size() > 1 ? kSeveralManagers : kOneManager);
  std::vector<Peer> peers;
  for (const std::string& address : *addresses) {
    peers.emplace_back(address, grpc::CreateCustomChannel(address, credentials, arguments));
  }
  return std::make_unique<GrpcStub>(std::move(peers), *std::move(addresses), std::move(material),
                                    settings.server_name, std::move(token));
}

}  // namespace cxlpool::cli
