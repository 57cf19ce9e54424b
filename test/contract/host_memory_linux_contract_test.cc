// The Linux adapter against the contract, inside a machine whose fabric has plugged LDs before:
//
//   CXLPOOL_LINUX_SLOTS="3:0x51:ACPI0016:00,4:0x52:ACPI0016:00,5:0x61:ACPI0016:01"
//
// is slot:serial:host-bridge of each. Without it every test is skipped. A LD that a test powers
// off is used up; TakesNoMoreRegionsThanDecoders needs one more than a bridge has decoders, of
// which the last tests use three up; the others need four on the first bridge and one on the
// second.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <future>
#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "host-agent/adapters/linux/linux_host_memory.h"
#include "host-agent/model/online_plan.h"
#include "test/contract/host_memory_contract.h"

namespace cxlpool::agent {
namespace {

absl::StatusOr<std::vector<PluggedLd>> ParseSlots(absl::string_view text) {
  std::vector<PluggedLd> lds;
  for (absl::string_view item : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::vector<absl::string_view> parts =
        absl::StrSplit(item, absl::MaxSplits(':', 2));  // The bridge's name has a colon too.
    PluggedLd ld;
    if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &ld.slot) ||
        !absl::SimpleHexAtoi(parts[1], &ld.serial)) {
      return absl::InvalidArgumentError(
          absl::StrCat("CXLPOOL_LINUX_SLOTS: \"", item, "\" is not slot:serial:host-bridge"));
    }
    ld.host_bridge = std::string(parts[2]);
    lds.push_back(std::move(ld));
  }
  return lds;
}

// LDs that no test has powered off. Outlives the rigs: the machine is one for all tests.
std::vector<PluggedLd>& Unused() {
  static auto* const kUnused = new std::vector<PluggedLd>();
  return *kUnused;
}

class LinuxRig : public HostMemoryRig {
 public:
  explicit LinuxRig(std::vector<std::string> bridges) : bridges_(std::move(bridges)) { Restart(); }

  HostMemory& memory() override { return *memory_; }

  void Restart() override {
    memory_.reset();
    auto made = MakeLinuxHostMemory({});
    ASSERT_TRUE(made.ok()) << made.status();
    memory_ = *std::move(made);
  }

  absl::StatusOr<PluggedLd> Plug(size_t bridge) override {
    if (bridge >= bridges_.size()) {
      return absl::ResourceExhaustedError("CXLPOOL_LINUX_SLOTS names too few host bridges");
    }
    std::vector<PluggedLd>& unused = Unused();
    const auto it = std::find_if(unused.begin(), unused.end(), [&](const PluggedLd& ld) {
      return ld.host_bridge == bridges_[bridge];
    });
    if (it == unused.end()) {
      return absl::ResourceExhaustedError(absl::StrCat("CXLPOOL_LINUX_SLOTS has too few LDs under ",
                                                       bridges_[bridge], " for this test"));
    }
    PluggedLd ld = *it;
    unused.erase(it);
    return ld;
  }

  // The kernel loses the function at once, as when a link goes down. The LD is used up.
  bool Yank(const PluggedLd& ld) override {
    std::string address;
    std::ifstream(absl::StrCat("/sys/bus/pci/slots/", ld.slot, "/address")) >> address;
    std::ofstream remove(absl::StrCat("/sys/bus/pci/devices/", address, ".0/remove"));
    remove << "1" << std::flush;
    if (remove.good()) used_up_.insert(ld.serial);
    return remove.good();
  }

  void GiveBack(const PluggedLd& ld) override {
    if (!used_up_.contains(ld.serial)) Unused().push_back(ld);
  }

  // The guest cannot see the fabric's side: what it can see is that the memdev is gone.
  bool ProvenUnplugged(const PluggedLd& ld) override {
    std::promise<bool> gone;
    memory_->Observe([&](absl::StatusOr<HostObservation> host) {
      gone.set_value(host.ok() && FindMemdev(*host, ld.serial) == nullptr);
    });
    const bool proven = gone.get_future().get();
    if (proven) used_up_.insert(ld.serial);
    return proven;
  }

 private:
  const std::vector<std::string> bridges_;
  std::unique_ptr<HostMemory> memory_;
  std::set<uint64_t> used_up_;  // Powered off or pulled out.
};

absl::StatusOr<std::unique_ptr<HostMemoryRig>> MakeRig() {
  const char* text = std::getenv("CXLPOOL_LINUX_SLOTS");
  if (text == nullptr) {
    return absl::UnavailableError(
        "needs a Linux machine with CXL memory plugged: set CXLPOOL_LINUX_SLOTS");
  }
  static const absl::StatusOr<std::vector<PluggedLd>> kPlugged = [text] {
    auto lds = ParseSlots(text);
    if (lds.ok()) Unused() = *lds;
    return lds;
  }();
  if (!kPlugged.ok()) {
    ADD_FAILURE() << kPlugged.status();
    return kPlugged.status();
  }
  std::vector<std::string> bridges;
  for (const PluggedLd& ld : *kPlugged) {
    if (std::find(bridges.begin(), bridges.end(), ld.host_bridge) == bridges.end()) {
      bridges.push_back(ld.host_bridge);
    }
  }
  return std::make_unique<LinuxRig>(std::move(bridges));
}

INSTANTIATE_TEST_SUITE_P(Linux, HostMemoryContract, ::testing::Values(MakeRig));

}  // namespace
}  // namespace cxlpool::agent
