// A Directory of sealed, named objects on a map: what cxlpool/directory.h offers, in C++.
//
// directory_format.h has its layout in the Region, directory_partition.h how its owner writes.
// Here is who the owner is, what an error is called, and what lives how long.
//
// Thread-safe, except for the destructor.
#ifndef CXLPOOL_LIBPOOL_SRC_DIRECTORY_H_
#define CXLPOOL_LIBPOOL_SRC_DIRECTORY_H_

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cxlpool/directory.h"
#include "libpool/src/directory_format.h"
#include "libpool/src/directory_partition.h"
#include "libpool/src/map.h"
#include "libpool/src/map_host.h"
#include "libpool/src/partition_lock.h"
#include "libpool/src/status.h"
#include "proto/support/mutant.h"
#include "proto/support/mutex.h"

namespace cxlpool::libpool {

// As cxlpool_directory_create_options.
struct DirectoryCreateOptions {
  uint32_t partitions = 1;
  uint32_t entries = 1 << 16;  // Of each partition.
  uint32_t pins = 64;          // Of each partition.
  bool keeps_objects = false;
  bool replace = false;
};

class Directory;

// An object in place: borrowed, or being made. Ends with the destructor: the pin, or the room.
class DirectoryObject {
 public:
  enum class State {
    kPinned,
    kRoom,    // It has no entry yet, and no one else has it.
    kSealed,  // From kRoom; it is the Directory's. Or it has nothing yet.
  };

  // It has neither yet, so that there is memory for it before there is something to give back.
  DirectoryObject(std::shared_ptr<Directory> directory, const ObjectName& name)
      : directory_(std::move(directory)), name_(name) {}
  DirectoryObject(const DirectoryObject&) = delete;
  DirectoryObject& operator=(const DirectoryObject&) = delete;
  ~DirectoryObject();

  // The pin, or the room, is this object's from now on. Before anybody else has it; does not throw.
  void Have(const FoundObject& found, std::byte* bytes, State state) noexcept {
    found_ = found;
    bytes_ = bytes;
    state_ = state;
  }

  // Null once it is sealed: another object may have the room by then.
  std::byte* bytes() const { return state_ == State::kSealed ? nullptr : bytes_; }
  uint64_t size() const { return found_.entry.size_bytes; }
  // Errors as cxlpool_object_seal.
  Status Seal();
  // Of one that is being made, and whose room has lost bytes: no object gets that room until the
  // partition is opened again. Else the next of this size would get it, and meet them, too.
  void KeepRoom() {
    if (!CXLPOOL_MUTANT("lost-room-is-used-again")) state_ = State::kSealed;
  }

 private:
  const std::shared_ptr<Directory> directory_;
  const ObjectName name_;
  FoundObject found_;
  std::byte* bytes_ = nullptr;
  std::atomic<State> state_ = State::kSealed;
};

class Directory : public std::enable_shared_from_this<Directory> {
 public:
  // Errors of all of these as in cxlpool/directory.h.
  static Status Create(const Map& map, const DirectoryCreateOptions& options);
  // `partition`: which this process writes.
  static StatusOr<std::shared_ptr<Directory>> Open(std::shared_ptr<const Map> map,
                                                   std::optional<uint32_t> partition,
                                                   bool take_over);
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory();

  Status Put(std::string_view name, const void* bytes, uint64_t size);
  StatusOr<std::unique_ptr<DirectoryObject>> CreateObject(std::string_view name, uint64_t size);
  Status Remove(std::string_view name);

  // The object's size goes to `size` also where it does not fit into `room`.
  Status Get(std::string_view name, void* into, uint64_t room, uint64_t& size) const;
  StatusOr<std::unique_ptr<DirectoryObject>> Borrow(std::string_view name);
  Status Find(std::string_view name, cxlpool_object_info& info) const;

  Status Describe(cxlpool_directory_info& info) const;
  Status Check() const;

 private:
  friend class DirectoryObject;
  struct Superblock;
  struct OwnerLine;
  struct Pinned {
    uint32_t pin = 0;
    uint32_t count = 0;
  };

  Directory(std::shared_ptr<const Map> map, const Superblock& superblock);
  static Superblock Load(const Map& map);
  static Status CheckSuperblock(const Map& map, const Superblock& superblock);

  Status Claim(uint32_t partition, bool take_over);
  Status Taken(uint32_t partition, const std::string& by, std::string remedy) const;
  Status LoadOwner(uint32_t partition, OwnerLine& owner) const;
  pid_t OwnerPid(uint32_t partition) const;
  std::string OwnerText(uint32_t partition) const;
  bool IsThisHosts(uint32_t partition) const;
  bool OwnerHasEnded(uint32_t partition) const;
  Status CheckWriter() const;
  static StatusOr<ObjectName> CheckName(std::string_view name);
  Status WriteFailed(WriteResult result, std::string_view name, uint64_t size) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status ReadFailed(ReadResult result, std::string_view name) const;

  // Own partition first, then in order.
  ReadResult FindAnywhere(const ObjectName& name, FoundObject& found) const;
  // `stored`: whether somebody may find it now, or its bytes are lost.
  Status SealObject(const ObjectName& name, Entry& entry, const void* bytes, bool& stored);
  void AbandonObject(const Entry& entry);
  // What is taken of the own partition, for RegionUsage.
  void ReportLiveBytes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StatusOr<bool> Pin(const FoundObject& found);
  void Unpin(const FoundObject& found);

  // In a child that was forked. Takes no lock: another thread of the parent may have had it.
  bool IsForked() const { return ::getpid() != process_; }

  const pid_t process_ = ::getpid();
  const std::shared_ptr<const Map> map_;
  mutable MapHost host_;
  const DirectoryMemory<MapHost> memory_;
  const uint64_t format_;  // Of the superblock: another each time one is made.
  const bool keeps_objects_;
  std::optional<uint32_t> own_;  // Constant once it is open.
  std::unique_ptr<PartitionLock> lock_;

  mutable Mutex mutex_;
  std::optional<DirectoryPartition<MapHost>> partition_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Pinned> pinned_ ABSL_GUARDED_BY(mutex_);  // By PinOf.
  std::vector<uint32_t> free_pins_ ABSL_GUARDED_BY(mutex_);
  uint64_t reported_live_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_DIRECTORY_H_
