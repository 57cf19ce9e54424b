// An etcd of one member, in this process, that does at will what a real one does rarely: it loses
// answers, carries out a transaction late or twice, answers an error for what it did, and reads
// what is not there any more.
#ifndef CXLPOOL_TEST_RIGS_FAKE_ETCD_H_
#define CXLPOOL_TEST_RIGS_FAKE_ETCD_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "etcd/v3/kv.grpc.pb.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

// One in so many calls; 0: never.
struct EtcdFaults {
  unsigned answer_lost = 0;  // Of a transaction that was carried out: UNAVAILABLE.
  unsigned refused = 0;      // Before anything was done: UNAVAILABLE.
  unsigned no_space = 0;     // Carried out, and answered as if there were no space.
  unsigned late = 0;         // Carried out some calls later; UNAVAILABLE at once.
  unsigned doubled = 0;      // Carried out, and again some calls later.
  unsigned stale_read = 0;   // As of some changes ago.
  // No rate: so many microseconds a read takes for each key that it answers.
  unsigned key_us = 0;
  // And so many before a read as of a given revision looks at anything: others do not wait.
  unsigned as_of_us = 0;
  // And before one that is of several keys as they are now, as folding reads.
  unsigned range_us = 0;
};

// Any thread.
class FakeEtcd : public etcdserverpb::KV::Service {
 public:
  explicit FakeEtcd(unsigned seed);
  ~FakeEtcd() override;

  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  void Set(const EtcdFaults& faults);
  // How often something of it happened.
  uint64_t faults_done();
  // Carries out once more, with the comparisons that it was sent with, the transaction before the
  // last of those that have put `key`. False: there were no two.
  bool RepeatBeforeLast(const std::string& key);
  // The newest revision, and the oldest that it was not told to forget.
  int64_t revision();
  int64_t compacted();

  grpc::Status Range(grpc::ServerContext*, const etcdserverpb::RangeRequest* request,
                     etcdserverpb::RangeResponse* response) override;
  grpc::Status Txn(grpc::ServerContext*, const etcdserverpb::TxnRequest* request,
                   etcdserverpb::TxnResponse* response) override;
  grpc::Status Compact(grpc::ServerContext*, const etcdserverpb::CompactionRequest* request,
                       etcdserverpb::CompactionResponse* response) override;

 private:
  struct Value {
    std::shared_ptr<const std::string> bytes;
    int64_t created = 0, modified = 0;
  };
  using Keys = std::map<std::string, Value>;

  bool Happens(unsigned one_in) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DoWhatIsLate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Holds(const etcdserverpb::Compare& compare) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Apply(const etcdserverpb::TxnRequest& txn) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  std::minstd_rand random_ ABSL_GUARDED_BY(mutex_);
  EtcdFaults faults_ ABSL_GUARDED_BY(mutex_);
  uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t revision_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t compacted_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, Keys> history_ ABSL_GUARDED_BY(mutex_) = {{1, {}}};  // The newest of them.
  struct Late {
    int calls;  // Until it is carried out.
    etcdserverpb::TxnRequest txn;
  };
  std::deque<Late> late_ ABSL_GUARDED_BY(mutex_);
  std::deque<etcdserverpb::TxnRequest> carried_out_ ABSL_GUARDED_BY(mutex_);  // The latest.
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_FAKE_ETCD_H_
