// What the processes of each local user own on this host: for the limits of [[applications.user]].
//
// Counted are the Offers that name one of them as owner, until they are withdrawn, and the
// allocations that the manager has been asked for and whose Offer is not here yet. An allocation
// whose outcome is not known counts for kOutcomeUnknown. Persistent Regions have no owner and are
// not counted. Bytes are those that are held, in whole granules.
//
// A call is known by its user and its request_id: two users may make the same one up. Each user has
// a share of the table, so that none fills it for others. A call that was offered takes no place:
// it is kept as long as there is room, so that a retry does not stand in its own way. A retry that
// is refused takes nothing from what was granted before: that counts on until its Offer is here.
//
// Not thread-safe; owned by LocalService.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_USER_USAGE_H_
#define CXLPOOL_HOST_AGENT_SERVICE_USER_USAGE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "host-agent/model/user_policy.h"
#include "host-agent/service/attachments.h"

namespace cxlpool::agent {

class UserUsageTable {
 public:
  static constexpr size_t kMaxUnderWay = 4096;
  static constexpr size_t kMaxUnderWayOfUser = 64;
  static constexpr absl::Duration kOutcomeUnknown = absl::Seconds(5);
  static constexpr absl::Duration kOfferComes = absl::Minutes(1);

  struct Call {
    uint32_t uid = 0;
    std::string request_id;
    friend auto operator<=>(const Call&, const Call&) = default;
  };

  // What call.uid uses, without what the call may have got already: a retry must not stand in its
  // own way. `name`: of the Region it asks for, regions/{region}; empty: the manager names it.
  UserUsage Of(const Call& call, const std::string& name, const AttachmentTable& offers,
               absl::Duration now) const;

  // The manager is asked. RESOURCE_EXHAUSTED/QUEUE_FULL: too many are under way, of this user or in
  // all. UNAVAILABLE/REQUEST_UNDER_WAY: this one is, and is not answered yet.
  absl::Status Begin(const Call& call, uint64_t bytes, absl::Duration now);

  // Has to be called after every change: once there is an Offer, only the Offer counts.
  void Saw(const AttachmentTable& offers);

  // It answered, or its outcome is not known. Not begun: no effect.
  void End(const Call& call, const absl::StatusOr<v1::AllocateRegionResponse>& response,
           absl::Duration now);

 private:
  struct Granted {
    uint64_t bytes = 0;
    bool offered = false;
    absl::Duration until;
  };
  struct UnderWay {
    uint64_t bytes = 0;
    std::string tag;  // Empty: not known.
    bool offered = false;
    absl::Duration until = absl::InfiniteDuration();  // Infinite: the manager has not answered.
    std::optional<Granted> before;                    // While a retry is under way.
  };
  size_t MakeRoom(uint32_t uid);

  std::map<Call, UnderWay> under_way_;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_USER_USAGE_H_
