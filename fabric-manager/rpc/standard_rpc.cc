#include "fabric-manager/rpc/standard_rpc.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/host_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

namespace health = grpc::health::v1;
namespace reflection = grpc::reflection::v1alpha;
using google::protobuf::FileDescriptor;

// The files whose services are served.
const std::array<const FileDescriptor*, 6>& ServedFiles() {
  static const std::array<const FileDescriptor*, 6> files = {
      v1::GetRegionRequest::descriptor()->file(),
      v1::ListHostsRequest::descriptor()->file(),
      v1::RoleBinding::descriptor()->file(),
      v1::Hello::descriptor()->file(),
      health::HealthCheckRequest::descriptor()->file(),
      reflection::ServerReflectionRequest::descriptor()->file()};
  return files;
}

std::vector<std::string> ServedServices() {
  std::vector<std::string> names;
  for (const FileDescriptor* file : ServedFiles()) {
    for (int i = 0; i < file->service_count(); ++i) names.push_back(file->service(i)->full_name());
  }
  return names;
}

bool IsServed(const std::string& service) {
  const auto names = ServedServices();
  return service.empty() || std::find(names.begin(), names.end(), service) != names.end();
}

// `file` and what it imports, each once.
void AddFile(const FileDescriptor* file, std::set<const FileDescriptor*>& added,
             reflection::FileDescriptorResponse* out) {
  if (!added.insert(file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file->CopyTo(&proto);
  out->add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file->dependency_count(); ++i) AddFile(file->dependency(i), added, out);
}

// Answers one question about the API: the services, or a file with everything that it imports.
reflection::ServerReflectionResponse Reflect(const reflection::ServerReflectionRequest& request) {
  reflection::ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  const FileDescriptor* file = nullptr;
  switch (request.message_request_case()) {
    case reflection::ServerReflectionRequest::kListServices:
      for (const std::string& name : ServedServices()) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      return response;
    case reflection::ServerReflectionRequest::kFileByFilename:
      file = pool->FindFileByName(request.file_by_filename());
      break;
    case reflection::ServerReflectionRequest::kFileContainingSymbol:
      file = pool->FindFileContainingSymbol(request.file_containing_symbol());
      break;
    case reflection::ServerReflectionRequest::kFileContainingExtension: {
      // Each RPC's rule is one.
      const auto& wanted = request.file_containing_extension();
      const auto* type = pool->FindMessageTypeByName(wanted.containing_type());
      const auto* extension =
          type == nullptr ? nullptr : pool->FindExtensionByNumber(type, wanted.extension_number());
      if (extension != nullptr) file = extension->file();
      break;
    }
    default:
      break;
  }
  if (file == nullptr) {
    response.mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
    response.mutable_error_response()->set_error_message("there is nothing of that name");
    return response;
  }
  std::set<const FileDescriptor*> added;
  AddFile(file, added, response.mutable_file_descriptor_response());
  return response;
}

// Reads a request, writes its answer, and so on.
class Reflection final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Reflection(Admitted admitted)
      : context_(admitted.context), place_(std::move(admitted.place)) {
    StartRead(&bytes_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok || ++requests_ > kMostRequests) return Finish(grpc::Status::OK);
    reflection::ServerReflectionRequest request;
    if (absl::Status status = ParseRequest(bytes_, {}, &request); !status.ok()) {
      return Finish(ToWire(status, *context_));
    }
    answer_ = ToBytes(Reflect(request));
    StartWrite(&answer_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&bytes_);
  }
  void OnDone() override { delete this; }

  // A stream counts as one call, and what it asks for not at all. A client asks for each service
  // and each file once, and may begin another.
  static constexpr int kMostRequests = 1000;

  grpc::CallbackServerContext* const context_;
  const Place place_;
  int requests_ = 0;
  grpc::ByteBuffer bytes_;
  grpc::ByteBuffer answer_;
};

}  // namespace

// One stream: sends the latest status, each once, as fast as it is read.
class HealthWatch final : public OneRequestCall {
 public:
  HealthWatch(Admitted admitted, HealthRpc* health)
      : OneRequestCall(std::move(admitted)), health_(health) {}

  void Begin(Calls* calls, std::shared_ptr<HealthWatch> self) {
    self_ = std::move(self);
    ReadRequest(calls);
  }

  // Only the latest status counts: one that has not been sent yet is replaced. A stream that asked
  // for a service which is not there stays at SERVICE_UNKNOWN.
  void Tell(HealthRpc::Status::ServingStatus status) {
    MutexLock lock(mutex_);
    if (wanted_ != HealthRpc::Status::SERVICE_UNKNOWN) wanted_ = status;
    PumpLocked();
  }

 private:
  void OnRequest(grpc::ByteBuffer& bytes) override {
    health::HealthCheckRequest request;
    const absl::Status parsed = ParseRequest(bytes, {}, &request);
    HealthRpc::Status::ServingStatus status;
    {
      // In one step, so that no change falls between: the next one comes by Tell.
      MutexLock lock(health_->mutex_);
      health_->watches_.insert(self_);
      status = health_->status_;
    }
    MutexLock lock(mutex_);
    asked_ = true;
    if (!parsed.ok()) {
      finished_ = true;
      return Finish(ToWire(parsed, *context()));
    }
    if (!IsServed(request.service())) status = HealthRpc::Status::SERVICE_UNKNOWN;
    // Where Tell was here meanwhile, what it said is newer.
    if (wanted_ == HealthRpc::Status::UNKNOWN || !IsServed(request.service())) wanted_ = status;
    PumpLocked();
  }
  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) cancelled_ = true;
    PumpLocked();
  }
  void OnCancel() override {
    MutexLock lock(mutex_);
    cancelled_ = true;
    PumpLocked();
  }
  void OnDone() override {
    // Maybe the last reference: it goes after the lock.
    const std::shared_ptr<HealthWatch> self = std::move(self_);
    // SetServing may keep the stream for a while yet, and the call's context goes now.
    GiveBackPlace();
    MutexLock lock(health_->mutex_);
    health_->watches_.erase(self);
  }

  // Ends a stream that was cancelled, else sends what is wanted and was not sent. Does nothing
  // before the request is there (until then OneRequestCall may end the call) nor while a write is
  // under way.
  void PumpLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!asked_ || writing_ || finished_) return;
    if (cancelled_) {
      finished_ = true;
      return Finish(grpc::Status::CANCELLED);
    }
    if (sent_ == wanted_) return;
    sent_ = wanted_;
    HealthRpc::Status message;
    message.set_status(sent_);
    answer_ = ToBytes(message);
    writing_ = true;
    StartWrite(&answer_);
  }

  HealthRpc* const health_;
  std::shared_ptr<HealthWatch> self_;  // Until OnDone. Set before the first read.
  Mutex mutex_;
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  HealthRpc::Status::ServingStatus sent_ ABSL_GUARDED_BY(mutex_) = HealthRpc::Status::UNKNOWN;
  HealthRpc::Status::ServingStatus wanted_ ABSL_GUARDED_BY(mutex_) = HealthRpc::Status::UNKNOWN;
  grpc::ByteBuffer answer_ ABSL_GUARDED_BY(mutex_);
};

void HealthRpc::AddTo(Calls& calls) {
  calls.AddUnary("/grpc.health.v1.Health/Check", this, &HealthRpc::Check);
  calls.Add("/grpc.health.v1.Health/Watch", Admission::Kind::kWatch,
            [this, &calls](Admitted admitted) -> grpc::ServerGenericBidiReactor* {
              auto watch = std::make_shared<HealthWatch>(std::move(admitted), this);
              watch->Begin(&calls, watch);
              return watch.get();
            });
}

// Tells the streams without the lock, so that it is never held together with a stream's own.
void HealthRpc::SetServing(bool serving) {
  std::vector<std::shared_ptr<HealthWatch>> watches;
  const auto status = serving ? Status::SERVING : Status::NOT_SERVING;
  {
    MutexLock lock(mutex_);
    status_ = status;
    watches.assign(watches_.begin(), watches_.end());
  }
  for (const auto& watch : watches) watch->Tell(status);
}

bool HealthRpc::serving() const {
  MutexLock lock(mutex_);
  return status_ == Status::SERVING;
}

// A service that is not there is NOT_FOUND, as grpc.health.v1 wants; all others have one status.
void HealthRpc::Check(UnaryCall<health::HealthCheckRequest, Status>& call) {
  if (!IsServed(call.request().service())) {
    return call.Finish(Refuse(absl::StatusCode::kNotFound, "UNKNOWN_SERVICE",
                              absl::StrCat("there is no service ", call.request().service()),
                              "leave the service out, or ask for cxlpool.v1.PoolService"));
  }
  {
    MutexLock lock(mutex_);
    call.response()->set_status(status_);
  }
  call.Finish(absl::OkStatus());
}

void AddReflection(Calls& calls) {
  calls.Add("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            Admission::Kind::kWatch, [](Admitted admitted) -> grpc::ServerGenericBidiReactor* {
              return new Reflection(std::move(admitted));
            });
}

}  // namespace cxlpool::fm
