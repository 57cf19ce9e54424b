#include "tools/dra/claim_keeper.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/unique_fd.h"
#include "tools/dra/claim.h"

namespace cxlpool::dra {
namespace {

constexpr char kSubject[] = "cxlpool-dra";
constexpr std::chrono::seconds kAgentTimeout(2);
constexpr absl::Duration kPause = absl::Milliseconds(200);
constexpr char kFresh[] = ".new";  // Runtimes read files that end in .json or .yaml only.

absl::Status FileError(absl::string_view doing, const std::string& path, int error) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot ", doing, " ", path, ": ", std::strerror(error),
                   " (see that cxlpool-dra is root, and that its file system has room)"));
}

// One device, of the one extent that a path can be. OK: the container may have it.
absl::StatusOr<ContainerDevice> DeviceOfRegion(const Region& region) {
  if (region.mode() != Mode::kDevdax) {
    return absl::FailedPreconditionError(
        absl::StrCat(region.name(),
                     " is attached as system-ram: a NUMA node, which is the whole "
                     "host's and no container's (allocate it with --mode devdax)"));
  }
  const std::vector<Extent> extents = region.Extents();
  if (extents.size() != 1) {
    return absl::FailedPreconditionError(absl::StrCat(region.name(), " has ", extents.size(),
                                                      " extents, and a container gets one "
                                                      "device (allocate it with --max-extents 1)"));
  }
  struct stat stat = {};
  if (::fstat(extents[0].fd, &stat) != 0) return FileError("look at", region.name(), errno);
  std::error_code error;  // Then the path is empty, and no file's.
  const auto path =
      std::filesystem::read_symlink(absl::StrCat("/proc/self/fd/", extents[0].fd), error);
  return DeviceOf(extents[0], stat, path.string(), region.access() == Access::kReadOnly);
}

}  // namespace

absl::Status ClaimKeeper::Start() {
  std::error_code error;
  std::filesystem::directory_iterator files(cdi_folder_, error);
  if (error) return FileError("read", cdi_folder_, error.value());
  {
    const MutexLock lock(mutex_);
    for (; files != std::filesystem::directory_iterator(); files.increment(error)) {
      if (error) return FileError("read", cdi_folder_, error.value());
      const std::optional<std::string> region = RegionOfCdiFile(files->path().filename().string());
      if (region.has_value() && held_.size() < kMaxClaims) held_[*region];
    }
  }
  Refresh();
  return absl::OkStatus();
}

// Each is tried once before any is waited for, so that none waits for another.
std::map<std::string, absl::Status> ClaimKeeper::Prepare(const std::vector<std::string>& uids,
                                                         absl::Time deadline,
                                                         const std::function<bool()>& stop) {
  std::map<std::string, absl::Status> outcomes;
  for (const std::string& uid : uids) outcomes[uid] = absl::UnavailableError("it was not tried");
  while (true) {
    bool again = false;
    for (auto& [uid, outcome] : outcomes) {
      if (!MayPass(outcome)) continue;
      outcome = TryPrepare(uid, stop);
      again = again || MayPass(outcome);
    }
    if (!again || stop() || absl::Now() + kPause >= deadline) return outcomes;
    absl::SleepFor(kPause);
  }
}

// A caller that has gone asks for the opposite next. That call may have its turn before this one,
// so `stop` is asked in this one's turn: what was asked before it would prepare again what nobody
// will unprepare any more.
absl::Status ClaimKeeper::TryPrepare(const std::string& uid, const std::function<bool()>& stop) {
  const absl::StatusOr<std::string> region = RegionOfClaim(uid);
  if (!region.ok()) return region.status();
  const bool asks_too_early = CXLPOOL_MUTANT("gone-before-its-turn");
  const bool was_gone = asks_too_early && stop();
  const MutexLock lock(mutex_);
  if (asks_too_early ? was_gone : stop()) {
    return absl::UnavailableError("who asked for it has gone");
  }
  const auto found = held_.find(*region);
  if (found == held_.end() && held_.size() >= kMaxClaims) {
    return absl::ResourceExhaustedError(absl::StrCat(
        kMaxClaims, " claims are prepared on this node, and no more may be (end some pods)"));
  }
  if (found != held_.end() && found->second.region.has_value() &&
      found->second.region->Check().ok()) {
    return Write(*region, found->second.cdi_text);  // Somebody may have removed it.
  }
  return Hold(*region);
}

// Opens the Region, and writes its file before it says so.
absl::Status ClaimKeeper::Hold(const std::string& region) {
  absl::StatusOr<Region> opened = Open(region);
  if (!opened.ok()) return opened.status();
  const absl::StatusOr<ContainerDevice> device = DeviceOfRegion(*opened);
  if (!device.ok()) return device.status();
  std::string text = CdiText(region, *device);
  if (absl::Status s = Write(region, text); !s.ok()) return s;
  held_[region] = {.region = *std::move(opened), .cdi_text = std::move(text)};
  LogInfo(kSubject, "regions/", region, " is prepared");
  return absl::OkStatus();
}

absl::Status ClaimKeeper::Unprepare(const std::string& uid) {
  const absl::StatusOr<std::string> region = RegionOfClaim(uid);
  if (!region.ok()) return absl::OkStatus();  // So it was never prepared.
  const MutexLock lock(mutex_);
  if (absl::Status s = Remove(*region); !s.ok()) return s;
  if (!CXLPOOL_MUTANT("unprepared-stays-open") && held_.erase(*region) != 0) {
    LogInfo(kSubject, "regions/", *region, " is let go");
  }
  return absl::OkStatus();
}

// A Region that is not open here and cannot be opened loses its file: a container would be given
// memory that nobody holds. It is forgotten only where somebody knows that it is not to be had;
// while nobody can say, it stays to be opened by a later call, which writes its file again.
void ClaimKeeper::Refresh() {
  const MutexLock lock(mutex_);
  if (held_.empty()) return;
  // Any call tells an agent that has started again what is open here. One that does not answer is
  // not asked again for each Region.
  absl::Status agent = Agent().status();
  if (agent.ok()) {
    if (const auto listed = pool_->List(); !listed.ok()) agent = WhyNot("", listed.error());
  }
  // Whatever it is that it says, nothing is known of the Regions.
  if (!agent.ok()) agent = absl::UnavailableError(agent.message());
  for (auto it = held_.begin(); it != held_.end();) {
    const auto now = it++;
    const std::string& region = now->first;
    const bool is_open = now->second.region.has_value();
    if (is_open && now->second.region->Check().ok()) continue;
    const absl::Status status = agent.ok() ? Hold(region) : agent;
    // Still open here: the device is the Region's, or dead. Also one that is to go stays until the
    // claim is unprepared.
    if (status.ok() || (is_open && !absl::IsNotFound(status))) continue;
    LogWarning(kSubject, "regions/", region,
               " is not to be had, and neither is its CDI file: ", status.message());
    if (absl::Status s = CXLPOOL_MUTANT("file-of-nobody") ? absl::OkStatus() : Remove(region);
        !s.ok()) {
      LogError(kSubject, s.message());
    } else if (!absl::IsUnavailable(status)) {
      held_.erase(now);
    }
  }
}

absl::StatusOr<Pool*> ClaimKeeper::Agent() {
  if (!pool_.has_value()) {
    Result<Pool> connected =
        Pool::Connect({.socket_path = agent_socket_, .timeout = kAgentTimeout});
    if (!connected.ok()) return WhyNot("", connected.error());
    pool_ = *std::move(connected);
  }
  return &*pool_;
}

absl::StatusOr<Region> ClaimKeeper::Open(const std::string& region) {
  const absl::StatusOr<Pool*> pool = Agent();
  if (!pool.ok()) return pool.status();
  Result<Region> opened = (*pool)->Open(region);
  if (!opened.ok() && opened.error().reason == "ATTACHMENT_READ_ONLY") {
    opened = (*pool)->Open(region, {.access = Access::kReadOnly});
  }
  if (!opened.ok()) return WhyNot(region, opened.error());
  return *std::move(opened);
}

// In one step: a runtime that reads it meanwhile finds all of it, or nothing.
absl::Status ClaimKeeper::Write(const std::string& region, const std::string& text) const {
  const std::string path = absl::StrCat(cdi_folder_, "/", CdiFileName(region));
  const std::string fresh = path + kFresh;
  const UniqueFd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                           S_IRUSR | S_IWUSR));
  if (!fd.valid()) return FileError("write", fresh, errno);
  const ssize_t put = ::write(fd.get(), text.data(), text.size());
  if (put != static_cast<ssize_t>(text.size())) {
    return FileError("write", fresh, put < 0 ? errno : ENOSPC);
  }
  if (::fchmod(fd.get(), S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH) != 0 ||
      ::rename(fresh.c_str(), path.c_str()) != 0) {
    return FileError("write", path, errno);
  }
  return absl::OkStatus();
}

absl::Status ClaimKeeper::Remove(const std::string& region) const {
  const std::string path = absl::StrCat(cdi_folder_, "/", CdiFileName(region));
  // What a write left that did not come to its end.
  for (const std::string& file : {path + kFresh, path}) {
    if (::unlink(file.c_str()) != 0 && errno != ENOENT) return FileError("remove", file, errno);
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::dra
