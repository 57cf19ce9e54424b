// How the oldest changes of the log are brought into the packs.
#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "absl/time/clock.h"
#include "fabric-manager/adapters/store_etcd/etcd_records.h"
#include "fabric-manager/adapters/store_etcd/etcd_txn.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

using etcdserverpb::KeyValue;
using etcdserverpb::RangeRequest;
using etcdserverpb::TxnRequest;

// Before they are compressed: then less than a page of etcd's database.
constexpr size_t kEtcdPackBytes = 8000;
// Of a transaction: etcd takes 128 operations, and as many comparisons, of which each pack that is
// read has two.
constexpr size_t kReadPacks = 50;
constexpr size_t kWrittenPacks = 120;
constexpr int kStepsToForget = 8;  // Steps of folding before etcd is to forget what was.
// Revisions before it is, where nothing is folded: signs of life of five minutes.
constexpr int64_t kRevisionsToForget = 1000;
constexpr int kMoments = 8;     // That are remembered of EtcdStoreOptions::history.
constexpr int kIndexPage = 64;  // Packs that are named at once where more are there than known.

size_t SizeOf(const Edit& edit) {
  return kEntryHeaderBytes + (edit.value == nullptr ? 0 : edit.value->size());
}

}  // namespace

// One transaction, and what packs_ is to be after it.
struct EtcdRecords::FoldTxn {
  TxnRequest txn;
  std::vector<uint64_t> puts = {};
  std::vector<uint64_t> gone = {};
  size_t bytes = 0;   // That it puts;
  size_t before = 0;  // of what was there.
  // Also of those that stay as they are, as all do that were written before the step was broken
  // off: each has two comparisons.
  size_t read = 0;
  bool full = false;  // A pack of which some edits are left is not named twice.

  size_t packs() const { return puts.size() + gone.size(); }
  bool TakesMore(size_t more) const {
    const size_t most = CXLPOOL_MUTANT("fold-counts-what-it-writes") ? SIZE_MAX : kReadPacks;
    return !full && read < most && packs() < kReadPacks && bytes + more < kEtcdPartBytes / 2;
  }
  // How many bytes of edits: two packs that are side by side have more than one holds.
  size_t room() const {
    return std::min((kWrittenPacks - packs()) * kEtcdPackBytes / 2, kEtcdPartBytes / 2);
  }
};

absl::Status EtcdRecords::Fold() {
  absl::Status status = FoldStep();
  if (!status.ok()) return Broken(status);
  if (++folds_ % kStepsToForget == 0) Forget();
  return absl::OkStatus();
}

absl::Status EtcdRecords::FoldAll() {
  while (!tail_.empty()) {
    if (absl::Status status = FoldStep(); !status.ok()) return status;
  }
  Forget();
  return absl::OkStatus();
}

// Brings some of the oldest changes into the packs, and takes them off the log. Of several changes
// of one record only the last is written.
absl::Status EtcdRecords::FoldStep() {
  std::map<uint64_t, std::optional<std::string>> rows;
  size_t count = 0;
  for (size_t bytes = 0; count < tail_.size() && bytes < options_.fold_step_bytes; ++count) {
    StoreBatch batch;
    bytes += tail_[count].bytes.size();
    if (!DecodeChange(tail_[count].bytes, batch)) {
      return EtcdCorrupt(keys_.Log(tail_[count].revision));
    }
    for (Row& row : batch.puts) rows[row.key] = std::move(row.value);
    for (const uint64_t key : batch.erases) rows[key] = std::nullopt;
  }
  if (count == 0) return absl::OkStatus();
  std::vector<Edit> edits;
  edits.reserve(rows.size());
  for (const auto& [key, value] : rows) {
    edits.push_back({key, value.has_value() ? &*value : nullptr});
  }
  // Packs may be ahead of `folded` when this is broken off: the log is then applied again, in
  // order, to the same end.
  for (const Edit* at = edits.data(); at != edits.data() + edits.size();) {
    auto next = FoldPacks(at, edits.data() + edits.size());
    if (!next.ok()) return next.status();
    at = *next;
  }
  const Change& last = tail_[count - 1];
  const std::string folded = ToText(EtcdFolded{last.revision, last.digest, pack_bytes_});
  TxnRequest txn = Guarded();
  // The head stays as it is from one step to the next: an earlier one that is sent again, late,
  // must not name what is in the log no more.
  if (!CXLPOOL_MUTANT("fold-ends-uncompared")) AddCompare(txn, keys_.Folded(), folded_text_);
  AddPut(txn, keys_.Folded(), folded);
  AddDelete(txn, keys_.Log(0), keys_.Log(last.revision + 1));
  if (absl::Status status = Settle(txn, keys_.Folded(), folded); !status.ok()) return status;
  return NoteFolded(folded);
}

// One transaction: as many packs from `at` on as it takes, and as are read in a tenth of the time
// after which others take the store over: reads are no sign of life, the transaction is. One pack
// is read and written in any case, so it goes on however slow etcd is. Answers the first edit that
// is left.
absl::StatusOr<const Edit*> EtcdRecords::FoldPacks(const Edit* at, const Edit* end) {
  absl::Duration began = clock_.Elapsed();
  const absl::Duration deadline = began + options_.commit_deadline;
  const auto takes_long = [&] {
    return options_.takeover > absl::ZeroDuration() && !CXLPOOL_MUTANT("fold-reads-for-long") &&
           clock_.Elapsed() - began > options_.takeover / 10;
  };
  absl::Status last;
  for (; clock_.Elapsed() < deadline; absl::SleepFor(kEtcdPause)) {
    if (takes_long()) {  // What was gathered was refused, or the index has still to be found.
      if (absl::Status status = Beat(); !status.ok()) return status;
      began = clock_.Elapsed();
    }
    FoldTxn fold{.txn = Guarded()};
    const Edit* next = at;
    // The first in any case: a record may be as large as a transaction.
    while (next == at || (next != end && fold.TakesMore(SizeOf(*next)) && !takes_long())) {
      auto added = FoldPack(next, end, fold);
      // The index was behind what is in etcd, and is not any more.
      if (absl::IsCancelled(added.status())) break;
      if (!added.ok()) return added.status();
      next = *added;
    }
    if (next == at) continue;
    const auto answer = Send(fold.txn);
    if (absl::IsInvalidArgument(answer.status())) return Stuck(answer.status());
    if (answer.ok() && answer->succeeded()) {
      for (const uint64_t first : fold.gone) packs_.erase(first);
      packs_.insert(fold.puts.begin(), fold.puts.end());
      pack_bytes_ += fold.bytes;
      pack_bytes_ -= std::min(pack_bytes_, fold.before);
      return next;
    }
    // Refused: a pack that was read is older than what is there (a stale read, or this very
    // transaction has been carried out); or the store is another's.
    last = answer.status();
    if (answer.ok()) {
      const auto head = ValueOf(keys_.Head());
      if (!head.ok()) return head.status();
      if (IsAnothers(*head)) return EtcdFenced(*head);
    }
  }
  return Stuck(last);
}

// The pack that has the record of `at`, with the edits of its records. CANCELLED: packs_ was not as
// etcd is, since a transaction was carried out whose answer was lost, or another owner folded; it
// is nearer to it now.
absl::StatusOr<const Edit*> EtcdRecords::FoldPack(const Edit* at, const Edit* end, FoldTxn& fold) {
  // Before the first pack there is room for a new one.
  auto after = packs_.upper_bound(at->key);
  const bool is_new = after == packs_.begin();
  const uint64_t first = is_new ? at->key : *std::prev(after);
  const Edit* last = after == packs_.end()
                         ? end
                         : std::lower_bound(at, end, *after, [](const Edit& edit, uint64_t key) {
                             return edit.key < key;
                           });
  // Not too much at once: the rest of a new end comes with the next transaction.
  size_t size = 0;
  for (const Edit* edit = at; edit != last; ++edit) {
    size += SizeOf(*edit);
    if (size > fold.room() && edit != at) {
      last = edit;
      fold.full = true;
      break;
    }
  }
  // All that lies between the pack before and the one behind.
  RangeRequest request;
  request.set_key(keys_.Pack(is_new ? 0 : first));
  request.set_range_end(after == packs_.end() ? keys_.PackEnd() : keys_.Pack(*after));
  request.set_limit(kIndexPage);
  const auto read = Read(request);
  if (!read.ok()) return read.status();
  const std::string key = keys_.Pack(first);
  const bool there = !read->kvs().empty();
  if (there == is_new || read->kvs_size() > 1 || (there && read->kvs(0).key() != key)) {
    if (!is_new) packs_.erase(first);
    for (const KeyValue& row : read->kvs()) {
      const auto found = keys_.FirstOfPack(row.key());
      if (!found.has_value()) return EtcdCorrupt(row.key());
      packs_.insert(*found);
    }
    return absl::CancelledError();
  }
  std::string old;
  if (there && !Expand(read->kvs(0).value(), old)) return EtcdCorrupt(key);
  // A record may be as large as a transaction: then it is the only one.
  if (fold.packs() > 0 && fold.bytes + old.size() + size > kEtcdPartBytes) {
    fold.full = true;
    return at;
  }
  // What was read has to be all there is: a read may be stale.
  ++fold.read;
  if (there && !CXLPOOL_MUTANT("fold-packs-uncompared")) {
    AddCompare(fold.txn, key, "", read->kvs(0).mod_revision());
  }
  AddCompare(fold.txn, there ? key + '\0' : request.key(), request.range_end(), 0);
  PackSums sums;
  std::vector<Pack> out;
  if (!EditPack(first, old, at, last, after == packs_.end(), sums, out, kEtcdPackBytes)) {
    return EtcdCorrupt(key);
  }
  if (there) fold.before += read->kvs(0).value().size();
  if (out.empty() && there) {
    AddDelete(fold.txn, key);
    fold.gone.push_back(first);
  }
  for (const Pack& pack : out) {
    if (pack.first == first && pack.body == old) {
      fold.before -= read->kvs(0).value().size();
      continue;
    }
    std::string bytes = Compress(pack.body);
    fold.bytes += bytes.size();
    fold.puts.push_back(pack.first);
    AddPut(fold.txn, keys_.Pack(pack.first), std::move(bytes));
  }
  return last;
}

// The newest revision, now that etcd has answered. Of those before it some are remembered with
// their time, a part of options_.history from one to the next: the newest one that is as old as
// that, and all that are younger.
void EtcdRecords::NoteRevision(int64_t revision) {
  etcd_revision_ = revision;
  const absl::Duration now = clock_.Elapsed();
  while (moments_.size() > 1 && moments_[1].at + options_.history <= now) moments_.pop_front();
  if (moments_.empty() || now - moments_.back().at >= options_.history / kMoments) {
    moments_.push_back({now, revision});
  }
}

// Has etcd forget former revisions, but for those of the last moments (options_.history), which
// somebody who begins to follow may be reading, and those that a backup is made of. That it does
// not is no harm now: the next time it will.
void EtcdRecords::Forget() {
  const absl::Duration now = clock_.Elapsed();
  int64_t before = 0;
  for (const Moment& moment : moments_) {
    const bool is_old = moment.at + options_.history <= now;
    if (is_old || CXLPOOL_MUTANT("forgets-what-is-read")) before = moment.revision;
  }
  if (now < keep_until_) before = std::min(before, keep_from_);
  if (before <= forgotten_) return;
  forgotten_ = before;
  forgot_at_ = etcd_revision_;
  client_->Compact(before).IgnoreError();
}

// From the revision of now on, until then, on Clock::Elapsed.
void EtcdRecords::KeepHistory(absl::Duration until) {
  keep_until_ = until;
  keep_from_ = etcd_revision_;
}

// A pool in which little changes folds nothing for months, but each sign of life is a revision,
// too, and etcd keeps them all until it is told to forget them: in the end it would have no space.
void EtcdRecords::ForgetBeats() {
  if (CXLPOOL_MUTANT("beats-are-kept")) return;
  if (etcd_revision_ - forgot_at_ >= kRevisionsToForget) Forget();
}

}  // namespace cxlpool::fm
