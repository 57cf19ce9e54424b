#include "fabric-manager/service/audit_trail.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/pool/caller.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

std::string NameOf(absl::string_view collection, absl::string_view id) {
  return absl::StrCat(collection, "/", id);
}

struct Target {
  std::string name;
  std::string tenant = {};  // Whose it is, and who may read of it.
  bool is_region = false;
};

// What a record is about. Of one that is erased: what was there before.
Target TargetOf(const Item& item, const Change& inverse) {
  struct Visitor {
    const Change& inverse;

    Target operator()(const RegionPtr& region) const {
      const bool kept = IsKept(*region) && !CXLPOOL_MUTANT("events-of-kept-bytes-are-a-tenants");
      return {NameOf("regions", region->id), kept ? std::string() : region->tenant.str(), true};
    }
    Target operator()(const Host& host) const { return {NameOf("hosts", host.id)}; }
    Target operator()(const Device& device) const { return {NameOf("devices", device.id)}; }
    Target operator()(const Tombstone& tombstone) const { return (*this)(tombstone.region); }
    Target operator()(const Erased& erased) const {
      for (const Item& before : inverse) {
        if (KeyOf(before) == erased.key && !std::holds_alternative<Erased>(before)) {
          return std::visit(*this, before);
        }
      }
      return {};
    }
    Target operator()(const Tenant& tenant) const { return {NameOf("tenants", tenant.id)}; }
    Target operator()(const Revocation& revocation) const {
      return {NameOf("revocations", revocation.subject)};
    }
    Target operator()(const RoleBinding& binding) const {
      return {NameOf("roleBindings", binding.identity)};
    }
    Target operator()(const TopologyEntry& entry) const {
      return {NameOf("topology", fm::NameOf(entry))};
    }
    Target operator()(const AuditRowPtr&) const { return {}; }
  };
  return std::visit(Visitor{inverse}, item);
}

}  // namespace

// No record that changed is lost: it has an entry, or counts in `more` of the first one. What was
// asked about comes first and may be a record that the change has, too. The last entry, which as a
// rule is the only one, is given what they have in common; others have a copy.
AuditEntries EntriesOf(Audit audit, const Change& change, const Change& inverse,
                       uint64_t revision) {
  AuditEntry common = {.time = audit.time,
                       .who = std::move(audit.principal),
                       .method = std::move(audit.action),
                       .role = std::move(audit.role),
                       .peer = std::move(audit.origin.peer),
                       .request_id = audit.origin.request_id,
                       .reason = std::move(audit.reason),
                       .revision = revision};
  AuditEntries entries;
  uint64_t counted = 0;
  const auto add = [&](Target target, bool is_last) {
    common.target = std::move(target.name);
    common.tenant = std::move(target.tenant);
    entries.push_back(is_last ? std::move(common) : common);
  };
  if (!audit.target.empty()) add({std::move(audit.target)}, change.empty());
  for (const Item& item : change) {
    Target target = TargetOf(item, inverse);
    const bool has_its_own = target.is_region && entries.size() < kMaxEntriesOfChange &&
                             !CXLPOOL_MUTANT("audit-names-the-first-alone");
    if (entries.empty() || has_its_own) {
      add(std::move(target), &item == &change.back());
    } else {
      ++counted;
    }
  }
  if (!entries.empty()) entries.front().more = counted;
  return entries;
}

bool AuditTrail::Load(const AuditBounds& bounds, const Change& records) {
  MutexLock lock(mutex_);
  bounds_ = bounds;
  for (const Item& item : records) {
    const auto* row = std::get_if<AuditRowPtr>(&item);
    if (row == nullptr) continue;
    bytes_ += BytesOf(**row);
    rows_.push_back(*row);
  }
  const std::vector<AuditRowPtr> rows(rows_.begin(), rows_.end());
  const std::vector<AuditFlaw> flaws = VerifyChain(bounds_, rows);
  for (const AuditFlaw& flaw : flaws) {
    LogError("audit", "the audit trail is not as it was written: ", flaw.what);
  }
  return flaws.empty();
}

bool AuditTrail::Follow(const AuditBounds& bounds, const std::vector<AuditRowPtr>& rows,
                        const std::vector<uint64_t>& erased) {
  MutexLock lock(mutex_);
  AuditHead head = bounds_.head;
  for (const AuditRowPtr& row : rows) {
    head = NextHead(head, row->bytes);
    bytes_ += BytesOf(*row);
    rows_.push_back(row);
  }
  // The oldest go first, and all at once.
  const std::set<Key> gone(erased.begin(), erased.end());
  while (!rows_.empty() && gone.contains(rows_.front()->key)) {
    bytes_ -= BytesOf(*rows_.front());
    rows_.pop_front();
  }
  bounds_ = bounds;
  return head == bounds.head;
}

void AuditTrail::Note(AuditEntry entry) {
  constexpr size_t kNumbers = 64;  // And what protobuf writes before each field.
  row_bytes_ += kNumbers;
  for (const std::string* text : {&entry.who, &entry.method, &entry.role, &entry.peer,
                                  &entry.outcome, &entry.target, &entry.tenant, &entry.reason}) {
    row_bytes_ += std::min(text->size(), kMaxAuditText);
  }
  entries_.push_back(std::move(entry));
}

// One commit more or less than the limits is no matter; what is dropped is dropped for good, and
// its last hash stays.
AuditTrail::Step AuditTrail::Close(const std::function<Key()>& next_key, size_t max_dropped) {
  step_ = {nullptr, {}, bounds_, entries_.size()};
  if (entries_.empty()) return step_;
  AuditRow row;
  row.bytes = EncodeEntries(entries_);
  entries_.clear();
  row_bytes_ = 0;
  row.head = NextHead(bounds_.head, row.bytes);
  row.key = next_key();
  step_.bounds.head = row.head;
  step_.row = std::make_shared<const AuditRow>(std::move(row));
  if (rows_.size() >= limits_.max_rows || bytes_ >= limits_.max_bytes) {
    // Many at a time: each commit that erases touches a part of the store that it would leave alone
    // otherwise.
    const size_t some = std::max<size_t>(1, limits_.max_rows / 256);
    const size_t dropped = std::min({max_dropped, some, rows_.size()});
    for (size_t i = 0; i < dropped; ++i) step_.dropped.push_back(rows_[i]->key);
    if (dropped > 0 && !CXLPOOL_MUTANT("audit-checkpoint-forgotten")) {
      step_.bounds.dropped = rows_[dropped - 1]->head;
    }
  }
  return step_;
}

// Looks for the first by halves: where rows changed places, a part may miss some that the whole
// has.
AuditTrail::Kept AuditTrail::Read(uint64_t first, uint64_t last) const {
  MutexLock lock(mutex_);
  Kept kept{bounds_, {}};
  auto row = std::lower_bound(
      rows_.begin(), rows_.end(), first,
      [](const AuditRowPtr& before, uint64_t number) { return before->head.number < number; });
  if (first == 0) row = rows_.begin();
  for (; row != rows_.end() && (*row)->head.number <= last; ++row) kept.rows.push_back(*row);
  return kept;
}

AuditBounds AuditTrail::Finish(bool durable) {
  if (durable && step_.row != nullptr) {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < step_.dropped.size(); ++i) {
      bytes_ -= BytesOf(*rows_.front());
      rows_.pop_front();
    }
    bytes_ += BytesOf(*step_.row);
    rows_.push_back(step_.row);
    bounds_ = step_.bounds;
  }
  step_ = {};
  if (!durable || CXLPOOL_MUTANT("entries-planned-beside-are-lost")) {
    entries_.clear();
    row_bytes_ = 0;
  }
  return bounds_;
}

}  // namespace cxlpool::fm
