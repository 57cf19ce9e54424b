// SQLite's write-ahead log as a file, read without SQLite, so that damage is distinguished from the
// end.
//
// SQLite takes the first frame whose checksum fails for the end of the log: right after a power
// cut, which tears only what was never synced, and wrong where a synced frame was damaged. The
// difference can be seen. A frame's checksum goes on from the one that is *stored* in the frame
// before it, so frames behind a damaged one can still be verified. And a transaction is written
// only once the one before it was synced: a commit behind the break that has yet another frame
// behind it was on stable storage, and so was everything before it.
//
//   header  magic · version · page size · checkpoints · salt 1, 2 · checksum 1, 2   (32 bytes)
//   frame   page number · database size, if it ends a commit · salt 1, 2 · checksum 1, 2 · page
//
// Frames with other salts than the header's are of an earlier round of the log and count for
// nothing. https://www.sqlite.org/fileformat2.html#walformat
//
// Values; reading a file is the only thing here that can fail.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_LOG_FILE_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_LOG_FILE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cxlpool::fm {

class LogFile {
 public:
  // The log at `path`; a file that is missing reads as one of no bytes. UNAVAILABLE/STORE_IO.
  static absl::StatusOr<LogFile> Read(const std::string& path);

  explicit LogFile(std::string bytes);

  bool empty() const { return bytes_.empty(); }

  // Whether the header verifies. Where it does not, SQLite ignores the whole log; the counts below
  // then are of the frames that have the first one's salts.
  bool header_is_sound() const { return header_is_sound_; }

  // Frames from the first up to the last commit that SQLite recovers.
  size_t committed() const { return committed_; }

  // Where the committed part ends, in bytes.
  uint64_t committed_end() const { return EndOf(committed_); }

  // Where a log of so many frames ends, in bytes.
  static uint64_t EndOf(size_t frames);

  // Whether something lies behind the committed part that could pass for frames of this round.
  bool has_more() const { return has_more_; }

  // Whether a commit that had been synced lies behind the place where the chain of frames breaks,
  // so that the frame at the break was damaged.
  bool has_commits_behind_damage() const { return has_commits_behind_damage_; }
  size_t first_broken() const { return chain_ + 1; }  // The frame at the break, counted from 1.

  // The database file `main` with the committed frames copied into it, as SQLite would show it.
  // `all`: also those that verify behind the break, up to the last commit there.
  std::string CopyInto(std::string main, bool all) const;

  // Whether every page of the committed frames is in `main` as it is here.
  bool IsCopiedInto(absl::string_view main) const;

 private:
  struct Frame {
    uint32_t page = 0;
    uint32_t commit_pages = 0;  // 0: it does not end a commit.
    bool of_this_round = false;
    bool verified = false;  // By the checksum that the frame before it has, or the header.
  };

  absl::string_view FrameBytes(size_t index) const;
  absl::string_view PageBytes(size_t index) const { return FrameBytes(index).substr(24); }
  void Scan();
  void FindWhatLiesBehind();
  bool IsTrueToItsHeader(size_t index) const;

  std::string bytes_;
  std::vector<Frame> frames_;
  bool header_is_sound_ = false;
  size_t chain_ = 0;      // Frames from the first on that verify one after the other.
  size_t committed_ = 0;  // Of them.
  size_t last_verified_commit_ = 0;
  bool has_commits_behind_damage_ = false;
  bool has_more_ = false;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_LOG_FILE_H_
