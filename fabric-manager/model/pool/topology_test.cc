#include "fabric-manager/model/pool/topology.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

using Slots = std::vector<uint32_t>;
using Via = std::vector<std::string>;

TopologySpec::Link Link(const std::string& a, const std::string& b, uint32_t latency_ns = 0,
                        uint32_t bandwidth = 0, Slots slots = {}) {
  return {a, b, latency_ns, bandwidth, std::move(slots)};
}

// Two hosts and two devices at one switch.
TopologySpec BigSwitch() {
  TopologySpec spec;
  spec.hosts = {"host-a", "host-b"};
  spec.switches = {{"sw0", 70, 0, ""}};
  spec.devices = {{"cmm-0", 150, 25000, 0, ""}, {"cmm-1", 180, 30000, 0, "psu-1"}};
  spec.links = {Link("host-a", "sw0", 10, 28000, {16, 17}), Link("host-b", "sw0"),
                Link("sw0", "cmm-0", 5), Link("cmm-1", "sw0", 5)};
  return spec;
}

std::string Refusal(const TopologySpec& spec) {
  const auto topology = Topology::Create(spec);
  EXPECT_EQ(ReasonOf(topology.status()), "BAD_TOPOLOGY");
  return std::string(topology.status().message());
}

TEST(TopologyTest, WithoutLinksEverybodyReachesEverything) {
  const Topology none;
  EXPECT_TRUE(none.connects_all());
  EXPECT_EQ(*none.Find("host-a", "cmm-0"), Path());
  EXPECT_TRUE(none.paths().begin() == none.paths().end());
  EXPECT_EQ(none.DomainOf("cmm-0"), "cmm-0");

  TopologySpec spec = BigSwitch();
  spec.links.clear();
  const Topology topology = Topology::Create(spec).value();
  EXPECT_TRUE(topology.connects_all());
  EXPECT_EQ(topology.Find("anybody", "cmm-0")->latency_ns, 150u);  // The device's own.
  EXPECT_EQ(*topology.Find("host-a", "unknown"), Path());
  EXPECT_EQ(topology.DomainOf("cmm-1"), "psu-1");
}

TEST(TopologyTest, OneBigSwitch) {
  const Topology topology = Topology::Create(BigSwitch()).value();
  EXPECT_FALSE(topology.connects_all());
  EXPECT_EQ(*topology.Find("host-a", "cmm-0"), (Path{{"sw0"}, 235, 25000, {16, 17}}));
  EXPECT_EQ(*topology.Find("host-a", "cmm-1"), (Path{{"sw0"}, 265, 28000, {16, 17}}));
  EXPECT_EQ(*topology.Find("host-b", "cmm-1"), (Path{{"sw0"}, 255, 30000, {}}));
  EXPECT_EQ(topology.Find("host-c", "cmm-0"), nullptr);
  EXPECT_EQ(topology.Find("host-a", "cmm-9"), nullptr);
  std::string ways;
  for (const auto& [ends, path] : topology.paths()) {
    absl::StrAppend(&ways, ends.first, ">", ends.second, "=", path.latency_ns, " ");
  }
  EXPECT_EQ(ways, "host-a>cmm-0=235 host-a>cmm-1=265 host-b>cmm-0=225 host-b>cmm-1=255 ");
}

TEST(TopologyTest, ASparsePodHasNoSwitch) {
  TopologySpec spec;
  spec.hosts = {"host-a", "host-b", "host-c"};
  spec.devices = {{"cmm-0", 120, 0, 2, ""}, {"cmm-1", 120, 0, 2, ""}, {"cmm-2", 120, 0, 2, ""}};
  spec.links = {Link("host-a", "cmm-0", 0, 0, {3}), Link("host-b", "cmm-0", 0, 0, {3}),
                Link("host-b", "cmm-1", 0, 0, {4}), Link("host-c", "cmm-1", 0, 0, {3}),
                Link("host-c", "cmm-2", 0, 0, {4}), Link("host-a", "cmm-2", 0, 0, {4})};
  const Topology topology = Topology::Create(spec).value();
  EXPECT_EQ(*topology.Find("host-a", "cmm-0"), (Path{{}, 120, 0, {3}}));
  EXPECT_EQ(topology.Find("host-a", "cmm-1"), nullptr);  // Hosts and devices pass nothing on.
  EXPECT_EQ(topology.Find("host-a", "cmm-2")->slots, (Slots{4}));
  spec.links.push_back(Link("host-c", "cmm-0"));
  EXPECT_EQ(Refusal(spec),
            "topology: device \"cmm-0\" has 3 links and 2 heads (take links away, or fix "
            "`heads`)");
}

TEST(TopologyTest, SlotsAreThoseOfEveryLinkThatLeadsThere) {
  TopologySpec spec;
  spec.hosts = {"host-a"};
  spec.switches = {{"left", 0, 0, ""}, {"right", 0, 0, ""}, {"behind", 0, 0, ""}};
  spec.devices = {{"cmm-0", 0, 0, 0, ""}, {"cmm-1", 0, 0, 0, ""}, {"cmm-2", 0, 0, 0, ""}};
  spec.links = {Link("host-a", "left", 0, 0, {7, 5}),
                Link("host-a", "left", 0, 0, {5, 6}),
                Link("host-a", "right", 0, 0, {9}),
                Link("left", "cmm-0"),
                Link("left", "behind"),
                Link("behind", "cmm-1"),
                Link("right", "cmm-1"),
                Link("right", "cmm-2"),
                Link("host-a", "cmm-2")};
  const Topology topology = Topology::Create(spec).value();
  EXPECT_EQ(topology.Find("host-a", "cmm-0")->slots, (Slots{5, 6, 7}));
  EXPECT_EQ(topology.Find("host-a", "cmm-1")->slots, (Slots{5, 6, 7, 9}));
  EXPECT_EQ(topology.Find("host-a", "cmm-2")->slots, (Slots{}));  // Anywhere, by its own link.
}

// From the host over `via` of two or three switches to one device.
class TwoWaysTest : public testing::Test {
 protected:
  TwoWaysTest() {
    spec_.hosts = {"host-a"};
    spec_.devices = {{"cmm-0", 100, 0, 0, ""}};
    for (const char* id : {"a", "b", "c"}) spec_.switches.push_back({id, 0, 0, ""});
  }
  Path Find() { return *Topology::Create(spec_).value().Find("host-a", "cmm-0"); }
  TopologySpec spec_;
};

TEST_F(TwoWaysTest, LeastLatencyFirst) {
  spec_.links = {Link("host-a", "a", 50), Link("a", "cmm-0", 50), Link("host-a", "b", 30),
                 Link("b", "c", 30), Link("c", "cmm-0", 30)};
  EXPECT_EQ(Find(), (Path{{"b", "c"}, 190, 0, {}}));
  spec_.switches[2].latency_ns = 20;
  EXPECT_EQ(Find(), (Path{{"a"}, 200, 0, {}}));
}

TEST_F(TwoWaysTest, ThenFewestSwitchesThenTheWidestThenNames) {
  spec_.links = {Link("host-a", "b", 10), Link("b", "cmm-0", 10), Link("host-a", "a", 5),
                 Link("a", "c", 5), Link("c", "cmm-0", 10)};
  EXPECT_EQ(Find().via, (Via{"b"}));
  spec_.links = {Link("host-a", "a", 10, 100), Link("a", "cmm-0", 10), Link("host-a", "b", 10, 200),
                 Link("b", "cmm-0", 10)};
  EXPECT_EQ(Find(), (Path{{"b"}, 120, 200, {}}));
  spec_.links.push_back(Link("a", "cmm-0", 10, 300));
  spec_.links[0].bandwidth_mib_per_second = 200;
  EXPECT_EQ(Find(), (Path{{"a"}, 120, 200, {}}));
}

TEST_F(TwoWaysTest, AWiderWayThatNarrowsAgainLosesToTheLowerName) {
  // Both ways meet in c; behind it both are 50 wide.
  spec_.links = {Link("host-a", "a", 1, 100), Link("host-a", "b", 1, 200), Link("a", "c", 1),
                 Link("b", "c", 1), Link("c", "cmm-0", 1, 50)};
  EXPECT_EQ(Find(), (Path{{"a", "c"}, 103, 50, {}}));
  spec_.links[4].bandwidth_mib_per_second = 150;
  EXPECT_EQ(Find(), (Path{{"b", "c"}, 103, 150, {}}));
}

TEST_F(TwoWaysTest, RingsOfSwitchesEnd) {
  spec_.links = {Link("host-a", "a"), Link("a", "b"), Link("b", "c"), Link("c", "a"),
                 Link("b", "cmm-0")};
  EXPECT_EQ(Find().via, (Via{"a", "b"}));
}

TEST_F(TwoWaysTest, FiguresThatAreTooLargeStayLarge) {
  spec_.links = {Link("host-a", "a", UINT32_MAX), Link("a", "cmm-0", UINT32_MAX)};
  EXPECT_EQ(Find().latency_ns, UINT32_MAX);
}

TEST(TopologyDomainTest, TheNearestSwitchThatEverythingHangsOn) {
  TopologySpec spec;
  spec.hosts = {"host-a", "host-b"};
  spec.switches = {
      {"spine", 0, 0, "row-1"}, {"leaf-a", 0, 0, "rack-a"}, {"leaf-b", 0, 0, "rack-b"}};
  for (const char* id : {"a0", "a1", "both", "own", "direct", "lost"}) {
    spec.devices.push_back({id, 0, 0, 0, ""});
  }
  spec.devices[3].failure_domain = "psu-3";
  spec.links = {Link("host-a", "spine"),  Link("host-b", "spine"), Link("spine", "leaf-a"),
                Link("spine", "leaf-b"),  Link("leaf-a", "a0"),    Link("leaf-a", "a1"),
                Link("leaf-a", "both"),   Link("leaf-b", "both"),  Link("leaf-b", "own"),
                Link("leaf-b", "direct"), Link("host-a", "direct")};
  const Topology topology = Topology::Create(spec).value();
  EXPECT_EQ(topology.DomainOf("a0"), "rack-a");
  EXPECT_EQ(topology.DomainOf("a1"), "rack-a");
  EXPECT_EQ(topology.DomainOf("both"), "row-1");
  EXPECT_EQ(topology.DomainOf("own"), "psu-3");
  EXPECT_EQ(topology.DomainOf("direct"), "direct");
  EXPECT_EQ(topology.DomainOf("lost"), "lost");
}

TEST(BadTopologyTest, NamesWhatIsWrong) {
  TopologySpec spec = BigSwitch();
  spec.hosts.push_back("");
  EXPECT_EQ(Refusal(spec), "topology: a node has no id (name every host, switch and device)");
  spec = BigSwitch();
  spec.switches.push_back({"cmm-1", 0, 0, ""});
  EXPECT_EQ(Refusal(spec),
            "topology: \"cmm-1\" is there twice (give every host, switch and device an id of its "
            "own)");
  const auto with = [](const TopologySpec::Link& link) {
    TopologySpec bad = BigSwitch();
    bad.links.push_back(link);
    return Refusal(bad);
  };
  EXPECT_EQ(with(Link("host-a", "sw9")),
            "topology: link host-a - sw9 names \"sw9\", which is no host, switch or device (fix "
            "the name, or add the node)");
  EXPECT_EQ(with(Link("host-a", "host-b")),
            "topology: link host-a - host-b is between two hosts (link each of them to a switch, "
            "or a host to a device)");
  EXPECT_EQ(with(Link("cmm-0", "cmm-1")),
            "topology: link cmm-0 - cmm-1 is between two devices (link each of them to a switch, "
            "or a host to a device)");
  EXPECT_EQ(with(Link("sw0", "sw0")),
            "topology: link sw0 - sw0 ends where it begins (name two nodes)");
  EXPECT_EQ(with(Link("sw0", "cmm-0", 0, 0, {16})),
            "topology: link sw0 - cmm-0 has slots, but no host (give slots only to links of "
            "hosts)");
}

TEST(BadTopologyTest, LimitsAreKept) {
  const auto fill = [](size_t devices, size_t hosts, size_t switches, size_t links) {
    TopologySpec spec;
    for (size_t i = 0; i < devices; ++i) spec.devices.push_back({absl::StrCat("d", i)});
    for (size_t i = 0; i < hosts; ++i) spec.hosts.push_back(absl::StrCat("h", i));
    for (size_t i = 0; i < switches; ++i) spec.switches.push_back({absl::StrCat("s", i)});
    for (size_t i = 0; i < links; ++i) {
      spec.links.push_back(i % 2 == 0 ? Link("s0", absl::StrCat("d", i / 2 % devices))
                                      : Link("s0", absl::StrCat("h", i / 2 % hosts)));
    }
    return spec;
  };
  EXPECT_TRUE(Topology::Create(fill(4096, 1024, 256, 10240)).ok());
  EXPECT_EQ(Refusal(fill(4097, 1, 1, 0)),
            "topology: 4097 devices; at most 4096 (split the pool in two)");
  EXPECT_NE(Refusal(fill(1, 1025, 1, 0)).find("1025 hosts"), std::string::npos);
  EXPECT_NE(Refusal(fill(1, 1, 257, 0)).find("257 switches"), std::string::npos);
  EXPECT_NE(Refusal(fill(1, 1, 1, 65537)).find("65537 links"), std::string::npos);
}

}  // namespace
}  // namespace cxlpool::fm
