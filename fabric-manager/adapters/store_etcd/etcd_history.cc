#include "fabric-manager/adapters/store_etcd/etcd_history.h"

#include <algorithm>

#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

constexpr int64_t kLong = 1000;  // Revisions.
constexpr int kMoments = 8;      // Remembered, at least, of the time that is kept.

}  // namespace

// Some revisions are remembered with their time, a part of what is kept from one to the next: the
// newest one that is as old as that, and all that are younger.
void EtcdHistory::Note(int64_t revision) {
  newest_ = std::max(newest_, revision);
  const absl::Duration now = clock_.Elapsed();
  while (moments_.size() > 1 && moments_[1].at + kept_ <= now) moments_.pop_front();
  if (moments_.empty() || now - moments_.back().at >= kept_ / kMoments) {
    moments_.push_back({now, newest_});
  }
}

void EtcdHistory::Keep(absl::Duration until) {
  keep_until_ = until;
  keep_from_ = newest_;
}

bool EtcdHistory::is_long() const {
  return newest_ - forgot_at_ >= kLong && !CXLPOOL_MUTANT("beats-are-kept");
}

int64_t EtcdHistory::Forget() {
  const absl::Duration now = clock_.Elapsed();
  int64_t before = 0;
  for (const Moment& moment : moments_) {
    const bool is_old = moment.at + kept_ <= now;
    if (is_old || CXLPOOL_MUTANT("forgets-what-is-read")) before = moment.revision;
  }
  if (now < keep_until_) before = std::min(before, keep_from_);
  if (before <= forgotten_) return 0;
  forgotten_ = before;
  forgot_at_ = newest_;
  return before;
}

}  // namespace cxlpool::fm
