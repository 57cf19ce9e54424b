// pool-ask: asks the host agent again and again, as applications do, and says how long it took.
//
//   pool-ask REGION
//
// Lists the Regions and opens REGION, some times a second, until SIGTERM; says "asking" after the
// first answers, and at the end "N answers in N ms, the slowest after N ms". Exit: 0, 2 usage, 3 an
// answer did not come or was a refusal.
//
// A host of the emulated rack gets its processor when the machine under it has one to spare. How
// long nothing at all ran in it is measured beside, and is in no answer's time.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <thread>

#include "cxlpool/pool.h"
#include "libpool/examples/outcome.h"

namespace cxlpool {
namespace {

constexpr char kProgram[] = "pool-ask";
constexpr useconds_t kPauseUs = 50'000;  // The host has one processor, and others to serve.
constexpr useconds_t kBeatUs = 10'000;

volatile std::sig_atomic_t g_ended = 0;

void OnTerminate(int) { g_ended = 1; }

// Sums up by how much a short sleep took longer than it should.
class StandstillMeter {
 public:
  StandstillMeter() : thread_([this] { Measure(); }) {}
  ~StandstillMeter() {
    ended_ = true;
    thread_.join();
  }

  double Seconds() const { return seconds_; }

 private:
  void Measure() {
    while (!ended_) {
      const examples::Stopwatch beat;
      ::usleep(kBeatUs);
      seconds_ = seconds_ + std::max(0.0, beat.Seconds() - 2e-6 * kBeatUs);
    }
  }

  std::atomic<double> seconds_ = 0;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

class Asker {
 public:
  // The error that the question ended in.
  template <typename Question>
  std::optional<Error> Ask(const Question& question) {
    const double before = meter_.Seconds();
    const examples::Stopwatch stopwatch;
    const auto answer = question();
    const double seconds = stopwatch.Seconds();
    ::usleep(2 * kBeatUs);  // A standstill that has just ended is counted now.
    slowest_ = std::max(slowest_, seconds - (meter_.Seconds() - before));
    if (++answers_ == 2) {
      std::printf("asking\n");
      std::fflush(stdout);
    }
    return answer.ok() ? std::nullopt : std::optional(answer.error());
  }

  void Report() const {
    std::printf("%" PRIu64 " answers in %.0f ms, the slowest after %.0f ms\n", answers_,
                began_.Seconds() * 1000, std::max(0.0, slowest_) * 1000);
  }

 private:
  StandstillMeter meter_;
  examples::Stopwatch began_;
  double slowest_ = 0;
  uint64_t answers_ = 0;
};

int Main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s REGION\n", kProgram);
    return examples::kUsage;
  }
  std::signal(SIGTERM, OnTerminate);
  auto client = Pool::Connect();
  if (!client.ok()) return examples::Refuse(kProgram, client.error());
  Asker asker;
  while (g_ended == 0) {
    std::optional<Error> error = asker.Ask([&] { return client->List(); });
    if (!error.has_value()) error = asker.Ask([&] { return client->Open(argv[1]); });
    if (error.has_value()) return examples::Refuse(kProgram, *error);
    ::usleep(kPauseUs);
  }
  asker.Report();
  return examples::kOk;
}

}  // namespace
}  // namespace cxlpool

int main(int argc, char** argv) { return cxlpool::Main(argc, argv); }
