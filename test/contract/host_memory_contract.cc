#include "test/contract/host_memory_contract.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>

#include "host-agent/model/online_plan.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr std::chrono::seconds kPatience(120);
const absl::Duration kOfflinePatience = absl::Minutes(1);
constexpr size_t kMapBytes = size_t{2} << 20;

// A process that has `fd` mapped, until it is ended.
class Mapper {
 public:
  Mapper(int fd, uint64_t offset) {
    int ready[2];
    if (::pipe2(ready, O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      void* at = ::mmap(nullptr, kMapBytes, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(offset));
      ::close(fd);  // The mapping alone has to be found.
      const char ok = at == MAP_FAILED ? 'n' : 'y';
      if (::write(ready[1], &ok, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char ok = 'n';
    mapped_ = ::read(ready[0], &ok, 1) == 1 && ok == 'y';
    ::close(ready[0]);
  }
  ~Mapper() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  bool mapped() const { return mapped_; }
  int pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  bool mapped_ = false;
};

}  // namespace

void HostMemoryContract::SetUp() {
  auto rig = GetParam()();
  if (!rig.ok()) GTEST_SKIP() << rig.status().message();
  rig_ = *std::move(rig);
  const absl::Status prepared = Do([](HostMemory& m, Done done) { m.Prepare(std::move(done)); });
  ASSERT_TRUE(prepared.ok()) << prepared;
}

void HostMemoryContract::TearDown() {
  // Down whatever ladder a failed test left, topmost first.
  for (auto ld = taken_.rbegin(); ld != taken_.rend(); ++ld) {
    Do([&](HostMemory& m, Done done) {
      m.OfflineBlocks(ld->serial, kOfflinePatience, std::move(done));
    }).IgnoreError();
    Unbind(*ld).IgnoreError();
    Destroy(*ld).IgnoreError();
    rig_->GiveBack(*ld);
  }
}

absl::Status HostMemoryContract::Do(const Call& call) {
  auto answer = std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> future = answer->get_future();
  call(rig_->memory(), [answer](absl::Status status) { answer->set_value(std::move(status)); });
  if (future.wait_for(kPatience) != std::future_status::ready) {
    ADD_FAILURE() << "no completion within two minutes";
    return absl::DeadlineExceededError("no completion");
  }
  return future.get();
}

HostObservation HostMemoryContract::Observe() {
  auto seen = std::make_shared<HostObservation>();
  const absl::Status status = Do([seen](HostMemory& m, Done done) {
    m.Observe([seen, done = std::move(done)](absl::StatusOr<HostObservation> host) mutable {
      if (host.ok()) *seen = *host;
      std::move(done)(host.status());
    });
  });
  EXPECT_TRUE(status.ok()) << status;
  return *seen;
}

std::vector<int> HostMemoryContract::Holders(uint64_t serial) {
  auto found = std::make_shared<std::vector<int>>();
  const absl::Status status = Do([serial, found](HostMemory& m, Done done) {
    m.FindHolders(serial, [found, done = std::move(done)](
                              const absl::StatusOr<std::vector<ProcessId>>& holders) mutable {
      if (holders.ok()) {
        for (const ProcessId& holder : *holders) {
          EXPECT_NE(holder.start_ticks, 0u) << "a pid without its start may be anybody's";
          found->push_back(static_cast<int>(holder.pid));
        }
      }
      std::move(done)(holders.status());
    });
  });
  EXPECT_TRUE(status.ok()) << status;
  return *found;
}

absl::Status HostMemoryContract::PowerOn(const PluggedLd& ld) {
  return Do([&](HostMemory& m, Done done) { m.PowerOn(ld.slot, ld.serial, std::move(done)); });
}

absl::Status HostMemoryContract::Create(const PluggedLd& ld) {
  HostRegionSpec spec;
  spec.host_bridge = ld.host_bridge;
  spec.serials = {ld.serial};
  const HostObservation host = Observe();
  const ObservedMemdev* memdev = FindMemdev(host, ld.serial);
  spec.size_bytes = memdev == nullptr ? 0 : memdev->size_bytes;
  return Do([&](HostMemory& m, Done done) { m.CreateHostRegion(spec, std::move(done)); });
}

absl::Status HostMemoryContract::Bind(const PluggedLd& ld, DaxDriver driver) {
  return Do([&](HostMemory& m, Done done) { m.BindDax(ld.serial, driver, std::move(done)); });
}

absl::Status HostMemoryContract::Unbind(const PluggedLd& ld) {
  return Do([&](HostMemory& m, Done done) { m.UnbindDax(ld.serial, std::move(done)); });
}

absl::Status HostMemoryContract::Destroy(const PluggedLd& ld) {
  return Do([&](HostMemory& m, Done done) { m.DestroyHostRegion(ld.serial, std::move(done)); });
}

absl::Status HostMemoryContract::PowerOff(const PluggedLd& ld) {
  return Do([&](HostMemory& m, Done done) { m.PowerOff(ld.slot, ld.serial, std::move(done)); });
}

bool HostMemoryContract::Take(size_t bridge, PluggedLd& ld) {
  absl::StatusOr<PluggedLd> plugged = rig_->Plug(bridge);
  if (!plugged.ok()) {
    [&] { GTEST_SKIP() << plugged.status().message(); }();
    return false;
  }
  ld = *plugged;
  taken_.push_back(ld);
  const absl::Status on = PowerOn(ld);
  EXPECT_TRUE(on.ok()) << on;
  return on.ok();
}

std::vector<PluggedLd> HostMemoryContract::TakeSet(size_t ways) {
  std::vector<PluggedLd> set(ways);
  for (PluggedLd& ld : set) {
    if (!Take(0, ld)) return {};
  }
  return set;
}

HostRegionSpec HostMemoryContract::SpecOver(const std::vector<PluggedLd>& set,
                                            uint32_t granularity_bytes) {
  HostRegionSpec spec;
  spec.host_bridge = set.front().host_bridge;
  spec.interleave_granularity_bytes = granularity_bytes;
  const HostObservation host = Observe();
  for (const PluggedLd& ld : set) {
    spec.serials.push_back(ld.serial);
    const ObservedMemdev* memdev = FindMemdev(host, ld.serial);
    spec.size_bytes += memdev == nullptr ? 0 : memdev->size_bytes;
  }
  return spec;
}

absl::Status HostMemoryContract::CreateOver(const HostRegionSpec& spec) {
  return Do([&](HostMemory& m, Done done) { m.CreateHostRegion(spec, std::move(done)); });
}

// For good, at any granularity; one by one its targets can be used.
void HostMemoryContract::RefusesToInterleave(const std::vector<PluggedLd>& set) {
  for (const uint32_t granularity : {256u, 4096u, 16384u}) {
    const absl::Status refused = CreateOver(SpecOver(set, granularity));
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented) << refused;
    EXPECT_EQ(ReasonOf(refused), "INTERLEAVE_UNSUPPORTED");
  }
  EXPECT_FALSE(HasRegion(set[0]));
  EXPECT_TRUE(Create(set[0]).ok());
  EXPECT_TRUE(Destroy(set[0]).ok());
}

void HostMemoryContract::WithBytes(const PluggedLd& ld, size_t bytes,
                                   const std::function<void(uint64_t*)>& use) {
  const absl::Status bound = Bind(ld, DaxDriver::kDeviceDax);
  ASSERT_TRUE(bound.ok()) << bound;
  {
    const absl::StatusOr<OpenedDax> fd = rig_->memory().OpenDax(ld.serial, false);
    ASSERT_TRUE(fd.ok()) << fd.status();
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd->fd.get(),
                      static_cast<off_t>(fd->offset_bytes));
    ASSERT_NE(at, MAP_FAILED);
    use(static_cast<uint64_t*>(at));
    ::munmap(at, bytes);
  }
  const absl::Status unbound = Unbind(ld);
  ASSERT_TRUE(unbound.ok()) << unbound;
}

ObservedHostRegion HostMemoryContract::Region(const PluggedLd& ld) {
  const HostObservation host = Observe();
  const ObservedHostRegion* region = FindHostRegion(host, ld.serial);
  EXPECT_NE(region, nullptr);
  return region == nullptr ? ObservedHostRegion() : *region;
}

ObservedBridge HostMemoryContract::Bridge(const std::string& name) {
  const HostObservation host = Observe();
  const ObservedBridge* bridge = FindBridge(host, name);
  EXPECT_NE(bridge, nullptr) << name;
  return bridge == nullptr ? ObservedBridge() : *bridge;
}

bool HostMemoryContract::HasMemdev(const PluggedLd& ld) {
  const HostObservation host = Observe();
  return FindMemdev(host, ld.serial) != nullptr;
}

bool HostMemoryContract::HasRegion(const PluggedLd& ld) {
  const HostObservation host = Observe();
  return FindHostRegion(host, ld.serial) != nullptr;
}

TEST_P(HostMemoryContract, ShowsItsHostBridges) {
  const HostObservation host = Observe();
  ASSERT_FALSE(host.bridges.empty());
  EXPECT_GT(host.memory_block_bytes, 0u);
  EXPECT_GT(host.region_granule_bytes, 0u);
  for (const ObservedBridge& bridge : host.bridges) {
    EXPECT_FALSE(bridge.name.empty());
    EXPECT_GT(bridge.max_regions, 0u);
    EXPECT_GT(bridge.window_bytes, 0u);
    EXPECT_LE(bridge.free_window_bytes, bridge.window_bytes);
    EXPECT_LE(bridge.live_regions, bridge.max_regions);
  }
}

TEST_P(HostMemoryContract, PowersOnByTheSerialItWasTold) {
  PluggedLd ld;
  if (!Take(0, ld)) return;
  const HostObservation host = Observe();
  const ObservedMemdev* memdev = FindMemdev(host, ld.serial);
  ASSERT_NE(memdev, nullptr);
  EXPECT_EQ(memdev->slot, ld.slot);
  EXPECT_EQ(memdev->host_bridge, ld.host_bridge);
  EXPECT_GT(memdev->size_bytes, 0u);
  EXPECT_FALSE(memdev->name.empty());
  const std::vector<uint32_t> slots = Bridge(ld.host_bridge).slots;
  EXPECT_NE(std::find(slots.begin(), slots.end(), ld.slot), slots.end());
  EXPECT_TRUE(PowerOn(ld).ok());  // Again: the same.

  PluggedLd other = ld;
  other.serial ^= 0x5555;
  const absl::Status late = PowerOn(other);
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  EXPECT_EQ(ReasonOf(late), "MEMDEV_TIMEOUT");
  EXPECT_TRUE(HasMemdev(ld));
}

TEST_P(HostMemoryContract, MakesAHostRegionThatNoDriverHas) {
  PluggedLd ld;
  if (!Take(0, ld)) return;
  const ObservedBridge before = Bridge(ld.host_bridge);
  absl::Status made = Create(ld);
  ASSERT_TRUE(made.ok()) << made;
  const ObservedHostRegion region = Region(ld);
  EXPECT_TRUE(region.committed);
  EXPECT_EQ(region.serials, std::vector<uint64_t>{ld.serial});
  EXPECT_EQ(region.dax_driver, DaxDriver::kNone);
  EXPECT_FALSE(region.dax_device.empty());
  EXPECT_FALSE(region.name.empty());
  EXPECT_GT(region.hpa_bytes, 0u);
  const ObservedBridge after = Bridge(ld.host_bridge);
  EXPECT_EQ(after.live_regions, before.live_regions + 1);
  EXPECT_EQ(after.free_window_bytes, before.free_window_bytes - region.size_bytes);
  EXPECT_TRUE(Create(ld).ok());  // Again: the same.
  EXPECT_EQ(Bridge(ld.host_bridge).live_regions, after.live_regions);

  EXPECT_TRUE(Destroy(ld).ok());
  EXPECT_FALSE(HasRegion(ld));
  EXPECT_TRUE(HasMemdev(ld));
  EXPECT_TRUE(Destroy(ld).ok());
  EXPECT_EQ(Bridge(ld.host_bridge).live_regions, before.live_regions);
}

TEST_P(HostMemoryContract, GivesDevdaxDescriptorsOfTheBytes) {
  PluggedLd ld;
  if (!Take(0, ld)) return;
  ASSERT_TRUE(Create(ld).ok());
  const absl::StatusOr<OpenedDax> early = rig_->memory().OpenDax(ld.serial, true);
  EXPECT_EQ(early.status().code(), absl::StatusCode::kFailedPrecondition) << early.status();
  const absl::Status bound = Bind(ld, DaxDriver::kDeviceDax);
  ASSERT_TRUE(bound.ok()) << bound;
  EXPECT_EQ(Region(ld).dax_driver, DaxDriver::kDeviceDax);
  EXPECT_TRUE(Bind(ld, DaxDriver::kDeviceDax).ok());
  EXPECT_GT(Region(ld).dax_align_bytes, 0u);

  {
    absl::StatusOr<OpenedDax> writer = rig_->memory().OpenDax(ld.serial, false);
    ASSERT_TRUE(writer.ok()) << writer.status();
    absl::StatusOr<OpenedDax> reader = rig_->memory().OpenDax(ld.serial, true);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(::fcntl(reader->fd.get(), F_GETFL) & O_ACCMODE, O_RDONLY);
    EXPECT_NE(::fcntl(reader->fd.get(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_EQ(::mmap(nullptr, kMapBytes, PROT_READ | PROT_WRITE, MAP_SHARED, reader->fd.get(),
                     static_cast<off_t>(reader->offset_bytes)),
              MAP_FAILED);
    EXPECT_EQ(errno, EACCES);
    // A node, where there is one, is what was opened, and all of it is the host region.
    struct stat opened = {};
    struct stat named = {};
    EXPECT_EQ(::fstat(reader->fd.get(), &opened), 0);
    EXPECT_EQ(reader->node, writer->node);
    if (!reader->node.empty()) {
      EXPECT_EQ(reader->node.front(), '/');
      EXPECT_EQ(reader->offset_bytes, 0u);
      EXPECT_EQ(::stat(reader->node.c_str(), &named), 0) << reader->node;
      EXPECT_EQ(named.st_ino, opened.st_ino);
      EXPECT_EQ(named.st_dev, opened.st_dev);
    }
    void* out = ::mmap(nullptr, kMapBytes, PROT_READ | PROT_WRITE, MAP_SHARED, writer->fd.get(),
                       static_cast<off_t>(writer->offset_bytes));
    void* in = ::mmap(nullptr, kMapBytes, PROT_READ, MAP_SHARED, reader->fd.get(),
                      static_cast<off_t>(reader->offset_bytes));
    ASSERT_NE(out, MAP_FAILED);
    ASSERT_NE(in, MAP_FAILED);
    std::memset(out, 0xA5, kMapBytes);
    EXPECT_EQ(std::memcmp(out, in, kMapBytes), 0);
    std::memset(out, 0, kMapBytes);
    ::munmap(out, kMapBytes);
    ::munmap(in, kMapBytes);
  }
  EXPECT_TRUE(Unbind(ld).ok());
  EXPECT_EQ(Region(ld).dax_driver, DaxDriver::kNone);
  EXPECT_TRUE(Unbind(ld).ok());
  EXPECT_TRUE(Destroy(ld).ok());
}

TEST_P(HostMemoryContract, FindsWhoHasItMappedAndNotItself) {
  PluggedLd ld;
  if (!Take(0, ld)) return;
  ASSERT_TRUE(Create(ld).ok());
  ASSERT_TRUE(Bind(ld, DaxDriver::kDeviceDax).ok());
  absl::StatusOr<OpenedDax> fd = rig_->memory().OpenDax(ld.serial, true);
  ASSERT_TRUE(fd.ok()) << fd.status();
  {
    const Mapper mapper(fd->fd.get(), fd->offset_bytes);
    ASSERT_TRUE(mapper.mapped());
    EXPECT_EQ(Holders(ld.serial), std::vector<int>{mapper.pid()});
  }
  EXPECT_EQ(Holders(ld.serial), std::vector<int>());
}

TEST_P(HostMemoryContract, SystemRamGoesOnlineAndOffline) {
  PluggedLd ld;
  if (!Take(0, ld)) return;
  ASSERT_TRUE(Create(ld).ok());
  absl::Status status = Bind(ld, DaxDriver::kKmem);
  ASSERT_TRUE(status.ok()) << status;
  ObservedHostRegion region = Region(ld);
  EXPECT_EQ(region.dax_driver, DaxDriver::kKmem);
  EXPECT_EQ(region.online_blocks, 0u);  // Nobody but the agent brings it online.
  EXPECT_EQ(region.total_blocks, region.size_bytes / Observe().memory_block_bytes);

  auto online = [&](HostMemory& m, Done done) {
    m.OnlineBlocks(ld.serial, MemoryZone::kMovable, std::move(done));
  };
  auto offline = [&](HostMemory& m, Done done) {
    m.OfflineBlocks(ld.serial, kOfflinePatience, std::move(done));
  };
  status = Do(online);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(Do(online).ok());
  region = Region(ld);
  EXPECT_EQ(region.online_blocks, region.total_blocks);
  EXPECT_TRUE(region.all_movable);
  EXPECT_TRUE(region.numa_node.has_value());

  // The kernel would say success to these, and be broken.
  status = Unbind(ld);
  EXPECT_EQ(ReasonOf(status), "BLOCKS_BUSY") << status;
  status = Destroy(ld);
  EXPECT_EQ(ReasonOf(status), "DAX_BOUND") << status;
  EXPECT_EQ(Region(ld).online_blocks, region.total_blocks);

  status = Do(offline);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(Do(offline).ok());
  EXPECT_EQ(Region(ld).online_blocks, 0u);
  EXPECT_TRUE(Unbind(ld).ok());
  EXPECT_TRUE(Destroy(ld).ok());
}

TEST_P(HostMemoryContract, ChangesTheDriverOnlyThroughUnbind) {
  PluggedLd ld;
  if (!Take(0, ld)) return;
  ASSERT_TRUE(Create(ld).ok());
  ASSERT_TRUE(Bind(ld, DaxDriver::kDeviceDax).ok());
  EXPECT_EQ(ReasonOf(Bind(ld, DaxDriver::kKmem)), "DAX_BOUND");
  EXPECT_EQ(Region(ld).dax_driver, DaxDriver::kDeviceDax);
  ASSERT_TRUE(Unbind(ld).ok());
  EXPECT_TRUE(Bind(ld, DaxDriver::kKmem).ok());
  EXPECT_EQ(Region(ld).dax_driver, DaxDriver::kKmem);
}

TEST_P(HostMemoryContract, DestroyIsRefusedWhileADriverHasIt) {
  PluggedLd ld;
  if (!Take(0, ld)) return;
  ASSERT_TRUE(Create(ld).ok());
  ASSERT_TRUE(Bind(ld, DaxDriver::kDeviceDax).ok());
  const absl::Status status = Destroy(ld);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "DAX_BOUND");
  EXPECT_TRUE(Region(ld).committed);
}

TEST_P(HostMemoryContract, ARestartedAgentFindsWhatIsThere) {
  PluggedLd ld;
  if (!Take(0, ld)) return;
  ASSERT_TRUE(Create(ld).ok());
  ASSERT_TRUE(Bind(ld, DaxDriver::kDeviceDax).ok());
  const ObservedHostRegion before = Region(ld);
  rig_->Restart();
  ASSERT_TRUE(Do([](HostMemory& m, Done done) { m.Prepare(std::move(done)); }).ok());
  const ObservedHostRegion after = Region(ld);
  EXPECT_EQ(after.name, before.name);
  EXPECT_EQ(after.hpa_bytes, before.hpa_bytes);
  EXPECT_EQ(after.dax_device, before.dax_device);
  EXPECT_EQ(after.dax_driver, DaxDriver::kDeviceDax);
  EXPECT_TRUE(rig_->memory().OpenDax(ld.serial, true).ok());
}

TEST_P(HostMemoryContract, DecodersOfABridgeAreAStack) {
  if (!rig_->HasStacks()) GTEST_SKIP() << "no decoder stacks here";
  PluggedLd bottom;
  PluggedLd top;
  if (!Take(0, bottom) || !Take(0, top)) return;
  ASSERT_TRUE(Create(bottom).ok());
  ASSERT_TRUE(Create(top).ok());
  EXPECT_LT(Region(bottom).hpa_bytes, Region(top).hpa_bytes);
  EXPECT_FALSE(Bridge(top.host_bridge).blocked);
  EXPECT_EQ(Bridge(top.host_bridge).blocking_serial, top.serial);

  ASSERT_TRUE(Destroy(bottom).ok());
  EXPECT_TRUE(Bridge(top.host_bridge).blocked);
  EXPECT_EQ(Bridge(top.host_bridge).blocking_serial, top.serial);
  const absl::Status refused = Create(bottom);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(refused), "BRIDGE_BLOCKED");
  EXPECT_FALSE(HasRegion(bottom));

  ASSERT_TRUE(Destroy(top).ok());
  EXPECT_FALSE(Bridge(top.host_bridge).blocked);
  EXPECT_TRUE(Create(bottom).ok());
  EXPECT_TRUE(Destroy(bottom).ok());
}

TEST_P(HostMemoryContract, ABlockedBridgeLeavesOthersAlone) {
  if (!rig_->HasStacks()) GTEST_SKIP() << "no decoder stacks here";
  PluggedLd bottom;
  PluggedLd top;
  PluggedLd elsewhere;
  if (!Take(0, bottom) || !Take(0, top) || !Take(1, elsewhere)) return;
  ASSERT_TRUE(Create(bottom).ok());
  ASSERT_TRUE(Create(top).ok());
  ASSERT_TRUE(Destroy(bottom).ok());
  EXPECT_FALSE(Bridge(elsewhere.host_bridge).blocked);
  EXPECT_TRUE(Create(elsewhere).ok());
  EXPECT_TRUE(Destroy(elsewhere).ok());
}

TEST_P(HostMemoryContract, TakesNoMoreRegionsThanDecoders) {
  if (!rig_->HasStacks()) GTEST_SKIP() << "no decoder stacks here";
  std::vector<PluggedLd> lds(Observe().bridges.at(0).max_regions + 1);
  for (PluggedLd& ld : lds) {
    if (!Take(0, ld)) return;
  }
  const PluggedLd last = lds.back();
  lds.pop_back();
  for (const PluggedLd& ld : lds) ASSERT_TRUE(Create(ld).ok());
  EXPECT_EQ(ReasonOf(Create(last)), "DECODERS_FULL");
  ASSERT_TRUE(Destroy(lds.back()).ok());
  EXPECT_TRUE(Create(last).ok());
}

TEST_P(HostMemoryContract, MakesOneHostRegionOfAnInterleaveSet) {
  const std::vector<PluggedLd> set = TakeSet(2);
  if (set.empty()) return;
  if (!rig_->CanInterleave()) return RefusesToInterleave(set);
  const ObservedBridge before = Bridge(set[0].host_bridge);
  const HostRegionSpec spec = SpecOver(set, 512);
  const absl::Status made = CreateOver(spec);
  ASSERT_TRUE(made.ok()) << made;
  const ObservedHostRegion region = Region(set[0]);
  EXPECT_TRUE(region.committed);
  EXPECT_EQ(region.serials, spec.serials);
  EXPECT_EQ(region.size_bytes, spec.size_bytes);
  EXPECT_EQ(region.interleave_granularity_bytes, 512u);
  EXPECT_EQ(region.dax_driver, DaxDriver::kNone);
  EXPECT_EQ(Region(set[1]).name, region.name);
  const ObservedBridge after = Bridge(set[0].host_bridge);
  EXPECT_EQ(after.live_regions, before.live_regions + 1);  // The set is one decoder of the bridge.
  EXPECT_EQ(after.free_window_bytes, before.free_window_bytes - region.size_bytes);
  EXPECT_FALSE(after.blocked);

  EXPECT_TRUE(CreateOver(spec).ok());  // Again: the same.
  EXPECT_EQ(ReasonOf(CreateOver(SpecOver(set, 256))), "OTHER_REGION");
  for (const PluggedLd& ld : set) EXPECT_EQ(ReasonOf(PowerOff(ld)), "REGION_LIVE");
  EXPECT_TRUE(Destroy(set[1]).ok());  // By any of its targets.
  EXPECT_FALSE(HasRegion(set[0]));
  EXPECT_FALSE(HasRegion(set[1]));
  EXPECT_EQ(Bridge(set[0].host_bridge).live_regions, before.live_regions);
  EXPECT_TRUE(Destroy(set[0]).ok());
}

// What is stored through the set is then looked for in each target by itself.
TEST_P(HostMemoryContract, StripesGoToTheTargetsInTurn) {
  if (!rig_->CanInterleave()) GTEST_SKIP() << "this adapter does not interleave";
  const std::vector<PluggedLd> set = TakeSet(4);
  if (set.empty()) return;
  struct Shape {
    size_t ways;
    uint32_t granularity_bytes;
  };
  for (const Shape& shape : {Shape{2, 256}, Shape{2, 16384}, Shape{4, 256}, Shape{4, 4096}}) {
    SCOPED_TRACE(testing::Message() << shape.ways << " ways, " << shape.granularity_bytes);
    const std::vector<PluggedLd> targets(set.begin(), set.begin() + shape.ways);
    const absl::Status made = CreateOver(SpecOver(targets, shape.granularity_bytes));
    ASSERT_TRUE(made.ok()) << made;
    const size_t words = kMapBytes * shape.ways / sizeof(uint64_t);
    const uint64_t seed = uint64_t{shape.granularity_bytes} << 40 | shape.ways << 32;
    WithBytes(targets[0], kMapBytes * shape.ways, [&](uint64_t* at) {
      for (size_t i = 0; i < words; ++i) at[i] = seed + i;
    });
    ASSERT_TRUE(Destroy(targets[0]).ok());

    const size_t stripe = shape.granularity_bytes / sizeof(uint64_t);
    for (size_t t = 0; t < shape.ways; ++t) {
      ASSERT_TRUE(Create(targets[t]).ok());
      size_t wrong = 0;
      WithBytes(targets[t], kMapBytes, [&](uint64_t* at) {
        for (size_t i = 0; i < kMapBytes / sizeof(uint64_t); ++i) {
          wrong += at[i] != seed + (i / stripe * shape.ways + t) * stripe + i % stripe;
        }
        std::memset(at, 0, kMapBytes);
      });
      EXPECT_EQ(wrong, 0u) << "target " << t;
      ASSERT_TRUE(Destroy(targets[t]).ok());
    }
  }
}

TEST_P(HostMemoryContract, PowerOffTakesTheMemdevAwayForGood) {
  PluggedLd ld;
  if (!Take(0, ld)) return;
  ASSERT_TRUE(Create(ld).ok());
  const absl::Status live = PowerOff(ld);
  EXPECT_EQ(live.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(live), "REGION_LIVE");
  EXPECT_TRUE(HasMemdev(ld));
  EXPECT_FALSE(rig_->ProvenUnplugged(ld));
  ASSERT_TRUE(Destroy(ld).ok());
  const absl::Status off = PowerOff(ld);
  ASSERT_TRUE(off.ok()) << off;
  EXPECT_FALSE(HasMemdev(ld));
  EXPECT_TRUE(rig_->ProvenUnplugged(ld));
  EXPECT_TRUE(PowerOff(ld).ok());
}

TEST_P(HostMemoryContract, PowerOffLeavesAnotherMemdevAlone) {
  PluggedLd ld;
  if (!Take(0, ld)) return;
  PluggedLd stale = ld;
  stale.serial ^= 0x5555;  // What was in that slot before.
  EXPECT_EQ(ReasonOf(PowerOff(stale)), "OTHER_MEMDEV");
  EXPECT_TRUE(HasMemdev(ld));
}

TEST_P(HostMemoryContract, SurpriseRemovalIsSeenAndWhatIsLeftCanBeDestroyed) {
  PluggedLd ld;
  if (!Take(0, ld)) return;
  ASSERT_TRUE(Create(ld).ok());
  if (!rig_->Yank(ld)) GTEST_SKIP() << "this rig cannot pull a LD out by surprise";
  EXPECT_FALSE(HasMemdev(ld));
  EXPECT_TRUE(Destroy(ld).ok());
  EXPECT_FALSE(HasRegion(ld));
  EXPECT_EQ(Bridge(ld.host_bridge).live_regions, 0u);
}

TEST_P(HostMemoryContract, AnInterleaveSetThatLostATargetCanBeDestroyed) {
  if (!rig_->CanInterleave()) GTEST_SKIP() << "this adapter does not interleave";
  const std::vector<PluggedLd> set = TakeSet(2);
  if (set.empty()) return;
  ASSERT_TRUE(CreateOver(SpecOver(set, 256)).ok());
  if (!rig_->Yank(set[0])) GTEST_SKIP() << "this rig cannot pull a LD out by surprise";
  EXPECT_FALSE(HasMemdev(set[0]));
  EXPECT_TRUE(HasMemdev(set[1]));
  rig_->Restart();  // By an agent that did not see it made.
  EXPECT_TRUE(Destroy(set[1]).ok());
  EXPECT_FALSE(HasRegion(set[1]));
  EXPECT_EQ(Bridge(set[0].host_bridge).live_regions, 0u);
}

}  // namespace cxlpool::agent
