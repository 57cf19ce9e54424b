// The lines were recorded in guests of Linux 6.12.95 and 7.2.12, on QEMU 11.1 with errors injected
// over QMP.
#include "host-agent/adapters/linux/events/trace_event.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/strings/str_cat.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kSerial = 0x0c00000000000051;

constexpr char kPoison612[] =
    "              sh-363     [000] .....     6.446774: cxl_poison: memdev=mem0 "
    "host=0000:0f:00.0 serial=864691128455135313 trace_type=List region=region0 "
    "region_uuid=00000000-0000-0000-0000-000000000000 hpa=0x110010000 dpa=0x10000 "
    "dpa_length=0x100 source=Internal flags= overflow_time=0";
constexpr char kPoison72[] =
    "              sh-343     [000] .....     7.041416: cxl_poison: memdev=mem0 "
    "host=0000:14:00.0 serial=864691128455135314 trace_type=List region= "
    "region_uuid=00000000-0000-0000-0000-000000000000 hpa=0xffffffffffffffff "
    "hpa_alias0=0xffffffffffffffff dpa=0x40 dpa_length=0x40 source=Internal flags= "
    "overflow_time=0";
constexpr char kMedia612[] =
    " irq/38-0000:0f:-284     [000] .....     5.401016: cxl_general_media: memdev=mem0 "
    "host=0000:0f:00.0 serial=864691128455135313 log=Warning : time=1795274659458324713 "
    "uuid=fbcd0a77-c260-417f-85a9-088b1621eba6 len=128 flags='0x1' handle=2 related_handle=0 "
    "maint_op_class=0 : dpa=4000 dpa_flags='' descriptor='UNCORRECTABLE_EVENT|THRESHOLD_EVENT' "
    "type='0x3' transaction_type='0xc0' channel=0 rank=0 device=0 comp_id=00 00 00 00 00 00 00 00 "
    "00 00 00 00 00 00 00 00 validity_flags='' hpa=110004000 region=region0 "
    "region_uuid=00000000-0000-0000-0000-000000000000";
constexpr char kDram72[] =
    " irq/47-0000:0f:-274     [000] .....     5.978876: cxl_dram: memdev=mem1 host=0000:0f:00.0 "
    "serial=864691128455135313 log=Failure : time=1795274684135481340 "
    "uuid=601dcbb3-9c06-4eab-b8af-4e9bfb5c9624 len=128 flags='0x1' handle=1 related_handle=0 "
    "maint_op_class=0 maint_op_sub_class=0 ld_id=0 head_id=0 : dpa=6000 dpa_flags='' "
    "descriptor='UNCORRECTABLE_EVENT' type='Scrub Media ECC Error' sub_type='Internal Datapath "
    "Error' transaction_type='Host Read' channel=3 rank=17 nibble_mask=66f78 bank_group=7 bank=11 "
    "row=2 column=77 cor_mask=21 00 00 00 00 00 00 00 2c 00 00 00 00 00 00 00 37 00 00 00 00 00 00 "
    "00 42 00 00 00 00 00 00 00 validity_flags='CHANNEL|RANK|NIBBLE|BANK "
    "GROUP|BANK|ROW|COLUMN|CORRECTION MASK' comp_id=00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "
    "00 comp_id_pldm_valid_flags='' pldm_entity_id=0x00 pldm_resource_id=0x00 hpa=110006000 "
    "hpa_alias0=ffffffffffffffff region=region0 region_uuid=00000000-0000-0000-0000-000000000000 "
    "sub_channel=0 cme_threshold_ev_flags='' cvme_count=0";
constexpr char kModule612[] =
    " irq/38-0000:0f:-284     [000] .....     5.399482: cxl_memory_module: memdev=mem0 "
    "host=0000:0f:00.0 serial=864691128455135313 log=Warning : time=1795274659456739433 "
    "uuid=fe927475-dd59-4339-a586-79bab113b774 len=128 flags='0x1' handle=1 related_handle=0 "
    "maint_op_class=0 : event_type='Temperature Change' "
    "health_status='MAINTENANCE_NEEDED|PERFORMANCE_DEGRADED' media_status='All Data Loss in Event "
    "of Power Loss' as_life_used=Warning as_dev_temp=Normal as_cor_vol_err_cnt=Normal "
    "as_cor_per_err_cnt=Warning life_used=30 device_temp=-15 dirty_shutdown_cnt=4 "
    "cor_vol_err_cnt=3200 cor_per_err_cnt=300";
constexpr char kModule72[] =
    " irq/47-0000:0f:-274     [000] .....     5.980331: cxl_memory_module: memdev=mem1 "
    "host=0000:0f:00.0 serial=864691128455135313 log=Warning : time=1795274684144784924 "
    "uuid=fe927475-dd59-4339-a586-79bab113b774 len=128 flags='0x1' handle=1 related_handle=0 "
    "maint_op_class=0 maint_op_sub_class=0 ld_id=0 head_id=0 : event_type='Temperature Change' "
    "event_sub_type='Invalid Config Data' health_status='MAINTENANCE_NEEDED|PERFORMANCE_DEGRADED' "
    "media_status='All Data Loss in Event of Power Loss' as_life_used=Warning as_dev_temp=Normal "
    "as_cor_vol_err_cnt=Normal as_cor_per_err_cnt=Warning life_used=30 device_temp=-15 "
    "dirty_shutdown_cnt=4 cor_vol_err_cnt=3200 cor_per_err_cnt=300 validity_flags='' comp_id=00 00 "
    "00 00 00 00 00 00 00 00 00 00 00 00 00 00 comp_id_pldm_valid_flags='' pldm_entity_id=0x00 "
    "pldm_resource_id=0x00";
constexpr char kAerCorrected[] =
    "   irq/24-aerdrv-57      [000] .....    10.814462: aer_event: 0000:14:00.0 PCIe Bus Error: "
    "severity=Corrected, Corrected Internal Error, TLP Header=Not available";
constexpr char kAerFatal[] =
    "   irq/24-aerdrv-57      [000] .....    13.900322: aer_event: 0000:14:00.0 PCIe Bus Error: "
    "severity=Fatal, , TLP Header=Not available";
constexpr char kCxlAer[] =
    "   irq/24-aerdrv-57      [000] .....    10.815511: cxl_aer_correctable_error: memdev=mem1 "
    "host=0000:14:00.0 serial=864691128455135314: status: 'Memory Data ECC Error'";
constexpr char kCxlAerFatal[] =
    "   irq/24-aerdrv-57      [000] .....    13.900780: cxl_aer_uncorrectable_error: memdev=mem1 "
    "host=0000:14:00.0 serial=864691128455135314: status: 'Memory Data ECC Error' first_error: "
    "'Memory Data ECC Error'";

v1::HostEvent Event(const std::string& line) {
  const TraceLine parsed = ParseTraceLine(line);
  EXPECT_EQ(parsed.kind, TraceLine::Kind::kEvent) << line;
  return parsed.event;
}

TEST(TraceEventTest, PoisonOfBothKernels) {
  const v1::HostEvent old = Event(kPoison612);
  EXPECT_EQ(old.kind(), v1::HostEvent::POISON);
  EXPECT_EQ(old.serial(), kSerial);
  EXPECT_TRUE(old.bytes_lost());
  EXPECT_EQ(old.dpa_bytes(), 0x10000u);
  EXPECT_EQ(old.length_bytes(), 0x100u);
  EXPECT_EQ(old.hpa_bytes(), 0x110010000u);
  EXPECT_EQ(old.text(), "poison, source Internal");

  const v1::HostEvent now = Event(kPoison72);
  EXPECT_EQ(now.serial(), kSerial + 1);
  EXPECT_EQ(now.dpa_bytes(), 0x40u);
  EXPECT_EQ(now.length_bytes(), 0x40u);
  EXPECT_EQ(now.hpa_bytes(), 0u);  // No host region maps it.
}

TEST(TraceEventTest, AMemoryFailureIsOfAHostAddress) {
  const std::string line =
      " pool-poison-412   [001] .....  9.114: memory_failure_event: pfn 0x110200: recovery action "
      "for dax page: Recovered";
  const v1::HostEvent event = Event(line);
  EXPECT_EQ(event.kind(), v1::HostEvent::POISON);
  EXPECT_EQ(event.serial(), 0u);
  EXPECT_TRUE(event.bytes_lost());
  EXPECT_EQ(event.hpa_bytes(), 0x110200000u);
  EXPECT_EQ(event.length_bytes(), 4096u);
  EXPECT_EQ(event.text(), "memory failure: recovery action for dax page: Recovered");
  for (const char* pfn : {"pfn 0x0: ", "pfn 0xfffffffffffffff0: ", "pfn : ", "pfn zero: "}) {
    std::string other = line;
    other.replace(other.find("pfn "), 14, pfn);
    EXPECT_EQ(ParseTraceLine(other).kind, TraceLine::Kind::kNone) << other;
  }
}

TEST(TraceEventTest, ClearedPoisonIsNoEvent) {
  std::string line = kPoison612;
  line.replace(line.find("List"), 4, "Clear");
  EXPECT_EQ(ParseTraceLine(line).kind, TraceLine::Kind::kNone);
}

TEST(TraceEventTest, MediaEventsAreALineOfMemory) {
  const v1::HostEvent media = Event(kMedia612);
  EXPECT_EQ(media.kind(), v1::HostEvent::GENERAL_MEDIA);
  EXPECT_EQ(media.severity(), v1::HostEvent::WARNING);
  EXPECT_TRUE(media.bytes_lost());  // A warning, but uncorrectable.
  EXPECT_EQ(media.dpa_bytes(), 0x4000u);
  EXPECT_EQ(media.length_bytes(), 64u);
  EXPECT_EQ(media.hpa_bytes(), 0x110004000u);

  const v1::HostEvent dram = Event(kDram72);
  EXPECT_EQ(dram.kind(), v1::HostEvent::DRAM);
  EXPECT_EQ(dram.severity(), v1::HostEvent::FAILURE);
  EXPECT_EQ(dram.dpa_bytes(), 0x6000u);
  EXPECT_EQ(dram.hpa_bytes(), 0x110006000u);
  EXPECT_EQ(dram.text(),
            "DRAM: type Scrub Media ECC Error, descriptor UNCORRECTABLE_EVENT, transaction_type "
            "Host Read, channel 3, rank 17, bank_group 7, bank 11, row 2, column 77");
}

TEST(TraceEventTest, WhatWasCorrectedLosesNoBytes) {
  std::string line = kMedia612;
  const std::string descriptor = "UNCORRECTABLE_EVENT|THRESHOLD_EVENT";
  line.replace(line.find(descriptor), descriptor.size(), "THRESHOLD_EVENT");
  EXPECT_FALSE(Event(line).bytes_lost());
  line.replace(line.find("log=Warning"), 11, "log=Fatal");
  EXPECT_TRUE(Event(line).bytes_lost());
}

TEST(TraceEventTest, MemoryModuleEventsHaveNoAddress) {
  for (const char* line : {kModule612, kModule72}) {
    const v1::HostEvent event = Event(line);
    EXPECT_EQ(event.kind(), v1::HostEvent::MEMORY_MODULE);
    EXPECT_EQ(event.serial(), kSerial);
    EXPECT_FALSE(event.bytes_lost());
    EXPECT_EQ(event.length_bytes(), 0u);
    EXPECT_EQ(event.text().find("memory module: event_type Temperature Change, health_status "),
              0u);
    EXPECT_LE(event.text().size(), kMaxEventTextBytes);
  }
}

TEST(TraceEventTest, PcieErrorsNameAFunction) {
  const TraceLine corrected = ParseTraceLine(kAerCorrected);
  EXPECT_EQ(corrected.pci_function, "0000:14:00.0");
  EXPECT_EQ(corrected.event.serial(), 0u);
  EXPECT_EQ(corrected.event.kind(), v1::HostEvent::AER_CORRECTABLE);
  EXPECT_EQ(corrected.event.text(),
            "PCIe error of 0000:14:00.0: Corrected, Corrected Internal Error");
  const TraceLine fatal = ParseTraceLine(kAerFatal);
  EXPECT_EQ(fatal.event.kind(), v1::HostEvent::AER_UNCORRECTABLE);
  EXPECT_EQ(fatal.event.severity(), v1::HostEvent::FATAL);
}

TEST(TraceEventTest, CxlErrorsNameAMemdev) {
  const v1::HostEvent correctable = Event(kCxlAer);
  EXPECT_EQ(correctable.kind(), v1::HostEvent::AER_CORRECTABLE);
  EXPECT_EQ(correctable.serial(), kSerial + 1);
  EXPECT_EQ(Event(kCxlAerFatal).kind(), v1::HostEvent::AER_UNCORRECTABLE);
  EXPECT_EQ(Event(kCxlAerFatal).serial(), kSerial + 1);
}

TEST(TraceEventTest, LostEventsAreSeen) {
  EXPECT_EQ(ParseTraceLine("CPU:3 [LOST 128 EVENTS]").kind, TraceLine::Kind::kLost);
  EXPECT_EQ(ParseTraceLine("CPU:0 [LOST EVENTS]").kind, TraceLine::Kind::kLost);
  EXPECT_EQ(ParseTraceLine("  irq/38-1  [000] .....     5.4: cxl_overflow: memdev=mem0 "
                           "host=0000:0f:00.0 serial=864691128455135313: log=Warning : 3 records "
                           "from 1 to 2")
                .kind,
            TraceLine::Kind::kLost);
}

// As the kernel writes it: any 15 bytes but NUL are a task's name.
std::string OfTask(const std::string& task, const std::string& event) {
  return absl::StrCat(std::string(16 - task.size(), ' '), task,
                      "-412     [001] .....     9.114002: ", event);
}

TEST(TraceEventTest, ATaskCannotPassForAnEvent) {
  EXPECT_EQ(
      ParseTraceLine(": cxl_poison: serial=1 dpa=0x0-9 [000] ..... 1.0: sched_switch: x").kind,
      TraceLine::Kind::kNone);
  EXPECT_EQ(ParseTraceLine(OfTask("1: cxl_poison: ", "sched_switch: x")).kind,
            TraceLine::Kind::kNone);
}

TEST(TraceEventTest, ATaskCannotHideAnEventByItsName) {
  const std::string poison = kPoison612;
  const std::string fields = poison.substr(poison.find("cxl_poison"));
  for (const char* task :
       {"1: cxl_poison: ", "1: cxl_dram: 2:", ": cxl_poison: ", "9: aer_event: ", "[0] . 1.0: cxl",
        "-1 [0] . 1.0: ", "]: [1] 2: x: ", "CPU:0 [LOST 1 E", "CPU:[LOST 1]", "x EVENTS]",
        "1\n1: cxl_dram: ", "\xff\xfe\x01: cxl_dr"}) {
    ASSERT_LE(std::string(task).size(), 15u);
    SCOPED_TRACE(task);
    const v1::HostEvent failure = Event(OfTask(
        task, "memory_failure_event: pfn 0x110200: recovery action for dax page: Recovered"));
    EXPECT_EQ(failure.kind(), v1::HostEvent::POISON);
    EXPECT_EQ(failure.hpa_bytes(), 0x110200000u);
    EXPECT_EQ(Event(OfTask(task, fields)).serial(), kSerial);
  }
}

TEST(TraceEventTest, AnyBytesAreTaken) {
  std::mt19937 random(7);
  const std::string lines[] = {kPoison612, kMedia612, kDram72, kModule72, kAerFatal, kCxlAerFatal};
  for (int i = 0; i < 20'000; ++i) {
    std::string line = lines[random() % std::size(lines)];
    for (uint32_t n = random() % 8; n > 0 && !line.empty(); --n) {
      const size_t at = random() % line.size();
      switch (random() % 3) {
        case 0:
          line[at] = static_cast<char>(random());
          break;
        case 1:
          line.erase(at, random() % 20);
          break;
        default:
          line.insert(at, lines[random() % std::size(lines)].substr(random() % 100, 30));
      }
    }
    const TraceLine parsed = ParseTraceLine(line);
    EXPECT_LE(parsed.event.text().size(), kMaxEventTextBytes);
    if (parsed.kind != TraceLine::Kind::kEvent) continue;
    EXPECT_TRUE(parsed.event.serial() != 0 || !parsed.pci_function.empty());
    EXPECT_NE(parsed.event.kind(), v1::HostEvent::KIND_UNSPECIFIED);
  }
  EXPECT_EQ(ParseTraceLine(std::string(1 << 20, '=')).kind, TraceLine::Kind::kNone);
}

TEST(TraceEventTest, FlagsInTheAddressAreNoAddress) {
  std::string line = kMedia612;
  line.replace(line.find("dpa=4000"), 8, "dpa=4003");
  EXPECT_EQ(Event(line).dpa_bytes(), 0x4000u);
  line = kDram72;
  line.replace(line.find("dpa=6000"), 8, "dpa=603f");
  EXPECT_EQ(Event(line).dpa_bytes(), 0x6000u);
}

}  // namespace
}  // namespace cxlpool::agent
