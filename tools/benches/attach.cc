// bench-attach: what a host that resets costs the manager, in a pool of many Attachments and in one
// of few. Only its own should count. docs/performance.md says how it measures.
//
// The manager's core alone, in one thread, on a store in memory, with a fabric and agents that do
// at once what they are asked (test/rigs/service_rig.h): nothing but the core takes time.

#include <iostream>

#include "absl/strings/str_format.h"
#include "test/rigs/service_rig.h"
#include "tools/benches/bench_main.h"
#include "tools/benches/rounds.h"

namespace cxlpool::bench {
namespace {

constexpr int kHosts = 200;
constexpr int kOwn = 8;          // Attachments of the host that resets, in either pool.
constexpr int kResetsEach = 20;  // In a slice.
constexpr double kTarget = 1.5;
constexpr char kResets[] = "host-0";

class Pool {
 public:
  // `attachments` in all.
  explicit Pool(int attachments) {
    const int of_others = (attachments - kOwn) / (kHosts - 1) + 1;
    world_.hosts.clear();
    for (int i = 0; i < kHosts; ++i) world_.hosts.push_back(absl::StrCat("host-", i));
    world_.slots.clear();
    for (int i = 0; i < of_others + of_others % 2; ++i) world_.slots.push_back(10 + i);
    world_.devices.clear();
    for (int i = 0; i < 16; ++i) {
      const std::string id = absl::StrCat("cmm-", i);
      world_.devices.push_back({id, id, 1200 * fm::kGranule, fm::kGranule, id});
    }
    world_.clock = ThreadCpuTime;
    rig_ = std::make_unique<fm::ServiceRig>(std::make_shared<fm::MemoryDisk>(), &world_);
    for (int i = 0; i < of_others; ++i) {
      for (int host = 0; host < kHosts && made_ < attachments; ++host) {
        if (host == 0 && i >= kOwn) continue;
        Allocate(absl::StrCat("host-", host));
      }
      rig_->Run(absl::Milliseconds(50));
    }
  }

  bool Settle() {
    return rig_->RunUntil(
        [&] {
          for (int i = 0; i < made_; ++i) {
            if (!IsBack(absl::StrCat("r", i))) return false;
          }
          return true;
        },
        absl::Minutes(5));
  }

  // The host's side of the fabric ends, with all that was bound to it, and another begins; the
  // agent of the next boot says hello. Until everything of it is ONLINE again.
  absl::StatusOr<Sample> Reset() {
    for (const uint64_t serial : std::exchange(world_.of_host[kResets], {})) {
      world_.bound.erase(serial);
    }
    const std::string old = world_.LifeOf(kResets);
    world_.lives[kResets] = absl::StrCat(++lives_);
    rig_->KeepAlive();
    world_.spent_here = absl::ZeroDuration();
    const absl::Duration began = ThreadCpuTime();
    rig_->fabric.Emit(
        {.kind = fm::FabricEvent::Kind::kHostGone, .host = kResets, .incarnation = old});
    rig_->fabric.Emit({.kind = fm::FabricEvent::Kind::kHostReachable, .host = kResets});
    const auto agent = rig_->Connect(kResets);
    const int bound = world_.binds + kOwn;
    const auto is_over = [&] { return world_.binds >= bound && OwnAreBack(); };
    for (int i = 0; i < 500 && !is_over(); ++i) {
      rig_->Run(absl::Milliseconds(10));
      agent->TryAgain();
    }
    const absl::Duration took = ThreadCpuTime() - began - world_.spent_here;
    if (!is_over()) return absl::DeadlineExceededError("the host did not get its memory back");
    return Sample{.seconds = absl::ToDoubleSeconds(took)};
  }

 private:
  void Allocate(const std::string& host) {
    fm::AllocateSpec spec = fm::AllocateOn(absl::StrCat("r", made_), host, 1);
    spec.request.id.id = Uuid(RandomUuid());
    spec.size_bytes = fm::kGranule;
    rig_->pool.Allocate(std::move(spec), false, [](const absl::StatusOr<fm::Committed>&) {});
    if (host == kResets) own_.push_back(absl::StrCat("r", made_));
    ++made_;
  }
  bool IsBack(const std::string& region) const {
    const fm::RegionPtr found = rig_->Find(region);
    return found != nullptr && !found->attachments.empty() &&
           found->attachments[0].settled().state == fm::AttachmentState::kOnline;
  }
  bool OwnAreBack() const {
    return std::all_of(own_.begin(), own_.end(), [&](auto& r) { return IsBack(r); });
  }

  fm::World world_;
  std::unique_ptr<fm::ServiceRig> rig_;
  std::vector<std::string> own_;  // Regions of the host that resets.
  int made_ = 0;
  int lives_ = 1;
};

// The mean of many resets: one alone takes a millisecond, of which a page fault is a part that
// counts.
absl::StatusOr<Sample> ResetOften(Pool& pool) {
  double seconds = 0;
  for (int i = 0; i < kResetsEach; ++i) {
    const absl::StatusOr<Sample> one = pool.Reset();
    if (!one.ok()) return one.status();
    seconds += one->seconds;
  }
  return Sample{.seconds = seconds / kResetsEach};
}

absl::StatusOr<std::vector<Row>> Run(const BenchOptions& options) {
  Pool many(16000), few(1600);
  for (Pool* pool : {&many, &few}) {
    if (!pool->Settle()) return absl::DeadlineExceededError("the pool was not filled");
  }
  Rounds rounds({{"16,000", [&] { return ResetOften(many); }, &Sample::seconds},
                 {"1,600", [&] { return ResetOften(few); }, &Sample::seconds}});
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  return std::vector<Row>{
      MakeRow(18, "one of 200 hosts resets, at 16,000 Attachments by 1,600, CPU of the core", "s",
              kTarget, Aim::kAtMost, rounds.Compare(&Sample::seconds))};
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  return cxlpool::bench::RunBench(argc, argv,
                                  {.name = "bench-attach",
                                   .what = "what a host that resets costs the manager",
                                   .measure = cxlpool::bench::Run});
}
