// Compares text with a file in testdata. CXLPOOL_UPDATE_GOLDEN=1 writes the file instead.
#ifndef CXLPOOL_TOOLS_CLI_GOLDEN_H_
#define CXLPOOL_TOOLS_CLI_GOLDEN_H_

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <sstream>
#include <string>

namespace cxlpool::cli {

inline std::string TestData(const std::string& name) {
  return std::string(CXLPOOL_CLI_TESTDATA) + "/" + name;
}

inline std::string ReadTestData(const std::string& name) {
  std::ifstream in(TestData(name));
  EXPECT_TRUE(in.good()) << name;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

template <typename Message>
Message ReadMessage(const std::string& name) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(ReadTestData(name), &message)) << name;
  return message;
}

inline void ExpectGolden(const std::string& name, const std::string& text) {
  if (getenv("CXLPOOL_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(TestData(name)) << text;
    return;
  }
  EXPECT_EQ(text, ReadTestData(name)) << name;
}

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_GOLDEN_H_
