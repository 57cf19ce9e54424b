// SharedMachine on caches that nothing keeps coherent, as a processor may have them at worst.
//
// The device's memory is one array. What a host sees of it is an array of its own, its caches: a
// load finds what was there when the line last came into them, a store changes the caches alone,
// and Flush (DaxSpace) writes changed lines back and fetches all of them anew. In between any
// changed line may be written back by itself, and any other fetched again, at any moment. So a line
// that was read ahead stays old for as long as nobody flushes it, and one that was stored to may
// overwrite the memory at any later time.
//
// A seed makes a story: Regions come, are stored to, go to another host and back, and are released;
// agents restart, flushes fail half-way, and DAX devices are removed by hand under them. Every load
// is compared with what that Region's owner stored.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "host-agent/adapters/shared/file_space.h"
#include "host-agent/adapters/shared/shared_machine.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kPiece = 16384;
constexpr uint64_t kPieces = 8;  // Besides the mark's.
constexpr size_t kLine = 64;
constexpr size_t kBytes = (kPieces + 1) * kPiece;
constexpr int kHosts = 3;
constexpr uint64_t kSeeds = CXLPOOL_CACHE_MODEL_SEEDS;

// A host's caches over the memory: the file that its processes map.
class Caches {
 public:
  Caches(const std::string& path, std::vector<char>* memory)
      : path_(path), memory_(memory), fetched_(kBytes), touched_(kBytes / kLine) {
    std::ofstream(path).close();
    std::filesystem::resize_file(path, kBytes);
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    seen_ = static_cast<char*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ::close(fd);
  }
  ~Caches() { ::munmap(seen_, kBytes); }

  const std::string& path() const { return path_; }

  void WriteBack(size_t line) {
    char* const seen = seen_ + line * kLine;
    char* const fetched = fetched_.data() + line * kLine;
    if (!touched_[line] && std::memcmp(seen, fetched, kLine) == 0) return;
    touched_[line] = false;
    std::memcpy(memory_->data() + line * kLine, seen, kLine);
    std::memcpy(fetched, seen, kLine);
  }
  // Drops the line, once it is written back, and reads it ahead again.
  void Fetch(size_t line) {
    std::memcpy(seen_ + line * kLine, memory_->data() + line * kLine, kLine);
    std::memcpy(fetched_.data() + line * kLine, memory_->data() + line * kLine, kLine);
  }
  // Somebody is about to store to the whole line: it is dirty whatever is stored.
  void Touch(size_t line) { touched_[line] = true; }
  void Flush(uint64_t offset, size_t size) {
    for (size_t line = offset / kLine; line < (offset + size + kLine - 1) / kLine; ++line) {
      WriteBack(line);
      Fetch(line);
    }
  }

 private:
  const std::string path_;
  std::vector<char>* const memory_;
  char* seen_;                 // As this host's loads find it.
  std::vector<char> fetched_;  // As it came into the caches: what differs is dirty,
  std::vector<bool> touched_;  // and what was stored to without a difference.
};

class CachedSpace : public FileSpace {
 public:
  CachedSpace(Caches* caches, const std::string& pieces, int* fails)
      : FileSpace({caches->path()}, pieces, "boot-1", kPiece), caches_(caches), fails_(fails) {}
  void Flush(void*, size_t size, uint64_t offset) override { caches_->Flush(offset, size); }
  void Clear(void* data, size_t size, uint64_t offset) override {
    std::memset(data, 0, size);
    caches_->Flush(offset, size);
  }
  absl::Status Bind(const SpacePiece& piece, DaxDriver driver) override {
    if (*fails_ > 0 && --*fails_ == 0) return absl::InternalError("the kernel says EIO");
    return FileSpace::Bind(piece, driver);
  }

 private:
  Caches* const caches_;
  int* const fails_;
};

struct ModelHost {
  std::unique_ptr<Caches> caches;
  std::string pieces, grants;
  int fails = 0;  // So many Binds from now the kernel refuses one.
  std::unique_ptr<SharedMachine> machine;

  void Restart() {
    machine.reset();
    fails = 0;
    machine =
        std::make_unique<SharedMachine>(std::make_unique<CachedSpace>(caches.get(), pieces, &fails),
                                        grants, "boot-1", absl::Seconds(1));
    ASSERT_TRUE(machine->Prepare().ok());
  }
};

// What the manager and the ladder do, in their order, and what an owner remembers.
class Story {
 public:
  Story(const std::string& directory, uint64_t seed) : random_(seed), memory_(kBytes) {
    for (int h = 0; h < kHosts; ++h) {
      hosts_[h].caches = std::make_unique<Caches>(absl::StrCat(directory, "/view-", h), &memory_);
      hosts_[h].pieces = absl::StrCat(directory, "/pieces-", h);
      hosts_[h].grants = absl::StrCat(directory, "/grants-", h);
      std::filesystem::remove(hosts_[h].pieces);
      std::filesystem::remove(hosts_[h].grants);
      hosts_[h].Restart();
    }
    v1::DeviceMarkTask mark;
    mark.set_name(hosts_[0].caches->path());
    mark.mutable_mark()->set_id("mark");
    mark.mutable_mark()->set_pool("pool");
    mark.mutable_mark()->set_device("cmm-0");
    mark.mutable_mark()->set_reserved_bytes(kPiece);
    EXPECT_TRUE(hosts_[0].machine->Mark(mark).ok());
  }

  // Empty: nothing was wrong.
  std::string Run() {
    for (int step = 0; step < 30 && wrong_.empty(); ++step) Step();
    while (!regions_.empty() && wrong_.empty()) Release(0);
    return wrong_;
  }

 private:
  struct Region {
    uint64_t number = 0;  // Slot, serial.
    uint64_t at = 0;      // Granule.
    int host = 0;
    std::vector<uint64_t> lines = std::vector<uint64_t>(kPiece / kLine);  // As stored.
  };

  uint64_t Below(uint64_t n) { return random_() % n; }
  void Wrong(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

  void Step() {
    Caches& any = *hosts_[Below(kHosts)].caches;
    for (int i = 0; i < 50; ++i) {
      const size_t line = Below(kBytes / kLine);
      Below(2) == 0 ? any.WriteBack(line) : (any.WriteBack(line), any.Fetch(line));
    }
    const uint64_t kind = Below(9);
    if (kind == 0) hosts_[Below(kHosts)].Restart();
    if (kind == 1) hosts_[Below(kHosts)].fails = 1 + static_cast<int>(Below(3));
    if (kind == 2 || regions_.empty()) return Allocate();
    Region& region = regions_[Below(regions_.size())];
    if (kind == 3) return Release(static_cast<size_t>(&region - regions_.data()));
    if (kind == 4) return Move(region);
    if (kind == 5) return Vanish(region);
    Use(region);
  }

  // Each rung is tried again until it is done, as the core does it.
  template <typename Rung>
  void Insist(const char* what, ModelHost& host, Rung rung) {
    absl::Status status;
    for (int i = 0; i < 5; ++i) {
      if (status = rung(*host.machine); status.ok()) return;
      if (Below(2) == 0) host.Restart();
    }
    Wrong(absl::StrCat(what, ": ", status.ToString()));
  }

  void Up(Region& region) {
    ModelHost& host = hosts_[region.host];
    Insist("grant", host, [&](SharedMachine& machine) {
      v1::DeviceGrant grant;
      grant.set_slot(static_cast<uint32_t>(region.number));
      grant.set_serial(region.number);
      grant.set_device("cmm-0");
      grant.set_mark("mark");
      grant.set_dpa_bytes(region.at * kPiece);
      grant.set_length_bytes(kPiece);
      return machine.Grant(grant);
    });
    // As the agent's plan: while what is seen is not a committed host region, one is made.
    Insist("create", host, [&](SharedMachine& machine) {
      const auto seen = machine.Observe();
      if (!seen.ok()) return seen.status();
      for (const ObservedHostRegion& made : seen->regions) {
        if (made.serials[0] == region.number && made.committed) return absl::OkStatus();
      }
      HostRegionSpec spec;
      spec.serials = {region.number};
      spec.size_bytes = kPiece;
      return machine.CreateHostRegion(spec);
    });
    Insist("bind", host, [&](SharedMachine& machine) {
      const auto piece = machine.PieceOf(region.number);
      if (!piece.ok()) return piece.status();
      const absl::Status bound = machine.space().Bind(*piece, DaxDriver::kDeviceDax);
      return bound.ok() ? machine.Observe().status() : bound;
    });
  }

  void Down(Region& region) {
    ModelHost& host = hosts_[region.host];
    Insist("unbind", host, [&](SharedMachine& machine) {
      const auto piece = machine.PieceOf(region.number);
      return piece.ok() ? machine.space().Unbind(*piece) : absl::OkStatus();
    });
    Insist("destroy", host,
           [&](SharedMachine& machine) { return machine.DestroyHostRegion(region.number); });
    Insist("power off", host, [&](SharedMachine& machine) {
      return machine.PowerOff(static_cast<uint32_t>(region.number), region.number);
    });
  }

  void Allocate() {
    std::vector<uint64_t> free;
    for (uint64_t at = 0; at < kPieces; ++at) {
      if (std::none_of(regions_.begin(), regions_.end(),
                       [&](const Region& region) { return region.at == at; })) {
        free.push_back(at);
      }
    }
    if (free.empty()) return;
    Region region;
    region.number = ++numbers_ % 1000 + 1;
    region.at = free[Below(free.size())];
    region.host = static_cast<int>(Below(kHosts));
    Up(region);
    if (!wrong_.empty()) return;
    Compare(region, "a new Region");
    regions_.push_back(std::move(region));
  }

  void Move(Region& region) {
    Down(region);
    region.host = static_cast<int>(Below(kHosts));
    Up(region);
    if (wrong_.empty()) Compare(region, "a Region that has moved");
  }

  // Somebody removes the DAX device (daxctl destroy-device), and what its owner stored is still in
  // the caches.
  void Vanish(Region& region) {
    DaxSpace& space = hosts_[region.host].machine->space();
    const auto piece = hosts_[region.host].machine->PieceOf(region.number);
    if (!piece.ok()) return Wrong(absl::StrCat("vanish: ", piece.status().ToString()));
    if (!space.Unbind(*piece).ok() || !space.Uncarve(*piece).ok()) return Wrong("it stays");
    const uint64_t then = Below(3);
    if (then == 0) return Move(region);
    if (then == 1) {
      Up(region);
      if (wrong_.empty()) Compare(region, "a Region whose DAX device was made anew");
      return;
    }
    Free(static_cast<size_t>(&region - regions_.data()));
  }

  void Release(size_t index) {
    Compare(regions_[index], "a Region before its release");
    Free(index);
  }

  void Free(size_t index) {
    Region region = regions_[index];
    Down(region);
    if (!wrong_.empty()) return;
    const int clears = static_cast<int>(Below(kHosts));
    v1::DeviceClearTask task;
    task.set_device("cmm-0");
    task.set_mark("mark");
    task.set_dpa_bytes(region.at * kPiece);
    task.set_length_bytes(kPiece);
    Insist("clear", hosts_[clears], [&](SharedMachine& machine) {
      const size_t first = (region.at + 1) * kPiece / kLine;
      for (size_t i = 0; i < kPiece / kLine; ++i) hosts_[clears].caches->Touch(first + i);
      return machine.Clear(task);
    });
    task.set_only_check(true);
    Insist("check", hosts_[(clears + 1) % kHosts],
           [&](SharedMachine& machine) { return machine.Clear(task); });
    regions_.erase(regions_.begin() + static_cast<ptrdiff_t>(index));
  }

  // An application of the host: maps what it is given, loads all of it, stores some.
  template <typename Use>
  void Mapped(Region& region, Use use) {
    auto open = hosts_[region.host].machine->Open(region.number, false);
    if (!open.ok()) return Wrong(absl::StrCat("open: ", open.status().ToString()));
    void* at = ::mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED, open->fd.get(),
                      static_cast<off_t>(open->offset_bytes));
    if (at == MAP_FAILED) return Wrong("it cannot be mapped");
    use(static_cast<uint64_t*>(at));
    ::munmap(at, kPiece);
  }

  void Compare(Region& region, const char* when) {
    Mapped(region, [&](const uint64_t* words) {
      for (size_t i = 0; i < region.lines.size(); ++i) {
        const uint64_t found = words[i * kLine / sizeof(uint64_t)];
        if (found == region.lines[i]) continue;
        return Wrong(absl::StrCat(when, " on host ", region.host, ", granule ", region.at,
                                  ", line ", i, ": ", found, " where ", region.lines[i],
                                  " was stored"));
      }
    });
  }

  void Use(Region& region) {
    Compare(region, "a Region");
    Mapped(region, [&](uint64_t* words) {
      for (int i = 0; i < 20; ++i) {
        const size_t line = Below(region.lines.size());
        words[line * kLine / sizeof(uint64_t)] = region.lines[line] = ++stores_;
      }
    });
  }

  std::mt19937_64 random_;
  std::vector<char> memory_;
  ModelHost hosts_[kHosts];
  std::vector<Region> regions_;
  uint64_t numbers_ = 0;
  uint64_t stores_ = 0;
  std::string wrong_;
};

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// CXLPOOL_SEEDS: so many, from CXLPOOL_SEED on.
TEST(CacheModelTest, NobodySeesAnothersBytesOrLosesTheirOwn) {
  // In memory: a story makes some hundred small files.
  std::string pattern = "/dev/shm/cxlpool-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) {
    pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  }
  const uint64_t first = FromEnvironment("CXLPOOL_SEED", 1);
  const uint64_t count = FromEnvironment("CXLPOOL_SEEDS", first == 1 ? kSeeds : 1);
  uint64_t failed = 0;
  for (uint64_t seed = first; seed < first + count && failed == 0; ++seed) {
    const std::string wrong = Story(pattern, seed).Run();
    EXPECT_EQ(wrong, "") << "CXLPOOL_SEED=" << seed;
    failed += wrong.empty() ? 0 : 1;
  }
  std::cout << count << " seeds from " << first << ": " << failed << " failed\n";
  std::filesystem::remove_all(pattern);
}

}  // namespace
}  // namespace cxlpool::agent
