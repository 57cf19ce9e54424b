// A FabricDriver that measures how long each call of another takes until its answer. It changes
// nothing: arguments, answers and their threads are the other's.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_METERED_FABRIC_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_METERED_FABRIC_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "fabric-manager/ports/fabric_driver.h"
#include "proto/metrics/metrics.h"
#include "proto/support/executor.h"

namespace cxlpool::fm {

// The calls that are timed: all that have an answer.
enum class TimedCall : uint8_t {
  kConfigure,
  kDiscover,
  kDiscoverHost,
  kShowDevices,
  kBind,
  kBeginUnbind,
  kAwaitUnbound,
  kFence,
  kScrub
};
inline constexpr std::array<const char*, 9> kTimedCallNames = {
    "configure",    "discover",      "discover_host", "show_devices", "bind",
    "begin_unbind", "await_unbound", "fence",         "scrub"};

// By TimedCall.
struct FabricTimes {
  FabricTimes() = default;
  std::array<metrics::Histogram, kTimedCallNames.size()> calls = {
      Times(), Times(), Times(), Times(), Times(), Times(), Times(), Times(), Times()};

 private:
  static metrics::Histogram Times() { return {0.001, 0.01, 0.1, 0.5, 1, 5, 10, 60, 600}; }
};

class MeteredFabric final : public FabricDriver {
 public:
  // `times` outlives this, and every answer.
  MeteredFabric(std::unique_ptr<FabricDriver> driver, const Clock* clock, FabricTimes* times)
      : driver_(std::move(driver)), clock_(clock), times_(times) {}

  FabricCapabilities capabilities() const override { return driver_->capabilities(); }
  void Start(KnownFabric known, absl::AnyInvocable<void(FabricEvent)> sink) override {
    driver_->Start(std::move(known), std::move(sink));
  }
  void Configure(FabricParts parts, Done done) override {
    driver_->Configure(std::move(parts), Timed(TimedCall::kConfigure, std::move(done)));
  }
  void Discover(DoneWith<FabricView> done) override {
    driver_->Discover(Timed(TimedCall::kDiscover, std::move(done)));
  }
  void DiscoverHost(std::string host, DoneWith<FabricView> done) override {
    driver_->DiscoverHost(std::move(host), Timed(TimedCall::kDiscoverHost, std::move(done)));
  }
  void ShowDevices(std::string host, DoneWith<SeenDevices> done) override {
    driver_->ShowDevices(std::move(host), Timed(TimedCall::kShowDevices, std::move(done)));
  }
  void Bind(BindRequest request, DoneWith<BoundLd> done) override {
    driver_->Bind(std::move(request), Timed(TimedCall::kBind, std::move(done)));
  }
  void BeginUnbind(Binding binding, Done done) override {
    driver_->BeginUnbind(std::move(binding), Timed(TimedCall::kBeginUnbind, std::move(done)));
  }
  void AwaitUnbound(Binding binding, absl::Duration timeout, Done done) override {
    driver_->AwaitUnbound(std::move(binding), timeout,
                          Timed(TimedCall::kAwaitUnbound, std::move(done)));
  }
  void Fence(std::string host, Done done) override {
    driver_->Fence(std::move(host), Timed(TimedCall::kFence, std::move(done)));
  }
  void Scrub(Slice slice, ScrubProgress progress, DoneWith<ScrubResult> done) override {
    driver_->Scrub(std::move(slice), std::move(progress),
                   Timed(TimedCall::kScrub, std::move(done)));
  }

 private:
  // `done`, once it has counted how long it took from now on.
  template <typename Answer>
  absl::AnyInvocable<void(Answer) &&> Timed(TimedCall call,
                                            absl::AnyInvocable<void(Answer) &&> done) {
    return [times = &times_->calls[static_cast<size_t>(call)], clock = clock_,
            began = clock_->Elapsed(), done = std::move(done)](Answer answer) mutable {
      times->Observe(clock->Elapsed() - began);
      std::move(done)(std::move(answer));
    };
  }

  const std::unique_ptr<FabricDriver> driver_;
  const Clock* const clock_;
  FabricTimes* const times_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_METERED_FABRIC_H_
