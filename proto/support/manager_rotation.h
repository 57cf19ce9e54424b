// Which of a pool's managers is called next. One of them leads; the others answer NOT_LEADER, and
// where the leader is.
//
// Each is tried once, one right after the other, and then whoever calls waits before the next round
// of all of them. What a refusal says of the leader is a hint: it puts an address of the list
// first, and never adds one, so that nobody can lead a caller elsewhere. Not thread-safe.
#ifndef CXLPOOL_PROTO_SUPPORT_MANAGER_ROTATION_H_
#define CXLPOOL_PROTO_SUPPORT_MANAGER_ROTATION_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cxlpool {

class ManagerRotation {
 public:
  // At least one, and each once, as ParseAddressList has it.
  explicit ManagerRotation(std::vector<std::string> addresses);

  const std::vector<std::string>& addresses() const { return addresses_; }
  size_t index() const { return current_; }
  const std::string& address() const { return addresses_[current_]; }

  // Whether another manager may answer where one ended a call with `why`: it does not lead, or no
  // longer; it could not be reached, or does not answer; or something is wrong with a certificate.
  static bool MayAnswerElsewhere(const absl::Status& why);

  // The current manager answered as one that leads: the next round begins with it.
  void Reached();

  // The current manager ended a call with `why`. Turns to the next, first to the one that `why`
  // says leads. True: it was not tried in this round, and may be called at once. False: all were,
  // another round begins, and `why` is what there is to say of this one: of its first failure other
  // than that a manager does not lead, if there was one.
  bool Turn(absl::Status& why);

 private:
  // Of the address that `why` names as the leader's, where it is in the list.
  std::optional<size_t> HintOf(const absl::Status& why) const;

  const std::vector<std::string> addresses_;
  size_t current_ = 0;
  std::vector<bool> tried_;      // In this round.
  absl::Status said_;            // What Turn will say of it; OK: nothing went wrong in it yet.
  std::optional<size_t> first_;  // The latest hint to one that was tried: of the next round.
};

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_MANAGER_ROTATION_H_
