#include "test/store/power_cut_disk.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "test/store/seeded.h"

namespace cxlpool::fm {
namespace {

namespace fs = std::filesystem;

// What one power cut does with what was not synced. Cuts differ in kind, so that rare ones are met:
// everything lost, everything kept, much or little of it, or all up to a moment.
class Fate {
 public:
  Fate(uint64_t seed, size_t unsynced, CutCounts* counts)
      : random_(seed), counts_(counts == nullptr ? unused_ : *counts) {
    switch (random_.Below(8)) {
      case 0:
        per_mille_ = 0;
        break;
      case 1:
        per_mille_ = 1000;
        break;
      case 2:
        per_mille_ = 1000;  // In order, up to there.
        end_ = random_.Below(unsynced + 1);
        break;
      default:
        per_mille_ = 20 + random_.Below(961);
    }
    // Names and data go by different ways: a journal, and what is written back.
    names_per_mille_ = random_.Below(2) == 0 ? per_mille_ : random_.Below(1001);
    tears_ = per_mille_ != 0 && (per_mille_ != 1000 || end_ != kNoEnd) && random_.Below(2) == 0;
  }

  // How many of the sector's `size` new bytes are kept.
  size_t Sector(size_t size) {
    const bool last = seen_ == end_;
    size_t keep = Keep() ? size : 0;
    if (tears_ && (last || (end_ == kNoEnd && random_.Below(16) == 0))) keep = random_.Below(size);
    ++(keep == size ? counts_.kept : keep == 0 ? counts_.dropped : counts_.torn);
    return keep;
  }
  bool Grown() { return per_mille_ != 0 && random_.Below(2) == 0; }
  bool Name() {
    const bool keep = random_.Below(1000) < names_per_mille_;
    ++(keep ? counts_.names_kept : counts_.names_dropped);
    return keep;
  }

 private:
  static constexpr size_t kNoEnd = SIZE_MAX;

  bool Keep() { return seen_++ < end_ && random_.Below(1000) < per_mille_; }

  Seeded random_;
  CutCounts unused_;
  CutCounts& counts_;
  uint64_t per_mille_ = 0;
  uint64_t names_per_mille_ = 0;
  size_t end_ = kNoEnd;
  size_t seen_ = 0;
  bool tears_ = false;
};

size_t SectorsOf(uint64_t offset, size_t size) {
  return size == 0 ? 0 : (offset + size - 1) / kSectorBytes - offset / kSectorBytes + 1;
}

void Put(std::string& file, uint64_t offset, absl::string_view bytes) {
  if (file.size() < offset + bytes.size()) file.resize(offset + bytes.size(), '\0');
  std::copy(bytes.begin(), bytes.end(), file.begin() + static_cast<std::ptrdiff_t>(offset));
}

void PutSectors(std::string& file, uint64_t offset, absl::string_view bytes, Fate& fate) {
  while (!bytes.empty()) {
    const size_t size = std::min<size_t>(bytes.size(), kSectorBytes - offset % kSectorBytes);
    const size_t keep = fate.Sector(size);
    if (keep > 0) Put(file, offset, bytes.substr(0, keep));
    if (keep < size && file.size() < offset + size && fate.Grown()) file.resize(offset + size);
    offset += size;
    bytes.remove_prefix(size);
  }
}

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

absl::Status WriteImage(const DiskImage& image, const std::string& directory) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) fs::remove(entry.path());
  std::vector<std::string> first(image.files.size());
  for (const auto& [name, file] : image.names) {
    const std::string path = absl::StrCat(directory, "/", name);
    if (!first[file].empty()) {
      fs::create_hard_link(first[file], path, error);
      continue;
    }
    first[file] = path;
    std::ofstream out(path, std::ios::binary);
    out.write(image.files[file].data(), static_cast<std::streamsize>(image.files[file].size()));
    out.close();
    if (!out.good() || chmod(path.c_str(), 0600) != 0) {
      return absl::UnavailableError(absl::StrCat("cannot write ", path));
    }
  }
  return error ? absl::UnavailableError(absl::StrCat(directory, ": ", error.message()))
               : absl::OkStatus();
}

PowerCutDisk::PowerCutDisk(const std::string& directory,
                           std::function<bool(absl::string_view name)> lies)
    : directory_(fs::canonical(directory).string()), lies_(std::move(lies)) {
  for (const auto& entry : fs::directory_iterator(directory_)) {
    const std::string name = entry.path().filename().string();
    base_.names[name] = base_.files.size();
    base_.files.push_back(ReadFile(entry.path()));
    file_names_.push_back(name);
  }
  names_ = base_.names;
}

size_t PowerCutDisk::position() const {
  MutexLock lock(mutex_);
  return events_.size();
}

std::vector<size_t> PowerCutDisk::Moments() const {
  MutexLock lock(mutex_);
  std::set<size_t> moments{0};
  for (size_t i = 0; i < events_.size(); ++i) {
    const DiskOp op = events_[i].op;
    if (op == DiskOp::kSync || op == DiskOp::kSyncDirectory) moments.insert(i);
    if (op != DiskOp::kWrite) moments.insert(i + 1);
  }
  return {moments.begin(), moments.end()};
}

bool PowerCutDisk::IsAboutNames(size_t position) const {
  MutexLock lock(mutex_);
  if (position < events_.size() && events_[position].op == DiskOp::kSyncDirectory) return true;
  if (position == 0) return false;
  const DiskOp op = events_[position - 1].op;
  return op == DiskOp::kOpen || op == DiskOp::kLink || op == DiskOp::kRename ||
         op == DiskOp::kUnlink;
}

std::string PowerCutDisk::NameOf(absl::string_view path) const {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos || path.substr(0, slash) != directory_) return "";
  return std::string(path.substr(slash + 1));
}

int PowerCutDisk::Opened(const std::string& path, bool made) {
  MutexLock lock(mutex_);
  const std::string name = NameOf(path);
  if (name.empty()) return -1;
  const auto found = names_.find(name);
  if (found != names_.end()) return static_cast<int>(found->second);
  if (!made) return -1;
  const int file = static_cast<int>(file_names_.size());
  names_[name] = file_names_.size();
  file_names_.push_back(name);
  events_.push_back({DiskOp::kOpen, file, 0, "", name, ""});
  return file;
}

DiskVerdict PowerCutDisk::Before(const DiskCall& call) {
  constexpr absl::string_view kNeverGrows = "-head";
  if (call.op != DiskOp::kWrite || absl::EndsWith(call.path, kNeverGrows)) return {};
  if (writes_until_full_-- > 0) return {};
  return {ENOSPC, call.bytes.size() / 2};
}

void PowerCutDisk::After(const DiskCall& call) {
  if (call.op == DiskOp::kOpen || call.op == DiskOp::kRead) return;
  MutexLock lock(mutex_);
  Event event{call.op, call.file, call.offset, std::string(call.bytes), "", ""};
  switch (call.op) {
    case DiskOp::kSyncDirectory:
      if (call.path != directory_ || (lies_ != nullptr && lies_(""))) return;
      break;
    case DiskOp::kLink:
    case DiskOp::kRename:
    case DiskOp::kUnlink: {
      event.name = NameOf(call.path);
      event.to = NameOf(call.to);
      const auto found = names_.find(event.name);
      if (found == names_.end()) return;
      event.file = static_cast<int>(found->second);
      if (call.op != DiskOp::kUnlink) {
        names_[event.to] = found->second;
        file_names_[found->second] = event.to;
      }
      if (call.op != DiskOp::kLink) names_.erase(event.name);
      break;
    }
    default:
      if (call.file < 0) return;
      if (call.op == DiskOp::kSync && lies_ != nullptr && lies_(file_names_[call.file])) return;
  }
  events_.push_back(std::move(event));
}

DiskImage PowerCutDisk::Cut(size_t position, uint64_t seed, CutCounts* counts) const {
  MutexLock lock(mutex_);
  DiskImage disk = base_;
  disk.files.resize(file_names_.size());
  std::vector<size_t> synced(file_names_.size(), 0);  // What happened before is on the disk.
  size_t names_synced = 0, unsynced = 0;
  for (size_t i = std::min(position, events_.size()); i-- > 0;) {
    const Event& event = events_[i];
    if (event.op == DiskOp::kSyncDirectory) names_synced = std::max(names_synced, i);
    if (event.op == DiskOp::kSync) synced[event.file] = std::max(synced[event.file], i);
    if (event.op == DiskOp::kWrite && i >= synced[event.file]) {
      unsynced += SectorsOf(event.offset, event.bytes.size());
    }
  }
  Fate fate(seed, unsynced, counts);
  for (size_t i = 0; i < position && i < events_.size(); ++i) {
    const Event& event = events_[i];
    switch (event.op) {
      case DiskOp::kWrite:
        if (i < synced[event.file]) {
          Put(disk.files[event.file], event.offset, event.bytes);
        } else {
          PutSectors(disk.files[event.file], event.offset, event.bytes, fate);
        }
        break;
      case DiskOp::kTruncate:
        if (i < synced[event.file] || fate.Name()) disk.files[event.file].resize(event.offset);
        break;
      case DiskOp::kOpen:
      case DiskOp::kLink:
      case DiskOp::kRename:
      case DiskOp::kUnlink: {
        if (i >= names_synced && !fate.Name()) break;
        const bool gives = event.op != DiskOp::kUnlink;
        const bool takes = event.op == DiskOp::kUnlink || event.op == DiskOp::kRename;
        if (takes) disk.names.erase(event.name);
        if (gives) disk.names[event.op == DiskOp::kOpen ? event.name : event.to] = event.file;
        break;
      }
      default:
        break;
    }
  }
  return disk;
}

std::string PowerCutDisk::Describe(size_t position) const {
  MutexLock lock(mutex_);
  if (position >= events_.size()) return "the end";
  const Event& event = events_[position];
  const std::string file = event.file < 0 ? "" : file_names_[event.file];
  switch (event.op) {
    case DiskOp::kOpen:
      return absl::StrCat("make ", event.name);
    case DiskOp::kWrite:
      return absl::StrCat("write ", file, " at ", event.offset, ", ", event.bytes.size(), " bytes");
    case DiskOp::kTruncate:
      return absl::StrCat("truncate ", file, " to ", event.offset);
    case DiskOp::kSync:
      return absl::StrCat("sync ", file);
    case DiskOp::kSyncDirectory:
      return "sync the directory";
    case DiskOp::kUnlink:
      return absl::StrCat("remove ", event.name);
    default:
      return absl::StrCat(event.op == DiskOp::kLink ? "link " : "rename ", event.name, " to ",
                          event.to);
  }
}

}  // namespace cxlpool::fm
