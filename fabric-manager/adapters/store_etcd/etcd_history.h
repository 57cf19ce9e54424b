// Which of its former revisions etcd is told to forget: it keeps them all, and in the end has no
// space left.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_HISTORY_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_HISTORY_H_

#include <cstdint>
#include <deque>

#include "absl/time/time.h"
#include "proto/support/loop.h"

namespace cxlpool::fm {

// One thread.
class EtcdHistory {
 public:
  // `kept`: for so long what was replaced is not forgotten (EtcdStoreOptions::history).
  explicit EtcdHistory(absl::Duration kept) : kept_(kept) {}

  // etcd has answered, as of that revision.
  void Note(int64_t revision);

  // Until then, on Clock::Elapsed, nothing is forgotten that is there now or comes after it:
  // somebody else reads it.
  void Keep(absl::Duration until);

  // A pool in which little changes folds nothing for months, but each sign of life is a revision,
  // too: those of five minutes are enough.
  bool is_long() const;

  // The revision before which etcd may forget all, which is told once; 0: nothing yet.
  int64_t Forget();

 private:
  struct Moment {
    absl::Duration at;
    int64_t revision = 0;
  };

  const absl::Duration kept_;
  const SystemClock clock_;
  int64_t newest_ = 0;
  int64_t forgot_at_ = 0;  // Which it was when Forget answered something,
  int64_t forgotten_ = 0;  // and what that was.
  std::deque<Moment> moments_;
  absl::Duration keep_until_;
  int64_t keep_from_ = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_HISTORY_H_
