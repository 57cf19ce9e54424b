// A fabric that answers only when a test says so: it keeps what each call asked for and its
// answer's callback, in order.
#ifndef CXLPOOL_TEST_RIGS_HELD_FABRIC_H_
#define CXLPOOL_TEST_RIGS_HELD_FABRIC_H_

#include <string>
#include <utility>
#include <vector>

#include "fabric-manager/ports/fabric_driver.h"

namespace cxlpool::fm {

class HeldFabric : public FabricDriver {
 public:
  template <typename Asked, typename Answer>
  struct Call {
    Asked asked;
    Answer answer;
  };

  FabricCapabilities capabilities() const override { return can; }
  void Start(KnownFabric, absl::AnyInvocable<void(FabricEvent)>) override {}
  void Configure(FabricParts parts, Done done) override {
    configures.push_back({std::move(parts), std::move(done)});
  }
  void Discover(DoneWith<FabricView> done) override { DiscoverHost("", std::move(done)); }
  void DiscoverHost(std::string host, DoneWith<FabricView> done) override {
    looks.push_back({std::move(host), std::move(done)});
  }
  void Bind(BindRequest request, DoneWith<BoundLd> done) override {
    binds.push_back({std::move(request), std::move(done)});
  }
  void BeginUnbind(Binding binding, Done done) override {
    unbinds.push_back({std::move(binding), std::move(done)});
  }
  void AwaitUnbound(Binding binding, absl::Duration, Done done) override {
    waits.push_back({std::move(binding), std::move(done)});
  }
  void Fence(std::string host, Done done) override {
    fences.push_back({std::move(host), std::move(done)});
  }
  void Scrub(Slice slice, ScrubProgress progress, DoneWith<ScrubResult> done) override {
    scrub_progress = std::move(progress);
    scrubs.push_back({std::move(slice), std::move(done)});
  }

  // Gives the oldest of these calls its answer.
  template <typename Calls, typename Answer>
  static void AnswerFirst(Calls& calls, Answer answer) {
    auto call = std::move(calls.front());
    calls.erase(calls.begin());
    std::move(call.answer)(std::move(answer));
  }

  FabricCapabilities can{.driver = "held", .chooses_serial = true, .keeps_keys = true};
  std::vector<Call<FabricParts, Done>> configures;
  std::vector<Call<std::string, DoneWith<FabricView>>> looks;  // Empty: at everything.
  std::vector<Call<BindRequest, DoneWith<BoundLd>>> binds;
  std::vector<Call<Binding, Done>> unbinds;
  std::vector<Call<Binding, Done>> waits;
  std::vector<Call<std::string, Done>> fences;
  std::vector<Call<Slice, DoneWith<ScrubResult>>> scrubs;
  ScrubProgress scrub_progress;  // Of the last of them.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_HELD_FABRIC_H_
