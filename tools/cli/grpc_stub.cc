#include "tools/cli/grpc_stub.h"

#include <grpc/grpc.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include <chrono>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cxlpool/v1/access_service.grpc.pb.h"
#include "cxlpool/v1/inventory_service.grpc.pb.h"
#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "proto/support/address.h"
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

std::chrono::system_clock::time_point Deadline(absl::Duration limit) {
  return std::chrono::system_clock::now() + absl::ToChronoMilliseconds(limit);
}

class GrpcStub : public ManagerStub {
 public:
  // `tls`: what is shown to the manager; nothing without TLS. `token`: empty, or what is shown
  // besides.
  GrpcStub(std::shared_ptr<grpc::Channel> channel, std::string peer, std::optional<TlsMaterial> tls,
           std::string server_name, std::string token)
      : tls_(std::move(tls)),
        server_name_(std::move(server_name)),
        authorization_(token.empty() ? "" : absl::StrCat("Bearer ", token)),
        channel_(channel),
        pool_(v1::PoolService::NewStub(channel)),
        inventory_(v1::InventoryService::NewStub(channel)),
        access_(v1::AccessService::NewStub(channel)),
        peer_(std::move(peer)) {}

#define CXLPOOL_GRPC_METHOD(service, method, request_type, response_type)                 \
  Answer<v1::response_type> method(const v1::request_type& request, absl::Duration limit) \
      override {                                                                          \
    return Call(&service::method, request, limit);                                        \
  }
  CXLPOOL_MANAGER_METHODS(CXLPOOL_GRPC_METHOD)
#undef CXLPOOL_GRPC_METHOD

  absl::Status WatchRegions(const v1::WatchRegionsRequest& request, absl::Duration limit,
                            OnOpen on_open, OnEvent on_event) override {
    grpc::ClientContext context;
    Authorize(context);
    context.set_deadline(Deadline(limit));
    if (absl::Status status = Dial(limit); !status.ok()) return status;
    if (channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) on_open();
    const auto reader = pool_->WatchRegions(&context, request);
    v1::WatchRegionsResponse event;
    while (reader->Read(&event)) {
      if (on_event(event)) continue;
      context.TryCancel();
      reader->Finish();
      return absl::OkStatus();
    }
    return WithCause(reader->Finish(), context);
  }

  absl::Status Backup(const v1::BackupRequest& request, absl::Duration connect,
                      absl::Duration limit, OnPiece on_piece) override {
    grpc::ClientContext context;
    Authorize(context);
    if (absl::Status status = Dial(connect); !status.ok()) return status;
    context.set_deadline(Deadline(limit));
    const auto reader = inventory_->Backup(&context, request);
    v1::BackupResponse piece;
    while (reader->Read(&piece)) {
      const absl::Status status = on_piece(piece);
      if (status.ok()) continue;
      context.TryCancel();
      reader->Finish();
      return status;
    }
    return WithCause(reader->Finish(), context);
  }

 private:
  void Authorize(grpc::ClientContext& context) const {
    if (!authorization_.empty()) context.AddMetadata("authorization", authorization_);
  }

  template <typename Stub>
  Stub& StubOf() {
    if constexpr (std::is_same_v<Stub, Pool>) {
      return *pool_;
    } else if constexpr (std::is_same_v<Stub, Access>) {
      return *access_;
    } else {
      return *inventory_;
    }
  }

  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request, absl::Duration limit) {
    grpc::ClientContext context;
    Authorize(context);
    context.set_deadline(Deadline(limit));
    if (absl::Status status = Dial(limit); !status.ok()) return status;
    Response response;
    const grpc::Status status = (StubOf<Stub>().*method)(&context, request, &response);
    if (status.ok()) return response;
    return WithCause(status, context);
  }

  // The manager's own answer. A manager whose certificate is not accepted is reachable all the
  // same.
  absl::Status WithCause(const grpc::Status& status, const grpc::ClientContext& context) {
    const absl::Status answer = FromWire(status, context, peer_);
    if (ReasonOf(answer) != "MANAGER_UNREACHABLE") return answer;
    const std::string text = absl::AsciiStrToLower(status.error_message());
    // gRPC does not say what is wrong with a certificate, or that the manager refuses ours.
    if (tls_.has_value() && !absl::StrContains(text, "failed to connect to remote host")) {
      absl::Status found = DiagnoseManager(peer_, server_name_, *tls_, kDiagnosisTimeout);
      if (!found.ok()) return found;
    }
    if (absl::StrContains(text, "certificate verify failed") ||
        absl::StrContains(text, "is not in peer certificate")) {
      return Refuse(absl::StatusCode::kUnauthenticated, "MANAGER_NOT_TRUSTED",
                    absl::StrCat(peer_, " shows a certificate that is not believed: ",
                                 status.error_message()),
                    "check ca and server_name (--ca, --server-name, or cli.toml) "
                    "against the manager's certificate, and that it has not expired",
                    {{"manager", peer_}});
    }
    const bool unknown_name =
        absl::StrContains(text, "dns resolution") || absl::StrContains(text, "c-ares");
    last_failure_ = unknown_name ? NoSuchName() : answer;
    return last_failure_;
  }

  absl::Status NoSuchName() const {
    return Refuse(absl::StatusCode::kUnavailable, "MANAGER_UNREACHABLE",
                  absl::StrCat("the host name in ", peer_, " cannot be resolved"),
                  "check the address (--manager, CXLPOOL_MANAGER, or cli.toml), and DNS",
                  {{"manager", peer_}});
  }

  // Until connected, or one dial has failed (then the call says why). A call that fails at once
  // lends the channel no time to connect in: without this a lost connection would hardly come back.
  // UNAVAILABLE/MANAGER_UNREACHABLE: `limit` is over; nothing was sent.
  absl::Status Dial(absl::Duration limit) {
    const auto end = Deadline(limit);
    auto state = channel_->GetState(/*try_to_connect=*/true);
    while (state != GRPC_CHANNEL_READY && state != GRPC_CHANNEL_SHUTDOWN) {
      if (!channel_->WaitForStateChange(state, end)) return Unreachable(limit);
      state = channel_->GetState(/*try_to_connect=*/true);
      if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) break;
    }
    return absl::OkStatus();
  }

  absl::Status Unreachable(absl::Duration limit) const {
    if (!last_failure_.ok()) return last_failure_;
    return Refuse(absl::StatusCode::kUnavailable, "MANAGER_UNREACHABLE",
                  absl::StrCat("cannot reach the fabric manager at ", peer_,
                               ": no connection within ", absl::FormatDuration(limit)),
                  "check the address, and that the network lets it through", {{"manager", peer_}});
  }

  const std::optional<TlsMaterial> tls_;
  const std::string server_name_;
  const std::string authorization_;  // What goes along with each call; empty: nothing.
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<Pool> pool_;
  const std::unique_ptr<Inventory> inventory_;
  const std::unique_ptr<Access> access_;
  const std::string peer_;
  absl::Status last_failure_;  // Why the manager could not be reached last.
};

grpc::ChannelArguments Arguments(const ConnectionSettings& settings) {
  grpc::ChannelArguments arguments;
  arguments.SetUserAgentPrefix("cxlpool/" CXLPOOL_VERSION);
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  // connection.h paces the retries: the channel must be ready to dial when it tries.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);  // That is how long a dial may take.
  // No more often than a server with default settings takes; it also bounds unacknowledged data.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 310'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
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

absl::StatusOr<std::unique_ptr<ManagerStub>> MakeGrpcStub(const ConnectionSettings& settings,
                                                          std::vector<std::string>* warnings) {
  KeepGrpcUp();
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::optional<TlsMaterial> material;
  std::string token;
  if (!settings.token_file.empty()) {
    absl::StatusOr<std::string> read = ReadTokenFile(settings.token_file);
    if (!read.ok()) return read.status();
    token = *std::move(read);
  }
  if (settings.insecure) {
    if (absl::Status status = CheckInsecureAddress(settings.manager); !status.ok()) return status;
    credentials = grpc::InsecureChannelCredentials();
  } else {
    auto tls = LoadTls({.ca = settings.ca, .cert = settings.cert, .key = settings.key});
    if (!tls.ok()) return tls.status();
    credentials = ClientTlsOf(*tls);
    if (warnings != nullptr) *warnings = ExpiryWarnings(*tls, absl::Now());
    material = *std::move(tls);
  }
  return std::make_unique<GrpcStub>(
      grpc::CreateCustomChannel(settings.manager, credentials, Arguments(settings)),
      settings.manager, std::move(material), settings.server_name, std::move(token));
}

}  // namespace cxlpool::cli
