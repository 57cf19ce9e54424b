// A core with a host in memory and a manager that the test plays, all on a ManualExecutor.
#ifndef CXLPOOL_TEST_RIGS_CORE_RIG_H_
#define CXLPOOL_TEST_RIGS_CORE_RIG_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "host-agent/service/agent_core.h"
#include "test/rigs/fake_host_memory.h"
#include "test/rigs/manual_executor.h"

namespace cxlpool::agent {

inline constexpr v1::Offer::Want kOnline = v1::Offer::WANT_ONLINE;
inline constexpr v1::Offer::Want kOffline = v1::Offer::WANT_OFFLINE;
inline constexpr v1::Offer::Want kEjected = v1::Offer::WANT_EJECTED;

class FakeLink : public ManagerLink {
 public:
  Handlers handlers;
  bool started = false;
  std::vector<v1::Report> reports;
  std::vector<absl::StatusOr<v1::DeviceLook>> answers;
  std::vector<std::pair<v1::AllocateRegionRequest, DoneWith<v1::AllocateRegionResponse>>> allocates;
  std::vector<std::pair<v1::ReleaseRegionRequest, DoneWith<v1::ReleaseRegionResponse>>> releases;
  std::vector<std::pair<v1::GetRegionRequest, DoneWith<v1::Region>>> gets;

  void Start(Handlers h) override {
    handlers = std::move(h);
    started = true;
  }
  void Stop() override {}
  void Send(v1::Report report) override { reports.push_back(std::move(report)); }
  void Answer(uint64_t, absl::StatusOr<v1::DeviceLook> look) override {
    answers.push_back(std::move(look));
  }
  void Allocate(v1::AllocateRegionRequest request,
                DoneWith<v1::AllocateRegionResponse> done) override {
    allocates.emplace_back(std::move(request), std::move(done));
  }
  void Release(v1::ReleaseRegionRequest request,
               DoneWith<v1::ReleaseRegionResponse> done) override {
    releases.emplace_back(std::move(request), std::move(done));
  }
  void Get(v1::GetRegionRequest request, DoneWith<v1::Region> done) override {
    gets.emplace_back(std::move(request), std::move(done));
  }

  // The newest report of the segment with this serial.
  std::optional<v1::SegmentReport> Last(uint64_t serial) const {
    for (auto report = reports.rbegin(); report != reports.rend(); ++report) {
      for (const v1::SegmentReport& segment : report->segments()) {
        if (segment.serial() == serial) return segment;
      }
    }
    return std::nullopt;
  }
};

constexpr uint64_t kTestLength = uint64_t{512} << 20;

inline v1::Offer MakeOffer(uint64_t generation, v1::Offer::Want want,
                           std::vector<std::pair<uint32_t, uint64_t>> slots_and_serials,
                           v1::AttachmentMode mode = v1::DEVDAX) {
  v1::Offer offer;
  offer.set_region_tag(absl::StrCat("tag-", generation));
  offer.set_region_name(absl::StrCat("regions/r", generation));
  offer.set_attachment_generation(generation);
  offer.set_want(want);
  offer.set_mode(mode);
  offer.set_access(v1::READ_WRITE);
  offer.set_tenant("tenants/default");
  offer.set_maker_uid(1000);  // The user of most tests.
  for (const auto& [slot, serial] : slots_and_serials) {
    v1::OfferedSegment& segment = *offer.add_segments();
    segment.set_extent_index(static_cast<uint32_t>(offer.segments_size() - 1));
    segment.set_length_bytes(kTestLength);
    segment.set_host_bridge(absl::StrCat("ACPI0016:0", (slot - 1) / 2));
    v1::Target& target = *segment.add_targets();
    target.set_slot(slot);
    target.set_serial(serial);
  }
  return offer;
}

struct CoreRig {
  ManualExecutor executor;
  FakeHostMemory memory{&executor};
  FakeLink link;
  std::vector<std::string> probes;
  std::unique_ptr<AgentCore> core;

  CoreRig() { NewCore(); }

  // As after a restart of the agent.
  void NewCore() {
    core.reset();
    AgentOptions options;
    options.host = "hosts/host-a";
    options.incarnation = "boot-1";
    options.agent_id = "agent-1";
    core = std::make_unique<AgentCore>(
        options, &executor, &executor, &memory, &link,
        [this](absl::string_view point) { probes.emplace_back(point); });
  }

  void Start() {
    core->Start([](absl::Status) {});
    executor.RunReady();
  }

  // A session with these Offers.
  v1::Hello Connect(std::vector<v1::Offer> offers = {}) {
    v1::Hello hello;
    link.handlers.make_hello([&hello](absl::StatusOr<v1::Hello> made) { hello = *made; });
    executor.RunReady();
    v1::Welcome welcome;
    for (v1::Offer& offer : offers) *welcome.add_offers() = std::move(offer);
    link.handlers.on_welcome(std::move(welcome));
    executor.RunReady();
    return hello;
  }

  void Offer(v1::Offer offer) {
    link.handlers.on_offer(std::move(offer));
    executor.RunReady();
  }

  v1::SegmentState Reported(uint64_t serial) const {
    const auto report = link.Last(serial);
    return report.has_value() ? report->state() : v1::SEGMENT_STATE_UNSPECIFIED;
  }
  std::string ReportedError(uint64_t serial) const {
    const auto report = link.Last(serial);
    return report.has_value() ? report->error().reason() : "";
  }

  int Calls(const std::string& call) const {
    return static_cast<int>(std::count(memory.calls.begin(), memory.calls.end(), call));
  }
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_TEST_RIGS_CORE_RIG_H_
