// Reads one TOML file strictly: every key has a type and a place, and one that was not asked for is
// an error. The first error is kept and the rest reads as defaults, so callers check once, at the
// end, with Finish().
//
// Not thread-safe. No exception leaves it.
#ifndef CXLPOOL_PROTO_SUPPORT_TOML_READER_H_
#define CXLPOOL_PROTO_SUPPORT_TOML_READER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/support/log.h"

namespace cxlpool {

// The whole file. NOT_FOUND/NO_CONFIG names it; larger than 1 MiB: INVALID_ARGUMENT/BAD_CONFIG.
absl::StatusOr<std::string> ReadConfigFile(const std::string& file);

class TomlReader {
 public:
  // INVALID_ARGUMENT/BAD_CONFIG with file, line and what TOML wants.
  static absl::StatusOr<TomlReader> Parse(absl::string_view text, const std::string& file);

  TomlReader(TomlReader&&) noexcept;
  TomlReader& operator=(TomlReader&&) noexcept;
  ~TomlReader();

  // Values of this table. A missing key gives `otherwise`; without one it is an error.
  std::string String(const std::string& key, std::optional<std::string> otherwise = std::nullopt);
  bool Bool(const std::string& key, std::optional<bool> otherwise = std::nullopt);
  uint64_t Number(const std::string& key, std::optional<uint64_t> otherwise = std::nullopt);
  uint64_t Size(const std::string& key, std::optional<uint64_t> otherwise = std::nullopt);
  absl::Duration Duration(const std::string& key,
                          std::optional<absl::Duration> otherwise = std::nullopt);  // "250ms"
  // The same, from `min` to `max`.
  absl::Duration DurationIn(const std::string& key, absl::Duration otherwise, absl::Duration min,
                            absl::Duration max);
  // A path that begins with "/". Empty only where `otherwise` is.
  std::string AbsolutePath(const std::string& key,
                           std::optional<std::string> otherwise = std::nullopt);
  // As ParseAddress takes it (address.h); `local`: one that may do without TLS.
  std::string AddressText(const std::string& key, bool local);
  // Likewise, one or several, as ParseAddressList takes them.
  std::vector<std::string> AddressList(const std::string& key, bool local);
  // As ParseLogLevel takes it; kInfo where the key is not there.
  LogLevel Level(const std::string& key);
  // Empty where the key is not there; so is the next.
  std::vector<uint64_t> Numbers(const std::string& key);
  std::vector<std::string> Strings(const std::string& key);
  bool Has(const std::string& key) const;
  // Of this table, in order; for tables whose keys are names.
  std::vector<std::string> Keys() const;
  // `key`, with all that is in it, is another program's: Finish does not call it unknown.
  void LeaveAlone(const std::string& key);

  // [key], empty where there is none; and every [[key]]. They share this reader's error.
  TomlReader Table(const std::string& key);
  std::vector<TomlReader> Tables(const std::string& key);

  // Keeps `message` and `remedy` as the error of `key`, with its line, if there is none yet.
  void Fail(const std::string& key, const std::string& message, const std::string& remedy);

  // Where `key` stands, as errors name it: "FILE:LINE: TABLE.KEY".
  std::string Where(const std::string& key) const;

  // The first error, of this reader and all that came from it; else the first unknown key.
  absl::Status Finish();

 private:
  struct File;
  struct Node;
  TomlReader(std::shared_ptr<File> file, std::shared_ptr<Node> node);

  // Fails with `status`, or with what is wrong with an address that is to do without TLS.
  void CheckAddresses(const std::string& key, absl::Status status,
                      const std::vector<std::string>& addresses, bool local);

  std::shared_ptr<File> file_;
  std::shared_ptr<Node> node_;
};

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_TOML_READER_H_
