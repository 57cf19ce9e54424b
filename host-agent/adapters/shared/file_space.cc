#include "host-agent/adapters/shared/file_space.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "host-agent/support/file_holders.h"
#include "host-agent/support/run_file.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kBlockBytes = uint64_t{128} << 20;
constexpr uint64_t kWindowBytes = uint64_t{1} << 44;  // Of each file, in made-up host addresses.
constexpr size_t kMaxPiecesBytes = size_t{4} << 20;
constexpr size_t kMaxHolders = 32;

std::string TextOf(const SpacePiece& piece) {
  return absl::StrCat("bytes ", piece.offset_bytes, " to ", piece.offset_bytes + piece.length_bytes,
                      " of ", piece.device);
}

// "OFFSET LENGTH DRIVER ONLINE DAX DEVICE"
std::optional<SpacePiece> ParsePiece(const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 5));
  SpacePiece piece;
  int driver = 0;
  if (words.size() != 6 || !absl::SimpleAtoi(words[0], &piece.offset_bytes) ||
      !absl::SimpleAtoi(words[1], &piece.length_bytes) || !absl::SimpleAtoi(words[2], &driver) ||
      driver < 0 || driver > static_cast<int>(DaxDriver::kKmem) ||
      !absl::SimpleAtoi(words[3], &piece.online_blocks)) {
    return std::nullopt;
  }
  piece.driver = static_cast<DaxDriver>(driver);
  piece.dax = words[4];
  piece.device = words[5];
  return piece;
}

}  // namespace

FileSpace::FileSpace(std::vector<std::string> files, std::string pieces_path, std::string boot_id,
                     uint64_t align_bytes)
    : files_(std::move(files)),
      pieces_path_(std::move(pieces_path)),
      boot_id_(std::move(boot_id)),
      align_bytes_(align_bytes) {
  // Without the file there are no pieces: another boot, or none was made yet. A line of a later
  // release that is not understood is passed over.
  const auto lines = ReadRunFile(pieces_path_, kMaxPiecesBytes, kPiecesText, boot_id_);
  if (!lines.has_value()) return;
  for (const std::string& line : *lines) {
    if (auto piece = ParsePiece(line)) pieces_.push_back(*std::move(piece));
  }
}

// Nobody has to be taken off a file.
absl::Status FileSpace::Prepare() { return absl::OkStatus(); }

// What follows from a piece's place and driver is worked out here, and not kept.
absl::StatusOr<SpaceView> FileSpace::Look() {
  SpaceView view;
  view.memory_block_bytes = kBlockBytes;
  struct sysinfo info;
  if (::sysinfo(&info) == 0) {
    // As if an eighth of the memory might go to page structs: there are none, but 0 would say that
    // it is not known.
    view.page_struct_spare_bytes = uint64_t{info.totalram} * info.mem_unit / 8;
  }
  MutexLock lock(mutex_);
  // As on Linux: what is on a device that the configuration does not name is not shown.
  std::copy_if(pieces_.begin(), pieces_.end(), std::back_inserter(view.pieces),
               [&](const SpacePiece& piece) {
                 return std::find(files_.begin(), files_.end(), piece.device) != files_.end();
               });
  for (size_t i = 0; i < files_.size(); ++i) {
    SpaceDevice device{.name = files_[i], .align_bytes = align_bytes_};
    struct stat file;
    if (::stat(files_[i].c_str(), &file) != 0 || !S_ISREG(file.st_mode)) {
      device.unfit =
          absl::StrCat(files_[i], " is not a file of this machine: make it (truncate -s)");
    } else {
      device.size_bytes = static_cast<uint64_t>(file.st_size) / align_bytes_ * align_bytes_;
    }
    for (SpacePiece& piece : view.pieces) {
      if (piece.device != device.name) continue;
      piece.hpa_bytes = (i + 1) * kWindowBytes + piece.offset_bytes;
      piece.numa_node = 0;
      if (piece.driver == DaxDriver::kKmem) {
        piece.total_blocks = static_cast<uint32_t>(piece.length_bytes / kBlockBytes);
      }
      piece.all_movable = piece.online_blocks > 0;
    }
    view.devices.push_back(std::move(device));
  }
  return view;
}

// The very same piece is there already: OK, as on Linux, for a rung is tried again after a crash.
// Any other overlap is refused.
absl::Status FileSpace::Carve(const std::string& device, uint64_t offset_bytes,
                              uint64_t length_bytes) {
  MutexLock lock(mutex_);
  for (const SpacePiece& other : pieces_) {
    if (other.device != device || other.offset_bytes >= offset_bytes + length_bytes ||
        offset_bytes >= other.offset_bytes + other.length_bytes) {
      continue;
    }
    if (other.offset_bytes == offset_bytes && other.length_bytes == length_bytes) {
      return absl::OkStatus();
    }
    return FailedPrecondition("RANGE_TAKEN", absl::StrCat(other.dax, " has ", TextOf(other)),
                              "take that DAX device away first");
  }
  const auto file = std::find(files_.begin(), files_.end(), device);
  // The lowest number that is not taken, as Linux has it.
  std::string name;
  for (size_t n = 0; name.empty(); ++n) {
    name = absl::StrCat("dax", file - files_.begin(), ".", n);
    for (const SpacePiece& other : pieces_) {
      if (other.dax == name) name.clear();
    }
  }
  return Change([&](std::vector<SpacePiece>& pieces) {
    pieces.push_back({.device = device,
                      .offset_bytes = offset_bytes,
                      .length_bytes = length_bytes,
                      .dax = std::move(name)});
  });
}

// Not there: OK, it was asked for twice.
absl::Status FileSpace::Uncarve(const SpacePiece& piece) {
  MutexLock lock(mutex_);
  const auto found = Find(piece);
  if (!found.ok()) return absl::OkStatus();
  if ((*found)->driver != DaxDriver::kNone) {
    return FailedPrecondition("DAX_BOUND", absl::StrCat("a driver has ", piece.dax),
                              "unbind it first");
  }
  return Change([&](std::vector<SpacePiece>& pieces) {
    pieces.erase(pieces.begin() + (*found - pieces.data()));
  });
}

// From one driver to another by way of none. Without a whole block there would be no memory to
// bring online.
absl::Status FileSpace::Bind(const SpacePiece& piece, DaxDriver driver) {
  MutexLock lock(mutex_);
  const auto found = Find(piece);
  if (!found.ok()) return found.status();
  if ((*found)->driver == driver) return absl::OkStatus();
  if ((*found)->driver != DaxDriver::kNone) {
    return FailedPrecondition("DAX_BOUND", absl::StrCat("another driver has ", piece.dax),
                              "unbind it first");
  }
  if (driver == DaxDriver::kKmem && piece.length_bytes < kBlockBytes) {
    return Refuse(absl::StatusCode::kInvalidArgument, "NO_MEMORY_BLOCK",
                  absl::StrCat(piece.length_bytes, " bytes hold no memory block of 128 MiB"),
                  "use DEVDAX, or a Region of 128 MiB or more");
  }
  return Change([&](auto&) { (*found)->driver = driver; });
}

// As the kernel refuses it: what is online is in use.
absl::Status FileSpace::Unbind(const SpacePiece& piece) {
  MutexLock lock(mutex_);
  const auto found = Find(piece);
  if (!found.ok()) return absl::OkStatus();
  if ((*found)->online_blocks > 0) {
    return FailedPrecondition("BLOCKS_BUSY",
                              absl::StrCat("memory blocks of ", piece.dax, " are online"),
                              "bring them offline first");
  }
  return Change([&](auto&) { (*found)->driver = DaxDriver::kNone; });
}

// All whole blocks at once; a rest of the piece that fills none has none.
absl::Status FileSpace::OnlineBlocks(const SpacePiece& piece, MemoryZone) {
  MutexLock lock(mutex_);
  const auto found = Find(piece);
  if (!found.ok()) return found.status();
  if ((*found)->driver != DaxDriver::kKmem) {
    return FailedPrecondition("NOT_KMEM", absl::StrCat(piece.dax, " is not with kmem"),
                              "bind the DAX device to kmem first");
  }
  return Change([&](auto&) {
    (*found)->online_blocks = static_cast<uint32_t>(piece.length_bytes / kBlockBytes);
  });
}

// Nobody's pages lie there, so it never takes longer.
absl::Status FileSpace::OfflineBlocks(const SpacePiece& piece, absl::Duration) {
  MutexLock lock(mutex_);
  const auto found = Find(piece);
  if (!found.ok()) return absl::OkStatus();
  return Change([&](auto&) { (*found)->online_blocks = 0; });
}

// A descriptor is one of the whole file: only a mapping says of which piece it is.
absl::StatusOr<std::vector<ProcessId>> FileSpace::FindHolders(const SpacePiece& piece) {
  return FindFileMappers(piece.device, piece.offset_bytes, piece.length_bytes, kMaxHolders);
}

// The driver is looked at under the lock, and the file opened without it: a driver
// that goes meanwhile takes nothing away from a file.
absl::StatusOr<OpenPiece> FileSpace::Open(const SpacePiece& piece, bool read_only) {
  {
    MutexLock lock(mutex_);
    const auto found = Find(piece);
    if (!found.ok()) return found.status();
    if ((*found)->driver != DaxDriver::kDeviceDax) {
      return FailedPrecondition("NOT_DEVDAX", absl::StrCat(piece.dax, " is no devdax device now"),
                                "bind it first");
    }
  }
  UniqueFd fd(
      ::open(piece.device.c_str(), (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) {
    return Refuse(absl::StatusCode::kInternal, "DAX_OPEN",
                  absl::StrCat(piece.device, ": ", std::strerror(errno)),
                  "check that the file is there and that the agent may open it");
  }
  return OpenPiece{std::move(fd), piece.offset_bytes};
}

// By its range, and not by its name, which another piece may have by now. Valid until pieces_
// changes.
absl::StatusOr<SpacePiece*> FileSpace::Find(const SpacePiece& piece) {
  for (SpacePiece& each : pieces_) {
    if (each.device == piece.device && each.offset_bytes == piece.offset_bytes &&
        each.length_bytes == piece.length_bytes) {
      return &each;
    }
  }
  return Refuse(absl::StatusCode::kNotFound, "NO_DAX_DEVICE",
                absl::StrCat("there is no DAX device on ", TextOf(piece)), "make it first");
}

// Changes pieces_ and writes down what it is then. Where that fails the rung fails, and is tried
// again: for that pieces_ is as before, since a rung that finds its work done would write nothing.
absl::Status FileSpace::Change(absl::FunctionRef<void(std::vector<SpacePiece>&)> edit) {
  std::vector<SpacePiece> former = pieces_;
  edit(pieces_);
  std::string lines;
  for (const SpacePiece& piece : pieces_) {
    absl::StrAppend(&lines, piece.offset_bytes, " ", piece.length_bytes, " ",
                    static_cast<int>(piece.driver), " ", piece.online_blocks, " ", piece.dax, " ",
                    piece.device, "\n");
  }
  const int error = WriteRunFile(pieces_path_, kPiecesText, boot_id_, lines);
  if (error == 0) return absl::OkStatus();
  if (!CXLPOOL_MUTANT("unwritten-piece-is-done")) pieces_ = std::move(former);
  return Refuse(absl::StatusCode::kUnavailable, "RUN_FILE",
                absl::StrCat(pieces_path_, " cannot be written: ", std::strerror(error)),
                "make room there, and see that the directory is the agent's own");
}

}  // namespace cxlpool::agent
