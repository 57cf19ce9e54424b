// How many calls and streams may be under way: in all, and of one identity.
//
// The numbers bound the manager's memory and keep one caller from taking the places of all others.
// A place is taken once a caller is authorized, so that nobody without a right ever holds one. What
// comes without TLS has no identity to count by: only the number in all holds for it.
//
// Who holds a place is known besides, so that what somebody has under way can be ended whose right
// to it is taken away.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_ADMISSION_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_ADMISSION_H_

#include <grpcpp/generic/async_generic_service.h>

#include <array>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "fabric-manager/model/pool/caller.h"
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

  // RESOURCE_EXHAUSTED: TOO_MANY_CALLS, TOO_MANY_AGENTS, TOO_MANY_WATCHERS.
  // `context` is the call's, and lives until the place is given back.
  absl::StatusOr<Place> Enter(Kind kind, const Caller& caller,
                              grpc::GenericCallbackServerContext* context = nullptr);

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

  void Leave(Kind kind, const std::string& identity, grpc::GenericCallbackServerContext* context);

  Mutex mutex_;
  std::array<int, 3> in_all_ ABSL_GUARDED_BY(mutex_) = {};
  absl::flat_hash_map<grpc::GenericCallbackServerContext*, Caller> under_way_
      ABSL_GUARDED_BY(mutex_);
  // By identity: those that have a place.
  absl::flat_hash_map<std::string, std::array<int, 3>> of_one_ ABSL_GUARDED_BY(mutex_);
};

// Given back at the latest when it goes.
class Place {
 public:
  Place() = default;
  Place(Place&& other) noexcept { *this = std::move(other); }
  Place& operator=(Place&& other) noexcept;
  ~Place() { GiveBack(); }

  void GiveBack();

 private:
  friend class Admission;

  Place(Admission* admission, Admission::Kind kind, std::string identity,
        grpc::GenericCallbackServerContext* context)
      : admission_(admission), kind_(kind), identity_(std::move(identity)), context_(context) {}

  Admission* admission_ = nullptr;  // Null: no place.
  Admission::Kind kind_ = Admission::Kind::kCall;
  std::string identity_;                                   // Empty: it is counted in all only.
  grpc::GenericCallbackServerContext* context_ = nullptr;  // Null: it is not to be ended.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_ADMISSION_H_
