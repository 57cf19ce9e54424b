#include "test/contract/host_memory_contract.h"

#include <fcntl.h>
#include <google/protobuf/text_format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "cxlpool/emulated/v1/slot.pb.h"
#include "host-agent/adapters/emulated/emulated_host_memory.h"
#include "proto/support/loop.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kLdBytes = uint64_t{256} << 20;
constexpr uint32_t kSlotsPerBridge = 6;

// Plays the emulated fabric by its files.
class EmulatedRig : public HostMemoryRig {
 public:
  EmulatedRig() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    options_.root = ::mkdtemp(pattern.data());
    options_.host = "host-a";
    options_.power_on_timeout = absl::Milliseconds(100);
    for (uint32_t b = 0; b < 2; ++b) {
      EmulatedBridge bridge;
      bridge.name = absl::StrCat("ACPI0016:0", b);
      for (uint32_t i = 0; i < kSlotsPerBridge; ++i) {
        bridge.slots.push_back(b * kSlotsPerBridge + i);
        std::filesystem::create_directories(Directory(bridge.slots.back()));
      }
      options_.bridges.push_back(bridge);
    }
    Restart();
  }
  ~EmulatedRig() override {
    loop_.reset();
    std::filesystem::remove_all(options_.root);
  }

  HostMemory& memory() override { return *memory_; }

  void Restart() override {
    loop_.reset();
    loop_ = std::make_unique<Loop>("host-memory");
    memory_ = std::make_unique<EmulatedHostMemory>(options_, loop_.get(), &clock_);
  }

  absl::StatusOr<PluggedLd> Plug(size_t bridge) override {
    for (uint32_t slot : options_.bridges.at(bridge).slots) {
      if (plugged_.contains(slot)) continue;
      emulated::v1::FabricSide side;
      side.set_serial(++last_serial_);
      side.set_length_bytes(kLdBytes);
      side.set_extent_path(absl::StrCat(options_.root, "/extent-", last_serial_));
      std::ofstream(side.extent_path()).close();
      std::filesystem::resize_file(side.extent_path(), kLdBytes);
      std::string text;
      google::protobuf::TextFormat::PrintToString(side, &text);
      const std::string path = Directory(slot) + "/fabric.textproto";
      std::ofstream(path + ".new") << text;
      std::filesystem::rename(path + ".new", path);
      plugged_[slot] = last_serial_;
      return PluggedLd{slot, last_serial_, options_.bridges[bridge].name};
    }
    return absl::ResourceExhaustedError("every slot of the bridge is taken");
  }

  void GiveBack(const PluggedLd&) override {}  // The rig is one test's own.

  bool ProvenUnplugged(const PluggedLd& ld) override {
    const absl::StatusOr<SlotFiles> files = ReadSlot(Directory(ld.slot));
    return files.ok() && files->host.serial() == ld.serial && !files->host.powered();
  }

  bool CanInterleave() const override { return false; }

  bool Yank(const PluggedLd& ld) override {
    return std::filesystem::remove(Directory(ld.slot) + "/fabric.textproto");
  }

 private:
  std::string Directory(uint32_t slot) const {
    return SlotDirectory(options_.root, options_.host, slot);
  }

  EmulatedOptions options_;
  SystemClock clock_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<EmulatedHostMemory> memory_;
  std::map<uint32_t, uint64_t> plugged_;
  uint64_t last_serial_ = 0x100;
};

absl::StatusOr<std::unique_ptr<HostMemoryRig>> MakeRig() { return std::make_unique<EmulatedRig>(); }

INSTANTIATE_TEST_SUITE_P(Emulated, HostMemoryContract, ::testing::Values(MakeRig));

}  // namespace
}  // namespace cxlpool::agent
