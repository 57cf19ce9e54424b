#include "host-agent/adapters/linux/machine/examine_host.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {
namespace {

constexpr char kUnit[] = "sys/devices/system/memory/auto_online_blocks";

class ExamineHostTest : public testing::Test {
 protected:
  ExamineHostTest() {
    for (const char* folder :
         {"sys/bus/cxl/drivers/cxl_port", "sys/bus/cxl/drivers/cxl_mem",
          "sys/bus/cxl/drivers/cxl_region", "sys/bus/cxl/drivers/cxl_dax_region",
          "sys/bus/pci/drivers/cxl_pci", "sys/bus/pci/slots/10", "sys/bus/pci/slots/11",
          "sys/bus/pci_express/drivers/pciehp", "sys/bus/dax/drivers/device_dax",
          "sys/bus/dax/drivers/kmem", "sys/kernel/tracing/instances",
          "sys/kernel/tracing/events/cxl"}) {
      host_.Folder(folder);
    }
    host_.Put("proc/sys/kernel/osrelease", "6.12.95+deb12-amd64\n");
    host_.Put("proc/cmdline", "console=ttyS0 quiet\n");
    host_.Put("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme de pse\n");
    host_.Put("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 6291456 kB\n");
    host_.Put("sys/devices/system/node/has_normal_memory", "0\n");
    host_.Put("sys/devices/system/node/node0/meminfo",
              "Node 0 MemTotal: 8388608 kB\nNode 0 MemFree: 6291456 kB\n"
              "Node 0 FilePages: 0 kB\nNode 0 Shmem: 0 kB\nNode 0 Active(file): 0 kB\n"
              "Node 0 Inactive(file): 0 kB\n");
    Rights("0", "000001ffffffffff");
    host_.Put("sys/bus/dax/drivers_autoprobe", "0\n");
    host_.Put(kUnit, "offline\n");
    const std::string root = "sys/bus/cxl/devices/root0/";
    host_.Put(root + "decoder0.0/create_ram_region", "region1\n");
    host_.Put(root + "decoder0.0/size", "0x200000000\n");
    host_.Put(root + "decoder0.0/region0/size", "0x40000000\n");
    host_.Put(root + "decoder0.1/size", "0x200000000\n");  // Persistent.
    for (const char* port : {"port1", "port2"}) {
      for (const char* decoder : {"decoder1.0", "decoder1.1", "decoder1.2", "decoder1.3"}) {
        host_.Folder(root + port + "/" + decoder);
      }
      host_.Put(root + port + "/decoders_committed", "0\n");
    }
  }

  void Rights(const std::string& uid, const std::string& capabilities) {
    host_.Put("proc/self/status", "Name:\tcheck\nUid:\t" + uid + "\t" + uid +
                                      "\t0\t0\nCapPrm:\t0\nCapEff:\t" + capabilities + "\n");
  }
  void Remove(const std::string& path) { std::filesystem::remove_all(host_.Path(path)); }

  Finding Of(const std::string& id) {
    const std::vector<Finding> all = ExamineHost(host_.files());
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Finding& f) { return f.id == id; });
    if (found != all.end()) return *found;
    ADD_FAILURE() << "no finding " << id;
    return {};
  }

  // What is not in order, as "id verdict".
  std::string Complaints() {
    std::string text;
    for (const Finding& finding : ExamineHost(host_.files())) {
      EXPECT_FALSE(finding.what.empty()) << finding.id;
      EXPECT_EQ(finding.remedy.empty(), finding.verdict == Verdict::kOk) << finding.id;
      if (finding.verdict == Verdict::kOk) continue;
      text += finding.id + (finding.verdict == Verdict::kMissing ? " missing;" : " warning;");
    }
    return text;
  }

  FakeHost host_;
};

TEST_F(ExamineHostTest, GoodHostHasNoComplaint) {
  EXPECT_EQ(Complaints(), "");
  EXPECT_EQ(Of("window_space").what, "7.0 GiB of 8.0 GiB of window space is free");
  EXPECT_EQ(Of("decoders").what, "host bridges, by their decoders: 2 with 4");
  EXPECT_EQ(Of("hotplug_slots").what, "PCIe hot-plug slots: 2");
}

TEST_F(ExamineHostTest, KernelThatCannotTellOfPoison) {
  Remove("sys/kernel/tracing/events/cxl");
  EXPECT_EQ(Complaints(), "trace_events warning;");
  Remove("sys/kernel/tracing");
  EXPECT_EQ(Complaints(), "trace_events warning;");
}

TEST_F(ExamineHostTest, EachNeedThatIsMissingIsNamedAlone) {
  const std::pair<const char*, const char*> needs[] = {
      {"sys/bus/pci/drivers/cxl_pci", "cxl_pci missing;"},
      {"sys/bus/cxl/drivers/cxl_port", "cxl_port missing;"},
      {"sys/bus/cxl/drivers/cxl_mem", "cxl_mem missing;"},
      {"sys/bus/cxl/drivers/cxl_region", "cxl_region missing;"},
      {"sys/bus/cxl/drivers/cxl_dax_region", "dax_cxl missing;"},
      {"sys/bus/dax/drivers/device_dax", "device_dax missing;"},
      {"sys/bus/dax/drivers/kmem", "kmem missing;"},
      {"sys/bus/dax/drivers_autoprobe", "dax_bus missing;"},
      {kUnit, "memory_hotplug missing;"},
      {"sys/bus/cxl/devices/root0", "cxl_acpi missing;"},
      {"sys/bus/pci/slots", "hotplug_slots missing;"},
  };
  for (const auto& [path, complaint] : needs) {
    SCOPED_TRACE(path);
    const std::string aside = host_.Path("aside");
    std::filesystem::rename(host_.Path(path), aside);
    EXPECT_EQ(Complaints(), complaint);
    std::filesystem::rename(aside, host_.Path(path));
  }
  EXPECT_EQ(Complaints(), "");
}

TEST_F(ExamineHostTest, MachineWithoutAnythingGetsAnAnswerToo) {
  const FakeHost empty;
  const std::vector<Finding> all = ExamineHost(empty.files());
  EXPECT_GT(std::count_if(all.begin(), all.end(),
                          [](const Finding& f) { return f.verdict == Verdict::kMissing; }),
            10);
}

TEST_F(ExamineHostTest, KernelBeforeDaxForCxlIsMissingAndAnUntestedOneAWarning) {
  for (const auto& [release, complaint] : {std::pair{"6.1.0-18-amd64", "kernel missing;"},
                                           {"5.15", "kernel missing;"},
                                           {"6.3.0", "kernel warning;"},
                                           {"6.11-rc1", "kernel warning;"},
                                           {"6.12-rc1", ""},
                                           {"7.2.12", ""},
                                           {"10.0.1", ""},
                                           {"garbage", "kernel warning;"},
                                           {"", "kernel warning;"}}) {
    host_.Put("proc/sys/kernel/osrelease", release);
    EXPECT_EQ(Complaints(), complaint) << release;
  }
}

TEST_F(ExamineHostTest, RightsThatAreMissingAreNamed) {
  Rights("1000", "0000000000000000");
  EXPECT_EQ(Complaints(), "permissions missing;");
  Rights("0", "0000000000200004");
  EXPECT_EQ(Complaints(), "permissions missing;");
  EXPECT_EQ(Of("permissions").what, "root without CAP_SYS_PTRACE");
  Rights("0", "0000000000280004");
  EXPECT_EQ(Complaints(), "");
}

TEST_F(ExamineHostTest, WindowThatTakesNoVolatileRegionIsMissing) {
  Remove("sys/bus/cxl/devices/root0/decoder0.0/create_ram_region");
  EXPECT_EQ(Complaints(), "volatile_window missing;window_space warning;");
}

TEST_F(ExamineHostTest, FullWindowIsAWarning) {
  host_.Put("sys/bus/cxl/devices/root0/decoder0.0/region0/size", "0x200000000\n");
  EXPECT_EQ(Complaints(), "window_space warning;");
}

TEST_F(ExamineHostTest, DecodersThatTheKernelDoesNotKnowYetAreNoFault) {
  for (const char* decoder : {"decoder1.0", "decoder1.1", "decoder1.2", "decoder1.3"}) {
    Remove(std::string("sys/bus/cxl/devices/root0/port2/") + decoder);
  }
  EXPECT_EQ(Complaints(), "");
  EXPECT_EQ(
      Of("decoders").what,
      "host bridges, by their decoders: 1 not known before its first memory device, 1 with 4");
  Remove("sys/bus/cxl/devices/root0/port1");
  Remove("sys/bus/cxl/devices/root0/port2");
  EXPECT_EQ(Complaints(), "decoders warning;");
}

TEST_F(ExamineHostTest, SlotsOfAnotherDriverAreAWarning) {
  Remove("sys/bus/pci_express/drivers/pciehp");
  EXPECT_EQ(Complaints(), "pciehp warning;");
}

TEST_F(ExamineHostTest, WhatOnlinesMemoryByItselfIsAWarning) {
  host_.Put("sys/bus/dax/drivers_autoprobe", "1\n");
  EXPECT_EQ(Complaints(), "dax_autoprobe warning;");
  host_.Put("sys/bus/dax/drivers_autoprobe", "0\n");
  for (const auto& [value, complaint] : {std::pair{"online", "auto_online warning;"},
                                         {"online_kernel", "auto_online warning;"},
                                         {"online_movable", ""},
                                         {"offline", ""}}) {
    host_.Put(kUnit, value);
    EXPECT_EQ(Complaints(), complaint) << value;
  }
  host_.Put(kUnit, "online");
  host_.Put("proc/cmdline", "quiet memhp_default_state=online_kernel\n");
  EXPECT_NE(Of("auto_online").remedy.find("take memhp_default_state=online_kernel out"),
            std::string::npos);
}

TEST_F(ExamineHostTest, UdevRuleThatOnlinesMemoryIsNamedUnlessItIsMasked) {
  host_.Put("usr/lib/udev/rules.d/40-hotadd.rules",
            "# SUBSYSTEM==\"memory\", ATTR{state}=\"online\"\n"
            "SUBSYSTEM==\"memory\", ACTION==\"add\", \\\n  ATTR{state}==\"offline\", "
            "ATTR{state}=\"online\"\n");
  EXPECT_EQ(Complaints(), "udev_rules warning;");
  EXPECT_NE(Of("udev_rules").what.find("/usr/lib/udev/rules.d/40-hotadd.rules"), std::string::npos);
  host_.Put("etc/udev/rules.d/40-hotadd.rules", "");
  EXPECT_EQ(Complaints(), "");
  host_.Put("etc/udev/rules.d/50-other.rules", "SUBSYSTEM==\"memory\", TAG+=\"systemd\"\n");
  EXPECT_EQ(Complaints(), "");
}

TEST_F(ExamineHostTest, DaxctlThatReconfiguresIsAWarning) {
  host_.Put("etc/daxctl.conf.d/example.conf", "# [reconfigure-device one]\n# mode = devdax\n");
  EXPECT_EQ(Complaints(), "");
  host_.Put("etc/daxctl.conf.d/mine.conf", "[reconfigure-device one]\nmode = system-ram\n");
  EXPECT_EQ(Complaints(), "daxctl_conf warning;");
}

TEST_F(ExamineHostTest, WhatTheMachineForbidsIsAWarning) {
  host_.Put("sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
  EXPECT_EQ(Complaints(), "");
  host_.Put("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
  host_.Put("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor vme\n");
  EXPECT_EQ(Complaints(), "lockdown warning;processor warning;");
}

TEST_F(ExamineHostTest, HostWithoutMemoryForPageStructsIsWarned) {
  host_.Put("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 1024 kB\n");
  EXPECT_EQ(Complaints(), "page_structs warning;");
}

TEST_F(ExamineHostTest, AHostOfWholeDevicesIsAskedForNoSlots) {
  Remove("sys/bus/pci/slots");
  const std::vector<Finding> all = ExamineHost(host_.files(), HostUse::kWhole);
  for (const Finding& finding : all) {
    EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.id << ": " << finding.what;
    EXPECT_NE(finding.id, "hotplug_slots");
  }
  EXPECT_GT(all.size(), 10);
}

}  // namespace
}  // namespace cxlpool::agent
