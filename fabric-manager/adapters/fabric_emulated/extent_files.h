// The bytes of granted Extents, a file each: made at the first bind, gone with the scrub.
//
// A file of its own per Extent means that a descriptor reaches exactly one Extent, and that a map
// kept too long gets SIGBUS (its file has length 0) instead of the next owner's bytes. Mode 0600,
// the agent's. Blocking; one thread.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_EMULATED_EXTENT_FILES_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_EMULATED_EXTENT_FILES_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::fm {

// A file name within the directory: "TAG.INDEX".
std::string ExtentFileName(absl::string_view tag, uint32_t extent_index);

// One extent's bytes moving to a new inode, so that a process that has the old one mapped loses it:
// the emulated fabric's fence. Call Step until it returns true; then the old inode has length 0.
class ExtentSwap {
 public:
  // Copies up to `max_bytes`. True: done and verified. After an error: start a new one.
  absl::StatusOr<bool> Step(uint64_t max_bytes);

 private:
  friend class ExtentFiles;
  ExtentSwap(int directory, std::string name) : directory_(directory), name_(std::move(name)) {}
  absl::Status Begin();
  absl::Status Finish();

  int directory_;  // Borrowed of ExtentFiles.
  std::string name_;
  UniqueFd old_;
  UniqueFd new_;
  uint64_t offset_bytes_ = 0;
  uint64_t length_bytes_ = 0;
};

class ExtentFiles {
 public:
  // `directory` is absolute. Makes it where it is missing, and finishes swaps that a crash cut off.
  static absl::StatusOr<ExtentFiles> Open(std::string directory);

  std::string Path(absl::string_view name) const;

  // Makes the file, sparse and `length_bytes` long, or finds it so; it then belongs to `owner`.
  // `in_use`: another host has it bound, so it cannot change owners.
  // FAILED_PRECONDITION: EXTENT_LENGTH (there with another length), EXTENT_OWNER.
  absl::Status Ensure(const std::string& name, uint64_t length_bytes, uid_t owner, bool in_use);

  // Whether the file is there with its full length.
  bool Exists(const std::string& name, uint64_t length_bytes) const;

  // Truncates, verifies through the descriptor, unlinks, verifies. Absent: OK.
  absl::Status Scrub(const std::string& name);

  // Null where the file is absent. At most one at a time per file.
  absl::StatusOr<std::unique_ptr<ExtentSwap>> BeginSwap(const std::string& name);

 private:
  ExtentFiles(std::string path, UniqueFd directory)
      : path_(std::move(path)), directory_(std::move(directory)) {}
  // Finishes or undoes what a swap that was cut off left of the file's former and new inodes.
  absl::Status RecoverAll();
  absl::Status Recover(const std::string& name);

  std::string path_;
  UniqueFd directory_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_EMULATED_EXTENT_FILES_H_
