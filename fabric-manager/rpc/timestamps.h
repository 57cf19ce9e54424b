// Times and durations between the model and protobuf, to the microsecond. Pure.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_TIMESTAMPS_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_TIMESTAMPS_H_

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/timestamp.pb.h>

#include <optional>

#include "absl/time/time.h"

namespace cxlpool::fm {

// `time` is finite.
inline void FillTimestamp(absl::Time time, google::protobuf::Timestamp* out) {
  const int64_t seconds = absl::ToUnixSeconds(time);  // Rounds down, so that nanos are positive.
  const int64_t micros = absl::ToUnixMicros(time) - seconds * 1'000'000;
  out->set_seconds(seconds);
  out->set_nanos(static_cast<int32_t>(micros * 1000));
}

// Likewise, where `time` is known and not endless: otherwise the message stays without it. As in
// FillKnown(region.state_since, out, &v1::Region::mutable_state_time).
template <typename Message>
void FillKnown(absl::Time time, Message* out, google::protobuf::Timestamp* (Message::*field)()) {
  if (time == absl::InfinitePast() || time == absl::InfiniteFuture()) return;
  FillTimestamp(time, (out->*field)());
}

// Nothing: beyond what protobuf calls a duration.
inline std::optional<absl::Duration> ReadDuration(const google::protobuf::Duration& duration) {
  constexpr int64_t kMaxSeconds = 315'576'000'000;  // duration.proto: about 10,000 years.
  const int64_t seconds = duration.seconds();
  const int32_t nanos = duration.nanos();
  const bool signs_differ = (seconds > 0 && nanos < 0) || (seconds < 0 && nanos > 0);
  if (seconds > kMaxSeconds || seconds < -kMaxSeconds || nanos > 999'999'999 ||
      nanos < -999'999'999 || signs_differ) {
    return std::nullopt;
  }
  return absl::Seconds(seconds) + absl::Nanoseconds(nanos);
}

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_TIMESTAMPS_H_
