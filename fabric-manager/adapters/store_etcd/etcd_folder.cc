#include "fabric-manager/adapters/store_etcd/etcd_folder.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "etcd/v3/kv.pb.h"
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
constexpr int kIndexPage = 64;  // Packs that are named at once where more are there than known.

size_t SizeOf(const Edit& edit) {
  return kEntryHeaderBytes + (edit.value == nullptr ? 0 : edit.value->size());
}

}  // namespace

// One transaction, and what packs_ is to be after it.
struct EtcdFolder::Transaction {
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

EtcdFolder::EtcdFolder(const EtcdStoreOptions& options, std::unique_ptr<EtcdClient> client)
    : options_(options),
      keys_(options.prefix),
      client_(std::move(client)),
      reader_(options.etcd, *client_) {}

void EtcdFolder::Begin(EtcdFolded folded, std::set<uint64_t> packs) {
  folded_ = std::move(folded);
  pack_bytes_ = folded_.pack_bytes;
  packs_ = std::move(packs);
}

// Of several changes of one record only the last is written. Packs may be ahead of `folded` when
// this is broken off: the log is then applied again, in order, to the same end.
absl::StatusOr<EtcdFoldStep> EtcdFolder::Fold(const std::vector<EtcdChange>& changes) {
  std::map<uint64_t, std::optional<std::string>> rows;
  for (const EtcdChange& change : changes) {
    StoreBatch batch;
    if (!DecodeChange(change.bytes, batch)) return EtcdCorrupt(keys_.Log(change.revision));
    for (Row& row : batch.puts) rows[row.key] = std::move(row.value);
    for (const uint64_t key : batch.erases) rows[key] = std::nullopt;
  }
  std::vector<Edit> edits;
  edits.reserve(rows.size());
  for (const auto& [key, value] : rows) {
    edits.push_back({key, value.has_value() ? &*value : nullptr});
  }
  for (const Edit* at = edits.data(); at != edits.data() + edits.size();) {
    auto next = FoldPacks(at, edits.data() + edits.size());
    if (!next.ok()) return next.status();
    at = *next;
  }
  EtcdFolded next = folded_;
  next.revision = changes.back().revision;
  next.digest = changes.back().digest;
  next.pack_bytes = pack_bytes_;
  if (absl::Status status = PutFolded(next); !status.ok()) return status;
  return EtcdFoldStep{folded_, revision_};
}

// The end of a step. It compares what the step before has put there, or the claim: so one that is
// carried out again, late, cannot take back what a later step has said.
absl::Status EtcdFolder::PutFolded(const EtcdFolded& next) {
  TxnRequest txn;
  if (!CXLPOOL_MUTANT("fold-ends-uncompared")) {
    AddCompare(txn, keys_.Folded(), ToText(folded_));
  }
  AddPut(txn, keys_.Folded(), ToText(next));
  AddDelete(txn, keys_.Log(0), keys_.Log(next.revision + 1));
  absl::Status last;
  const absl::Duration deadline = clock_.Elapsed() + options_.commit_deadline;
  for (bool again = false; clock_.Elapsed() < deadline; again = true) {
    if (again) absl::SleepFor(kEtcdPause);
    if (reader_.is_cancelled()) return EtcdClosing();
    if (again && options_.meters != nullptr) options_.meters->resent.Add();
    const auto answer = client_->Txn(txn);
    last = answer.status();
    if (absl::IsInvalidArgument(last)) break;
    if (!answer.ok()) continue;
    revision_ = answer->header().revision();
    // Refused: an earlier sending of it may have been carried out.
    const auto now = answer->succeeded() ? ToText(next) : FoldedNow();
    if (!now.ok()) return now.status();
    if (*now != ToText(next)) continue;
    folded_ = next;
    return absl::OkStatus();
  }
  return EtcdStuck(options_.commit_deadline, last);
}

// As etcd has it, where that is not another's. A read may be stale, also from before the first
// claim: it shows what was so, and never that nothing has come since.
absl::StatusOr<std::string> EtcdFolder::FoldedNow() {
  const auto text = reader_.ValueOf(keys_.Folded());
  if (!text.ok() || text->empty()) return text;
  const auto folded = ParseFolded(*text);
  if (!folded.has_value()) return EtcdCorrupt(keys_.Folded());
  if (folded->epoch > folded_.epoch) return EtcdFenced(absl::StrCat("epoch ", folded->epoch));
  return text;
}

// One transaction: as many packs from `at` on as it takes. Answers the first edit that is left.
absl::StatusOr<const Edit*> EtcdFolder::FoldPacks(const Edit* at, const Edit* end) {
  const absl::Duration deadline = clock_.Elapsed() + options_.commit_deadline;
  absl::Status last;
  for (; clock_.Elapsed() < deadline; absl::SleepFor(kEtcdPause)) {
    Transaction fold;
    if (!CXLPOOL_MUTANT("fold-unguarded")) AddCompare(fold.txn, keys_.Folded(), ToText(folded_));
    const Edit* next = at;
    // The first in any case: a record may be as large as a transaction.
    while (next == at || (next != end && fold.TakesMore(SizeOf(*next)))) {
      auto added = FoldPack(next, end, fold);
      // The index was behind what is in etcd, and is not any more.
      if (absl::IsAborted(added.status())) break;
      if (!added.ok()) return added.status();
      next = *added;
    }
    if (next == at) continue;
    if (reader_.is_cancelled()) return EtcdClosing();
    const auto answer = client_->Txn(fold.txn);
    last = answer.status();
    if (absl::IsInvalidArgument(last)) break;
    if (!answer.ok()) continue;
    if (answer->succeeded()) {
      for (const uint64_t first : fold.gone) packs_.erase(first);
      packs_.insert(fold.puts.begin(), fold.puts.end());
      pack_bytes_ += fold.bytes;
      pack_bytes_ -= std::min(pack_bytes_, fold.before);
      return next;
    }
    // Refused: a pack that was read is older than what is there (a stale read, or this very
    // transaction has been carried out); or the store is another's.
    if (const auto now = FoldedNow(); !now.ok()) return now.status();
  }
  return EtcdStuck(options_.commit_deadline, last);
}

// The pack that has the record of `at`, with the edits of its records. ABORTED: packs_ was not as
// etcd is, since a transaction was carried out whose answer was lost, or another owner folded; it
// is nearer to it now.
absl::StatusOr<const Edit*> EtcdFolder::FoldPack(const Edit* at, const Edit* end,
                                                 Transaction& fold) {
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
  const auto read = reader_.Read(request);
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
    return absl::AbortedError("");
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

}  // namespace cxlpool::fm
