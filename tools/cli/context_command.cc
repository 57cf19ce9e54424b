#include "tools/cli/context_command.h"

#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/support/toml_reader.h"
#include "tools/cli/render/error_text.h"
#include "tools/cli/render/table.h"
#include "tools/pki/pem_file.h"

namespace cxlpool::cli {
namespace {

// One context with all of its settings, for programs.
std::string ContextJson(const std::string& name, const ConnectionSettings& settings, bool current) {
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return absl::StrCat(
      "{\"name\": ", Quoted(name), ", \"current\": ", flag(current),
      ", \"manager\": ", Quoted(settings.manager), ", \"insecure\": ", flag(settings.insecure),
      ", \"ca\": ", Quoted(settings.ca), ", \"cert\": ", Quoted(settings.cert),
      ", \"key\": ", Quoted(settings.key), ", \"token_file\": ", Quoted(settings.token_file),
      ", \"server_name\": ", Quoted(settings.server_name), "}");
}

// JSON: {"file": PATH, "contexts": [{"name", "current", "manager", ...}]}.
absl::Status List(const SettingsFile& file, Printer& printer) {
  std::string json, names;
  Table table({{"NAME"}, {"CURRENT"}, {"MANAGER"}, {"CERTIFICATE"}});
  for (const auto& [name, settings] : file.contexts) {
    const bool current = name == file.current;
    absl::StrAppend(&json, json.empty() ? "" : ", ", ContextJson(name, settings, current));
    absl::StrAppend(&names, name, "\n");
    table.AddRow({name, current ? "current" : "", settings.manager, settings.cert});
  }
  if (printer.format == OutputFormat::kName) return Write(printer, names);
  // A Table has always a line of headers: without them it begins behind that.
  if (!printer.for_programs()) {
    const std::string text = table.ToString();
    return Write(printer, printer.headers ? text : text.substr(text.find('\n') + 1));
  }
  return WriteJson(
      printer, absl::StrCat("{\"file\": ", Quoted(file.path), ", \"contexts\": [", json, "]}\n"));
}

// What counts for a call, and where the manager's address comes from: an option goes before the
// environment, and that before the file, but a context that is named goes before the environment.
// JSON: {"file": PATH, "context": {...}}; its name is empty where it has none.
absl::Status Show(const SettingsFile& file, const ConnectionFlags& flags,
                  const Environment& environment, Printer& printer) {
  const auto settings = MergeSettings(file, flags, environment);
  if (!settings.ok()) return settings.status();
  const std::string shown = flags.context.value_or(file.current);
  const bool current = shown == file.current;
  if (printer.format == OutputFormat::kName) return Write(printer, absl::StrCat(shown, "\n"));
  if (printer.for_programs()) {
    return WriteJson(printer, absl::StrCat("{\"file\": ", Quoted(file.path), ", \"context\": ",
                                           ContextJson(shown, *settings, current), "}\n"));
  }
  Sheet sheet;
  sheet.Add("Context", shown.empty() ? "(none: the settings at the top of the file)"
                                     : absl::StrCat(shown, current ? " (current)" : ""));
  sheet.Add("File", file.path.empty() ? "(none)" : file.path);
  const bool by_environment = !environment.manager.empty() && !flags.context.has_value();
  sheet.Add("Manager", absl::StrCat(settings->manager, flags.manager.has_value() ? " (--manager)"
                                                       : by_environment ? " (CXLPOOL_MANAGER)"
                                                                        : ""));
  sheet.Add("TLS", settings->insecure ? "none (insecure)" : "");
  sheet.Add("CA", settings->ca);
  sheet.Add("Certificate", settings->cert);
  sheet.Add("Key", settings->key);
  sheet.Add("Token", settings->token_file);
  sheet.Add("Server name", settings->server_name);
  return Write(printer, sheet.ToString());
}

// Makes a context of the file the one that counts, and shows it as it counts from then on. The file
// appears whole, with the mode and owner that it had; of a link the file that it leads to is
// written. Nothing is written where the context is not there or the file cannot be read.
absl::Status Use(const SettingsFile& file, const std::string& name, Printer& printer) {
  if (const auto known = ContextSettings(file, name); !known.ok()) return known.status();
  std::error_code error;
  const std::string path = std::filesystem::canonical(file.path, error).string();
  const auto text = ReadConfigFile(error ? file.path : path);
  if (!text.ok()) return text.status();
  const auto changed = WithCurrent(*text, file.path, name);
  if (!changed.ok()) return changed.status();
  struct stat found;
  // Where that cannot be found out it is its owner's alone, for it may name keys.
  const mode_t mode = stat(path.c_str(), &found) == 0 ? found.st_mode & 0777 : 0600;
  if (absl::Status status = pki::WritePemFile(path, *changed, mode, /*replace=*/true);
      !status.ok()) {
    return status;
  }
  const auto after = ParseSettings(*changed, file.path);
  if (!after.ok()) return after.status();
  return Show(*after, {.context = name}, {}, printer);
}

}  // namespace

// Asks no manager. A context that `show` names goes before --context.
absl::Status Execute(const ContextCommand& command, const ConnectionFlags& flags,
                     const Environment& environment, Printer& printer) {
  const auto file = FindSettingsFile(flags, environment);
  if (!file.ok()) return file.status();
  switch (command.verb) {
    case ContextCommand::Verb::kUse:
      return Use(*file, command.name.value_or(""), printer);
    case ContextCommand::Verb::kShow: {
      ConnectionFlags shown = flags;
      if (command.name.has_value()) shown.context = command.name;
      return Show(*file, shown, environment, printer);
    }
    case ContextCommand::Verb::kList:
      break;
  }
  return List(*file, printer);
}

}  // namespace cxlpool::cli
