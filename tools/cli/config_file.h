// cli.toml: manager, ca, cert, key, server_name (texts), insecure (boolean). All optional.
#ifndef CXLPOOL_TOOLS_CLI_CONFIG_FILE_H_
#define CXLPOOL_TOOLS_CLI_CONFIG_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/cli/settings.h"

namespace cxlpool::cli {

// Reads what is there; the rest stays empty. NOT_FOUND/NO_CONFIG; INVALID_ARGUMENT/BAD_CONFIG: not
// TOML, an unknown key, a wrong type, or both insecure and TLS files.
absl::StatusOr<ConnectionSettings> ReadSettingsFile(const std::string& path);

// The same from text; `path` is for messages and relative paths. Any bytes.
absl::StatusOr<ConnectionSettings> ParseSettings(const std::string& text, const std::string& path);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_CONFIG_FILE_H_
