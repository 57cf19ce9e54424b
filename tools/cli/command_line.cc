#include "tools/cli/command_line.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/refusal.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/man_page.h"
#include "tools/cli/nearest.h"
#include "tools/cli/subcommands.h"

namespace cxlpool::cli {
namespace {

constexpr char kVersion[] = "cxlpool " CXLPOOL_VERSION;
// What the help of each command ends with.
constexpr char kCommonFooter[] =
    "Options for all commands (-o json, --manager, --timeout, ...) and exit codes: cxlpool --help";

constexpr std::pair<const char*, OutputFormat> kFormats[] = {{"table", OutputFormat::kTable},
                                                             {"json", OutputFormat::kJson},
                                                             {"yaml", OutputFormat::kYaml},
                                                             {"name", OutputFormat::kName}};

// What is no format is refused before anything is printed in it.
OutputFormat FormatOf(absl::string_view text) {
  for (const auto& [word, format] : kFormats) {
    if (text == word) return format;
  }
  return OutputFormat::kTable;
}

struct GlobalFlags {
  std::string output = "table";
  bool no_headers = false;
  bool fail_fast = false;
  bool verbose = false;
  Flag timeout;
  ConnectionFlags connection;
};

// The flags that every command takes.
void AddGlobals(CLI::App& app, GlobalFlags& flags, Chosen& chosen) {
  std::vector<std::string> formats;
  for (const auto& [word, format] : kFormats) formats.push_back(word);
  app.add_option("-o,--output", flags.output, "table (default), json, yaml, or name: only names")
      ->type_name("FORMAT")
      ->check(CLI::IsMember(formats));
  app.add_flag("--no-headers", flags.no_headers, "Tables without the names of their columns");
  app.add_option("--context", flags.connection.context,
                 "The manager of this name in the configuration file (cxlpool context list)")
      ->type_name("CONTEXT");
  app.add_option("--manager", flags.connection.manager,
                 "HOST:PORT or unix:PATH; of several managers all, with commas between them "
                 "(else CXLPOOL_MANAGER, else the configuration file)")
      ->type_name("ADDRESS");
  app.add_option("--timeout", flags.timeout, "Of one call with all its retries (default 10s)")
      ->type_name("DURATION");
  app.add_flag("--fail-fast", flags.fail_fast,
               "Try each call once at each manager, for programs that try again");
  app.add_option("--request-id", chosen.request_id,
                 "UUID, to repeat a call that changes something (default: a new one)")
      ->type_name("UUID");
  app.add_flag(
      "--verbose", flags.verbose,
      "Say the request id of each change on stderr: the journals of manager and agents have it");
  app.add_option("--config", flags.connection.config,
                 "Configuration file (else CXLPOOL_CONFIG, ~/.config/cxlpool/cli.toml, "
                 "/etc/cxlpool/cli.toml)")
      ->type_name("FILE");
  auto* ca = app.add_option("--ca", flags.connection.ca, "The pool's CA certificate, PEM")
                 ->type_name("FILE");
  auto* cert =
      app.add_option("--cert", flags.connection.cert, "Own certificate, PEM")->type_name("FILE");
  auto* key = app.add_option("--key", flags.connection.key, "Its key, PEM")->type_name("FILE");
  app.add_option("--token-file", flags.connection.token_file,
                 "A token to show in place of a certificate (else CXLPOOL_TOKEN_FILE)")
      ->type_name("FILE");
  app.add_option("--server-name", flags.connection.server_name,
                 "What the manager's certificate must show (default fm.cxlpool)")
      ->type_name("DNS-NAME");
  app.add_flag("--insecure", flags.connection.insecure, "No TLS; only for a loopback address")
      ->excludes(ca)
      ->excludes(cert)
      ->excludes(key);
}

// The innermost subcommand that was named, for "cxlpool region allocate --help".
const CLI::App* Innermost(const CLI::App& app, std::string& path) {
  const CLI::App* at = &app;
  path = "cxlpool";
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    absl::StrAppend(&path, " ", at->get_name());
  }
  return at;
}

// Habits from other programs, by what they are called here.
std::string ByHabit(absl::string_view word) {
  constexpr std::pair<absl::string_view, absl::string_view> kHabits[] = {
      {"create", "allocate"}, {"alloc", "allocate"}, {"describe", "show"}, {"info", "show"},
      {"status", "show"},     {"free", "release"},   {"new", "allocate"},  {"enroll", "enrol"}};
  for (const auto& [habit, name] : kHabits) {
    if (word == habit) return std::string(name);
  }
  return "";
}

// What no command and no option takes, and what was probably meant; empty: there is no such word.
std::string UnknownWord(const CLI::App& app, const CLI::App& at) {
  for (const std::string& word : app.remaining(true)) {
    if (word == "--") continue;
    std::vector<std::string> known;
    const bool option = absl::StartsWith(word, "-");
    if (option) {
      for (const CLI::App* from : {&at, &app}) {
        for (const CLI::Option* one : from->get_options()) {
          for (const std::string& name : one->get_lnames()) known.push_back("--" + name);
        }
      }
    } else {
      const auto subcommands = at.get_subcommands([](const CLI::App*) { return true; });
      if (subcommands.empty()) break;  // A word too many.
      for (const CLI::App* one : subcommands) {
        known.push_back(one->get_name());
        known.insert(known.end(), one->get_aliases().begin(), one->get_aliases().end());
      }
    }
    std::string meant = option ? "" : ByHabit(word);
    if (std::find(known.begin(), known.end(), meant) == known.end()) meant = "";
    if (meant.empty()) meant = Nearest(word.substr(0, word.find('=')), known);
    return absl::StrCat(option ? "unknown option \"" : "unknown command \"",
                        absl::CHexEscape(word.substr(0, 80)), "\"", DidYouMean(meant));
  }
  return "";
}

absl::Status Usage(std::string message, absl::string_view command) {
  return Refuse(absl::StatusCode::kInvalidArgument, "USAGE", std::move(message),
                absl::StrCat("read `", command, " --help`"));
}

// Whether it changes something, and so has a request_id.
bool HasRequestId(const Command& command) {
  const auto* pool = std::get_if<PoolCommand>(&command);
  if (pool == nullptr) return false;
  return std::visit(
      [](const auto& chosen) {
        if constexpr (requires { chosen.request.request_id(); }) return true;
        return false;
      },
      *pool);
}

// Whether its answer is of resources that have names.
bool HasNames(const Command& command) {
  if (std::holds_alternative<ContextCommand>(command)) return true;
  const auto* pool = std::get_if<PoolCommand>(&command);
  return pool != nullptr && !std::holds_alternative<ShowCapacity>(*pool) &&
         !std::holds_alternative<Explain>(*pool) && !std::holds_alternative<ShowTopology>(*pool) &&
         !std::holds_alternative<ShowTop>(*pool) && !std::holds_alternative<ShowReport>(*pool) &&
         !std::holds_alternative<ApplyTopology>(*pool) && !std::holds_alternative<Backup>(*pool) &&
         !std::holds_alternative<WatchRegions>(*pool) &&
         !std::holds_alternative<ListHolders>(*pool) &&
         !std::holds_alternative<RemoveHost>(*pool) &&
         !std::holds_alternative<RemoveTenant>(*pool) &&
         !std::holds_alternative<RestoreCertificate>(*pool) &&
         !std::holds_alternative<RevokeAccess>(*pool) &&
         !std::holds_alternative<CreateToken>(*pool) &&
         !std::holds_alternative<ListEvents>(*pool) && !std::holds_alternative<VerifyAudit>(*pool);
}

absl::StatusOr<Invocation> Finish(const GlobalFlags& flags, Chosen chosen,
                                  const std::string& path) {
  if (!chosen.command.ok()) return chosen.command.status();
  if (chosen.request_id.has_value() && !HasRequestId(*chosen.command)) {
    return Usage(absl::StrCat("--request-id has no use for ", path, " here: it names one change"),
                 path);
  }
  Invocation invocation;
  invocation.output = FormatOf(flags.output);
  if (invocation.output == OutputFormat::kName && !HasNames(*chosen.command)) {
    return Usage(absl::StrCat("-o name: what ", path, " prints has no names"), path);
  }
  invocation.headers = !flags.no_headers;
  invocation.watch = chosen.watch;
  invocation.fail_fast = flags.fail_fast;
  invocation.verbose = flags.verbose;
  invocation.connection = flags.connection;
  invocation.command = *std::move(chosen.command);
  Fields fields;
  fields.Period("--timeout", flags.timeout, invocation.timeout);
  if (!fields.status().ok()) return fields.status();
  return invocation;
}

void AddHelpAndVersion(CLI::App& app, Chosen& chosen) {
  app.set_version_flag("-v,--version", kVersion);
  app.add_subcommand("version", "Show the version")->callback([&chosen] {
    chosen.wants_version = true;
  });
  CLI::App* help = app.add_subcommand("help", "Show the help of a command");
  auto words = std::make_shared<std::vector<std::string>>();
  help->add_option("COMMAND", *words, "Its words, as in: help region release")->type_name("");
  help->callback([words, &chosen] { chosen.wants_help = *words; });
  help->add_flag("--man", chosen.wants_man)->group("");  // For the build.
}

void AddCompletion(CLI::App& app, Chosen& chosen) {
  CLI::App* completion = app.add_subcommand(
      "completion", "Print what has a shell complete commands, options and the pool's names");
  auto shell = std::make_shared<std::string>();
  completion->add_option("SHELL", *shell, "bash, zsh or fish")
      ->type_name("")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer("For this shell: source <(cxlpool completion bash)");
  completion->callback([shell, &chosen] { chosen.wants_script_for = *shell; });
}

// Everything that a line may have.
void AddAll(CLI::App& app, GlobalFlags& flags, Chosen& chosen) {
  // Commands take it over as they are added.
  app.footer(kCommonFooter);
  app.fallthrough();
  AddGlobals(app, flags, chosen);
  AddRegionCommands(app, chosen);
  AddInventoryCommands(app, chosen);
  AddAccessCommands(app, chosen);
  AddEventCommands(app, chosen);
  AddContextCommands(app, chosen);
  AddPkiCommands(app, chosen);
  AddFsckCommand(app, chosen);
  AddQuickstartCommand(app, chosen);
  AddRunCommand(app, chosen);
  AddSlurmCommands(app, chosen);
  AddHelpAndVersion(app, chosen);
  AddCompletion(app, chosen);
  app.footer(ExitCodeHelp());
  app.require_subcommand(1);
}

// "cxlpool help region release" as "cxlpool region release --help".
absl::StatusOr<CommandLine> Help(const std::vector<std::string>& words) {
  std::vector<const char*> argv = {"cxlpool"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  argv.push_back("--help");
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data());
}

}  // namespace

// CLI11 reports by exceptions: none leaves this function. A mistyped word is looked for before
// CLI11's own message, which would only say that something is missing.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv) {
  std::string path = "cxlpool";
  CLI::App app("Shares a pool of CXL memory among hosts: the operator's command.", "cxlpool");
  try {
    GlobalFlags flags;
    Chosen chosen;
    AddAll(app, flags, chosen);
    if (argc > 2 && argv[1] == std::string(kCompleteCommand)) {
      return FindCandidates(app, {argv + 2, argv + argc});
    }
    try {
      app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      const CLI::App* at = Innermost(app, path);
      const std::string unknown = UnknownWord(app, *at);
      if (!unknown.empty()) return Usage(unknown, path);
      return PrintText{app.help()};
    } catch (const CLI::CallForVersion&) {
      chosen.wants_version = true;
    }
    if (chosen.wants_version) return PrintText{kVersion + std::string("\n")};
    if (chosen.wants_man) return PrintText{ManSections(app, kCommonFooter)};
    if (chosen.wants_help.has_value()) return Help(*chosen.wants_help);
    if (chosen.wants_script_for.has_value()) {
      return PrintText{CompletionScript(*chosen.wants_script_for)};
    }
    Innermost(app, path);
    absl::StatusOr<Invocation> invocation = Finish(flags, std::move(chosen), path);
    if (!invocation.ok()) return invocation.status();
    return *std::move(invocation);
  } catch (const CLI::ParseError& error) {
    const std::string unknown = UnknownWord(app, *Innermost(app, path));
    return Usage(unknown.empty() ? error.what() : unknown, path);
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

OutputFormat WantedFormat(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view word = argv[i];
    if ((word == "-o" || word == "--output") && i + 1 < argc) return FormatOf(argv[i + 1]);
    for (const char* before : {"--output=", "-o=", "-o"}) {
      if (absl::ConsumePrefix(&word, before)) return FormatOf(word);
    }
  }
  return OutputFormat::kTable;
}

}  // namespace cxlpool::cli
