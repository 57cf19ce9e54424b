#include "tools/cli/man_page.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tools/cli/completion.h"
#include "tools/cli/exit_code.h"

namespace cxlpool::cli {
namespace {

// So many options are named where one excludes others; of more it is said that there are.
constexpr size_t kMostNamed = 3;

// Text as roff prints it: ASCII where it would print what typesetters write, and no line that
// begins a request.
std::string Roff(const std::string& text) {
  const std::string out = absl::StrReplaceAll(text, {{"\\", "\\e"},
                                                     {"-", "\\-"},
                                                     {"~", "\\(ti"},
                                                     {"^", "\\(ha"},
                                                     {"`", "\\(ga"},
                                                     {"'", "\\(aq"}});
  return !out.empty() && out.front() == '.' ? "\\&" + out : out;
}

std::string Bold(const std::string& text) { return absl::StrCat("\\fB", Roff(text), "\\fR"); }

// Every command has --help.
bool IsShown(const CLI::Option& option) {
  return !option.check_name("--help") && !option.get_group().empty();
}

// What stands for the value: its choices, or a word in capitals; empty: there is none.
std::string Value(const CLI::Option& option) {
  const std::vector<std::string> choices = ChoicesOf(option);
  if (!choices.empty()) return absl::StrJoin(choices, "|");
  const std::string name = option.get_type_name();
  return option.get_items_expected_max() == 0 ? "" : name.substr(0, name.find(':'));
}

// "[NAME]", "REGION...".
std::string Positional(const CLI::Option& option) {
  const std::string choices = absl::StrJoin(ChoicesOf(option), "|");
  std::string out = choices.empty() ? option.get_name(/*positional=*/true) : choices;
  if (option.get_items_expected_max() > 1) absl::StrAppend(&out, "...");
  return option.get_required() ? out : absl::StrCat("[", out, "]");
}

// "region attach NAME --host HOST [OPTIONS]", behind the words that name the command. Another
// program's words come last, and behind the dashes.
std::string Synopsis(const CLI::App& app, const std::string& path) {
  std::vector<std::string> words = {path};
  bool more = false;
  std::string program;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    if (option->check_name(kProgramWords)) {
      program = Positional(*option);
    } else {
      words.push_back(Positional(*option));
    }
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() || !IsShown(*option)) continue;
    if (option->get_required()) {
      words.push_back(absl::StrCat("--", option->get_lnames().front(), " ", Value(*option)));
    } else {
      more = true;
    }
  }
  if (more) words.emplace_back("[OPTIONS]");
  if (!program.empty()) words.push_back("-- " + program);
  return absl::StrJoin(words, " ");
}

// "Needs --mode." or "Not with --batch."
std::string Others(const char* how, const std::set<CLI::Option*>& others) {
  std::vector<std::string> names;
  names.reserve(others.size());
  for (const CLI::Option* other : others) names.push_back(other->get_name());
  std::sort(names.begin(), names.end());  // The set is in order of addresses.
  if (names.empty()) return "";
  return names.size() > kMostNamed ? absl::StrCat(" ", how, " most others.")
                                   : absl::StrCat(" ", how, " ", absl::StrJoin(names, ", "), ".");
}

// ".TP", its names and what it is for.
std::string OptionText(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back(Bold("-" + name));
  for (const std::string& name : option.get_lnames()) names.push_back(Bold("--" + name));
  const std::string value = Value(option);
  return absl::StrCat(
      ".TP\n", absl::StrJoin(names, ", "), value.empty() ? "" : " ",
      value.empty() ? "" : absl::StrCat("\\fI", Roff(value), "\\fR"), "\n",
      Roff(absl::StrCat(option.get_description(), ".", Others("Needs", option.get_needs()),
                        Others("Not with", option.get_excludes()))),
      "\n");
}

std::string OptionsText(const CLI::App& app) {
  std::string out;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() || !IsShown(*option)) continue;
    absl::StrAppend(&out, OptionText(*option));
  }
  return out;
}

// The command and those below it. A command with others below it is named only by them.
void AddCommand(const CLI::App& app, const std::string& path, const std::string& common_footer,
                std::string& out) {
  const auto below = app.get_subcommands([](const CLI::App*) { return true; });
  if (below.empty()) {
    absl::StrAppend(&out, ".SS ", Roff(Synopsis(app, path)), "\n", Roff(app.get_description()),
                    ".\n");
    for (const CLI::Option* option : app.get_options()) {
      if (!option->get_positional() || option->get_description().empty()) continue;
      absl::StrAppend(&out, ".TP\n\\fI", Roff(option->get_name(true)), "\\fR\n",
                      Roff(option->get_description()), ".\n");
    }
    absl::StrAppend(&out, OptionsText(app));
    if (!app.get_footer().empty() && app.get_footer() != common_footer) {
      absl::StrAppend(&out, ".PP\n", Roff(app.get_footer()), "\n");
    }
    if (!app.get_aliases().empty()) {
      absl::StrAppend(&out, ".PP\nAlso: ", Roff(absl::StrJoin(app.get_aliases(), ", ")), ".\n");
    }
  }
  for (const CLI::App* one : below) {
    if (one->get_group().empty()) continue;
    AddCommand(*one, absl::StrCat(path, path.empty() ? "" : " ", one->get_name()), common_footer,
               out);
  }
}

}  // namespace

// The exit codes are the lines behind the first of what --help ends with.
std::string ManSections(const CLI::App& app, const std::string& common_footer) {
  std::string out = ".SH COMMANDS\n";
  AddCommand(app, "", common_footer, out);
  const std::string codes = ExitCodeHelp();
  absl::StrAppend(&out, ".SH GLOBAL OPTIONS\n", OptionsText(app), ".SH EXIT STATUS\n.nf\n");
  for (absl::string_view line : absl::StrSplit(codes, '\n', absl::SkipEmpty())) {
    if (absl::ConsumePrefix(&line, "  ")) absl::StrAppend(&out, Roff(std::string(line)), "\n");
  }
  return out + ".fi\n";
}

}  // namespace cxlpool::cli
