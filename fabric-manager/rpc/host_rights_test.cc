// What hosts may do and see, as calls over TLS: what is their own, and of all else not even that it
// is there.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cxlpool/v1/host_service.pb.h"
#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "fabric-manager/rpc/admission.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "test/rigs/caller_fixture.h"

namespace cxlpool::fm {
namespace {

class HostRightsTest : public CallerFixture {};

// A Region of host-a; what host-b learns of it is what it learns of one that is not there.
TEST_F(HostRightsTest, AHostActsForItselfAloneAndLearnsNothingOfOthers) {
  MakeHostsUsable();
  const auto host_a = ChannelOf("cxlpool://host/host-a");
  const auto host_b = ChannelOf("cxlpool://host/host-b");
  v1::AllocateRegionRequest allocate;
  allocate.set_request_id(NewId());
  allocate.set_region_id("kv");
  allocate.set_size_bytes(1);
  allocate.set_host("hosts/host-a");
  allocate.mutable_ttl()->set_seconds(600);
  ASSERT_EQ(Ask(operator_, "PoolService/AllocateRegion", allocate), "");

  const auto same_of_both = [&](const auto& ask) {
    const absl::Status there = ask("regions/kv"), nowhere = ask("regions/kx");
    EXPECT_EQ(ReasonOf(there), "UNKNOWN_REGION") << there;
    EXPECT_EQ(absl::StrReplaceAll(std::string(nowhere.message()), {{"kx", "kv"}}), there.message());
    EXPECT_EQ(there.code(), nowhere.code());
  };
  same_of_both([&](const std::string& name) {
    v1::GetRegionRequest request;
    request.set_name(name);
    return Call(host_b, "PoolService/GetRegion", request);
  });
  same_of_both([&](const std::string& name) {
    v1::ListRegionHoldersRequest request;
    request.set_name(name);
    return Call(host_b, "PoolService/ListRegionHolders", request);
  });
  same_of_both([&](const std::string& name) {
    v1::RenewRegionRequest request;
    request.set_request_id(NewId());
    request.set_name(name);
    request.mutable_ttl()->set_seconds(10);
    return Call(host_b, "PoolService/RenewRegion", request);
  });
  for (const bool detach_all : {false, true}) {
    same_of_both([&](const std::string& name) {
      v1::ReleaseRegionRequest request;
      request.set_request_id(NewId());
      request.set_name(name);
      request.set_detach_all(detach_all);
      return Call(host_b, "PoolService/ReleaseRegion", request);
    });
  }
  same_of_both([&](const std::string& name) {
    v1::AllocateRegionRequest request;
    request.set_request_id(NewId());
    request.set_size_bytes(1);
    request.set_host("hosts/host-b");
    request.set_policy(v1::ISOLATE);
    request.add_isolate_from(name);
    return Call(host_b, "PoolService/AllocateRegion", request);
  });

  v1::ReleaseRegionRequest force;
  force.set_request_id(NewId());
  force.set_name("regions/kv");
  force.set_force(true);
  force.set_reason("I say so");
  EXPECT_EQ(Ask(host_b, "PoolService/ReleaseRegion", force), "ROLE_NOT_ALLOWED");
  EXPECT_EQ(Ask(host_a, "PoolService/ReleaseRegion", force), "ROLE_NOT_ALLOWED");

  for (const char* other : {"hosts/host-a", ""}) {
    allocate.set_request_id(NewId());
    allocate.set_region_id("");
    allocate.set_host(other);
    EXPECT_EQ(Ask(host_b, "PoolService/AllocateRegion", allocate), "NOT_YOUR_HOST") << other;
  }
  // Its own.
  v1::GetRegionRequest get;
  get.set_name("regions/kv");
  EXPECT_EQ(Ask(host_a, "PoolService/GetRegion", get), "");
  v1::RenewRegionRequest renew;
  renew.set_request_id(NewId());
  renew.set_name("regions/kv");
  EXPECT_EQ(Ask(host_a, "PoolService/RenewRegion", renew), "NOT_OWNER");
  v1::ReleaseRegionRequest release;
  release.set_request_id(NewId());
  release.set_name("regions/kv");
  EXPECT_EQ(Ask(host_a, "PoolService/ReleaseRegion", release), "");

  v1::RetireHostRequest retire;
  retire.set_host("hosts/host-b");
  ASSERT_EQ(Ask(operator_, "InventoryService/RetireHost", retire), "");
  EXPECT_EQ(Ask(host_b, "PoolService/GetRegion", get), "NOT_ENROLLED");
}

// A name in the pool's own space is for the host that takes it first, and others are told that it
// is taken (ADR 38). TENANT.NAME is not so: whoever acts for another tenant hears the same either
// way.
TEST_F(HostRightsTest, OnlyItsTenantHasANameInATenantsNameSpace) {
  for (const auto& [host, tenant] : {std::pair("host-a", "ml"), std::pair("host-b", "giraffe")}) {
    ASSERT_EQ(MakeTenant(tenant, 0), "");
    ASSERT_EQ(EnrolFor(host, tenant), "");
  }
  MakeHostsUsable();
  const auto allocate_by = [&](const std::string& host, const std::string& tenant,
                               const std::string& id) {
    v1::AllocateRegionRequest allocate;
    allocate.set_request_id(NewId());
    allocate.set_region_id(id);
    allocate.set_tenant("tenants/" + tenant);
    allocate.set_host("hosts/" + host);
    allocate.set_size_bytes(1);
    return Call(ChannelOf("cxlpool://host/" + host), "PoolService/AllocateRegion", allocate);
  };
  EXPECT_TRUE(allocate_by("host-a", "ml", "kv").ok());
  EXPECT_EQ(ReasonOf(allocate_by("host-b", "giraffe", "kv")), "REGION_EXISTS");
  EXPECT_TRUE(allocate_by("host-a", "ml", "ml.kv").ok());
  const absl::Status taken = allocate_by("host-b", "giraffe", "ml.kv");
  const absl::Status free = allocate_by("host-b", "giraffe", "ml.kx");
  EXPECT_EQ(ReasonOf(taken), "NAME_NOT_YOURS") << taken;
  EXPECT_EQ(absl::StrReplaceAll(std::string(free.message()), {{"kx", "kv"}}), taken.message());
  EXPECT_EQ(free.code(), taken.code());
}

// Two hosts share a Region. Each is told of its own programs, the operator of all.
TEST_F(HostRightsTest, AHostLearnsNothingOfAnothersProgramsOnARegionThatBothHave) {
  MakeHostsUsable();
  v1::AllocateRegionRequest allocate;
  allocate.set_request_id(NewId());
  allocate.set_region_id("kv");
  allocate.set_size_bytes(1);
  allocate.set_sharing(v1::MULTI_WRITER);
  ASSERT_EQ(Ask(operator_, "PoolService/AllocateRegion", allocate), "");
  for (const char* host : {"hosts/host-a", "hosts/host-b"}) {
    v1::AttachRegionRequest attach;
    attach.set_request_id(NewId());
    attach.set_name("regions/kv");
    attach.set_host(host);
    ASSERT_EQ(Ask(operator_, "PoolService/AttachRegion", attach), "");
  }
  rig_.OnCore([&] {
    for (const auto& attachment : (*rig_.writer.state().FindRegionById("kv"))->attachments) {
      auto report = std::make_shared<HolderReport>();
      report->time = absl::Now();
      Holder holder;
      holder.program = absl::StrCat("program of ", attachment.host);
      report->by_generation[attachment.generation].holders.push_back(holder);
      HostRuntime runtime = rig_.writer.state().Runtime(attachment.host);
      runtime.holders = report;
      rig_.writer.SetRuntime(attachment.host, std::move(runtime));
    }
  });
  const auto programs_for = [&](const std::shared_ptr<grpc::Channel>& channel) {
    v1::ListRegionHoldersRequest request;
    request.set_name("regions/kv");
    RawCall call(channel, "/cxlpool.v1.PoolService/ListRegionHolders");
    call.Send(request.SerializeAsString(), true);
    v1::ListRegionHoldersResponse answer;
    EXPECT_TRUE(call.Read(&answer)) << call.End();
    std::set<std::string> programs;
    for (const v1::HostHolders& of : answer.hosts()) {
      EXPECT_TRUE(of.has_report_time());
      for (const v1::RegionHolder& holder : of.holders()) {
        programs.insert(absl::StrCat(of.host(), ": ", holder.program()));
      }
    }
    return programs;
  };
  using Programs = std::set<std::string>;
  const std::string on_a = "hosts/host-a: program of host-a";
  const std::string on_b = "hosts/host-b: program of host-b";
  EXPECT_EQ(programs_for(operator_), (Programs{on_a, on_b}));
  EXPECT_EQ(programs_for(ChannelOf("cxlpool://host/host-a")), Programs{on_a});
  EXPECT_EQ(programs_for(ChannelOf("cxlpool://host/host-b")), Programs{on_b});
}

// By one rule: what a host may see it is shown by Get, List and Watch, and nothing else.
TEST_F(HostRightsTest, AHostListsAndWatchesWhatItMaySeeAlone) {
  using Response = v1::WatchRegionsResponse;
  MakeHostsUsable();
  ASSERT_EQ(AllocateOn("kv", "hosts/host-a"), "");
  ASSERT_EQ(AllocateOn("kw", "hosts/host-b"), "");
  const auto host_a = ChannelOf("cxlpool://host/host-a");

  v1::ListRegionsResponse page;
  {
    RawCall list(host_a, "/cxlpool.v1.PoolService/ListRegions");
    list.Send("", true);
    ASSERT_TRUE(list.Read(&page)) << list.End();
  }
  ASSERT_EQ(page.regions_size(), 1);
  EXPECT_EQ(page.regions(0).name(), "regions/kv");

  v1::WatchRegionsRequest watch;
  watch.set_start_revision(page.revision());
  EXPECT_EQ(Ask(host_a, "PoolService/WatchRegions", watch), "REVISION_COMPACTED")
      << "who may see what can have changed since";
  v1::GetRegionRequest get;
  get.set_name("regions/kw");
  RawCall by_operator(operator_, "/cxlpool.v1.PoolService/GetRegion");
  by_operator.Send(get.SerializeAsString(), true);
  v1::Region kw;
  ASSERT_TRUE(by_operator.Read(&kw));
  watch.set_start_revision(0);
  watch.set_name(absl::StrCat("regions/", kw.tag()));
  EXPECT_EQ(Ask(host_a, "PoolService/WatchRegions", watch), "UNKNOWN_REGION") << "by its tag";

  RawCall stream(host_a, "/cxlpool.v1.PoolService/WatchRegions");
  stream.Send("", true);
  Response event;
  const auto next = [&](Response::Event kind, const std::string& name) {
    ASSERT_TRUE(stream.Read(&event)) << stream.End();
    EXPECT_EQ(event.event(), kind) << event.ShortDebugString();
    EXPECT_EQ(event.region().name(), name) << event.ShortDebugString();
  };
  next(Response::CHANGED, "regions/kv");
  next(Response::SYNCED, "");
  // What begins to be the host's, after something that never was.
  Rewrite("kw", [](Region& region) { region.state_reason = "not for host-a"; });
  ASSERT_EQ(AllocateOn("kx", "hosts/host-a"), "");
  next(Response::CHANGED, "regions/kx");
  // What ends to be the host's: it hears that this is gone, and nothing of what it is now.
  Rewrite("kx", [](Region& region) {
    region.attachments.clear();
    region.id = "ky";
    region.state_reason = "not for host-a";
  });
  next(Response::REMOVED, "regions/kx");
  EXPECT_EQ(event.region().state_reason(), "");
  EXPECT_EQ(event.region().attachments_size(), 1);
  Rewrite("ky", [](Region& region) { region.state_reason = "nor this"; });
  Rewrite("kv", [](Region& region) { region.state_reason = "for host-a"; });
  next(Response::CHANGED, "regions/kv");

  // With its enrolment what it may see changes: the stream ends, rather than judge by what was.
  v1::SetTenantRequest tenant;
  tenant.mutable_tenant()->set_name("tenants/ml");
  ASSERT_EQ(Ask(operator_, "InventoryService/SetTenant", tenant), "");
  v1::EnrolHostRequest enrol;
  enrol.set_host("hosts/host-a");
  enrol.add_tenants("tenants/ml");
  ASSERT_EQ(Ask(operator_, "InventoryService/EnrolHost", enrol), "");
  Rewrite("kv", [](Region& region) { region.state_reason = "not for host-a now"; });
  EXPECT_FALSE(stream.Read(&event)) << event.ShortDebugString();
  EXPECT_EQ(ReasonOf(stream.End()), "RIGHTS_CHANGED");
  v1::GetRegionRequest gone;
  gone.set_name("regions/kv");
  EXPECT_EQ(Ask(host_a, "PoolService/GetRegion", gone), "UNKNOWN_REGION");
}

// An operator learns it; a host hears the same words of what is not there and never was.
TEST_F(HostRightsTest, HowARegionWentIsForOperators) {
  v1::AllocateRegionRequest allocate;
  allocate.set_request_id(NewId());
  allocate.set_region_id("kv");
  allocate.set_size_bytes(1);
  ASSERT_EQ(Ask(operator_, "PoolService/AllocateRegion", allocate), "");
  std::promise<void> gone;
  rig_.OnCore([this, &gone] {
    rig_.writer.Submit(
        Audit{{}, "test", "gone", ""},
        [](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
          auto last = std::make_shared<Region>(**state.FindRegionById("kv"));
          last->revision = context.revision;
          last->state_reason = "the slot is broken; 256 MiB scrubbed and free";
          return Proposal::Of(Tombstone{last, context.now}, last);
        },
        [&gone](const absl::StatusOr<Committed>& got) {
          EXPECT_TRUE(got.ok()) << got.status();
          gone.set_value();
        });
  });
  gone.get_future().wait();
  const auto said = [&](const auto& channel, const std::string& name) {
    v1::GetRegionRequest get;
    get.set_name(name);
    const absl::Status status = Call(channel, "PoolService/GetRegion", get);
    EXPECT_EQ(ReasonOf(status), "UNKNOWN_REGION") << status;
    return std::string(status.message());
  };
  for (int i = 0; i < 1000 && !absl::StrContains(said(operator_, "regions/kv"), "broken"); ++i) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_TRUE(absl::StrContains(said(operator_, "regions/kv"), ": the slot is broken; 256 MiB"));
  EXPECT_FALSE(absl::StrContains(said(operator_, "regions/kx"), "went"));
  const auto host = ChannelOf("cxlpool://host/host-a");
  EXPECT_EQ(absl::StrReplaceAll(said(host, "regions/kv"), {{"kv", "kx"}}),
            said(host, "regions/kx"));

  v1::ReleaseRegionRequest release;
  release.set_request_id(NewId());
  release.set_name("regions/kv");
  const absl::Status by_operator = Call(operator_, "PoolService/ReleaseRegion", release);
  EXPECT_TRUE(absl::StrContains(by_operator.message(), "the slot is broken")) << by_operator;
  release.set_request_id(NewId());
  const absl::Status by_host = Call(host, "PoolService/ReleaseRegion", release);
  EXPECT_EQ(ReasonOf(by_host), "UNKNOWN_REGION");
  EXPECT_FALSE(absl::StrContains(by_host.message(), "broken")) << by_host;
}

TEST_F(HostRightsTest, ASessionIsForTheHostOfTheCertificateAndTellsNothingOfOthers) {
  rig_.OnCore([this] {
    rig_.sessions.Start({.on_segments = [](const auto&, const auto&, bool) {},
                         .on_events = [](const auto&, const auto&) {},
                         .on_session = [](const auto&, bool) {}});
  });
  const auto say_hello = [&](const std::string& host) {
    RawCall call(ChannelOf("cxlpool://host/host-b"), kSession);
    v1::AgentMessage message;
    v1::Hello& hello = *message.mutable_hello();
    hello.set_protocol_version(kHostProtocolVersion);
    hello.set_host(absl::StrCat("hosts/", host));
    hello.set_incarnation("boot-1");
    hello.set_agent_id(NewId());
    call.Send(message.SerializeAsString(), false);
    v1::ManagerMessage answer;
    return call.Read(&answer) ? absl::OkStatus() : call.End();
  };
  EXPECT_TRUE(say_hello("host-b").ok());
  // One that is enrolled, one that is retired, one with another identity, and one that is not
  // there.
  const absl::Status nobody = say_hello("nobody");
  EXPECT_EQ(ReasonOf(nobody), "WRONG_IDENTITY") << nobody;
  for (const char* host : {"host-a", "host-r", "host-s"}) {
    const absl::Status status = say_hello(host);
    EXPECT_EQ(absl::StrReplaceAll(std::string(status.message()), {{host, "nobody"}}),
              nobody.message());
    EXPECT_EQ(status.code(), nobody.code());
  }
}

TEST_F(HostRightsTest, WhatIsCompressedIsRefused) {
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    const auto stub = v1::PoolService::NewStub(operator_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    context.set_compression_algorithm(algorithm);
    v1::GetRegionRequest request;
    request.set_name(absl::StrCat("regions/", std::string(4000, 'k')));
    v1::Region region;
    const grpc::Status status = stub->GetRegion(&context, request, &region);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
    EXPECT_NE(status.error_message().find("is disabled"), std::string::npos)
        << status.error_message();
  }
}

TEST_F(HostRightsTest, AHostHasOnlySoManySessions) {
  const auto channel = ChannelOf("cxlpool://host/host-a");
  std::vector<std::unique_ptr<RawCall>> silent;
  for (int i = 0; i < Admission::kSessions.of_one + 2; ++i) {
    silent.push_back(std::make_unique<RawCall>(channel, kSession));
  }
  // Which of them comes too late is the threads' affair.
  std::map<std::string, int> ends;
  for (const auto& call : silent) ++ends[ReasonOf(call->End())];
  EXPECT_EQ(ends["TOO_MANY_AGENTS"], 2);
  EXPECT_EQ(ends["BAD_HELLO"], Admission::kSessions.of_one);
  // Their places are free again.
  std::string reason = "TOO_MANY_AGENTS";
  for (int i = 0; i < 1000 && reason == "TOO_MANY_AGENTS"; ++i) {
    RawCall call(channel, kSession);
    call.Send("\xff", true);
    reason = ReasonOf(call.End());
  }
  EXPECT_EQ(reason, "BAD_REQUEST");
}

TEST_F(HostRightsTest, GenericToolsCanAskForHealthAndShape) {
  grpc::health::v1::HealthCheckRequest check;
  grpc::health::v1::HealthCheckResponse health;
  for (const char* service : {"", "cxlpool.v1.PoolService"}) {
    check.set_service(service);
    RawCall call(operator_, "/grpc.health.v1.Health/Check");
    call.Send(check.SerializeAsString(), true);
    ASSERT_TRUE(call.Read(&health)) << call.End();
    EXPECT_EQ(health.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  }
  check.set_service("made.Up");
  {
    RawCall call(operator_, "/grpc.health.v1.Health/Check");
    call.Send(check.SerializeAsString(), true);
    EXPECT_EQ(call.End().code(), absl::StatusCode::kNotFound);
  }
  {
    RawCall watch(operator_, "/grpc.health.v1.Health/Watch");
    watch.Send("", true);
    ASSERT_TRUE(watch.Read(&health));
    EXPECT_EQ(health.status(), grpc::health::v1::HealthCheckResponse::SERVING);
    rig_.server->SetServing(false);
    ASSERT_TRUE(watch.Read(&health));
    EXPECT_EQ(health.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  }
  RawCall reflect(operator_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  grpc::reflection::v1alpha::ServerReflectionRequest request;
  grpc::reflection::v1alpha::ServerReflectionResponse response;
  request.set_list_services("*");
  reflect.Send(request.SerializeAsString(), false);
  ASSERT_TRUE(reflect.Read(&response)) << reflect.End();
  ASSERT_EQ(response.list_services_response().service_size(), 6);
  for (const auto& service : response.list_services_response().service()) {
    request.set_file_containing_symbol(service.name());
    grpc::reflection::v1alpha::ServerReflectionResponse file;
    reflect.Send(request.SerializeAsString(), false);
    ASSERT_TRUE(reflect.Read(&file)) << service.name();
    EXPECT_GT(file.file_descriptor_response().file_descriptor_proto_size(), 0) << service.name();
  }
  request.set_file_containing_symbol("made.Up");
  reflect.Send(request.SerializeAsString(), true);
  ASSERT_TRUE(reflect.Read(&response));
  EXPECT_EQ(response.error_response().error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace cxlpool::fm
