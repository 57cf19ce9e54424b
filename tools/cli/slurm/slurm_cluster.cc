#include "tools/cli/slurm/slurm_cluster.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/support/refusal.h"
#include "tools/cli/render/printable.h"
#include "tools/cli/slurm/accounting.h"

namespace cxlpool::cli {
namespace {

constexpr absl::string_view kNoSuchJob = "Invalid job id";
constexpr size_t kMaxOutput = 64u << 20;

// The output of one of Slurm's commands, errors included; SLURM_UNKNOWN where it fails. timeout(1)
// ends it after 20 s. SIGKILL, because slurmctld's children have the gentler signals blocked.
absl::StatusOr<std::string> Ask(const std::string& command) {
  const auto failed = [&](absl::string_view why) {
    return Refuse(absl::StatusCode::kUnavailable, "SLURM_UNKNOWN",
                  absl::StrCat("Slurm cannot be asked: ", command.substr(0, command.find(' ')),
                               ": ", Printable(absl::StripAsciiWhitespace(why.substr(0, 300)))),
                  "see that slurmctld runs, and that its commands are in PATH");
  };
  std::FILE* const pipe =
      ::popen(absl::StrCat("exec timeout -s KILL 20 ", command, " 2>&1 </dev/null").c_str(), "re");
  if (pipe == nullptr) return failed("no process can be started");
  std::string output;
  std::array<char, 65536> buffer;
  while (size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    if (output.size() < kMaxOutput) output.append(buffer.data(), got);
  }
  const int status = ::pclose(pipe);
  if (output.size() >= kMaxOutput) return failed("it says more than 64 MiB");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return failed(output.empty() ? "it did not answer in 20 s" : output);
  }
  return output;
}

std::vector<std::string> Lines(absl::string_view text) {
  return absl::StrSplit(text, '\n', absl::SkipWhitespace());
}

}  // namespace

// "UNLIMITED", and whatever else is no time, is no limit.
absl::Duration ReadTimeLimit(absl::string_view text) {
  const std::vector<absl::string_view> days_and_rest = absl::StrSplit(text, '-');
  const std::vector<absl::string_view> parts = absl::StrSplit(days_and_rest.back(), ':');
  int64_t days = 0;
  const bool has_days = days_and_rest.size() == 2;
  if (days_and_rest.size() > 2 || parts.size() < 2 || parts.size() > 3 ||
      (has_days && !absl::SimpleAtoi(days_and_rest.front(), &days))) {
    return absl::InfiniteDuration();
  }
  absl::Duration rest;  // A Duration: what is too long for one is infinite.
  for (const absl::string_view part : parts) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(part, &number)) return absl::InfiniteDuration();
    rest = 60 * rest + absl::Seconds(number);
  }
  return days * absl::Hours(24) + rest;
}

// The line of the job itself: --jobs= of an array lists all of its tasks. A line that is not as it
// was asked for is none.
std::optional<SlurmJob> ReadJob(absl::string_view listing, uint32_t job) {
  for (const absl::string_view line : absl::StrSplit(listing, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, '|');
    if (words.size() != 7 || words[0] != absl::StrCat(job)) continue;
    SlurmJob found{.state = words[1],
                   .account = words[3],
                   .limit = ReadTimeLimit(words[5]),
                   .node_list = words[6]};
    if (found.account == "(null)") found.account.clear();
    if (!absl::SimpleAtoi(words[2], &found.user) || !absl::SimpleAtoi(words[4], &found.nodes)) {
      continue;
    }
    return found;
  }
  return std::nullopt;
}

// The right to see all comes first: a list that leaves some out would end their memory.
absl::StatusOr<std::set<uint32_t>> SystemSlurm::LiveJobs() {
  const auto config = Ask("scontrol show config");
  if (!config.ok()) return config.status();
  if (absl::Status status = CheckSeesAllJobs(*config, ::getuid()); !status.ok()) return status;
  const auto listing = Ask("squeue --noheader --local --all --array --states=all --format='%A %T'");
  if (!listing.ok()) return listing.status();
  return ReadJobs(*listing);
}

// squeue ends with an error for a job that it has forgotten, which is an answer; every other error
// is none.
absl::StatusOr<std::optional<SlurmJob>> SystemSlurm::FindJob(uint32_t job) {
  const auto listing =
      Ask(absl::StrCat("squeue --noheader --local --all --array --states=all "
                       "--format='%A|%T|%U|%a|%D|%l|%N' --jobs=",
                       job));
  if (listing.ok()) return ReadJob(*listing, job);
  if (absl::StrContains(listing.status().message(), kNoSuchJob)) return std::nullopt;
  return listing.status();
}

absl::StatusOr<std::vector<std::string>> SystemSlurm::NodeNames(const std::string& list) {
  // It goes through a shell.
  const bool plain = std::all_of(list.begin(), list.end(), [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("-_.,[]", c);
  });
  if (!plain) return absl::InternalError("squeue's list of nodes is none");
  const auto names = Ask(absl::StrCat("scontrol show hostnames '", list, "'"));
  if (!names.ok()) return names.status();
  return Lines(*names);
}

// A node is listed once for each partition that has it.
absl::StatusOr<std::vector<std::string>> SystemSlurm::AllNodes() {
  const auto names = Ask("sinfo --noheader --all --Node --format=%N");
  if (!names.ok()) return names.status();
  std::vector<std::string> nodes = Lines(*names);
  for (std::string& node : nodes) node = std::string(absl::StripAsciiWhitespace(node));
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

absl::StatusOr<std::string> SystemSlurm::BurstBuffers() { return Ask("scontrol show burst"); }

}  // namespace cxlpool::cli
