// A disk whose power can be cut: it writes down what the store does to the files of one directory,
// and says what a machine would find there after a cut, at any moment, for any seed.
//
// What is legal for a power cut to do, to what was not synced:
//   - each 512-byte sector of a write is kept, dropped, or torn: a prefix of the new bytes, the
//     rest as it was. Independently of every other one, so writes are reordered, too;
//   - a write that made its file longer, but was dropped, leaves zeros there, or no longer file;
//   - a truncation is kept or dropped;
//   - a name that was given, moved or taken away since its directory was synced is kept or dropped,
//     each by itself; a rename as a whole. A file that has lost its name is gone, synced or not.
// What is not legal:
//   - to change what was synced: bytes by the file's sync, names by the directory's;
//   - to change a byte that was not written (SQLite's "powersafe overwrite"), or to make up one;
//   - to answer a sync before it is done; a disk that lies so loses what it likes (`lies`, below,
//     to see that the trials notice).
// Modes, owners and directories are not modelled: they are as they were at once.
//
// What is there when it is made counts as synced. The same seed at the same moment gives the same
// files, byte for byte. Any thread; Cut and the like once nothing is written any more.
#ifndef CXLPOOL_TEST_STORE_POWER_CUT_DISK_H_
#define CXLPOOL_TEST_STORE_POWER_CUT_DISK_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/support/mutex.h"
#include "test/store/disk_calls.h"

namespace cxlpool::fm {

inline constexpr size_t kSectorBytes = 512;

// The files of a directory. Two names of one number are links to one file.
struct DiskImage {
  std::map<std::string, size_t> names;
  std::vector<std::string> files;
  bool operator==(const DiskImage&) const = default;
};

// Makes `directory` hold these files and no others, for their owner alone.
absl::Status WriteImage(const DiskImage& image, const std::string& directory);

// What became of what was not synced, over all cuts.
struct CutCounts {
  uint64_t kept = 0, dropped = 0, torn = 0;    // Sectors.
  uint64_t names_kept = 0, names_dropped = 0;  // And truncations.
};

class PowerCutDisk : public DiskWatcher {
 public:
  // `lies`: says for a file whether its syncs do nothing.
  explicit PowerCutDisk(const std::string& directory,
                        std::function<bool(absl::string_view name)> lies = nullptr);

  // Where the recording stands: so many changes and syncs have been carried out.
  size_t position() const;

  // The positions worth a cut, ascending: before and after each sync of a file or of the directory,
  // and after each change of a name or a size.
  std::vector<size_t> Moments() const;

  // Whether a name was changed just before `position`, or its directory is synced just after.
  bool IsAboutNames(size_t position) const;

  // What is found when the power was cut at `position`.
  DiskImage Cut(size_t position, uint64_t seed, CutCounts* counts = nullptr) const;

  // After so many writes there is no space any more: each puts down a half of its bytes. The head
  // file's find theirs.
  void FillAfter(int64_t writes) { writes_until_full_ = writes; }
  void MakeSpace() { writes_until_full_ = INT64_MAX; }

  // One line a change, for people.
  std::string Describe(size_t position) const;

  int Opened(const std::string& path, bool made) override;
  DiskVerdict Before(const DiskCall& call) override;
  void After(const DiskCall& call) override;

 private:
  struct Event {
    DiskOp op = DiskOp::kOpen;  // kOpen: a file was made.
    int file = -1;
    uint64_t offset = 0;
    std::string bytes;     // kWrite.
    std::string name, to;  // In the directory.
  };

  std::string NameOf(absl::string_view path) const;  // Empty: of another directory.

  const std::string directory_;
  const std::function<bool(absl::string_view)> lies_;

  mutable Mutex mutex_;
  DiskImage base_;                       // Synced before anything.
  std::map<std::string, size_t> names_;  // Now.
  std::vector<std::string> file_names_;  // The last name of every file, by number.
  std::vector<Event> events_;
  std::atomic<int64_t> writes_until_full_{INT64_MAX};
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_STORE_POWER_CUT_DISK_H_
