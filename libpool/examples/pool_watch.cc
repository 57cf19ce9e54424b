// pool-watch: says which bytes of which Region are lost, and how large each Region is, as soon as
// the host agent knows.
//
//   pool-watch [--count N] [--for SECONDS]
//
// One line a fault: "fault REGION OFFSET LENGTH MESSAGE", and one a size, at first and when it has
// changed: "size REGION BYTES". Exit: 0 after N faults, 1 if fewer came in SECONDS, 2 usage,
// 3 refused.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cinttypes>
#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "cxlpool/pool.h"
#include "libpool/examples/outcome.h"

namespace cxlpool::examples {
namespace {

constexpr char kProgram[] = "pool-watch";

int Watch(int count, double seconds) {
  std::mutex mutex;
  std::condition_variable heard;
  int faults = 0;
  const auto on_fault = [&](const Fault& fault) {
    std::printf("fault %s %" PRIu64 " %" PRIu64 " %s\n", fault.name.c_str(),
                fault.region_offset_bytes, fault.length_bytes, fault.message.c_str());
    std::fflush(stdout);
    const std::lock_guard lock(mutex);
    ++faults;
    heard.notify_all();
  };
  const auto on_size = [](const RegionSize& now) {
    std::printf("size %s %" PRIu64 "\n", now.name.c_str(), now.size_bytes);
    std::fflush(stdout);
  };
  auto watch = FaultWatch::Start({}, on_fault, on_size);
  if (!watch.ok()) return Refuse(kProgram, watch.error());
  std::printf("watching\n");
  std::fflush(stdout);
  std::unique_lock lock(mutex);
  const bool enough =
      heard.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return faults >= count; });
  lock.unlock();  // The watch ends below, and waits for a call that is under way.
  return enough ? kOk : kMismatch;
}

int Main(int argc, char** argv) {
  CLI::App app{"pool-watch: which bytes of this host's Regions are lost, and their sizes"};
  int count = 1;
  double seconds = 3600;
  app.add_option("--count", count, "End after so many faults")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--for", seconds, "End after so many seconds")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  return Watch(count, seconds);
}

}  // namespace
}  // namespace cxlpool::examples

int main(int argc, char** argv) { return cxlpool::examples::Main(argc, argv); }
