// pool-write: fills a Region, opened or allocated, with a pattern that pool-verify checks.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "cxlpool/pool.h"
#include "libpool/examples/outcome.h"
#include "libpool/examples/pattern.h"

namespace cxlpool::examples {
namespace {

constexpr char kProgram[] = "pool-write";

struct Flags {
  std::string region;
  uint64_t allocate_bytes = 0;
  std::string name;
  Sharing sharing = Sharing::kExclusive;
  bool persistent = false;
  OpenTo open_to;
  uint64_t seed = 1;
  uint64_t bytes = UINT64_MAX;
  double hold_seconds = 0;
  double wait_seconds = 120;
};

// One word of --open-to. CLI11 prints what it throws, as it does for words of its own.
void AddTo(OpenTo& open_to, const std::string& who) {
  if (who == "everybody") {
    open_to.everybody = true;
    return;
  }
  const std::string kind = who.substr(0, who.find('='));
  // Behind the "="; where there is none, nothing, which is no number.
  uint32_t id = 0;
  if ((kind != "uid" && kind != "gid") ||
      !CLI::detail::lexical_cast(who.substr(std::min(who.size(), kind.size() + 1)), id)) {
    throw CLI::ValidationError("--open-to", "give uid=N, gid=N or everybody");
  }
  (kind == "uid" ? open_to.uids : open_to.gids).push_back(id);
}

// The Region to write: one that is there (--region), or a new one of this program's (--allocate).
Result<Region> Obtain(Pool& client, const Flags& flags) {
  const std::chrono::milliseconds wait = Milliseconds(flags.wait_seconds);
  if (flags.region.empty()) {
    return client.Allocate({.name = flags.name,
                            .size_bytes = flags.allocate_bytes,
                            .sharing = flags.sharing,
                            .persistent = flags.persistent,
                            .open_to = flags.open_to,
                            .wait = wait});
  }
  return client.Open(flags.region, {.access = Access::kReadWrite, .wait = wait});
}

// Writes the pattern, and keeps the mapping as long as was asked for. A Region that was allocated
// here and is not persistent ends with this program.
int Run(const Flags& flags) {
  auto client = Pool::Connect();
  if (!client.ok()) return Refuse(kProgram, client.error());
  auto region = Obtain(*client, flags);
  if (!region.ok()) return Refuse(kProgram, region.error());
  auto mapping = region->Map({.writable = true});
  if (!mapping.ok()) return Refuse(kProgram, mapping.error());

  const Stopwatch stopwatch;
  const auto bytes = FirstOf(mapping->mutable_bytes(), flags.bytes);
  FillPattern(bytes, flags.seed);
  // Where caches are not coherent, other hosts see it only then.
  if (const auto seen = mapping->Publish(bytes); !seen.ok()) return Refuse(kProgram, seen.error());
  PrintRate("wrote", bytes.size(), region->name(), stopwatch.Seconds());
  HoldFor(flags.hold_seconds);
  return kOk;
}

// Reads the flags. Exactly one of --region and --allocate; what describes a new Region is refused
// with --region.
int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Writes a pattern over every byte of a Region of the pool.", kProgram);
  app.footer(kExitCodes);
  app.option_defaults()->always_capture_default();
  auto* source = app.add_option_group("Which Region");
  source->add_option("--region", flags.region, "Open this Region; it is attached to this host.");
  auto* allocate =
      source->add_option("--allocate", flags.allocate_bytes, "Allocate so much, as in 512MiB.")
          ->transform(CLI::AsSizeValue(false));
  source->require_option(1);
  app.add_option("--name", flags.name, "Name for the Region to allocate.")->needs(allocate);
  const std::map<std::string, Sharing> sharings = {{"exclusive", Sharing::kExclusive},
                                                   {"single-writer", Sharing::kSingleWriter},
                                                   {"multi-writer", Sharing::kMultiWriter}};
  app.add_option("--sharing", flags.sharing, "Sharing of the Region to allocate.")
      ->needs(allocate)
      ->transform(CLI::CheckedTransformer(sharings, CLI::ignore_case))
      ->default_str("exclusive");
  app.add_flag("--persistent", flags.persistent,
               "Keep the Region to allocate when this program has ended.")
      ->needs(allocate);
  app.add_option_function<std::vector<std::string>>(
         "--open-to",
         [&flags](const std::vector<std::string>& whom) {
           for (const std::string& who : whom) AddTo(flags.open_to, who);
         },
         "Who else may open the Region to allocate: uid=N, gid=N or everybody.")
      ->needs(allocate)
      ->delimiter(',');
  app.add_option("--seed", flags.seed, "What the pattern is made from.");
  app.add_option("--bytes", flags.bytes, "Only so many, from its beginning, as in 64MiB.")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::PositiveNumber)
      ->check(CheckWholeWords)
      ->default_str("all");
  app.add_option("--hold", flags.hold_seconds, "Keep the mapping for so many seconds.")
      ->check(CLI::Range(0.0, 86400.0));
  app.add_option("--wait", flags.wait_seconds, "Wait so many seconds for the memory.")
      ->check(CLI::Range(0.0, 600.0));
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
