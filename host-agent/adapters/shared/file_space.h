// A DaxSpace of files that several hosts on one machine map: for a pool without CXL, and for tests.
//
// A file is a device; a piece is a note in a file of this host's own, which a restarted agent finds
// again. It has no zones: what is online is movable. NUMA node 0 stands in for the node that
// system-ram would make, and blocks are of 128 MiB.
//
// It keeps nobody apart: what Open() gives is a descriptor of the whole file, by which a program
// reaches every other piece, and later ones if it keeps a copy. Only a file for each piece would.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_SHARED_FILE_SPACE_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_SHARED_FILE_SPACE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "host-agent/ports/dax_space.h"
#include "proto/support/mutex.h"

namespace cxlpool::agent {

inline constexpr char kPiecesText[] = "pieces of files";  // For CheckRunFile.

class FileSpace : public DaxSpace {
 public:
  // `files`: absolute paths of files that the operator made (truncate -s). `pieces_path`: a file of
  // this host alone. Pieces begin and end at multiples of `align_bytes`: 2 MiB, as on Linux.
  FileSpace(std::vector<std::string> files, std::string pieces_path, std::string boot_id,
            uint64_t align_bytes = uint64_t{2} << 20);

  absl::Status Prepare() override;
  absl::StatusOr<SpaceView> Look() override;
  absl::Status Carve(const std::string& device, uint64_t offset_bytes,
                     uint64_t length_bytes) override;
  absl::Status Uncarve(const SpacePiece& piece) override;
  absl::Status Bind(const SpacePiece& piece, DaxDriver driver) override;
  absl::Status Unbind(const SpacePiece& piece) override;
  absl::Status OnlineBlocks(const SpacePiece& piece, MemoryZone zone) override;
  absl::Status OfflineBlocks(const SpacePiece& piece, absl::Duration patience) override;
  absl::StatusOr<std::vector<ProcessId>> FindHolders(const SpacePiece& piece) override;
  absl::StatusOr<OpenPiece> Open(const SpacePiece& piece, bool read_only) override;

 private:
  absl::StatusOr<SpacePiece*> Find(const SpacePiece& piece) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Change(absl::FunctionRef<void(std::vector<SpacePiece>&)> edit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<std::string> files_;
  const std::string pieces_path_;
  const std::string boot_id_;
  const uint64_t align_bytes_;
  Mutex mutex_;
  std::vector<SpacePiece> pieces_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_SHARED_FILE_SPACE_H_
