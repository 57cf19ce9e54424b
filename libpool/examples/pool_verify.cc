// pool-verify: checks every byte of a Region that pool-write filled, or that nothing is left in
// it, or that it cannot be written, or that its NUMA node can be used.
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>

#include "cxlpool/pool.h"
#include "libpool/examples/outcome.h"
#include "libpool/examples/pattern.h"

namespace cxlpool::examples {
namespace {

constexpr char kProgram[] = "pool-verify";

struct Flags {
  std::string region;
  uint64_t seed = 1;
  bool expect_zero = false;
  bool try_write = false;
  bool node = false;
  uint64_t bytes = UINT64_MAX;
  double hold_seconds = 0;
  double wait_seconds = 120;
};

constexpr uint64_t kNodeBytes = 64 << 20;  // At most, unless told.

// Every byte, or the first so many, through a mapping that cannot be written. It is held as long as
// was asked for also where something was wrong: a test looks at the Region meanwhile.
int VerifyBytes(const Region& region, const Flags& flags) {
  auto mapping = region.Map({.writable = false});
  if (!mapping.ok()) return Refuse(kProgram, mapping.error());
  const Stopwatch stopwatch;
  const auto bytes = FirstOf(mapping->bytes(), flags.bytes);
  // As other hosts published them: this host's caches may have older ones.
  if (const auto now = mapping->Refresh(bytes); !now.ok()) return Refuse(kProgram, now.error());
  const Mismatches mismatches =
      flags.expect_zero ? VerifyZero(bytes) : VerifyPattern(bytes, flags.seed);
  const char* const verified = flags.expect_zero ? "verified zero in" : "verified";
  PrintRate(mismatches.words == 0 ? verified : "read", bytes.size(), region.name(),
            stopwatch.Seconds());
  const int outcome = Judge(kProgram, mismatches, bytes.size());
  HoldFor(flags.hold_seconds);
  return outcome;
}

// Success is the kernel's refusal.
int TryWrite(const Region& region) {
  auto mapping = region.Map({.writable = true});
  if (mapping.ok()) {
    std::fprintf(stderr, "%s: %s could be mapped for writing, and should not be\n", kProgram,
                 region.name().c_str());
    return kMismatch;
  }
  if (mapping.error().sys_errno != EACCES) return Refuse(kProgram, mapping.error());
  std::printf("refused with EACCES: a writable map of %s\n", region.name().c_str());
  return kOk;
}

// Prints on which NUMA nodes the pages of `bytes` are; kOk only if each is present, on that one.
int ReportPages(std::span<const std::byte> bytes, int wanted_node) {
  const auto nodes = NodesOfPages(bytes.data(), bytes.size());
  if (!nodes.ok()) return Refuse(kProgram, nodes.error());
  std::map<int, uint64_t> counts;
  for (const int node : *nodes) ++counts[node];
  bool all_there = true;
  for (const auto& [node, pages] : counts) {
    if (node < 0) {  // Instead of a node: nobody has touched the page.
      std::printf("not present: %" PRIu64 " pages\n", pages);
    } else {
      std::printf("node %d: %" PRIu64 " pages\n", node, pages);
    }
    all_there = all_there && node == wanted_node;
  }
  if (all_there) return kOk;
  std::fprintf(stderr, "%s: not every page is on node %d\n", kProgram, wanted_node);
  return kMismatch;
}

// A Region in mode system-ram has no file: its memory is got by its NUMA node alone. Binds
// anonymous memory to that node, writes it and reads it back. What was read counts before where the
// pages are: bytes that are wrong are worse than pages elsewhere.
int UseNode(const Region& region, const Flags& flags) {
  if (!region.numa_node().has_value()) {
    std::fprintf(stderr, "%s: %s is %s and has no NUMA node (attach it as system-ram)\n", kProgram,
                 region.name().c_str(), std::string(ToString(region.mode())).c_str());
    return kRefused;
  }
  const int node = *region.numa_node();
  const uint64_t bytes =
      std::min(flags.bytes == UINT64_MAX ? kNodeBytes : flags.bytes, region.size_bytes());
  void* address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    std::perror("pool-verify: cannot map anonymous memory");
    return kRefused;
  }
  const std::span<std::byte> range(static_cast<std::byte*>(address), bytes);
  // Before the first touch, which is what decides where a page is.
  if (const auto bound = BindToNode(address, bytes, node); !bound.ok()) {
    return Refuse(kProgram, bound.error());
  }
  const Stopwatch stopwatch;
  FillPattern(range, flags.seed);
  const Mismatches mismatches = VerifyPattern(range, flags.seed);
  PrintRate(mismatches.words == 0 ? "wrote and verified" : "wrote and read", bytes,
            "node " + std::to_string(node), stopwatch.Seconds());
  const int placed = ReportPages(range, node);
  const int judged = Judge(kProgram, mismatches, bytes);
  HoldFor(flags.hold_seconds);
  ::munmap(address, bytes);
  return judged != kOk ? judged : placed;
}

// Opens the Region with the least access that will do: a reader is let in where a writer is not.
int Run(const Flags& flags) {
  auto client = Pool::Connect();
  if (!client.ok()) return Refuse(kProgram, client.error());
  const Access access = flags.node ? Access::kReadWrite : Access::kReadOnly;
  auto region =
      client->Open(flags.region, {.access = access, .wait = Milliseconds(flags.wait_seconds)});
  if (!region.ok()) return Refuse(kProgram, region.error());
  if (flags.node) return UseNode(*region, flags);
  if (flags.try_write) return TryWrite(*region);
  return VerifyBytes(*region, flags);
}

// Reads the flags. What does not go together is refused here: which check is made, and on how much.
int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Verifies every byte of a Region of the pool, which it opens read-only.", kProgram);
  app.footer(kExitCodes);
  app.option_defaults()->always_capture_default();
  app.add_option("--region", flags.region, "The Region; it is attached to this host.")->required();
  app.add_option("--seed", flags.seed, "What the pattern was made from.");
  auto* zero = app.add_flag("--expect-zero", flags.expect_zero, "Expect zeros, not the pattern.");
  auto* write = app.add_flag("--try-write", flags.try_write,
                             "Map for writing; 0 only if the kernel refuses with EACCES.");
  auto* node = app.add_flag("--node", flags.node,
                            "For system-ram: bind memory to the Region's NUMA node, write it, "
                            "verify it, and say on which node its pages are.");
  app.add_option("--bytes", flags.bytes, "Only so many, from its beginning, as in 64MiB.")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::PositiveNumber)
      ->check(CheckWholeWords)
      ->default_str("all; with --node 64MiB")
      ->excludes(write);
  app.add_option("--hold", flags.hold_seconds, "Keep the mapping for so many seconds.")
      ->check(CLI::Range(0.0, 86400.0))
      ->excludes(write);
  app.add_option("--wait", flags.wait_seconds, "Wait so many seconds for the memory.")
      ->check(CLI::Range(0.0, 600.0));
  zero->excludes(write)->excludes(node);
  write->excludes(node);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  return Run(flags);
}

}  // namespace
}  // namespace cxlpool::examples

int main(int argc, char** argv) { return cxlpool::examples::Main(argc, argv); }
