#include <fcntl.h>
#include <google/protobuf/text_format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "cxlpool/emulated/v1/slot.pb.h"
#include "fabric-manager/adapters/fabric_emulated/emulated_fabric.h"
#include "proto/support/names.h"
#include "proto/support/unique_fd.h"
#include "test/contract/fabric_driver_contract.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kGranule = 1 << 20;

// Plays the agents by their files.
class EmulatedRig : public FabricRig {
 public:
  EmulatedRig() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    Open();
  }
  ~EmulatedRig() override {
    driver_.reset();
    std::filesystem::remove_all(root_);
  }

  FabricDriver& driver() override { return *driver_; }

  void Restart() override {
    driver_.reset();
    Open();
  }

  std::optional<TopologyTables> Parts() override {
    TopologyTables parts;
    parts.devices = {{.id = "cmm-0",
                      .serial = "serial-0",
                      .capacity_bytes = 8 * kGranule,
                      .granule_bytes = kGranule}};
    parts.hosts = {{.id = "host-a", .slots = {4, 7}}, {.id = "host-b", .slots = {1, 2, 3}}};
    return parts;
  }

  std::string AnotherLife() override { return FormatUuid(RandomUuid()); }

  void PowerOn(const BoundLd& ld) override { WriteHostSide(ld, true); }
  void PowerOff(const BoundLd& ld) override { WriteHostSide(ld, false); }

  void Remove(const BoundLd& ld) override {
    EXPECT_TRUE(std::filesystem::remove(SlotDirectory(ld) + "/fabric.textproto"));
  }

  absl::Status Store(const BoundLd& ld, uint64_t offset, const std::string& bytes) override {
    const UniqueFd fd(::open(ExtentPath(ld).c_str(), O_RDWR | O_CLOEXEC));
    const ssize_t n = ::pwrite(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n == static_cast<ssize_t>(bytes.size())) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, "store");
  }

  absl::StatusOr<std::string> Load(const BoundLd& ld, uint64_t offset, size_t size) override {
    const UniqueFd fd(::open(ExtentPath(ld).c_str(), O_RDONLY | O_CLOEXEC));
    std::string bytes(size, '?');
    const ssize_t n = ::pread(fd.get(), bytes.data(), size, static_cast<off_t>(offset));
    if (n == static_cast<ssize_t>(size)) return bytes;
    return absl::ErrnoToStatus(errno, "load");
  }

 private:
  void Open() {
    auto driver = EmulatedFabric::Open(
        {.root_directory = root_ + "/fabric",
         .devices = {{"cmm-0", "serial-0", 8 * kGranule, kGranule}},
         .hosts = {{"host-a", {4, 7}, std::nullopt}, {"host-b", {1, 2, 3}, std::nullopt}},
         .watch_interval = absl::Milliseconds(20)});
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = std::move(*driver);
  }

  std::string SlotDirectory(const BoundLd& ld) const {
    return absl::StrCat(root_, "/fabric/hosts/", ld.host, "/slot-", ld.slot);
  }

  // As the driver tells the agent.
  std::string ExtentPath(const BoundLd& ld) const {
    std::stringstream text;
    text << std::ifstream(SlotDirectory(ld) + "/fabric.textproto").rdbuf();
    emulated::v1::FabricSide side;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text.str(), &side));
    EXPECT_EQ(side.serial(), ld.serial);
    EXPECT_EQ(side.length_bytes(), std::filesystem::file_size(side.extent_path()));
    return side.extent_path();
  }

  void WriteHostSide(const BoundLd& ld, bool powered) const {
    const std::string path = SlotDirectory(ld) + "/host.textproto";
    std::ofstream(path + ".new") << "serial: " << ld.serial
                                 << " powered: " << (powered ? "true" : "false") << "\n";
    std::filesystem::rename(path + ".new", path);
  }

  std::string root_;
  std::unique_ptr<FabricDriver> driver_;
};

absl::StatusOr<std::unique_ptr<FabricRig>> MakeEmulatedRig() {
  return std::make_unique<EmulatedRig>();
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Emulated, FabricDriverContract, ::testing::Values(MakeEmulatedRig));

}  // namespace cxlpool::fm
