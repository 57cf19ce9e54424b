#include "fabric-manager/rpc/server_health.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

// A refusal's remedy has its commands in backticks.
std::vector<std::string> CommandsIn(absl::string_view remedy) {
  std::vector<std::string> commands;
  const std::vector<absl::string_view> parts = absl::StrSplit(remedy, '`');
  for (size_t i = 1; i + 1 < parts.size(); i += 2) commands.emplace_back(parts[i]);
  return commands;
}

std::string OnManager(absl::string_view command) {
  return absl::StrCat("on the manager's machine: ", command);
}

// Where the space went, in the folder that the store is in as far as it says.
std::vector<std::string> SpaceCommands(const absl::Status& full) {
  std::string folder;
  if (const auto refusal = RefusalOf(full); refusal.has_value()) {
    for (const auto& [key, value] : refusal->metadata) {
      if (key == "folder") folder = absl::StrCat(" ", value);
    }
  }
  std::vector<std::string> commands = {OnManager(absl::StrCat("df --human-readable", folder))};
  if (!folder.empty()) {
    commands.push_back(OnManager(absl::StrCat("du --all --human-readable", folder)));
  }
  return commands;
}

// What shows the damage, keeps it as evidence, and ends it: the rows are set aside. Of records in
// etcd a copy is repaired, which docs/replicated.md tells.
std::vector<std::string> TrailCommands(const std::string& database) {
  std::vector<std::string> commands = {"cxlpool audit verify", "cxlpool backup FILE"};
  if (database.empty()) return commands;
  commands.push_back(OnManager("systemctl stop cxlpool-fm"));
  commands.push_back(
      OnManager(absl::StrCat("runuser -u cxlpool -- cxlpool fsck ", database, " --repair")));
  commands.push_back(OnManager("systemctl start cxlpool-fm"));
  return commands;
}

// An agent that is refused leaves its host without memory until somebody does something; everybody
// else sees the refusal as the answer to the call.
Finding FindingOf(const RefusedPeers::Refused& refused, absl::Time now) {
  Finding finding{.urgency = refused.is_agent ? Urgency::kWrong : Urgency::kNote,
                  .problem = "PEER_REFUSED",
                  .since = refused.since,
                  .commands = CommandsIn(refused.remedy)};
  const absl::Duration ago = absl::Trunc(now - refused.last, absl::Seconds(1));
  finding.text = absl::StrCat(
      refused.whose, " was refused ", refused.times, refused.times == 1 ? " time" : " times",
      ", last ",
      ago > absl::ZeroDuration() ? absl::StrCat(absl::FormatDuration(ago), " ago") : "just now",
      ": ", refused.why, refused.detail.empty() ? "" : ": ", refused.detail);
  return finding;
}

// A certificate of the manager's that ends soon: after that nobody can connect.
Finding FindingOf(const CertificateEnd& end, absl::Time now) {
  const bool ended = end.facts.ExpiredAt(now);
  Finding finding{.urgency = ended ? Urgency::kWrong : Urgency::kNote,
                  .problem = "CERTIFICATE_ENDS",
                  .text = absl::StrCat(end.what, ended ? " ended at " : " ends at ",
                                       UtcText(end.facts.not_after), ": ", end.remedy),
                  .commands = CommandsIn(end.remedy)};
  if (end.is_reloaded) finding.commands.push_back(OnManager("systemctl reload cxlpool-fm"));
  return finding;
}

}  // namespace

void ServerHealth::SetServing(bool serving) {
  MutexLock lock(mutex_);
  serving_ = serving;
  Show();
}

void ServerHealth::NoteStore(const absl::Status& status) {
  MutexLock lock(mutex_);
  LogStore(status);
  const bool was_full = !std::exchange(store_, status).ok();
  Show();
  if (was_full == !status.ok()) return;
  const absl::Duration now = clock_->Elapsed();
  if (was_full) {
    recovered_ = now;
    return;
  }
  since_ = clock_->Now();
  const bool settled = now - recovered_ >= kSettles;
  try_every_ = settled ? kTryEvery : std::min(2 * try_every_, kTrySeldom);
  ++round_;
  if (own_.try_store == nullptr || CXLPOOL_MUTANT("full-store-is-not-tried")) return;
  TryStoreLater(round_, try_every_);
}

// Goes on until NoteStore has heard that the store took a change, whoever made it.
void ServerHealth::TryStoreLater(uint64_t round, absl::Duration every) {
  timer_->PostAfter(every, [this, round, every] {
    {
      MutexLock lock(mutex_);
      if (store_.ok() || round != round_) return;
    }
    own_.try_store();
    TryStoreLater(round, every);
  });
}

// One line when it begins and one when it is over; and not one each time where it comes and goes.
void ServerHealth::LogStore(const absl::Status& status) {
  if (status.ok()) {
    if (std::exchange(full_logged_, false)) LogInfo("store", "there is space again: changes go on");
    return;
  }
  if (full_logged_ || clock_->Elapsed() - full_logged_at_ < kLogsFullEvery) return;
  full_logged_ = true;
  full_logged_at_ = clock_->Elapsed();
  LogError("store", "full, changes are refused until there is space: ", status.message());
}

// As the alerts CxlpoolAuditChainBroken, CxlpoolCertificateExpires and CxlpoolBackupOld.
void ServerHealth::AddOwn(std::vector<Finding>& findings) const {
  const absl::Time now = clock_->Now();
  if (own_.certificates != nullptr) {
    for (const CertificateEnd& end : own_.certificates()) {
      if (end.facts.not_after - now < kCertificateEndsSoon) findings.push_back(FindingOf(end, now));
    }
  }
  if (own_.meters == nullptr) return;
  if (!own_.meters->audit_chain_ok) {
    findings.push_back({.urgency = Urgency::kWrong,
                        .problem = "AUDIT_ALTERED",
                        .text = "the audit trail is not as it was written: rows of it were "
                                "altered, taken out or swapped, or its end was cut off",
                        .since = started_,
                        .commands = TrailCommands(own_.database)});
  }
  const int64_t backup_s = own_.meters->last_backup_s;
  const absl::Time last = backup_s == 0 ? started_ : absl::FromUnixSeconds(backup_s);
  if (now - last > kBackupIsOld) {
    findings.push_back({.urgency = Urgency::kNote,
                        .problem = "BACKUP_OLD",
                        .text = backup_s == 0
                                    ? "no backup was taken since the manager started"
                                    : absl::StrCat("the last backup was taken at ", UtcText(last)),
                        .since = last,
                        .commands = {"cxlpool backup FILE"}});
  }
}

std::vector<Finding> ServerHealth::Findings() const {
  std::vector<Finding> findings;
  {
    MutexLock lock(mutex_);
    if (!store_.ok()) {
      findings.push_back({.urgency = Urgency::kWrong,
                          .problem = "STORE_FULL",
                          .text = absl::StrCat("no change is made: ", store_.message()),
                          .since = since_,
                          .commands = SpaceCommands(store_)});
    }
  }
  AddOwn(findings);
  for (const RefusedPeers::Refused& refused : refused_->Latest()) {
    findings.push_back(FindingOf(refused, clock_->Now()));
  }
  return findings;
}

}  // namespace cxlpool::fm
