#include "proto/support/toml_reader.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/support/address.h"
#include "proto/support/byte_size.h"
#include "proto/support/refusal.h"

namespace cxlpool {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

absl::Status BadConfig(const std::string& where, const std::string& message,
                       const std::string& remedy) {
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                absl::StrCat(where, ": ", message), remedy);
}

}  // namespace

// At most kMaxFileBytes: one byte more is read, to see whether the file is longer.
absl::StatusOr<std::string> ReadConfigFile(const std::string& file) {
  const auto unreadable = [&](absl::string_view why) {
    return Refuse(absl::StatusCode::kNotFound, "NO_CONFIG",
                  absl::StrCat("cannot read ", file, ": ", why),
                  "name the file with --config, and let this program's user read it");
  };
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in) return unreadable(std::strerror(errno));
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) return unreadable("it is a directory");
  std::string text(kMaxFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) return unreadable(std::strerror(errno));  // Half a file may parse, too.
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kMaxFileBytes) {
    return BadConfig(file, "is larger than 1 MiB", "name the configuration file");
  }
  return text;
}

struct TomlReader::File {
  std::string name;
  toml::table root;
  absl::Status error;
  std::vector<std::shared_ptr<Node>> nodes;
};

// One table. Finish compares its keys with those that were asked for.
struct TomlReader::Node {
  const toml::table* table = nullptr;  // Null: not in the file.
  std::string path;                    // "fabric.emulated"
  mutable std::set<std::string> asked;

  const toml::node* Find(const std::string& key) const {
    asked.insert(key);
    return table == nullptr ? nullptr : table->get(key);
  }
  std::string Full(const std::string& key) const {
    return path.empty() ? key : absl::StrCat(path, ".", key);
  }
};

TomlReader::TomlReader(std::shared_ptr<File> file, std::shared_ptr<Node> node)
    : file_(std::move(file)), node_(std::move(node)) {
  file_->nodes.push_back(node_);
}
TomlReader::TomlReader(TomlReader&&) noexcept = default;
TomlReader& TomlReader::operator=(TomlReader&&) noexcept = default;
TomlReader::~TomlReader() = default;

// A text that is no TOML has no tables to read from, so its error is answered at once and not kept
// for Finish.
absl::StatusOr<TomlReader> TomlReader::Parse(absl::string_view text, const std::string& file) {
  toml::parse_result parsed = toml::parse(std::string_view(text.data(), text.size()));
  if (!parsed) {
    return BadConfig(absl::StrCat(file, ":", parsed.error().source().begin.line),
                     std::string(parsed.error().description()), "write TOML 1.0");
  }
  auto shared = std::make_shared<File>();
  shared->name = file;
  shared->root = std::move(parsed).table();
  auto node = std::make_shared<Node>();
  node->table = &shared->root;
  return TomlReader(std::move(shared), std::move(node));
}

// Keeps the first error of the file: one mistake may make others of what follows.
void TomlReader::Fail(const std::string& key, const std::string& message,
                      const std::string& remedy) {
  if (!file_->error.ok()) return;
  node_->Find(key);  // Counts as asked for, so that Finish does not call it unknown, too.
  file_->error = BadConfig(Where(key), message, remedy);
}

// "FILE:LINE: KEY". The line is that of the key, or, where it is missing, that of its table.
std::string TomlReader::Where(const std::string& key) const {
  const toml::node* node = node_->table == nullptr ? nullptr : node_->table->get(key);
  std::string where = file_->name;
  if (node != nullptr) {
    absl::StrAppend(&where, ":", node->source().begin.line);
  } else if (node_->table != nullptr && node_->table->source().begin.line != 0) {
    absl::StrAppend(&where, ":", node_->table->source().begin.line);
  }
  return absl::StrCat(where, ": ", node_->Full(key));
}

// String, Bool and Number count the key as asked for. One that is missing without a default, or of
// another type, is kept as an error and reads as "", false or 0, so that the caller goes on.
std::string TomlReader::String(const std::string& key, std::optional<std::string> otherwise) {
  const toml::node* node = node_->Find(key);
  if (node == nullptr) {
    if (!otherwise.has_value()) Fail(key, "is missing", "write a text in quotes");
    return otherwise.value_or("");
  }
  const auto value = node->value_exact<std::string>();
  if (!value.has_value()) Fail(key, "is not a text", "write it in quotes");
  return value.value_or("");
}

bool TomlReader::Bool(const std::string& key, std::optional<bool> otherwise) {
  const toml::node* node = node_->Find(key);
  if (node == nullptr) {
    if (!otherwise.has_value()) Fail(key, "is missing", "write true or false");
    return otherwise.value_or(false);
  }
  const auto value = node->value_exact<bool>();
  if (!value.has_value()) Fail(key, "is not a boolean", "write true or false");
  return value.value_or(false);
}

uint64_t TomlReader::Number(const std::string& key, std::optional<uint64_t> otherwise) {
  const toml::node* node = node_->Find(key);
  if (node == nullptr) {
    if (!otherwise.has_value()) Fail(key, "is missing", "write a whole number");
    return otherwise.value_or(0);
  }
  const auto value = node->value_exact<int64_t>();
  if (!value.has_value() || *value < 0) {
    Fail(key, "is not a whole number of 0 or more", "write digits");
    return 0;
  }
  return static_cast<uint64_t>(*value);
}

// Bytes as a number, or a text with a unit.
uint64_t TomlReader::Size(const std::string& key, std::optional<uint64_t> otherwise) {
  const toml::node* node = node_->Find(key);
  if (node != nullptr && node->is_string()) {
    const auto size = ParseByteSize(String(key));
    if (!size.ok()) Fail(key, "is not a size", "write bytes or a text like \"2GiB\"");
    return size.value_or(0);
  }
  return Number(key, otherwise);
}

// Of a key that is missing, String keeps the error: the one here comes second, and does not count.
absl::Duration TomlReader::Duration(const std::string& key,
                                    std::optional<absl::Duration> otherwise) {
  if (node_->Find(key) == nullptr && otherwise.has_value()) return *otherwise;
  absl::Duration duration;
  if (!absl::ParseDuration(String(key), &duration) || duration <= absl::ZeroDuration()) {
    Fail(key, "is not a duration above 0", "write a text like \"250ms\", \"10s\" or \"2m\"");
  }
  return duration;
}

// What Duration refused may be out of range, too, but its own error came first.
absl::Duration TomlReader::DurationIn(const std::string& key, absl::Duration otherwise,
                                      absl::Duration min, absl::Duration max) {
  const absl::Duration duration = Duration(key, otherwise);
  if (duration < min || duration > max) {
    Fail(key, "is out of range",
         absl::StrCat("write from \"", absl::FormatDuration(min), "\" to \"",
                      absl::FormatDuration(max), "\""));
  }
  return duration;
}

// Only what the file says is checked; a default is the caller's own.
std::string TomlReader::AbsolutePath(const std::string& key, std::optional<std::string> otherwise) {
  std::string path = String(key, std::move(otherwise));
  if (Has(key) && (path.empty() || path[0] != '/')) {
    Fail(key, "is no absolute path", "write it in full, from the first /");
  }
  return path;
}

// What is wrong is said in the words of address.h, with the line and the key in front.
std::string TomlReader::AddressText(const std::string& key, bool local) {
  std::string text = String(key);
  const absl::StatusOr<Address> address = ParseAddress(text);
  if (!address.ok()) {
    const auto refusal = RefusalOf(address.status()).value_or(Refusal{});
    Fail(key, absl::StrCat("is wrong: ", refusal.message), refusal.remedy);
  } else if (local && !address->is_local()) {
    const auto refusal = RefusalOf(CheckInsecureAddress(text)).value_or(Refusal{});
    Fail(key, absl::StrCat("is wrong: ", refusal.message), refusal.remedy);
  }
  return text;
}

// A list that is wrong is reported, and read as far as possible: the caller goes on to other keys.
std::vector<uint64_t> TomlReader::Numbers(const std::string& key) {
  std::vector<uint64_t> out;
  const toml::node* node = node_->Find(key);
  if (node == nullptr) return out;
  if (node->as_array() == nullptr) Fail(key, "is not a list", "write [1, 2, 3]");
  if (const toml::array* array = node->as_array()) {
    for (const toml::node& element : *array) {
      const auto value = element.value_exact<int64_t>();
      if (!value.has_value() || *value < 0) {
        Fail(key, "holds what is not a whole number of 0 or more", "write [1, 2, 3]");
      }
      out.push_back(static_cast<uint64_t>(value.value_or(0)));
    }
  }
  return out;
}

// As Numbers. An empty text is refused like what is no text.
std::vector<std::string> TomlReader::Strings(const std::string& key) {
  std::vector<std::string> out;
  const toml::node* node = node_->Find(key);
  if (node == nullptr) return out;
  const toml::array* array = node->as_array();
  if (array == nullptr) Fail(key, "is not a list", "write [\"a\", \"b\"]");
  for (size_t i = 0; array != nullptr && i < array->size(); ++i) {
    const auto value = array->get(i)->value_exact<std::string>();
    if (value.value_or("").empty()) Fail(key, "holds what is no text", "write [\"a\", \"b\"]");
    out.push_back(value.value_or(""));
  }
  return out;
}

bool TomlReader::Has(const std::string& key) const {
  return node_->table != nullptr && node_->table->get(key) != nullptr;
}

std::vector<std::string> TomlReader::Keys() const {
  std::vector<std::string> keys;
  if (node_->table == nullptr) return keys;
  for (const auto& [key, value] : *node_->table) keys.emplace_back(key.str());
  return keys;
}

void TomlReader::LeaveAlone(const std::string& key) { node_->Find(key); }

// A table that is missing, or is none, reads as an empty one. Finish finds nothing unknown in it.
TomlReader TomlReader::Table(const std::string& key) {
  auto node = std::make_shared<Node>();
  node->path = node_->Full(key);
  if (const toml::node* found = node_->Find(key)) {
    node->table = found->as_table();
    if (node->table == nullptr) Fail(key, "is not a table", absl::StrCat("write [", key, "]"));
  }
  return TomlReader(file_, std::move(node));
}

// In the order of the file; errors name them KEY[0], KEY[1] and so on. What is no table stands as
// an empty one, so that the numbers of the others stay right.
std::vector<TomlReader> TomlReader::Tables(const std::string& key) {
  std::vector<TomlReader> out;
  const toml::node* found = node_->Find(key);
  if (found == nullptr) return out;
  const toml::array* array = found->as_array();
  if (array == nullptr) Fail(key, "is not a list of tables", absl::StrCat("write [[", key, "]]"));
  if (array == nullptr) return out;
  for (const toml::node& element : *array) {
    auto node = std::make_shared<Node>();
    node->path = absl::StrCat(node_->Full(key), "[", out.size(), "]");
    node->table = element.as_table();
    if (node->table == nullptr)
      Fail(key, "is not a list of tables", absl::StrCat("write [[", key, "]]"));
    out.push_back(TomlReader(file_, std::move(node)));
  }
  return out;
}

// Only tables that somebody read are looked through: another one is an unknown key of the table
// that it is in.
absl::Status TomlReader::Finish() {
  if (!file_->error.ok()) return file_->error;
  for (const auto& node : file_->nodes) {
    if (node->table == nullptr) continue;
    for (const auto& [key, value] : *node->table) {
      const std::string name(key.str());
      if (node->asked.contains(name)) continue;
      return BadConfig(
          absl::StrCat(file_->name, ":", value.source().begin.line, ": ", node->Full(name)),
          "is not a key that this program knows", "fix its name or take it away");
    }
  }
  return absl::OkStatus();
}

}  // namespace cxlpool
