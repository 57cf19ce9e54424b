#include "tools/dra/kubelet_server.h"

#include <grpcpp/grpcpp.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kubelet/dra.grpc.pb.h"
#include "kubelet/registration.grpc.pb.h"
#include "proto/support/log.h"
#include "tools/dra/claim.h"

namespace cxlpool::dra {
namespace {

namespace api = ::k8s::io::kubelet::pkg::apis::dra::v1;
namespace registration = ::pluginregistration;

constexpr char kSubject[] = "cxlpool-dra";
constexpr char kType[] = "DRAPlugin";
constexpr char kService[] = "v1.DRAPlugin";  // As kubelets since 1.34 know it.
constexpr int kMaxRequestBytes = 1 << 20;
constexpr absl::Duration kReserve = absl::Seconds(1);  // So that the caller has the answer in time.
constexpr std::chrono::seconds kStopTimeout(2);

class Registration final : public registration::Registration::Service {
 public:
  explicit Registration(std::string endpoint) : endpoint_(std::move(endpoint)) {}

  grpc::Status GetInfo(grpc::ServerContext*, const registration::InfoRequest*,
                       registration::PluginInfo* info) override {
    info->set_type(kType);
    info->set_name(kDriver);
    info->set_endpoint(endpoint_);
    info->add_supported_versions(kService);
    return grpc::Status::OK;
  }
  grpc::Status NotifyRegistrationStatus(grpc::ServerContext*,
                                        const registration::RegistrationStatus* status,
                                        registration::RegistrationStatusResponse*) override {
    if (status->plugin_registered()) {
      LogInfo(kSubject, "the kubelet has registered ", kDriver);
    } else {
      LogError(kSubject, "the kubelet does not take ", kDriver, ": ", status->error(),
               " (it needs Kubernetes 1.34 or later)");
    }
    return grpc::Status::OK;
  }

 private:
  const std::string endpoint_;
};

// "claim NAMESPACE/NAME: ...".
std::string Said(const api::Claim& claim, const absl::Status& status) {
  std::string text =
      absl::StrCat("claim ", claim.namespace_(), "/", claim.name(), ": ", status.message());
  LogWarning(kSubject, text);
  return text;
}

grpc::Status CheckCount(int claims) {
  if (claims <= KubeletServer::kMaxClaimsOfACall) return grpc::Status::OK;
  return {grpc::StatusCode::INVALID_ARGUMENT,
          absl::StrCat(claims, " claims in one call; at most ", KubeletServer::kMaxClaimsOfACall,
                       " are taken")};
}

class Plugin final : public api::DRAPlugin::Service {
 public:
  Plugin(absl::Duration wait, ClaimKeeper* keeper) : wait_(wait), keeper_(keeper) {}

  grpc::Status NodePrepareResources(grpc::ServerContext* context,
                                    const api::NodePrepareResourcesRequest* request,
                                    api::NodePrepareResourcesResponse* response) override {
    if (grpc::Status s = CheckCount(request->claims_size()); !s.ok()) return s;
    std::vector<std::string> uids;
    for (const api::Claim& claim : request->claims()) uids.push_back(claim.uid());
    // Where many wait, the next is tried once: threads are left for claims that need not wait.
    const absl::Duration wait =
        waiting_.fetch_add(1) < KubeletServer::kMaxWaiting ? wait_ : absl::ZeroDuration();
    const absl::Time deadline =
        std::min(absl::Now() + wait, absl::FromChrono(context->deadline()) - kReserve);
    const std::map<std::string, absl::Status> outcomes =
        keeper_->Prepare(uids, deadline, [context] { return context->IsCancelled(); });
    waiting_.fetch_sub(1);
    for (const api::Claim& claim : request->claims()) {
      const absl::Status& outcome = outcomes.at(claim.uid());
      api::NodePrepareResourceResponse& answer = (*response->mutable_claims())[claim.uid()];
      answer.Clear();  // The claim may be named twice.
      if (!outcome.ok()) {
        answer.set_error(Said(claim, outcome));
        continue;
      }
      api::Device& device = *answer.add_devices();
      device.set_pool_name(kDevicePool);
      device.set_device_name(kDevice);
      device.add_cdi_device_ids(CdiDeviceId(*RegionOfClaim(claim.uid())));
    }
    return grpc::Status::OK;
  }

  grpc::Status NodeUnprepareResources(grpc::ServerContext*,
                                      const api::NodeUnprepareResourcesRequest* request,
                                      api::NodeUnprepareResourcesResponse* response) override {
    if (grpc::Status s = CheckCount(request->claims_size()); !s.ok()) return s;
    for (const api::Claim& claim : request->claims()) {
      api::NodeUnprepareResourceResponse& answer = (*response->mutable_claims())[claim.uid()];
      const absl::Status outcome = keeper_->Unprepare(claim.uid());
      if (!outcome.ok()) answer.set_error(Said(claim, outcome));
    }
    return grpc::Status::OK;
  }

 private:
  const absl::Duration wait_;
  ClaimKeeper* const keeper_;
  std::atomic<int> waiting_ = 0;
};

class GrpcKubeletServer final : public KubeletServer {
 public:
  GrpcKubeletServer(const ServerOptions& options, ClaimKeeper* keeper)
      : registration_(options.plugin_socket), plugin_(options.wait, keeper) {}
  ~GrpcKubeletServer() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kStopTimeout);
  }

  // A socket that a process before this one left is replaced.
  absl::Status Start(const ServerOptions& options) {
    grpc::ServerBuilder builder;
    grpc::ResourceQuota quota("kubelet");
    quota.SetMaxThreads(kMaxThreads);
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
    builder.RegisterService(&registration_);
    builder.RegisterService(&plugin_);
    // The kubelet looks for the second once it sees the first one's file.
    for (const std::string& socket : {options.plugin_socket, options.registration_socket}) {
      if (socket.size() >= sizeof(sockaddr_un::sun_path)) {
        return absl::InvalidArgumentError(
            absl::StrCat(socket, " is too long for a socket (give a shorter folder)"));
      }
      builder.AddListeningPort(absl::StrCat("unix:", socket), grpc::InsecureServerCredentials());
    }
    server_ = builder.BuildAndStart();
    if (server_ != nullptr) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("cannot listen at ", options.plugin_socket, " and ",
                                            options.registration_socket,
                                            " (see that this is root, and what is there)"));
  }

 private:
  Registration registration_;
  Plugin plugin_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KubeletServer>> ServeKubelet(const ServerOptions& options,
                                                            ClaimKeeper* keeper) {
  auto server = std::make_unique<GrpcKubeletServer>(options, keeper);
  if (absl::Status s = server->Start(options); !s.ok()) return s;
  return server;
}

}  // namespace cxlpool::dra
