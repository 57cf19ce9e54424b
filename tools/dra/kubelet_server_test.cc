// What is on the wire is what kubelets say: fake-kubelet is compiled of the same .proto, and would
// not see that a name is wrong.
#include <gtest/gtest.h>

#include "kubelet/dra.pb.h"
#include "kubelet/registration.pb.h"

namespace cxlpool::dra {
namespace {

namespace api = ::k8s::io::kubelet::pkg::apis::dra::v1;

TEST(KubeletApiTest, NamesAreKubernetes) {
  const auto* service = api::Claim::descriptor()->file()->service(0);
  EXPECT_EQ(service->full_name(), "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin");
  EXPECT_NE(service->FindMethodByName("NodePrepareResources"), nullptr);
  EXPECT_NE(service->FindMethodByName("NodeUnprepareResources"), nullptr);
  const auto* registration = pluginregistration::PluginInfo::descriptor()->file()->service(0);
  EXPECT_EQ(registration->full_name(), "pluginregistration.Registration");
  EXPECT_NE(registration->FindMethodByName("GetInfo"), nullptr);
  EXPECT_NE(registration->FindMethodByName("NotifyRegistrationStatus"), nullptr);
}

TEST(KubeletApiTest, BytesAreKubernetes) {
  api::NodePrepareResourcesRequest request;
  ASSERT_TRUE(request.ParseFromString("\x0a\x09\x0a\x01n\x12\x01u\x1a\x01m"));
  EXPECT_EQ(request.claims(0).namespace_() + request.claims(0).uid() + request.claims(0).name(),
            "num");
  api::NodePrepareResourcesResponse response;
  api::NodePrepareResourceResponse& one = (*response.mutable_claims())["u"];
  api::Device& device = *one.add_devices();
  device.set_pool_name("p");
  device.set_device_name("d");
  device.add_cdi_device_ids("c");
  one.set_error("e");
  EXPECT_EQ(response.SerializeAsString(),
            "\x0a\x13\x0a\x01u\x12\x0e\x0a\x09\x12\x01p\x1a\x01"
            "d\x22\x01"
            "c\x12\x01"
            "e");
  api::NodeUnprepareResourcesResponse unprepared;
  (*unprepared.mutable_claims())["u"].set_error("e");
  EXPECT_EQ(unprepared.SerializeAsString(),
            "\x0a\x08\x0a\x01u\x12\x03\x0a\x01"
            "e");
  pluginregistration::PluginInfo info;
  info.set_type("t");
  info.set_name("n");
  info.set_endpoint("e");
  info.add_supported_versions("v");
  EXPECT_EQ(info.SerializeAsString(),
            "\x0a\x01t\x12\x01n\x1a\x01"
            "e\x22\x01v");
}

}  // namespace
}  // namespace cxlpool::dra
