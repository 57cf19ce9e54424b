// How many calls and streams may be under way: in all, of one identity, and of one tenant, whoever
// calls for it; how many calls a second a role for tenants may make; and how much of large answers
// one may leave unread.
//
// The numbers bound the manager's memory and keep one caller from taking the places of all others.
// A TENANT is counted by tenant, since a tenant can have any number of identities; a SCHEDULER,
// which can have very many tenants, as one. A place is taken once a caller is authorized, so that
// nobody without a right ever holds one. What comes without TLS has no identity to count by: only
// the number in all holds for it.
//
// Who holds a place is known besides, so that what somebody has under way can be ended whose right
// to it is taken away.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_ADMISSION_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_ADMISSION_H_

#include <grpcpp/generic/async_generic_service.h>

#include <array>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/model/pool/caller.h"
#include "proto/support/interned.h"
#include "proto/support/loop.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

class Place;

// Any thread. Outlives its places.
class Admission {
 public:
  enum class Kind { kCall, kSession, kWatch };

  struct Limits {
    int in_all;
    int of_one;  // Identity.
  };
  static constexpr Limits kCalls{8192, 512};
  // An agent has one session. A second one replaces it, and a third may be dialled meanwhile.
  static constexpr Limits kSessions{16384, 4};
  // A change is sent to each watcher: more of them make everybody's calls slower.
  static constexpr Limits kWatches{8192, 256};
  // Of one tenant. A call counts by the bytes that its request may have (Calls::Add): so these also
  // bound what a tenant has in the manager's memory, to 16 MiB of requests.
  static constexpr int kTenantCalls = 256;
  static constexpr int kTenantWatches = 64;
  static constexpr double kTenantCallsASecond = 1000;
  // Of answers that are on their way to one identity or tenant: some twenty full pages.
  static constexpr size_t kUnreadBytes = size_t{64} << 20;

  // RESOURCE_EXHAUSTED: TOO_MANY_CALLS, TOO_MANY_AGENTS, TOO_MANY_WATCHERS, TENANT_TOO_BUSY.
  // `context` is the call's, and lives until the place is given back. `cost`: as how many calls it
  // counts for a tenant.
  absl::StatusOr<Place> Enter(Kind kind, const Caller& caller,
                              grpc::GenericCallbackServerContext* context = nullptr, int cost = 1);

  // How many of the kind are under way.
  int CountOf(Kind kind) {
    MutexLock lock(mutex_);
    return in_all_[static_cast<size_t>(kind)];
  }

  // Cancels the calls and watches that `may_stay` says no of, given as whom they were let in.
  // Sessions end by HostSessions, which tells the agent why. Not from one of gRPC's own callbacks;
  // `may_stay` makes and ends no call.
  void Judge(
      absl::FunctionRef<bool(const grpc::GenericCallbackServerContext&, const Caller&)> may_stay);

 private:
  friend class Place;

  // Of one identity, or of one tenant.
  struct Share {
    std::array<int, 3> under_way = {};  // By kind.
    // What a tenant may still call now, and when that was so.
    double calls_left = kTenantCallsASecond;
    absl::Duration counted = {};
    size_t unread = 0;  // Bytes.
  };

  absl::Status CheckShare(Kind kind, Interned who, bool of_tenants, int cost)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AddUnread(const Place& place, size_t bytes);
  void Leave(const Place& place);

  const SystemClock clock_;
  Mutex mutex_;
  std::array<int, 3> in_all_ ABSL_GUARDED_BY(mutex_) = {};
  absl::flat_hash_map<grpc::GenericCallbackServerContext*, Caller> under_way_
      ABSL_GUARDED_BY(mutex_);
  // Identities that have a place; and those and "tenants/ml" that have a role for tenants and have
  // called, which stay: there are no more than the pool has.
  absl::flat_hash_map<Interned, Share> of_one_ ABSL_GUARDED_BY(mutex_);
};

// Given back at the latest when it goes.
class Place {
 public:
  Place() = default;
  Place(Place&& other) noexcept { *this = std::move(other); }
  Place& operator=(Place&& other) noexcept;
  ~Place() { GiveBack(); }

  void GiveBack();

  // An answer of so many bytes is about to be sent, and is read when the place is given back. Once.
  // RESOURCE_EXHAUSTED/TOO_MUCH_UNREAD: whoever it is for has too much under way.
  absl::Status AddUnread(size_t bytes);

 private:
  friend class Admission;

  using Shares = absl::InlinedVector<Interned, 1>;
  Place(Admission* admission, Admission::Kind kind, Shares shares, int cost,
        grpc::GenericCallbackServerContext* context)
      : admission_(admission),
        kind_(kind),
        shares_(std::move(shares)),
        cost_(cost),
        context_(context) {}

  Admission* admission_ = nullptr;  // Null: no place.
  Admission::Kind kind_ = Admission::Kind::kCall;
  Shares shares_;                                          // Empty: it is counted in all only.
  int cost_ = 1;                                           // In each of them.
  size_t unread_ = 0;                                      // Likewise.
  grpc::GenericCallbackServerContext* context_ = nullptr;  // Null: it is not to be ended.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_ADMISSION_H_
