#include "libpool/src/directory.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <new>
#include <thread>
#include <utility>

#include "libpool/src/region_name.h"
#include "libpool/src/text.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {
namespace {

constexpr uint64_t kMagic = 0x3152494450584c43;  // "CLXPDIR1", read as a little-endian word.
constexpr uint64_t kKeepsObjects = 1;
constexpr int kVisibleTries = 3;
constexpr uint32_t kMinEntries = 8;
constexpr uint64_t kMaxPid = 1 << 22;  // Linux: PID_MAX_LIMIT.
constexpr auto kDescriptorsGo = std::chrono::seconds(1);

// Half of the 32 hexadecimal digits of a UUID.
uint64_t HexWord(std::string_view uuid, int half) {
  uint64_t words[2] = {};
  int digits = 0;
  for (const char c : uuid) {
    const int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (value < 0 || digits == 32) continue;
    words[digits / 16] = words[digits / 16] << 4 | static_cast<uint64_t>(value);
    ++digits;
  }
  return words[half];
}

Status NoPartition(std::string_view what) {
  return Refuse(Code::kFailedPrecondition, "NO_PARTITION",
                Concat(what, " needs a partition of one's own, and the Directory is open without"),
                "open it with a partition that no other process has");
}

Status Forked() {
  return Refuse(Code::kFailedPrecondition, "FORKED",
                "this Directory is another process's: this process was forked from it",
                "connect, map the Region and open the Directory in this process");
}

}  // namespace

// ---- The superblock.

// The first line of a Directory. Its magic is stored last.
struct Directory::Superblock {
  uint64_t magic = 0;
  uint64_t digest = 0;  // Of what follows.
  uint64_t partitions_and_pins = 0;
  uint64_t entries = 0;
  uint64_t partition_bytes = 0;
  uint64_t tag[2] = {};  // Of the Region.
  uint64_t format = 0;   // Random, except for the flags in its last bit.

  uint64_t Digest() const {
    uint64_t digest = kMagic;
    for (const uint64_t word :
         {partitions_and_pins, entries, partition_bytes, tag[0], tag[1], format}) {
      digest = Mix(digest ^ word);
    }
    return digest;
  }
  DirectoryGeometry Geometry() const {
    return {.partitions = static_cast<uint32_t>(partitions_and_pins),
            .pins = static_cast<uint32_t>(partitions_and_pins >> 32),
            .entries = static_cast<uint32_t>(entries),
            .partition_bytes = partition_bytes};
  }
};

// A partition's owner line. The attachment is stored last; 0: nobody.
struct Directory::OwnerLine {
  uint64_t attachment = 0;  // Its generation: no other Attachment of the pool ever has it.
  uint64_t pid = 0;
};

Directory::Superblock Directory::Load(const Map& map) {
  Superblock block;
  const MapHost host(&map);
  host.Refresh(0, kEntryBytes);
  uint64_t words[kEntryBytes / kWordBytes];
  static_assert(sizeof words == sizeof block);
  for (size_t i = 0; i < std::size(words); ++i) words[i] = host.Load(i * kWordBytes);
  std::memcpy(&block, words, sizeof block);
  return block;
}

// Whatever stands there, no address outside of the map results.
Status Directory::CheckSuperblock(const Map& map, const Superblock& block) {
  const auto refuse = [&](std::string why) {
    return Refuse(
        Code::kFailedPrecondition, "NOT_A_DIRECTORY",
        Concat("the map of ", map.region_name(), " does not begin with a Directory: ", why),
        "make one (cxlpool_directory_create; with replace if what is there may go), or map the "
        "Region "
        "from where it begins");
  };
  const DirectoryGeometry geometry = block.Geometry();
  if (block.magic != kMagic) return refuse("its first bytes are others");
  if (block.digest != block.Digest()) return refuse("its first line is damaged");
  if (geometry.partitions == 0 || geometry.partitions > kMaxPartitions || geometry.pins == 0 ||
      geometry.pins > kMaxPins || geometry.pins % 8 != 0 || block.entries < kMinEntries ||
      block.entries > kMaxEntries || !std::has_single_bit(block.entries) ||
      geometry.partition_bytes % kDirectoryAlign != 0 ||
      geometry.partition_bytes > map.size() / geometry.partitions ||
      geometry.TotalBytes() > map.size() ||
      geometry.HeapAt(0) - geometry.OwnerAt(0) > geometry.partition_bytes) {
    return refuse("it says that it is larger than the map, or of no possible size");
  }
  if (block.tag[0] != HexWord(map.tag(), 0) || block.tag[1] != HexWord(map.tag(), 1)) {
    return refuse("it is another Region's, and was copied here");
  }
  return Status();
}

// The magic number is cleared first and stored last: a Directory that was made half, by a process
// that died, is none. Lost bytes and a map that was taken away end in an error, as everywhere
// (Guarded).
Status Directory::Create(const Map& map, const DirectoryCreateOptions& options) {
  if (!map.writable()) return BadArgument("the map is read-only", "map the Region writable");
  if (options.partitions == 0 || options.partitions > kMaxPartitions) {
    return BadArgument(Concat("partitions is ", options.partitions), "give 1 to 1024");
  }
  if (options.entries < kMinEntries || options.entries > kMaxEntries ||
      !std::has_single_bit(options.entries)) {
    return BadArgument(Concat("entries is ", options.entries),
                       "give a power of two, 8 to 268435456");
  }
  if (options.pins == 0 || options.pins > kMaxPins || options.pins % 8 != 0) {
    return BadArgument(Concat("pins is ", options.pins), "give a multiple of 8, 8 to 65536");
  }
  Superblock block;
  block.magic = kMagic;
  block.partitions_and_pins = options.partitions | uint64_t{options.pins} << 32;
  block.entries = options.entries;
  const uint64_t room = map.size() - std::min<uint64_t>(map.size(), kDirectoryAlign);
  block.partition_bytes = room / options.partitions / kDirectoryAlign * kDirectoryAlign;
  for (int half = 0; half < 2; ++half) block.tag[half] = HexWord(map.tag(), half);
  const DirectoryGeometry geometry = block.Geometry();
  const uint64_t tables = geometry.HeapAt(0) - geometry.OwnerAt(0);
  if (tables + kEntryBytes > geometry.partition_bytes) {
    return BadArgument(
        Concat("each of ", options.partitions, " partitions has ", geometry.partition_bytes,
               " bytes, and its entries and pins need ", tables),
        "give a larger map, or fewer entries or partitions");
  }
  const StatusOr<std::string> uuid = RequestIdOf("");
  if (!uuid.ok()) return uuid.status();
  block.format = (Mix(HexWord(*uuid, 0) ^ HexWord(*uuid, 1)) & ~kKeepsObjects) |
                 (options.keeps_objects ? kKeepsObjects : 0);
  block.digest = block.Digest();
  MapHost host(&map);
  bool there = false;
  Status status = host.Guarded([&] {
    host.Refresh(0, kEntryBytes);
    there = host.Load(0) == kMagic && !options.replace;
    if (there) return;
    // No Directory, until it is whole.
    host.Store(0, 0);
    host.Publish(0, kEntryBytes);
    for (uint32_t partition = 0; partition < geometry.partitions; ++partition) {
      // A Region is handed out zeroed, but it may have been used before a Directory was made in it.
      for (uint64_t at = geometry.OwnerAt(partition); at < geometry.HeapAt(partition);
           at += kWordBytes) {
        host.Store(at, 0);
      }
      host.Publish(geometry.OwnerAt(partition), tables);
    }
    uint64_t words[kEntryBytes / kWordBytes];
    std::memcpy(words, &block, sizeof words);
    for (size_t i = 1; i < std::size(words); ++i) host.Store(i * kWordBytes, words[i]);
    host.Order();
    host.Store(0, words[0]);
    host.Publish(0, kEntryBytes);
  });
  if (!status.ok() || !there) return status;
  return Refuse(Code::kAlreadyExists, "DIRECTORY_EXISTS",
                Concat("the map of ", map.region_name(), " begins with a Directory already"),
                "open it; or set replace, if nobody has it open and its objects may go");
}

// ---- Opening and owning.

Directory::Directory(std::shared_ptr<const Map> map, const Superblock& superblock)
    : map_(std::move(map)),
      host_(map_.get()),
      memory_(&host_, superblock.Geometry()),
      format_(superblock.format),
      keeps_objects_((superblock.format & kKeepsObjects) != 0) {}

StatusOr<std::shared_ptr<Directory>> Directory::Open(std::shared_ptr<const Map> map,
                                                     std::optional<uint32_t> partition,
                                                     bool take_over) {
  if (map->size() < kDirectoryAlign) {
    return BadArgument("the map is smaller than any Directory", "map more of the Region");
  }
  Superblock block;
  Status status = MapHost(map.get()).Guarded([&] { block = Load(*map); });
  if (!status.ok()) return status;
  if (status = CheckSuperblock(*map, block); !status.ok()) return status;
  std::shared_ptr<Directory> directory(new Directory(std::move(map), block));
  if (partition.has_value()) {
    if (status = directory->Claim(*partition, take_over); !status.ok()) return status;
  }
  return directory;
}

// Takes no lock: nothing else uses it any more, and in a forked child a lock may never be free.
Directory::~Directory() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  map_->usage().AddLive(-static_cast<int64_t>(reported_live_bytes_));
  // Where caches are not coherent this host's may still have lines of the heap that it stored to
  // and never sealed: the partition stays this host's until the Region is detached here.
  if (lock_ == nullptr || IsForked() || !map_->is_coherent()) return;
  // The next owner then need not find out who we were. If the bytes are lost, it will notice.
  const uint64_t at = memory_.geometry().OwnerAt(*own_);
  const Status gone = host_.Guarded([&] {
    host_.Store(at, 0);
    host_.Publish(at, kEntryBytes);
  });
  static_cast<void>(gone);
}

Status Directory::LoadOwner(uint32_t partition, OwnerLine& owner) const {
  const uint64_t at = memory_.geometry().OwnerAt(partition);
  return host_.Guarded([&] {
    host_.Refresh(at, kEntryBytes);
    owner.attachment = host_.Load(at);
    owner.pid = host_.Load(at + kWordBytes);
  });
}

// 0: none is known.
pid_t Directory::OwnerPid(uint32_t partition) const {
  OwnerLine owner;
  const bool known = LoadOwner(partition, owner).ok() && owner.pid <= kMaxPid;
  return known ? static_cast<pid_t>(owner.pid) : 0;
}

std::string Directory::OwnerText(uint32_t partition) const {
  const pid_t pid = OwnerPid(partition);
  return pid == 0 ? "a process" : Concat("process ", pid);
}

// Whether the owner is, or was, a process of this host, so that its number means something here.
bool Directory::IsThisHosts(uint32_t partition) const {
  OwnerLine owner;
  return LoadOwner(partition, owner).ok() && owner.attachment == map_->generation();
}

// As far as a number says it: another process may have it by now.
bool Directory::OwnerHasEnded(uint32_t partition) const {
  const pid_t pid = OwnerPid(partition);
  return pid == 0 || (::kill(pid, 0) != 0 && errno == ESRCH);
}

Status Directory::Taken(uint32_t partition, const std::string& by, std::string remedy) const {
  return Refuse(
      Code::kFailedPrecondition, "PARTITION_TAKEN",
      Concat("partition ", partition, " of the Directory in ", map_->region_name(), " is ", by),
      std::move(remedy));
}

// Makes this process the owner, if no other can be. Of this host's processes the kernel knows which
// live. Of another host's it cannot be known here; the Attachment says which host it was.
Status Directory::Claim(uint32_t partition, bool take_over) {
  const DirectoryGeometry& geometry = memory_.geometry();
  if (partition >= geometry.partitions) {
    return BadArgument(
        Concat("partition is ", partition, ", and the Directory has ", geometry.partitions),
        "count from 0");
  }
  if (!map_->writable()) {
    return BadArgument("the map is read-only, and an owner writes", "map the Region writable");
  }
  if (map_->Forked()) return Forked();
  const uint64_t at = geometry.OwnerAt(partition);
  // Also of a map that was extended: only the newest knows in which descriptor what was added lies.
  const auto region =
      CXLPOOL_MUTANT("lock-by-the-first-handle") ? map_->region() : map_->newest_region();
  auto lock = PartitionLock::Take(region, map_->offset_bytes() + at);
  // The agent may keep a descriptor of a process that has just ended for a moment more.
  const auto until = std::chrono::steady_clock::now() + kDescriptorsGo;
  while (lock.ok() && *lock == nullptr && OwnerHasEnded(partition) &&
         std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock = PartitionLock::Take(region, map_->offset_bytes() + at);
  }
  if (!lock.ok()) return lock.status();
  if (*lock == nullptr) {
    return Taken(partition, Concat(OwnerText(partition), "'s, on this host"),
                 "open another partition, or end that process");
  }
  OwnerLine owner;
  Status status = LoadOwner(partition, owner);
  if (!status.ok()) return status;
  if (owner.attachment != 0 && owner.attachment != map_->generation() && !take_over &&
      !CXLPOOL_MUTANT("other-hosts-owner-is-robbed")) {
    return Taken(partition,
                 Concat("that of process ", owner.pid, " of another host, or of this one before ",
                        "the Region was detached"),
                 "open another partition; or, once that host has the Region no longer, set "
                 "take_over");
  }
  const auto pid = static_cast<uint64_t>(::getpid());
  status = host_.Guarded([&] {
    host_.Store(at + kWordBytes, pid);
    host_.Order();
    host_.Store(at, map_->generation());
    host_.Publish(at, kEntryBytes);
  });
  if (!status.ok()) return status;
  own_ = partition;
  lock_ = *std::move(lock);
  const MutexLock held(mutex_);
  partition_.emplace(&host_, geometry, partition);
  for (uint32_t pin = geometry.pins; pin > 0; --pin) free_pins_.push_back(pin - 1);
  status = partition_->Recover();
  ReportLiveBytes();
  return status;
}

void Directory::ReportLiveBytes() {
  const uint64_t live = memory_.geometry().HeapBytes() - partition_->free_bytes();
  map_->usage().AddLive(static_cast<int64_t>(live - std::exchange(reported_live_bytes_, live)));
}

// ---- Errors.

StatusOr<ObjectName> Directory::CheckName(std::string_view name) {
  if (name.empty() || name.size() > kMaxObjectName) {
    return BadArgument(Concat("an object's name has ", name.size(), " bytes"), "give 1 to 1023");
  }
  return ObjectName(name);
}

Status Directory::CheckWriter() const {
  if (!own_.has_value()) return NoPartition("this call");
  return IsForked() ? Forked() : Status();
}

// Names what would make room for `size` bytes, and the other process that keeps it, if one does.
Status Directory::WriteFailed(WriteResult result, std::string_view name, uint64_t size) const {
  if (result == WriteResult::kOk) return Status();
  if (result == WriteResult::kNotFound) {
    return Refuse(Code::kNotFound, "OBJECT_UNKNOWN", Concat("there is no object \"", name, "\""),
                  "put it first");
  }
  if (result == WriteResult::kNoEntry) {
    return Refuse(Code::kResourceExhausted, "DIRECTORY_FULL",
                  Concat("partition ", *own_, " has no entry left for \"", name, "\": of ",
                         memory_.geometry().entries, ", ", partition_->Stats().objects,
                         " are used, and all that its name may have"),
                  "remove objects, or make the Directory with more entries");
  }
  const PartitionStats stats = partition_->Stats();
  std::string message = Concat("partition ", *own_, " has no room for \"", name, "\" of ", size,
                               " bytes: ", stats.free_bytes, " are free, ",
                               stats.largest_free_bytes, " in one piece");
  std::string remedy = "remove objects, or use a larger Region";
  if (const auto by = partition_->pinned_by(); by.has_value()) {
    message += Concat("; ", stats.retired, " removed objects with ", stats.retired_bytes,
                      " bytes are borrowed still, by ", OwnerText(*by), " of partition ", *by);
    remedy = "let that process free what it has borrowed; or remove objects";
    if (IsThisHosts(*by) && OwnerHasEnded(*by)) {
      message += ", which has ended";
      remedy = Concat("open partition ", *by,
                      ", which gives back what that process had borrowed; or remove objects");
    }
  }
  return Refuse(Code::kResourceExhausted, "DIRECTORY_FULL", std::move(message), std::move(remedy));
}

Status Directory::ReadFailed(ReadResult result, std::string_view name) const {
  switch (result) {
    case ReadResult::kOk:
      return Status();
    case ReadResult::kNotFound:
      return Refuse(Code::kNotFound, "OBJECT_UNKNOWN", Concat("there is no object \"", name, "\""),
                    "put it first");
    case ReadResult::kTooLarge:
      return Refuse(Code::kOutOfRange, "OBJECT_TOO_LARGE",
                    Concat("the object \"", name, "\" is larger than the buffer"),
                    "give one as large as the size that was returned");
    case ReadResult::kChanging:
      return Refuse(Code::kAborted, "OBJECT_CHANGES",
                    Concat("the object \"", name, "\" was replaced each time it was looked at"),
                    "try again");
    case ReadResult::kNotVisible:
      return Refuse(Code::kUnavailable, "NOT_VISIBLE",
                    Concat("the bytes of the object \"", name, "\" are not those that were put"),
                    "try again; if it stays so, put it again: somebody else stored to them, or the "
                    "fabric does not show them here");
  }
  return Status();
}

// ---- Readers.

ReadResult Directory::FindAnywhere(const ObjectName& name, FoundObject& found) const {
  bool changing = false;
  if (own_.has_value()) {
    const ReadResult result = memory_.Find(*own_, name, found);
    if (result == ReadResult::kOk) return result;
    changing = result == ReadResult::kChanging;
  }
  for (uint32_t partition = 0; partition < memory_.geometry().partitions; ++partition) {
    if (partition == own_) continue;
    const ReadResult result = memory_.Find(partition, name, found);
    if (result == ReadResult::kOk) return result;
    changing = changing || result == ReadResult::kChanging;
  }
  return changing ? ReadResult::kChanging : ReadResult::kNotFound;
}

Status Directory::Get(std::string_view name, void* into, uint64_t room, uint64_t& size) const {
  const StatusOr<ObjectName> checked = CheckName(name);
  if (!checked.ok()) return checked.status();
  const ObjectName& wanted = *checked;
  ReadResult result = ReadResult::kChanging;
  Status status = host_.Guarded([&] {
    int unseen = 0;
    for (int tries = 0; tries < kReadTries; ++tries) {
      FoundObject found;
      result = FindAnywhere(wanted, found);
      if (result == ReadResult::kOk) {
        size = found.entry.size_bytes;
        result = memory_.Read(found, wanted, into, room);
      }
      if (result == ReadResult::kNotVisible && ++unseen == kVisibleTries) return;
      if (result != ReadResult::kChanging && result != ReadResult::kNotVisible) return;
    }
  });
  return status.ok() ? ReadFailed(result, name) : status;
}

Status Directory::Find(std::string_view name, cxlpool_object_info& info) const {
  const StatusOr<ObjectName> checked = CheckName(name);
  if (!checked.ok()) return checked.status();
  ReadResult result = ReadResult::kNotFound;
  FoundObject found;
  Status status = host_.Guarded([&] { result = FindAnywhere(*checked, found); });
  if (!status.ok()) return status;
  info.size_bytes = found.entry.size_bytes;
  info.generation = found.entry.generation();
  info.partition = found.partition;
  return ReadFailed(result, name);
}

// Finds, pins, then looks again: an object that was removed before the pin could be seen is not
// returned. It is tried again where the object changes meanwhile.
StatusOr<std::unique_ptr<DirectoryObject>> Directory::Borrow(std::string_view name) {
  if (!own_.has_value() && !keeps_objects_) return NoPartition("to borrow");
  if (!keeps_objects_ && IsForked()) return Forked();
  const StatusOr<ObjectName> checked = CheckName(name);
  if (!checked.ok()) return checked.status();
  auto object = std::make_unique<DirectoryObject>(shared_from_this(), *checked);
  for (int tries = 0; tries < kReadTries; ++tries) {
    ReadResult result = ReadResult::kNotFound;
    FoundObject found;
    Status status = host_.Guarded([&] { result = FindAnywhere(*checked, found); });
    if (!status.ok()) return status;
    if (result == ReadResult::kChanging) continue;
    if (result != ReadResult::kOk) return ReadFailed(result, name);
    const StatusOr<bool> pinned = Pin(found);
    if (!pinned.ok()) return pinned.status();
    if (!*pinned) continue;
    if (CXLPOOL_MUTANT("pinned-before-there-is-memory")) {
      object = std::make_unique<DirectoryObject>(shared_from_this(), *checked);
    }
    object->Have(found, map_->address() + found.entry.bytes_at(), DirectoryObject::State::kPinned);
    for (int looks = 0; looks < kVisibleTries; ++looks) {
      status = host_.Guarded([&] { result = memory_.Look(found, *checked, object->bytes()); });
      if (!status.ok()) return status;
      if (result == ReadResult::kOk) return object;
    }
    return ReadFailed(result, name);
  }
  return ReadFailed(ReadResult::kChanging, name);
}

// Announces that this process looks at an object. False: it has gone. A process that looks at it
// already has said so.
StatusOr<bool> Directory::Pin(const FoundObject& found) {
  if (keeps_objects_) return true;
  const MutexLock lock(mutex_);
  const uint64_t key = PinOf(found.partition, found.entry.generation());
  if (const auto there = pinned_.find(key); there != pinned_.end()) {
    ++there->second.count;
    return true;
  }
  if (free_pins_.empty()) {
    return Refuse(Code::kResourceExhausted, "TOO_MANY_BORROWED",
                  Concat("this process has ", pinned_.size(), " objects borrowed, and partition ",
                         *own_, " has no more pins"),
                  "free some, or make the Directory with more pins");
  }
  const uint32_t pin = free_pins_.back();
  const auto noted = pinned_.try_emplace(key, Pinned{.pin = pin, .count = 1}).first;
  bool pinned = false;
  Status status = host_.Guarded([&] { pinned = memory_.Pin(*own_, pin, found); });
  if (!pinned) pinned_.erase(noted);
  if (!status.ok()) return status;
  if (!pinned) return false;
  map_->usage().AddPins(1);
  free_pins_.pop_back();
  return true;
}

void Directory::Unpin(const FoundObject& found) {
  if (keeps_objects_ || IsForked()) return;
  const MutexLock lock(mutex_);
  const auto there = pinned_.find(PinOf(found.partition, found.entry.generation()));
  if (there == pinned_.end() || --there->second.count > 0) return;
  const uint32_t pin = there->second.pin;
  pinned_.erase(there);
  map_->usage().AddPins(-1);
  // Where its line is lost, no process can read the pin either: it is not used again.
  if (host_.Guarded([&] { memory_.Unpin(*own_, pin); }).ok()) free_pins_.push_back(pin);
}

// ---- The owner.

Status Directory::Put(std::string_view name, const void* bytes, uint64_t size) {
  auto object = CreateObject(name, size);
  if (!object.ok()) return object.status();
  std::byte* const to = (*object)->bytes();
  Status status = host_.Guarded([&] {
    if (size > 0) std::memcpy(to, bytes, size);
  });
  if (status.ok()) return (*object)->Seal();
  (*object)->KeepRoom();
  return status;
}

StatusOr<std::unique_ptr<DirectoryObject>> Directory::CreateObject(std::string_view name,
                                                                   uint64_t size) {
  if (Status status = CheckWriter(); !status.ok()) return status;
  const StatusOr<ObjectName> checked = CheckName(name);
  if (!checked.ok()) return checked.status();
  auto object = std::make_unique<DirectoryObject>(shared_from_this(), *checked);
  FoundObject found;
  found.partition = *own_;
  const MutexLock lock(mutex_);
  WriteResult result = WriteResult::kNoSpace;
  // Else rounding up would come out at next to nothing.
  if (size <= memory_.geometry().HeapBytes()) {
    Status status = partition_->Begin(*checked, size, found.entry, result);
    if (!status.ok()) return status;  // Its room is lost, and stays taken.
    ReportLiveBytes();
  }
  if (Status status = WriteFailed(result, name, size); !status.ok()) return status;
  object->Have(found, map_->address() + found.entry.bytes_at(), DirectoryObject::State::kRoom);
  return object;
}

// `stored` is also set where an error leaves it open whether the entry is visible, and where its
// bytes are lost: they must not be used for another object then. The CRC is computed before the
// lock is taken, as it takes long.
Status Directory::SealObject(const ObjectName& name, Entry& entry, const void* bytes,
                             bool& stored) {
  stored = false;
  if (Status status = CheckWriter(); !status.ok()) return status;
  const std::string_view text(reinterpret_cast<const char*>(name.words), name.bytes);
  if (!map_->is_coherent()) {
    entry.has_crc = true;
    Status status = host_.Guarded([&] {
      entry.crc = Crc32c(DirectoryMemory<MapHost>::NameCrc(name), bytes, entry.size_bytes);
    });
    stored = !status.ok() && !CXLPOOL_MUTANT("lost-room-is-used-again");
    if (!status.ok()) return status;
  }
  const MutexLock lock(mutex_);
  if (keeps_objects_) {
    ReadResult there = ReadResult::kNotFound;
    FoundObject found;
    Status status = host_.Guarded([&] { there = memory_.Find(*own_, name, found); });
    if (!status.ok()) return status;
    if (there == ReadResult::kOk) {
      return Refuse(Code::kFailedPrecondition, "OBJECTS_STAY",
                    Concat("the Directory keeps its objects, and has \"", text, "\" already"),
                    "give it another name");
    }
  }
  WriteResult result = WriteResult::kOk;
  stored = true;  // Whatever comes of it, except where it is known that nothing has changed.
  Status status = partition_->Seal(name, entry, result);
  ReportLiveBytes();
  if (!status.ok()) return status;
  stored = result == WriteResult::kOk;
  return WriteFailed(result, text, entry.size_bytes);
}

void Directory::AbandonObject(const Entry& entry) {
  if (IsForked()) return;
  const MutexLock lock(mutex_);
  try {
    partition_->Abandon(entry);
  } catch (const std::bad_alloc&) {
    return;  // It stays taken until the partition is opened again.
  }
  ReportLiveBytes();
}

Status Directory::Remove(std::string_view name) {
  if (Status status = CheckWriter(); !status.ok()) return status;
  const StatusOr<ObjectName> checked = CheckName(name);
  if (!checked.ok()) return checked.status();
  if (keeps_objects_) {
    return Refuse(Code::kFailedPrecondition, "OBJECTS_STAY",
                  "the Directory keeps its objects: readers that nobody knows of look at them",
                  "make it again with replace, once no host reads it");
  }
  WriteResult result = WriteResult::kOk;
  {
    const MutexLock lock(mutex_);
    Status status = partition_->Remove(*checked, result);
    ReportLiveBytes();
    if (!status.ok()) return status;
  }
  if (result != WriteResult::kNotFound) return Status();
  cxlpool_object_info info = CXLPOOL_OBJECT_INFO_INIT;
  if (Status status = Find(name, info); !status.ok()) return status;
  return Refuse(Code::kFailedPrecondition, "NOT_OWNER",
                Concat("the object \"", name, "\" is in partition ", info.partition,
                       ", and this process owns partition ", *own_),
                "remove it in the process that put it");
}

// ---- What it is.

// A forked child is refused before the lock, as everywhere here: another thread of the parent may
// have had it, and then it is never free in the child.
Status Directory::Describe(cxlpool_directory_info& info) const {
  if (own_.has_value() && IsForked()) return Forked();
  info.partitions = memory_.geometry().partitions;
  info.entries = memory_.geometry().entries;
  info.keeps_objects = keeps_objects_ ? 1 : 0;
  if (!own_.has_value()) return Status();
  info.partition = static_cast<int32_t>(*own_);
  const MutexLock lock(mutex_);
  const PartitionStats stats = partition_->Stats();
  info.objects = stats.objects;
  info.object_bytes = stats.object_bytes;
  info.free_bytes = stats.free_bytes;
  info.largest_free_bytes = stats.largest_free_bytes;
  info.removed_objects = stats.retired;
  info.removed_bytes = stats.retired_bytes;
  info.borrowed_objects = pinned_.size();
  return Status();
}

Status Directory::Check() const {
  // The map has a lock, too, also where this Directory was opened in the child.
  if (IsForked() || map_->Forked()) return Forked();
  if (Status status = map_->region()->hold.Check(); !status.ok()) return status;
  Superblock block;
  Status status = host_.Guarded([&] { block = Load(*map_); });
  if (!status.ok()) return status;
  status = CheckSuperblock(*map_, block);
  if (status.ok() && block.format == format_) return status;
  return Refuse(Code::kFailedPrecondition, "DIRECTORY_REPLACED",
                Concat("the Directory in ", map_->region_name(), " is not the one that was opened"),
                "close it and open it again");
}

// ---- Objects.

DirectoryObject::~DirectoryObject() {
  if (state_ == State::kPinned) directory_->Unpin(found_);
  if (state_ == State::kRoom) directory_->AbandonObject(found_.entry);
}

Status DirectoryObject::Seal() {
  State room = State::kRoom;
  // One of several threads; and where this fails in the middle, its room is not used again.
  if (!state_.compare_exchange_strong(room, State::kSealed)) {
    return Refuse(Code::kFailedPrecondition, "OBJECT_SEALED", "the object is sealed already",
                  "make another one to change it");
  }
  bool stored = true;
  Status status = directory_->SealObject(name_, found_.entry, bytes_, stored);
  if (!stored) state_ = State::kRoom;
  return status;
}

}  // namespace cxlpool::libpool
