#include "tools/cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include "tools/cli/command_line.h"

namespace cxlpool::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

// The last word is the one at the cursor.
Candidates At(const std::vector<std::string>& words) {
  std::vector<const char*> argv = {"cxlpool", kCompleteCommand};
  for (const std::string& word : words) argv.push_back(word.c_str());
  const auto parsed = ParseCommandLine(static_cast<int>(argv.size()), argv.data());
  if (!parsed.ok() || !std::holds_alternative<Candidates>(*parsed)) {
    ADD_FAILURE() << parsed.status();
    return {};
  }
  return std::get<Candidates>(*parsed);
}
std::vector<std::string> WordsAt(const std::vector<std::string>& words) { return At(words).words; }

TEST(CompletionTest, CommandsThatBeginAsTheWord) {
  EXPECT_THAT(WordsAt({""}), IsSupersetOf({"region", "host", "device", "doctor", "explain"}));
  EXPECT_THAT(WordsAt({"re"}), ElementsAre("region", "report"));
  EXPECT_THAT(WordsAt({"region", "re"}), ElementsAre("release", "rename", "renew", "resize"));
  EXPECT_THAT(WordsAt({"regoin", ""}), Contains("region")) << "a wrong word is passed over";
}

TEST(CompletionTest, OptionsOfTheCommandAndOfAll) {
  EXPECT_THAT(WordsAt({"region", "allocate", "--"}),
              IsSupersetOf({"--size", "--host", "--output", "--manager"}));
  EXPECT_THAT(WordsAt({"region", "allocate", "--sha"}), ElementsAre("--sharing"));
  EXPECT_THAT(WordsAt({"region", "show", "--"}), Not(Contains("--size")));
}

TEST(CompletionTest, ValuesOfAnOption) {
  EXPECT_THAT(WordsAt({"region", "list", "-o", ""}), ElementsAre("json", "name", "table", "yaml"));
  EXPECT_THAT(WordsAt({"region", "list", "--output=j"}), ElementsAre("--output=json"));
  EXPECT_EQ(At({"region", "allocate", "--host=ho"}).names_of, "host");
  EXPECT_EQ(At({"region", "allocate", "--host=ho"}).before, "--host=");
  EXPECT_TRUE(At({"--ca=x"}).files);
  EXPECT_THAT(WordsAt({"region", "allocate", "--mode", "s"}), ElementsAre("system-ram"));
  EXPECT_THAT(WordsAt({"region", "allocate", "--isolation", ""}), ElementsAre("any", "fabric"));
  EXPECT_THAT(WordsAt({"region", "allocate", "--policy", ""}),
              ElementsAre("bandwidth", "isolate", "latency", "pack", "spread"));
  EXPECT_THAT(WordsAt({"region", "allocate", "--interleave-ways", "1"}), ElementsAre("16"));
  EXPECT_THAT(WordsAt({"pki", "issue", "h"}), ElementsAre("host"));
  EXPECT_THAT(WordsAt({"completion", ""}), ElementsAre("bash", "fish", "zsh"));
  EXPECT_EQ(At({"region", "allocate", "--host", "ho"}).names_of, "host");
  EXPECT_EQ(At({"region", "allocate", "--device", ""}).names_of, "device");
  EXPECT_EQ(At({"region", "allocate", "--tenant", ""}).names_of, "tenant");
  EXPECT_EQ(At({"run", "--region", ""}).names_of, "region");
  EXPECT_EQ(At({"region", "allocate", "--size", ""}).names_of, "");
  // A flag has no value.
  EXPECT_EQ(At({"region", "release", "--detach-all", ""}).names_of, "region");
}

TEST(CompletionTest, NamesWhereACommandWantsThem) {
  for (const char* command : {"show", "get", "attach", "detach", "resize", "watch", "holders"}) {
    EXPECT_EQ(At({"region", command, ""}).names_of, "region") << command;
  }
  EXPECT_EQ(At({"region", "allocate", ""}).names_of, "") << "it is a new one";
  EXPECT_EQ(At({"region", "rename", "kv", ""}).names_of, "");
  EXPECT_EQ(At({"region", "show", "kv", ""}).names_of, "") << "one is enough";
  EXPECT_EQ(At({"region", "release", "a", "b", ""}).names_of, "region") << "many";
  EXPECT_EQ(At({"host", "fence", "ho"}).names_of, "host");
  EXPECT_EQ(At({"host", "fence", "ho"}).prefix, "ho");
  EXPECT_EQ(At({"device", "drain", ""}).names_of, "device");
  EXPECT_EQ(At({"tenant", "set", ""}).names_of, "tenant");
}

TEST(CompletionTest, ContextsOfTheFileOnTheLine) {
  EXPECT_EQ(At({"--config", "x.toml", "--context", ""}).names_of, "context");
  EXPECT_THAT(At({"--config", "x.toml", "--context", ""}).connection,
              ElementsAre("--config", "x.toml"));
  EXPECT_THAT(At({"--config", "x.toml", "context", "use", ""}).connection,
              ElementsAre("--config", "x.toml"));
  EXPECT_EQ(At({"context", "use", ""}).names_of, "context");
  EXPECT_THAT(At({"--context", "lab", "region", "show", ""}).connection,
              ElementsAre("--context", "lab"));
}

TEST(CompletionTest, FilesWhereACommandWantsThem) {
  EXPECT_TRUE(At({"backup", ""}).files);
  EXPECT_TRUE(At({"fsck", "x"}).files);
  EXPECT_TRUE(At({"region", "allocate", "--batch", ""}).files);
  EXPECT_TRUE(At({"--ca", ""}).files);
  EXPECT_FALSE(At({"region", "show", ""}).files);
}

TEST(CompletionTest, WhatIsExplainedHasItsKindBeforeItsName) {
  EXPECT_THAT(WordsAt({"explain", ""}), ElementsAre("device/", "host/", "region/"));
  EXPECT_THAT(WordsAt({"explain", "region/"}), IsEmpty());
  const Candidates region = At({"explain", "region/k"});
  EXPECT_EQ(region.names_of, "region");
  EXPECT_EQ(region.before, "region/");
  EXPECT_THAT(region.words, IsEmpty());
}

TEST(CompletionTest, TheManagerIsTheOneOnTheLine) {
  EXPECT_THAT(
      At({"--manager", "fm:1", "region", "--insecure", "show", "-o", "json", ""}).connection,
      ElementsAre("--manager", "fm:1", "--insecure"));
  EXPECT_THAT(At({"--ca=x.pem", "region", "show", ""}).connection, ElementsAre("--ca=x.pem"));
}

TEST(CompletionTest, AnotherProgramsWordsAreItsOwn) {
  const Candidates behind = At({"run", "--size", "1GiB", "--", "redis-server", "--"});
  EXPECT_THAT(behind.words, IsEmpty());
  EXPECT_EQ(behind.names_of, "");
}

// What bash makes of a line: the script is given the words as bash takes them apart. The command is
// one that notes what it was asked, and answers `answer`.
std::string InBash(const std::string& line, const std::string& words, const std::string& answer,
                   int status = 0) {
  std::string name = (std::filesystem::temp_directory_path() / "cxlpool-bash-XXXXXX").string();
  const std::string dir = mkdtemp(name.data());
  std::ofstream(dir + "/script") << CompletionScript("bash") << "cd " << dir << "; echo > a.pem\n"
                                 << "cxlpool() { printf '<%s>' \"$@\" >&3; printf -- '" << answer
                                 << "\\n'; return " << status << "; }\n"
                                 << "COMP_LINE='" << line << "' COMP_WORDS=(" << words << ")\n"
                                 << "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                                 << "_cxlpool 3>&1; printf ' %s' \"${COMPREPLY[@]}\"\n";
  FILE* bash = popen(("bash " + dir + "/script").c_str(), "r");
  std::string out(1000, '\0');
  out.resize(fread(out.data(), 1, out.size(), bash));
  pclose(bash);
  std::filesystem::remove_all(dir);
  return out;
}

TEST(CompletionTest, BashTakesWordsApartAndPutsTheRestInTheirPlace) {
  if (access("/bin/bash", X_OK) != 0) GTEST_SKIP() << "there is no bash";
  EXPECT_EQ(InBash("cxlpool region sh", "cxlpool region sh", "show"),
            "<__complete><region><sh> show");
  EXPECT_EQ(InBash("cxlpool region show ", "cxlpool region show ''", "kv\\nkw"),
            "<__complete><region><show><> kv kw");
  EXPECT_EQ(InBash("cxlpool --manager fm:7443 region sh", "cxlpool --manager fm : 7443 region sh",
                   "show"),
            "<__complete><--manager><fm:7443><region><sh> show");
  EXPECT_EQ(InBash("cxlpool --output=j", "cxlpool --output = j", "--output=json"),
            "<__complete><--output=j> json");
  EXPECT_EQ(InBash("cxlpool --output=", "cxlpool --output =", "--output=json\\n--output=yaml"),
            "<__complete><--output=> json yaml");
  EXPECT_EQ(InBash("cxlpool device drain cxl:mem", "cxlpool device drain cxl : mem",
                   "cxl:mem0\\ncxl:mem1"),
            "<__complete><device><drain><cxl:mem> mem0 mem1");
  EXPECT_EQ(InBash("cxlpool --ca=a", "cxlpool --ca = a", "", kFiles), "<__complete><--ca=a> a.pem");
}

TEST(CompletionTest, EachShellHasAScript) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = CompletionScript(shell);
    EXPECT_NE(script.find(kCompleteCommand), std::string::npos) << shell;
    const char* const argv[] = {"cxlpool", "completion", shell};
    const auto parsed = ParseCommandLine(3, argv);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(std::get<PrintText>(*parsed).text, script);
  }
  EXPECT_EQ(CompletionScript("csh"), "");
}

}  // namespace
}  // namespace cxlpool::cli
