#include "fabric-manager/adapters/store_etcd/etcd_store.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/adapters/store_etcd/etcd_layout.h"
#include "fabric-manager/ports/pack.h"
#include "fabric-manager/ports/store_guard.h"
#include "proto/support/log.h"
#include "proto/support/loop.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"

namespace cxlpool::fm {
namespace {

using etcdserverpb::Compare;
using etcdserverpb::RangeRequest;
using etcdserverpb::RangeResponse;
using etcdserverpb::TxnRequest;

// Two to a page of etcd's database, with their keys.
constexpr size_t kEtcdPackBytes = 8000;
// Of one transaction: etcd takes requests up to 1.5 MiB and 128 operations, if nobody tells it
// else.
constexpr size_t kPartBytes = size_t{1} << 20;
constexpr size_t kPacksOfATxn = 50;
constexpr int kPage = 1000;        // Packs of one read: some 8 MB.
constexpr int kClaims = 5;         // Tries, where the owner goes on committing.
constexpr int kStepsToForget = 8;  // Steps of folding before etcd is to forget what was.
constexpr absl::Duration kPause = absl::Milliseconds(20);
constexpr absl::Duration kOpenDeadline = absl::Seconds(30);

absl::Status Corrupt(const std::string& key) {
  return Refuse(absl::StatusCode::kDataLoss, "STORE_CORRUPT",
                absl::StrCat("in etcd ", key, " is not what was written there"),
                "restore a backup");
}

absl::Status NoAnswer(const absl::Status& why) {
  return Refuse(absl::StatusCode::kUnavailable, "STORE_IO",
                absl::StrCat("etcd does not answer: ", why.message()),
                "see that most of its members run, and that they can be reached from here");
}

// Everything that is done with etcd, on one thread.
class Records {
 public:
  Records(const EtcdStoreOptions& options, std::unique_ptr<EtcdClient> client)
      : options_(options), keys_(options.prefix), client_(std::move(client)) {
    head_.owner = FormatUuid(RandomUuid());
  }

  // Reads all there is and claims it, as one: a claim succeeds only if the head is still the one
  // that was read.
  absl::StatusOr<StoreImage> Open() {
    for (int i = 0; i < kClaims; ++i) {
      absl::StatusOr<StoreImage> image = Load();
      if (!image.ok()) return image;
      if (options_.before_claim != nullptr) options_.before_claim();
      const absl::Status claimed = Claim();
      if (claimed.ok()) {
        image->epoch = head_.epoch;
        image->limits = guard_.limits();
        guard_.Reset(head_.epoch, head_.revision);
        return image;
      }
      if (!absl::IsAborted(claimed)) return claimed;
    }
    return Refuse(absl::StatusCode::kUnavailable, "STORE_IO",
                  "another manager went on committing while this one wanted to take over",
                  "stop the other one first");
  }

  absl::Status Commit(const StoreBatch& batch) {
    if (!broken_.ok()) return broken_;
    if (absl::Status status = guard_.Check(batch); !status.ok()) return status;
    std::string change = EncodeChange(batch);
    if (BytesUsed() + change.size() > options_.max_bytes) {
      // What was replaced and erased still counts until it is folded.
      if (absl::Status status = FoldAll(); !status.ok()) return Broken(status);
      if (BytesUsed() + change.size() > options_.max_bytes) return Full(change.size());
    }
    absl::Status status = Put(batch.revision, change);
    if (!status.ok()) return Broken(status);
    guard_.Applied(batch);
    tail_bytes_ += change.size();
    tail_.push_back({batch.revision, head_.digest, std::move(change)});
    return absl::OkStatus();
  }

  bool wants_to_fold() const { return broken_.ok() && tail_bytes_ > options_.fold_bytes; }

  // A step: some of the oldest changes, or one that is larger.
  absl::Status Fold() {
    absl::Status status = FoldStep();
    if (!status.ok()) return Broken(status);
    if (++folds_ % kStepsToForget == 0) Forget();
    return absl::OkStatus();
  }

 private:
  struct Change {
    uint64_t revision = 0;
    std::string digest;  // After it.
    std::string bytes;
  };

  uint64_t BytesUsed() const { return pack_bytes_ + tail_bytes_; }

  absl::Status Full(size_t wanted) const {
    return Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL",
                  absl::StrCat("the store has ", BytesUsed(), " of ", options_.max_bytes,
                               " bytes; this change needs ", wanted),
                  "release Regions, or give the store more room");
  }

  // Every later commit fails alike.
  absl::Status Broken(absl::Status status) {
    broken_ = status;
    return status;
  }

  // --- Reading. What is read is never decided by: see Claim and Settle.

  absl::StatusOr<RangeResponse> Read(const RangeRequest& request) {
    const absl::Time deadline = absl::Now() + kOpenDeadline;
    while (true) {
      auto answer = client_->Range(request);
      if (answer.ok() || absl::IsInvalidArgument(answer.status())) return answer;
      // The revision is older than etcd remembers.
      if (answer.status().code() == absl::StatusCode::kOutOfRange) return answer;
      if (absl::Now() > deadline) return NoAnswer(answer.status());
      absl::SleepFor(kPause);
    }
  }

  absl::StatusOr<RangeResponse> ReadOne(const std::string& key, int64_t revision = 0) {
    RangeRequest request;
    request.set_key(key);
    request.set_revision(revision);
    return Read(request);
  }

  // Empty: it is not there.
  absl::StatusOr<std::string> ValueOf(const std::string& key) {
    const auto read = ReadOne(key);
    if (!read.ok()) return read.status();
    return read->kvs().empty() ? std::string() : read->kvs(0).value();
  }

  // Whether a head that was read is of somebody who came after; one from before is a stale read.
  bool IsAnothers(const std::string& text) const {
    const auto head = ParseHead(text);
    return head.has_value() && text != head_text_ && head->owner != head_.owner &&
           head->epoch >= head_.epoch;
  }

  // Every key from `from` up to `end`, as of one revision, in pages.
  template <typename Each>
  absl::Status ReadAll(std::string from, const std::string& end, int64_t revision, Each each) {
    while (true) {
      RangeRequest request;
      request.set_key(from);
      request.set_range_end(end);
      request.set_limit(kPage);
      request.set_revision(revision);
      const auto page = Read(request);
      if (!page.ok()) return page.status();
      for (const etcdserverpb::KeyValue& row : page->kvs()) {
        if (absl::Status status = each(row); !status.ok()) return status;
      }
      if (!page->more()) return absl::OkStatus();
      from = page->kvs().rbegin()->key() + '\0';
    }
  }

  // Head, packs and log as of one moment; head_ is what was read, but for the owner.
  absl::StatusOr<StoreImage> Load() {
    packs_.clear();
    tail_.clear();
    folded_text_.clear();
    pack_bytes_ = tail_bytes_ = 0;
    const auto head = ReadOne(keys_.Head());
    if (!head.ok()) return head.status();
    StoreImage image;
    head_text_.clear();
    head_.epoch = head_.revision = 0;
    head_.digest = "0";
    if (head->kvs().empty()) return image;
    head_text_ = head->kvs(0).value();
    const auto parsed = ParseHead(head_text_);
    if (!parsed.has_value()) return Corrupt(keys_.Head());
    head_.epoch = parsed->epoch;
    image.revision = head_.revision = parsed->revision;
    head_.digest = parsed->digest;
    const int64_t revision = head->header().revision();
    std::map<uint64_t, std::string> rows;
    if (absl::Status status = LoadPacks(revision, rows); !status.ok()) return status;
    if (absl::Status status = LoadLog(revision, rows); !status.ok()) return status;
    image.rows.reserve(rows.size());
    for (auto& [key, value] : rows) image.rows.push_back({key, std::move(value)});
    return image;
  }

  absl::Status LoadPacks(int64_t revision, std::map<uint64_t, std::string>& rows) {
    return ReadAll(keys_.Pack(0), keys_.PackEnd(), revision,
                   [&](const etcdserverpb::KeyValue& row) -> absl::Status {
                     const auto first = keys_.FirstOfPack(row.key());
                     bool sound = first.has_value();
                     sound = sound && ReadPack(row.value(), [&](const Entry& entry) {
                               sound = sound && RecordCrc(entry.key, entry.value) == entry.crc;
                               rows[entry.key] = std::string(entry.value);
                             });
                     if (!sound) return Corrupt(row.key());
                     NotePack(*first, row.value().size());
                     return absl::OkStatus();
                   });
  }

  // That the digests lead from where the packs end to the head proves that nothing is missing.
  absl::Status LoadLog(int64_t revision, std::map<uint64_t, std::string>& rows) {
    std::string digest = "0";
    const auto folded = ReadOne(keys_.Folded(), revision);
    if (!folded.ok()) return folded.status();
    if (!folded->kvs().empty()) {
      folded_text_ = folded->kvs(0).value();
      const auto parsed = ParseFolded(folded_text_);
      if (!parsed.has_value()) return Corrupt(keys_.Folded());
      digest = parsed->digest;
    }
    const auto keep = [this](const etcdserverpb::KeyValue& row) -> absl::Status {
      const auto of = keys_.RevisionOfLog(row.key());
      if (!of.has_value()) return Corrupt(row.key());
      if (*of > head_.revision) return absl::OkStatus();  // Of a commit that never was.
      if (tail_.empty() || tail_.back().revision != *of) tail_.push_back({*of, "", ""});
      tail_.back().bytes += row.value();
      return absl::OkStatus();
    };
    absl::Status status = ReadAll(keys_.Log(0), keys_.LogEnd(), revision, keep);
    if (!status.ok()) return status;
    for (Change& change : tail_) {
      StoreBatch batch;
      if (!DecodeChange(change.bytes, batch)) return Corrupt(keys_.Log(change.revision));
      for (Row& row : batch.puts) rows[row.key] = std::move(row.value);
      for (const uint64_t key : batch.erases) rows.erase(key);
      digest = change.digest = NextDigest(digest, change.bytes);
      tail_bytes_ += change.bytes.size();
    }
    return digest == head_.digest ? absl::OkStatus() : Corrupt(keys_.Head());
  }

  // --- Writing.

  // Holds only where the key has this value; empty: where it is not there.
  static void AddCompare(TxnRequest& txn, std::string key, const std::string& value) {
    Compare& compare = *txn.add_compare();
    compare.set_result(Compare::EQUAL);
    compare.set_key(std::move(key));
    if (value.empty()) {
      compare.set_target(Compare::CREATE);
      compare.set_create_revision(0);
    } else {
      compare.set_target(Compare::VALUE);
      compare.set_value(value);
    }
  }
  // Holds only where that key, or every key from it up to `end`, was last put at that revision; 0:
  // where it, or each of them, is not there.
  static void AddCompare(TxnRequest& txn, std::string key, std::string end, int64_t revision) {
    Compare& compare = *txn.add_compare();
    compare.set_result(Compare::EQUAL);
    compare.set_key(std::move(key));
    compare.set_range_end(std::move(end));
    compare.set_target(Compare::MOD);
    compare.set_mod_revision(revision);
  }
  TxnRequest Guarded() const {
    TxnRequest txn;
    if (!CXLPOOL_MUTANT("etcd-writes-unguarded")) AddCompare(txn, keys_.Head(), head_text_);
    return txn;
  }

  static void AddPut(TxnRequest& txn, std::string key, std::string value) {
    auto& put = *txn.add_success()->mutable_request_put();
    put.set_key(std::move(key));
    put.set_value(std::move(value));
  }
  static void AddDelete(TxnRequest& txn, std::string key, std::string end = "") {
    auto& range = *txn.add_success()->mutable_request_delete_range();
    range.set_key(std::move(key));
    range.set_range_end(std::move(end));
  }

  // Sends `txn` until its outcome is known. `wanted`: the head that it puts; empty: it leaves the
  // head alone. Refused does not mean that it was not carried out: an earlier sending of it may
  // have been, which the head shows. ABORTED/STORE_FENCED: the head is another's. `claims`: the log
  // as it was read has to be there, too.
  absl::Status Settle(const TxnRequest& txn, const std::string& wanted, bool claims = false) {
    const absl::Time deadline = absl::Now() + options_.commit_deadline;
    absl::Status last;
    while (absl::Now() < deadline) {
      const auto answer = client_->Txn(txn);
      if (answer.ok() && answer->succeeded()) {
        etcd_revision_ = answer->header().revision();
        return absl::OkStatus();
      }
      if (absl::IsInvalidArgument(answer.status())) return Stuck(answer.status());
      last = answer.status();
      if (answer.ok()) {
        const auto head = ValueOf(keys_.Head());
        if (!head.ok()) return Stuck(head.status());
        if (!wanted.empty() && *head == wanted) return absl::OkStatus();
        if (IsAnothers(*head)) return Fenced(*head);
        const auto folded = claims ? ValueOf(keys_.Folded()) : folded_text_;
        if (!folded.ok()) return Stuck(folded.status());
        if (*folded != folded_text_) return Fenced(*head);
      }
      absl::SleepFor(kPause);
    }
    return Stuck(last);
  }

  static absl::Status Fenced(const std::string& head) {
    return Refuse(absl::StatusCode::kAborted, "STORE_FENCED",
                  absl::StrCat("another manager has the store (", head, ")"),
                  "stop: another manager has taken the store over");
  }
  absl::Status Stuck(const absl::Status& last) const {
    return Refuse(
        absl::StatusCode::kUnknown, "STORE_STUCK",
        absl::StrCat("etcd has not said in ", absl::FormatDuration(options_.commit_deadline),
                     " whether a change was made: ", last.message()),
        "see that most of its members run; restart the manager, which reads what was "
        "really stored");
  }

  // The head that was read becomes ours, in the next epoch. Whoever has the store may fold it
  // meanwhile, which leaves the head alone: what was read of the log is then not there any more.
  absl::Status Claim() {
    EtcdHead claimed = head_;
    ++claimed.epoch;
    TxnRequest txn = Guarded();
    if (!CXLPOOL_MUTANT("claim-ignores-folding")) AddCompare(txn, keys_.Folded(), folded_text_);
    AddPut(txn, keys_.Head(), ToText(claimed));
    // Parts of a commit that never was.
    AddDelete(txn, keys_.Log(head_.revision + 1), keys_.LogEnd());
    absl::Status status = Settle(txn, ToText(claimed), /*claims=*/true);
    if (!status.ok()) return status;
    head_ = claimed;
    head_text_ = ToText(claimed);
    return absl::OkStatus();
  }

  // The change as pieces, each in a transaction of its own; the last one also moves the head, and
  // takes away what an earlier change of that revision, which never was, may have left.
  absl::Status Put(uint64_t revision, const std::string& change) {
    EtcdHead next = head_;
    next.revision = revision;
    next.digest = NextDigest(head_.digest, change);
    const uint64_t parts = (change.size() + kPartBytes - 1) / kPartBytes;
    for (uint64_t part = 0; part < parts; ++part) {
      const bool last = part + 1 == parts;
      TxnRequest txn = Guarded();
      AddPut(txn, keys_.Log(revision, part), change.substr(part * kPartBytes, kPartBytes));
      if (last) {
        AddPut(txn, keys_.Head(), ToText(next));
        AddDelete(txn, keys_.Log(revision, parts), keys_.LogEnd());
      }
      if (absl::Status status = Settle(txn, last ? ToText(next) : ""); !status.ok()) return status;
    }
    head_ = next;
    head_text_ = ToText(next);
    return absl::OkStatus();
  }

  // --- Folding.

  void NotePack(uint64_t first, size_t bytes) {
    size_t& now = packs_[first];
    pack_bytes_ += bytes - now;
    now = bytes;
  }
  void ForgetPack(uint64_t first) {
    const auto pack = packs_.find(first);
    if (pack == packs_.end()) return;
    pack_bytes_ -= pack->second;
    packs_.erase(pack);
  }

  absl::Status FoldAll() {
    while (!tail_.empty()) {
      if (absl::Status status = FoldStep(); !status.ok()) return status;
    }
    Forget();
    return absl::OkStatus();
  }

  // Brings some of the oldest changes into the packs, and takes them off the log. Of several
  // changes of one record only the last is written.
  absl::Status FoldStep() {
    std::map<uint64_t, std::optional<std::string>> rows;
    size_t count = 0;
    for (size_t bytes = 0; count < tail_.size() && bytes < options_.fold_step_bytes; ++count) {
      StoreBatch batch;
      bytes += tail_[count].bytes.size();
      if (!DecodeChange(tail_[count].bytes, batch)) {
        return Corrupt(keys_.Log(tail_[count].revision));
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
    TxnRequest txn = Guarded();
    AddPut(txn, keys_.Folded(), ToText(EtcdFolded{last.revision, last.digest}));
    AddDelete(txn, keys_.Log(0), keys_.Log(last.revision + 1));
    if (absl::Status status = Settle(txn, ""); !status.ok()) return status;
    for (; count > 0; --count) {
      tail_bytes_ -= tail_.front().bytes.size();
      tail_.pop_front();
    }
    return absl::OkStatus();
  }

  // One transaction: as many packs from `at` on as it takes. Answers the first edit that is left.
  absl::StatusOr<const Edit*> FoldPacks(const Edit* at, const Edit* end) {
    const absl::Time deadline = absl::Now() + options_.commit_deadline;
    absl::Status last;
    for (; absl::Now() < deadline; absl::SleepFor(kPause)) {
      TxnRequest txn = Guarded();
      std::vector<std::pair<uint64_t, size_t>> puts;
      std::vector<uint64_t> gone;
      const Edit* next = at;
      size_t bytes = 0;
      bool whole = true;  // No pack is named twice in a transaction.
      // The first in any case: a record may be as large as a transaction.
      while (next == at || (next != end && whole && puts.size() + gone.size() < kPacksOfATxn &&
                            bytes + SizeOf(*next) < kPartBytes / 2)) {
        auto added = FoldPack(next, end, txn, puts, gone, bytes, whole);
        // The index was behind what is in etcd, and is not any more.
        if (absl::IsCancelled(added.status())) break;
        if (!added.ok()) return added.status();
        next = *added;
      }
      if (next == at) continue;
      const auto answer = client_->Txn(txn);
      if (answer.ok() && answer->succeeded()) {
        etcd_revision_ = answer->header().revision();
        for (const uint64_t first : gone) ForgetPack(first);
        for (const auto& [first, size] : puts) NotePack(first, size);
        return next;
      }
      // Refused: a pack that was read is older than what is there (a stale read, or this very
      // transaction has been carried out); or the store is another's.
      last = answer.status();
      if (answer.ok()) {
        const auto head = ValueOf(keys_.Head());
        if (!head.ok()) return head.status();
        if (IsAnothers(*head)) return Fenced(*head);
      }
    }
    return Stuck(last);
  }

  static size_t SizeOf(const Edit& edit) {
    return kEntryHeaderBytes + (edit.value == nullptr ? 0 : edit.value->size());
  }

  // The pack that has the record of `at`, with the edits of its records; `whole`: with all of them.
  // CANCELLED: packs_ was not as etcd is, since a transaction was carried out whose answer was
  // lost.
  absl::StatusOr<const Edit*> FoldPack(const Edit* at, const Edit* end, TxnRequest& txn,
                                       std::vector<std::pair<uint64_t, size_t>>& puts,
                                       std::vector<uint64_t>& gone, size_t& bytes, bool& whole) {
    // Before the first pack there is room for a new one.
    auto after = packs_.upper_bound(at->key);
    const bool is_new = after == packs_.begin();
    const uint64_t first = is_new ? at->key : std::prev(after)->first;
    const Edit* last =
        after == packs_.end()
            ? end
            : std::lower_bound(at, end, after->first,
                               [](const Edit& edit, uint64_t key) { return edit.key < key; });
    // Not too much at once: the rest of a new end comes with the next transaction.
    size_t size = 0;
    for (const Edit* edit = at; edit != last; ++edit) {
      size += SizeOf(*edit);
      if (size > kPartBytes / 2 && edit != at) {
        last = edit;
        whole = false;
        break;
      }
    }
    // All that lies between the pack before and the one behind.
    RangeRequest request;
    request.set_key(keys_.Pack(is_new ? 0 : first));
    request.set_range_end(after == packs_.end() ? keys_.PackEnd() : keys_.Pack(after->first));
    const auto read = Read(request);
    if (!read.ok()) return read.status();
    const std::string key = keys_.Pack(first);
    const bool there = !read->kvs().empty();
    if (there == is_new || read->kvs_size() > 1 || (there && read->kvs(0).key() != key)) {
      if (!is_new) ForgetPack(first);
      for (const etcdserverpb::KeyValue& row : read->kvs()) {
        const auto found = keys_.FirstOfPack(row.key());
        if (!found.has_value()) return Corrupt(row.key());
        NotePack(*found, row.value().size());
      }
      return absl::CancelledError();
    }
    const std::string old = there ? read->kvs(0).value() : "";
    // What was read has to be all there is: a read may be stale.
    if (there) AddCompare(txn, key, "", read->kvs(0).mod_revision());
    AddCompare(txn, there ? key + '\0' : request.key(), request.range_end(), 0);
    PackSums sums;
    std::vector<Pack> out;
    if (!EditPack(first, old, at, last, after == packs_.end(), sums, out, kEtcdPackBytes)) {
      return Corrupt(key);
    }
    if (out.empty() && there) {
      AddDelete(txn, key);
      gone.push_back(first);
    }
    for (Pack& pack : out) {
      bytes += pack.body.size();
      puts.emplace_back(pack.first, pack.body.size());
      AddPut(txn, keys_.Pack(pack.first), std::move(pack.body));
    }
    return last;
  }

  // Has etcd forget former revisions. That it does not is no harm now: the next time it will.
  void Forget() {
    if (etcd_revision_ != 0) client_->Compact(etcd_revision_).IgnoreError();
  }

  const EtcdStoreOptions options_;
  const EtcdKeys keys_;
  const std::unique_ptr<EtcdClient> client_;
  StoreGuard guard_;
  absl::Status broken_;
  EtcdHead head_;
  std::string head_text_;    // As etcd has it; empty: it has none.
  std::string folded_text_;  // The same, when it was read.
  int64_t etcd_revision_ = 0;
  int folds_ = 0;

  std::deque<Change> tail_;  // What is not folded yet.
  uint64_t tail_bytes_ = 0;
  std::map<uint64_t, size_t> packs_;  // Bytes by first record.
  uint64_t pack_bytes_ = 0;
};

class EtcdStore : public Store {
 public:
  explicit EtcdStore(std::unique_ptr<Records> records) : records_(std::move(records)) {}
  ~EtcdStore() override { loop_.Stop(); }

  void Open(Done lost, DoneWith<StoreImage> done) override {
    loop_.Post([this, lost = std::move(lost), done = std::move(done)]() mutable {
      lost_ = std::move(lost);
      absl::StatusOr<StoreImage> image = records_->Open();
      open_ = image.ok();
      std::move(done)(std::move(image));
    });
  }

  void Commit(StoreBatch batch, Done done) override {
    if (outstanding_.exchange(true)) return std::move(done)(CommitOutstanding());
    loop_.Post([this, batch = std::move(batch), done = std::move(done)]() mutable {
      absl::Status status = open_ ? records_->Commit(batch) : NotOpen();
      outstanding_ = false;
      std::move(done)(std::move(status));
      FoldSoon();
    });
  }

  void Backup(std::string, DoneWith<StoreBackup> done) override {
    std::move(done)(Refuse(absl::StatusCode::kUnimplemented, "NO_BACKUP",
                           "the store is etcd: there is no database to copy",
                           "take a snapshot of etcd"));
  }

 private:
  static absl::Status NotOpen() {
    return Refuse(absl::StatusCode::kFailedPrecondition, "STORE_NOT_OPEN",
                  "the store has not been opened", "open it first");
  }

  // One step, behind a commit that has been asked for meanwhile.
  void FoldSoon() {
    if (!open_ || !records_->wants_to_fold() || std::exchange(folding_, true)) return;
    loop_.Post([this] {
      folding_ = false;
      if (!records_->wants_to_fold()) return;
      if (absl::Status status = records_->Fold(); !status.ok()) {
        LogError("store", status.message());
        if (lost_ != nullptr) std::exchange(lost_, nullptr)(std::move(status));
        return;
      }
      FoldSoon();
    });
  }

  const std::unique_ptr<Records> records_;
  std::atomic<bool> outstanding_ = false;
  // On the loop.
  bool open_ = false;
  bool folding_ = false;
  Done lost_;
  Loop loop_{"fm-etcd"};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> MakeEtcdStore(const EtcdStoreOptions& options) {
  auto client = EtcdClient::Make(options.etcd);
  if (!client.ok()) return client.status();
  return std::make_unique<EtcdStore>(std::make_unique<Records>(options, *std::move(client)));
}

}  // namespace cxlpool::fm
