#include "tools/cli/settings.h"

#include <stdlib.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/address.h"
#include "proto/support/refusal.h"
#include "proto/support/toml_reader.h"

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

// A file that was named must exist. Otherwise it is no error if there is none in the usual places.
absl::StatusOr<ConnectionSettings> FromFile(const ConnectionFlags& flags,
                                            const Environment& environment) {
  if (flags.config.has_value()) return ReadSettingsFile(*flags.config);
  if (!environment.config.empty()) return ReadSettingsFile(environment.config);
  for (const std::string& path : environment.config_files) {
    std::error_code error;
    if (std::filesystem::exists(path, error)) return ReadSettingsFile(path);
  }
  return ConnectionSettings{};
}

// All three are needed, because manager and client each show a certificate. Names the first that is
// missing.
absl::Status CheckTls(const ConnectionSettings& settings) {
  const struct {
    const char* key;
    const std::string& value;
  } files[] = {{"ca", settings.ca}, {"cert", settings.cert}, {"key", settings.key}};
  for (const auto& [key, value] : files) {
    if (!value.empty()) continue;
    return Missing("NO_TLS",
                   absl::StrCat("no ", key, " file is given for manager ", settings.manager),
                   absl::StrCat("set ", key, " in the configuration file or by --", key,
                                " (`cxlpool pki issue operator NAME` makes them), or give "
                                "--insecure for a loopback address"));
  }
  return absl::OkStatus();
}

}  // namespace

// If XDG_CONFIG_HOME is set, ~/.config is not looked at.
Environment ReadEnvironment() {
  Environment environment;
  environment.manager = Get("CXLPOOL_MANAGER");
  environment.config = Get("CXLPOOL_CONFIG");
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

// Flags come before the environment, and that before the file.
absl::StatusOr<ConnectionSettings> ResolveSettings(const ConnectionFlags& flags,
                                                   const Environment& environment) {
  absl::StatusOr<ConnectionSettings> settings = FromFile(flags, environment);
  if (!settings.ok()) return settings.status();
  if (!environment.manager.empty()) settings->manager = environment.manager;
  if (flags.manager.has_value()) settings->manager = *flags.manager;
  if (flags.ca.has_value()) settings->ca = *flags.ca;
  if (flags.cert.has_value()) settings->cert = *flags.cert;
  if (flags.key.has_value()) settings->key = *flags.key;
  if (flags.server_name.has_value()) settings->server_name = *flags.server_name;
  if (settings->server_name.empty()) settings->server_name = kServerName;
  if (settings->manager.empty()) {
    return Missing("NO_MANAGER", "no manager address is given",
                   "give --manager ADDRESS, set CXLPOOL_MANAGER, or write manager = \"...\" into "
                   "~/.config/cxlpool/cli.toml or /etc/cxlpool/cli.toml");
  }
  if (const auto address = ParseAddress(settings->manager); !address.ok()) return address.status();

  // A flag for TLS outweighs the file's "insecure", and the other way round.
  const bool tls_flags = flags.ca.has_value() || flags.cert.has_value() || flags.key.has_value();
  if (tls_flags) settings->insecure = false;
  if (flags.insecure) settings->insecure = true;
  // A Unix socket needs no TLS: its mode says who may connect.
  const bool no_files = settings->ca.empty() && settings->cert.empty() && settings->key.empty();
  if (no_files && absl::StartsWith(settings->manager, "unix:")) settings->insecure = true;
  if (settings->insecure) return settings;
  if (absl::Status status = CheckTls(*settings); !status.ok()) return status;
  return settings;
}

// A key with an empty text is an error, and not the same as a key that is left out.
absl::StatusOr<ConnectionSettings> ParseSettings(const std::string& text, const std::string& path) {
  absl::StatusOr<TomlReader> toml = TomlReader::Parse(text, path);
  if (!toml.ok()) return toml.status();
  const auto string = [&](const char* key) {
    const std::string value = toml->String(key, "");
    if (value.empty() && toml->Has(key)) toml->Fail(key, "is empty", "fill it or take it away");
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
  settings.insecure = toml->Bool("insecure", false);
  const bool tls = !settings.ca.empty() || !settings.cert.empty() || !settings.key.empty();
  if (settings.insecure && tls) {
    toml->Fail("insecure", "excludes ca, cert and key", "keep one or the other");
  }
  if (absl::Status status = toml->Finish(); !status.ok()) return status;
  return settings;
}

absl::StatusOr<ConnectionSettings> ReadSettingsFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadConfigFile(path);
  if (!text.ok()) return text.status();
  return ParseSettings(*text, path);
}

}  // namespace cxlpool::cli
