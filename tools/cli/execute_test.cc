#include "tools/cli/execute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "proto/support/names.h"
#include "tools/cli/testing.h"

namespace cxlpool::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using A = v1::Attachment;
using R = v1::Region;

class ExecuteTest : public testing::Test {
 protected:
  absl::Status Run(PoolCommand command, OutputFormat format = OutputFormat::kTable) {
    Printer printer{
        .out = out_, .err = err_, .format = format, .progress = true, .headers = headers_};
    return Execute(std::move(command), fake_.connection, printer);
  }

  static AllocateRegion Allocate(bool wait) {
    AllocateRegion command;
    command.request.set_region_id("kv");
    command.request.set_host("hosts/host-a");
    command.wait.wait = wait;
    return command;
  }
  static v1::AllocateRegionResponse Answer(const R& region) {
    v1::AllocateRegionResponse response;
    *response.mutable_region() = region;
    response.set_revision(region.revision());
    return response;
  }

  FakeConnection fake_;
  std::ostringstream out_;
  std::ostringstream err_;
  bool headers_ = true;
  const R wanted_ = WithAttachment(MakeRegion(R::RESERVED, 2), A::WANTED);
  const R online_ = WithAttachment(MakeRegion(R::ALLOCATED, 5), A::ONLINE);
};

TEST_F(ExecuteTest, MakesOneRequestIdAndKeepsItAcrossRetries) {
  auto& calls = fake_.manager.AllocateRegion_calls;
  calls.answers = {absl::UnavailableError("x"), absl::UnavailableError("x"), Answer(wanted_)};
  ASSERT_TRUE(Run(Allocate(false)).ok());
  ASSERT_EQ(calls.requests.size(), 3u);
  EXPECT_TRUE(ParseUuid(calls.requests[0].request_id()).ok());
  EXPECT_EQ(calls.requests[0].request_id(), calls.requests[2].request_id());
  EXPECT_THAT(out_.str(), HasSubstr("State:     RESERVED"));
  EXPECT_TRUE(fake_.manager.watches.empty());
}

TEST_F(ExecuteTest, KeepsTheRequestIdItIsGiven) {
  AllocateRegion command = Allocate(false);
  command.request.set_request_id("00000000-0000-4000-8000-000000000001");
  fake_.manager.AllocateRegion_calls.answers = {Answer(wanted_)};
  ASSERT_TRUE(Run(command).ok());
  EXPECT_EQ(fake_.manager.AllocateRegion_calls.requests[0].request_id(),
            "00000000-0000-4000-8000-000000000001");
}

TEST_F(ExecuteTest, WaitFollowsUntilOnlineAndPrintsThat) {
  fake_.manager.AllocateRegion_calls.answers = {Answer(wanted_)};
  fake_.manager.streams = {{{Changed(online_)}, absl::OkStatus()}};
  ASSERT_TRUE(Run(Allocate(true)).ok());
  EXPECT_EQ(fake_.manager.watches[0].start_revision(), 2u);
  EXPECT_THAT(out_.str(), HasSubstr("host-a ONLINE devdax rw"));
  EXPECT_EQ(err_.str(), "cxlpool: regions/kv is ALLOCATED; hosts/host-a is ONLINE\n");
}

TEST_F(ExecuteTest, AFailedWaitPrintsNoResult) {
  R failed = MakeRegion(R::FAILED, 4);
  failed.set_state_reason("no memdev");
  fake_.manager.AllocateRegion_calls.answers = {Answer(wanted_)};
  fake_.manager.streams = {{{Changed(failed)}, absl::OkStatus()}};
  EXPECT_TRUE(absl::IsAborted(Run(Allocate(true))));
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ExecuteTest, DryRunSaysSo) {
  AllocateRegion command = Allocate(false);
  command.request.set_validate_only(true);
  fake_.manager.AllocateRegion_calls.answers = {Answer(wanted_)};
  ASSERT_TRUE(Run(command).ok());
  EXPECT_THAT(out_.str(), StartsWith("Dry run: nothing is changed.\n"));
}

TEST_F(ExecuteTest, ReleaseWaitsUntilGone) {
  ReleaseRegion command;
  command.request.set_name("regions/kv");
  command.wait.wait = true;
  v1::ReleaseRegionResponse response;
  *response.mutable_region() = MakeRegion(R::RELEASING, 6);
  response.set_revision(6);
  fake_.manager.ReleaseRegion_calls.answers = {response};
  v1::Region gone = MakeRegion(R::SCRUBBING, 7);
  gone.set_state_reason("256 MiB stay on failed device cmm-3, NOT scrubbed");
  fake_.manager.streams = {{{Removed(gone, 8)}, absl::OkStatus()}};
  ASSERT_TRUE(Run(command).ok());
  EXPECT_EQ(out_.str(), "kv is gone: 256 MiB stay on failed device cmm-3, NOT scrubbed\n");
}

TEST_F(ExecuteTest, DetachWaitsForThatAttachment) {
  DetachRegion command;
  command.request.set_name("regions/kv");
  command.request.set_host("hosts/host-a");
  command.wait.wait = true;
  v1::DetachRegionResponse response;
  *response.mutable_region() = WithAttachment(MakeRegion(R::ALLOCATED, 6), A::ONLINE);
  response.set_revision(6);
  fake_.manager.DetachRegion_calls.answers = {response};
  fake_.manager.streams = {{{Changed(WithAttachment(MakeRegion(R::ALLOCATED, 7), A::OFFLINE)),
                             Changed(MakeRegion(R::ALLOCATED, 9))},
                            absl::OkStatus()}};
  ASSERT_TRUE(Run(command).ok());
  EXPECT_THAT(out_.str(), Not(HasSubstr("Attachment")));
}

TEST_F(ExecuteTest, AttachWaitsUntilOnline) {
  AttachRegion command;
  command.request.set_host("hosts/host-a");
  command.wait.wait = true;
  v1::AttachRegionResponse response;
  *response.mutable_region() = WithAttachment(MakeRegion(R::ALLOCATED, 3), A::WANTED);
  response.set_revision(3);
  fake_.manager.AttachRegion_calls.answers = {response};
  fake_.manager.streams = {{{Changed(online_)}, absl::OkStatus()}};
  ASSERT_TRUE(Run(command).ok());
  EXPECT_THAT(out_.str(), HasSubstr("ONLINE"));
}

TEST_F(ExecuteTest, ListReadsEveryPage) {
  v1::ListRegionsResponse first, second;
  *first.add_regions() = MakeRegion(R::ALLOCATED, 2, "regions/a");
  first.set_next_page_token("t1");
  first.set_revision(10);
  *second.add_regions() = MakeRegion(R::ALLOCATED, 3, "regions/b");
  second.set_revision(12);
  auto& calls = fake_.manager.ListRegions_calls;
  calls.answers = {first, second};
  ASSERT_TRUE(Run(ListRegions(), OutputFormat::kJson).ok());
  EXPECT_EQ(calls.requests[0].page_size(), 1000u);
  EXPECT_EQ(calls.requests[1].page_token(), "t1");
  EXPECT_THAT(out_.str(), HasSubstr("regions/a"));
  EXPECT_THAT(out_.str(), HasSubstr("regions/b"));
  EXPECT_THAT(out_.str(), HasSubstr("\"revision\": \"10\""));
}

TEST_F(ExecuteTest, ListsOfHostsAndDevicesReadEveryPage) {
  v1::ListHostsResponse first, second;
  first.add_hosts()->set_name("hosts/a");
  first.set_next_page_token("a");
  second.add_hosts()->set_name("hosts/b");
  auto& calls = fake_.manager.ListHosts_calls;
  calls.answers = {first, second};
  ASSERT_TRUE(Run(ListHosts(), OutputFormat::kJson).ok());
  EXPECT_EQ(calls.requests[1].page_token(), "a");
  EXPECT_THAT(out_.str(), HasSubstr("hosts/a"));
  EXPECT_THAT(out_.str(), HasSubstr("hosts/b"));
  EXPECT_THAT(out_.str(), HasSubstr("\"next_page_token\": \"\"")) << "that was all";
  v1::ListDevicesResponse some, rest;
  some.add_devices()->set_name("devices/cmm-0");
  some.set_next_page_token("cmm-0");
  rest.add_devices()->set_name("devices/cmm-1");
  fake_.manager.ListDevices_calls.answers = {some, rest};
  out_.str("");
  ASSERT_TRUE(Run(ListDevices()).ok());
  EXPECT_THAT(out_.str(), HasSubstr("cmm-0"));
  EXPECT_THAT(out_.str(), HasSubstr("cmm-1"));
}

TEST_F(ExecuteTest, WatchPrintsALineAnEvent) {
  WatchRegions command;
  command.limit = absl::Seconds(30);
  fake_.manager.streams = {Quiet({Changed(online_), Synced(5)})};
  ASSERT_TRUE(Run(command).ok());
  EXPECT_THAT(out_.str(), StartsWith("TIME"));
  fake_.manager.streams = {Quiet({Changed(online_), Synced(5)})};
  out_.str("");
  ASSERT_TRUE(Run(command, OutputFormat::kJson).ok());
  const std::string json = out_.str();
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), 2);
  EXPECT_THAT(json, StartsWith("{\"event\":\"CHANGED\",\"region\":{\"name\":\"regions/kv\""));
}

TEST_F(ExecuteTest, WatchTellsAStateOnceInTheTable) {
  R growing = online_;
  growing.set_resizing(true);
  std::vector<v1::WatchRegionsResponse> events = {Changed(online_), Synced(5)};
  for (uint64_t i = 0; i < 12; ++i) {
    growing.set_revision(6 + i);
    events.push_back(Changed(growing));
  }
  WatchRegions command;
  command.limit = absl::Seconds(30);
  fake_.manager.streams = {Quiet(events)};
  ASSERT_TRUE(Run(command).ok());
  const std::string table = out_.str();
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 4);
  EXPECT_THAT(table, HasSubstr("ALLOCATED resizing"));
  out_.str("");
  fake_.manager.streams = {Quiet(events)};
  ASSERT_TRUE(Run(command, OutputFormat::kJson).ok());
  const std::string json = out_.str();
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), 14);
}

TEST_F(ExecuteTest, WatchFromARevisionThatIsForgottenIsAnError) {
  WatchRegions command;
  command.request.set_start_revision(1);
  fake_.manager.streams = {{{}, Refused(absl::StatusCode::kOutOfRange, "REVISION_COMPACTED")}};
  EXPECT_EQ(ReasonOf(Run(command)), "REVISION_COMPACTED");
}

TEST_F(ExecuteTest, WatchTellsOfAGap) {
  WatchRegions command;
  command.limit = absl::Seconds(30);
  R later = online_;
  later.set_revision(9);
  later.set_size_bytes(uint64_t{1} << 30);
  fake_.manager.streams = {{{Changed(online_), Synced(5)}, absl::UnavailableError("a restart")},
                           {{}, Refused(absl::StatusCode::kOutOfRange, "REVISION_UNKNOWN")},
                           Quiet({Changed(later), Synced(9)})};
  ASSERT_TRUE(Run(command).ok());
  EXPECT_THAT(out_.str(), HasSubstr("  GAP\n"));
  EXPECT_THAT(out_.str(), HasSubstr("1 GiB"));
  EXPECT_THAT(err_.str(), HasSubstr("changes were missed"));
}

TEST_F(ExecuteTest, WatchOfARegionThatIsNotThereIsAnError) {
  WatchRegions command;
  command.request.set_name("regions/nope");
  fake_.manager.GetRegion_calls.answers = {Refused(absl::StatusCode::kNotFound, "UNKNOWN_REGION")};
  EXPECT_EQ(ReasonOf(Run(command)), "UNKNOWN_REGION");
}

TEST_F(ExecuteTest, DetachOfWhatIsNotAttachedSaysSo) {
  DetachRegion command;
  command.request.set_host("hosts/host-b");
  command.wait.wait = true;
  v1::DetachRegionResponse response;
  *response.mutable_region() = online_;
  fake_.manager.DetachRegion_calls.answers = {response};
  ASSERT_TRUE(Run(command).ok());
  EXPECT_EQ(out_.str(), "kv is not attached to host-b: nothing was changed\n");
}

TEST_F(ExecuteTest, DetachOfAQuarantinedRegionWaitsForTheHostAlone) {
  DetachRegion command;
  command.request.set_host("hosts/host-a");
  command.wait.wait = true;
  v1::DetachRegionResponse response;
  *response.mutable_region() = WithAttachment(MakeRegion(R::QUARANTINED, 6), A::ONLINE);
  response.mutable_region()->mutable_attachments(0)->set_detaching(true);
  response.set_revision(6);
  fake_.manager.DetachRegion_calls.answers = {response};
  fake_.manager.streams = {{{Changed(MakeRegion(R::QUARANTINED, 8))}, absl::OkStatus()}};
  EXPECT_TRUE(Run(command).ok());
}

TEST_F(ExecuteTest, AnAllocationThatIsUndoneNamesNothingThatGoesWithIt) {
  R undone = WithAttachment(MakeRegion(R::RESERVED, 4), A::WANTED);
  undone.mutable_attachments(0)->set_detaching(true);
  fake_.manager.AllocateRegion_calls.answers = {Answer(wanted_)};
  fake_.manager.streams = {{{Changed(undone)}, absl::OkStatus()}};
  const absl::Status status = Run(Allocate(true));
  EXPECT_EQ(ReasonOf(status), "REGION_FAILED");
  EXPECT_THAT(RefusalOf(status)->remedy, Not(HasSubstr("region show")));
}

TEST_F(ExecuteTest, NamesAloneAndTablesWithoutHeaders) {
  v1::ListRegionsResponse regions;
  *regions.add_regions() = MakeRegion(R::ALLOCATED, 2, "regions/a");
  *regions.add_regions() = MakeRegion(R::ALLOCATED, 3, "regions/b");
  fake_.manager.ListRegions_calls.answers = {regions, regions};
  ASSERT_TRUE(Run(ListRegions(), OutputFormat::kName).ok());
  EXPECT_EQ(out_.str(), "a\nb\n");
  out_.str("");
  headers_ = false;
  ASSERT_TRUE(Run(ListRegions()).ok());
  EXPECT_THAT(out_.str(), StartsWith("a "));
}

TEST_F(ExecuteTest, HoldersAreListed) {
  ListHolders command;
  command.request.set_name("regions/kv");
  v1::ListRegionHoldersResponse response;
  v1::HostHolders& told = *response.add_hosts();
  told.set_host("hosts/host-a");
  told.mutable_report_time()->set_seconds(1'600'000'000);
  v1::RegionHolder& holder = *told.add_holders();
  holder.set_pid(4711);
  holder.set_program("py\x1b[2J");
  response.add_hosts()->set_host("hosts/host-b");
  auto& calls = fake_.manager.ListRegionHolders_calls;
  calls.answers = {response, response, Refused(absl::StatusCode::kNotFound, "UNKNOWN_REGION")};
  headers_ = false;
  ASSERT_TRUE(Run(command).ok());
  EXPECT_EQ(calls.requests[0].name(), "regions/kv");
  EXPECT_THAT(out_.str(), StartsWith("host-a  4711  py\\x1b[2J"));
  EXPECT_THAT(out_.str(), HasSubstr("\nhost-b: not known, since its agent does not report it"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("host-a: not known")));
  out_.str("");
  ASSERT_TRUE(Run(command, OutputFormat::kJson).ok());
  EXPECT_THAT(out_.str(), HasSubstr("\"report_time\": \"2020-09-13T12:26:40Z\""));
  EXPECT_EQ(ReasonOf(Run(command)), "UNKNOWN_REGION");
}

TEST_F(ExecuteTest, OneHostAndOneDeviceAreShown) {
  v1::ListHostsResponse hosts;
  v1::Host& host = *hosts.add_hosts();
  host.set_name("hosts/host-a");
  host.set_state(v1::Host::ONLINE);
  host.set_unfit_reason("kmem is missing");
  host.add_ports()->set_slot(17);
  fake_.manager.ListHosts_calls.answers = {hosts, hosts};
  ASSERT_TRUE(Run(ShowHost{"hosts/host-a"}).ok());
  EXPECT_THAT(out_.str(), HasSubstr("UNFIT"));
  EXPECT_THAT(out_.str(), HasSubstr("17"));
  EXPECT_EQ(ReasonOf(Run(ShowHost{"hosts/host-z"})), "UNKNOWN_HOST");
  v1::ListDevicesResponse devices;
  v1::Device& device = *devices.add_devices();
  device.set_name("devices/cmm-0");
  device.set_state(v1::Device::FAILED);
  device.set_capacity_bytes(uint64_t{4} << 30);
  fake_.manager.ListDevices_calls.answers = {devices};
  fake_.manager.ListRegions_calls.answers = {v1::ListRegionsResponse()};
  out_.str("");
  ASSERT_TRUE(Run(ShowDevice{"devices/cmm-0"}).ok());
  EXPECT_THAT(out_.str(), HasSubstr("Free:            0 B"));
}

TEST_F(ExecuteTest, WatchStopsWhereNobodyReads) {
  fake_.manager.streams = {Quiet({Changed(online_), Synced(5)})};
  out_.setstate(std::ios::badbit);
  EXPECT_EQ(ReasonOf(Run(WatchRegions())), "OUTPUT_LOST");
}

TEST_F(ExecuteTest, TopologyInJsonIsTheOneMessage) {
  v1::Topology topology;
  topology.set_fabric("emulated");
  fake_.manager.GetTopology_calls.answers = {topology, topology};
  ASSERT_TRUE(Run(ShowTopology(), OutputFormat::kJson).ok());
  EXPECT_TRUE(fake_.manager.ListRegions_calls.requests.empty());
  fake_.manager.ListRegions_calls.answers = {v1::ListRegionsResponse()};
  out_.str("");
  ASSERT_TRUE(Run(ShowTopology()).ok());
  EXPECT_EQ(out_.str(), "fabric emulated\n");
}

TEST_F(ExecuteTest, InventoryCommandsSendTheirRequests) {
  v1::Host host;
  host.set_name("hosts/host-a");
  host.set_state(v1::Host::ENROLLED);
  EnrolHost enrol;
  enrol.request.set_host("hosts/host-a");
  fake_.manager.EnrolHost_calls.answers = {host};
  ASSERT_TRUE(Run(enrol).ok());
  EXPECT_TRUE(ParseUuid(fake_.manager.EnrolHost_calls.requests[0].request_id()).ok());
  EXPECT_THAT(out_.str(), HasSubstr("host-a  ENROLLED"));

  fake_.manager.RetireHost_calls.answers = {
      Refused(absl::StatusCode::kFailedPrecondition, "HOST_HAS_ATTACHMENTS")};
  EXPECT_EQ(ReasonOf(Run(RetireHost())), "HOST_HAS_ATTACHMENTS");
  fake_.manager.FenceHost_calls.answers = {host};
  FenceHost fence;
  fence.consent.yes = true;
  EXPECT_TRUE(Run(fence).ok());
  fake_.manager.ListHosts_calls.answers = {v1::ListHostsResponse()};
  EXPECT_TRUE(Run(ListHosts()).ok());
  fake_.manager.ListDevices_calls.answers = {v1::ListDevicesResponse()};
  EXPECT_TRUE(Run(ListDevices()).ok());
  fake_.manager.GetCapacity_calls.answers = {v1::Capacity()};
  EXPECT_TRUE(Run(ShowCapacity()).ok());
  fake_.manager.GetRegion_calls.answers = {Refused(absl::StatusCode::kNotFound, "UNKNOWN_REGION")};
  EXPECT_EQ(ReasonOf(Run(ShowRegion())), "UNKNOWN_REGION");
}

TEST_F(ExecuteTest, ADryRunTellsThePlan) {
  AllocateRegion command = Allocate(false);
  command.request.set_validate_only(true);
  v1::AllocateRegionResponse planned = Answer(wanted_);
  planned.mutable_plan()->set_latency_ns(230);
  planned.mutable_plan()->add_bridges()->set_host_bridge("ACPI0016:07");
  fake_.manager.AllocateRegion_calls.answers = {planned, planned};
  ASSERT_TRUE(Run(command).ok());
  EXPECT_THAT(out_.str(), HasSubstr("Paths from the host: 230 ns"));
  EXPECT_THAT(out_.str(), HasSubstr("ACPI0016:07"));
  out_.str("");
  ASSERT_TRUE(Run(command, OutputFormat::kJson).ok());
  EXPECT_THAT(out_.str(), HasSubstr("\"latency_ns\": 230"));
}

TEST_F(ExecuteTest, ResizeWaitsForTheNewSize) {
  ResizeRegion command;
  command.request.set_name("regions/kv");
  command.request.set_size_bytes(uint64_t{1} << 30);
  command.wait.wait = true;
  R growing = MakeRegion(R::ALLOCATED, 6);
  growing.set_resizing(true);
  growing.add_extents()->set_length_bytes(uint64_t{512} << 20);
  growing.add_extents()->set_length_bytes(uint64_t{512} << 20);
  R grown = growing;
  grown.set_revision(8);
  grown.set_resizing(false);
  grown.set_size_bytes(uint64_t{1} << 30);
  R undone = MakeRegion(R::ALLOCATED, 8);
  undone.set_state_reason("host-a could not bring it online");
  v1::ResizeRegionResponse response;
  *response.mutable_region() = growing;
  response.set_revision(6);
  fake_.manager.ResizeRegion_calls.answers = {response, response};
  fake_.manager.streams = {{{Changed(grown)}, absl::OkStatus()},
                           {{Changed(undone)}, absl::OkStatus()}};
  ASSERT_TRUE(Run(command).ok());
  EXPECT_THAT(out_.str(), HasSubstr("1 GiB"));
  const absl::Status status = Run(command);
  EXPECT_EQ(ReasonOf(status), "RESIZE_UNDONE");
  EXPECT_THAT(std::string(status.message()), HasSubstr("could not bring it online"));
}

TEST_F(ExecuteTest, ADeviceThatIsAddedByItsPathIsLookedAtFirst) {
  v1::DiscoverDevicesResponse seen;
  v1::DiscoveredDevice& bare = *seen.add_devices();
  bare.set_host("hosts/host-a");
  bare.set_name("/dev/dax0.0");
  bare.set_size_bytes(uint64_t{64} << 30);
  bare.set_suggested_capacity_bytes(uint64_t{63} << 30);
  bare.set_suggested_granule_bytes(uint64_t{1} << 30);
  v1::DiscoveredDevice& other = *seen.add_devices();
  other.set_name("dax1.0");
  other.set_mark(v1::DiscoveredDevice::OTHER_POOL);
  other.set_marked_device("cmm-3");
  other.set_marked_pool("p");
  v1::DiscoveredDevice& ours = *seen.add_devices();
  ours.set_name("dax2.0");
  ours.set_mark(v1::DiscoveredDevice::THIS_POOL);
  ours.set_marked_device("cmm-9");
  ours.set_suggested_capacity_bytes(1);
  fake_.manager.DiscoverDevices_calls.answers.assign(5, seen);
  fake_.manager.AddDevice_calls.answers.assign(2, v1::Device());
  const auto add = [&](const std::string& path, uint64_t granule = 0) {
    AddDevice command;
    command.request.set_device("devices/cmm-0");
    command.request.mutable_settings()->set_path(path);
    command.request.mutable_settings()->set_granule_bytes(granule);
    return Run(command);
  };
  ASSERT_TRUE(add("host-a//dev/dax0.0").ok());
  EXPECT_EQ(fake_.manager.DiscoverDevices_calls.requests[0].host(), "hosts/host-a");
  const auto& sent = fake_.manager.AddDevice_calls.requests;
  EXPECT_EQ(sent[0].settings().capacity_bytes(), uint64_t{63} << 30);
  EXPECT_EQ(sent[0].settings().granule_bytes(), uint64_t{1} << 30);
  EXPECT_EQ(sent[0].settings().path(), "host-a//dev/dax0.0");
  ASSERT_TRUE(add("host-a//dev/dax0.0", uint64_t{2} << 30).ok());
  EXPECT_EQ(sent[1].settings().capacity_bytes(), uint64_t{62} << 30);
  EXPECT_EQ(ReasonOf(add("host-a/dax7.0")), "NOT_DISCOVERED");
  const absl::Status foreign = add("host-a/dax1.0");
  EXPECT_EQ(ReasonOf(foreign), "DEVICE_UNFIT");
  EXPECT_THAT(std::string(foreign.message()), HasSubstr("another pool"));
  EXPECT_THAT(RefusalOf(add("host-a/dax2.0"))->remedy, HasSubstr("device add cmm-9"));
  EXPECT_EQ(ReasonOf(add("dax0.0")), "BAD_VALUE");
  EXPECT_EQ(sent.size(), 2u);
}

TEST_F(ExecuteTest, ATenantKeepsTheLimitsThatAreNotGiven) {
  v1::Tenant known;
  known.set_name("tenants/ml");
  known.set_quota_bytes(7);
  known.set_reserved_bytes(5);
  known.set_host_cap_bytes(3);
  known.set_isolation(v1::FABRIC);
  known.set_used_bytes(4);
  known.set_regions(1);
  // A manager of a later release has more of it.
  known.GetReflection()->MutableUnknownFields(&known)->AddVarint(900, 11);
  fake_.manager.GetTenant_calls.answers = {
      known, Refused(absl::StatusCode::kNotFound, "UNKNOWN_TENANT"),
      Refused(absl::StatusCode::kPermissionDenied, "ROLE_NOT_ALLOWED")};
  auto& calls = fake_.manager.SetTenant_calls;
  calls.answers = {known, known};
  SetTenant command;
  command.request.mutable_tenant()->set_name("tenants/ml");
  command.quota_bytes = 9;
  command.host_cap_bytes = 0;
  ASSERT_TRUE(Run(command).ok());
  EXPECT_EQ(calls.requests[0].tenant().quota_bytes(), 9u);
  EXPECT_EQ(calls.requests[0].tenant().reserved_bytes(), 5u);
  EXPECT_EQ(calls.requests[0].tenant().host_cap_bytes(), 0u);
  EXPECT_EQ(calls.requests[0].tenant().isolation(), v1::FABRIC);
  EXPECT_EQ(calls.requests[0].tenant().name(), "tenants/ml");
  EXPECT_EQ(calls.requests[0].tenant().used_bytes() + calls.requests[0].tenant().regions(), 0u);
  const auto& tenant = calls.requests[0].tenant();
  const auto& more = tenant.GetReflection()->GetUnknownFields(tenant);
  ASSERT_EQ(more.field_count(), 1);
  EXPECT_EQ(more.field(0).varint(), 11u);
  ASSERT_TRUE(Run(command).ok());
  EXPECT_EQ(calls.requests[1].tenant().name(), "tenants/ml");
  EXPECT_EQ(calls.requests[1].tenant().reserved_bytes(), 0u);
  EXPECT_EQ(ReasonOf(Run(command)), "ROLE_NOT_ALLOWED");
  EXPECT_EQ(calls.requests.size(), 2u);
}

class ExecuteFileTest : public ExecuteTest {
 protected:
  ExecuteFileTest() {
    std::string name = (std::filesystem::temp_directory_path() / "cxlpool-cli-XXXXXX").string();
    directory_ = mkdtemp(name.data());
  }
  ~ExecuteFileTest() override { std::filesystem::remove_all(directory_); }

  std::string Write(const std::string& text) {
    std::ofstream(directory_ / "file") << text;
    return (directory_ / "file").string();
  }
  std::string Read(const std::string& name) const {
    std::ifstream in(directory_ / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::filesystem::path directory_;
};

TEST_F(ExecuteFileTest, ABatchIsReadLineByLineAndSentInThousands) {
  std::string text = "# what the scheduler wants\n\n";
  for (int i = 0; i < 1001; ++i) text += "{\"size_bytes\": \"1\"}\n";
  auto& calls = fake_.manager.BatchAllocateRegions_calls;
  v1::BatchAllocateRegionsResponse first, second;
  *first.add_results()->mutable_region() = online_;
  second.add_results()->set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
  second.mutable_results(0)->set_message("no more");
  second.mutable_results(0)->mutable_error()->set_reason("POOL_FULL");
  calls.answers = {first, second};
  const absl::Status status = Run(AllocateBatch{Write(text)});
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(ReasonOf(status), "BATCH_REFUSED");
  ASSERT_EQ(calls.requests.size(), 2u);
  EXPECT_EQ(calls.requests[0].requests_size(), 1000);
  EXPECT_EQ(calls.requests[1].requests_size(), 1);
  EXPECT_TRUE(ParseUuid(calls.requests[0].requests(7).request_id()).ok());
  EXPECT_NE(calls.requests[0].requests(7).request_id(), calls.requests[0].requests(8).request_id());
  EXPECT_THAT(out_.str(), HasSubstr("POOL_FULL"));
  EXPECT_THAT(out_.str(), HasSubstr("2: no more"));
}

TEST_F(ExecuteFileTest, ABatchTakesTheCommandLinesWords) {
  fake_.manager.BatchAllocateRegions_calls.answers = {v1::BatchAllocateRegionsResponse()};
  ASSERT_TRUE(Run(AllocateBatch{Write(
                      R"({"region_id": "kv", "size_bytes": "256MiB", "tenant": "ml", "host": "a",)"
                      R"( "policy": "spread", "sharing": "single-writer", "ttl": "12h",)"
                      R"( "isolateFrom": ["other"], "isolation": "fabric"})"
                      "\n"
                      R"({"region_id": "kw", "size_bytes": 1073741824, "tenant": "tenants/ml",)"
                      R"( "policy": "SPREAD", "expected_lifetime": "90s"})"
                      "\n")})
                  .ok());
  const auto& requests = fake_.manager.BatchAllocateRegions_calls.requests[0].requests();
  EXPECT_EQ(requests[0].size_bytes(), uint64_t{256} << 20);
  EXPECT_EQ(requests[0].tenant(), "tenants/ml");
  EXPECT_EQ(requests[0].host(), "hosts/a");
  EXPECT_EQ(requests[0].policy(), v1::SPREAD);
  EXPECT_EQ(requests[0].sharing(), v1::SINGLE_WRITER);
  EXPECT_EQ(requests[0].ttl().seconds(), 43200);
  EXPECT_EQ(requests[0].isolate_from(0), "regions/other");
  EXPECT_EQ(requests[0].isolation(), v1::FABRIC);
  EXPECT_EQ(requests[1].size_bytes(), uint64_t{1} << 30);
  EXPECT_EQ(requests[1].tenant(), "tenants/ml");
  EXPECT_EQ(requests[1].policy(), v1::SPREAD);
  EXPECT_EQ(requests[1].expected_lifetime().seconds(), 90);
  for (const char* line : {R"({"size_bytes": "much"})", R"({"size_bytes": 1e17})",
                           R"({"size_bytes": "1", "policy": "best"})"}) {
    EXPECT_EQ(ReasonOf(Run(AllocateBatch{Write(line)})), "BAD_BATCH_FILE") << line;
  }
}

TEST_F(ExecuteFileTest, ABadLineIsNamedAndNothingIsSent) {
  const absl::Status status =
      Run(AllocateBatch{Write("{\"size_bytes\": \"1\"}\n{\"sise_bytes\": \"1\"}\n")});
  EXPECT_EQ(ReasonOf(status), "BAD_BATCH_FILE");
  EXPECT_THAT(std::string(status.message()), HasSubstr("file:2: "));
  EXPECT_EQ(ReasonOf(Run(AllocateBatch{Write("\n")})), "BAD_BATCH_FILE");
  EXPECT_EQ(ReasonOf(Run(AllocateBatch{(directory_ / "no").string()})), "NO_FILE");
  EXPECT_TRUE(fake_.manager.BatchAllocateRegions_calls.requests.empty());
}

TEST_F(ExecuteFileTest, ManyAreReleasedAndWaitedForOneByOne) {
  ReleaseBatch command;
  command.request.add_requests()->set_name("regions/a");
  command.request.add_requests()->set_name("regions/b");
  command.wait.wait = true;
  v1::BatchReleaseRegionsResponse response;
  *response.add_results()->mutable_region() = MakeRegion(R::RELEASING, 6, "regions/a");
  response.add_results()->set_code(static_cast<int>(absl::StatusCode::kNotFound));
  fake_.manager.BatchReleaseRegions_calls.answers = {response};
  v1::Region gone = MakeRegion(R::SCRUBBING, 7, "regions/a");
  gone.set_state_reason("512 MiB scrubbed and free");
  fake_.manager.streams = {{{Removed(gone, 8)}, absl::OkStatus()}};
  EXPECT_TRUE(absl::IsNotFound(Run(command)));
  EXPECT_THAT(out_.str(), HasSubstr("a is gone: 512 MiB scrubbed and free\n"));
  const auto& sent = fake_.manager.BatchReleaseRegions_calls.requests[0];
  EXPECT_TRUE(ParseUuid(sent.requests(1).request_id()).ok());
}

v1::BackupResponse Piece(const std::string& data, bool last = false) {
  v1::BackupResponse piece;
  piece.set_data(data);
  piece.set_last(last);
  return piece;
}

TEST_F(ExecuteFileTest, ABackupGetsItsNameOnceItIsWhole) {
  auto& pieces = fake_.manager.backup_pieces;
  pieces = {Piece("abc"), Piece("de", true)};
  pieces[0].set_revision(41);
  pieces[0].set_total_bytes(5);
  const std::string file = (directory_ / "pool.db").string();
  ASSERT_TRUE(Run(Backup{file}).ok());
  EXPECT_EQ(Read("pool.db"), "abcde");
  EXPECT_FALSE(std::filesystem::exists(file + ".part"));
  EXPECT_EQ(out_.str(), file + ": the pool at revision 41, 5 B\n");
  EXPECT_EQ(std::filesystem::status(file).permissions(), std::filesystem::perms(0600));

  EXPECT_EQ(ReasonOf(Run(Backup{file})), "BACKUP_EXISTS");
  const std::string next = (directory_ / "next.db").string();
  fake_.manager.backup_breaks = 2;
  out_.str("");
  ASSERT_TRUE(Run(Backup{next}, OutputFormat::kJson).ok());
  EXPECT_THAT(out_.str(), HasSubstr("\"revision\": \"41\""));
  EXPECT_EQ(Read("next.db"), "abcde") << "what broke off is not in it";
  for (absl::Duration connect : fake_.manager.backup_connects) {
    EXPECT_LE(connect, absl::Minutes(1)) << "--timeout bounds it, not the time a copy may take";
  }
}

TEST_F(ExecuteFileTest, ABackupThatIsNotWholeLeavesNothing) {
  auto& pieces = fake_.manager.backup_pieces;
  const std::string file = (directory_ / "pool.db").string();
  pieces = {Piece("abc"), Piece("de")};
  pieces[0].set_total_bytes(9);
  EXPECT_EQ(ReasonOf(Run(Backup{file})), "BACKUP_BROKEN");
  pieces[1].set_last(true);
  EXPECT_EQ(ReasonOf(Run(Backup{file})), "BACKUP_BROKEN");
  fake_.manager.backup_end = Refused(absl::StatusCode::kResourceExhausted, "BACKUP_IN_PROGRESS");
  EXPECT_EQ(ReasonOf(Run(Backup{file})), "BACKUP_IN_PROGRESS");
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
  std::ofstream(file + ".part") << "another's";
  EXPECT_EQ(ReasonOf(Run(Backup{file})), "BACKUP_EXISTS");
  EXPECT_EQ(Read("pool.db.part"), "another's");
  EXPECT_EQ(ReasonOf(Run(Backup{(directory_ / "no/pool.db").string()})), "NO_ACCESS");
}

TEST_F(ExecuteTest, PkiPrintsTheFilesItMade) {
  std::string name = (std::filesystem::temp_directory_path() / "cxlpool-cli-XXXXXX").string();
  const std::filesystem::path dir = mkdtemp(name.data());
  Printer printer{.out = out_, .err = err_, .format = OutputFormat::kJson};
  const std::string pki_dir = (dir / "pki").string();
  EXPECT_TRUE(Execute(PkiCommand(PkiInit{pki_dir}), printer).ok());
  pki::LeafRequest leaf;
  leaf.role = pki::LeafRole::kOperator;
  leaf.name = "alice";
  out_.str("");
  EXPECT_TRUE(Execute(PkiCommand(PkiIssue{pki_dir, leaf}), printer).ok());
  EXPECT_EQ(out_.str(), "{\n \"ca\": \"" + pki_dir + "/ca.pem\",\n \"cert\": \"" + pki_dir +
                            "/operator-alice.pem\",\n \"key\": \"" + pki_dir +
                            "/operator-alice.key\"\n}\n");
  EXPECT_EQ(ReasonOf(Execute(PkiCommand(PkiIssue{pki_dir, leaf}), printer)), "CERT_EXISTS");
  EXPECT_TRUE(
      Execute(PkiCommand(PkiRenew{pki_dir, pki::LeafRole::kOperator, "alice"}), printer).ok());
  out_.str("");
  EXPECT_TRUE(Execute(PkiCommand(PkiShow{pki_dir + "/operator-alice.pem"}), printer).ok());
  EXPECT_THAT(out_.str(), HasSubstr("\"identity\": \"cxlpool://operator/alice\""));
  EXPECT_THAT(out_.str(), HasSubstr("\"server\": false"));
  EXPECT_THAT(out_.str(), HasSubstr("\"expired\": false"));
  printer.format = OutputFormat::kTable;
  out_.str("");
  EXPECT_TRUE(Execute(PkiCommand(PkiShow{pki_dir + "/operator-alice.pem"}), printer).ok());
  EXPECT_THAT(out_.str(), HasSubstr("cxlpool://operator/alice"));
  EXPECT_THAT(out_.str(), HasSubstr("in 364 days"));
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace cxlpool::cli
