// Where the manager is and how to prove who we are: flags, then the environment, then one file.
//
// Each setting comes from the first of: its flag; CXLPOOL_MANAGER (only the address); the
// configuration file. The file is --config, else CXLPOOL_CONFIG, else the first that exists of
// $XDG_CONFIG_HOME/cxlpool/cli.toml (~/.config/...) and /etc/cxlpool/cli.toml. Files are never
// merged. Relative paths in a file are relative to its directory.
#ifndef CXLPOOL_TOOLS_CLI_SETTINGS_H_
#define CXLPOOL_TOOLS_CLI_SETTINGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/cli/invocation.h"

namespace cxlpool::cli {

struct ConnectionSettings {
  std::string manager;    // "fm.example:7443", "unix:/run/cxlpool/manager.sock"
  bool insecure = false;  // No TLS. Only for a Unix socket or a loopback address.
  std::string ca;         // PEM files, all three unless insecure.
  std::string cert;
  std::string key;
  std::string server_name;  // What the manager's certificate must show.
};

// The part of the environment that matters. Empty: not set.
struct Environment {
  std::string manager;                    // CXLPOOL_MANAGER
  std::string config;                     // CXLPOOL_CONFIG
  std::vector<std::string> config_files;  // Where to look, first found counts.
};
Environment ReadEnvironment();

// INVALID_ARGUMENT/BAD_CONFIG names the file, line and key; NOT_FOUND/NO_CONFIG: a file that was
// named is not there; INVALID_ARGUMENT/NO_MANAGER: no address anywhere;
// INVALID_ARGUMENT/BAD_ADDRESS: it is none; INVALID_ARGUMENT/NO_TLS: a TLS file is not given and
// the address needs it.
absl::StatusOr<ConnectionSettings> ResolveSettings(const ConnectionFlags& flags,
                                                   const Environment& environment);

// Reads one cli.toml: manager, ca, cert, key, server_name (texts), insecure (boolean), all
// optional; what is not there stays empty. NOT_FOUND/NO_CONFIG; INVALID_ARGUMENT/BAD_CONFIG: not
// TOML, an unknown key, a wrong type, or both insecure and TLS files.
absl::StatusOr<ConnectionSettings> ReadSettingsFile(const std::string& path);

// The same from text; `path` is for messages and relative paths. Any bytes.
absl::StatusOr<ConnectionSettings> ParseSettings(const std::string& text, const std::string& path);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_SETTINGS_H_
