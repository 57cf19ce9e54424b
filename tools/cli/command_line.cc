#include "tools/cli/command_line.h"

#include <sstream>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/subcommands.h"

namespace cxlpool::cli {
namespace {

struct GlobalFlags {
  std::string output = "table";
  Flag timeout;
  ConnectionFlags connection;
};

void AddGlobals(CLI::App& app, GlobalFlags& flags, Chosen& chosen) {
  app.add_option("-o,--output", flags.output, "table (default) or json")
      ->check(CLI::IsMember({"table", "json"}));
  app.add_option("--manager", flags.connection.manager,
                 "HOST:PORT or unix:PATH (else CXLPOOL_MANAGER, else the configuration file)")
      ->type_name("ADDRESS");
  app.add_option("--timeout", flags.timeout, "Of one call with all its retries (default 10s)")
      ->type_name("DURATION");
  app.add_option("--request-id", chosen.request_id,
                 "UUID, to repeat a call that changes something (default: a new one)")
      ->type_name("UUID");
  app.add_option("--config", flags.connection.config,
                 "Configuration file (else CXLPOOL_CONFIG, ~/.config/cxlpool/cli.toml, "
                 "/etc/cxlpool/cli.toml)")
      ->type_name("FILE");
  auto* ca = app.add_option("--ca", flags.connection.ca, "The pool's CA certificate, PEM")
                 ->type_name("FILE");
  auto* cert =
      app.add_option("--cert", flags.connection.cert, "Own certificate, PEM")->type_name("FILE");
  auto* key = app.add_option("--key", flags.connection.key, "Its key, PEM")->type_name("FILE");
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

absl::Status Usage(std::string message, absl::string_view command) {
  return Refusal{.code = absl::StatusCode::kInvalidArgument,
                 .reason = "USAGE",
                 .message = std::move(message),
                 .remedy = absl::StrCat("read ", command, " --help"),
                 .metadata = {}}
      .ToStatus();
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

absl::StatusOr<Invocation> Finish(const GlobalFlags& flags, Chosen chosen,
                                  const std::string& path) {
  if (!chosen.command.ok()) return chosen.command.status();
  if (chosen.request_id.has_value() && !HasRequestId(*chosen.command)) {
    return Usage(absl::StrCat("--request-id has no use for ", path, " here: it names one change"),
                 path);
  }
  Invocation invocation;
  invocation.output = flags.output == "json" ? OutputFormat::kJson : OutputFormat::kTable;
  invocation.connection = flags.connection;
  invocation.command = *std::move(chosen.command);
  Fields fields;
  fields.Period("--timeout", flags.timeout, invocation.timeout);
  if (!fields.status().ok()) return fields.status();
  return invocation;
}

}  // namespace

absl::StatusOr<std::variant<Invocation, PrintText>> ParseCommandLine(int argc,
                                                                     const char* const* argv) {
  std::string path = "cxlpool";
  CLI::App app("Shares a pool of CXL memory among hosts: the operator's command.", "cxlpool");
  try {
    GlobalFlags flags;
    Chosen chosen;
    app.footer(ExitCodeHelp());
    app.fallthrough();
    app.set_version_flag("--version", std::string("cxlpool " CXLPOOL_VERSION));
    AddGlobals(app, flags, chosen);
    AddRegionCommands(app, chosen);
    AddInventoryCommands(app, chosen);
    AddPkiCommands(app, chosen);
    AddFsckCommand(app, chosen);
    app.require_subcommand(1);
    try {
      app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      return PrintText{app.help()};
    } catch (const CLI::CallForAllHelp&) {
      return PrintText{app.help("", CLI::AppFormatMode::All)};
    } catch (const CLI::CallForVersion& version) {
      return PrintText{absl::StrCat(version.what(), "\n")};
    }
    Innermost(app, path);
    absl::StatusOr<Invocation> invocation = Finish(flags, std::move(chosen), path);
    if (!invocation.ok()) return invocation.status();
    return *std::move(invocation);
  } catch (const CLI::ParseError& error) {
    Innermost(app, path);
    return Usage(error.what(), path);
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace cxlpool::cli
