#include "tools/cli/batch_file.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <cmath>
#include <istream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/support/byte_size.h"
#include "proto/support/refusal.h"
#include "tools/cli/fields.h"

namespace cxlpool::cli {
namespace {

constexpr size_t kMaxLine = 64 << 10;
constexpr size_t kMaxRequests = 1'000'000;

// Larger whole numbers are not exact as JSON's numbers.
constexpr double kExactNumber = 9007199254740992;

// "regionId" as "region_id".
std::string SnakeCase(absl::string_view name) {
  std::string out;
  for (const char c : name) {
    if (absl::ascii_isupper(c)) out += '_';
    out += absl::ascii_tolower(c);
  }
  return out;
}

absl::Status BadFile(const std::string& file, size_t line, absl::string_view what,
                     std::string remedy) {
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_BATCH_FILE",
                absl::StrCat(file, ":", line, ": ", what), std::move(remedy));
}

// The command line's word for a value of the API, in the API's: "spread", "256MiB", "ml", "12h".
// What is none stays as it is: it may be the API's already.
std::string ApiWord(absl::string_view field, const std::string& text) {
  const auto full = [&](absl::string_view collection) {
    const auto name = FullName(collection, text);
    return name.ok() ? *name : text;
  };
  if (field == "tenant") return full("tenants");
  if (field == "host") return full("hosts");
  if (field == "device") return full("devices");
  if (field == "isolate_from") return full("regions");
  if (field == "size_bytes" || field == "interleave_granularity_bytes") {
    const auto bytes = ParseByteSize(text);
    return bytes.ok() ? absl::StrCat(*bytes) : text;
  }
  if (field == "ttl" || field == "expected_lifetime") {
    const auto term = ParseTerm(field, text);
    return term.ok() ? absl::StrCat(absl::ToInt64Seconds(*term), "s") : text;
  }
  Fields words;
  int value = 0;
  const auto keep = [&value](auto read) { value = read; };
  const google::protobuf::EnumDescriptor* names = nullptr;
  if (field == "policy") {
    words.Policy(text, keep);
    names = v1::PlacementPolicy_descriptor();
  } else if (field == "mode") {
    words.Mode(text, keep);
    names = v1::AttachmentMode_descriptor();
  } else if (field == "zone") {
    words.Zone(text, keep);
    names = v1::MemoryZone_descriptor();
  } else if (field == "access") {
    words.Access(text, keep);
    names = v1::Access_descriptor();
  } else if (field == "sharing") {
    words.Sharing(text, keep);
    names = v1::Sharing_descriptor();
  } else if (field == "isolation") {
    words.Isolation(text, keep);
    names = v1::Enforcer_descriptor();
  }
  if (names == nullptr || !words.status().ok()) return text;
  return std::string(names->FindValueByNumber(value)->name());
}

// "uid=1000,everybody", or a list of such texts, as the message that the API has for it. What is an
// object is that message already, and stays as it is.
absl::Status SpellOutOpenTo(google::protobuf::Value& value) {
  std::vector<std::string> texts;
  if (value.has_string_value()) texts.push_back(value.string_value());
  for (const auto& element : value.list_value().values()) texts.push_back(element.string_value());
  if (texts.empty()) return absl::OkStatus();
  Fields words;
  v1::OpenTo open_to;
  words.OpenTo(texts, open_to);
  if (!words.status().ok()) return words.status();
  auto& whom = *value.mutable_struct_value()->mutable_fields();
  for (const uint32_t uid : open_to.uids()) {
    whom["uids"].mutable_list_value()->add_values()->set_number_value(uid);
  }
  for (const uint32_t gid : open_to.gids()) {
    whom["gids"].mutable_list_value()->add_values()->set_number_value(gid);
  }
  if (open_to.everybody()) whom["everybody"].set_bool_value(true);
  return absl::OkStatus();
}

// One request, in the API's words or in those of the command line's options.
absl::StatusOr<v1::AllocateRegionRequest> ReadLine(absl::string_view text) {
  namespace json = google::protobuf::util;
  google::protobuf::Struct line;
  auto parsed =
      json::JsonStringToMessage(google::protobuf::StringPiece(text.data(), text.size()), &line);
  if (!parsed.ok()) return absl::InvalidArgumentError(parsed.ToString());
  for (auto& [key, value] : *line.mutable_fields()) {
    // The mapping knows each field by two names.
    const std::string field = SnakeCase(key);
    if (field == "open_to") {
      if (absl::Status status = SpellOutOpenTo(value); !status.ok()) return status;
    } else if (value.has_string_value()) {
      value.set_string_value(ApiWord(field, value.string_value()));
    } else if (value.has_number_value() && std::abs(value.number_value()) > kExactNumber) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, " is too large for a number of JSON: write it in quotes"));
    } else if (value.has_list_value()) {
      for (auto& element : *value.mutable_list_value()->mutable_values()) {
        if (!element.has_string_value()) continue;
        element.set_string_value(ApiWord(field, element.string_value()));
      }
    }
  }
  std::string api;
  parsed = json::MessageToJsonString(line, &api);
  if (!parsed.ok()) return absl::InvalidArgumentError(parsed.ToString());
  v1::AllocateRegionRequest request;
  parsed = json::JsonStringToMessage(api, &request);
  if (!parsed.ok()) return absl::InvalidArgumentError(parsed.ToString());
  return request;
}

}  // namespace

absl::StatusOr<std::vector<v1::AllocateRegionRequest>> ReadBatchFile(std::istream& in,
                                                                     const std::string& file) {
  std::vector<v1::AllocateRegionRequest> requests;
  std::string line;
  for (size_t number = 1; std::getline(in, line); ++number) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty() || text[0] == '#') continue;
    if (text.size() > kMaxLine || requests.size() == kMaxRequests) {
      return BadFile(file, number, "is too long",
                     absl::StrCat("use lines of at most ", kMaxLine, " bytes, and at most ",
                                  kMaxRequests, " of them"));
    }
    auto parsed = ReadLine(text);
    if (!parsed.ok()) {
      return BadFile(file, number, parsed.status().message(),
                     "write an AllocateRegionRequest as JSON, as "
                     "{\"region_id\": \"kv\", \"size_bytes\": \"1GiB\", \"tenant\": \"ml\"}");
    }
    requests.push_back(*std::move(parsed));
  }
  if (in.bad()) return BadFile(file, 0, "cannot be read", "check the disk");
  if (requests.empty()) return BadFile(file, 0, "has no requests", "write one a line");
  return requests;
}

}  // namespace cxlpool::cli
