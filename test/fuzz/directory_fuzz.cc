// What other programs on any host may have stored into a Directory: entries, pins, names and bytes.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "libpool/src/directory_format.h"
#include "libpool/src/directory_partition.h"
#include "libpool/src/status.h"
#include "test/fuzz/fuzz_target.h"

namespace cxlpool::fuzz {
namespace {

constexpr libpool::DirectoryGeometry kTwoPartitions = {
    .partitions = 2, .pins = 8, .entries = 8, .partition_bytes = 1536};

// A host that is asked for nothing outside of the Directory.
class BoundedHost {
 public:
  // Its partitions begin with `bytes`; what is behind them is zero.
  explicit BoundedHost(const std::string& bytes)
      : words_(kTwoPartitions.TotalBytes() / libpool::kWordBytes) {
    const uint64_t begin = kTwoPartitions.OwnerAt(0);
    const uint64_t room = kTwoPartitions.TotalBytes() - begin;
    const uint64_t count = std::min<uint64_t>(bytes.size(), room);
    std::memcpy(At(begin, count), bytes.data(), count);
  }

  uint64_t Load(uint64_t at) {
    Require(at % libpool::kWordBytes == 0);
    uint64_t word = 0;
    std::memcpy(&word, At(at, sizeof(word)), sizeof(word));
    return word;
  }
  void Store(uint64_t at, uint64_t word) {
    Require(at % libpool::kWordBytes == 0);
    std::memcpy(At(at, sizeof(word)), &word, sizeof(word));
  }
  void Read(uint64_t at, void* into, uint64_t count) { std::memcpy(into, At(at, count), count); }
  void Write(uint64_t at, const void* from, uint64_t count) {
    std::memcpy(At(at, count), from, count);
  }
  void Publish(uint64_t at, uint64_t count) { At(at, count); }
  void Refresh(uint64_t at, uint64_t count) { At(at, count); }
  void Order() {}
  void Fence() {}
  template <typename Work>
  libpool::Status Guarded(const Work& work) {
    work();
    return libpool::Status();
  }

 private:
  char* At(uint64_t at, uint64_t count) {
    const uint64_t size = words_.size() * libpool::kWordBytes;
    Require(at <= size && count <= size - at);
    return reinterpret_cast<char*>(words_.data()) + at;
  }

  std::vector<uint64_t> words_;
};

using BoundedMemory = libpool::DirectoryMemory<BoundedHost>;

// Where an entry's checksum is 0 it becomes the right one, and a name's hash that of `name`: no
// fuzzer would find their 64 bits.
void SealEntries(BoundedHost& host, const BoundedMemory& memory, const libpool::ObjectName& name) {
  for (uint32_t partition = 0; partition < kTwoPartitions.partitions; ++partition) {
    for (uint32_t slot = 0; slot < kTwoPartitions.entries; ++slot) {
      const uint64_t at = kTwoPartitions.EntryAt(partition, slot);
      const uint64_t hash_at = at + 1 * libpool::kWordBytes;
      const uint64_t check_at = at + 6 * libpool::kWordBytes;
      if (host.Load(check_at) != 0) continue;
      if (host.Load(hash_at) == 0) host.Store(hash_at, name.hash);
      libpool::Entry entry;
      (void)memory.LoadEntry(partition, slot, entry);
      host.Store(check_at, entry.check());
    }
  }
}

// Each byte of the heap is free, an object's, or a removed one's.
void RequireCounted(const libpool::PartitionStats& stats) {
  Require(stats.free_bytes + stats.object_bytes + stats.retired_bytes ==
          kTwoPartitions.HeapBytes());
}

// A reader finds what lies in the heap or nothing; then the partition gets another owner, who puts
// and removes an object.
CXLPOOL_FUZZ(directory) {
  BoundedHost host(bytes);
  const BoundedMemory memory(&host, kTwoPartitions);
  const libpool::ObjectName name("kv");
  SealEntries(host, memory, name);
  for (uint32_t partition = 0; partition < kTwoPartitions.partitions; ++partition) {
    libpool::FoundObject found;
    if (memory.Find(partition, name, found) != libpool::ReadResult::kOk) continue;
    Require(memory.IsInHeap(partition, found.entry));
    std::string copy(found.entry.size_bytes, '\0');
    (void)memory.Read(found, name, copy.data(), copy.size());
    if (memory.Pin(1, 7, found)) memory.Unpin(1, 7);
  }

  libpool::DirectoryPartition<BoundedHost> partition(&host, kTwoPartitions, 0);
  Require(partition.Recover().ok());
  RequireCounted(partition.Stats());
  libpool::Entry entry;
  libpool::WriteResult result = libpool::WriteResult::kNotFound;
  Require(partition.Begin(name, 100, entry, result).ok());
  if (result == libpool::WriteResult::kOk) {
    Require(memory.IsInHeap(0, entry));
    Require(partition.Seal(name, entry, result).ok());
    if (result != libpool::WriteResult::kOk) partition.Abandon(entry);
  }
  Require(partition.Remove(name, result).ok());
  RequireCounted(partition.Stats());
}

}  // namespace
}  // namespace cxlpool::fuzz
