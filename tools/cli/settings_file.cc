#include "tools/cli/settings_file.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "proto/support/toml_reader.h"
#include "tools/cli/nearest.h"

namespace cxlpool::cli {
namespace {

constexpr size_t kMaxName = 63;
constexpr size_t kMaxSlurmNames = 40;

// A name is given on command lines and written into the file: nothing that has to be quoted.
bool IsContextName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxName && name.front() != '-' &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_isalnum(c) || absl::StrContains("-_.", c); });
}

// As TOML has it in a table's name: a dot would begin another.
std::string AsKey(const std::string& name) {
  if (!IsContextName(name)) return "NAME";
  return absl::StrContains(name, ".") ? absl::StrCat("\"", name, "\"") : name;
}

// A key with an empty text is an error, and not the same as a key that is left out.
ConnectionSettings ReadTable(TomlReader& toml, const std::string& path) {
  const auto string = [&](const char* key) {
    std::string value = toml.String(key, "");
    if (value.empty() && toml.Has(key)) toml.Fail(key, "is empty", "fill it or take it away");
    return value;
  };
  const auto file = [&](const char* key) {
    const std::string value = string(key);
    return value.empty() ? value : (std::filesystem::path(path).parent_path() / value).string();
  };
  ConnectionSettings settings;
  settings.manager = string("manager");
  settings.server_name = string("server_name");
  settings.ca = file("ca");
  settings.cert = file("cert");
  settings.key = file("key");
  settings.token_file = file("token_file");
  settings.insecure = toml.Bool("insecure", false);
  const bool tls = !settings.ca.empty() || !settings.cert.empty() || !settings.key.empty();
  if (settings.insecure && tls) {
    toml.Fail("insecure", "excludes ca, cert and key", "keep one or the other");
  }
  return settings;
}

// Names are what the API takes; a pool's name is also written into JSON and read by Slurm up to a
// blank.
SlurmSettings ReadSlurmTable(TomlReader toml) {
  SlurmSettings settings;
  const auto id = [&](const char* key, std::string& value) {
    value = toml.String(key, value);
    if (toml.Has(key) && !CheckResourceId(value).ok()) {
      toml.Fail(key, "is no name", "use small letters, digits and dashes, a letter first");
    }
  };
  id("pool", settings.pool);
  id("prefix", settings.prefix);
  id("tenant", settings.tenant);
  // "slurm-1" would make of its job 5 what is node 5 of another cluster's job 1.
  if (absl::StrContains(settings.prefix, "-")) {
    toml.Fail("prefix", "has a dash", "use small letters and digits");
  }
  // The longest name of a Region is TENANT.PREFIX-JOB-NODE.
  if (settings.prefix.size() + settings.tenant.size() > kMaxSlurmNames) {
    toml.Fail("prefix", "is too long: with `tenant` it may have 40 characters", "shorten one");
  }
  settings.tenant_is_account = toml.Bool("tenant_is_account", false);
  if (settings.tenant_is_account && !settings.tenant.empty()) {
    toml.Fail("tenant_is_account", "excludes tenant", "keep one or the other");
  }
  settings.granule_bytes = toml.Size("granule", settings.granule_bytes);
  if (settings.granule_bytes == 0) toml.Fail("granule", "is 0", "give the devices' granule");
  settings.lease =
      toml.DurationIn("lease", settings.lease, absl::Seconds(10), absl::Hours(24 * 30));
  settings.wait = toml.DurationIn("wait", settings.wait, absl::Seconds(1), absl::Hours(24));
  settings.state = toml.AbsolutePath("state", settings.state);
  return settings;
}

}  // namespace

std::vector<std::string> SettingsFile::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, settings] : contexts) names.push_back(name);
  return names;
}

absl::StatusOr<SettingsFile> ParseSettings(const std::string& text, const std::string& path) {
  absl::StatusOr<TomlReader> toml = TomlReader::Parse(text, path);
  if (!toml.ok()) return toml.status();
  SettingsFile file;
  file.path = path;
  file.top = ReadTable(*toml, path);
  file.current = toml->String("current", "");
  file.slurm = ReadSlurmTable(toml->Table("slurm"));
  TomlReader contexts = toml->Table("contexts");
  for (const std::string& name : contexts.Keys()) {
    if (!IsContextName(name)) {
      contexts.Fail(name, "is no name for a context",
                    "use at most 63 letters, digits, dots, underscores and dashes");
    }
    TomlReader context = contexts.Table(name);
    file.contexts[name] = ReadTable(context, path);
  }
  if (toml->Has("current") && !file.contexts.contains(file.current)) {
    toml->Fail("current", "names no context of this file",
               file.contexts.empty()
                   ? "take it away, or write [contexts.NAME]"
                   : absl::StrCat("use one of ", absl::StrJoin(file.Names(), ", ")));
  }
  if (absl::Status status = toml->Finish(); !status.ok()) return status;
  return file;
}

absl::StatusOr<SettingsFile> ReadSettingsFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadConfigFile(path);
  if (!text.ok()) return text.status();
  return ParseSettings(*text, path);
}

absl::StatusOr<ConnectionSettings> ContextSettings(const SettingsFile& file,
                                                   const std::optional<std::string>& name) {
  if (!name.has_value() && file.current.empty()) return file.top;
  const std::string which = name.value_or(file.current);
  const auto found = file.contexts.find(which);
  if (found != file.contexts.end()) return found->second;
  const std::vector<std::string> names = file.Names();
  return Refuse(
      absl::StatusCode::kInvalidArgument, "UNKNOWN_CONTEXT",
      absl::StrCat("there is no context \"", which, "\" in ",
                   file.path.empty() ? "any configuration file" : file.path,
                   DidYouMean(Nearest(which, names))),
      names.empty()
          ? absl::StrCat("write [contexts.", AsKey(which), "] with manager = \"...\" into ",
                         file.path.empty() ? "~/.config/cxlpool/cli.toml" : file.path)
          : absl::StrCat("use one of ", absl::StrJoin(names, ", ")),
      {{"context", which}});
}

// A line of its own before the first table takes the place of the one that is there, or comes
// first. The result is read again: a text of several lines may look like a table or like a key.
absl::StatusOr<std::string> WithCurrent(const std::string& text, const std::string& path,
                                        const std::string& name) {
  const auto before = ParseSettings(text, path);
  if (!before.ok()) return before.status();
  if (const auto known = ContextSettings(*before, name); !known.ok()) return known.status();
  const std::string line = absl::StrCat("current = \"", name, "\"");
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  bool replaced = false;
  for (std::string& old : lines) {
    const absl::string_view words = absl::StripLeadingAsciiWhitespace(old);
    if (absl::StartsWith(words, "[")) break;
    absl::string_view rest = words;
    if (!absl::ConsumePrefix(&rest, "current")) continue;
    if (!absl::StartsWith(absl::StripLeadingAsciiWhitespace(rest), "=")) continue;
    const size_t comment = old.find('#');
    old = absl::StrCat(line, comment == std::string::npos ? "" : "  ",
                       comment == std::string::npos ? "" : old.substr(comment));
    replaced = true;
    break;
  }
  if (!replaced) lines.insert(lines.begin(), line);
  const std::string changed = absl::StrJoin(lines, "\n");
  const auto after = ParseSettings(changed, path);
  if (!after.ok() || after->current != name || after->top != before->top ||
      after->contexts != before->contexts || after->slurm != before->slurm) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "CANNOT_EDIT",
                  absl::StrCat(path, " is not changed: its `current` cannot be found for certain"),
                  absl::StrCat("write `", line, "` as its first line by hand"));
  }
  return changed;
}

}  // namespace cxlpool::cli
