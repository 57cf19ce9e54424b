#include "host-agent/adapters/linux/machine/kernel_text.h"

#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace cxlpool::agent {
namespace {

constexpr int kMaxListed = 4096;

std::optional<uint64_t> Digits(absl::string_view text, int base) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value, base);
  if (text.empty() || error != std::errc() || stopped != end) return std::nullopt;
  return value;
}

// domain:bus:device.function, as in 0000:0e:01.0.
bool IsPciFunction(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, absl::ByAnyChar(":."));
  return parts.size() == 4 && parts[0].size() >= 4 && parts[1].size() == 2 &&
         parts[2].size() == 2 && parts[3].size() == 1 && Digits(parts[0], 16).has_value() &&
         Digits(parts[1], 16).has_value() && Digits(parts[2], 16).has_value() &&
         Digits(parts[3], 16).has_value();
}

}  // namespace

std::optional<uint64_t> ParseKernelNumber(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (absl::ConsumePrefix(&text, "0x")) return Digits(text, 16);
  return Digits(text, 10);
}

std::optional<uint64_t> ParseHex(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  absl::ConsumePrefix(&text, "0x");
  return Digits(text, 16);
}

// "0-3,8". All or nothing: a list that is malformed or too long is empty, since half of one would
// be taken for all.
std::vector<int> ParseNumberList(absl::string_view text) {
  std::vector<int> numbers;
  text = absl::StripAsciiWhitespace(text);
  if (text.empty()) return numbers;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    int first = 0, last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || first < 0 || last < first ||
        last - first >= kMaxListed) {
      return {};
    }
    for (int number = first; number <= last; ++number) numbers.push_back(number);
    if (numbers.size() > kMaxListed) return {};
  }
  return numbers;
}

// Reads "MemFree:  123 kB" of /proc/meminfo, and "Node 0 MemFree:  123 kB" of a node's.
std::optional<uint64_t> MeminfoBytes(absl::string_view meminfo, absl::string_view key) {
  for (absl::string_view line : absl::StrSplit(meminfo, '\n')) {
    std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() > 2 && words[0] == "Node") words.erase(words.begin(), words.begin() + 2);
    if (words.size() != 3 || words[2] != "kB") continue;
    if (!absl::ConsumeSuffix(&words[0], ":") || words[0] != key) continue;
    const std::optional<uint64_t> kilobytes = Digits(words[1], 10);
    if (!kilobytes.has_value() || *kilobytes > UINT64_MAX / 1024) return std::nullopt;
    return *kilobytes * 1024;
  }
  return std::nullopt;
}

std::optional<uint32_t> ParseSlotNumber(absl::string_view name) {
  const std::optional<uint64_t> number = Digits(name, 10);
  if (!number.has_value() || *number > UINT32_MAX) return std::nullopt;
  return static_cast<uint32_t>(*number);
}

std::string CxlFile(absl::string_view device, absl::string_view attribute) {
  return absl::StrCat(kCxlDevices, "/", device, "/", attribute);
}

uint64_t KnownOrZero(std::optional<uint64_t> number) {
  return number == ~uint64_t{0} ? 0 : number.value_or(0);
}

bool IsNumbered(absl::string_view name, absl::string_view kind) {
  int number = 0;
  return absl::StartsWith(name, kind) && absl::SimpleAtoi(name.substr(kind.size()), &number);
}

std::optional<DecoderName> ParseDecoder(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "decoder")) return std::nullopt;
  const size_t dot = name.find('.');
  int port = 0;
  DecoderName decoder;
  if (dot == name.npos || !absl::SimpleAtoi(name.substr(0, dot), &port) ||
      !absl::SimpleAtoi(name.substr(dot + 1), &decoder.id)) {
    return std::nullopt;
  }
  decoder.port = std::string(name.substr(0, dot));
  return decoder;
}

std::string PciHostBridgeOf(absl::string_view resolved_path) {
  for (absl::string_view part : absl::StrSplit(resolved_path, '/')) {
    if (absl::StartsWith(part, "pci") && absl::StrContains(part, ':')) return std::string(part);
  }
  return "";
}

std::vector<std::string> PciFunctionsOf(absl::string_view resolved_path) {
  std::vector<std::string> functions;
  for (absl::string_view part : absl::StrSplit(resolved_path, '/')) {
    if (IsPciFunction(part)) functions.emplace_back(part);
  }
  return functions;
}

// By device and inode, or by the file's name: of a node that was removed only the name is left.
bool MapsShow(absl::string_view maps, const MappedFile& file) {
  const std::string suffix = absl::StrCat("/", file.base_name);
  for (absl::string_view line : absl::StrSplit(maps, '\n')) {
    // start-end perms offset major:minor inode path
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::MaxSplits(' ', 5));
    if (words.size() < 5) continue;
    const std::vector<absl::string_view> device = absl::StrSplit(words[3], ':');
    if (device.size() == 2 && file.inode != 0 && Digits(words[4], 10) == file.inode &&
        Digits(device[0], 16) == file.major && Digits(device[1], 16) == file.minor) {
      return true;
    }
    if (words.size() < 6 || file.base_name.empty()) continue;
    absl::string_view path = absl::StripAsciiWhitespace(words[5]);
    absl::ConsumeSuffix(&path, " (deleted)");
    if (absl::EndsWith(path, suffix)) return true;
  }
  return false;
}

}  // namespace cxlpool::agent
