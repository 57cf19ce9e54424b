// fake-kubelet: what a kubelet does with a DRA plugin, for tests, as it does after a start of its
// own.
//
//   fake-kubelet FOLDER register
//   fake-kubelet FOLDER prepare|unprepare UID...
//
// Waits for a socket in its folder of registrations, asks who is there, refuses what a kubelet 1.34
// refuses, says that it is registered, and makes the one call on the plugin's own socket, of claims
// "default/UID". Prints the answer as one line of JSON. 1: what is wrong is on stderr.
#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "kubelet/dra.grpc.pb.h"
#include "kubelet/registration.grpc.pb.h"

namespace {

namespace api = ::k8s::io::kubelet::pkg::apis::dra::v1;
using std::chrono::system_clock;

constexpr std::chrono::seconds kFindTimeout(20);
constexpr std::chrono::seconds kRegisterTimeout(10);
constexpr std::chrono::seconds kCallTimeout(45);  // As a kubelet's.

std::shared_ptr<grpc::Channel> Dial(const std::string& socket) {
  return grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials());
}

int Fail(const std::string& why) {
  std::cerr << "fake-kubelet: " << why << std::endl;
  return 1;
}

int Fail(const grpc::Status& status) {
  return Fail(std::to_string(status.error_code()) + ": " + status.error_message());
}

int Print(const google::protobuf::Message& message) {
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(message, &text).ok()) return Fail("no JSON");
  std::cout << text << std::endl;
  return 0;
}

// The only socket in the folder; "" if none comes.
std::string FindSocket(const std::string& folder) {
  const auto end = system_clock::now() + kFindTimeout;
  while (system_clock::now() < end) {
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      std::error_code error;
      if (file.is_socket(error)) return file.path().string();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return "";
}

// What a kubelet asks of a plugin before it takes it; "" if it does.
std::string Validate(const pluginregistration::PluginInfo& info) {
  if (info.type() != "DRAPlugin") return "type " + info.type();
  if (info.name().find('.') == std::string::npos) return "name " + info.name();
  if (info.endpoint().empty() || info.endpoint()[0] != '/') return "endpoint " + info.endpoint();
  const auto& versions = info.supported_versions();
  if (std::find(versions.begin(), versions.end(), "v1.DRAPlugin") == versions.end()) {
    return "none of its services is known";
  }
  return "";
}

grpc::Status Register(const std::string& socket, pluginregistration::PluginInfo& info) {
  const auto stub = pluginregistration::Registration::NewStub(Dial(socket));
  grpc::ClientContext ask;
  ask.set_deadline(system_clock::now() + kRegisterTimeout);
  ask.set_wait_for_ready(true);
  if (grpc::Status s = stub->GetInfo(&ask, {}, &info); !s.ok()) return s;
  const std::string wrong = Validate(info);
  pluginregistration::RegistrationStatus status;
  status.set_plugin_registered(wrong.empty());
  status.set_error(wrong);
  pluginregistration::RegistrationStatusResponse response;
  grpc::ClientContext notify;
  notify.set_deadline(system_clock::now() + kRegisterTimeout);
  if (grpc::Status s = stub->NotifyRegistrationStatus(&notify, status, &response); !s.ok())
    return s;
  return wrong.empty() ? grpc::Status::OK
                       : grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, wrong);
}

template <typename Request>
Request OfClaims(const std::vector<std::string>& uids) {
  Request request;
  for (const std::string& uid : uids) {
    api::Claim& claim = *request.add_claims();
    claim.set_namespace_("default");
    claim.set_name(uid);
    claim.set_uid(uid);
  }
  return request;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return Fail("usage: fake-kubelet FOLDER register|prepare|unprepare [UID...]");
  const std::string what = argv[2];
  const std::vector<std::string> uids(argv + 3, argv + argc);
  const std::string socket = FindSocket(argv[1]);
  if (socket.empty()) return Fail(std::string("no plugin in ") + argv[1]);
  pluginregistration::PluginInfo info;
  if (const grpc::Status s = Register(socket, info); !s.ok()) return Fail(s);
  if (what == "register") return Print(info);
  const auto stub = api::DRAPlugin::NewStub(Dial(info.endpoint()));
  grpc::ClientContext context;
  context.set_deadline(system_clock::now() + kCallTimeout);
  context.set_wait_for_ready(true);
  if (what == "prepare") {
    api::NodePrepareResourcesResponse response;
    const grpc::Status s = stub->NodePrepareResources(
        &context, OfClaims<api::NodePrepareResourcesRequest>(uids), &response);
    return s.ok() ? Print(response) : Fail(s);
  }
  api::NodeUnprepareResourcesResponse response;
  const grpc::Status s = stub->NodeUnprepareResources(
      &context, OfClaims<api::NodeUnprepareResourcesRequest>(uids), &response);
  return s.ok() ? Print(response) : Fail(s);
}
