#include "tools/cli/completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cxlpool::cli {
namespace {

// Each completes file names where it is told to (kFiles).
//
// Bash takes words apart at = and : as well (COMP_WORDBREAKS), and replaces what is behind the last
// of these. What no space parts in the line is one word of the command.
constexpr char kBash[] = R"(_cxlpool() {
  local found word i rest=$COMP_LINE last= words=()
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $i -eq 0 || $rest == [[:space:]]* || -z $rest ]]; then
      words+=("$word")
    else
      words[${#words[@]}-1]+=$word
    fi
    rest=${rest#*"$word"}
    last=$word
    [[ $last != *[!=:]* ]] && last=
  done
  word=${words[${#words[@]}-1]}
  found=$(cxlpool __complete "${words[@]:1}" 2>/dev/null)
  if [[ $? -eq 9 ]]; then
    found=$(compgen -f -- "$last")
  else
    rest=${word%"$last"}
    found=${found#"$rest"}
    found=${found//$'\n'"$rest"/$'\n'}
  fi
  COMPREPLY=()
  [[ -z $found ]] || mapfile -t COMPREPLY <<< "$found"
}
complete -F _cxlpool cxlpool
)";
constexpr char kZsh[] = R"(#compdef cxlpool
_cxlpool() {
  local found
  found=$(cxlpool __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
  if [[ $? -eq 9 ]]; then compset -P '--*='; _files; elif [[ -n $found ]]; then compadd -- "${(@f)found}"; fi
}
if [[ $funcstack[1] == _cxlpool ]]; then _cxlpool "$@"; else compdef _cxlpool cxlpool; fi
)";
constexpr char kFish[] = R"(function __cxlpool_complete
  set -l words (commandline -opc) (commandline -ct)
  cxlpool __complete $words[2..-1] 2>/dev/null
  if test $status -eq 9
    __fish_complete_path (commandline -ct)
  end
end
complete -c cxlpool -f -a '(__cxlpool_complete)'
)";

// What `list` prints such names; empty: they are no names of the pool's.
std::string NamesOf(const std::string& value) {
  for (const char* kind : {"REGION", "HOST", "DEVICE", "TENANT", "CONTEXT"}) {
    if (value == kind) return absl::AsciiStrToLower(kind);
  }
  return "";
}

// How the help calls the value: its choices stand behind it.
std::string ValueOf(const CLI::Option& option) {
  const std::string name = option.get_type_name();
  return name.substr(0, name.find(':'));
}

bool IsOption(const std::string& word) { return word.size() > 1 && word.front() == '-'; }

// Walks along the words before the cursor.
class Walk {
 public:
  Walk(const CLI::App& app, const std::vector<std::string>& words) : app_(app), at_(&app) {
    result_.prefix = words.back();
    for (size_t i = 0; i + 1 < words.size(); ++i) Take(words[i]);
  }

  Candidates End() {
    const std::string& word = result_.prefix;
    const size_t equals = word.find('=');
    if (behind_dashes_) return result_;  // Another program's words.
    if (wants_value_ != nullptr) {
      if (IsConnection(*wants_value_)) result_.connection.pop_back();  // It has no value yet.
      AddValuesOf(*wants_value_);
    } else if (IsOption(word) && equals != std::string::npos) {
      // Shells want the whole word again.
      const CLI::Option* option = Find(word.substr(0, equals));
      result_.before = word.substr(0, equals + 1);
      if (option != nullptr) AddValuesOf(*option);
    } else if (!word.empty() && word.front() == '-') {
      AddOptions();
    } else if (const auto commands = Subcommands(); !commands.empty()) {
      for (const CLI::App* command : commands) Add(command->get_name());
    } else {
      AddPositional();
    }
    std::sort(result_.words.begin(), result_.words.end());
    return result_;
  }

 private:
  void Take(const std::string& word) {
    if (behind_dashes_) return;
    if (wants_value_ != nullptr) {
      if (IsConnection(*wants_value_)) result_.connection.push_back(word);
      wants_value_ = nullptr;
    } else if (word == "--") {
      behind_dashes_ = true;
    } else if (IsOption(word)) {
      const size_t equals = word.find('=');
      const CLI::Option* option = Find(word.substr(0, equals));
      if (option == nullptr) return;
      if (IsConnection(*option)) result_.connection.push_back(word);
      if (option->get_items_expected_max() > 0 && equals == std::string::npos) {
        wants_value_ = option;
      }
    } else if (const auto commands = Subcommands(); !commands.empty()) {
      for (const CLI::App* command : commands) {
        if (command->check_name(word)) at_ = command;
      }
    } else {
      ++positional_;
    }
  }

  std::vector<const CLI::App*> Subcommands() const {
    return at_->get_subcommands([](const CLI::App*) { return true; });
  }

  // Of this command, or of all.
  const CLI::Option* Find(const std::string& name) const {
    for (const CLI::App* from : {at_, &app_}) {
      const CLI::Option* option = from->get_option_no_throw(name);
      if (option != nullptr) return option;
    }
    return nullptr;
  }

  bool IsConnection(const CLI::Option& option) const {
    for (const char* name : {"--context", "--manager", "--config", "--ca", "--cert", "--key",
                             "--token-file", "--server-name", "--insecure"}) {
      if (option.check_name(name)) return app_.get_option_no_throw(name) == &option;
    }
    return false;
  }

  void Add(const std::string& word) {
    const std::string whole = absl::StrCat(result_.before, word);
    if (absl::StartsWith(whole, result_.prefix)) result_.words.push_back(whole);
  }

  void AddOptions() {
    for (const CLI::App* from : {at_, &app_}) {
      for (const CLI::Option* option : from->get_options()) {
        for (const std::string& name : option->get_lnames()) Add(absl::StrCat("--", name));
      }
      if (at_ == &app_) break;
    }
  }

  void AddValuesOf(const CLI::Option& option) {
    AddValues(option, option.check_name("--region") ? "REGION" : ValueOf(option));
  }

  // `value`: what stands there, in the words of the help.
  void AddValues(const CLI::Option& option, const std::string& value) {
    if (value == "WHAT") return AddThings();
    for (const std::string& choice : ChoicesOf(option)) Add(choice);
    result_.names_of = NamesOf(value);
    result_.files = value == "FILE" || value == "DIR" || value == "PATH" || value == "DB";
  }

  // "region/", and once it stands there names.
  void AddThings() {
    for (const char* kind : {"region", "host", "device"}) {
      const std::string before = absl::StrCat(kind, "/");
      if (absl::StartsWith(result_.prefix, before)) {
        result_.names_of = kind;
        result_.before = before;
        return;
      }
    }
    for (const char* kind : {"region", "host", "device"}) Add(absl::StrCat(kind, "/"));
  }

  // The last one takes all that follow.
  void AddPositional() {
    const std::vector<const CLI::Option*> all =
        at_->get_options([](const CLI::Option* option) { return option->get_positional(); });
    if (all.empty()) return;
    const CLI::Option& option = *all[std::min(positional_, all.size() - 1)];
    if (positional_ >= all.size() && option.get_items_expected_max() <= 1) return;
    const std::string name = option.get_name(/*positional=*/true);
    const bool of_region =
        at_->get_parent() != nullptr && at_->get_parent()->get_name() == "region";
    const bool is_new = at_->get_name() == "allocate" || name == "NEW";
    AddValues(option, name == "NAME" && of_region && !is_new ? "REGION" : name);
  }

  const CLI::App& app_;
  const CLI::App* at_;
  const CLI::Option* wants_value_ = nullptr;
  bool behind_dashes_ = false;
  size_t positional_ = 0;
  Candidates result_;
};

}  // namespace

std::vector<std::string> ChoicesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{');
  const size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return absl::StrSplit(type.substr(begin + 1, end - begin - 1), ',');
}

Candidates FindCandidates(const CLI::App& app, const std::vector<std::string>& words) {
  return Walk(app, words).End();
}

std::string CompletionScript(const std::string& shell) {
  if (shell == "bash") return kBash;
  if (shell == "zsh") return kZsh;
  if (shell == "fish") return kFish;
  return "";
}

}  // namespace cxlpool::cli
