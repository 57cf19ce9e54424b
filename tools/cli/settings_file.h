// One cli.toml: how to reach a manager, or several, each under a name of its own (a context).
//
//   current = "prod"          # Which one counts where --context names none.
//   [contexts.prod]
//   manager = "fm.rack7.example:7600"
//   ca = "prod/ca.pem"
//   [contexts.lab]
//   manager = "unix:/run/cxlpool-fm/fm.sock"
//
// The same settings at the top of the file count where no context is chosen. A context takes over
// none of them: a key for one pool is not shown to another pool's manager. [slurm] is for a Slurm
// cluster, whichever context counts.
#ifndef CXLPOOL_TOOLS_CLI_SETTINGS_FILE_H_
#define CXLPOOL_TOOLS_CLI_SETTINGS_FILE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cxlpool::cli {

struct ConnectionSettings {
  // "fm.example:7443", "unix:/run/cxlpool-fm/fm.sock"; several with commas between them.
  std::string manager;
  bool insecure = false;  // No TLS. Only for a Unix socket or a loopback address.
  std::string ca;         // PEM files, all three unless insecure; with a token `ca` is enough.
  std::string cert;
  std::string key;
  std::string token_file;   // Of a token, which counts in place of the certificate.
  std::string server_name;  // What the manager's certificate must show.

  bool operator==(const ConnectionSettings&) const = default;
};

// [slurm]: how `cxlpool slurm` serves a Slurm cluster.
struct SlurmSettings {
  std::string pool = "cxl";        // What jobs call it: pool=cxl.
  std::string prefix = "slurm";    // Of the Regions' names: another one for each cluster.
  std::string tenant = "";         // Whose the Regions are; empty: tenants/default.
  bool tenant_is_account = false;  // Each job's are of the tenant with the name of its account.
  uint64_t granule_bytes = uint64_t{256} << 20;
  absl::Duration lease = absl::Hours(24);
  absl::Duration wait = absl::Minutes(4);  // Of one step; less than OtherTimeout.
  std::string state = "/var/lib/cxlpool-slurm";

  bool operator==(const SlurmSettings&) const = default;
};

struct SettingsFile {
  std::string path;     // Empty: there is no file.
  std::string current;  // Empty: the settings at the top count.
  ConnectionSettings top;
  std::map<std::string, ConnectionSettings> contexts;
  SlurmSettings slurm;

  std::vector<std::string> Names() const;
};

// Reads one cli.toml: manager, ca, cert, key, token_file, server_name (texts), insecure (boolean),
// all optional; what is not there stays empty. Relative paths start at the file's directory.
// NOT_FOUND/NO_CONFIG; INVALID_ARGUMENT/BAD_CONFIG: not TOML, an unknown key, a wrong type, both
// insecure and TLS files, or a current context that is not there.
absl::StatusOr<SettingsFile> ReadSettingsFile(const std::string& path);

// The same from text; `path` is for messages and relative paths. Any bytes.
absl::StatusOr<SettingsFile> ParseSettings(const std::string& text, const std::string& path);

// The settings of the context `name`; without one of the current one, or those at the top.
// INVALID_ARGUMENT/UNKNOWN_CONTEXT says which there are.
absl::StatusOr<ConnectionSettings> ContextSettings(const SettingsFile& file,
                                                   const std::optional<std::string>& name);

// `text` with another current context and nothing else changed. FAILED_PRECONDITION/CANNOT_EDIT:
// the file is written in a way that this cannot change.
absl::StatusOr<std::string> WithCurrent(const std::string& text, const std::string& path,
                                        const std::string& name);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_SETTINGS_FILE_H_
