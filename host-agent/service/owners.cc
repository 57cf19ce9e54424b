#include "host-agent/service/owners.h"

#include <iterator>
#include <utility>

#include "host-agent/service/backoff.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr char kOwnersSubject[] = "owners";

ProcessId ProcessOf(const v1::Owner& owner) {
  return {.pid = owner.pid(), .start_ticks = owner.start_ticks()};
}

}  // namespace

// The tag's own bytes, each changed by the same constant: no two tags give the same. Version 8
// (RFC 9562, 5.8), so that it is no tag itself, which are random ones of version 4.
std::string OwnerGoneRequestId(const std::string& tag) {
  constexpr char kWhat[] = "owner-is-dead-00";
  Uuid uuid;
  if (!ParseUuid(tag, uuid)) uuid = Uuid(tag);
  std::string bytes = uuid.str();
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(bytes[i] ^ kWhat[i]);
  bytes[6] = static_cast<char>((bytes[6] & 0x0f) | 0x80);
  bytes[8] = static_cast<char>((bytes[8] & 0x3f) | 0x80);
  return FormatUuid(bytes);
}

Owners::Owners(AgentCore* core, Executor* executor, Clock* clock, ProcessWatch* watch,
               ManagerLink* link)
    : core_(core), executor_(executor), clock_(clock), watch_(watch), link_(link) {
  core_->SetOnOffers([this](const AttachmentKey* changed) { OnOffers(changed); });
}

Owners::~Owners() {
  core_->SetOnOffers({});
  for (const auto& [process, tags] : processes_) watch_->Forget(process);
}

// --- Who owns what.

// Brings owned_ and the watched processes up to the core's Offers. `changed`: only this one came or
// went; null: a Welcome replaced them all.
void Owners::OnOffers(const AttachmentKey* changed) {
  const AttachmentTable::Map& offers = core_->attachments().all();
  if (changed != nullptr) {
    const auto it = offers.find(*changed);
    if (it == offers.end()) return Drop(*changed);
    Take(it->first, it->second);
    if (const auto owned = owned_.find(changed->tag); owned != owned_.end()) {
      Release(owned->first, owned->second);
    }
    return;
  }
  // Backoffs begin again: what was in the way may be over. A Region that was released and is wanted
  // online again belongs to a manager whose records were restored: it has to be released again.
  const std::map<std::string, Owned> before = std::exchange(owned_, {});
  for (const auto& [key, attachment] : offers) Take(key, attachment);
  for (auto& [tag, owned] : owned_) {
    const auto it = before.find(tag);
    if (it == before.end()) continue;
    owned.calling = it->second.calling;
    owned.released = it->second.released && !owned.wanted_online;
  }
  for (auto it = processes_.begin(); it != processes_.end();) {
    std::erase_if(it->second, [&](const std::string& tag) { return !owned_.contains(tag); });
    const bool needed = !it->second.empty();
    if (!needed) watch_->Forget(it->first);
    it = needed ? std::next(it) : processes_.erase(it);
  }
  ReleaseDead();
}

void Owners::Take(const AttachmentKey& key, const Attachment& attachment) {
  if (!attachment.offer.has_owner()) return Drop(key);
  const auto [it, is_new] = owned_.try_emplace(key.tag);
  Owned& owned = it->second;
  owned.name = attachment.offer.region_name();
  owned.wanted_online = attachment.wanted_online();
  owned.generations.insert(key.generation);
  if (!is_new) return;
  owned.owner = attachment.offer.owner();
  if (owned.owner.incarnation() != core_->options().incarnation) {
    owned.dead = true;
    return;
  }
  const ProcessId process = ProcessOf(owned.owner);
  const auto [watched, unknown] = processes_.try_emplace(process);
  watched->second.insert(key.tag);
  if (unknown) Watch(process);
}

void Owners::Drop(const AttachmentKey& key) {
  const auto it = owned_.find(key.tag);
  if (it == owned_.end()) return;
  it->second.generations.erase(key.generation);
  if (!it->second.generations.empty()) return;
  const auto watched = processes_.find(ProcessOf(it->second.owner));
  owned_.erase(it);
  if (watched == processes_.end()) return;
  watched->second.erase(key.tag);
  if (!watched->second.empty()) return;
  watch_->Forget(watched->first);
  processes_.erase(watched);
}

// --- Whether it is alive.

void Owners::Watch(const ProcessId& process) {
  watch_->Watch(process,
                OnCore([this, process](const absl::Status& status) { OnEnded(process, status); }));
}

void Owners::OnEnded(const ProcessId& process, const absl::Status& status) {
  const auto it = processes_.find(process);
  if (it == processes_.end() || absl::IsCancelled(status)) return;
  if (!status.ok()) {
    return executor_->PostAfter(kWatchAgain, OnCore([this, process] {
                                  if (processes_.contains(process)) Watch(process);
                                }));
  }
  const std::set<std::string> tags = std::move(it->second);
  processes_.erase(it);
  for (const std::string& tag : tags) {
    const auto owned = owned_.find(tag);
    if (owned == owned_.end()) continue;
    owned->second.dead = true;
    LogInfo(kOwnersSubject, "process ", process.pid, ", the owner of ", owned->second.name,
            ", has ended");
    Release(tag, owned->second);
  }
}

// --- Its Regions.

void Owners::ReleaseDead() {
  for (auto& [tag, owned] : owned_) Release(tag, owned);
}

void Owners::Release(const std::string& tag, Owned& owned) {
  if (!owned.dead || owned.calling || owned.released || calls_ >= kMaxReleasesAtOnce ||
      !core_->session_up() || owned.retry_at > clock_->Elapsed()) {
    return;
  }
  owned.calling = true;
  ++calls_;
  v1::ReleaseRegionRequest request;
  request.set_request_id(CXLPOOL_MUTANT("release-owner-twice") ? FormatUuid(RandomUuid())
                                                               : OwnerGoneRequestId(tag));
  request.set_name(ResourceName("regions", tag));  // Its name may be another's by now.
  request.set_detach_all(true);
  link_->Release(std::move(request),
                 OnCore([this, tag](const absl::StatusOr<v1::ReleaseRegionResponse>& response) {
                   OnReleased(tag, response.status());
                 }));
}

void Owners::OnReleased(const std::string& tag, const absl::Status& status) {
  --calls_;
  if (const auto it = owned_.find(tag); it != owned_.end()) {
    Owned& owned = it->second;
    owned.calling = false;
    owned.released = status.ok() || absl::IsNotFound(status);
    if (!owned.released) {
      const absl::Duration wait = BackoffAfter(++owned.failures, kFirstBackoff, kMaxReleaseBackoff);
      owned.retry_at = clock_->Elapsed() + wait;
      executor_->PostAfter(wait, OnCore([this] { ReleaseDead(); }));
      if (std::string why(status.message()); why != owned.refused) {
        LogWarning(kOwnersSubject, owned.name,
                   ": its owner has ended; cannot release it yet: ", why);
        owned.refused = std::move(why);
      }
    } else if (status.ok()) {
      core_->meters().owner_releases.Add();
      LogInfo(kOwnersSubject, "released ", owned.name, ": its owner has ended");
    }
  }
  ReleaseDead();  // Those that had to wait for a place.
}

}  // namespace cxlpool::agent
