#include "tools/cli/quickstart_command.h"

#include <limits.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/support/installed_script.h"
#include "proto/support/refusal.h"
#include "tools/cli/subcommands.h"

namespace cxlpool::cli {
namespace {

constexpr char kDefaultRegion[] = "first", kDefaultRegionSize[] = "256MiB",
               kDefaultFileSize[] = "1GiB";

// The machine's name up to the first dot, in small letters, as hosts of a pool are named. Empty: it
// has none, and Read says so as of a name that is no good.
std::string MachineName() {
  char name[HOST_NAME_MAX + 1] = {};
  if (::gethostname(name, HOST_NAME_MAX) != 0) return "";
  return absl::AsciiStrToLower(
      std::vector<std::string>(absl::StrSplit(absl::string_view(name), '.')).front());
}

// The scripts write it into files as it is, and its folder into a unit, where % means something. As
// packaging/agent-init has it.
bool MayBeAPath(absl::string_view text) {
  return absl::StartsWith(text, "/") && text.find_first_of("\"'\\$`%*?[ \t\n\v\f\r") == text.npos &&
         !absl::EndsWith(text, "/") && text.rfind('/') > 0;
}

// The options as they were typed.
struct Words {
  Flag device, file, size, host, region, region_size;
  bool erase = false;
};

// Checks every word here, so that the script may use them unquoted, and fills in the defaults.
absl::StatusOr<QuickstartCommand> Read(const Words& words) {
  QuickstartCommand command;
  Fields fields;
  const auto add = [&](const char* flag, const std::string& value) {
    command.words.insert(command.words.end(), {flag, value});
  };
  if (words.device.has_value()) {
    fields.Text("--device", words.device, [&](const std::string& name) { add("--device", name); });
  }
  if (words.file.has_value()) {
    if (!MayBeAPath(*words.file)) {
      return Refuse(
          absl::StatusCode::kInvalidArgument, "BAD_VALUE",
          absl::StrCat("--file \"", absl::CHexEscape(*words.file), "\" is no path of a file"),
          "give one that begins with /, in a folder, without blanks, quotes and signs as % and "
          "*, as /srv/cxlpool/cmm-0");
    }
    add("--file", *words.file);
    // In bytes, for the script makes the file by truncate(1).
    fields.Size(words.size.value_or(kDefaultFileSize),
                [&](uint64_t bytes) { add("--size", absl::StrCat(bytes)); });
  }
  constexpr absl::string_view kHosts = "hosts/", kRegions = "regions/";
  fields.Name("hosts", words.host.value_or(MachineName()),
              [&](const std::string& name) { add("--host", name.substr(kHosts.size())); });
  fields.Name("regions", words.region.value_or(kDefaultRegion),
              [&](const std::string& name) { add("--region", name.substr(kRegions.size())); });
  const std::string region_size = words.region_size.value_or(kDefaultRegionSize);
  // As it was typed: it goes to `cxlpool region allocate`, which reads it again.
  fields.Size(region_size, [&](uint64_t) { add("--region-size", region_size); });
  if (words.erase) command.words.push_back("--erase");
  // Of all fields: the first that is wrong.
  if (!fields.status().ok()) return fields.status();
  return command;
}

}  // namespace

// What the fields hold is read only once all options are known; the first that is wrong is then
// what the command line comes to.
void AddQuickstartCommand(CLI::App& app, Chosen& chosen) {
  CLI::App* quickstart = app.add_subcommand(
      "quickstart", "Make this machine a pool of its own, and bring memory online. Needs root");
  auto words = std::make_shared<Words>();
  auto* device = quickstart->add_option(
      "--device", words->device, "Which CXL device, as the agent calls it (default: the only one)");
  device->type_name("NAME");
  auto* file = quickstart->add_option(
      "--file", words->file,
      "A file in a device's place, to try the pool; made where it is missing");
  file->type_name("PATH")->excludes(device);
  quickstart->add_option("--size", words->size, "Of a file that is made (default 1GiB)")
      ->type_name("SIZE")
      ->needs(file);
  quickstart->add_option("--host", words->host, "The host's name (default: the machine's)")
      ->type_name("NAME");
  quickstart->add_option("--region", words->region, "The Region's name (default first)")
      ->type_name("NAME");
  quickstart->add_option("--region-size", words->region_size, "Its size (default 256MiB)")
      ->type_name("SIZE");
  quickstart->add_flag("--erase", words->erase, "Clear bytes that are on the device already");
  quickstart->footer(
      "Prints each command and each file. May be run again: what is there already stays.");
  quickstart->callback([words, &chosen] {
    auto command = Read(*words);
    if (command.ok()) {
      chosen.command = *std::move(command);
    } else {
      chosen.command = command.status();
    }
  });
}

absl::Status Execute(const QuickstartCommand& command) {
  return BecomeScript("quickstart", command.words);
}

}  // namespace cxlpool::cli
