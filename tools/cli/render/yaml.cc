#include "tools/cli/render/yaml.h"

#include <yaml.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cxlpool::cli {
namespace {

// JSON as protobuf writes it is YAML but for two things, which this rewrites: escapes that are half
// of a surrogate pair each, and U+FFFE and U+FFFF, which YAML takes only as escapes.
std::string AsYamlReads(absl::string_view json) {
  std::string out;
  // The UTF-16 unit that is escaped at `at`; 0: none is.
  const auto unit = [&](size_t at) {
    uint32_t code = 0;
    if (at + 6 > json.size() || json.substr(at, 2) != "\\u") return code;
    return absl::SimpleHexAtoi(json.substr(at + 2, 4), &code) ? code : 0;
  };
  for (size_t at = 0; at < json.size();) {
    const uint32_t high = unit(at);
    const uint32_t low = unit(at + 6);
    size_t taken = 1;
    if (high >> 10 == 0xd800 >> 10 && low >> 10 == 0xdc00 >> 10) {
      absl::StrAppendFormat(&out, "\\U%08X", 0x10000 + ((high & 0x3ff) << 10) + (low & 0x3ff));
      taken = 12;
    } else if (json[at] == '\\') {
      taken = 2;  // What is escaped begins no escape of its own, as in "\\u0041".
      absl::StrAppend(&out, json.substr(at, taken));
    } else if (json.substr(at, 3) == "\xef\xbf\xbe" || json.substr(at, 3) == "\xef\xbf\xbf") {
      absl::StrAppend(&out, json[at + 2] == '\xbe' ? "\\uFFFE" : "\\uFFFF");
      taken = 3;
    } else {
      out += json[at];
    }
    at += taken;
  }
  return out;
}

// Whether every YAML reader takes the bare text for a text. A digit, a dot or a sign in front may
// begin a number or a date.
bool MayStandBare(absl::string_view text) {
  constexpr absl::string_view kOtherwise[] = {"true", "false", "yes", "no",  "on", "off",
                                              "y",    "null",  "n",   "nan", "inf"};
  const bool begins = !text.empty() && (absl::ascii_isalpha(text.front()) || text.front() == '/');
  if (!begins || text.back() == ':') return false;
  const auto plain = [](char c) { return absl::ascii_isalnum(c) || absl::StrContains("_-./:", c); };
  return std::all_of(text.begin(), text.end(), plain) &&
         std::none_of(std::begin(kOtherwise), std::end(kOtherwise),
                      [&](absl::string_view word) { return absl::EqualsIgnoreCase(text, word); });
}

// What was read, in the style in which it is written.
void Restyle(yaml_event_t& event) {
  switch (event.type) {
    case YAML_MAPPING_START_EVENT:
      event.data.mapping_start.style = YAML_BLOCK_MAPPING_STYLE;
      break;
    case YAML_SEQUENCE_START_EVENT:
      event.data.sequence_start.style = YAML_BLOCK_SEQUENCE_STYLE;
      break;
    case YAML_SCALAR_EVENT: {
      auto& scalar = event.data.scalar;
      const absl::string_view text(reinterpret_cast<const char*>(scalar.value), scalar.length);
      if (scalar.style == YAML_DOUBLE_QUOTED_SCALAR_STYLE && MayStandBare(text)) {
        scalar.style = YAML_PLAIN_SCALAR_STYLE;
        scalar.plain_implicit = 1;
      }
      break;
    }
    default:
      break;
  }
}

int AppendTo(void* out, unsigned char* bytes, size_t size) {
  static_cast<std::string*>(out)->append(reinterpret_cast<const char*>(bytes), size);
  return 1;
}

}  // namespace

// libyaml reads the JSON event by event, and each event is written at once. The emitter frees it.
absl::StatusOr<std::string> ToYaml(absl::string_view json) {
  const std::string text = AsYamlReads(json);
  std::string out;
  yaml_parser_t parser;
  yaml_emitter_t emitter;
  if (yaml_parser_initialize(&parser) == 0) return absl::ResourceExhaustedError("out of memory");
  if (yaml_emitter_initialize(&emitter) == 0) {
    yaml_parser_delete(&parser);
    return absl::ResourceExhaustedError("out of memory");
  }
  yaml_parser_set_input_string(&parser, reinterpret_cast<const unsigned char*>(text.data()),
                               text.size());
  yaml_emitter_set_output(&emitter, AppendTo, &out);
  yaml_emitter_set_unicode(&emitter, 1);
  yaml_emitter_set_width(&emitter, -1);  // No line is broken.
  bool good = true;
  for (bool more = true; more && good;) {
    yaml_event_t event;
    good = yaml_parser_parse(&parser, &event) != 0;
    if (!good) break;
    more = event.type != YAML_STREAM_END_EVENT;
    Restyle(event);
    good = yaml_emitter_emit(&emitter, &event) != 0;
  }
  absl::Status status;
  if (!good) {
    const char* why = parser.problem != nullptr ? parser.problem : emitter.problem;
    status = absl::InternalError(
        absl::StrCat("the answer cannot be shown as YAML: ", why == nullptr ? "" : why));
  }
  yaml_parser_delete(&parser);
  yaml_emitter_delete(&emitter);
  if (!status.ok()) return status;
  return out;
}

}  // namespace cxlpool::cli
