#include "host-agent/adapters/linux/machine/kernel_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cxlpool::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(KernelTextTest, NumbersInBothNotations) {
  EXPECT_EQ(ParseKernelNumber("268435456\n"), 268435456u);
  EXPECT_EQ(ParseKernelNumber("0x12d0000000"), 0x12d0000000u);
  EXPECT_EQ(ParseHex("8000000\n"), 0x8000000u);
  EXPECT_EQ(ParseKernelNumber("0xffffffffffffffff"), UINT64_MAX);
}

TEST(KernelTextTest, RefusesWhatIsNoNumber) {
  for (const char* text :
       {"", " ", "0x", "-1", "+1", "12x", "1 2", "0x1ffffffffffffffff", "none"}) {
    EXPECT_EQ(ParseKernelNumber(text), std::nullopt) << text;
  }
}

TEST(KernelTextTest, Lists) {
  EXPECT_THAT(ParseNumberList("0-2,5\n"), ElementsAre(0, 1, 2, 5));
  EXPECT_THAT(ParseNumberList("0"), ElementsAre(0));
  for (const char* text : {"", "\n", "2-1", "0-", "-3", "a", "1-2-3", "0-99999999"}) {
    EXPECT_THAT(ParseNumberList(text), IsEmpty()) << text;
  }
}

TEST(KernelTextTest, MeminfoOfHostAndOfNode) {
  EXPECT_EQ(MeminfoBytes("MemTotal:  923704 kB\nMemFree:   851832 kB\n", "MemFree"),
            851832u * 1024);
  EXPECT_EQ(MeminfoBytes("Node 1 MemUsed:  72 kB\nNode 1 Active(file):  8 kB", "Active(file)"),
            8u * 1024);
  EXPECT_EQ(MeminfoBytes("HugePages_Total:     0\n", "HugePages_Total"), std::nullopt);
  EXPECT_EQ(MeminfoBytes("MemFree: 99999999999999999999 kB", "MemFree"), std::nullopt);
  EXPECT_EQ(MeminfoBytes("", "MemFree"), std::nullopt);
}

TEST(KernelTextTest, SlotNumbers) {
  EXPECT_EQ(ParseSlotNumber("10"), 10u);
  EXPECT_EQ(ParseSlotNumber("10-1"), std::nullopt);
  EXPECT_EQ(ParseSlotNumber("4294967296"), std::nullopt);
  EXPECT_EQ(ParseSlotNumber(""), std::nullopt);
}

TEST(KernelTextTest, PciPaths) {
  const char* path =
      "sys/devices/pci0000:0c/0000:0c:00.0/0000:0d:00.0/0000:0e:01.0/pci_bus/0000:10";
  EXPECT_EQ(PciHostBridgeOf(path), "pci0000:0c");
  EXPECT_THAT(PciFunctionsOf(path), ElementsAre("0000:0c:00.0", "0000:0d:00.0", "0000:0e:01.0"));
  EXPECT_EQ(PciHostBridgeOf("sys/devices/platform/ACPI0017:00"), "");
}

TEST(KernelTextTest, MapsByInodeOrByName) {
  const char* maps =
      "7f00-7f20 rw-s 00000000 00:06 131                        /dev/dax0.0\n"
      "7f30-7f40 r--p 00000000 00:00 0 \n";
  EXPECT_TRUE(MapsShow(maps, {"dax0.0", 1, 1, 1}));
  EXPECT_TRUE(MapsShow(maps, {"other", 0, 6, 131}));
  EXPECT_FALSE(MapsShow(maps, {"dax0", 0, 6, 130}));
  EXPECT_FALSE(MapsShow(maps, {"ax0.0", 0, 0, 0}));
  EXPECT_FALSE(MapsShow("", {"dax0.0", 0, 6, 131}));
  EXPECT_TRUE(MapsShow("1-2 rw-s 0 00:06 131   /old/dev/dax0.0 (deleted)", {"dax0.0", 1, 1, 1}));
}

TEST(KernelTextTest, NamesOfCxlDevices) {
  EXPECT_TRUE(IsNumbered("port12", "port"));
  for (const char* name : {"ports", "portal1", "port", "endpoint1"}) {
    EXPECT_FALSE(IsNumbered(name, "port")) << name;
  }
  const auto decoder = ParseDecoder("decoder12.3");
  ASSERT_TRUE(decoder.has_value());
  EXPECT_EQ(decoder->port, "12");
  EXPECT_EQ(decoder->id, 3);
  for (const char* name : {"decoder", "decoder1", "decoder1.", "decoder.1", "decoders1.2", ""}) {
    EXPECT_FALSE(ParseDecoder(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace cxlpool::agent
