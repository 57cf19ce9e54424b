// The owner's side of one partition of a Directory: which of its heap is free, which entries hold
// what, and which objects that were removed are still looked at.
//
// All of it stands in the Region, and is read from there when a process becomes the owner: whatever
// the one before was doing when it died, an object is there whole or not at all. In DRAM is what
// makes it fast.
//
// `Host` as in directory_format.h, and:
//   Status Guarded(work)   calls `work`, which may be left at a load or store of lost bytes; then
//                          why. `work` has nothing that must be destroyed.
// Not thread-safe.
#ifndef CXLPOOL_LIBPOOL_SRC_DIRECTORY_PARTITION_H_
#define CXLPOOL_LIBPOOL_SRC_DIRECTORY_PARTITION_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "libpool/src/directory_format.h"
#include "libpool/src/free_ranges.h"
#include "libpool/src/status.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {

enum class WriteResult {
  kOk,
  kNotFound,
  kNoSpace,  // No free range is as long.
  kNoEntry,  // All entries that the name may have are taken.
};

// What a partition has, in numbers.
struct PartitionStats {
  uint64_t objects = 0;
  uint64_t object_bytes = 0;  // Of the heap, with names and rounding.
  uint64_t free_bytes = 0;    // Of the heap.
  uint64_t largest_free_bytes = 0;
  uint64_t retired = 0;  // Removed, and looked at still.
  uint64_t retired_bytes = 0;
};

template <typename Host>
class DirectoryPartition {
 public:
  DirectoryPartition(Host* host, const DirectoryGeometry& geometry, uint32_t partition)
      : memory_(host, geometry), partition_(partition), slots_(geometry.entries) {}

  // Reads what the owner before left. Its pins end, since its process no longer looks at anything
  // any more. What is not an object is retired; of two objects with one name the newer stays.
  Status Recover() {
    heap_.Give(memory_.geometry().HeapAt(partition_), memory_.geometry().HeapBytes());
    Status status = memory_.host().Guarded([this] {
      const DirectoryGeometry& geometry = memory_.geometry();
      for (uint32_t pin = 0; pin < geometry.pins; ++pin) {
        if (!CXLPOOL_MUTANT("dead-reader-keeps-its-pins")) memory_.Unpin(partition_, pin);
      }
      memory_.host().Refresh(geometry.EntryAt(partition_, 0), geometry.entries * kEntryBytes);
    });
    if (!status.ok()) return status;
    // Among removed objects only those that are pinned still have their bytes: the other entries
    // may be half of what was to be there next, or point to where something else is by now.
    if (status = LoadPins(); !status.ok()) return status;
    std::vector<uint32_t> retired;
    for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
      if (status = RecoverSlot(slot, retired); !status.ok()) return status;
    }
    // Two of them may say the same room: it is that of the later one, and who pinned the earlier
    // one pinned it after it was gone.
    std::sort(retired.begin(), retired.end(), [this](uint32_t one, uint32_t other) {
      const bool later = slots_[one].entry.generation() > slots_[other].entry.generation();
      return later != CXLPOOL_MUTANT("older-takes-the-room");
    });
    for (const uint32_t slot : retired) {
      const Entry& entry = slots_[slot].entry;
      const bool pinned = pins_.contains(PinOf(partition_, entry.generation()));
      slots_[slot].has_memory = pinned && heap_.TakeAt(entry.object_at, entry.span());
      if (slots_[slot].has_memory) retired_.push_back(slot);
    }
    // Who died before it retired what it had replaced.
    std::map<std::pair<uint64_t, uint32_t>, uint32_t> newest;
    for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
      const Entry& entry = slots_[slot].entry;
      if (entry.state() != EntryState::kReady) continue;
      const auto [other, is_new] = newest.try_emplace({entry.name_hash, entry.name_bytes}, slot);
      if (is_new) continue;
      // Names that differ may have one hash.
      bool same = false;
      status = SameName(entry, slots_[other->second].entry, same);
      if (!status.ok()) return status;
      if (!same) continue;
      const bool older = entry.generation() < slots_[other->second].entry.generation();
      const uint32_t retired = older ? slot : std::exchange(other->second, slot);
      if (status = RetireSlot(retired); !status.ok()) return status;
    }
    return Sweep();
  }

  // Room for an object, which no one sees before Seal. Its name is stored; its bytes are the
  // caller's to store, at entry.bytes_at(). Abandon, or Seal, ends it.
  Status Begin(const ObjectName& name, uint64_t size_bytes, Entry& entry, WriteResult& result) {
    entry = Entry();
    entry.name_hash = name.hash;
    entry.name_bytes = name.bytes;
    entry.size_bytes = size_bytes;
    std::optional<uint64_t> at = heap_.Take(entry.span());
    if (!at.has_value()) {
      // What was removed may be looked at no more.
      if (Status status = Sweep(); !status.ok()) return status;
      at = heap_.Take(entry.span());
    }
    result = at.has_value() ? WriteResult::kOk : WriteResult::kNoSpace;
    if (!at.has_value()) return Status();
    entry.object_at = *at;
    return memory_.host().Guarded([&] { memory_.WriteName(entry, name); });
  }

  void Abandon(const Entry& entry) { heap_.Give(entry.object_at, entry.span()); }

  // Makes it visible: from now on it is what its name means, and never changes. What the name meant
  // before is retired. kNoEntry: it is as before Seal.
  Status Seal(const ObjectName& name, Entry& entry, WriteResult& result) {
    std::optional<uint32_t> older = std::nullopt;
    std::optional<uint32_t> slot = std::nullopt;
    Status status = FindSlots(name, older, slot);
    if (!status.ok()) return status;
    if (!slot.has_value()) {
      if (status = Sweep(); !status.ok()) return status;
      if (status = FindSlots(name, older, slot); !status.ok()) return status;
    }
    result = slot.has_value() ? WriteResult::kOk : WriteResult::kNoEntry;
    if (!slot.has_value()) return Status();
    NoteRetiredLater();
    entry.head = Entry::Head(++generation_, EntryState::kReady);
    status = memory_.host().Guarded([&] { memory_.StoreEntry(partition_, *slot, entry); });
    if (!status.ok()) return status;
    slots_[*slot] = {entry, true};
    return older.has_value() ? RetireAndSweep(*older) : Status();
  }

  // The name means nothing any more. Its bytes are free once no one looks at them.
  Status Remove(const ObjectName& name, WriteResult& result) {
    std::optional<uint32_t> found;
    std::optional<uint32_t> slot;
    if (Status status = FindSlots(name, found, slot); !status.ok()) return status;
    result = found.has_value() ? WriteResult::kOk : WriteResult::kNotFound;
    return found.has_value() ? RetireAndSweep(*found) : Status();
  }

  // Takes back what was removed and is looked at no more.
  Status Sweep() {
    if (retired_.empty()) return Status();
    // All of them were retired before the pins are looked at.
    const uint64_t last = memory_.geometry().EntryAt(partition_, retired_.back());
    Status status = memory_.host().Guarded([&] {
      if (!CXLPOOL_MUTANT("sweep-not-fenced")) memory_.Settle(last);
    });
    if (status.ok()) status = LoadPins();
    if (!status.ok()) return status;
    for (size_t i = 0; i < retired_.size();) {
      const uint32_t slot = retired_[i];
      const uint64_t pin = PinOf(partition_, slots_[slot].entry.generation());
      const auto there = pins_.find(pin);
      if (there != pins_.end() && !CXLPOOL_MUTANT("pins-not-looked-at")) {
        pinned_by_ = there->second;
        ++i;
        continue;
      }
      if (status = Free(slot); !status.ok()) return status;
      retired_.erase(retired_.begin() + static_cast<ptrdiff_t>(i));
    }
    return Status();
  }

  // Without a look at the entries.
  uint64_t free_bytes() const { return heap_.free_bytes(); }

  PartitionStats Stats() const {
    PartitionStats stats = {.free_bytes = heap_.free_bytes(),
                            .largest_free_bytes = heap_.largest()};
    for (const Slot& slot : slots_) {
      if (!slot.has_memory) continue;
      const bool ready = slot.entry.state() == EntryState::kReady;
      (ready ? stats.objects : stats.retired) += 1;
      (ready ? stats.object_bytes : stats.retired_bytes) += slot.entry.span();
    }
    return stats;
  }

  // In whose partition a removed object is pinned, as it was seen last; nothing: none is.
  std::optional<uint32_t> pinned_by() const {
    return retired_.empty() ? std::nullopt : std::optional(pinned_by_);
  }

 private:
  struct Slot {
    Entry entry = {};
    bool has_memory = false;  // Its bytes are taken from the heap.
  };

  // What all partitions' readers look at now, into pins_.
  Status LoadPins() {
    const DirectoryGeometry& geometry = memory_.geometry();
    std::vector<uint64_t> pins(geometry.pins);
    pins_.clear();
    for (uint32_t of = 0; of < geometry.partitions; ++of) {
      Status status = memory_.host().Guarded([&] { memory_.LoadPins(of, pins.data()); });
      if (!status.ok()) return status;
      for (const uint64_t pin : pins) {
        if (pin != 0) pins_.emplace(pin, of);
      }
    }
    return Status();
  }

  // Takes over what a slot says. `retired`: slots of which somebody may look at the object still.
  Status RecoverSlot(uint32_t slot, std::vector<uint32_t>& retired) {
    Entry entry;
    bool whole = false;
    Status status =
        memory_.host().Guarded([&] { whole = memory_.LoadEntry(partition_, slot, entry); });
    if (!status.ok()) return status;
    slots_[slot] = {entry, false};
    // Half an entry had its generation once, and no other object may get it. Only what no partition
    // ever reaches is damage.
    if (entry.generation() <= kMaxGeneration / 2) {
      generation_ = std::max(generation_, entry.generation());
    }
    if (entry.head == 0 || (whole && entry.state() == EntryState::kEmpty)) return status;
    if (whole && entry.state() == EntryState::kRetired) retired.push_back(slot);
    if (whole && entry.state() == EntryState::kReady) {
      slots_[slot].has_memory = heap_.TakeAt(entry.object_at, entry.span());
    }
    if (slots_[slot].has_memory || (whole && entry.state() == EntryState::kRetired)) return status;
    // Damaged, or half of one that was being stored: it belongs to no one.
    const uint64_t generation = std::min(entry.generation(), kMaxGeneration);
    slots_[slot].entry.head = Entry::Head(generation, EntryState::kRetired);
    return memory_.host().Guarded(
        [&] { memory_.Retire(partition_, slot, generation, EntryState::kRetired); });
  }

  Status SameName(const Entry& one, const Entry& other, bool& same) {
    return memory_.host().Guarded([&] {
      same = true;
      memory_.host().Refresh(one.object_at, one.name_bytes);
      memory_.host().Refresh(other.object_at, other.name_bytes);
      for (uint64_t at = 0; at < one.name_bytes; at += kWordBytes) {
        Host& host = memory_.host();
        same = same && host.Load(one.object_at + at) == host.Load(other.object_at + at);
      }
    });
  }

  // `found`: the slot of the object with that name. `free`: one that a new object may have.
  Status FindSlots(const ObjectName& name, std::optional<uint32_t>& found,
                   std::optional<uint32_t>& free) {
    found.reset();
    free.reset();
    const auto mask = static_cast<uint32_t>(slots_.size() - 1);
    const uint32_t window = std::min(static_cast<uint32_t>(slots_.size()), kEntryWindow);
    for (uint32_t i = 0; i < window; ++i) {
      const uint32_t at = (static_cast<uint32_t>(name.hash) + i) & mask;
      const Entry& entry = slots_[at].entry;
      if (!slots_[at].has_memory && !free.has_value()) free = at;
      if (entry.state() == EntryState::kEmpty) break;
      if (entry.state() != EntryState::kReady || entry.name_hash != name.hash ||
          entry.name_bytes != name.bytes) {
        continue;
      }
      bool same = false;
      Status status = memory_.host().Guarded([&] { same = memory_.HasName(entry, name); });
      if (!status.ok()) return status;
      const bool newer =
          !found.has_value() || entry.generation() > slots_[*found].entry.generation();
      if (same && newer) found = at;
    }
    return Status();
  }

  // Makes room to note one more, so that what is retired in the Region is noted here for certain.
  void NoteRetiredLater() {
    if (retired_.size() == retired_.capacity()) retired_.reserve(2 * retired_.size() + 8);
  }

  Status RetireSlot(uint32_t slot) {
    Entry& entry = slots_[slot].entry;
    const uint64_t generation = entry.generation();
    NoteRetiredLater();
    Status status = memory_.host().Guarded([&] {
      if (CXLPOOL_MUTANT("retired-after-the-pins")) return;
      memory_.Retire(partition_, slot, generation, EntryState::kRetired);
    });
    if (!status.ok()) return status;
    entry.head = Entry::Head(generation, EntryState::kRetired);
    retired_.push_back(slot);
    return Status();
  }

  Status RetireAndSweep(uint32_t slot) {
    if (Status status = RetireSlot(slot); !status.ok()) return status;
    return Sweep();
  }

  // Gives back what a retired slot has, which no one looks at.
  Status Free(uint32_t slot) {
    Entry& entry = slots_[slot].entry;
    if (CXLPOOL_MUTANT("retired-after-the-pins")) {
      Status status = memory_.host().Guarded(
          [&] { memory_.Retire(partition_, slot, entry.generation(), EntryState::kRetired); });
      if (!status.ok()) return status;
    }
    heap_.Give(entry.object_at, entry.span());
    slots_[slot].has_memory = false;
    return Tidy(slot);
  }

  // Entries that no search has to pass on its way to another are empty again, so that a search for
  // a name that is not there ends early.
  Status Tidy(uint32_t slot) {
    const auto mask = static_cast<uint32_t>(slots_.size() - 1);
    for (uint32_t i = 0; i < kEntryWindow; ++i, slot = (slot - 1) & mask) {
      Entry& entry = slots_[slot].entry;
      const bool ends = slots_[(slot + 1) & mask].entry.state() == EntryState::kEmpty;
      if (!ends || slots_[slot].has_memory || entry.state() != EntryState::kRetired) break;
      Status status = memory_.host().Guarded(
          [&] { memory_.Retire(partition_, slot, entry.generation(), EntryState::kEmpty); });
      if (!status.ok()) return status;
      entry.head = Entry::Head(entry.generation(), EntryState::kEmpty);
    }
    return Status();
  }

  DirectoryMemory<Host> memory_;
  const uint32_t partition_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> retired_;  // Slots that wait for their readers.
  FreeRanges heap_;
  uint64_t generation_ = 0;
  uint32_t pinned_by_ = 0;
  std::map<uint64_t, uint32_t> pins_;  // As they were loaded last, and in whose partition.
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_DIRECTORY_PARTITION_H_
