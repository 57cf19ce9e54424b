#include "tools/cli/settings.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/support/address.h"
#include "proto/support/refusal.h"

namespace cxlpool::cli {
namespace {

// The manager's certificates carry it as a DNS name, whatever the address it is reached by.
constexpr char kServerName[] = "fm.cxlpool";

std::string Get(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status Missing(std::string reason, std::string message, std::string remedy) {
  return Refuse(absl::StatusCode::kInvalidArgument, std::move(reason), std::move(message),
                std::move(remedy));
}

// All three are needed, because manager and client each show a certificate, unless the client has a
// token and no certificate. Names the first that is missing.
absl::Status CheckTls(const ConnectionSettings& settings) {
  const struct {
    const char* key;
    const std::string& value;
  } files[] = {{"ca", settings.ca}, {"cert", settings.cert}, {"key", settings.key}};
  const bool only_token =
      !settings.token_file.empty() && settings.cert.empty() && settings.key.empty();
  for (const auto& [key, value] : files) {
    if (!value.empty() || (only_token && &value != &settings.ca)) continue;
    return Missing("NO_TLS",
                   absl::StrCat("no ", key, " file is given for manager ", settings.manager),
                   absl::StrCat("set ", key, " in the configuration file or by --", key,
                                " (`cxlpool pki issue operator NAME` makes them), or give "
                                "--insecure for a loopback address"));
  }
  return absl::OkStatus();
}

// Whether all of them, with commas between, are Unix sockets.
bool AreSockets(const std::string& managers) {
  const std::vector<std::string> all = absl::StrSplit(managers, ',');
  return std::all_of(all.begin(), all.end(), [](const std::string& address) {
    return absl::StartsWith(absl::StripLeadingAsciiWhitespace(address), "unix:");
  });
}

// Whether the command line names a manager's Unix socket, and no certificate or token beside it.
// The socket is where somebody goes whose certificate or role is refused elsewhere: a certificate
// or a token that stands in the file is for the manager that the file names, and is not used there.
bool NamesOnlyASocket(const ConnectionFlags& flags) {
  const bool for_tls = flags.ca.has_value() || flags.cert.has_value() || flags.key.has_value() ||
                       flags.token_file.has_value();
  return flags.manager.has_value() && AreSockets(*flags.manager) && !for_tls;
}

}  // namespace

// If XDG_CONFIG_HOME is set, ~/.config is not looked at.
Environment ReadEnvironment() {
  Environment environment;
  environment.manager = Get("CXLPOOL_MANAGER");
  environment.config = Get("CXLPOOL_CONFIG");
  environment.token_file = Get("CXLPOOL_TOKEN_FILE");
  const std::string xdg = Get("XDG_CONFIG_HOME");
  const std::string home = Get("HOME");
  if (!xdg.empty()) {
    environment.config_files.push_back(absl::StrCat(xdg, "/cxlpool/cli.toml"));
  } else if (!home.empty()) {
    environment.config_files.push_back(absl::StrCat(home, "/.config/cxlpool/cli.toml"));
  }
  environment.config_files.push_back("/etc/cxlpool/cli.toml");
  return environment;
}

// A file that was named must exist. Otherwise it is no error if there is none in the usual places;
// but one that is there and cannot be read (a link that leads nowhere) is not passed over, or the
// next one's manager would be called in place of the user's. Where a folder may not be entered it
// is another user's: `setpriv --reuid` leaves HOME as it was.
absl::StatusOr<SettingsFile> FindSettingsFile(const ConnectionFlags& flags,
                                              const Environment& environment) {
  if (flags.config.has_value()) return ReadSettingsFile(*flags.config);
  if (!environment.config.empty()) return ReadSettingsFile(environment.config);
  for (const std::string& path : environment.config_files) {
    std::error_code error;
    const auto found = std::filesystem::symlink_status(path, error).type();
    if (found == std::filesystem::file_type::not_found) continue;
    if (error != std::errc::permission_denied) return ReadSettingsFile(path);
  }
  return SettingsFile{};
}

// Flags come before the environment, and that before the file.
absl::StatusOr<ConnectionSettings> MergeSettings(const SettingsFile& file,
                                                 const ConnectionFlags& flags,
                                                 const Environment& environment) {
  absl::StatusOr<ConnectionSettings> settings = ContextSettings(file, flags.context);
  if (!settings.ok()) return settings.status();
  if (NamesOnlyASocket(flags)) {
    settings->ca = settings->cert = settings->key = settings->token_file = "";
  }
  if (!environment.manager.empty() && !flags.context.has_value())
    settings->manager = environment.manager;
  if (flags.manager.has_value()) settings->manager = *flags.manager;
  if (flags.ca.has_value()) settings->ca = *flags.ca;
  if (flags.cert.has_value()) settings->cert = *flags.cert;
  if (flags.key.has_value()) settings->key = *flags.key;
  if (!environment.token_file.empty() && !flags.context.has_value()) {
    settings->token_file = environment.token_file;
  }
  if (flags.token_file.has_value()) settings->token_file = *flags.token_file;
  // A certificate on the command line is who the caller means to be.
  const bool own_certificate = flags.cert.has_value() || flags.key.has_value();
  if (own_certificate && !flags.token_file.has_value()) settings->token_file.clear();
  if (flags.server_name.has_value()) settings->server_name = *flags.server_name;
  if (settings->server_name.empty()) settings->server_name = kServerName;

  // A flag for TLS outweighs the file's "insecure", and the other way round.
  const bool tls_flags = flags.ca.has_value() || flags.cert.has_value() || flags.key.has_value();
  if (tls_flags) settings->insecure = false;
  if (flags.insecure) settings->insecure = true;
  // A Unix socket needs no TLS: its mode says who may connect.
  const bool no_files = settings->ca.empty() && settings->cert.empty() && settings->key.empty();
  if (no_files && AreSockets(settings->manager)) settings->insecure = true;
  return settings;
}

absl::StatusOr<ConnectionSettings> ResolveSettings(const ConnectionFlags& flags,
                                                   const Environment& environment) {
  const absl::StatusOr<SettingsFile> file = FindSettingsFile(flags, environment);
  if (!file.ok()) return file.status();
  absl::StatusOr<ConnectionSettings> settings = MergeSettings(*file, flags, environment);
  if (!settings.ok()) return settings.status();
  if (settings->manager.empty()) {
    return Missing("NO_MANAGER", "no manager address is given",
                   "give --manager ADDRESS, set CXLPOOL_MANAGER, or write manager = \"...\" into "
                   "~/.config/cxlpool/cli.toml or /etc/cxlpool/cli.toml");
  }
  if (const auto list = ParseAddressList(settings->manager); !list.ok()) return list.status();
  if (settings->insecure) return settings;
  if (absl::Status status = CheckTls(*settings); !status.ok()) return status;
  return settings;
}

}  // namespace cxlpool::cli
