// Golden files: each is a small world in lines, questions about it, and, indented by two blanks,
// the answers that are expected. What a line may say is the README's beside the files.
//
// GOLDEN_UPDATE=1 in the environment rewrites what is expected: read the difference before you keep
// it.
#ifndef CXLPOOL_TEST_RIGS_GOLDEN_FILES_H_
#define CXLPOOL_TEST_RIGS_GOLDEN_FILES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cxlpool::golden {

using Words = std::vector<std::string>;

inline uint64_t ToNumber(const std::string& text) {
  uint64_t number = 0;
  EXPECT_TRUE(absl::StartsWith(text, "0x") ? absl::SimpleHexAtoi(text, &number)
                                           : absl::SimpleAtoi(text, &number))
      << "\"" << text << "\" is no number";
  return number;
}
inline uint32_t ToSmall(const std::string& text) { return static_cast<uint32_t>(ToNumber(text)); }

inline uint64_t ToBytes(const std::string& text) {
  for (const auto& [suffix, shift] : {std::pair("GiB", 30), {"MiB", 20}, {"KiB", 10}}) {
    if (absl::EndsWith(text, suffix)) return ToNumber(text.substr(0, text.size() - 3)) << shift;
  }
  return ToNumber(text);
}

template <typename Value>
Value OneOf(const std::string& text, const std::map<std::string, Value>& values) {
  const auto it = values.find(text);
  EXPECT_TRUE(it != values.end()) << "what is \"" << text << "\"?";
  return it == values.end() ? values.begin()->second : it->second;
}

// The rest of a line: "key value" pairs, in any order.
class Options {
 public:
  Options(const Words& words, size_t first) {
    for (size_t i = first; i < words.size(); i += 2) {
      values_[words[i]] = i + 1 < words.size() ? words[i + 1] : "";
    }
  }
  // Every option is to be asked for: one that is not is a mistake in the file.
  ~Options() {
    for (const auto& [key, value] : values_) ADD_FAILURE() << "what is \"" << key << "\"?";
  }
  bool Has(const std::string& key) const { return values_.contains(key); }
  std::string Text(const std::string& key, const std::string& otherwise = "") {
    const auto it = values_.find(key);
    if (it == values_.end()) return otherwise;
    std::string value = it->second;
    values_.erase(it);
    return value;
  }
  uint64_t Number(const std::string& key, uint64_t otherwise = 0) {
    return Has(key) ? ToNumber(Text(key)) : otherwise;
  }
  uint64_t Bytes(const std::string& key, uint64_t otherwise = 0) {
    return Has(key) ? ToBytes(Text(key)) : otherwise;
  }
  bool Flag(const std::string& key) { return Text(key) == "yes"; }
  Words List(const std::string& key) { return absl::StrSplit(Text(key), ',', absl::SkipEmpty()); }
  std::vector<uint32_t> Numbers(const std::string& key) {
    std::vector<uint32_t> numbers;
    for (const std::string& word : List(key)) numbers.push_back(ToSmall(word));
    return numbers;
  }

 private:
  std::map<std::string, std::string> values_;
};

// The files of a directory, without ".txt", for ValuesIn().
inline std::vector<std::string> Files(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// What GoogleTest calls the test of a file.
inline std::string TestName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
}

// All of them in one text.
inline std::string AllOf(const std::filesystem::path& directory) {
  std::string all;
  for (const std::string& name : Files(directory)) {
    std::ifstream in(directory / (name + ".txt"));
    all += std::string(std::istreambuf_iterator<char>(in), {});
  }
  return all;
}

// Whether the file is as it should be. `ask` gets each line in words: its answers, in lines, if the
// line is a question; otherwise the line says what is there, and `ask` sets `*question` to false.
inline void Check(const std::filesystem::path& path,
                  const std::function<Words(const Words& line, bool* question)>& ask) {
  Words lines;
  {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
  }
  std::string should_be;
  std::string is;
  int questions = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    SCOPED_TRACE(absl::StrCat(path.filename().string(), ":", i + 1));
    is += lines[i] + "\n";
    if (absl::StartsWith(lines[i], "  ")) continue;  // What is expected.
    should_be += lines[i] + "\n";
    const std::string line = lines[i].substr(0, lines[i].find('#'));
    const Words words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.empty()) continue;
    bool question = true;
    for (const std::string& answer : ask(words, &question)) should_be += "  " + answer + "\n";
    questions += question;
  }
  EXPECT_GT(questions, 0) << "void: it asks for nothing";
  if (testing::Test::HasFailure()) return;
  if (const char* update = std::getenv("GOLDEN_UPDATE"); update != nullptr && *update == '1') {
    std::ofstream(path) << should_be;
    return;
  }
  EXPECT_EQ(is, should_be) << "if that is meant: GOLDEN_UPDATE=1, and read the difference";
}

}  // namespace cxlpool::golden

#endif  // CXLPOOL_TEST_RIGS_GOLDEN_FILES_H_
