#include "fabric-manager/adapters/fabric_emulated/slot_files.h"

#include <fcntl.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::fm {
namespace {

namespace pb = google::protobuf;

constexpr char kFabricFile[] = "fabric.textproto";
constexpr char kNewFabricFile[] = ".fabric.textproto.new";
constexpr char kHostFile[] = "host.textproto";
constexpr off_t kMaxFileBytes = 64 << 10;
constexpr int kMaxNesting = 8;

absl::Status SlotError(absl::string_view what, absl::string_view path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

absl::Status Corrupt(absl::string_view path, absl::string_view why) {
  return Refuse(absl::StatusCode::kDataLoss, "SLOT_CORRUPT", absl::StrCat(path, " ", why),
                "restart the process that writes it, or restore the file");
}

// Keeps the parser's complaints out of stderr: the file's writer chooses their text.
class SilentCollector : public pb::io::ErrorCollector {
 public:
  void AddError(int, pb::io::ColumnNumber, const std::string&) override {}
};

// Whether the text is such a message. Everything about the parser is limited, because on the host's
// side the agent's user writes what it reads.
bool Parse(const std::string& text, pb::Message& message) {
  pb::TextFormat::Parser parser;
  SilentCollector silent;
  parser.RecordErrorsTo(&silent);
  parser.AllowUnknownField(true);  // Of a later release.
  parser.SetRecursionLimit(kMaxNesting);
  return parser.ParseFromString(text, &message);
}

absl::StatusOr<UniqueFd> OpenDirectory(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return SlotError("open", path);
  return fd;
}

// The text of a small regular file that `owner` owns; nothing where there is none. The agent's user
// can put anything in its place: a link, a FIFO, a huge file, another user's file. Each of them is
// SLOT_CORRUPT, and none makes this read elsewhere, hang, or take more than kMaxFileBytes. What is
// looked at is the open file, so that a swap between the check and the read changes nothing.
absl::StatusOr<std::optional<std::string>> ReadSmall(int directory, const char* name,
                                                     const std::string& path, uid_t owner) {
  // O_NONBLOCK: a FIFO put in its place must not hang the driver.
  UniqueFd fd(::openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return std::nullopt;
  if (!fd.valid() && errno == ELOOP) return Corrupt(path, "is a symbolic link");
  if (!fd.valid()) return SlotError("open", path);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return SlotError("stat", path);
  if (!S_ISREG(info.st_mode)) return Corrupt(path, "is not a regular file");
  if (info.st_uid != owner) return Corrupt(path, absl::StrCat("belongs to uid ", info.st_uid));
  if (info.st_size > kMaxFileBytes) return Corrupt(path, "is too long");
  std::string text(kMaxFileBytes, '\0');
  size_t used = 0;
  while (used < text.size()) {
    const ssize_t n = ::read(fd.get(), text.data() + used, text.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SlotError("read", path);
    if (n == 0) break;
    used += static_cast<size_t>(n);
  }
  text.resize(used);
  return text;
}

absl::Status WriteAll(int fd, absl::string_view text, absl::string_view path) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SlotError("write", path);
    text.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

}  // namespace

SlotFiles::SlotFiles(std::string directory, uid_t agent_uid)
    : directory_(std::move(directory)), agent_uid_(agent_uid) {}

// Makes the slot's directory and gives it to the agent's user, who writes host.textproto there. No
// other user but root gets in.
absl::Status SlotFiles::Prepare() const {
  if (::mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST)
    return SlotError("make", directory_);
  auto directory = OpenDirectory(directory_);
  if (!directory.ok()) return directory.status();
  if (::geteuid() == 0 && ::fchown(directory->get(), agent_uid_, static_cast<gid_t>(-1)) != 0) {
    return SlotError("give to the agent's user", directory_);
  }
  if (::fchmod(directory->get(), 0700) != 0) return SlotError("set the mode of", directory_);
  return absl::OkStatus();
}

// What is bound in the slot; nothing: the slot is empty. Damage is an error and never an empty
// slot: an LD that is taken for absent would be proof that its host cannot reach the bytes any
// more.
absl::StatusOr<std::optional<emulated::v1::FabricSide>> SlotFiles::ReadFabricSide() const {
  auto directory = OpenDirectory(directory_);
  if (!directory.ok()) return directory.status();
  auto text = ReadSmall(directory->get(), kFabricFile, absl::StrCat(directory_, "/", kFabricFile),
                        ::geteuid());
  if (!text.ok()) return text.status();
  if (!text->has_value() || CXLPOOL_MUTANT("damaged-slot-is-empty")) return std::nullopt;
  emulated::v1::FabricSide side;
  // It is written whole or not at all, so this is damage.
  if (!Parse(**text, side) || side.extent_path().empty()) {
    return Corrupt(absl::StrCat(directory_, "/", kFabricFile),
                   "is not a FabricSide in text format");
  }
  return side;
}

// Replaces what is bound in the slot, in one step: a reader sees the old text or the new one, also
// after a crash, and after a power cut the new one if this was OK. The name of the new file is
// removed first, since the agent's user may have put a link there.
absl::Status SlotFiles::WriteFabricSide(const emulated::v1::FabricSide& side) const {
  std::string text;
  if (!pb::TextFormat::PrintToString(side, &text)) {
    return absl::InternalError("cannot print a FabricSide");
  }
  auto directory = OpenDirectory(directory_);
  if (!directory.ok()) return directory.status();
  const std::string path = absl::StrCat(directory_, "/", kNewFabricFile);
  if (::unlinkat(directory->get(), kNewFabricFile, 0) != 0 && errno != ENOENT) {
    return SlotError("remove", path);
  }
  UniqueFd file(::openat(directory->get(), kNewFabricFile,
                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return SlotError("make", path);
  if (absl::Status status = WriteAll(file.get(), text, path); !status.ok()) return status;
  if (::fdatasync(file.get()) != 0) return SlotError("sync", path);
  // Readable by the agent, to whom the directory is open and to no other user; never writable.
  if (::fchmod(file.get(), 0644) != 0) return SlotError("set the mode of", path);
  if (::renameat(directory->get(), kNewFabricFile, directory->get(), kFabricFile) != 0) {
    return SlotError("rename", path);
  }
  if (::fsync(directory->get()) != 0) return SlotError("sync", directory_);
  return absl::OkStatus();
}

absl::Status SlotFiles::RemoveFabricSide() const {
  auto directory = OpenDirectory(directory_);
  if (!directory.ok()) return directory.status();
  if (::unlinkat(directory->get(), kFabricFile, 0) != 0 && errno != ENOENT) {
    return SlotError("remove", absl::StrCat(directory_, "/", kFabricFile));
  }
  // What is unbound does not come back by a power cut: others may have its bytes by then.
  if (::fsync(directory->get()) != 0) return SlotError("sync", directory_);
  return absl::OkStatus();
}

// What the host's agent wrote about the slot; nothing: it has not written anything yet.
absl::StatusOr<std::optional<emulated::v1::HostSide>> SlotFiles::ReadHostSide() const {
  auto directory = OpenDirectory(directory_);
  if (!directory.ok()) return directory.status();
  const std::string path = absl::StrCat(directory_, "/", kHostFile);
  auto text = ReadSmall(directory->get(), kHostFile, path, agent_uid_);
  if (!text.ok()) return text.status();
  if (!text->has_value()) return std::nullopt;
  emulated::v1::HostSide side;
  if (!Parse(**text, side)) return Corrupt(path, "is not a HostSide in text format");
  return side;
}

}  // namespace cxlpool::fm
