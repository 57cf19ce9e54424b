// How the store puts transactions together, and what it says of keys that are not as they should
// be.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_TXN_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_TXN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "etcd/v3/kv.pb.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

// Of one transaction: etcd takes requests up to 1.5 MiB and 128 operations, if nobody tells it
// else.
inline constexpr size_t kEtcdPartBytes = size_t{1} << 20;
// Before something is tried again.
inline constexpr absl::Duration kEtcdPause = absl::Milliseconds(20);

// Holds only where the key has this value; empty: where it is not there.
inline void AddCompare(etcdserverpb::TxnRequest& txn, std::string key, const std::string& value) {
  etcdserverpb::Compare& compare = *txn.add_compare();
  compare.set_result(etcdserverpb::Compare::EQUAL);
  compare.set_key(std::move(key));
  if (value.empty()) {
    compare.set_target(etcdserverpb::Compare::CREATE);
    compare.set_create_revision(0);
  } else {
    compare.set_target(etcdserverpb::Compare::VALUE);
    compare.set_value(value);
  }
}

// Holds only where that key, or every key from it up to `end`, was last put at that revision; 0:
// where it, or each of them, is not there.
inline void AddCompare(etcdserverpb::TxnRequest& txn, std::string key, std::string end,
                       int64_t revision) {
  etcdserverpb::Compare& compare = *txn.add_compare();
  compare.set_result(etcdserverpb::Compare::EQUAL);
  compare.set_key(std::move(key));
  compare.set_range_end(std::move(end));
  compare.set_target(etcdserverpb::Compare::MOD);
  compare.set_mod_revision(revision);
}

inline void AddPut(etcdserverpb::TxnRequest& txn, std::string key, std::string value) {
  auto& put = *txn.add_success()->mutable_request_put();
  put.set_key(std::move(key));
  put.set_value(std::move(value));
}

// The key, or those from it up to `end`.
inline void AddDelete(etcdserverpb::TxnRequest& txn, std::string key, std::string end = "") {
  auto& range = *txn.add_success()->mutable_request_delete_range();
  range.set_key(std::move(key));
  range.set_range_end(std::move(end));
}

inline absl::Status EtcdCorrupt(const std::string& key) {
  return Refuse(absl::StatusCode::kDataLoss, "STORE_CORRUPT",
                absl::StrCat("in etcd ", key, " is not what was written there"),
                "restore a backup");
}

inline absl::Status EtcdFenced(const std::string& head) {
  return Refuse(absl::StatusCode::kAborted, "STORE_FENCED",
                absl::StrCat("another manager has the store (", head, ")"),
                "stop: another manager has taken the store over");
}

inline absl::Status EtcdStuck(absl::Duration deadline, const absl::Status& last) {
  return Refuse(absl::StatusCode::kUnknown, "STORE_STUCK",
                absl::StrCat("etcd has not said in ", absl::FormatDuration(deadline),
                             " whether a change was made: ", last.message()),
                "see that most of its members run; restart the manager, which reads what was "
                "really stored");
}

inline absl::Status EtcdClosing() {
  return absl::CancelledError("the store is closing; try again");
}

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_TXN_H_
