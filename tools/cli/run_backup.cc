#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/struct.pb.h"
#include "proto/support/byte_size.h"
#include "proto/support/give_name.h"
#include "proto/support/refusal.h"
#include "proto/support/unique_fd.h"
#include "tools/cli/print.h"
#include "tools/cli/run.h"

namespace cxlpool::cli {
namespace {

constexpr absl::Duration kLimit = absl::Minutes(30);

absl::Status Exists(const std::string& file, std::string remedy) {
  return Refuse(absl::StatusCode::kAlreadyExists, "BACKUP_EXISTS",
                absl::StrCat(file, " is there already"), std::move(remedy));
}

absl::Status CannotWrite(const std::string& file, int error) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "NO_ACCESS",
                absl::StrCat("cannot write ", file, ": ", strerror(error)),
                "check the path, its mode, and the space there");
}

// FILE.part while it grows; FILE once it is whole and on the disk.
class PartFile {
 public:
  explicit PartFile(std::string file) : file_(std::move(file)), part_(file_ + ".part") {}
  ~PartFile() {
    if (made_) unlink(part_.c_str());
  }

  // Overwrites neither FILE nor FILE.part, which another backup may be writing.
  absl::Status Make() {
    struct stat found = {};
    if (lstat(file_.c_str(), &found) == 0) return Exists(file_, "choose another name");
    fd_.Reset(open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (fd_.valid()) {
      made_ = true;
      return absl::OkStatus();
    }
    if (errno == EEXIST) {
      return Exists(part_,
                    "a backup that was broken off left it, or is still under way: remove it");
    }
    return CannotWrite(part_, errno);
  }

  // Begins again.
  absl::Status Empty() {
    size_ = 0;
    if (ftruncate(fd_.get(), 0) != 0 || lseek(fd_.get(), 0, SEEK_SET) != 0) {
      return CannotWrite(part_, errno);
    }
    return absl::OkStatus();
  }

  // Writes all of `data`, or fails.
  absl::Status Append(absl::string_view data) {
    while (!data.empty()) {
      const ssize_t put = write(fd_.get(), data.data(), data.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return CannotWrite(part_, errno);
      size_ += static_cast<size_t>(put);
      data.remove_prefix(static_cast<size_t>(put));
    }
    return absl::OkStatus();
  }

  // Once this is OK, FILE and its name survive a power failure. If only the last step fails, FILE
  // is there and whole all the same.
  absl::Status Publish() {
    if (fsync(fd_.get()) != 0) return CannotWrite(part_, errno);
    if (!GiveName(part_, file_)) {
      return errno == EEXIST ? Exists(file_, "choose another name") : CannotWrite(file_, errno);
    }
    made_ = false;
    const std::filesystem::path parent = std::filesystem::path(file_).parent_path();
    const UniqueFd directory(
        open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory.valid() || fsync(directory.get()) != 0) return CannotWrite(file_, errno);
    return absl::OkStatus();
  }

  uint64_t size() const { return size_; }

 private:
  const std::string file_;
  const std::string part_;
  UniqueFd fd_;
  bool made_ = false;
  uint64_t size_ = 0;
};

}  // namespace

// JSON: {"file": PATH, "revision": "N", "size_bytes": "N", "audit_anchor": "ROW:HASH"}.
absl::Status Run(Backup& command, Connection& connection, Printer& printer) {
  PartFile file(command.file);
  if (absl::Status status = file.Make(); !status.ok()) return status;
  // Before the copy is made, so that the copy has it. A manager of the release before has no trail.
  std::string anchor;
  if (const auto trail = connection.Send(v1::VerifyAuditRequest()); trail.ok()) {
    anchor = trail->head();
  } else if (!absl::IsUnimplemented(trail.status())) {
    return trail.status();
  }
  uint64_t revision = 0;
  uint64_t total = 0;
  bool last = false;
  Progress progress(printer);
  // A stream that broke starts again from the beginning, because the pool may have changed.
  const absl::Status streamed = connection.Retry("", [&](absl::Duration left) {
    if (absl::Status status = file.Empty(); !status.ok()) return status;
    revision = total = 0;
    last = false;
    return connection.stub().Backup(
        v1::BackupRequest(), left, kLimit, [&](const v1::BackupResponse& piece) {
          if (revision == 0) revision = piece.revision();
          if (total == 0) total = piece.total_bytes();
          last = piece.last();
          absl::Status put = file.Append(piece.data());
          if (!last && total > 0) {
            progress.Tell(absl::StrCat(file.size() * 100 / total, "% of ", FormatByteSize(total)));
          }
          return put;
        });
  });
  if (!streamed.ok()) return streamed;
  if (!last || file.size() != total) {
    return Refuse(
        absl::StatusCode::kUnavailable, "BACKUP_BROKEN",
        absl::StrCat("the manager sent ", file.size(), " of ", total, " bytes and no end"),
        "make it again");
  }
  if (absl::Status status = file.Publish(); !status.ok()) return status;
  google::protobuf::Struct json;
  auto& fields = *json.mutable_fields();
  fields["file"].set_string_value(command.file);
  fields["revision"].set_string_value(absl::StrCat(revision));
  fields["size_bytes"].set_string_value(absl::StrCat(total));
  if (!anchor.empty()) fields["audit_anchor"].set_string_value(anchor);
  return Print(
      printer, json,
      absl::StrCat(command.file, ": the pool at revision ", revision, ", ", FormatByteSize(total),
                   "\n", anchor.empty() ? "" : absl::StrCat("audit trail: ", anchor, "\n")));
}

}  // namespace cxlpool::cli
