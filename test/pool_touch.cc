// pool-touch: an application that stores to every byte of a Region again and again, and lives on
// when the memory is taken from it.
//
//   pool-touch REGION SEED SECONDS
//
// Says "touching" after its first pass. Exit: 0 SIGBUS came and was handled, 1 it did not come in
// SECONDS, 2 usage, 3 refused.
#include <setjmp.h>
#include <signal.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "cxlpool/pool.h"
#include "libpool/examples/outcome.h"
#include "libpool/examples/pattern.h"

namespace cxlpool {
namespace {

constexpr char kProgram[] = "pool-touch";

sigjmp_buf g_before_store;

// Of a store in Touch alone: a fault of its own, never one that interrupts other work.
void OnBusError(int, siginfo_t* info, void*) { siglongjmp(g_before_store, info->si_code); }

// The si_code of the SIGBUS that ended it, or 0 after `seconds`.
int Touch(std::span<std::byte> bytes, uint64_t seed, double seconds) {
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
  if (const int code = sigsetjmp(g_before_store, 1); code != 0) return code;
  const examples::Stopwatch stopwatch;
  for (bool first = true; stopwatch.Seconds() < seconds; first = false) {
    examples::FillPattern(bytes, seed);
    if (!first) continue;
    std::printf("touching\n");
    std::fflush(stdout);
  }
  return 0;
}

int Main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s REGION SEED SECONDS\n", kProgram);
    return examples::kUsage;
  }
  auto client = Pool::Connect();
  if (!client.ok()) return examples::Refuse(kProgram, client.error());
  auto region =
      client->Open(argv[1], {.access = Access::kReadWrite, .wait = std::chrono::seconds(60)});
  if (!region.ok()) return examples::Refuse(kProgram, region.error());
  auto mapping = region->Map({.writable = true});
  if (!mapping.ok()) return examples::Refuse(kProgram, mapping.error());
  const int code = Touch(mapping->mutable_bytes(), std::strtoull(argv[2], nullptr, 0),
                         std::strtod(argv[3], nullptr));
  if (code == 0) {
    std::printf("no SIGBUS came\n");
    return examples::kMismatch;
  }
  std::printf("SIGBUS %s, and it lives on\n",
              code == BUS_ADRERR ? "BUS_ADRERR" : "of another kind");
  return examples::kOk;
}

}  // namespace
}  // namespace cxlpool

int main(int argc, char** argv) { return cxlpool::Main(argc, argv); }
