#include "fabric-manager/adapters/store_sqlite/head_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/store_file.h"
#include "fabric-manager/ports/pack.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr char kHeadMagic[] = "CXLPHEAD";
constexpr size_t kSlotBytes = 64;
constexpr size_t kSlotDistance = 4096;  // No disk tears two slots with one sector.

uint64_t WordAt(absl::string_view bytes, size_t index) {
  uint64_t word = 0;
  std::memcpy(&word, bytes.data() + 8 * index, sizeof(word));
  return word;
}

// Magic, six words, and the checksum of what stands before it: kSlotBytes in all.
std::string SlotOf(const StoreMeta& meta) {
  std::string slot(kHeadMagic, 8);
  for (const uint64_t word : {meta.store_id, meta.epoch, meta.revision, meta.row_count,
                              meta.crc_sum, uint64_t{meta.clean ? 1u : 0u}}) {
    AppendWord(slot, word);
  }
  AppendWord(slot, Crc32(0, slot));
  return slot;
}

std::string FileOf(const StoreMeta& meta) {
  std::string file(kHeadSlots * kSlotDistance, '\0');
  for (size_t slot = 0; slot < kHeadSlots; ++slot) {
    file.replace(slot * kSlotDistance, kSlotBytes, SlotOf(meta));
  }
  return file;
}

}  // namespace

std::string HeadPath(const std::string& database) { return database + "-head"; }

// A slot that was cut, torn or never written is left empty: Open decides by the slots that are
// sound.
absl::StatusOr<HeadSlots> ReadHead(const std::string& path) {
  const absl::StatusOr<std::string> file = ReadStoreFile(path);
  if (!file.ok()) return file.status();
  HeadSlots slots;
  for (size_t slot = 0; slot < kHeadSlots; ++slot) {
    if (file->size() < slot * kSlotDistance + kSlotBytes) break;
    const absl::string_view bytes(file->data() + slot * kSlotDistance, kSlotBytes);
    if (bytes.substr(0, 8) != absl::string_view(kHeadMagic, 8) ||
        WordAt(bytes, 7) != Crc32(0, bytes.substr(0, kSlotBytes - 8))) {
      continue;
    }
    slots[slot] = {.epoch = WordAt(bytes, 2),
                   .revision = WordAt(bytes, 3),
                   .row_count = WordAt(bytes, 4),
                   .crc_sum = WordAt(bytes, 5),
                   .clean = WordAt(bytes, 6) == 1,
                   .store_id = WordAt(bytes, 1)};
  }
  return slots;
}

// Makes the file where there is none, and leaves both slots sound: an empty one gets `meta`. It
// goes through the VFS, so that the tests that cut the power of the database cut it here as well.
absl::StatusOr<std::unique_ptr<HeadFile>> HeadFile::Open(const std::string& database,
                                                         const std::string& vfs_name,
                                                         const StoreMeta& meta) {
  std::unique_ptr<HeadFile> head(new HeadFile(HeadPath(database)));
  const absl::StatusOr<HeadSlots> slots = ReadHead(head->path_);
  if (!slots.ok()) return slots.status();
  if (!StoreFileExists(head->path_)) {
    absl::Status status = CreateStoreFile(head->path_, FileOf(meta));
    if (!status.ok()) return status;
  }
  sqlite3_vfs* const vfs = sqlite3_vfs_find(vfs_name.empty() ? nullptr : vfs_name.c_str());
  if (vfs == nullptr) return absl::InternalError(absl::StrCat("no SQLite VFS ", vfs_name));
  head->memory_.resize(static_cast<size_t>(vfs->szOsFile));
  auto* const file = reinterpret_cast<sqlite3_file*>(head->memory_.data());
  // The VFS knows only files of databases; it treats a log as a plain file without locks.
  int flags = 0;
  const int code =
      vfs->xOpen(vfs, head->path_.c_str(), file,
                 SQLITE_OPEN_READWRITE | SQLITE_OPEN_WAL | SQLITE_OPEN_NOFOLLOW, &flags);
  if (code != SQLITE_OK) {
    if (file->pMethods != nullptr) file->pMethods->xClose(file);
    return Refuse(absl::StatusCode::kUnavailable, "STORE_IO",
                  absl::StrCat("cannot open ", head->path_, ": ", sqlite3_errstr(code), ", ",
                               std::strerror(errno)),
                  "check the disk and the kernel log, then start again");
  }
  head->file_ = file;
  head->meta_ = meta;
  // From here on a power cut may tear one slot, so the other must be sound.
  for (size_t slot = 0; slot < kHeadSlots; ++slot) {
    if ((*slots)[slot].has_value()) continue;
    absl::Status status = head->WriteSlot(slot);
    if (status.ok()) status = head->Sync();
    if (!status.ok()) return status;
  }
  return head;
}

HeadFile::~HeadFile() {
  if (file_ != nullptr) file_->pMethods->xClose(file_);
}

// Only slot 0, and no sync: SQLite's commit is durable already, and Settle syncs this one.
absl::Status HeadFile::Write(const StoreMeta& meta) {
  meta_ = meta;
  settled_ = false;
  return WriteSlot(0);
}

// The second slot is written only when the first is durable: one of them is whole at any moment.
absl::Status HeadFile::Settle() {
  if (settled_) return absl::OkStatus();
  absl::Status status = Sync();
  if (status.ok()) status = WriteSlot(1);
  if (status.ok()) status = Sync();
  if (status.ok()) settled_ = true;
  return status;
}

absl::Status HeadFile::WriteSlot(size_t slot) {
  const std::string bytes = SlotOf(meta_);
  const int code = file_->pMethods->xWrite(file_, bytes.data(), static_cast<int>(bytes.size()),
                                           static_cast<sqlite3_int64>(slot * kSlotDistance));
  return code == SQLITE_OK ? absl::OkStatus() : Failed("write", code);
}

absl::Status HeadFile::Sync() {
  const int code = file_->pMethods->xSync(file_, SQLITE_SYNC_NORMAL);
  return code == SQLITE_OK ? absl::OkStatus() : Failed("sync", code);
}

// DATA_LOSS, and not UNAVAILABLE: what is on the disk now is not known before it is read again.
absl::Status HeadFile::Failed(absl::string_view doing, int code) const {
  const int error = errno;
  return Refuse(absl::StatusCode::kDataLoss, "STORE_IO",
                absl::StrCat("cannot ", doing, " ", path_, ": ", sqlite3_errstr(code), ", ",
                             std::strerror(error)),
                "check the disk and the kernel log, then restart the manager: it reads what was "
                "really stored");
}

}  // namespace cxlpool::fm
