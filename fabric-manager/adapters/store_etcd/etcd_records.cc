#include "fabric-manager/adapters/store_etcd/etcd_records.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/adapters/store_etcd/etcd_txn.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

using etcdserverpb::KeyValue;
using etcdserverpb::RangeRequest;
using etcdserverpb::RangeResponse;
using etcdserverpb::TxnRequest;
using etcdserverpb::TxnResponse;

// Of one read. Where records are so large that the client does not take the answer (64 MiB), fewer
// are asked for.
constexpr int kPackPage = 1000;
constexpr int kLogPage = 48;
constexpr int kKeyPage = 4000;
constexpr int kClaims = 5;                    // Tries, where the owner goes on committing.
constexpr int kStepsToForget = 8;             // Steps of folding before etcd is to forget what was.
constexpr absl::string_view kFree = "free ";  // A beat that says so.
// etcd finds a new leader sooner: then nobody has to hear of it.
constexpr absl::Duration kSilence = absl::Seconds(5);

// Something that another try may see otherwise: etcd was away, or forgot what was being read.
bool IsPassing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsOutOfRange(status);
}

// Of a head that is none.
absl::Status BadHead(const std::string& key, const std::string& text) {
  if (!IsLaterHead(text)) return EtcdCorrupt(key);
  return Refuse(absl::StatusCode::kFailedPrecondition, "STORE_TOO_NEW",
                absl::StrCat("in etcd ", key, " was written by a later release"),
                "run that release, or restore the backup made before the update");
}

// No less than what EncodeChange makes of it, without the work.
size_t MostBytes(const StoreBatch& batch) {
  size_t bytes = 1024 + 9 * batch.erases.size();
  for (const Row& row : batch.puts) bytes += 32 + row.value.size() + row.value.size() / 128;
  return bytes;
}

}  // namespace

EtcdRecords::EtcdRecords(const EtcdStoreOptions& options, std::unique_ptr<EtcdClient> client)
    : options_(options),
      keys_(options.prefix),
      client_(std::move(client)),
      reader_(options.etcd, *client_),
      guard_(options.limits),
      history_(options.history) {
  head_.owner = FormatUuid(RandomUuid());
  if (!options.address.empty()) absl::StrAppend(&head_.owner, "@", options.address);
  answered_ = clock_.Elapsed();
}

absl::StatusOr<StoreImage> EtcdRecords::Open() {
  for (int i = 0; i < kClaims; ++i) {
    absl::StatusOr<StoreImage> image = Load();
    // The owner folded, and etcd forgot what was being read.
    if (absl::IsOutOfRange(image.status())) continue;
    if (!image.ok()) return image;
    if (options_.before_claim != nullptr) options_.before_claim();
    const absl::Status claimed = Claim(/*beat=*/nullptr);
    if (claimed.ok()) {
      image->epoch = head_.epoch;
      image->limits = guard_.limits();
      return image;
    }
    if (!absl::IsAborted(claimed)) return claimed;
  }
  return Refuse(absl::StatusCode::kUnavailable, "STORE_IO",
                "another manager went on committing while this one wanted to take over",
                "stop the other one first");
}

absl::StatusOr<StoreImage> EtcdRecords::ReadSince(uint64_t revision) {
  const absl::Duration deadline = clock_.Elapsed() + EtcdReader::kPatience;
  while (true) {
    absl::StatusOr<StoreImage> image = Load();
    if (image.ok() && image->revision >= revision) {
      image->epoch = head_.epoch;
      return image;
    }
    // What is older than etcd remembers is read anew, as that is.
    if (!image.ok() && !absl::IsOutOfRange(image.status())) return image;
    if (clock_.Elapsed() > deadline) {
      return reader_.NoAnswer(image.ok() ? absl::UnavailableError("it answers from the past")
                                         : image.status());
    }
    absl::SleepFor(kEtcdPause);
  }
}

bool EtcdRecords::WaitsForFolding(const StoreBatch& batch) const {
  if (!broken_.ok() || tail_.empty()) return false;
  if (tail_bytes_ > options_.fold_bytes / 4 * 5 || tail_.size() > kMaxTail / 4 * 5) return true;
  return BytesUsed() + MostBytes(batch) > options_.max_bytes &&
         BytesUsed() + EncodeChange(batch).size() > options_.max_bytes;
}

absl::Status EtcdRecords::Commit(const StoreBatch& batch) {
  if (!broken_.ok()) return broken_;
  if (absl::Status status = guard_.Check(batch); !status.ok()) return status;
  std::string change = EncodeChange(batch);
  if (BytesUsed() + change.size() > options_.max_bytes) return Full(change.size());
  absl::Status status = Put(batch.revision, change);
  if (!status.ok()) return Broken(status);
  guard_.Applied(batch);
  tail_bytes_ += change.size();
  tail_.push_back({batch.revision, head_.digest, std::move(change)});
  NoteUsed();
  return absl::OkStatus();
}

std::vector<EtcdChange> EtcdRecords::OldestChanges() const {
  std::vector<EtcdChange> changes;
  size_t bytes = 0;
  for (const EtcdChange& change : tail_) {
    if (bytes >= options_.fold_step_bytes) break;
    bytes += change.bytes.size();
    changes.push_back(change);
  }
  return changes;
}

absl::Status EtcdRecords::Folded(const absl::StatusOr<EtcdFoldStep>& step) {
  if (absl::IsCancelled(step.status())) return absl::OkStatus();
  if (!step.ok()) return Broken(step.status());
  history_.Note(step->revision);
  if (++folds_ % kStepsToForget == 0) Forget();
  return NoteFolded(ToText(step->folded));
}

// That etcd does not is no harm now: the next time it will.
void EtcdRecords::Forget() {
  if (const int64_t before = history_.Forget(); before > 0) client_->Compact(before).IgnoreError();
}

absl::Status EtcdRecords::Beat() {
  if (!broken_.ok()) return broken_;
  TxnRequest txn = Guarded();
  if (absl::Status status = Settle(txn, keys_.Beat(), BeatNow()); !status.ok()) {
    return Broken(status);
  }
  if (history_.is_long()) Forget();
  return absl::OkStatus();
}

void EtcdRecords::LetGo() {
  if (!broken_.ok()) return;
  TxnRequest txn;
  AddCompare(txn, keys_.Head(), head_text_);
  AddPut(txn, keys_.Beat(), absl::StrCat(kFree, head_.owner));
  client_->Txn(txn).IgnoreError();  // Then others wait as if this process had been killed.
  broken_ = absl::CancelledError("the store was let go");
}

// After whatever changes it: a claim, a commit, a fold.
void EtcdRecords::NoteUsed() const {
  if (options_.meters != nullptr) options_.meters->used_bytes = BytesUsed();
}

absl::Status EtcdRecords::Full(size_t wanted) const {
  return Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL",
                absl::StrCat("the records have ", BytesUsed(), " of the ", options_.max_bytes,
                             " bytes of store.max_bytes; this change needs ", wanted),
                "raise ETCD_QUOTA_BACKEND_BYTES of every member of etcd, then store.max_bytes of "
                "every manager, and restart them one after the other");
}

// Every later commit fails alike.
absl::Status EtcdRecords::Broken(absl::Status status) {
  broken_ = status;
  return status;
}

// --- Reading.

// Whether a head that was read is of somebody who came after; one from before is a stale read.
bool EtcdRecords::IsAnothers(const std::string& text) const {
  if (IsLaterHead(text)) return true;
  const auto head = ParseHead(text);
  return head.has_value() && text != head_text_ && head->owner != head_.owner &&
         head->epoch >= head_.epoch;
}

// Head, packs and log as of one moment; head_ is what was read, but for the owner.
absl::StatusOr<StoreImage> EtcdRecords::Load() {
  packs_.clear();
  tail_.clear();
  folded_ = {};
  folded_text_.clear();
  tail_bytes_ = 0;
  const auto head = reader_.ReadOne(keys_.Head());
  if (!head.ok()) return head.status();
  StoreImage image;
  head_text_.clear();
  head_ = {.owner = head_.owner};
  if (head->kvs().empty()) return image;
  head_text_ = head->kvs(0).value();
  const auto parsed = ParseHead(head_text_);
  if (!parsed.has_value()) return BadHead(keys_.Head(), head_text_);
  head_.epoch = parsed->epoch;
  image.revision = head_.revision = parsed->revision;
  head_.digest = parsed->digest;
  const int64_t revision = head->header().revision();
  Rows rows;
  if (absl::Status status = LoadPacks(revision, rows); !status.ok()) return status;
  if (absl::Status status = LoadLog(revision, rows); !status.ok()) return status;
  image.rows.reserve(rows.size());
  for (auto& [key, value] : rows) image.rows.push_back({key, std::move(value)});
  return image;
}

absl::Status EtcdRecords::LoadPacks(int64_t revision, Rows& rows) {
  std::string pack;
  return reader_.ReadAll(keys_.Pack(0), keys_.PackEnd(), revision, kPackPage,
                         [&](const KeyValue& row) -> absl::Status {
                           const auto first = keys_.FirstOfPack(row.key());
                           bool sound = first.has_value() && Expand(row.value(), pack);
                           sound = sound && ReadPack(pack, [&](const Entry& entry) {
                                     sound =
                                         sound && RecordCrc(entry.key, entry.value) == entry.crc;
                                     rows[entry.key] = std::string(entry.value);
                                   });
                           if (!sound) return EtcdCorrupt(row.key());
                           packs_.insert(*first);
                           folded_.pack_bytes += row.value().size();
                           return absl::OkStatus();
                         });
}

// That the digests lead from where the packs end to the head proves that nothing is missing.
absl::Status EtcdRecords::LoadLog(int64_t revision, Rows& rows) {
  const auto folded = reader_.ReadOne(keys_.Folded(), revision);
  if (!folded.ok()) return folded.status();
  if (!folded->kvs().empty()) {
    folded_text_ = folded->kvs(0).value();
    const auto parsed = ParseFolded(folded_text_);
    if (!parsed.has_value()) return EtcdCorrupt(keys_.Folded());
    // A step that was broken off has put more than was noted: what was read counts.
    const uint64_t pack_bytes = folded_.pack_bytes;
    folded_ = *parsed;
    folded_.pack_bytes = pack_bytes;
  }
  const auto apply = [&rows](uint64_t, StoreBatch batch) {
    for (Row& row : batch.puts) rows[row.key] = std::move(row.value);
    for (const uint64_t key : batch.erases) rows.erase(key);
  };
  const auto complete = ReadLog(folded_.revision, folded_.digest, head_, revision, apply);
  if (!complete.ok()) return complete.status();
  return *complete ? absl::OkStatus() : EtcdCorrupt(keys_.Head());
}

// Adds the changes after `after` up to `head` to what is known of the log, and tells them to `each`
// once the digests have shown that all are there: false where they are not.
absl::StatusOr<bool> EtcdRecords::ReadLog(
    uint64_t after, std::string digest, const EtcdHead& head, int64_t revision,
    const std::function<void(uint64_t revision, StoreBatch)>& each) {
  std::deque<EtcdChange> changes;
  const auto keep = [&](const KeyValue& row) -> absl::Status {
    const auto of = keys_.RevisionOfLog(row.key());
    if (!of.has_value()) return EtcdCorrupt(row.key());
    if (changes.empty() || changes.back().revision != *of) changes.push_back({*of, "", ""});
    changes.back().bytes += row.value();
    return absl::OkStatus();
  };
  // What is beyond the head is of commits that never were.
  absl::Status status =
      reader_.ReadAll(keys_.Log(after + 1), keys_.Log(head.revision + 1), revision, kLogPage, keep);
  if (!status.ok()) return status;
  for (EtcdChange& change : changes) {
    digest = change.digest = NextDigest(digest, change.bytes);
  }
  if (digest != head.digest && !CXLPOOL_MUTANT("follows-without-digest")) return false;
  for (EtcdChange& change : changes) {
    StoreBatch batch;
    if (!DecodeChange(change.bytes, batch)) return EtcdCorrupt(keys_.Log(change.revision));
    each(change.revision, std::move(batch));
    tail_bytes_ += change.bytes.size();
    tail_.push_back(std::move(change));
  }
  return true;
}

// --- Waiting while another has the store.

// Three keys that are side by side. One try: there will be another look.
absl::StatusOr<EtcdRecords::Signs> EtcdRecords::ReadSigns() {
  RangeRequest request;
  request.set_key(keys_.Beat());
  request.set_range_end(keys_.Head() + '\0');
  const auto read = client_->Range(request);
  if (!read.ok()) return read.status();
  Signs signs;
  signs.revision = read->header().revision();
  for (const KeyValue& row : read->kvs()) {
    if (row.key() == keys_.Head()) signs.head = row.value();
    if (row.key() == keys_.Folded()) signs.folded = row.value();
    if (row.key() == keys_.Beat()) signs.beat = row.value();
  }
  return signs;
}

// The store is claimed only if nobody has it, or whoever has it gave no sign of life and committed
// nothing for `takeover` by this machine's own clock, counted from looks that etcd answered. A look
// that etcd does not answer is no sign of anything: neither does it prolong that time, nor does it
// end it, and the claim compares what was seen last.
absl::StatusOr<std::optional<StoreImage>> EtcdRecords::Look(const StoreFollower& follower) {
  const auto signs = ReadSigns();
  const absl::Duration now = clock_.Elapsed();
  if (!signs.ok()) {
    if (now - answered_ > kSilence && !std::exchange(said_silent_, true)) {
      LogWarning("store", reader_.NoAnswer(signs.status()).message());
    }
    return std::nullopt;
  }
  answered_ = now;
  if (std::exchange(said_silent_, false)) LogInfo("store", "etcd answers again");
  if (!looked_ || signs->head != seen_.head || signs->beat != seen_.beat) seen_since_ = now;
  looked_ = true;
  seen_ = *signs;
  if (const auto head = ParseHead(seen_.head); head.has_value() && follower.on_owner != nullptr) {
    const size_t at = head->owner.find('@');
    follower.on_owner({.address = at == std::string::npos ? "" : head->owner.substr(at + 1),
                       .epoch = head->epoch,
                       .revision = head->revision,
                       .is_followed = follows_});
  }
  if (follower.on_image != nullptr) {
    const absl::Status status = FollowTo(follower);
    NoteFollowed(status);
    if (!status.ok()) {
      if (!IsPassing(status)) return status;
      return std::nullopt;
    }
  }
  const bool is_free = seen_.head.empty() || absl::StartsWith(seen_.beat, kFree);
  if (!is_free && now - seen_since_ < options_.takeover) return std::nullopt;
  StoreImage image;
  if (follower.on_image == nullptr) {
    auto loaded = Load();
    if (!loaded.ok() && !IsPassing(loaded.status())) return loaded.status();
    if (!loaded.ok()) return std::nullopt;
    image = *std::move(loaded);
  }
  // What was read is as of another head than the one that stood still.
  if (head_text_ != seen_.head) return std::nullopt;
  if (options_.before_claim != nullptr) options_.before_claim();
  const absl::Status claimed = Claim(&seen_.beat);
  // Head, folds or beat have changed since they were seen: the owner lives.
  if (absl::IsAborted(claimed)) return std::nullopt;
  if (!claimed.ok()) return claimed;
  image.epoch = head_.epoch;
  image.revision = head_.revision;
  image.limits = guard_.limits();
  return image;
}

// Tells the follower what was committed up to the head that was seen, or, where that cannot be
// known any more, all there is.
absl::Status EtcdRecords::FollowTo(const StoreFollower& follower) {
  if (seen_.head.empty()) return absl::OkStatus();
  const auto head = ParseHead(seen_.head);
  if (!head.has_value()) return BadHead(keys_.Head(), seen_.head);
  if (loaded_ && head->revision < head_.revision) return absl::OkStatus();  // A stale read.
  if (loaded_) {
    const auto tell = [&](uint64_t revision, StoreBatch batch) {
      batch.epoch = head->epoch;
      batch.base_revision = std::exchange(head_.revision, revision);
      batch.revision = revision;
      follower.on_batch(std::move(batch));
    };
    const auto complete = ReadLog(head_.revision, head_.digest, *head, seen_.revision, tell);
    if (!complete.ok()) return complete.status();
    if (*complete) {
      head_.epoch = head->epoch;
      head_.digest = head->digest;
      head_text_ = seen_.head;
      absl::Status status = NoteFolded(seen_.folded);
      return status.ok() ? ReadPackKeys() : status;
    }
    LogInfo("store", "what was committed since revision ", head_.revision,
            " is in etcd's log no more: all is read again");
  }
  loaded_ = false;
  auto image = Load();
  if (!image.ok()) return image.status();
  loaded_ = true;
  image->epoch = head_.epoch;
  follower.on_image(*std::move(image));
  return absl::OkStatus();
}

// Whether what the owner has committed is known here. Where etcd has compacted it while it was
// being read, the next look begins anew: the log has that once, for no other sign of it is seen.
void EtcdRecords::NoteFollowed(const absl::Status& status) {
  follows_ = status.ok();
  if (absl::IsOutOfRange(status) && !std::exchange(said_behind_, true)) {
    LogWarning(
        "store",
        "etcd has compacted what this manager was still reading, so it cannot take over yet: "
        "all is read again until that succeeds; see that it reaches etcd as fast as the "
        "manager that leads, or wait until less is changed");
  }
  if (status.ok() && std::exchange(said_behind_, false)) {
    LogInfo("store", "all there is was read: this manager can take over");
  }
}

// What the owner has folded meanwhile.
absl::Status EtcdRecords::NoteFolded(const std::string& text) {
  if (text == folded_text_) return absl::OkStatus();
  const auto folded = ParseFolded(text);
  if (!folded.has_value()) return EtcdCorrupt(keys_.Folded());
  folded_text_ = text;
  folded_ = *folded;
  while (!tail_.empty() && tail_.front().revision <= folded->revision) {
    tail_bytes_ -= tail_.front().bytes.size();
    tail_.pop_front();
  }
  NoteUsed();
  return absl::OkStatus();
}

// A page of the packs' keys at each look, for as long as the owner folds: who claims the store has
// to know them, more or less (FoldPack).
absl::Status EtcdRecords::ReadPackKeys() {
  if (list_from_.empty()) {
    if (listed_ == folded_text_) return absl::OkStatus();
    listed_ = folded_text_;
    list_from_ = keys_.Pack(0);
  }
  RangeRequest request;
  request.set_key(list_from_);
  request.set_range_end(keys_.PackEnd());
  request.set_limit(kKeyPage);
  request.set_keys_only(true);
  const auto page = reader_.Read(request);
  if (!page.ok()) return page.status();
  std::set<uint64_t> found;
  for (const KeyValue& row : page->kvs()) {
    const auto first = keys_.FirstOfPack(row.key());
    if (!first.has_value()) return EtcdCorrupt(row.key());
    found.insert(*first);
  }
  const auto end = page->more() ? packs_.upper_bound(*found.rbegin()) : packs_.end();
  packs_.erase(packs_.lower_bound(listed_to_), end);
  packs_.merge(found);
  listed_to_ = page->more() ? *keys_.FirstOfPack(page->kvs().rbegin()->key()) + 1 : 0;
  list_from_ = page->more() ? keys_.Pack(listed_to_) : "";
  return absl::OkStatus();
}

// --- Writing.

// What every transaction of an owner begins with.
TxnRequest EtcdRecords::Compared() const {
  TxnRequest txn;
  if (!CXLPOOL_MUTANT("etcd-writes-unguarded")) AddCompare(txn, keys_.Head(), head_text_);
  return txn;
}

// The same, as a sign of life.
TxnRequest EtcdRecords::Guarded() {
  TxnRequest txn = Compared();
  ++beats_;
  AddPut(txn, keys_.Beat(), BeatNow());
  return txn;
}

std::string EtcdRecords::BeatNow() const { return absl::StrCat(head_.owner, " ", beats_); }

// One try. The store is ours for some time from its sending on, not from its answer.
absl::StatusOr<TxnResponse> EtcdRecords::Send(const TxnRequest& txn) {
  const absl::Duration sent = clock_.Elapsed();
  auto answer = client_->Txn(txn);
  if (answer.ok() && answer->succeeded()) {
    history_.Note(answer->header().revision());
    IsOurs(sent);
  }
  return answer;
}

void EtcdRecords::IsOurs(absl::Duration sent) {
  if (options_.owned_until != nullptr) options_.owned_until(sent + OwnTerm(options_.takeover));
}

// Sends `txn` until its outcome is known. Refused does not mean that it was not carried out: an
// earlier sending of it may have been, which `key` shows where it then has the value `wanted`.
// ABORTED/STORE_FENCED: the head is another's. `claims`: any other refusal is one, too.
absl::Status EtcdRecords::Settle(const TxnRequest& txn, const std::string& key,
                                 const std::string& wanted, bool claims) {
  const absl::Duration sent = clock_.Elapsed();
  const absl::Duration deadline = sent + options_.commit_deadline;
  absl::Status last;
  for (bool again = false; clock_.Elapsed() < deadline; again = true) {
    if (again && reader_.is_cancelled()) return EtcdClosing();  // A claim: only then.
    if (again && options_.meters != nullptr) options_.meters->resent.Add();
    const auto answer = Send(txn);
    if (answer.ok() && answer->succeeded()) return absl::OkStatus();
    if (absl::IsInvalidArgument(answer.status())) {
      return EtcdStuck(options_.commit_deadline, answer.status());
    }
    const bool no_space = absl::IsResourceExhausted(answer.status());
    if (no_space && CXLPOOL_MUTANT("no-space-is-a-refusal")) return Full(0);
    last = answer.status();
    if (answer.ok()) {
      const auto head = reader_.ValueOf(keys_.Head());
      if (!head.ok()) return EtcdStuck(options_.commit_deadline, head.status());
      const auto now = key == keys_.Head() ? head : reader_.ValueOf(key);
      if (!now.ok()) return EtcdStuck(options_.commit_deadline, now.status());
      if (*now == wanted && (key == keys_.Head() || *head == head_text_)) {
        IsOurs(sent);
        return absl::OkStatus();
      }
      if (claims || IsAnothers(*head)) return EtcdFenced(*head);
    }
    absl::SleepFor(kEtcdPause);
  }
  return EtcdStuck(options_.commit_deadline, last);
}

// The head that was read becomes ours, in the next epoch. Whoever has the store may fold it
// meanwhile, which leaves the head alone: what was read of the log is then not there any more. And
// it may give a sign of life (`beat`: the last one that was seen; null: it is not asked).
//
// It says in `folded`, too, whose epoch it is: so nothing of what the owner before is still folding
// is taken any more, as none of it compares the head.
//
// Epochs follow the wall clock where that is ahead, so that a store which was put back to an
// earlier state does not give one again: unless somebody claimed it since that state by a clock
// which ran ahead. Nothing else here asks that clock.
absl::Status EtcdRecords::Claim(const std::string* beat) {
  EtcdHead claimed = head_;
  claimed.epoch = std::max<uint64_t>(head_.epoch + 1, absl::ToUnixMillis(absl::Now()));
  EtcdFolded folded = folded_;
  if (!CXLPOOL_MUTANT("claim-leaves-folding")) folded.epoch = claimed.epoch;
  TxnRequest txn = Guarded();
  if (!CXLPOOL_MUTANT("claim-ignores-folding")) AddCompare(txn, keys_.Folded(), folded_text_);
  if (beat != nullptr && !CXLPOOL_MUTANT("claim-ignores-beat")) {
    AddCompare(txn, keys_.Beat(), *beat);
  }
  AddPut(txn, keys_.Head(), ToText(claimed));
  AddPut(txn, keys_.Folded(), ToText(folded));
  // Pieces of a commit that never was.
  if (!CXLPOOL_MUTANT("claim-leaves-pieces")) {
    AddDelete(txn, keys_.Log(head_.revision + 1), keys_.LogEnd());
  }
  absl::Status status = Settle(txn, keys_.Head(), ToText(claimed), /*claims=*/true);
  if (!status.ok()) return status;
  head_ = claimed;
  head_text_ = ToText(claimed);
  folded_ = folded;
  folded_text_ = ToText(folded);
  guard_.Reset(head_.epoch, head_.revision);
  NoteUsed();
  return absl::OkStatus();
}

// The change as pieces, each in a transaction of its own. The last one moves the head, which is a
// sign of life by itself. Nothing else lies where the pieces go: the claim took away what there was
// beyond the head, and no commit follows one of which pieces may have been left.
absl::Status EtcdRecords::Put(uint64_t revision, const std::string& change) {
  EtcdHead next = head_;
  next.revision = revision;
  next.digest = NextDigest(head_.digest, change);
  const uint64_t parts = (change.size() + kEtcdPartBytes - 1) / kEtcdPartBytes;
  for (uint64_t part = 0; part < parts; ++part) {
    const bool last = part + 1 == parts;
    TxnRequest txn = last ? Compared() : Guarded();
    AddPut(txn, keys_.Log(revision, part), change.substr(part * kEtcdPartBytes, kEtcdPartBytes));
    if (last) AddPut(txn, keys_.Head(), ToText(next));
    absl::Status status =
        last ? Settle(txn, keys_.Head(), ToText(next)) : Settle(txn, keys_.Beat(), BeatNow());
    if (!status.ok()) return status;
  }
  head_ = next;
  head_text_ = ToText(next);
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
