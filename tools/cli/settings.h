// Where the manager is and how to prove who we are: flags, then the environment, then one file.
//
// Each setting comes from the first of: its flag; CXLPOOL_MANAGER (the address) and
// CXLPOOL_TOKEN_FILE; the configuration file. The file is --config, else CXLPOOL_CONFIG, else the
// first that exists of $XDG_CONFIG_HOME/cxlpool/cli.toml (~/.config/...) and /etc/cxlpool/cli.toml.
// Files are never merged. Of a file with contexts the one counts that --context names, else its
// current one; with
// --context CXLPOOL_MANAGER is not looked at, for it means another manager. Where --manager names
// Unix sockets, certificates and tokens count that are given by flags too, and not those of the
// file.
#ifndef CXLPOOL_TOOLS_CLI_SETTINGS_H_
#define CXLPOOL_TOOLS_CLI_SETTINGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/cli/invocation.h"
#include "tools/cli/settings_file.h"

namespace cxlpool::cli {

// The part of the environment that matters. Empty: not set.
struct Environment {
  std::string manager = {};                    // CXLPOOL_MANAGER
  std::string config = {};                     // CXLPOOL_CONFIG
  std::string token_file = {};                 // CXLPOOL_TOKEN_FILE
  std::vector<std::string> config_files = {};  // Where to look, first found counts.
};
Environment ReadEnvironment();

// The file that counts; one without a path where there is none. NOT_FOUND/NO_CONFIG: one that was
// named is not there, or one that is there cannot be read; INVALID_ARGUMENT/BAD_CONFIG names the
// file, line and key.
absl::StatusOr<SettingsFile> FindSettingsFile(const ConnectionFlags& flags,
                                              const Environment& environment);

// What counts, whether it is enough to call a manager or not. INVALID_ARGUMENT/UNKNOWN_CONTEXT.
absl::StatusOr<ConnectionSettings> MergeSettings(const SettingsFile& file,
                                                 const ConnectionFlags& flags,
                                                 const Environment& environment);

// What counts, fit to call a manager with. Errors of the two above, and INVALID_ARGUMENT with
// NO_MANAGER: no address anywhere; BAD_ADDRESS: it is none; NO_TLS: a TLS file is not given and the
// address needs it.
absl::StatusOr<ConnectionSettings> ResolveSettings(const ConnectionFlags& flags,
                                                   const Environment& environment);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_SETTINGS_H_
