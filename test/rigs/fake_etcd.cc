#include "test/rigs/fake_etcd.h"

#include <utility>

#include "absl/time/clock.h"

namespace cxlpool::fm {
namespace {

using etcdserverpb::Compare;

constexpr int kMaxOperations = 128;  // As etcd without --max-txn-ops.
constexpr size_t kKept = 400;        // Revisions that can be read still.
constexpr size_t kCarriedOut = 64;   // Transactions that can be repeated.
constexpr int kLateBy = 60;          // Calls, at most.

// The keys that a request is of: one, or those from it up to `end`.
template <typename Map>
auto RangeOf(Map& keys, const std::string& key, const std::string& end) {
  if (end.empty()) return keys.equal_range(key);
  const auto from = keys.lower_bound(key);
  return std::pair(from, end <= key ? from : keys.lower_bound(end));
}

grpc::Status Away() { return {grpc::StatusCode::UNAVAILABLE, "etcdserver: request timed out"}; }

}  // namespace

FakeEtcd::FakeEtcd(unsigned seed) : random_(seed) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(this);
  builder.SetMaxReceiveMessageSize(64 << 20);
  server_ = builder.BuildAndStart();
}

FakeEtcd::~FakeEtcd() { server_->Shutdown(); }

// For calls from now on; what was put off before is still carried out.
void FakeEtcd::Set(const EtcdFaults& faults) {
  MutexLock lock(mutex_);
  faults_ = faults;
}

uint64_t FakeEtcd::faults_done() {
  MutexLock lock(mutex_);
  return done_;
}

int64_t FakeEtcd::revision() {
  MutexLock lock(mutex_);
  return revision_;
}

int64_t FakeEtcd::compacted() {
  MutexLock lock(mutex_);
  return compacted_;
}

// One time in so many, by the seed; it is counted.
bool FakeEtcd::Happens(unsigned one_in) {
  if (one_in == 0 || random_() % one_in != 0) return false;
  ++done_;
  return true;
}

// Keys in order, as of the revision that is asked for, or of the latest; a stale read is as of one
// of the seven before that. `more` where the limit cut it short.
grpc::Status FakeEtcd::Range(grpc::ServerContext*, const etcdserverpb::RangeRequest* request,
                             etcdserverpb::RangeResponse* response) {
  unsigned us = 0;
  {
    MutexLock lock(mutex_);
    if (request->revision() != 0) {
      us = faults_.as_of_us;
    } else if (!request->range_end().empty()) {
      us = faults_.range_us;
    }
  }
  absl::SleepFor(absl::Microseconds(us));
  MutexLock lock(mutex_);
  DoWhatIsLate();
  auto at = std::prev(history_.end());
  if (request->revision() != 0) {
    // Older than was compacted, or than is kept here.
    at = history_.upper_bound(request->revision());
    if (request->revision() < compacted_ || at == history_.begin()) {
      return {grpc::StatusCode::OUT_OF_RANGE, "etcdserver: mvcc: required revision was compacted"};
    }
    --at;
  } else if (Happens(faults_.stale_read)) {
    for (auto back = random_() % 8; back > 0 && at != history_.begin(); --back) --at;
  }
  response->mutable_header()->set_revision(at->first);
  const auto [from, end] = RangeOf(at->second, request->key(), request->range_end());
  for (auto row = from; row != end; ++row) {
    if (request->limit() > 0 && response->kvs_size() == request->limit()) {
      response->set_more(true);
      break;
    }
    etcdserverpb::KeyValue& out = *response->add_kvs();
    out.set_key(row->first);
    out.set_mod_revision(row->second.modified);
    if (!request->keys_only()) out.set_value(*row->second.bytes);
  }
  absl::SleepFor(absl::Microseconds(faults_.key_us) * response->kvs_size());  // And others wait.
  return grpc::Status::OK;
}

// Whether the comparison holds for each key in its range. Of a range without keys it is asked for a
// key that is not there: its revisions are 0, and it has no value.
bool FakeEtcd::Holds(const Compare& compare) const {
  const Keys& now = std::prev(history_.end())->second;
  const auto [from, end] = RangeOf(now, compare.key(), compare.range_end());
  const auto holds = [&](const Value* value) {
    switch (compare.target()) {
      case Compare::CREATE:
        return (value == nullptr ? 0 : value->created) == compare.create_revision();
      case Compare::MOD:
        return (value == nullptr ? 0 : value->modified) == compare.mod_revision();
      case Compare::VALUE:
        return value != nullptr && *value->bytes == compare.value();
      default:
        return false;
    }
  };
  if (from == end) return holds(nullptr);
  for (auto row = from; row != end; ++row) {
    if (!holds(&row->second)) return false;
  }
  return true;
}

// Carries the transaction out as a whole, at one revision of its own, if all its comparisons hold;
// else nothing changes. The store sends nothing that is to be done where they do not.
bool FakeEtcd::Apply(const etcdserverpb::TxnRequest& txn) {
  for (const Compare& compare : txn.compare()) {
    if (!Holds(compare)) return false;
  }
  ++revision_;
  Keys keys = std::prev(history_.end())->second;
  for (const etcdserverpb::RequestOp& op : txn.success()) {
    if (op.has_request_put()) {
      Value& value = keys[op.request_put().key()];
      if (value.created == 0) value.created = revision_;
      value.modified = revision_;
      value.bytes = std::make_shared<const std::string>(op.request_put().value());
    } else {
      const auto& range = op.request_delete_range();
      const auto [from, end] = RangeOf(keys, range.key(), range.range_end());
      keys.erase(from, end);
    }
  }
  history_.emplace(revision_, std::move(keys));
  if (history_.size() > kKept) history_.erase(history_.begin());
  return true;
}

// What was put off, once its time has come: with the comparisons that it was sent with, which may
// not hold any more.
void FakeEtcd::DoWhatIsLate() {
  for (Late& late : late_) --late.calls;
  for (auto late = late_.begin(); late != late_.end();) {
    if (late->calls > 0) {
      ++late;
      continue;
    }
    Apply(late->txn);
    late = late_.erase(late);
  }
}

// Of the faults "refused" and "late" come before anything is done, the others after: the caller
// cannot tell one from the other, as all but "no_space" look alike. A transaction that is doubled
// is carried out now and once more later. One with too many operations is refused whatever else
// happens.
grpc::Status FakeEtcd::Txn(grpc::ServerContext*, const etcdserverpb::TxnRequest* request,
                           etcdserverpb::TxnResponse* response) {
  MutexLock lock(mutex_);
  if (std::max(request->compare_size(), request->success_size()) > kMaxOperations) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "etcdserver: too many operations in txn request"};
  }
  DoWhatIsLate();
  if (Happens(faults_.refused)) return Away();
  const auto put_off = [&] {
    late_.push_back({1 + static_cast<int>(random_() % kLateBy), *request});
  };
  if (Happens(faults_.late)) {
    put_off();
    return Away();
  }
  if (Happens(faults_.doubled)) put_off();
  const bool succeeded = Apply(*request);
  if (succeeded) carried_out_.push_back(*request);
  if (carried_out_.size() > kCarriedOut) carried_out_.pop_front();
  if (Happens(faults_.answer_lost)) return Away();
  if (Happens(faults_.no_space)) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"};
  }
  response->mutable_header()->set_revision(revision_);
  response->set_succeeded(succeeded);
  return grpc::Status::OK;
}

bool FakeEtcd::RepeatBeforeLast(const std::string& key) {
  MutexLock lock(mutex_);
  int seen = 0;
  for (auto txn = carried_out_.rbegin(); txn != carried_out_.rend(); ++txn) {
    const auto& does = txn->success();
    const bool puts = std::any_of(does.begin(), does.end(), [&](const auto& one) {
      return one.has_request_put() && one.request_put().key() == key;
    });
    if (!puts || ++seen < 2) continue;
    Apply(*txn);
    return true;
  }
  return false;
}

// Frees nothing: it only keeps older revisions from being read.
grpc::Status FakeEtcd::Compact(grpc::ServerContext*, const etcdserverpb::CompactionRequest* request,
                               etcdserverpb::CompactionResponse*) {
  MutexLock lock(mutex_);
  DoWhatIsLate();
  compacted_ = std::max(compacted_, request->revision());
  return grpc::Status::OK;
}

}  // namespace cxlpool::fm
