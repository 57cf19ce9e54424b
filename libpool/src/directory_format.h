// How a Directory lies in a Region, and the steps by which hosts read and write it.
//
//   superblock | partition 0 | partition 1 | ...
//   a partition: owner line | pins | entries | heap
//
// Each partition has one owner: the process that stores to it, and no other does. An object is a
// name and bytes in the heap, and an entry that points at it. An entry is one cache line. It goes
//
//   EMPTY -> READY -> RETIRED -> READY (another object) or EMPTY
//
// and a generation, which no other object of the partition ever has, stands in the same word as the
// state. So a reader who finds that word as it was knows that nothing between was changed.
//
// A pin is a word in the reader's own partition: "this object is being looked at". The owner of an
// object retires it first and looks at the pins then; the reader pins first and looks at the entry
// then. One of the two sees the other.
//
// Why the steps are enough where nothing keeps caches coherent is the subject of
// docs/libpool.md, "Between hosts"; directory_model_test.cc tries them on caches that do the worst.
//
// All words are little-endian, and at multiples of 8. Offsets ("at") count from the superblock.
//
// `Host` is how memory is reached:
//   uint64_t Load(at), Store(at, word)        one word
//   Read(at, into, n), Write(at, from, n)     many bytes, in any order
//   Publish(at, n), Refresh(at, n)            as cxlpool_publish and cxlpool_refresh
//   Order()                                   stores before it are seen before those after it
//   Fence()                                   nothing passes it, in neither direction
// A Host is not asked for memory outside of the Directory. Nothing here allocates, locks, or has a
// destructor, so that it may be left by longjmp (bus_guard.h).
#ifndef CXLPOOL_LIBPOOL_SRC_DIRECTORY_FORMAT_H_
#define CXLPOOL_LIBPOOL_SRC_DIRECTORY_FORMAT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "libpool/src/crc32c.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {

constexpr uint64_t kEntryBytes = 64;  // A cache line.
constexpr uint64_t kWordBytes = 8;
constexpr uint64_t kDirectoryAlign = 4096;  // Of partitions.
constexpr uint32_t kMaxObjectName = 1023;
constexpr uint32_t kMaxPartitions = 1024;
constexpr uint32_t kMaxPins = 1 << 16;     // Of a partition.
constexpr uint32_t kMaxEntries = 1 << 28;  // Of a partition.
// An object's entry is one of so many that follow the place its name says.
constexpr uint32_t kEntryWindow = 128;
// Times that a reader begins again because an object changed under it.
constexpr int kReadTries = 64;
// More objects than any partition sees: a pin has 48 bits of a generation.
constexpr uint64_t kMaxGeneration = uint64_t{1} << 47;

constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Spreads the bits of `value`: some names and lines differ only in their first or last bytes.
constexpr uint64_t Mix(uint64_t value) {
  value ^= value >> 30;
  value *= 0xbf58476d1ce4e5b9;
  value ^= value >> 27;
  value *= 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

struct DirectoryGeometry {
  uint32_t partitions = 0;
  uint32_t pins = 0;             // Of each partition; a multiple of 8: whole lines.
  uint32_t entries = 0;          // Of each partition; a power of two.
  uint64_t partition_bytes = 0;  // A multiple of kDirectoryAlign.

  uint64_t OwnerAt(uint32_t partition) const {
    return kDirectoryAlign + partition * partition_bytes;
  }
  uint64_t PinAt(uint32_t partition, uint32_t pin) const {
    return OwnerAt(partition) + kEntryBytes + pin * kWordBytes;
  }
  uint64_t EntryAt(uint32_t partition, uint32_t slot) const {
    return PinAt(partition, pins) + uint64_t{slot} * kEntryBytes;
  }
  uint64_t HeapAt(uint32_t partition) const { return EntryAt(partition, entries); }
  uint64_t HeapBytes() const { return partition_bytes - (HeapAt(0) - OwnerAt(0)); }
  uint64_t TotalBytes() const { return kDirectoryAlign + partitions * partition_bytes; }

  friend bool operator==(const DirectoryGeometry&, const DirectoryGeometry&) = default;
};

// An object's name as it is stored: whole words, zero behind the last byte.
struct ObjectName {
  explicit ObjectName(std::string_view text) : bytes(static_cast<uint32_t>(text.size())) {
    std::memcpy(words, text.data(), text.size());
    hash = Mix(bytes);
    for (uint32_t i = 0; i < WordCount(); ++i) hash = Mix(hash ^ words[i]);
  }
  uint32_t WordCount() const {
    return static_cast<uint32_t>(RoundUp(bytes, kWordBytes) / kWordBytes);
  }

  uint64_t words[(kMaxObjectName + 1) / kWordBytes] = {};
  uint32_t bytes = 0;  // At most kMaxObjectName.
  uint64_t hash = 0;
};

enum class EntryState : uint8_t { kEmpty = 0, kReady = 1, kRetired = 2 };

// The line of an object. In the Region: head, name_hash, object_at, size_bytes, name_bytes and
// has_crc, crc, check; the last word is 0.
struct Entry {
  uint64_t head = 0;  // generation << 8 | state
  uint64_t name_hash = 0;
  uint64_t object_at = 0;   // Its name begins here, its bytes behind it at the next line.
  uint64_t size_bytes = 0;  // Of the bytes.
  uint32_t name_bytes = 0;
  bool has_crc = false;
  uint32_t crc = 0;  // CRC-32C of name (in whole words) and bytes.

  EntryState state() const { return static_cast<EntryState>(head & 0xff); }
  uint64_t generation() const { return head >> 8; }
  uint64_t bytes_at() const { return object_at + NameSpan(name_bytes); }
  uint64_t span() const { return SpanOf(name_bytes, size_bytes); }
  // A checksum of everything except the state.
  uint64_t check() const {
    return Mix(Mix(Mix(Mix(generation() ^ name_hash) ^ object_at) ^ size_bytes) ^ name_bytes ^
               (uint64_t{crc} << 32) ^ (has_crc ? 1u << 31 : 0));
  }

  static uint64_t Head(uint64_t generation, EntryState state) {
    return generation << 8 | static_cast<uint8_t>(state);
  }
  static uint64_t NameSpan(uint32_t name_bytes) { return RoundUp(name_bytes, kEntryBytes); }
  // What an object takes of the heap.
  static uint64_t SpanOf(uint32_t name_bytes, uint64_t size_bytes) {
    return NameSpan(name_bytes) + RoundUp(size_bytes, kEntryBytes);
  }
};

// An object of a partition, in one word: what a pin says. Never 0.
constexpr uint64_t PinOf(uint32_t partition, uint64_t generation) {
  return generation << 16 | (partition + 1);
}

enum class ReadResult {
  kOk,
  kNotFound,
  kTooLarge,    // For the room that was given; `found` says how large.
  kChanging,    // It was replaced each time it was looked at.
  kNotVisible,  // Its bytes are not those that were sealed: they are not to be seen here (yet).
};

// An object that was found, as its entry was.
struct FoundObject {
  uint32_t partition = 0;
  uint32_t slot = 0;
  Entry entry = {};
};

// The steps on a Directory's memory, for all that use it. Any thread; each says who may call it.
// Copies share the Host.
template <typename Host>
class DirectoryMemory {
 public:
  DirectoryMemory(Host* host, const DirectoryGeometry& geometry)
      : host_(host), geometry_(geometry) {}

  const DirectoryGeometry& geometry() const { return geometry_; }
  Host& host() const { return *host_; }

  // ---- Readers ----

  // The newest object of that name in a partition. kNotFound: at one moment of this call there was
  // none. kChanging: entries changed each time they were looked at.
  ReadResult Find(uint32_t partition, const ObjectName& name, FoundObject& found) const {
    ReadResult result = ReadResult::kChanging;
    for (int i = 0; i < kReadTries && result == ReadResult::kChanging; ++i) {
      result = TryFind(partition, name, found);
    }
    return result;
  }

  // Whether the entry is still the one that was found.
  bool IsUnchanged(uint32_t partition, uint32_t slot, uint64_t head) const {
    const uint64_t at = geometry_.EntryAt(partition, slot);
    host_->Refresh(at, kEntryBytes);
    return host_->Load(at) == head || CXLPOOL_MUTANT("entry-not-looked-at-again");
  }

  // Copies an object. It pins nothing: what was copied is compared with the entry afterwards, and
  // thrown away where that has changed. `found`: as Find filled it.
  ReadResult Read(const FoundObject& found, const ObjectName& name, void* into,
                  uint64_t room_bytes) const {
    const Entry& entry = found.entry;
    if (entry.size_bytes > room_bytes) return ReadResult::kTooLarge;
    if (!CXLPOOL_MUTANT("payload-not-refreshed")) {
      host_->Refresh(entry.bytes_at(), entry.size_bytes);
    }
    host_->Read(entry.bytes_at(), into, entry.size_bytes);
    if (!IsUnchanged(found.partition, found.slot, entry.head)) return ReadResult::kChanging;
    if (!entry.has_crc) return ReadResult::kOk;
    const uint32_t crc = Crc32c(NameCrc(name), into, entry.size_bytes);
    return crc == entry.crc ? ReadResult::kOk : ReadResult::kNotVisible;
  }

  // The same for an object in place, which the caller has pinned.
  ReadResult Look(const FoundObject& found, const ObjectName& name, const void* bytes) const {
    const Entry& entry = found.entry;
    host_->Refresh(entry.bytes_at(), entry.size_bytes);
    if (!entry.has_crc) return ReadResult::kOk;
    const uint32_t crc = Crc32c(NameCrc(name), bytes, entry.size_bytes);
    return crc == entry.crc ? ReadResult::kOk : ReadResult::kNotVisible;
  }

  // Announces that an object is looked at, in pin `pin` of partition `own`, whose owner calls this.
  // False: it is no longer there, and nothing is announced.
  bool Pin(uint32_t own, uint32_t pin, const FoundObject& found) const {
    const uint64_t at = geometry_.PinAt(own, pin);
    host_->Store(at, PinOf(found.partition, found.entry.generation()));
    host_->Publish(at, kWordBytes);
    if (!CXLPOOL_MUTANT("pin-not-fenced")) Settle(at);
    if (CXLPOOL_MUTANT("pin-is-believed") ||
        IsUnchanged(found.partition, found.slot, found.entry.head)) {
      return true;
    }
    Unpin(own, pin);
    return false;
  }

  void Unpin(uint32_t own, uint32_t pin) const {
    const uint64_t at = geometry_.PinAt(own, pin);
    host_->Order();  // What was looked at was looked at before.
    host_->Store(at, 0);
    host_->Publish(at, kWordBytes);
  }

  // ---- The owner of a partition ----

  // False: what stands there is no entry as an owner stored it, or changes while it is read. Of one
  // that is empty only the head counts.
  bool LoadEntry(uint32_t partition, uint32_t slot, Entry& entry) const {
    const uint64_t at = geometry_.EntryAt(partition, slot);
    entry.head = host_->Load(at);
    host_->Order();
    entry.name_hash = host_->Load(at + 1 * kWordBytes);
    entry.object_at = host_->Load(at + 2 * kWordBytes);
    entry.size_bytes = host_->Load(at + 3 * kWordBytes);
    const uint64_t lengths = host_->Load(at + 4 * kWordBytes);
    entry.name_bytes = static_cast<uint32_t>(lengths);
    entry.has_crc = lengths >> 32 != 0;
    entry.crc = static_cast<uint32_t>(host_->Load(at + 5 * kWordBytes));
    const uint64_t check = host_->Load(at + 6 * kWordBytes);
    if (entry.state() == EntryState::kEmpty) return entry.generation() <= kMaxGeneration;
    // For a retired one too it distinguishes half of what was to be there next from what was there.
    return (check == entry.check() || CXLPOOL_MUTANT("ready-before-the-fields")) &&
           entry.state() <= EntryState::kRetired && entry.generation() <= kMaxGeneration &&
           IsInHeap(partition, entry);
  }

  // Whether an object lies where objects of the partition lie: the Region is other programs' too.
  bool IsInHeap(uint32_t partition, const Entry& entry) const {
    const uint64_t heap = geometry_.HeapAt(partition);
    return entry.name_bytes > 0 && entry.name_bytes <= kMaxObjectName &&
           entry.object_at % kEntryBytes == 0 && entry.object_at >= heap &&
           entry.size_bytes <= geometry_.HeapBytes() && entry.span() <= geometry_.HeapBytes() &&
           entry.object_at - heap <= geometry_.HeapBytes() - entry.span();
  }

  // Stores an object's name; its bytes follow later. It is not visible yet.
  void WriteName(const Entry& entry, const ObjectName& name) const {
    host_->Write(entry.object_at, name.words, name.WordCount() * kWordBytes);
  }

  // Makes an object visible whose name and bytes are stored. The slot holds none.
  void StoreEntry(uint32_t partition, uint32_t slot, const Entry& entry) const {
    const uint64_t at = geometry_.EntryAt(partition, slot);
    if (CXLPOOL_MUTANT("ready-before-the-fields")) host_->Store(at, entry.head);
    // What the entry points at is there before it points there.
    const bool one_fence = CXLPOOL_MUTANT("one-fence-for-payload-and-entry");
    if (!one_fence && !CXLPOOL_MUTANT("payload-not-published")) {
      host_->Publish(entry.object_at, entry.span());
    }
    host_->Store(at + 1 * kWordBytes, entry.name_hash);
    host_->Store(at + 2 * kWordBytes, entry.object_at);
    host_->Store(at + 3 * kWordBytes, entry.size_bytes);
    host_->Store(at + 4 * kWordBytes, entry.name_bytes | uint64_t{entry.has_crc} << 32);
    host_->Store(at + 5 * kWordBytes, entry.crc);
    host_->Store(at + 6 * kWordBytes, entry.check());
    host_->Order();
    host_->Store(at, entry.head);
    if (one_fence) host_->Publish(entry.object_at, entry.span());
    if (!CXLPOOL_MUTANT("entry-not-published")) host_->Publish(at, kEntryBytes);
  }

  // The object is found no more. Who has it pinned, or is copying it, still looks at its bytes.
  void Retire(uint32_t partition, uint32_t slot, uint64_t generation, EntryState to) const {
    const uint64_t at = geometry_.EntryAt(partition, slot);
    host_->Store(at, Entry::Head(generation, to));
    host_->Publish(at, kWordBytes);
  }

  // Whether an entry's object has that name: two names may have one hash.
  bool HasName(const Entry& entry, const ObjectName& name) const {
    if (!CXLPOOL_MUTANT("name-not-refreshed")) host_->Refresh(entry.object_at, name.bytes);
    for (uint32_t i = 0; i < name.WordCount(); ++i) {
      if (host_->Load(entry.object_at + i * kWordBytes) != name.words[i]) return false;
    }
    return true;
  }

  // Loads a partition's pins into `pins`, which has room for them.
  void LoadPins(uint32_t partition, uint64_t* pins) const {
    if (!CXLPOOL_MUTANT("pins-not-refreshed")) {
      host_->Refresh(geometry_.PinAt(partition, 0), geometry_.pins * kWordBytes);
    }
    for (uint32_t pin = 0; pin < geometry_.pins; ++pin) {
      pins[pin] = host_->Load(geometry_.PinAt(partition, pin));
    }
  }

  // What was stored to the word before is in memory before anything after it is loaded. The word is
  // fetched again, because a line that was published may be on its way to its device still.
  void Settle(uint64_t at) const {
    host_->Refresh(at, kWordBytes);
    host_->Load(at);
    host_->Fence();
  }

  static uint32_t NameCrc(const ObjectName& name) {
    return Crc32c(0, name.words, name.WordCount() * kWordBytes);
  }

 private:
  ReadResult TryFind(uint32_t partition, const ObjectName& name, FoundObject& found) const {
    found.entry = Entry();
    uint64_t heads[kEntryWindow];
    uint32_t count = 0;
    bool unseen = false;
    for (; count < Window(); ++count) {
      const uint32_t slot = SlotOf(name, count);
      Entry entry;
      host_->Refresh(geometry_.EntryAt(partition, slot), kEntryBytes);
      const bool whole = LoadEntry(partition, slot, entry);
      heads[count] = entry.head;
      if (entry.state() == EntryState::kEmpty) break;  // Nothing lies behind it.
      if (entry.state() != EntryState::kReady) continue;
      if (!whole) {
        if (!IsUnchanged(partition, slot, entry.head)) return ReadResult::kChanging;
        continue;  // It is no object: somebody else stored there.
      }
      if (entry.name_hash != name.hash || entry.name_bytes != name.bytes ||
          entry.generation() < found.entry.generation()) {
        continue;
      }
      const bool same = HasName(entry, name);
      if (!IsUnchanged(partition, slot, entry.head)) return ReadResult::kChanging;
      if (same) found = {partition, slot, entry};
      // Almost certainly it is this object, and its name is not to be seen here yet.
      if (!same && entry.has_crc) unseen = true;
    }
    if (found.entry.state() == EntryState::kReady) return ReadResult::kOk;
    if (unseen) return ReadResult::kChanging;
    // What is replaced moves to another slot, perhaps from behind to before the place that was
    // looked at. It did not where all slots are as they were.
    if (count > 0 && !CXLPOOL_MUTANT("miss-is-believed")) {
      for (uint32_t i = 0; i <= std::min(count, Window() - 1); ++i) {
        if (!IsUnchanged(partition, SlotOf(name, i), heads[i])) return ReadResult::kChanging;
      }
    }
    return ReadResult::kNotFound;
  }

  uint32_t Window() const { return std::min(geometry_.entries, kEntryWindow); }
  uint32_t SlotOf(const ObjectName& name, uint32_t i) const {
    return (static_cast<uint32_t>(name.hash) + i) & (geometry_.entries - 1);
  }

  Host* host_;
  DirectoryGeometry geometry_;
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_DIRECTORY_FORMAT_H_
