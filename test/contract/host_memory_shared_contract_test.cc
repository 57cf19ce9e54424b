// SharedHost on files, against the contract of HostMemory.

#include <filesystem>
#include <fstream>
#include <future>

#include "absl/strings/str_cat.h"
#include "host-agent/adapters/shared/file_space.h"
#include "host-agent/adapters/shared/shared_host.h"
#include "test/contract/host_memory_contract.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kGranule = uint64_t{256} << 20;

class SharedMemoryRig : public HostMemoryRig {
 public:
  SharedMemoryRig() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    file_ = directory_ + "/cmm-0";
    std::ofstream(file_).close();
    std::filesystem::resize_file(file_, 16 * kGranule);
    Restart();
    v1::DeviceTask mark;
    mark.mutable_mark()->set_name(file_);
    v1::DeviceMark& text = *mark.mutable_mark()->mutable_mark();
    text.set_id("mark-1");
    text.set_pool("pool-1");
    text.set_device("cmm-0");
    text.set_reserved_bytes(kGranule);
    EXPECT_TRUE(Do(mark).ok());
  }
  ~SharedMemoryRig() override {
    memory_.reset();
    std::filesystem::remove_all(directory_);
  }

  HostMemory& memory() override { return *memory_; }
  void Restart() override {
    memory_.reset();
    memory_ = MakeSharedHost(
        std::make_unique<FileSpace>(std::vector{file_}, directory_ + "/pieces", "boot-1"),
        {.grants_path = directory_ + "/grants", .boot_id = "boot-1"});
    std::promise<absl::Status> prepared;
    memory_->Prepare([&](absl::Status status) { prepared.set_value(std::move(status)); });
    EXPECT_TRUE(prepared.get_future().get().ok());
  }
  absl::StatusOr<PluggedLd> Plug(size_t) override {
    v1::DeviceTask task;
    v1::DeviceGrant& grant = *task.mutable_grant();
    const uint64_t number = ++plugged_;
    grant.set_slot(static_cast<uint32_t>(number));
    grant.set_serial(0x100 + number);
    grant.set_region_tag("tag");
    grant.set_generation(number);
    grant.set_device("cmm-0");
    grant.set_mark("mark-1");
    grant.set_dpa_bytes((number - 1) * kGranule);
    grant.set_length_bytes(kGranule);
    if (auto look = Do(task); !look.ok()) return look.status();
    return PluggedLd{grant.slot(), grant.serial(), kSharedBridge};
  }
  void GiveBack(const PluggedLd&) override {}
  bool ProvenUnplugged(const PluggedLd& ld) override {
    v1::DeviceTask task;
    task.mutable_look();
    const auto look = Do(task);
    if (!look.ok()) return false;
    for (const v1::DeviceGrant& grant : look->grants()) {
      if (grant.slot() == ld.slot) return false;
    }
    return true;
  }
  bool HasStacks() const override { return false; }
  bool CanInterleave() const override { return false; }

 private:
  absl::StatusOr<v1::DeviceLook> Do(const v1::DeviceTask& task) {
    std::promise<absl::StatusOr<v1::DeviceLook>> done;
    memory_->Do(task,
                [&](absl::StatusOr<v1::DeviceLook> look) { done.set_value(std::move(look)); });
    return done.get_future().get();
  }

  std::string directory_;
  std::string file_;
  std::unique_ptr<SharedHostMemory> memory_;
  uint64_t plugged_ = 0;
};

absl::StatusOr<std::unique_ptr<HostMemoryRig>> MakeSharedMemoryRig() {
  return std::make_unique<SharedMemoryRig>();
}

INSTANTIATE_TEST_SUITE_P(Shared, HostMemoryContract, ::testing::Values(MakeSharedMemoryRig));

}  // namespace
}  // namespace cxlpool::agent
