#include "tools/cli/config_file.h"

#include <filesystem>

#include "proto/support/toml_reader.h"

namespace cxlpool::cli {

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
