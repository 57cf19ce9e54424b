#include "fabric-manager/service/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kMetricsGiB = uint64_t{1} << 30;
const absl::Time kMetricsNow = absl::FromUnixSeconds(1'900'000'000);

size_t SeriesOf(const std::string& text) {
  size_t series = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    series += !line.empty() && line.front() != '#';
  }
  return series;
}

// A pool of so many devices, hosts and tenants.
struct PoolForMetrics {
  PoolForMetrics(size_t devices, size_t hosts, size_t tenants) {
    auto all_devices = std::make_shared<std::vector<DeviceView>>();
    for (size_t i = 0; i < devices; ++i) {
      DeviceView device;
      device.device.id = absl::StrCat("device-", i);
      device.device.capacity_bytes = kMetricsGiB;
      device.device.reachable = true;
      all_devices->push_back(device);
    }
    auto all_tenants = std::make_shared<std::vector<TenantView>>();
    for (size_t i = 0; i < tenants; ++i) {
      all_tenants->push_back(
          {Tenant{.key = i, .id = absl::StrCat("tenant-", i), .quota_bytes = kMetricsGiB},
           {.held_bytes = 1, .regions = 1}});
    }
    for (size_t i = 0; i < hosts; ++i) {
      auto host = std::make_shared<HostView>();
      host->host.id = absl::StrCat("host-", i);
      auto runtime = std::make_shared<HostRuntime>();
      runtime->online = true;
      for (uint32_t bridge = 0; bridge < 4; ++bridge) {
        Bridge& of = runtime->bridges.emplace_back();
        of.name = absl::StrCat("pci0000:", bridge);
        of.max_regions = 8;
      }
      host->runtime = runtime;
      view.hosts[host->host.id] = host;
    }
    view.devices = all_devices;
    view.tenants = all_tenants;
  }

  std::string Text() const {
    return ManagerMetrics(view, meters,
                          {.now = kMetricsNow,
                           .store_bytes = 1,
                           .certificate = kMetricsNow,
                           .authority = kMetricsNow,
                           .fabric = &fabric});
  }

  FabricTimes fabric;
  PoolView view;
  Meters meters;
};

// A Region of one Attachment, in the state that it waits in since `since`.
RegionPtr Waiting(const std::string& id, AttachmentState state, absl::Time since,
                  const std::string& reason = "") {
  auto region = std::make_shared<Region>();
  region->id = id;
  region->state = RegionState::kReleasing;
  Attachment attachment;
  attachment.host = "host-0";
  attachment.generation = 7;
  attachment.settled() = {.state = state, .detaching = true, .reason = reason, .since = since};
  region->attachments.push_back(attachment);
  return region;
}

TEST(ManagerMetricsTest, ALargePoolHasFewSeries) {
  PoolForMetrics pool(200, 100, 100);
  for (int i = 0; i < 40; ++i) {  // More than the API has.
    auto& meter = pool.meters.methods[absl::StrCat("Method", i)];
    meter = std::make_unique<MethodMeter>();
    for (const int code : {0, 3, 5, 9}) meter->answered[code].Add();
  }
  for (int i = 0; i < 200; ++i) pool.meters.refusals.Add(absl::StrCat("REASON_", i));
  for (auto& failures : pool.meters.rung_failures) {
    for (int i = 0; i < 5; ++i) failures.Add(absl::StrCat("REASON_", i));
  }
  const size_t series = SeriesOf(pool.Text());
  EXPECT_LE(series, 5000u);
  RecordProperty("series", static_cast<int>(series));
  // Regions add none.
  std::vector<RegionPtr> regions;
  for (int i = 0; i < 3000; ++i) {
    regions.push_back(Waiting(absl::StrCat("r-", 10'000 + i), AttachmentState::kReleaseBlocked,
                              kMetricsNow - absl::Seconds(i)));
  }
  pool.view.regions = RegionTable::Of(regions);
  EXPECT_EQ(SeriesOf(pool.Text()), series + 1);
}

TEST(ManagerMetricsTest, ADeviceThatWasRemovedIsNotShown) {
  PoolForMetrics pool(2, 1, 1);
  auto devices = std::make_shared<std::vector<DeviceView>>(*pool.view.devices);
  (*devices)[1].device.service = DeviceService::kRemoved;
  pool.view.devices = devices;
  const std::string text = pool.Text();
  for (const char* name : {"bytes", "lds", "state"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\ncxlpool_device_", name, "{device=\"device-0\"")));
    EXPECT_THAT(text,
                Not(HasSubstr(absl::StrCat("\ncxlpool_device_", name, "{device=\"device-1\""))));
  }
}

TEST(ManagerMetricsTest, WhatNoHostReachesIsStranded) {
  PoolForMetrics pool(2, 1, 1);
  const auto is = [](uint64_t bytes) {
    return HasSubstr(
        absl::StrCat("\ncxlpool_pool_stranded_bytes{why=\"out_of_reach\"} ", bytes, "\n"));
  };
  EXPECT_THAT(pool.Text(), is(0));
  TopologySpec spec;
  spec.devices = {{.id = "device-0"}, {.id = "device-1"}};
  spec.hosts = {"host-0"};
  spec.links = {{.a = "host-0", .b = "device-0"}};
  pool.view.topology = std::make_shared<const Topology>(Topology::Create(spec).value());
  EXPECT_THAT(pool.Text(), is(kMetricsGiB)) << "no link leads to device-1";
  auto host = std::make_shared<HostView>(*pool.view.hosts.at("host-0"));
  auto runtime = std::make_shared<HostRuntime>(*host->runtime);
  runtime->unreached["device-0"] = "the host does not show it";
  host->runtime = runtime;
  pool.view.hosts["host-0"] = host;
  EXPECT_THAT(pool.Text(), is(2 * kMetricsGiB));
}

// There is no record of it but what was laid down, and an alert has to miss it all the same.
TEST(ManagerMetricsTest, ADeviceThatWasNeverShownIsUnreachable) {
  PoolForMetrics pool(1, 1, 1);
  LaidDown laid_down;
  laid_down.unseen_devices = {{"cmm-9", "no host shows it"}};
  pool.view.laid_down = std::make_shared<const LaidDown>(laid_down);
  const std::string text = pool.Text();
  EXPECT_THAT(text,
              HasSubstr("\ncxlpool_device_state{device=\"cmm-9\",state=\"unreachable\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\ncxlpool_device_state{device=\"cmm-9\",state=\"in_service\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("{device=\"device-0\",state=\"unreachable\"} 0\n"));
}

// An Extent never spans devices, and a Region has up to 16.
TEST(ManagerMetricsTest, TheLargestGrantIsOfTheLongestRunsOfAllDevices) {
  PoolForMetrics pool(3, 1, 1);
  constexpr uint64_t kUnit = kMetricsGiB / 64;
  auto devices = std::make_shared<std::vector<DeviceView>>(*pool.view.devices);
  for (DeviceView& device : *devices) {
    device.device.granule_bytes = kUnit;
    device.largest_free_bytes = 1;  // Something may be placed there.
  }
  (*devices)[2].device.capacity_bytes += kUnit - 1;  // No whole granule.
  const auto region = [](const std::string& id, const std::string& device, uint64_t first,
                         uint64_t units) {
    auto made = std::make_shared<Region>();
    made->id = id;
    made->extents = {{device, first * kUnit, units * kUnit}};
    return made;
  };
  // device-0: each second unit is taken, but the last two. device-1: one run of 20 and one of 30.
  std::vector<RegionPtr> regions;
  for (uint64_t i = 0; i < 31; ++i) {
    regions.push_back(region(absl::StrCat("a-", 10 + i), "device-0", 2 * i, 1));
  }
  regions.push_back(region("b-0", "device-1", 50, 14));
  regions.push_back(region("b-1", "device-1", 20, 1));
  pool.view.regions = RegionTable::Of(regions);
  const auto grant = [&](uint64_t units) {
    return absl::StrCat("\ncxlpool_pool_largest_grant_bytes ", units * kUnit, "\n");
  };
  // Three longest of other devices, the run of three behind the last taken unit, and twelve of one.
  pool.view.devices = devices;
  EXPECT_THAT(pool.Text(), HasSubstr(grant(64 + 29 + 20 + 3 + 12)));
  // A device with room for one LD gives its longest only; one that takes none gives nothing.
  (*devices)[1].max_lds = 3;
  (*devices)[1].use.lds = 2;
  EXPECT_THAT(pool.Text(), HasSubstr(grant(64 + 29 + 3 + 13)));
  (*devices)[2].largest_free_bytes = 0;
  EXPECT_THAT(pool.Text(), HasSubstr(grant(29 + 3 + 14)));
}

// What is free elsewhere makes no piece larger, and none smaller.
TEST(ManagerMetricsTest, PiecesAreHeldAgainstTheDeviceThatHasMostFree) {
  PoolForMetrics pool(50, 1, 1);
  auto devices = std::make_shared<std::vector<DeviceView>>(*pool.view.devices);
  for (DeviceView& device : *devices) device.largest_free_bytes = kMetricsGiB;
  (*devices)[7].use.held_bytes = kMetricsGiB / 2;
  pool.view.devices = devices;
  EXPECT_THAT(pool.Text(),
              HasSubstr(absl::StrCat("\ncxlpool_pool_most_free_device_bytes ", kMetricsGiB, "\n")));
  for (DeviceView& device : *devices) {
    if (&device != &(*devices)[7]) device.largest_free_bytes = 0;  // Drained, say.
  }
  EXPECT_THAT(pool.Text(), HasSubstr(absl::StrCat("\ncxlpool_pool_most_free_device_bytes ",
                                                  kMetricsGiB / 2, "\n")));
}

TEST(ManagerMetricsTest, TenantsBeyondTheLimitAreOneSum) {
  const std::string text = PoolForMetrics(1, 1, kMaxTenantsShown + 50).Text();
  EXPECT_THAT(text, HasSubstr("cxlpool_tenant_used_bytes{tenant=\"other\"} 50\n"));
  EXPECT_THAT(text, HasSubstr("cxlpool_tenant_used_bytes{tenant=\"tenant-199\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("tenant=\"tenant-200\"")));
  EXPECT_THAT(PoolForMetrics(1, 1, 3).Text(), Not(HasSubstr("tenant=\"other\"")));
}

TEST(ManagerMetricsTest, TheOldestThatWaitsIsShown) {
  PoolForMetrics pool(1, 1, 1);
  auto runtime = std::make_shared<HostRuntime>(*pool.view.hosts["host-0"]->runtime);
  runtime->fabric_reachable = true;
  auto host = std::make_shared<HostView>(*pool.view.hosts["host-0"]);
  host->runtime = runtime;
  pool.view.hosts["host-0"] = host;
  const auto ago = [](int seconds) { return kMetricsNow - absl::Seconds(seconds); };
  pool.view.regions = RegionTable::Of(
      {Waiting("a", AttachmentState::kReleaseBlocked, ago(10)),
       Waiting("b", AttachmentState::kReleaseBlocked, ago(1000)),
       Waiting("c", AttachmentState::kEjecting, ago(90), "UNBIND_NOT_PROVEN: no answer"),
       Waiting("d", AttachmentState::kEjecting, absl::InfinitePast())});
  const std::string text = pool.Text();
  EXPECT_THAT(text, HasSubstr("cxlpool_attachment_oldest_wait_seconds{state=\"RELEASE_BLOCKED\","
                              "reason=\"RELEASE_BLOCKED\"} 1000\n"));
  EXPECT_THAT(text, HasSubstr("{state=\"EJECTING\",reason=\"UNBIND_NOT_PROVEN\"} 90\n"));
  EXPECT_THAT(text, HasSubstr("cxlpool_unbind_unproven 1\n"));
  EXPECT_THAT(text, HasSubstr("cxlpool_attachments{state=\"RELEASE_BLOCKED\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("cxlpool_regions{state=\"RELEASING\"} 4\n"));
}

TEST(ManagerMetricsTest, AHostWithMemoryAndNoAgentIsAway) {
  PoolForMetrics pool(1, 2, 1);
  auto away = std::make_shared<HostView>(*pool.view.hosts["host-0"]);
  away->runtime = std::make_shared<HostRuntime>();
  away->occupied.emplace_back().length_bytes = kMetricsGiB;
  pool.view.hosts["host-0"] = away;
  const std::string text = pool.Text();
  EXPECT_THAT(text, HasSubstr("cxlpool_hosts{state=\"away\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("cxlpool_hosts{state=\"online\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("cxlpool_host_attached_bytes{host=\"host-0\"} 1073741824\n"));
}

TEST(ManagerMetricsTest, TheAuditTrail) {
  PoolForMetrics pool(1, 1, 1);
  EXPECT_THAT(pool.Text(), HasSubstr("cxlpool_audit_chain_ok 1\n"));
  pool.meters.audit_chain_ok = false;
  pool.meters.audit_entries.Add(7);
  pool.meters.last_anchor_s = 1'700'000'000;
  const std::string text = pool.Text();
  EXPECT_THAT(text, HasSubstr("cxlpool_audit_chain_ok 0\n"));
  EXPECT_THAT(text, HasSubstr("cxlpool_audit_entries_total 7\n"));
  EXPECT_THAT(text, HasSubstr("cxlpool_audit_anchor_timestamp_seconds 1700000000\n"));
}

// The files for etcd are read once: nobody would see them end before a new start fails.
TEST(ManagerMetricsTest, TheEndOfEachCertificateIsShownAlsoByAStandby) {
  const absl::Time end = absl::FromUnixSeconds(1'900'000'500);
  const std::string name = "cxlpool_tls_certificate_not_after_timestamp_seconds";
  const std::string both = StandbyMetrics({.certificate = kMetricsNow,
                                           .authority = kMetricsNow,
                                           .etcd_certificate = end,
                                           .etcd_authority = end});
  for (const char* which :
       {"{certificate=\"own\"} 1900000000\n", "{certificate=\"authority\"} 1900000000\n",
        "{certificate=\"etcd\"} 1900000500\n", "{certificate=\"etcd-authority\"} 1900000500\n"}) {
    EXPECT_THAT(both, HasSubstr(name + which));
  }
  // Where every address is insecure.
  const std::string of_etcd = StandbyMetrics({.etcd_certificate = end, .etcd_authority = end});
  EXPECT_THAT(of_etcd, HasSubstr(name + "{certificate=\"etcd\"} 1900000500\n"));
  EXPECT_THAT(of_etcd, Not(HasSubstr("\"own\"")));
  EXPECT_THAT(StandbyMetrics({}), Not(HasSubstr(name)));
}

// Of etcd, which a standby asks, too; the records are the leader's to tell of.
TEST(ManagerMetricsTest, MembersAndTheRoomForRecordsAreShown) {
  const PoolForMetrics pool(1, 1, 1);
  EXPECT_THAT(pool.Text(), Not(HasSubstr("\ncxlpool_store_limit_bytes ")));
  EXPECT_THAT(pool.Text(), Not(HasSubstr("\ncxlpool_etcd_member_up{")));
  ManagerFacts facts{.now = kMetricsNow,
                     .store_bytes = 700,
                     .store_limit_bytes = 1000,
                     .replica = {.replicated = true,
                                 .etcd_members = {{"etcd-a:2379", true}, {"etcd-b:2379", false}}}};
  const std::string leader = ManagerMetrics(pool.view, pool.meters, facts);
  EXPECT_THAT(leader, HasSubstr("\ncxlpool_store_size_bytes 700\n"));
  EXPECT_THAT(leader, HasSubstr("\ncxlpool_store_limit_bytes 1000\n"));
  const std::string standby = StandbyMetrics(facts);
  EXPECT_THAT(standby, Not(HasSubstr("cxlpool_store_size_bytes")));
  for (const std::string& text : {leader, standby}) {
    EXPECT_THAT(text, HasSubstr("\ncxlpool_etcd_member_up{endpoint=\"etcd-a:2379\"} 1\n"));
    EXPECT_THAT(text, HasSubstr("\ncxlpool_etcd_member_up{endpoint=\"etcd-b:2379\"} 0\n"));
  }
}

TEST(ManagerMetricsTest, MediaErrorsOfEachDeviceBeginAtZero) {
  PoolForMetrics pool(2, 1, 1);
  pool.meters.media_errors_lost.Add("device-1");
  const std::string text = pool.Text();
  EXPECT_THAT(text, HasSubstr("{device=\"device-0\",bytes_lost=\"true\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("{device=\"device-1\",bytes_lost=\"true\"} 1\n"));
}

uint64_t CountOf(const Meters& meters, Rung rung) {
  const metrics::Histogram& of = meters.rungs[static_cast<size_t>(rung)];
  uint64_t count = 0;
  for (size_t i = 0; i <= of.bounds().size(); ++i) count += of.bucket(i);
  return count;
}

TEST(MetersTest, EachRungIsTimed) {
  Meters meters;
  const auto in = [](AttachmentState state) {
    return Waiting("r", state, kMetricsNow - absl::Seconds(2));
  };
  const auto step = [&](AttachmentState from, AttachmentState to) {
    meters.CountRungs(*in(from), in(to).get(), kMetricsNow);
  };
  step(AttachmentState::kWanted, AttachmentState::kBound);
  step(AttachmentState::kBound, AttachmentState::kOnline);
  step(AttachmentState::kReleaseBlocked, AttachmentState::kOffline);
  step(AttachmentState::kOffline, AttachmentState::kEjecting);
  step(AttachmentState::kEjecting, AttachmentState::kUnbound);
  step(AttachmentState::kUnbound, AttachmentState::kUnbound);
  for (const Rung rung : {Rung::kBind, Rung::kOnline, Rung::kOffline, Rung::kEject, Rung::kProve}) {
    EXPECT_EQ(CountOf(meters, rung), 1u) << static_cast<int>(rung);
    EXPECT_DOUBLE_EQ(meters.rungs[static_cast<size_t>(rung)].sum(), 2);
  }
  // An Attachment that is gone was proven; a Region that is gone was scrubbed.
  Region gone = *in(AttachmentState::kEjecting);
  gone.state = RegionState::kScrubbing;
  gone.state_since = kMetricsNow - absl::Seconds(3);
  meters.CountRungs(gone, nullptr, kMetricsNow);
  EXPECT_EQ(CountOf(meters, Rung::kProve), 2u);
  EXPECT_EQ(CountOf(meters, Rung::kScrub), 1u);
  // Bound again in another life: no rung of the way.
  step(AttachmentState::kOnline, AttachmentState::kWanted);
  step(AttachmentState::kOnline, AttachmentState::kBound);
  EXPECT_EQ(CountOf(meters, Rung::kBind), 1u);
}

TEST(MetersTest, AFailureIsCountedByItsReason) {
  Meters meters;
  meters.CountFailure(Rung::kBind, Refuse(absl::StatusCode::kUnavailable, "SLOT_TAKEN", "x", "y"));
  meters.CountFailure(Rung::kBind, absl::UnavailableError("x"));
  EXPECT_EQ(meters.rung_failures[0].Values(),
            (std::map<std::string, uint64_t>{{"SLOT_TAKEN", 1}, {"UNAVAILABLE", 1}}));
}

// Reasons come from agents, too: one that invents them makes one series.
TEST(MetersTest, InventedReasonsMakeOneSeries) {
  PoolForMetrics pool(1, 1, 1);
  const size_t before = SeriesOf(pool.Text());
  for (int i = 0; i < 10'000; ++i) {
    const absl::Status invented =
        Refuse(absl::StatusCode::kUnavailable, absl::StrCat("INVENTED_", i), "what", "do");
    for (const Rung rung : {Rung::kBind, Rung::kScrub}) pool.meters.CountFailure(rung, invented);
    pool.meters.refusals.Add(ReasonOrCode(invented));
  }
  const std::string text = pool.Text();
  EXPECT_EQ(SeriesOf(text), before + 3);
  EXPECT_THAT(text, HasSubstr("{rung=\"bind\",reason=\"other\"} 10000\n"));
  EXPECT_THAT(text, HasSubstr("cxlpool_refusals_total{reason=\"other\"} 10000\n"));
}

}  // namespace
}  // namespace cxlpool::fm
