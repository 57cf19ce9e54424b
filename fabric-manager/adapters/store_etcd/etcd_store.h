// The Store on etcd: three members keep the records, and a manager on any machine can take them
// over.
//
// A commit is one transaction, which compares the exact head that this store wrote last: so it
// fails where anybody else has claimed or committed, and is carried out at most once however often
// it is sent. Nothing is decided on a read, and no etcd lease is used: both have known defects in
// the releases that are packaged. A transaction whose outcome is not known is sent again until it
// is.
//
// A commit puts its change as one piece of a log, however scattered the records lie. Beside commits
// the oldest changes are folded into packs, and etcd is told to forget what it has of former
// revisions. Layout: etcd_layout.h.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_STORE_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/ports/store.h"
#include "proto/metrics/metrics.h"

namespace cxlpool::fm {

struct EtcdOptions {
  std::vector<std::string> endpoints;  // HOST:PORT of each member.
  std::string ca, cert, key;           // PEM files; all empty: no TLS.
  // Of one try. A member that is stopped does not answer at all.
  absl::Duration call_timeout = absl::Seconds(1);
};

// What the store knows of itself and of etcd, for whoever shows it. Any thread.
struct EtcdMeters {
  enum class Member : uint8_t { kNotAsked, kAway, kAnswers };

  explicit EtcdMeters(size_t endpoints) : members(endpoints) {}

  // What had to be sent again, since etcd had not said whether it was done.
  metrics::Counter resent;
  // Of EtcdStoreOptions::max_bytes; 0 until something of it is known.
  std::atomic<uint64_t> used_bytes = 0;
  // Of each endpoint, in their order, when it was asked last.
  std::vector<std::atomic<Member>> members;
};

struct EtcdStoreOptions {
  EtcdOptions etcd;
  std::string prefix = "/cxlpool/";  // Of every key. Another pool has another.

  // Of packs and log together. More is STORE_FULL: well below etcd's own --quota-backend-bytes,
  // where a transaction that is answered by an error may have been carried out.
  uint64_t max_bytes = uint64_t{3} << 30;

  // The log is folded when it is larger, so much of it in a step, beside commits; where it is a
  // quarter larger still, a commit waits. Whoever follows and is further behind has to read all
  // again.
  uint64_t fold_bytes = uint64_t{32} << 20;
  uint64_t fold_step_bytes = uint64_t{512} << 10;

  // For so long at least etcd keeps what was replaced: who begins to follow reads all there is as
  // of one moment, while the owner goes on. No longer than a backup has it kept.
  absl::Duration history = absl::Seconds(15);

  // A commit whose outcome is not known after this answers UNKNOWN/STORE_STUCK.
  absl::Duration commit_deadline = absl::Seconds(30);

  // Where other managers want the store, too: Open takes it over once its owner has given no sign
  // of life for so long. 0: Open takes it over at once.
  absl::Duration takeover = absl::ZeroDuration();
  std::string address;  // Of this manager, for StoreOwner; without spaces.
  // Told whenever etcd took a sign of life, on the store's thread: until when, on Clock::Elapsed,
  // no other manager takes the store over (OwnTerm from its sending on). Who goes on after that
  // without another such call has to end.
  std::function<void(absl::Duration until)> owned_until = {};

  // Outlives the store. Null: nobody counts, and members are not asked one by one.
  EtcdMeters* meters = nullptr;

  // Makes a database of what it is given, as Store::Backup does, at that path; answers its size.
  // Null: no backups, NO_BACKUP. On a thread of the backup's.
  std::function<absl::StatusOr<uint64_t>(const std::string& path, StoreImage image)> write_backup =
      {};

  // For tests: a store that takes less in one commit.
  StoreLimits limits = {};
  // For tests: called between what is read and the claim.
  std::function<void()> before_claim = {};
};

// For how long after a sign of life its sender may take the store for its own, where others take it
// over after `takeover`. Longer than etcd takes to find a new leader (0.9 s with the timers of
// docs/replicated.md); what is left is for clocks that do not run alike.
inline absl::Duration OwnTerm(absl::Duration takeover) { return takeover * 5 / 6; }

// What is in etcd now, whoever has it, without a claim. Blocking. Epoch and revision 0: nothing.
// UNAVAILABLE/STORE_IO: etcd does not answer. DATA_LOSS/STORE_CORRUPT.
// FAILED_PRECONDITION/STORE_TOO_NEW: a later release has the store.
absl::StatusOr<StoreImage> ReadEtcdStore(const EtcdStoreOptions& options);

// Starts two threads: one asks etcd, from Open on, and runs completions; the other one folds. The
// destructor serves a commit that was asked for, and lets go of the store; an Open that has not
// come to its end by then is CANCELLED, whether etcd answers or not.
//
// Open claims the store: the store that had it is fenced at its next commit. Besides what store.h
// lists, Open answers UNAVAILABLE/STORE_IO: etcd does not answer, or others go on committing.
absl::StatusOr<std::unique_ptr<Store>> MakeEtcdStore(const EtcdStoreOptions& options);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_STORE_H_
