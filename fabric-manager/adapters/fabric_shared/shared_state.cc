#include "fabric-manager/adapters/fabric_shared/shared_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "fabric-manager/ports/pack.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxFile = size_t{16} << 20;

absl::Status Errno(absl::string_view what, absl::string_view path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

absl::Status Damaged(absl::string_view path) {
  return Refuse(absl::StatusCode::kDataLoss, "STATE_DAMAGED",
                absl::StrCat(path, " is not as the manager wrote it"),
                "restore the directory of fabric.state from its backup");
}

// Whoever was asked to clear what, a reboot of that host ends it.
absl::Status DamagedClearing(absl::string_view path) {
  return Refuse(absl::StatusCode::kDataLoss, "STATE_DAMAGED",
                absl::StrCat(path,
                             " is not as the manager wrote it: which host may still be "
                             "clearing bytes is not known"),
                "reboot every host of the pool, then remove that file, leave only the first line "
                "in `identity` beside it, and start the manager");
}

constexpr absl::string_view kSum = "sum ";

std::string SumOf(absl::string_view text) { return absl::StrFormat("%08x", Crc32(0, text)); }

std::string WithChecksum(absl::string_view text) {
  return absl::StrCat(text, kSum, SumOf(text), "\n");
}

// Takes the last line off, if it is the checksum of all before it. False: it is not, or is wrong.
bool StripChecksum(absl::string_view& text) {
  absl::string_view rest = text;
  if (!absl::ConsumeSuffix(&rest, "\n")) return false;
  const size_t end = rest.rfind('\n');
  const size_t line = end == absl::string_view::npos ? 0 : end + 1;
  absl::string_view sum = rest.substr(line);
  if (!absl::ConsumePrefix(&sum, kSum)) return false;
  const bool right = sum == SumOf(text.substr(0, line));
  if (right || CXLPOOL_MUTANT("any-checksum-will-do")) text = text.substr(0, line);
  return right || CXLPOOL_MUTANT("any-checksum-will-do");
}

// Nothing where there is none.
absl::StatusOr<std::optional<std::string>> ReadWhole(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return std::nullopt;
  if (!fd.valid()) return Errno("open", path);
  std::string text;
  char buffer[65536];
  while (true) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Errno("read", path);
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kMaxFile) return Damaged(path);
  }
}

// Whoever reads it sees the former text or this one, also after a power cut; OK: this one.
absl::Status WriteWhole(const std::string& directory, const std::string& name,
                        const std::string& text) {
  const std::string path = absl::StrCat(directory, "/", name);
  const std::string fresh = absl::StrCat(path, ".new");
  const UniqueFd fd(
      ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid()) return Errno("make", fresh);
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Errno("write", fresh);
    done += static_cast<size_t>(n);
  }
  if (::fsync(fd.get()) != 0) return Errno("sync", fresh);
  if (::rename(fresh.c_str(), path.c_str()) != 0) return Errno("replace", path);
  const UniqueFd above(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!above.valid() || ::fsync(above.get()) != 0) return Errno("sync", directory);
  return absl::OkStatus();
}

}  // namespace

// The lock is taken before any of the files is read: a second manager gets FABRIC_BUSY and changes
// nothing. It goes with the process, however that ends.
absl::StatusOr<SharedState> SharedState::Open(const std::string& directory) {
  SharedState state(directory);
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return Errno("make", directory);
  const std::string lock = absl::StrCat(directory, "/lock");
  state.lock_ = UniqueFd(::open(lock.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!state.lock_.valid()) return Errno("open", lock);
  if (::flock(state.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "FABRIC_BUSY",
                  absl::StrCat("another manager runs the shared devices of ", directory),
                  "stop it, or give this one a state directory of its own");
  }
  if (absl::Status status = state.Load(); !status.ok()) return status;
  return state;
}

// A file that is not just what this class writes is damage, and the manager does not start: a
// clearing that is forgotten, or that lost a digit, would let bytes be given away that a host may
// still zero; another identity would make the pool's own devices another pool's.
//
// Each file ends with a line of its checksum. Where `identity` has one there is a `clearing`, which
// has one too: without it, or empty, that file is damaged. An earlier release wrote neither, and no
// `clearing` before the first was due: such a directory is read, and written anew.
absl::Status SharedState::Load() {
  const std::string identity = absl::StrCat(directory_, "/identity");
  const std::string path = absl::StrCat(directory_, "/clearing");
  const absl::StatusOr<std::optional<std::string>> pool = ReadWhole(identity);
  if (!pool.ok()) return pool.status();
  const absl::StatusOr<std::optional<std::string>> notes = ReadWhole(path);
  if (!notes.ok()) return notes.status();

  bool checked = false;  // Both files have, or are to have, their checksums.
  if (pool->has_value()) {
    absl::string_view text = **pool;
    checked = StripChecksum(text);
    absl::ConsumeSuffix(&text, "\n");
    const auto uuid = ParseUuid(text);
    if (!uuid.ok() || FormatUuid(*uuid) != text) return Damaged(identity);
    pool_ = std::string(text);
  }
  if (notes->has_value()) {
    absl::string_view text = **notes;
    if (!StripChecksum(text) && checked) return DamagedClearing(path);
    if (absl::Status status = ParseClearings(text); !status.ok()) return status;
  } else if (checked && !CXLPOOL_MUTANT("no-clearing-file-is-none")) {
    return DamagedClearing(path);
  }
  if (checked) return absl::OkStatus();

  if (pool_.empty()) {
    // A new pool. Its identity is written before there is a `clearing`, as an earlier release would
    // write it, so that a `clearing` without one always means that the identity was lost.
    if (notes->has_value()) return Damaged(identity);
    pool_ = FormatUuid(RandomUuid());
    absl::Status status = WriteWhole(directory_, "identity", absl::StrCat(pool_, "\n"));
    if (!status.ok()) return status;
  }
  // The checksum of the identity comes last: it promises a `clearing` that has one.
  if (absl::Status status = Save(clearings_); !status.ok()) return status;
  return WriteWhole(directory_, "identity", WithChecksum(absl::StrCat(pool_, "\n")));
}

// One line a clearing: host, life (in hexadecimal digits, for it is the agent's text), device, and
// where.
absl::Status SharedState::ParseClearings(absl::string_view text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    Clearing clearing;
    if (words.size() != 5 || !absl::SimpleAtoi(words[3], &clearing.slice.dpa_bytes) ||
        !absl::SimpleAtoi(words[4], &clearing.slice.length_bytes)) {
      return DamagedClearing(absl::StrCat(directory_, "/clearing"));
    }
    clearing.host = words[0];
    clearing.life = absl::HexStringToBytes(words[1]);
    clearing.slice.device = words[2];
    clearings_.push_back(std::move(clearing));
  }
  return absl::OkStatus();
}

// OK: the note is on the disk, and the host may be asked. There already: OK.
absl::Status SharedState::Add(const Clearing& clearing) {
  if (std::find(clearings_.begin(), clearings_.end(), clearing) != clearings_.end()) {
    return absl::OkStatus();
  }
  std::vector<Clearing> clearings = clearings_;
  clearings.push_back(clearing);
  return Save(std::move(clearings));
}

// OK: the note is gone from the disk. It was not there: OK.
absl::Status SharedState::Remove(const Clearing& clearing) {
  std::vector<Clearing> clearings = clearings_;
  if (std::erase(clearings, clearing) == 0) return absl::OkStatus();
  return Save(std::move(clearings));
}

// In memory only what is on the disk: where the write fails nothing has changed.
absl::Status SharedState::Save(std::vector<Clearing> clearings) {
  std::string text;
  for (const Clearing& each : clearings) {
    absl::StrAppend(&text, each.host, " ", absl::BytesToHexString(each.life), " ",
                    each.slice.device, " ", each.slice.dpa_bytes, " ", each.slice.length_bytes,
                    "\n");
  }
  absl::Status status = WriteWhole(directory_, "clearing", WithChecksum(text));
  if (!status.ok()) return status;
  clearings_ = std::move(clearings);
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
