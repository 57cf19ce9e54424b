#include "fabric-manager/adapters/fabric_qemu/qmp_message.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cxlpool::fm {
namespace {

using nlohmann::json;

constexpr size_t kMaxQuoted = 120;

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("QMP: ", what));
}

const json* Find(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string StringAt(const json& object, const char* key) {
  const json* value = Find(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

// QEMU sends it first on each connection; only the version is used.
absl::StatusOr<QmpMessage> ParseGreeting(const json& greeting) {
  const json* version = greeting.is_object() ? Find(greeting, "version") : nullptr;
  const json* qemu = version != nullptr && version->is_object() ? Find(*version, "qemu") : nullptr;
  if (qemu == nullptr || !qemu->is_object()) return Bad("a greeting without a version");
  QmpMessage message;
  message.kind = QmpMessage::Kind::kGreeting;
  for (const char* part : {"major", "minor", "micro"}) {
    const json* number = Find(*qemu, part);
    if (number == nullptr || !number->is_number_unsigned()) {
      return Bad("a greeting whose version is not three numbers");
    }
    absl::StrAppend(&message.name, message.name.empty() ? "" : ".", number->get<uint64_t>());
  }
  return message;
}

// Data is optional in QMP (docs/interop/qmp-spec): its lack is an empty object.
absl::StatusOr<QmpMessage> ParseEvent(json& object) {
  QmpMessage message;
  message.kind = QmpMessage::Kind::kEvent;
  message.name = StringAt(object, "event");
  if (message.name.empty()) return Bad("an event without a name");
  message.value = json::object();
  if (const auto data = object.find("data"); data != object.end()) {
    if (!data->is_object()) return Bad("an event whose data is not an object");
    message.value = std::move(*data);
  }
  return message;
}

// An error may come without an id: QEMU could not read the command, so no command is answered.
absl::StatusOr<QmpMessage> ParseReply(json& object) {
  QmpMessage message;
  if (const json* id = Find(object, "id"); id != nullptr) {
    if (!id->is_number_unsigned()) return Bad("a reply with an id that is not ours");
    message.id = id->get<uint64_t>();
  }
  if (const auto value = object.find("return"); value != object.end()) {
    if (!message.id.has_value()) return Bad("a reply without an id");
    message.value = std::move(*value);
    return message;
  }
  const json& error = object["error"];
  if (!error.is_object()) return Bad("an error that is not an object");
  message.kind = QmpMessage::Kind::kError;
  message.name = StringAt(error, "class");
  message.description = StringAt(error, "desc");
  if (message.name.empty()) return Bad("an error without a class");
  return message;
}

}  // namespace

// Whatever QEMU sends, the answer is a message or INVALID_ARGUMENT; at most one line and
// kMaxQmpNesting levels are kept in memory.
absl::StatusOr<QmpMessage> ParseQmpMessage(absl::string_view line) {
  if (line.size() > kMaxQmpLineBytes) return Bad("a line that is too long");
  bool too_deep = false;
  // Discarding keeps what is nested too deep from being built at all.
  const auto limit = [&](int depth, json::parse_event_t event, json&) {
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth >= kMaxQmpNesting) too_deep = true;
    return !too_deep;
  };
  json object = json::parse(line.begin(), line.end(), limit, /*allow_exceptions=*/false);
  if (too_deep) return Bad("a line nested too deep");
  if (!object.is_object()) {
    return Bad(absl::StrCat("a line that is not a JSON object: ",
                            absl::CHexEscape(line.substr(0, kMaxQuoted))));
  }
  const int kinds = static_cast<int>(object.contains("QMP") + object.contains("event") +
                                     object.contains("return") + object.contains("error"));
  if (kinds != 1) return Bad("a line that is not one of greeting, event, return and error");
  if (const json* greeting = Find(object, "QMP"); greeting != nullptr) {
    return ParseGreeting(*greeting);
  }
  return object.contains("event") ? ParseEvent(object) : ParseReply(object);
}

// One line, in ASCII: what a QMP parser reads is exactly `arguments`, or it is refused here.
absl::StatusOr<std::string> FormatQmpCommand(uint64_t id, const std::string& command,
                                             const json& arguments) {
  json line = {{"execute", command}, {"id", id}};
  if (!arguments.empty()) line["arguments"] = arguments;
  std::string text = line.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::ignore);
  // `ignore` drops what is not UTF-8: then the text no longer says what was meant.
  const json back = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (back != line) return Bad("a command with a string that is not UTF-8");
  return text + "\n";
}

absl::StatusOr<std::vector<QomProperty>> ParseQomList(const json& value) {
  if (!value.is_array()) return Bad("qom-list did not return an array");
  std::vector<QomProperty> properties;
  for (const json& item : value) {
    if (!item.is_object()) return Bad("qom-list returned something that is not a property");
    QomProperty property{StringAt(item, "name"), StringAt(item, "type")};
    if (property.name.empty() || property.type.empty()) {
      return Bad("qom-list returned a property without name and type");
    }
    properties.push_back(std::move(property));
  }
  return properties;
}

absl::StatusOr<std::string> ParseQomString(const json& value) {
  if (!value.is_string()) return Bad("a property that is not a string");
  return value.get<std::string>();
}

absl::StatusOr<uint64_t> ParseQomUint(const json& value) {
  if (!value.is_number_unsigned()) return Bad("a property that is not an unsigned number");
  return value.get<uint64_t>();
}

absl::StatusOr<bool> ParseQomBool(const json& value) {
  if (!value.is_boolean()) return Bad("a property that is not a boolean");
  return value.get<bool>();
}

absl::StatusOr<uint64_t> ParseCpuThread(const json& value) {
  if (!value.is_array() || value.empty() || !value[0].is_object()) {
    return Bad("query-cpus-fast returned no vCPU");
  }
  const json* thread = Find(value[0], "thread-id");
  if (thread == nullptr || !thread->is_number_unsigned()) {
    return Bad("query-cpus-fast returned a vCPU without a thread");
  }
  return thread->get<uint64_t>();
}

absl::StatusOr<std::string> ParseChardev(const json& value, absl::string_view path) {
  if (!value.is_array()) return Bad("query-chardev returned no list");
  const std::string address = absl::StrCat("unix:", path, ",");
  for (const json& each : value) {
    if (!each.is_object()) continue;
    const json* file = Find(each, "filename");
    const json* label = Find(each, "label");
    if (file == nullptr || !file->is_string() || label == nullptr || !label->is_string()) continue;
    if (absl::StrContains(file->get_ref<const std::string&>(), address)) {
      return label->get<std::string>();
    }
  }
  return Bad(absl::StrCat("QEMU has no character device at ", path));
}

}  // namespace cxlpool::fm
