#include "host-agent/check.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "host-agent/adapters/linux/linux_space.h"
#include "host-agent/adapters/linux/machine/examine_host.h"
#include "host-agent/adapters/linux/machine/host_policy.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kTextColumn = 26;  // Behind verdict and id.

absl::string_view NameOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kMissing:
      return "missing";
  }
  return "";
}

// Names of files and the manager's words come from elsewhere: they must not steer a terminal.
std::string Plain(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\t') c = ' ';
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

Finding FindingOf(std::string id, const absl::Status& status, std::string what) {
  if (status.ok()) return {std::move(id), Verdict::kOk, std::move(what), ""};
  std::optional<Refusal> refusal = RefusalOf(status);
  if (!refusal.has_value()) {
    return {std::move(id), Verdict::kMissing, std::string(status.message()),
            "fix what it says and check again"};
  }
  if (refusal->remedy.empty()) refusal->remedy = "fix what it says and check again";
  return {std::move(id), Verdict::kMissing, std::move(refusal->message),
          std::move(refusal->remedy)};
}

// `text` in lines that end before kColumns, from the column where the first one begins.
std::string Wrapped(absl::string_view text, size_t column) {
  const size_t begin = column;
  std::string out;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (column > begin && column + 1 + word.size() > kColumns) {
      absl::StrAppend(&out, "\n", std::string(begin, ' '));
      column = begin;
    } else if (column > begin) {
      out += ' ';
      ++column;
    }
    absl::StrAppend(&out, word);
    column += word.size();
  }
  return out;
}

size_t Count(const std::vector<Finding>& findings, Verdict verdict) {
  return static_cast<size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [verdict](const Finding& finding) { return finding.verdict == verdict; }));
}

// Of Plain text.
std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

}  // namespace

// Goes on after each finding: a person fixes all of them in one go. A configuration that cannot be
// read does not hide what the machine lacks. Questions that need TLS files are asked only once
// those can be used.
std::vector<Finding> CheckAgent(const HostFiles& files, const std::string& config_file,
                                const CheckQuestions& questions) {
  const absl::StatusOr<AgentConfig> config = LoadAgentConfig(config_file);
  std::vector<Finding> findings;
  if (!config.ok() || config->is_real_host()) {
    const bool whole = config.ok() && config->adapter == AgentConfig::Adapter::kShared;
    findings = ExamineHost(files, whole ? HostUse::kWhole : HostUse::kPlugged);
    if (whole) {
      findings.push_back(ExamineWholeDevices({.devices = config->shared_devices, .files = files}));
    }
    if (config.ok() && !config->tiering.empty()) {
      findings.push_back(ExamineTiering(files, config->tiering));
    }
  } else if (config->adapter == AgentConfig::Adapter::kShared) {
    findings.push_back(
        FindingOf("adapter", absl::OkStatus(), "files: the machine itself needs nothing"));
  } else {
    const absl::Status fabric =
        questions.emulated_fabric ? questions.emulated_fabric(*config) : absl::OkStatus();
    findings.push_back(FindingOf("adapter", fabric, "emulated: the machine itself needs nothing"));
  }
  findings.push_back(
      FindingOf("config", config.status(),
                config.ok() ? absl::StrCat(config_file, ": host ", config->host) : ""));
  if (config.ok()) {
    if (!config->drain_hook.empty() && questions.drain_hook) {
      findings.push_back(FindingOf("drain-hook", questions.drain_hook(*config),
                                   absl::StrCat(config->drain_hook, " can be run")));
    }
    const absl::Status credentials = questions.credentials(*config);
    findings.push_back(FindingOf(
        "credentials", credentials,
        config->tls.has_value() ? "TLS files can be used" : "none: the address needs no TLS"));
    if (credentials.ok() && questions.expiry) {
      for (std::string& warning : questions.expiry(*config)) {
        findings.push_back({"certificate", Verdict::kWarning, std::move(warning),
                            "renew it before it ends: afterwards no connection is accepted"});
      }
    }
    if (credentials.ok() && questions.manager) {
      const absl::StatusOr<std::string> answer = questions.manager(*config);
      findings.push_back(FindingOf("manager", answer.status(), answer.value_or("")));
    }
  }
  for (Finding& finding : findings) {
    finding.what = Plain(std::move(finding.what));
    finding.remedy = Plain(std::move(finding.remedy));
  }
  return findings;
}

bool IsFit(const std::vector<Finding>& findings) { return Count(findings, Verdict::kMissing) == 0; }

std::string CheckTable(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& finding : findings) {
    absl::StrAppendFormat(&out, "%-9s%-16s %s\n", NameOf(finding.verdict), finding.id,
                          Wrapped(finding.what, kTextColumn));
    if (finding.verdict == Verdict::kOk) continue;
    constexpr absl::string_view kRemedy = "remedy: ";
    absl::StrAppend(&out, std::string(kTextColumn, ' '), kRemedy,
                    Wrapped(finding.remedy, kTextColumn + kRemedy.size()), "\n");
  }
  const size_t missing = Count(findings, Verdict::kMissing);
  const size_t warnings = Count(findings, Verdict::kWarning);
  absl::StrAppendFormat(&out, "\nThis machine %s: %d missing, %d warning%s.\n",
                        missing == 0 ? "can use pool memory" : "cannot use pool memory yet",
                        missing, warnings, warnings == 1 ? "" : "s");
  return out;
}

std::string CheckJson(const std::vector<Finding>& findings) {
  std::string out =
      absl::StrCat("{\n  \"fit\": ", IsFit(findings) ? "true" : "false", ",\n  \"findings\": [");
  absl::string_view separator = "";
  for (const Finding& finding : findings) {
    absl::StrAppend(&out, separator, "\n    {\"id\": ", Quoted(finding.id),
                    ", \"verdict\": ", Quoted(NameOf(finding.verdict)),
                    ",\n     \"what\": ", Quoted(finding.what),
                    ",\n     \"remedy\": ", Quoted(finding.remedy), "}");
    separator = ",";
  }
  return absl::StrCat(out, "\n  ]\n}\n");
}

}  // namespace cxlpool::agent
