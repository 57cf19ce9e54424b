// A FakeHost with CXL devices, as the kernel's sysfs shows them.
#ifndef CXLPOOL_TEST_RIGS_FAKE_CXL_FOR_TEST_H_
#define CXLPOOL_TEST_RIGS_FAKE_CXL_FOR_TEST_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {

// Two host bridges, of which the one on pci0000:0c has a switch and a memdev with a region and a
// DAX device.
struct FakeCxl : FakeHost {
  static inline const std::string kRoot = "sys/devices/platform/ACPI0017:00/root0";
  static inline const std::string kPort = kRoot + "/port2";
  static inline const std::string kEndpoint = kPort + "/port3/endpoint4";
  static inline const std::string kRegion = kRoot + "/decoder0.0/region0";
  static inline const std::string kMemdev = "sys/devices/pci0000:0c/0000:0c:00.0/0000:0f:00.0/mem0";

  FakeCxl() {
    for (const std::string& path :
         {kRoot, kRoot + "/decoder0.0", kRoot + "/decoder0.1", kRoot + "/port1", kPort,
          kPort + "/port3", kEndpoint, kRegion, kRegion + "/dax_region0", kMemdev}) {
      OnBus("cxl", path);
    }
    Link(kRoot + "/dport12", "sys/devices/pci0000:0c");
    Link(kRoot + "/dport17", "sys/devices/pci0000:11");
    Link("sys/devices/pci0000:0c/firmware_node", "sys/devices/LNXSYSTM:00/ACPI0016:01");
    Link("sys/devices/pci0000:11/firmware_node", "sys/devices/LNXSYSTM:00/ACPI0016:00");
    Link(kRoot + "/port1/uport", "sys/devices/pci0000:11");
    Link(kPort + "/uport", "sys/devices/pci0000:0c");
    Link(kPort + "/port3/uport", "sys/devices/pci0000:0c/0000:0c:00.0/0000:0d:00.0");
    Link(kEndpoint + "/uport", kMemdev);
    Stack(kRoot + "/port1", 1, {"", ""}, 0);
    Stack(kPort, 2, {"region0", ""}, 1);
    Stack(kPort + "/port3", 3, {"region0", ""}, 1);
    Window(0, "12", 0x110000000);
    Window(1, "12,17", 0x310000000);
    Put(kRegion + "/resource", "0x110000000\n");
    Put(kRegion + "/size", "0x10000000\n");
    Put(kRegion + "/commit", "1\n");
    Put(kRegion + "/interleave_granularity", "256\n");
    Put(kRegion + "/interleave_ways", "1\n");
    Put(kRegion + "/target0", "decoder4.0\n");
    Link(kRegion + "/driver", "sys/bus/cxl/drivers/cxl_region");
    Put(kMemdev + "/serial", "0x1001\n");
    Put(kMemdev + "/ram/size", "0x20000000\n");
    Link(kMemdev + "/driver", "sys/bus/cxl/drivers/cxl_mem");
    Link(kEndpoint + "/driver", "sys/bus/cxl/drivers/cxl_port");
    Dax("dax0.0", kRegion + "/dax_region0/dax0.0");
    Dax("dax9.0", "sys/devices/platform/hmem.0/dax9.0");
  }

  void OnBus(const std::string& bus, const std::string& path) const {
    Folder(path);
    Link(absl::StrCat("sys/bus/", bus, "/devices", path.substr(path.rfind('/'))), path);
  }

  void Stack(const std::string& port, int number, const std::vector<std::string>& regions,
             int committed) const {
    Put(port + "/decoders_committed", absl::StrCat(committed, "\n"));
    for (size_t id = 0; id < regions.size(); ++id) {
      const std::string path = absl::StrCat(port, "/decoder", number, ".", id);
      OnBus("cxl", path);
      Put(path + "/region", regions[id] + "\n");
      Put(path + "/start", "0x110000000\n");  // Also in one that is free.
    }
  }

  void Window(int id, const std::string& targets, uint64_t hpa) const {
    const std::string path = absl::StrCat(kRoot, "/decoder0.", id);
    Put(path + "/start", absl::StrCat("0x", absl::Hex(hpa), "\n"));
    Put(path + "/size", "0x200000000\n");
    Put(path + "/interleave_granularity", "256\n");
    Put(path + "/cap_ram", "1\n");
    Put(path + "/target_list", targets + "\n");
  }

  void Dax(const std::string& name, const std::string& path) const {
    OnBus("dax", path);
    Put(path + "/resource", "0x110000000\n");
    Put(path + "/size", "268435456\n");
    Put(path + "/align", "2097152\n");
    Put(path + "/target_node", "1\n");
    Put(path + "/dev", absl::StrCat("252:", name.substr(3, 1), "\n"));
  }
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_TEST_RIGS_FAKE_CXL_FOR_TEST_H_
