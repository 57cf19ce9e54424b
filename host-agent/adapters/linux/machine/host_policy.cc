#include "host-agent/adapters/linux/machine/host_policy.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "host-agent/adapters/linux/observe_host.h"
#include "host-agent/support/run_file.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr absl::string_view kPolicyFile = "kernel policy";
constexpr absl::string_view kWeights = "weighted_interleave";
constexpr size_t kMaxPolicyBytes = 64 << 10;  // Of a line for each of 1024 nodes.
constexpr size_t kMaxValue = 16;

std::string PathOf(const std::string& name) {
  if (name == "numa_balancing") return "proc/sys/kernel/numa_balancing";
  return absl::StrCat("sys/kernel/mm/", absl::StartsWith(name, kWeights) ? "mempolicy/" : "numa/",
                      name);
}

// One word, as all of these settings are.
bool IsValue(absl::string_view text) {
  return !text.empty() && text.size() <= kMaxValue &&
         std::all_of(text.begin(), text.end(), absl::ascii_isalnum);
}

// Leaves out a setting whose file is missing or holds anything but one plain word: this kernel does
// not have it.
PolicyValues ReadPolicy(const HostFiles& files) {
  std::vector<std::string> names = {"demotion_enabled", "numa_balancing"};
  for (const std::string& name : files.List(PathOf(std::string(kWeights)))) {
    names.push_back(absl::StrCat(kWeights, "/", name));
  }
  PolicyValues values;
  for (std::string& name : names) {
    if (!IsPolicyName(name)) continue;
    std::optional<std::string> value = files.Read(PathOf(name));
    if (value.has_value() && IsValue(*value)) values.emplace(std::move(name), *std::move(value));
  }
  return values;
}

absl::Status CannotSave(const std::string& file, int error) {
  return absl::UnavailableError(
      absl::StrCat(file, " cannot be written: ", ErrnoText(error),
                   "; the kernel's memory policy stays as it is, since it could not be restored "
                   "(make the folder writable to the agent)"));
}

}  // namespace

LinuxHostPolicy::LinuxHostPolicy(HostFiles files, std::string file)
    : files_(std::move(files)), file_(std::move(file)), boot_id_(ReadBootId(files_)) {}

PolicyValues LinuxHostPolicy::Read() { return ReadPolicy(files_); }

// Reads the setting back, because the kernel may accept a value without effect. The name is checked
// because it becomes part of a path.
absl::Status LinuxHostPolicy::Write(const std::string& name, const std::string& value) {
  if (!IsPolicyName(name) || !IsValue(value)) {
    return absl::InternalError(absl::StrCat(name, " is no setting of memory policy"));
  }
  const std::string path = PathOf(name);
  const int error = files_.Write(path, value);
  if (error == 0 && files_.Read(path) == value) return absl::OkStatus();
  // Linux 7, of auto: it is on after every boot, but once off it can be switched on again only with
  // bandwidths from the firmware.
  if (error == ENODEV) {
    return Refuse(
        absl::StatusCode::kUnimplemented, kTieringUnsupported,
        absl::StrCat("/", path, " cannot be set to ", value,
                     ": the firmware reports no bandwidths to the kernel (ACPI HMAT, CDAT)"),
        "nothing; the weights are what they were");
  }
  return Refuse(absl::StatusCode::kInternal, "POLICY_WRITE",
                absl::StrCat("/", path, " cannot be set to ", value, ": ",
                             error == 0 ? "the kernel took it without effect" : ErrnoText(error)),
                error == EACCES || error == EPERM ? "run as root, as the systemd unit does"
                                                  : "look at the kernel's log");
}

// All or nothing: if one line is not understood, nothing counts as saved.
SavedPolicy LinuxHostPolicy::Saved() {
  const auto lines = ReadRunFile(file_, kMaxPolicyBytes, kPolicyFile, boot_id_);
  if (!lines.has_value()) return {};
  SavedPolicy saved;
  for (const std::string& line : *lines) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() != 3 || !IsPolicyName(words[0]) || !IsValue(words[1]) || !IsValue(words[2])) {
      return {};
    }
    saved[words[0]] = {words[1], words[2]};
  }
  return saved;
}

// After an error the caller must not write any setting, because its former value could not be
// restored.
absl::Status LinuxHostPolicy::Save(const SavedPolicy& saved) {
  if (saved.empty()) {
    if (unlink(file_.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
    return CannotSave(file_, errno);
  }
  if (boot_id_.empty()) return CannotSave(file_, ENODATA);  // It would be ignored.
  std::string text;
  for (const auto& [name, setting] : saved) {
    absl::StrAppend(&text, name, " ", setting.before, " ", setting.ours, "\n");
  }
  const int error = WriteRunFile(file_, kPolicyFile, boot_id_, text);
  return error == 0 ? absl::OkStatus() : CannotSave(file_, error);
}

// Looks for the settings that the agent would want while memory of the pool is online. Without a
// node of the pool it would want none, so -1 stands for such a node, whether or not there is one
// now.
Finding ExamineTiering(const HostFiles& files, const TieringConfig& config) {
  const PolicyValues now = ReadPolicy(files);
  // The pool's nodes need not be there yet, nor their weights.
  TieringConfig on_own_nodes = config;
  on_own_nodes.pool_weight.reset();
  const std::vector<int> own = ReadOwnNodes(files);
  std::vector<std::string> missing;
  for (const auto& [name, value] :
       WantedPolicy(on_own_nodes, {{own.begin(), own.end()}, {-1}}, now)) {
    if (!now.contains(name)) missing.push_back(absl::StrCat("/", PathOf(name)));
  }
  const std::string weights = PathOf(std::string(kWeights));
  if (config.pool_weight.has_value() && !files.Exists(weights)) {
    missing.push_back(absl::StrCat("/", weights));
  }
  if (missing.empty()) {
    return {"tiering", Verdict::kOk, "the kernel has what [tiering] sets", ""};
  }
  return {"tiering", Verdict::kWarning,
          absl::StrCat(kTieringUnsupported, ": [tiering] sets what this kernel does not have: ",
                       absl::StrJoin(missing, ", ")),
          "remove it from [tiering], or use a kernel that has it (Linux 6.12 with CONFIG_NUMA, "
          "CONFIG_MIGRATION and CONFIG_NUMA_BALANCING)"};
}

}  // namespace cxlpool::agent
