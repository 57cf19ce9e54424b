#include "fabric-manager/config.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "fabric-manager/fabric_drivers.h"
#include "fabric-manager/topology_file.h"
#include "proto/support/refusal.h"
#include "proto/support/toml_reader.h"

namespace cxlpool::fm {
namespace {

absl::StatusOr<FmConfig> Parse(const std::string& text) {
  return ParseFmConfig(text, "fm.toml", FabricDrivers());
}

constexpr char kGood[] = R"(
[[listen]]
address = "unix:/run/cxlpool/fm.sock"
insecure = true

[store]
path = "/var/lib/cxlpool/pool.db"

[fabric]
driver = "emulated"
root = "/run/cxlpool/fabric"

[[device]]
id = "cmm-0"
capacity = "2GiB"

[[host]]
id = "host-a"
slots = [1, 2]
)";

TEST(FmConfigTest, ReadsAGoodFile) {
  const auto config = Parse(kGood);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->tables.devices.at(0).capacity_bytes, 2ull << 30);
  EXPECT_EQ(config->tables.devices.at(0).granule_bytes, 256ull << 20);
  EXPECT_EQ(config->tables.hosts.at(0).slots, (std::vector<uint32_t>{1, 2}));
  EXPECT_TRUE(config->listen.at(0).insecure);
  EXPECT_FALSE(config->tls.has_value());
}

TEST(FmConfigTest, ReadsAStoreOnEtcd) {
  const std::string file = absl::StrReplaceAll(
      kGood, {{"path = \"/var/lib/cxlpool/pool.db\"",
               "kind = \"etcd\"\nendpoints = [\"127.0.0.1:2379\"]\nadvertise = \"fm-a:7600\""}});
  const auto config = Parse(file);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->store, FmConfig::StoreKind::kEtcd);
  EXPECT_EQ(config->etcd.prefix, "/cxlpool/");
  EXPECT_EQ(config->etcd.takeover, absl::Milliseconds(1500));
  EXPECT_EQ(config->etcd.max_bytes, uint64_t{3} << 30);
  const std::vector<std::pair<std::pair<std::string, std::string>, std::string>> cases = {
      {{"127.0.0.1:2379", "etcd-a:2379"}, "store.endpoints: has etcd-a:2379, which needs TLS"},
      {{"127.0.0.1:2379", "127.0.0.1"}, "store.endpoints: is wrong: "},
      {{"[\"127.0.0.1:2379\"]", "[]"}, "store.endpoints: is missing"},
      {{"advertise", "prefix = \"pool\"\nadvertise"}, "store.prefix: is no prefix"},
      {{"advertise", "ca = \"/etc/ca.pem\"\nadvertise"}, "store.cert: is missing"},
      {{"advertise", "takeover = \"100ms\"\nadvertise"}, "store.takeover: "},
      {{"advertise", "max_bytes = \"500MiB\"\nadvertise"},
       "store.max_bytes: is out of range (write from \"1GiB\" to \"16GiB\")"},
      {{"advertise", "max_bytes = \"17GiB\"\nadvertise"}, "store.max_bytes: is out of range"},
      {{"advertise", "advertize"}, "store.advertise: is missing"},
      {{"etcd", "redis"}, "store.kind: is no store"},
  };
  for (const auto& [change, error] : cases) {
    std::string wrong = file;
    wrong.replace(wrong.find(change.first), change.first.size(), change.second);
    EXPECT_TRUE(absl::StrContains(Parse(wrong).status().message(), error))
        << change.second << ": " << Parse(wrong).status();
  }
}

TEST(FmConfigTest, SaysWhatIsWrongAndWhere) {
  const std::vector<std::pair<std::pair<std::string, std::string>, std::string>> cases = {
      {{"\"2GiB\"", "\"1.9GiB\""}, "fm.toml:15: device[0].capacity: is not a"},
      {{"\"2GiB\"", "\"300MiB\""}, "is not a multiple of the granule"},
      {{"[1, 2]", "[1, 1]"}, "host[0].slots"},
      {{"\"emulated\"", "\"cci\""}, "fabric.driver: is no fabric driver"},
      {{"host-a", "Host A"}, "host[0].id: is not well formed"},
      {{"insecure = true", "insecure = 1"}, "is not a boolean"},
      {{"[store]", "[shop]"}, "store.path: is missing"},
      {{"root =", "rood ="}, "fabric.root: is missing"},
      {{"slots =", "uid = 5\nodd = 1\nslots ="}, "host[0].odd: is not a key"},
      {{"slots =", "uid = 4294967296\nslots ="}, "host[0].uid: is no user id"},
      // Addresses.
      {{"unix:/run/cxlpool/fm.sock", "127.0.0.1"}, "fm.toml:3: listen[0].address: is wrong"},
      {{"unix:/run/cxlpool/fm.sock", "127.0.0.1:0"}, "1 to 65535"},
      {{"unix:/run/cxlpool/fm.sock", "127.0.0.1:99999"}, "1 to 65535"},
      {{"unix:/run/cxlpool/fm.sock", "0.0.0.0:7600"}, "listen[0].address: is wrong"},
      {{"unix:/run/cxlpool/fm.sock", "unix:fm.sock"}, "not absolute"},
      {{"insecure = true", ""}, "listen[0].address: needs TLS"},
      // Paths.
      {{"/var/lib/cxlpool/pool.db", "pool.db"}, "store.path: is no absolute path"},
      {{"/run/cxlpool/fabric", "fabric"}, "fabric.root: is no absolute path"},
      {{"[store]", "[tls]\nca = \"ca.pem\"\ncert = \"/c\"\nkey = \"/k\"\n[store]"},
       "tls.ca: is no absolute path"},
      {{"[store]", "[audit]\nmax_rows = 999\n[store]"},
       "audit.max_rows: is out of range (write from 1000 to 10000000)"},
      {{"[store]", "[audit]\nmax_bytes = \"5GiB\"\n[store]"}, "audit.max_bytes: is out of range"},
      // Durations.
      {{"[store]", "[sessions]\nheartbeat = \"1ns\"\n[store]"},
       "sessions.heartbeat: is out of range (write from \"50ms\" to \"1m\")"},
      {{"[store]", "[sessions]\nheartbeat = \"inf\"\n[store]"}, "sessions.heartbeat: is out of"},
      {{"[store]", "[sessions]\nlease = \"inf\"\n[store]"}, "sessions.lease: is out of range"},
      {{"[store]", "[sessions]\nlease = \"3s\"\n[store]"}, "sessions.lease: is shorter than two"},
      {{"[store]", "[reconciler]\nattach_timeout = \"1us\"\n[store]"},
       "reconciler.attach_timeout: is out of range"},
      {{"[store]", "[reconciler]\nattach_timeout = \"inf\"\n[store]"},
       "reconciler.attach_timeout: is out of range"},
      {{"[store]", "[reconciler]\ndiscover_period = \"1ns\"\n[store]"},
       "reconciler.discover_period: is out of range"},
      {{"[store]", "[reconciler]\ndiscover_period = \"100000h\"\n[store]"},
       "reconciler.discover_period: is out of range"},
  };
  for (const auto& [edit, expected] : cases) {
    const std::string text = absl::StrReplaceAll(kGood, {{edit.first, edit.second}});
    const absl::Status status = Parse(text).status();
    EXPECT_EQ(ReasonOf(status), "BAD_CONFIG") << edit.second;
    EXPECT_TRUE(absl::StrContains(status.message(), expected)) << status;
  }
}

constexpr char kRack[] = R"(
[[listen]]
address = "unix:/run/cxlpool/fm.sock"
insecure = true

[store]
kind = "memory"

[fabric]
driver = "emulated"
root = "/run/cxlpool/fabric"

[placement]
default = "spread"

[[switch]]
id = "sw0"
latency_ns = 70
bandwidth_mib = 24000
failure_domain = "shelf-1"

[[device]]
id = "cmm-0"
capacity = "2GiB"
latency_ns = 150
bandwidth_mib = 20000

[[device]]
id = "cmm-1"
capacity = "2GiB"
heads = 1
failure_domain = "shelf-2"

[[host]]
id = "host-a"
slots = [1, 2, 3]

[[host]]
id = "host-b"
slots = [1, 2]

[[link]]
from = "host-a"
to = "sw0"
latency_ns = 10
bandwidth_mib = 30000
slots = [1, 2]

[[link]]
from = "sw0"
to = "cmm-0"

[[link]]
from = "cmm-1"
to = "host-a"
slots = [3]
)";

TEST(FmConfigTest, ReadsTheTopology) {
  const auto config = Parse(kRack);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->default_policy, Policy::kSpread);
  const Topology topology = Topology::Create(SpecOf(config->tables)).value();
  EXPECT_FALSE(topology.connects_all());
  const Path* path = topology.Find("host-a", "cmm-0");
  ASSERT_NE(path, nullptr);
  EXPECT_EQ(*path, (Path{{"sw0"}, 230, 20000, {1, 2}}));
  path = topology.Find("host-a", "cmm-1");
  ASSERT_NE(path, nullptr);
  EXPECT_EQ(*path, (Path{{}, 0, 0, {3}}));
  EXPECT_EQ(topology.Find("host-b", "cmm-0"), nullptr);
  EXPECT_EQ(topology.DomainOf("cmm-1"), "shelf-2");
}

TEST(FmConfigTest, WithoutLinksEverybodyReachesEverything) {
  const auto config = Parse(kGood);
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(Topology::Create(SpecOf(config->tables))->connects_all());
  EXPECT_EQ(config->default_policy, Policy::kPack);
}

TEST(FmConfigTest, SaysWhatIsWrongWithTheTopologyAndWhere) {
  const std::vector<std::pair<std::pair<std::string, std::string>, std::string>> cases = {
      {{"\"spread\"", "\"widest\""},
       "fm.toml:14: placement.default: is no placement policy (write one of \"pack\", \"spread\", "
       "\"bandwidth\", \"latency\", \"isolate\")"},
      {{"default = ", "defualt = "}, "placement.defualt: is not a key"},
      {{"to = \"cmm-0\"", "to = \"cmm-7\""},
       "fm.toml:51: link[1].to: makes no topology: link sw0 - cmm-7 names \"cmm-7\""},
      {{"from = \"sw0\"", "from = \"cmm-1\""}, "fm.toml:51: link[1].to: makes no topology"},
      {{"from = \"cmm-1\"", "from = \"host-b\""}, "fm.toml:55: link[2].to: makes no topology"},
      {{"slots = [3]", "slots = [4]"}, "fm.toml:56: link[2].slots: holds 4"},
      {{"to = \"cmm-0\"", "to = \"cmm-0\"\nslots = [1]"}, "link[1].to: makes no topology"},
      {{"id = \"sw0\"", "id = \"host-b\""}, "\"host-b\" is there twice"},
      {{"id = \"sw0\"", "id = \"SW0\""}, "fm.toml:17: switch[0].id: is not well formed"},
      {{"shelf-1", "Shelf 1"}, "switch[0].failure_domain: is not well formed"},
      {{"latency_ns = 150", "latency_ns = \"150\""}, "device[0].latency_ns"},
      {{"latency_ns = 150", "latency_ns = 2000000000"}, "device[0].latency_ns: is too large"},
      {{"heads = 1", "heads = 1000"}, "device[1].heads: is too large"},
      {{"to = \"host-a\"\nslots = [3]",
        "to = \"host-a\"\n[[link]]\nfrom = \"cmm-1\"\nto = \"host-b\""},
       "link[3].to: makes no topology"},
      {{"latency_ns = 10", "latency = 10"}, "link[0].latency: is not a key"},
  };
  for (const auto& [edit, expected] : cases) {
    const std::string text = absl::StrReplaceAll(kRack, {{edit.first, edit.second}});
    ASSERT_NE(text, kRack) << edit.first;
    const absl::Status status = Parse(text).status();
    EXPECT_EQ(ReasonOf(status), "BAD_CONFIG") << edit.second;
    EXPECT_TRUE(absl::StrContains(status.message(), expected)) << status;
  }
}

TEST(FmConfigTest, AConfigurationIsATopologyFileToo) {
  const auto tables = ParseTopologyFile(kRack, "fm.toml");
  ASSERT_TRUE(tables.ok()) << tables.status();
  EXPECT_EQ(*tables, Parse(kRack)->tables);
  const std::string more = absl::StrCat("log_level = \"warning\"\n", kRack,
                                        "[access]\nadmins = [\"cxlpool://operator/alice\"]\n"
                                        "[metrics]\nlisten = \"127.0.0.1:9464\"\n"
                                        "[audit]\nmax_rows = 1000\n");
  const auto config = Parse(more);
  ASSERT_TRUE(config.ok()) << config.status();
  const auto of_more = ParseTopologyFile(more, "fm.toml");
  ASSERT_TRUE(of_more.ok()) << of_more.status();
  EXPECT_EQ(*of_more, config->tables);
  EXPECT_TRUE(absl::StrContains(
      ParseTopologyFile("[[devise]]\nid = \"a\"\n", "rack.toml").status().message(),
      "rack.toml:1: devise: is not a key"));
  // Whether this pool's fabric wants a path is the manager's to say.
  EXPECT_TRUE(ParseTopologyFile("[[device]]\nid = \"a\"\ncapacity = \"1GiB\"\npath = \"/a\"\n"
                                "[[host]]\nid = \"b\"\nqmp = \"/q\"\n",
                                "rack.toml")
                  .ok());
}

TEST(FmConfigTest, SharedDevicesNeedNeitherSlotsNorSockets) {
  const std::string tables =
      "[[device]]\nid = \"cmm-0\"\ncapacity = \"2GiB\"\npath = \"host-a/dax0.0\"\n"
      "[[host]]\nid = \"host-a\"\n";
  const auto parse = [&](const std::string& fabric, const std::string& rest) {
    return Parse(
        "[[listen]]\naddress = \"unix:/run/fm.sock\"\ninsecure = true\n[store]\nkind = "
        "\"memory\"\n[fabric]\ndriver = \"shared\"\n" +
        fabric + rest);
  };
  const auto config = parse("state = \"/var/lib/shared\"\ncoherent = true\n", tables);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->fabric.directories.at(0).path, "/var/lib/shared");
  EXPECT_EQ(config->tables.devices.at(0).path, "host-a/dax0.0");
  EXPECT_TRUE(CheckTables(config->tables, config->fabric.rules).ok());
  EXPECT_EQ(*ParseTopologyFile(tables, "rack.toml"), config->tables);

  EXPECT_TRUE(absl::StrContains(parse("", tables).status().message(), "fabric.state: is missing"));
  const std::string slots = tables + "slots = [1]\n";
  EXPECT_TRUE(absl::StrContains(parse("state = \"/s\"\n", slots).status().message(),
                                "host[0].slots: is not a key"));
  TopologyTables bad = config->tables;
  bad.hosts[0].slots = {1};
  EXPECT_EQ(ReasonOf(CheckTables(bad, config->fabric.rules)), "BAD_TOPOLOGY");
  for (const char* path : {"dax0.0", "/dev/dax0.0", "host-a/", "Host A/dax0.0"}) {
    bad = config->tables;
    bad.devices[0].path = path;
    EXPECT_EQ(ReasonOf(CheckTables(bad, config->fabric.rules)), "BAD_TOPOLOGY") << path;
  }
}

TEST(FmConfigTest, AnUnknownDriverIsRefusedAndTheKnownOnesAreNamed) {
  const absl::Status status =
      Parse(absl::StrReplaceAll(kGood, {{"\"emulated\"", "\"cci\""}})).status();
  EXPECT_EQ(ReasonOf(status), "BAD_CONFIG");
  EXPECT_TRUE(absl::StrContains(status.message(),
                                "fm.toml:10: fabric.driver: is no fabric driver (write one of "
                                "\"emulated\", \"qemu\", \"shared\")"))
      << status;
}

// Another driver is one more line in the table: its keys, and what it wants of devices and hosts,
// are read and judged by what it says itself.
TEST(FmConfigTest, ADriverReadsItsOwnTable) {
  std::string port;
  FenceProgram fence;
  const FabricReaders drivers = {
      {"cci", [&](TomlReader& fabric, const FenceProgram& given) {
         port = fabric.AbsolutePath("port");
         fence = given;
         FabricSettings settings;
         settings.rules = {.path = true, .check_device = [](const DeviceEntry& device) {
                             return device.path == "mld-1"
                                        ? std::nullopt
                                        : std::optional(BadKey{"path", "is no MLD", "name one"});
                           }};
         settings.directories = {{"port", port}};
         return settings;
       }}};
  const auto parse = [&](const std::string& from, const std::string& to) {
    const std::string good =
        "[[listen]]\naddress = \"unix:/run/fm.sock\"\ninsecure = true\n[store]\nkind = \"memory\"\n"
        "[fabric]\ndriver = \"cci\"\nport = \"/dev/cci0\"\n"
        "fence_program = \"/bin/cut\"\nfence_timeout = \"17s\"\n"
        "[[device]]\nid = \"cmm-0\"\ncapacity = \"1GiB\"\npath = \"mld-1\"\n"
        "[[host]]\nid = \"host-a\"\n";
    return ParseFmConfig(absl::StrReplaceAll(good, {{from, to}}), "fm.toml", drivers);
  };
  const auto config = parse("", "");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(port, "/dev/cci0");
  EXPECT_EQ(fence.path, "/bin/cut");
  EXPECT_EQ(fence.timeout, absl::Seconds(17));
  EXPECT_EQ(config->where.at("fabric.port"), "fm.toml:8: fabric.port");
  const std::vector<std::pair<std::pair<std::string, std::string>, std::string>> cases = {
      {{"\"cci\"", "\"emulated\""}, "is no fabric driver (write one of \"cci\")"},
      {{"port =", "root = \"/r\"\nport ="}, "fm.toml:8: fabric.root: is not a key"},
      {{"/dev/cci0", "cci0"}, "fm.toml:8: fabric.port: is no absolute path"},
      {{"fence_program = \"/bin/cut\"\n", ""},
       "fm.toml:9: fabric.fence_timeout: has nothing to limit (give fence_program, or remove it)"},
      {{"mld-1", "mld-9"}, "fm.toml:14: device[0].path: is no MLD (name one)"},
      {{"\"host-a\"", "\"host-a\"\nslots = [1]"}, "fm.toml:17: host[0].slots: is not a key"},
  };
  for (const auto& [edit, expected] : cases) {
    const absl::Status status = parse(edit.first, edit.second).status();
    EXPECT_TRUE(absl::StrContains(status.message(), expected)) << status;
  }
}

TEST(FmConfigTest, AMissingFileIsNamed) {
  EXPECT_EQ(ReasonOf(LoadFmConfig("/nowhere/fm.toml", FabricDrivers()).status()), "NO_CONFIG");
}

}  // namespace
}  // namespace cxlpool::fm
