#include "host-agent/adapters/linux/events/trace_event.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "proto/support/mutant.h"

namespace cxlpool::agent {
namespace {

// What an address in an event record means: a cache line (CXL 3.1, 8.2.9.2.1.1: the low six bits
// of the DPA are flags).
constexpr uint64_t kLineBytes = 64;

// A page frame of x86-64.
constexpr uint64_t kPageBytes = 4096;

// The value of `name=value`; a quoted one without its quotes. Nothing if there is no such field.
std::optional<absl::string_view> Field(absl::string_view fields, absl::string_view name) {
  const std::string key = absl::StrCat(name, "=");
  for (size_t at = fields.find(key); at != absl::string_view::npos;
       at = fields.find(key, at + key.size())) {
    if (at != 0 && fields[at - 1] != ' ') continue;
    absl::string_view value = fields.substr(at + key.size());
    const bool quoted = absl::ConsumePrefix(&value, "'");
    return value.substr(0, value.find(quoted ? '\'' : ' '));
  }
  return std::nullopt;
}

absl::string_view Text(absl::string_view fields, absl::string_view name) {
  return Field(fields, name).value_or(absl::string_view());
}

uint64_t Hex(absl::string_view fields, absl::string_view name) {
  uint64_t value = 0;
  return absl::SimpleHexAtoi(Text(fields, name), &value) ? value : 0;
}

uint64_t Decimal(absl::string_view fields, absl::string_view name) {
  uint64_t value = 0;
  return absl::SimpleAtoi(Text(fields, name), &value) ? value : 0;
}

v1::HostEvent::Severity SeverityOf(absl::string_view log) {
  if (log == "Informational") return v1::HostEvent::INFORMATIONAL;
  if (log == "Warning") return v1::HostEvent::WARNING;
  if (log == "Failure") return v1::HostEvent::FAILURE;
  if (log == "Fatal") return v1::HostEvent::FATAL;
  return v1::HostEvent::SEVERITY_UNSPECIFIED;
}

// For people: printable, and not too long.
void SetText(std::string text, v1::HostEvent& event) {
  if (text.size() > kMaxEventTextBytes) text.resize(kMaxEventTextBytes);
  for (char& c : text) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  event.set_text(std::move(text));
}

void SetHpa(absl::string_view fields, v1::HostEvent& event) {
  const uint64_t hpa = Hex(fields, "hpa");
  if (hpa != ~uint64_t{0}) event.set_hpa_bytes(hpa);
}

// The fields of the list that have a value, as "name value, name value".
std::string NamedValues(absl::string_view fields, const std::vector<absl::string_view>& names) {
  std::vector<std::string> parts;
  for (const absl::string_view name : names) {
    const absl::string_view value = Text(fields, name);
    if (!value.empty()) parts.push_back(absl::StrCat(name, " ", value));
  }
  return absl::StrJoin(parts, ", ");
}

bool ParsePoison(absl::string_view fields, v1::HostEvent& event) {
  if (Text(fields, "trace_type") == "Clear" || !Field(fields, "dpa").has_value()) return false;
  event.set_kind(v1::HostEvent::POISON);
  event.set_severity(v1::HostEvent::FAILURE);
  event.set_bytes_lost(true);
  event.set_dpa_bytes(Hex(fields, "dpa"));
  const uint64_t length = Hex(fields, "dpa_length");
  event.set_length_bytes(length == 0 ? kLineBytes : length);
  SetHpa(fields, event);
  const bool overflow = absl::StrContains(Text(fields, "flags"), "Overflow");
  SetText(absl::StrCat("poison, source ", Text(fields, "source"),
                       overflow ? "; the device's poison list overflowed" : ""),
          event);
  return true;
}

bool ParseMedia(v1::HostEvent::Kind kind, absl::string_view what, absl::string_view fields,
                v1::HostEvent& event) {
  if (!Field(fields, "dpa").has_value()) return false;
  event.set_kind(kind);
  event.set_severity(SeverityOf(Text(fields, "log")));
  const absl::string_view descriptor = Text(fields, "descriptor");
  event.set_bytes_lost(absl::StrContains(descriptor, "UNCORRECTABLE") ||
                       event.severity() == v1::HostEvent::FATAL);
  const uint64_t flags = CXLPOOL_MUTANT("flags-are-address") ? 1 : kLineBytes;
  event.set_dpa_bytes(Hex(fields, "dpa") / flags * flags);
  event.set_length_bytes(kLineBytes);
  SetHpa(fields, event);
  SetText(
      absl::StrCat(what, ": ",
                   NamedValues(fields, {"type", "descriptor", "transaction_type", "channel", "rank",
                                        "device", "bank_group", "bank", "row", "column"})),
      event);
  return true;
}

bool ParseModule(absl::string_view fields, v1::HostEvent& event) {
  event.set_kind(v1::HostEvent::MEMORY_MODULE);
  event.set_severity(SeverityOf(Text(fields, "log")));
  SetText(
      absl::StrCat("memory module: ",
                   NamedValues(fields, {"event_type", "health_status", "media_status", "life_used",
                                        "device_temp", "cor_vol_err_cnt", "dirty_shutdown_cnt"})),
      event);
  return true;
}

void SetAer(bool correctable, bool fatal, v1::HostEvent& event) {
  event.set_kind(correctable ? v1::HostEvent::AER_CORRECTABLE : v1::HostEvent::AER_UNCORRECTABLE);
  event.set_severity(correctable ? v1::HostEvent::WARNING
                     : fatal     ? v1::HostEvent::FATAL
                                 : v1::HostEvent::FAILURE);
}

// "memdev=mem1 host=0000:14:00.0 serial=864691128455135314: status: 'Memory Data ECC Error'"; since
// Linux 7 also of ports: "device=0000:13:00.0 host=0000:12:00.0 ...".
bool ParseCxlAer(bool correctable, absl::string_view fields, TraceLine& line) {
  SetAer(correctable, false, line.event);
  uint64_t serial = 0;
  if (absl::SimpleAtoi(absl::StripSuffix(Text(fields, "serial"), ":"), &serial)) {
    line.event.set_serial(serial);
  }
  const absl::string_view function =
      Field(fields, "memdev").has_value() ? Text(fields, "host") : Text(fields, "device");
  line.pci_function = std::string(absl::StripSuffix(function, ":"));
  const size_t status = fields.find("status: ");
  SetText(absl::StrCat("CXL.cachemem ", correctable ? "correctable" : "uncorrectable", " error, ",
                       status == absl::string_view::npos ? "" : fields.substr(status)),
          line.event);
  return line.event.serial() != 0 || !line.pci_function.empty();
}

// "0000:14:00.0 PCIe Bus Error: severity=Fatal, Data Link Protocol Error, TLP Header=..."
bool ParsePcieAer(absl::string_view fields, TraceLine& line) {
  const size_t end = fields.find(" PCIe Bus Error: severity=");
  if (end == absl::string_view::npos || end == 0) return false;
  line.pci_function = std::string(fields.substr(0, end));
  const absl::string_view error = fields.substr(fields.find('=') + 1);
  SetAer(absl::StartsWith(error, "Corrected"), absl::StartsWith(error, "Fatal"), line.event);
  SetText(absl::StrCat("PCIe error of ", line.pci_function, ": ",
                       error.substr(0, error.find(", TLP Header="))),
          line.event);
  return true;
}

// "pfn 0x110200: recovery action for dax page: Recovered": the kernel has taken a page out of use,
// of whatever memory. Whatever became of those who had it mapped, its bytes are lost.
bool ParseMemoryFailure(absl::string_view fields, v1::HostEvent& event) {
  uint64_t frame = 0;
  if (!absl::ConsumePrefix(&fields, "pfn ") || !absl::StrContains(fields, ": ") ||
      !absl::SimpleHexAtoi(fields.substr(0, fields.find(':')), &frame) || frame == 0 ||
      frame > ~uint64_t{0} / kPageBytes) {
    return false;
  }
  event.set_kind(v1::HostEvent::POISON);
  event.set_severity(v1::HostEvent::FAILURE);
  event.set_bytes_lost(true);
  event.set_hpa_bytes(frame * kPageBytes);
  event.set_length_bytes(kPageBytes);
  SetText(absl::StrCat("memory failure", fields.substr(fields.find(':'))), event);
  return true;
}

bool ParseEvent(absl::string_view name, absl::string_view fields, TraceLine& line) {
  v1::HostEvent& event = line.event;
  if (name == "aer_event") return ParsePcieAer(fields, line);
  if (absl::EndsWith(name, "aer_correctable_error")) return ParseCxlAer(true, fields, line);
  if (absl::EndsWith(name, "aer_uncorrectable_error")) return ParseCxlAer(false, fields, line);
  if (name == "memory_failure_event") return ParseMemoryFailure(fields, event);
  event.set_serial(Decimal(fields, "serial"));
  if (event.serial() == 0) return false;
  if (name == "cxl_poison") return ParsePoison(fields, event);
  if (name == "cxl_general_media") {
    return ParseMedia(v1::HostEvent::GENERAL_MEDIA, "media", fields, event);
  }
  if (name == "cxl_dram") return ParseMedia(v1::HostEvent::DRAM, "DRAM", fields, event);
  if (name == "cxl_memory_module") return ParseModule(fields, event);
  return false;
}

}  // namespace

// Lines that are neither an event of interest nor the notice of lost ones are ignored: the default
// kind.
//
// "TASK-PID [CPU] FLAGS TIME: EVENT: FIELDS". A task may be named as it likes, as an event with a
// time before it or as the notice included. Its name stands before all else, and the fields of
// these events have nothing in them that a program could choose. So the event is the rightmost of
// all names in the line, and the notice is a whole line.
TraceLine ParseTraceLine(absl::string_view line) {
  line = absl::StripAsciiWhitespace(line.substr(0, kMaxTraceLineBytes));
  TraceLine parsed;
  const bool whole = absl::EndsWith(line, " EVENTS]");
  if (absl::StartsWith(line, "CPU:") && absl::StrContains(line, "[LOST ") &&
      (whole || CXLPOOL_MUTANT("task-passes-for-lost-events"))) {
    parsed.kind = TraceLine::Kind::kLost;
    return parsed;
  }
  static constexpr absl::string_view kEvents[] = {"cxl_poison",
                                                  "cxl_general_media",
                                                  "cxl_dram",
                                                  "cxl_memory_module",
                                                  "cxl_overflow",
                                                  "cxl_aer_correctable_error",
                                                  "cxl_aer_uncorrectable_error",
                                                  "cxl_port_aer_correctable_error",
                                                  "cxl_port_aer_uncorrectable_error",
                                                  "aer_event",
                                                  "memory_failure_event"};
  constexpr size_t kAround = 4;  // Characters: ": " before the name and after it.
  absl::string_view event;
  size_t begin = 0;  // Where ": EVENT: " does.
  for (const absl::string_view name : kEvents) {
    if (!event.empty() && CXLPOOL_MUTANT("task-passes-for-an-event")) break;
    const size_t at = line.rfind(absl::StrCat(": ", name, ": "));
    if (at == absl::string_view::npos || at < begin) continue;
    event = name;
    begin = at;
  }
  // The time ends in a digit.
  if (begin == 0 || !absl::ascii_isdigit(static_cast<unsigned char>(line[begin - 1]))) {
    return parsed;
  }
  if (event == "cxl_overflow") {
    parsed.kind = TraceLine::Kind::kLost;
  } else if (ParseEvent(event, line.substr(begin + event.size() + kAround), parsed)) {
    parsed.kind = TraceLine::Kind::kEvent;
  }
  return parsed;
}

}  // namespace cxlpool::agent
