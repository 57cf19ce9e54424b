#include "host-agent/service/path_table.h"

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr char kSubject[] = "paths";

absl::Status Unsupported(absl::string_view why) {
  return Refuse(absl::StatusCode::kUnimplemented, "PATH_UNSUPPORTED",
                absl::StrCat("this host shows no Region as a path: ", why),
                "open it without as_file, and use its descriptor");
}

}  // namespace

void PathTable::Start() {
  if (paths_ == nullptr) return;
  if (absl::Status s = paths_->TakeBackAll(); !s.ok()) LogError(kSubject, s.message());
}

absl::Status PathTable::CheckCaller(int pid) const {
  if (paths_ == nullptr) return Unsupported("its Regions are parts of files");
  return paths_->CheckCaller(pid);
}

// Each user once, with all that their connections may do together.
std::vector<PathUser> PathTable::UsersOf(const Shown& shown) {
  std::map<uint32_t, bool> writable;
  for (const auto& [use, user] : shown.uses) writable[user.uid] |= user.writable;
  std::vector<PathUser> users;
  users.reserve(writable.size());
  for (const auto& [uid, writes] : writable) users.push_back({.uid = uid, .writable = writes});
  return users;
}

// Notes the use only once the path is shown: after an error the table is as it was.
absl::StatusOr<std::string> PathTable::Open(const Device& device, uint64_t connection,
                                            const std::string& name, PathUser user) {
  if (paths_ == nullptr || device.node.empty()) {
    return Unsupported("the file that holds the Region holds others, too");
  }
  TakeAway([](Shown&) { return false; });
  const auto there = shown_.find(device.node);
  if (there != shown_.end() && there->second.which != device.which) {
    // Another device had this name, and is gone. Its link goes, too.
    if (absl::Status s = paths_->Hide(there->second.folder, device.node); !s.ok()) return s;
    shown_.erase(there);
  }
  Shown now = {.which = device.which, .folder = device.folder, .uses = {}};
  if (const auto it = shown_.find(device.node); it != shown_.end()) now = it->second;
  now.owed = false;
  // Opening again under the same name adds to what is open.
  PathUser& mine = now.uses.try_emplace({connection, name}, user).first->second;
  mine.writable |= user.writable;
  const std::vector<PathUser> users = UsersOf(now);
  if (users.size() > kMaxUsers) {
    return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_OPENS",
                  absl::StrCat(kMaxUsers, " users have ", name, " as a path"),
                  "open it without as_file, or let one of them end");
  }
  absl::StatusOr<std::string> path = paths_->Show(now.folder, device.node, users);
  if (path.ok()) shown_[device.node] = std::move(now);
  return path;
}

// Takes the rights of whom no use is left for, and only takes: where the device went by force, its
// name may be another's now. Includes what could not be taken back before.
template <typename Change>
void PathTable::TakeAway(Change change) {
  for (auto it = shown_.begin(); it != shown_.end();) {
    const std::string& node = it->first;
    Shown& shown = it->second;
    const bool changed = change(shown) && !CXLPOOL_MUTANT("acl-stays");
    if (changed || shown.owed) {
      const std::vector<PathUser> users = UsersOf(shown);
      absl::Status status;
      if (users.empty()) {
        status = paths_->Hide(shown.folder, node);
      } else if (CXLPOOL_MUTANT("close-adds-a-right")) {
        status = paths_->Show(shown.folder, node, users).status();
      } else {
        status = paths_->Narrow(node, users);
      }
      if (!status.ok() && !shown.owed) LogError(kSubject, status.message());
      shown.owed = !status.ok();
    }
    it = shown.uses.empty() && !shown.owed ? shown_.erase(it) : std::next(it);
  }
}

template <typename Matches>
void PathTable::CloseIf(Matches matches) {
  TakeAway([&](Shown& shown) { return std::erase_if(shown.uses, matches) != 0; });
}

void PathTable::KeepOnly(const std::set<std::string>& devices) {
  TakeAway([&](Shown& shown) {
    if (shown.uses.empty() || devices.contains(shown.which)) return false;
    shown.uses.clear();
    return true;
  });
}

void PathTable::Close(uint64_t connection, const std::string& name) {
  CloseIf([&](const auto& use) {
    return use.first.connection == connection && use.first.name == name;
  });
}

void PathTable::CloseConnection(uint64_t connection) {
  CloseIf([&](const auto& use) { return use.first.connection == connection; });
}

}  // namespace cxlpool::agent
