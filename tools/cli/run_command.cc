#include "tools/cli/run_command.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "cxlpool/pool.h"
#include "proto/support/refusal.h"
#include "tools/cli/man_page.h"
#include "tools/cli/subcommands.h"

namespace cxlpool::cli {
namespace {

constexpr char kOwnNodes[] = "/sys/devices/system/node/has_cpu";
constexpr char kPathWord[] = "{}";
constexpr char kPathVariable[] = "CXLPOOL_PATH";
constexpr int kMaxNode = 1023;  // CONFIG_NODES_SHIFT is at most 10.
constexpr absl::Duration kDefaultWait = absl::Minutes(2);
constexpr absl::Duration kLongestWait = absl::Minutes(10);

struct RunWords {
  Flag size, name, region, wait, socket;
  bool strict = false, prefer = false, interleave = false, as_file = false, read_only = false;
  std::vector<std::string> program;
};

// --prefer is not read, because it is the default.
absl::StatusOr<RunCommand> ReadRun(const RunWords& words) {
  RunCommand command;
  Fields fields;
  fields.Size(words.size, [&](uint64_t bytes) { command.size_bytes = bytes; });
  fields.NewRegionId(words.name, [&](std::string id) { command.name = std::move(id); });
  fields.Name("regions", words.region, [&](std::string name) { command.region = std::move(name); });
  command.wait = kDefaultWait;
  fields.Period("--wait", words.wait, command.wait);
  if (!fields.status().ok()) return fields.status();
  if (command.wait > kLongestWait) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_DURATION", "--wait is more than 10m",
                  "give at most 10m");
  }
  if (words.strict) command.policy = RunPolicy::kStrict;
  if (words.interleave) command.policy = RunPolicy::kInterleave;
  command.as_file = words.as_file;
  command.read_only = words.read_only;
  command.socket = words.socket.value_or("");
  command.program = words.program;
  return command;
}

absl::Status FromPool(const Error& error) {
  return Refuse(static_cast<absl::StatusCode>(error.code), error.reason, error.message,
                error.remedy);
}

// Before anything is allocated for it. As execvp looks for it; the kernel has the last word.
absl::Status CheckProgram(const std::string& program) {
  const auto refused = [&](absl::string_view why) {
    return Refuse(absl::StatusCode::kNotFound, "NO_PROGRAM",
                  absl::StrCat("cannot run ", program, ": ", why),
                  "give a program in PATH, or a path");
  };
  if (absl::StrContains(program, "/")) {
    return ::access(program.c_str(), X_OK) == 0 ? absl::OkStatus() : refused(std::strerror(errno));
  }
  const char* const path = std::getenv("PATH");
  const std::string folders = path == nullptr ? "/usr/bin:/bin" : path;
  for (const absl::string_view folder : absl::StrSplit(folders, ':')) {
    const std::string file = absl::StrCat(folder.empty() ? "." : folder, "/", program);
    if (::access(file.c_str(), X_OK) == 0) return absl::OkStatus();
  }
  return refused("it is not in PATH");
}

std::vector<int> OwnNodes() {
  std::string text;
  std::getline(std::ifstream(kOwnNodes), text);
  return ParseNodeList(text);
}

constexpr int kPreferredMany = 5;  // MPOL_PREFERRED_MANY, Linux 5.15; older headers do not have it.

// The kernel's name for it (set_mempolicy(2)). What prefers takes one node, and the first of more.
int KernelPolicy(RunPolicy policy, size_t nodes) {
  switch (policy) {
    case RunPolicy::kStrict:
      return MPOL_BIND;
    case RunPolicy::kPrefer:
      return nodes > 1 ? kPreferredMany : MPOL_PREFERRED;
    case RunPolicy::kInterleave:
      return MPOL_INTERLEAVE;
  }
  return MPOL_DEFAULT;
}

// Sets the policy of this process, which the program keeps. If that fails, the program is not run.
absl::Status SetPolicy(RunPolicy policy, const std::vector<int>& pool_nodes) {
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, (kMaxNode + 1) / kBits> mask = {};
  const std::vector<int> nodes = PolicyNodes(policy, pool_nodes, OwnNodes());
  for (const int node : nodes) {
    if (node < 0 || node > kMaxNode) continue;
    mask[static_cast<size_t>(node) / kBits] |= 1ul << (static_cast<size_t>(node) % kBits);
  }
  // The kernel reads one bit less than it is given.
  if (::syscall(SYS_set_mempolicy, KernelPolicy(policy, nodes.size()), mask.data(), kMaxNode + 2) ==
      0) {
    return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kInternal, "NUMA_FAILED",
                absl::StrCat("cannot set the memory policy: ", std::strerror(errno)),
                "let the container or the seccomp filter pass set_mempolicy, and its cpuset.mems "
                "have the pool's node");
}

// An allocated Region is owned by this process, which stays the same across exec, so it goes when
// the program has ended. A Region that was opened stays.
absl::StatusOr<Region> Obtain(Pool& pool, const RunCommand& command) {
  const auto wait = std::chrono::milliseconds(absl::ToInt64Milliseconds(command.wait));
  Result<Region> region =
      command.region.empty()
          ? pool.Allocate({.name = command.name,
                           .size_bytes = command.size_bytes,
                           .mode = command.as_file ? Mode::kDevdax : Mode::kSystemRam,
                           .wait = wait,
                           .as_file = command.as_file})
          : pool.Open(command.region,
                      {.access = command.read_only ? Access::kReadOnly : Access::kReadWrite,
                       .wait = wait,
                       .as_file = command.as_file});
  if (!region.ok()) return FromPool(region.error());
  return *std::move(region);
}

// The program's memory policy: it takes its pages from the nodes of the Region's extents.
absl::Status UseAsMemory(const RunCommand& command, const Region& region) {
  if (!region.numa_node().has_value()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NOT_SYSTEM_RAM",
                  absl::StrCat(region.name(), " is devdax, and no node of memory"),
                  "attach it with --mode system-ram, or give the program its path by --as-file");
  }
  return SetPolicy(command.policy, region.Nodes());
}

// The program gets the Region's path in its words and its environment, and holds the Region itself.
absl::Status UseAsFile(const Region& region, std::vector<std::string>& words) {
  if (const Result<void> kept = region.KeepThroughExec(); !kept.ok()) return FromPool(kept.error());
  words = WithPath(std::move(words), region.path());
  if (::setenv(kPathVariable, region.path().c_str(), 1) == 0) return absl::OkStatus();
  return Refuse(absl::StatusCode::kResourceExhausted, "NO_MEMORY", "no memory for the environment",
                "free some, or raise its limit (ulimit -v)");
}

}  // namespace

std::vector<std::string> WithPath(std::vector<std::string> words, const std::string& path) {
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i] == kPathWord) words[i] = path;
  }
  return words;
}

// All or nothing: a part of the list would be another policy.
std::vector<int> ParseNodeList(absl::string_view text) {
  std::vector<int> nodes;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    int first = 0, last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || first < 0 || last > kMaxNode) {
      return {};
    }
    for (int node = first; node <= last; ++node) nodes.push_back(node);
  }
  return nodes;
}

// No node comes twice, because KernelPolicy depends on how many there are.
std::vector<int> PolicyNodes(RunPolicy policy, std::vector<int> pool_nodes,
                             const std::vector<int>& own_nodes) {
  std::vector<int> nodes = std::move(pool_nodes);
  if (policy == RunPolicy::kInterleave) {
    nodes.insert(nodes.end(), own_nodes.begin(), own_nodes.end());
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

// Everything after -- is the program's, flags of the same names included.
void AddRunCommand(CLI::App& app, Chosen& chosen) {
  CLI::App* run = app.add_subcommand(
      "run", "Run a program, as it is, on pool memory of this host, which goes when it has ended");
  auto words = std::make_shared<RunWords>();
  auto* size = run->add_option("--size", words->size, "Allocate so much for it");
  size->type_name("SIZE");
  run->add_option("--name", words->name, "Name of the Region to allocate")
      ->type_name("NAME")
      ->needs(size);
  auto* region = run->add_option("--region", words->region,
                                 "Use this Region, which stays: system-ram, or "
                                 "devdax with --as-file");
  region->type_name("NAME")->excludes(size);
  auto* strict = run->add_flag("--strict", words->strict, "Its memory is all of the Region");
  auto* prefer = run->add_flag("--prefer", words->prefer,
                               "The Region's first, the host's own when that is full (default)");
  auto* interleave = run->add_flag("--interleave", words->interleave,
                                   "Page by page, of the host's own and the Region's");
  interleave->excludes(strict)->excludes(prefer);
  strict->excludes(prefer);
  auto* as_file = run->add_flag("--as-file", words->as_file,
                                "Its memory stays the host's: it gets the path of a devdax Region, "
                                "in CXLPOOL_PATH and in place of {}");
  as_file->excludes(strict)->excludes(prefer)->excludes(interleave);
  run->add_flag("--read-only", words->read_only, "The path is only to read")
      ->needs(as_file)
      ->needs(region);
  run->add_option("--wait", words->wait, "Wait so long for the memory (default 2m)")
      ->type_name("DURATION");
  run->add_option("--socket", words->socket,
                  "The host agent's socket (default: CXLPOOL_SOCKET, or "
                  "/run/cxlpool/agent.sock)")
      ->type_name("PATH");
  run->add_option(kProgramWords, words->program, "The program and its arguments, after --")
      ->type_name("")
      ->required()
      ->expected(-1);
  run->footer(
      "A Region that is allocated belongs to the program's process: children that outlive it "
      "lose the memory's place, and not their bytes.");
  run->callback([words, &chosen, size, region] {
    // An option group of CLI11 would ask for one of the two, and not say what for.
    if (size->count() + region->count() == 0) {
      chosen.command = Refuse(absl::StatusCode::kInvalidArgument, "USAGE",
                              "run needs --size or --region", "say how much memory it is to have");
      return;
    }
    auto command = ReadRun(*words);
    if (command.ok()) {
      chosen.command = *std::move(command);
    } else {
      chosen.command = command.status();
    }
  });
}

// Looks for the program first, so that nothing is allocated for one that cannot be run. If
// something fails later, an allocated Region goes with this process at the latest.
absl::Status Execute(const RunCommand& command) {
  if (absl::Status status = CheckProgram(command.program.front()); !status.ok()) return status;
  Result<Pool> pool = Pool::Connect({.socket_path = command.socket});
  if (!pool.ok()) return FromPool(pool.error());
  const absl::StatusOr<Region> region = Obtain(*pool, command);
  if (!region.ok()) return region.status();
  std::vector<std::string> words = command.program;
  const absl::Status status =
      command.as_file ? UseAsFile(*region, words) : UseAsMemory(command, *region);
  if (!status.ok()) return status;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // exec closes sockets and descriptors of the Region, except for the one that is to be kept; the
  // Region's owner, this process, stays the same.
  ::execvp(argv.front(), argv.data());
  return Refuse(absl::StatusCode::kInternal, "EXEC_FAILED",
                absl::StrCat("cannot run ", words.front(), ": ", std::strerror(errno)),
                "see that it is a program of this machine");
}

}  // namespace cxlpool::cli
