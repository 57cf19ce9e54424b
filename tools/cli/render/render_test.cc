#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"
#include "tools/cli/golden.h"
#include "tools/cli/render/error_text.h"
#include "tools/cli/render/inventory.h"
#include "tools/cli/render/json.h"
#include "tools/cli/render/printable.h"
#include "tools/cli/render/regions.h"
#include "tools/cli/render/table.h"
#include "tools/cli/render/topology.h"
#include "tools/cli/render/yaml.h"

namespace cxlpool::cli {
namespace {

v1::ListRegionsResponse Regions() {
  return ReadMessage<v1::ListRegionsResponse>("regions.textproto");
}

TEST(RenderTest, RegionTable) { ExpectGolden("region-list.txt", RegionTable(Regions())); }

TEST(RenderTest, EmptyTableIsItsHeader) {
  EXPECT_EQ(RegionTable({}), "NAME  SIZE  STATE  SHARING  TENANT  OWNER  DEVICES  ATTACHMENTS\n");
}

TEST(RenderTest, RegionDetails) {
  std::string all;
  const v1::ListRegionsResponse regions = Regions();
  for (const v1::Region& region : regions.regions()) {
    all += RegionDetails(region) + "----\n";
  }
  ExpectGolden("region-show.txt", all);
}

TEST(RenderTest, RegionDetailsSayWhichExtentIsBad) {
  v1::Region region = Regions().regions(0);
  EXPECT_THAT(RegionDetails(region), testing::Not(testing::HasSubstr("is bad")));
  region.mutable_extents(1)->set_bad_reason("POISON on device cmm-1 at 0x1000-0x103f");
  EXPECT_THAT(RegionDetails(region),
              testing::HasSubstr("\n  extent 1 is bad: POISON on device cmm-1 at 0x1000-0x103f\n"));
}

TEST(RenderTest, Holders) {
  ExpectGolden("region-holders.txt",
               HolderTable(ReadMessage<v1::ListRegionHoldersResponse>("holders.textproto")));
  EXPECT_EQ(HolderTable({}), "HOST  PID  PROGRAM  USER  OPEN  MAPPED  LIVE  SLACK  PINS\n");
}

TEST(RenderTest, Findings) {
  EXPECT_EQ(FindingsText({}, absl::Now()), "nothing is wrong, and nothing waits\n");
  v1::ExplainResponse explained;
  v1::Finding& blocked = *explained.add_findings();
  blocked.set_urgency(v1::Finding::WRONG);
  blocked.set_subject("regions/kv");
  blocked.set_problem("RELEASE_BLOCKED");
  blocked.set_text("host host-a cannot let go of it\x1b[2J");
  blocked.mutable_since()->set_seconds(1000);
  blocked.add_waits_for("hosts/host-a");
  blocked.add_waits_for("regions/old");
  blocked.add_commands("cxlpool region holders kv");
  blocked.add_commands("on host-a: end those processes");
  v1::Finding& full = *explained.add_findings();
  full.set_urgency(v1::Finding::NOTE);
  full.set_problem("POOL_FULL");
  full.set_text("1 GiB of 64 GiB are free");
  full.mutable_since()->set_seconds(1'000'000);  // By a clock that is ahead of this one.
  explained.set_left_out(7);
  EXPECT_EQ(FindingsText(explained, absl::FromUnixSeconds(1192)),
            "WRONG  regions/kv RELEASE_BLOCKED for 3m12s\n"
            "       host host-a cannot let go of it\\x1b[2J\n"
            "       waits for hosts/host-a, regions/old\n"
            "       run: cxlpool region holders kv\n"
            "            on host-a: end those processes\n"
            "\n"
            "NOTE   the pool POOL_FULL\n"
            "       1 GiB of 64 GiB are free\n"
            "\n"
            "7 more are left out\n");
}

TEST(RenderTest, Watch) {
  std::string all = WatchHeader();
  v1::WatchRegionsResponse event;
  uint64_t revision = 40;
  const v1::ListRegionsResponse regions = Regions();
  for (const v1::Region& region : regions.regions()) {
    event.set_event(v1::WatchRegionsResponse::CHANGED);
    *event.mutable_region() = region;
    event.set_revision(revision++);
    all += WatchLine(event, absl::UnixEpoch());
  }
  event.set_event(v1::WatchRegionsResponse::REMOVED);
  all += WatchLine(event, absl::UnixEpoch());
  event.Clear();
  event.set_event(v1::WatchRegionsResponse::SYNCED);
  event.set_revision(revision);
  all += WatchLine(event, absl::UnixEpoch());
  ExpectGolden("region-watch.txt", all);
}

TEST(RenderTest, Inventory) {
  const auto topology = ReadMessage<v1::Topology>("topology.textproto");
  v1::ListDevicesResponse devices;
  *devices.mutable_devices() = topology.devices();
  ExpectGolden("device-list.txt", DeviceTable(devices));
  v1::ListHostsResponse hosts;
  *hosts.mutable_hosts() = topology.hosts();
  ExpectGolden("host-list.txt", HostTable(hosts));
}

TEST(RenderTest, CertificatesOfHostsThatEndSoonAreSaid) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  v1::ListHostsResponse hosts;
  const auto add = [&](const char* name, absl::Duration left) {
    v1::Host& host = *hosts.add_hosts();
    host.set_name(name);
    host.mutable_certificate_expire_time()->set_seconds(absl::ToUnixSeconds(now + left));
  };
  add("hosts/late", -absl::Hours(1));
  add("hosts/soon", absl::Hours(24 * 9));
  add("hosts/fine", absl::Hours(24 * 90));
  hosts.add_hosts()->set_name("hosts/none");
  const std::string table = HostTable(hosts, now);
  EXPECT_THAT(table, testing::HasSubstr("2027-01-15T07:00:00Z"));
  EXPECT_THAT(table, testing::HasSubstr("the certificate of late EXPIRED on 2027-01-15 07:00 UTC: "
                                        "`cxlpool pki renew host late`\n"));
  EXPECT_THAT(table, testing::HasSubstr("the certificate of soon ends on 2027-01-24 08:00 UTC, in "
                                        "9 days: `cxlpool pki renew host soon`\n"));
  EXPECT_THAT(table, testing::Not(testing::HasSubstr("certificate of fine")));
  EXPECT_THAT(table, testing::Not(testing::HasSubstr("certificate of none")));
}

TEST(RenderTest, WhyADeviceOrAHostCannotBeUsedStandsBelowTheTable) {
  v1::ListDevicesResponse devices;
  v1::Device& device = *devices.add_devices();
  device.set_name("devices/cmm-0");
  device.set_state(v1::Device::UNREACHABLE);
  device.set_state_reason("its capacity is 8 GiB");
  EXPECT_THAT(DeviceTable(devices),
              testing::EndsWith("cmm-0 is UNREACHABLE: its capacity is 8 GiB\n"));
  EXPECT_THAT(DeviceDetails(device, {}), testing::HasSubstr("its capacity is 8 GiB"));
  v1::ListHostsResponse hosts;
  v1::Host& host = *hosts.add_hosts();
  host.set_name("hosts/host-a");
  host.set_fabric_reason("its QEMU hangs");
  EXPECT_THAT(HostTable(hosts),
              testing::EndsWith("the fabric cannot be asked about host-a: its QEMU hangs\n"));
  EXPECT_THAT(HostDetails(host), testing::HasSubstr("its QEMU hangs"));
  (*host.mutable_unreached_devices())["cmm-0"] = "it shows no device at all";
  const char* const kLine = "host-a does not reach cmm-0: it shows no device at all\n";
  EXPECT_THAT(HostTable(hosts), testing::EndsWith(kLine));
  EXPECT_THAT(HostDetails(host), testing::HasSubstr(kLine));
}

TEST(RenderTest, AThousandFreeSlotsAreOneLine) {
  v1::Topology topology;
  v1::Host& host = *topology.add_hosts();
  host.set_name("hosts/host-a");
  host.add_bridges()->set_name("shared");
  for (uint32_t slot = 1; slot <= 1024; ++slot) {
    v1::Port& port = *host.add_ports();
    port.set_slot(slot);
    port.set_host_bridge("shared");
    if (slot == 7) port.set_region("regions/kv");
  }
  for (const std::string& text : {TopologyTree(topology, {}), HostDetails(host)}) {
    EXPECT_NE(text.find("kv"), std::string::npos) << text;
    EXPECT_NE(text.find("1023 slots are free"), std::string::npos) << text;
    EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 20) << text;
  }
}

TEST(RenderTest, TopologyTree) {
  ExpectGolden("topology.txt",
               TopologyTree(ReadMessage<v1::Topology>("topology.textproto"), Regions()));
}

TEST(RenderTest, Capacity) {
  v1::Capacity capacity;
  capacity.set_total_bytes(uint64_t{4} << 30);
  capacity.set_free_bytes(uint64_t{5} << 29);
  capacity.set_allocated_bytes(uint64_t{3} << 29);
  capacity.set_largest_free_bytes(uint64_t{2} << 30);
  capacity.set_regions(2);
  capacity.set_revision(41);
  ExpectGolden("capacity.txt", CapacityTable(capacity));
}

TEST(RenderTest, Plan) {
  v1::PlacementPlan plan;
  EXPECT_EQ(PlanText(plan), "");
  plan.set_policy(v1::LATENCY);
  plan.set_latency_ns(230);
  plan.set_bandwidth_mib_per_second(20000);
  v1::PlannedBridge* bridge = plan.add_bridges();
  bridge->set_host_bridge("ACPI0016:00");
  bridge->set_stack_depth(3);
  bridge->add_above("regions/kv");
  bridge->add_above("regions/cache");
  bridge->add_unblocks("regions/cache");
  bridge = plan.add_bridges();
  bridge->set_host_bridge("ACPI0016:01");
  bridge->set_stack_depth(1);
  ExpectGolden("plan.txt", PlanText(plan));
}

TEST(RenderTest, Batch) {
  v1::BatchAllocateRegionsResponse batch;
  *batch.add_results()->mutable_region() = Regions().regions(0);
  v1::BatchResult& refused = *batch.add_results();
  refused.set_code(8);
  refused.set_message("tenant \"blue\" would hold 6 GiB of its 5 GiB (release something)");
  refused.mutable_error()->set_reason("QUOTA_EXCEEDED");
  *batch.add_results()->mutable_region() = Regions().regions(1);
  ExpectGolden("batch.txt", BatchTable(batch.results(), {"", "regions/big", "kv"}));
}

TEST(RenderTest, Tenants) {
  v1::ListTenantsResponse tenants;
  v1::Tenant& blue = *tenants.add_tenants();
  blue.set_name("tenants/blue");
  blue.set_quota_bytes(uint64_t{5} << 30);
  blue.set_reserved_bytes(uint64_t{1} << 30);
  blue.set_host_cap_bytes(uint64_t{2} << 30);
  blue.set_used_bytes(uint64_t{3} << 29);
  blue.set_regions(2);
  blue.set_isolation(v1::FABRIC);
  tenants.add_tenants()->set_name("tenants/default");
  ExpectGolden("tenant-list.txt", TenantTable(tenants));
}

TEST(RenderTest, Drain) {
  v1::DrainDeviceResponse drained;
  *drained.mutable_device() = ReadMessage<v1::Topology>("topology.textproto").devices(0);
  drained.mutable_device()->set_state(v1::Device::DRAINING);
  std::string all = DrainText(drained) + "----\n";
  drained.add_regions("regions/cache");
  drained.add_regions("regions/kv");
  drained.set_region_count(2);
  all += DrainText(drained) + "----\n";
  drained.set_region_count(3000);
  ExpectGolden("device-drain.txt", all + DrainText(drained));
}

TEST(RenderTest, Json) {
  const auto json = ToJson(Regions());
  ASSERT_TRUE(json.ok());
  ExpectGolden("region-list.json", *json);
  const auto line = ToJson(Regions().regions(0), JsonLayout::kOneLine);
  EXPECT_EQ(std::count(line->begin(), line->end(), '\n'), 1);
}

TEST(RenderTest, ErrorText) {
  const Refusal refusal{.code = absl::StatusCode::kResourceExhausted,
                        .reason = "POOL_FRAGMENTED",
                        .message = "region \"kv\" needs 64 GiB in one extent",
                        .remedy = "raise --max-extents",
                        .metadata = {}};
  EXPECT_EQ(ErrorText(refusal.ToStatus()),
            "cxlpool: error: region \"kv\" needs 64 GiB in one extent\n"
            "  reason: POOL_FRAGMENTED\n"
            "  remedy: raise --max-extents\n");
  EXPECT_EQ(ErrorText(absl::InternalError("a\nb")),
            "cxlpool: error: a\\x0ab\n  reason: INTERNAL\n");
}

TEST(RenderTest, ErrorJson) {
  const Refusal refusal{.code = absl::StatusCode::kNotFound,
                        .reason = "UNKNOWN_REGION",
                        .message = "there is no region \"kv\"",
                        .remedy = "see `cxlpool region list`",
                        .metadata = {{"region", "kv"}}};
  EXPECT_EQ(ErrorJson(refusal.ToStatus()),
            R"({"error": {"code": "NOT_FOUND", "reason": "UNKNOWN_REGION", )"
            R"("message": "there is no region \"kv\"", "remedy": "see `cxlpool region list`", )"
            R"("metadata": {"region": "kv"}}})"
            "\n");
  EXPECT_EQ(ErrorJson(absl::InternalError("x")),
            R"({"error": {"code": "INTERNAL", "reason": "INTERNAL", "message": "x", "remedy": "", )"
            R"("metadata": {}}})"
            "\n");
}

TEST(RenderTest, OneHostAndOneDevice) {
  const auto topology = ReadMessage<v1::Topology>("topology.textproto");
  ExpectGolden("host-show.txt", HostDetails(topology.hosts(0)));
  ExpectGolden("device-show.txt", DeviceDetails(topology.devices(0), Regions()));
}

TEST(YamlTest, IsForPeopleToRead) {
  EXPECT_EQ(*ToYaml(R"({"name": "regions/kv", "size_bytes": "1024", "sharing": "EXCLUSIVE",)"
                    R"("extents": [{"device": "devices/cmm-0", "ok": true}, {}], "tags": [],)"
                    R"("text": "two\nlines, a \"quote\"", "slot": 17})"),
            "name: regions/kv\nsize_bytes: \"1024\"\nsharing: EXCLUSIVE\nextents:\n"
            "- device: devices/cmm-0\n  ok: true\n- {}\ntags: []\n"
            "text: \"two\\nlines, a \\\"quote\\\"\"\nslot: 17\n");
  EXPECT_FALSE(ToYaml("{\"a\": ").ok());
}

// A random text of whatever may confuse a reader of YAML or JSON; always UTF-8.
std::string RandomText(std::minstd_rand& random) {
  static const auto* const kPieces = new std::vector<std::string>{"a",
                                                                  "Z",
                                                                  "0",
                                                                  "1",
                                                                  "9",
                                                                  ".",
                                                                  "-",
                                                                  ":",
                                                                  ": ",
                                                                  " #",
                                                                  "#",
                                                                  "'",
                                                                  "\"",
                                                                  "\\",
                                                                  "/",
                                                                  "\n",
                                                                  "\t",
                                                                  "\r",
                                                                  " ",
                                                                  "%",
                                                                  "@",
                                                                  "`",
                                                                  "|",
                                                                  ">",
                                                                  "{",
                                                                  "]",
                                                                  ",",
                                                                  "?",
                                                                  "&",
                                                                  "*",
                                                                  "!",
                                                                  "<<",
                                                                  "=",
                                                                  "~",
                                                                  "\x1b",
                                                                  "\b",
                                                                  "\x01",
                                                                  "\x7f",
                                                                  "\xc2\x85",
                                                                  "e",
                                                                  "yes",
                                                                  "null",
                                                                  "0x",
                                                                  "\\u0041",
                                                                  "\xc3\xa4",
                                                                  "\xe2\x80\xa8",
                                                                  "\xef\xbb\xbf",
                                                                  "\xef\xbf\xbe",
                                                                  "\xf0\x9f\x98\x80",
                                                                  "\xf3\xa0\x80\x81",
                                                                  "\xef\xbf\xbf",
                                                                  "\xc2\xa0",
                                                                  std::string(1, '\0')};
  std::string text;
  for (size_t left = random() % 6; left > 0; --left) text += (*kPieces)[random() % kPieces->size()];
  return text;
}

// As another program reads it: each text is the same, and a text.
TEST(YamlTest, ReadsBackAsTheJsonDoes) {
  std::vector<std::string> texts = {"yes",
                                    "No",
                                    "on",
                                    "y",
                                    "null",
                                    "~",
                                    "true",
                                    "1e3",
                                    "0x10",
                                    "0o7",
                                    "017",
                                    "1_0",
                                    ".5",
                                    "-1",
                                    "+1",
                                    "1:30",
                                    ".inf",
                                    "NaN",
                                    "2026-01-31",
                                    "=",
                                    "<<",
                                    "- a",
                                    "? a",
                                    "a: b",
                                    "a:",
                                    "a #b",
                                    " a",
                                    "a ",
                                    "%YAML 1.2",
                                    "---",
                                    "...",
                                    "",
                                    "a\nb\n",
                                    "e3",
                                    "null-1",
                                    "inf",
                                    "cxlpool://host/a",
                                    std::string(5000, 'x'),
                                    std::string(300, ' ')};
  std::minstd_rand random(20261126);
  for (int i = 0; i < 5000; ++i) texts.push_back(RandomText(random));
  std::string list, map;
  for (size_t i = 0; i < texts.size(); ++i) {
    absl::StrAppend(&list, i == 0 ? "" : ",", Quoted(texts[i]));
    if (texts[i].size() < 100) {
      absl::StrAppend(&map, map.empty() ? "" : ",", Quoted(absl::StrCat(texts[i], i)), ":[", i,
                      "]");
    }
  }
  const std::string json =
      absl::StrCat("{\"list\":[", list, "],\"map\":{", map, "},\"null\":null,\"no\":false}");
  const auto yaml = ToYaml(json);
  ASSERT_TRUE(yaml.ok()) << yaml.status();
  const std::string at = (std::filesystem::temp_directory_path() / "cxlpool-yaml-XXXXXX").string();
  std::string directory = at;
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  std::ofstream(directory + "/a.json") << json;
  std::ofstream(directory + "/a.yaml") << *yaml;
  const std::string script = absl::StrCat(
      "cd ", directory,
      " && /usr/bin/python3 -c 'import json, yaml; a = json.load(open(\"a.json\")); "
      "b = yaml.safe_load(open(\"a.yaml\")); "
      "assert a == b, [x for x in zip(a[\"list\"], b[\"list\"]) if x[0] != x[1]][:3]'");
  EXPECT_EQ(system(script.c_str()), 0);
  std::filesystem::remove_all(directory);
}

TEST(PrintableTest, DefusesWhatSteersATerminal) {
  EXPECT_EQ(Printable("a\x1b[2Jb\r\n\x7f"), "a\\x1b[2Jb\\x0d\\x0a\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");
  EXPECT_EQ(Printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(Printable("gr\xc3\xb6\xc3\x9f"
                      "e \xe2\x82\xac"),
            "gr\xc3\xb6\xc3\x9f"
            "e \xe2\x82\xac");
}

TEST(TableTest, AlignsByCharacterAndCutsNothing) {
  Table table({{"A"}, {"N", Align::kRight}, {"B"}});
  table.AddRow({"\xc3\xb6", "1", std::string(50, 'x')});
  table.AddRow({"long", "100", ""});
  EXPECT_EQ(table.ToString(),
            "A       N  B\n\xc3\xb6       1  " + std::string(50, 'x') + "\nlong  100  -\n");
}

}  // namespace
}  // namespace cxlpool::cli
