// The QEMU driver against the contract: on a model of QEMU, and on a rack that runs already.
//
//   CXLPOOL_RACK_QMP=host-a=/path/a.qmp,host-b=/path/b.qmp   sockets that nobody else uses
//   CXLPOOL_RACK_POOL=/path/pool       the pool file; whole granules of 256 MiB, at least four
//   CXLPOOL_RACK_EJECT='command'       is run with HOST SLOT: what a host agent does to let go
//   CXLPOOL_RACK_POWER_ON='command'    is run with HOST SLOT: what it does to take an LD; optional
//   CXLPOOL_RACK_FENCE=1               the first host may be killed, as the last test does
//
// Without the first three the rack's tests are skipped.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_fabric.h"
#include "proto/support/unique_fd.h"
#include "test/contract/fabric_driver_contract.h"
#include "test/rigs/fake_qemu.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kQemuGranule = 256 << 20;

// What both racks share: a driver, and the pool file behind every host's memory.
class QemuRig : public FabricRig {
 public:
  FabricDriver& driver() override { return *driver_; }

  void Restart() override {
    driver_.reset();
    OpenDriver();
  }

  // It waits for the pool's files, and sees the hosts.
  std::unique_ptr<FabricDriver> Another() override {
    QemuFabricConfig config = config_;
    config.devices.clear();
    auto driver = QemuFabric::Open(std::move(config));
    EXPECT_TRUE(driver.ok()) << driver.status();
    return driver.ok() ? *std::move(driver) : nullptr;
  }

  absl::Status Store(const BoundLd& ld, uint64_t offset, const std::string& bytes) override {
    const UniqueFd fd(::open(config_.devices[0].path.c_str(), O_RDWR | O_CLOEXEC));
    const off_t at = static_cast<off_t>(ld.slice.dpa_bytes + offset);
    if (::pwrite(fd.get(), bytes.data(), bytes.size(), at) == static_cast<ssize_t>(bytes.size())) {
      return absl::OkStatus();
    }
    return absl::ErrnoToStatus(errno, "store");
  }

  absl::StatusOr<std::string> Load(const BoundLd& ld, uint64_t offset, size_t size) override {
    const UniqueFd fd(::open(config_.devices[0].path.c_str(), O_RDONLY | O_CLOEXEC));
    std::string bytes(size, '?');
    const off_t at = static_cast<off_t>(ld.slice.dpa_bytes + offset);
    if (::pread(fd.get(), bytes.data(), size, at) == static_cast<ssize_t>(size)) return bytes;
    return absl::ErrnoToStatus(errno, "load");
  }

 protected:
  QemuRig() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
  }
  ~QemuRig() override { std::filesystem::remove_all(directory_); }

  void OpenDriver() {
    auto driver = QemuFabric::Open(config_);
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = std::move(*driver);
  }

  std::string directory_;
  QemuFabricConfig config_;
  std::unique_ptr<FabricDriver> driver_;
};

class FakeRig : public QemuRig {
 public:
  FakeRig() {
    const std::string pool = directory_ + "/pool";
    EXPECT_EQ(UniqueFd(::open(pool.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)).valid(), true);
    EXPECT_EQ(::truncate(pool.c_str(), 4 * kQemuGranule), 0);
    config_.devices = {{"cmm-0", "serial-0", pool, 4 * kQemuGranule, kQemuGranule}};
    const std::vector<std::pair<std::string, std::vector<uint32_t>>> hosts = {
        {"host-a", {10, 11}}, {"host-b", {10, 30, 31}}};
    for (const auto& [id, slots] : hosts) {
      const std::string socket = absl::StrCat(directory_, "/", id, ".qmp");
      config_.hosts.push_back({id, socket});
      qemus_[id] = std::make_unique<FakeQemu>(socket, slots);
    }
    config_.timing.patience = absl::Milliseconds(500);
    config_.timing.command = absl::Seconds(1);
    OpenDriver();
  }
  ~FakeRig() override { driver_.reset(); }

  std::optional<TopologyTables> Parts() override {
    TopologyTables parts;
    for (const QemuDeviceConfig& device : config_.devices) {
      parts.devices.push_back({.id = device.id,
                               .serial = device.serial,
                               .capacity_bytes = device.capacity_bytes,
                               .granule_bytes = device.granule_bytes,
                               .path = device.path});
    }
    for (const QemuHostConfig& host : config_.hosts) {
      parts.hosts.push_back({.id = host.id, .qmp_socket = host.qmp_socket});
    }
    return parts;
  }

  // This process, which runs and is no QEMU.
  std::string AnotherLife() override {
    return FormatIncarnation(QemuProcess::Open(::getpid())->name());
  }

  void PowerOn(const BoundLd&) override {}
  bool Hang(const std::string& host, bool hangs) override {
    if (hangs) {
      qemus_.at(host)->Freeze();
    } else {
      ::kill(qemus_.at(host)->pid(), SIGCONT);
    }
    return true;
  }
  void PowerOff(const BoundLd& ld) override { qemus_.at(ld.host)->Eject(ld.slot); }
  void Remove(const BoundLd& ld) override { qemus_.at(ld.host)->Eject(ld.slot); }

 private:
  std::map<std::string, std::unique_ptr<FakeQemu>> qemus_;
};

absl::StatusOr<std::unique_ptr<FabricRig>> MakeFakeRig() { return std::make_unique<FakeRig>(); }

std::string Environment(const char* name) {
  const char* value = ::getenv(name);
  return value != nullptr ? value : "";
}

class LiveRig : public QemuRig {
 public:
  LiveRig(const std::string& sockets, const std::string& pool) {
    struct stat info = {};
    EXPECT_EQ(::stat(pool.c_str(), &info), 0) << pool;
    const uint64_t capacity = static_cast<uint64_t>(info.st_size) / kQemuGranule * kQemuGranule;
    config_.devices = {{"cmm-0", "serial-0", pool, capacity, kQemuGranule}};
    for (const auto& host : absl::StrSplit(sockets, ',')) {
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(host, absl::MaxSplits('=', 1));
      config_.hosts.push_back({parts.first, parts.second});
    }
    OpenDriver();
  }
  ~LiveRig() override { driver_.reset(); }

  void PowerOn(const BoundLd& ld) override { Command("CXLPOOL_RACK_POWER_ON", ld); }
  void PowerOff(const BoundLd& ld) override { Command("CXLPOOL_RACK_EJECT", ld); }
  void Remove(const BoundLd& ld) override { Command("CXLPOOL_RACK_EJECT", ld); }
  bool may_fence() const override { return Environment("CXLPOOL_RACK_FENCE") == "1"; }
  // The QEMU is stopped as a whole. Which process it is the fabric says, while it answers.
  bool Hang(const std::string& host, bool hangs) override {
    if (hangs) {
      std::promise<absl::StatusOr<FabricView>> seen;
      driver_->Discover([&](absl::StatusOr<FabricView> view) { seen.set_value(std::move(view)); });
      const absl::StatusOr<FabricView> view = seen.get_future().get();
      if (!view.ok()) return false;
      for (const FabricHost& shown : view->hosts) {
        const auto life = ParseIncarnation(shown.fabric_incarnation);
        if (shown.id == host && life.has_value()) pids_[host] = life->name.pid;
      }
    }
    const auto pid = pids_.find(host);
    return pid != pids_.end() && ::kill(pid->second, hangs ? SIGSTOP : SIGCONT) == 0;
  }

 private:
  std::map<std::string, pid_t> pids_;  // Of hosts that hang, or did.

  static void Command(const char* variable, const BoundLd& ld) {
    const std::string command = Environment(variable);
    if (command.empty()) return;
    const std::string line = absl::StrCat(command, " ", ld.host, " ", ld.slot);
    EXPECT_EQ(std::system(line.c_str()), 0) << line;
  }
};

absl::StatusOr<std::unique_ptr<FabricRig>> MakeLiveRig() {
  const std::string sockets = Environment("CXLPOOL_RACK_QMP");
  const std::string pool = Environment("CXLPOOL_RACK_POOL");
  if (sockets.empty() || pool.empty() || Environment("CXLPOOL_RACK_EJECT").empty()) {
    return absl::UnavailableError(
        "no rack: CXLPOOL_RACK_QMP, CXLPOOL_RACK_POOL and CXLPOOL_RACK_EJECT are not set");
  }
  return std::make_unique<LiveRig>(sockets, pool);
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(FakeQemu, FabricDriverContract, ::testing::Values(MakeFakeRig));
INSTANTIATE_TEST_SUITE_P(Rack, FabricDriverContract, ::testing::Values(MakeLiveRig));

}  // namespace cxlpool::fm
