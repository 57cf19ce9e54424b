#include "fabric-manager/adapters/fabric_qemu/qmp_message.h"

#include <gtest/gtest.h>

#include <random>

namespace cxlpool::fm {
namespace {

using nlohmann::json;

TEST(QmpMessageTest, GreetingGivesTheVersion) {
  auto message = ParseQmpMessage(
      R"({"QMP": {"version": {"qemu": {"micro": 3, "minor": 1, "major": 11}, "package": "x"}, "capabilities": ["oob"]}})");
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->kind, QmpMessage::Kind::kGreeting);
  EXPECT_EQ(message->name, "11.1.3");
}

TEST(QmpMessageTest, ReturnKeepsItsIdAndValue) {
  auto message = ParseQmpMessage("{\"return\": 18446744073709551610, \"id\": 7}\r");
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->kind, QmpMessage::Kind::kReturn);
  EXPECT_EQ(message->id, 7u);
  EXPECT_EQ(*ParseQomUint(message->value), 18446744073709551610u);
}

TEST(QmpMessageTest, ErrorKeepsClassAndDescription) {
  auto message = ParseQmpMessage(
      R"({"id": 9, "error": {"class": "DeviceNotFound", "desc": "Device 'zz' not found"}})");
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->kind, QmpMessage::Kind::kError);
  EXPECT_EQ(message->name, "DeviceNotFound");
  EXPECT_EQ(message->description, "Device 'zz' not found");
}

TEST(QmpMessageTest, EventKeepsItsData) {
  auto message = ParseQmpMessage(
      R"({"timestamp": {"seconds": 1, "microseconds": 2}, "event": "DEVICE_DELETED", "data": {"device": "ld-1"}})");
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->kind, QmpMessage::Kind::kEvent);
  EXPECT_EQ(message->name, "DEVICE_DELETED");
  EXPECT_EQ(message->value.at("device"), "ld-1");
}

TEST(QmpMessageTest, EventWithoutDataHasAnEmptyObject) {
  auto message = ParseQmpMessage(R"({"event": "RESUME"})");
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->value, json::object());
}

TEST(QmpMessageTest, WhatIsNoMessageIsAnError) {
  for (const char* line :
       {"",
        "{",
        "null",
        "17",
        "[]",
        "\"QMP\"",
        "{}",
        R"({"id": 1})",
        R"({"return": {}})",
        R"({"return": {}, "id": "x"})",
        R"({"return": {}, "id": -1})",
        R"({"return": {}, "error": {"class": "c"}, "id": 1})",
        R"({"error": "no", "id": 1})",
        R"({"error": {}, "id": 1})",
        R"({"event": 5})",
        R"({"event": ""})",
        R"({"event": "E", "data": []})",
        R"({"QMP": 1})",
        R"({"QMP": {"version": {}}})",
        R"({"QMP": {"version": {"qemu": {"major": "11", "minor": 1, "micro": 3}}}})",
        "{\"event\": \"\xff\xfe\"}",
        "{\"event\": \"E\"} trailing"}) {
    EXPECT_EQ(ParseQmpMessage(line).status().code(), absl::StatusCode::kInvalidArgument) << line;
  }
}

TEST(QmpMessageTest, DeepNestingIsAnErrorAndNoOverflow) {
  for (const char* opening : {"[", R"({"a":)"}) {
    std::string line = R"({"return": )";
    while (line.size() < kMaxQmpLineBytes - 64) line += opening;
    EXPECT_FALSE(ParseQmpMessage(line).ok());
  }
  std::string closed =
      R"({"id": 1, "return": )" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_FALSE(ParseQmpMessage(closed).ok());
}

TEST(QmpMessageTest, LongLineIsAnError) {
  const std::string line = R"({"event": ")" + std::string(kMaxQmpLineBytes, 'x') + "\"}";
  EXPECT_FALSE(ParseQmpMessage(line).ok());
}

TEST(QmpMessageTest, MutatedLinesNeverThrow) {
  const std::vector<std::string> seeds = {
      R"({"QMP": {"version": {"qemu": {"micro": 3, "minor": 1, "major": 11}}}})",
      R"({"return": [{"name": "p0", "type": "child<cxl-downstream>"}], "id": 1})",
      R"({"id": 9, "error": {"class": "GenericError", "desc": "no"}})",
      R"({"event": "DEVICE_DELETED", "data": {"device": "ld-1", "path": "/x"}})"};
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string line = seeds[random() % seeds.size()];
    for (int edits = static_cast<int>(random() % 4) + 1; edits > 0; --edits) {
      const size_t at = random() % line.size();
      if (random() % 2 == 0) {
        line[at] = static_cast<char>(random());
      } else {
        line.erase(at, random() % 5);
      }
      if (line.empty()) line = "x";
    }
    auto message = ParseQmpMessage(line);
    if (!message.ok()) continue;
    (void)ParseQomList(message->value);
    (void)ParseCpuThread(message->value);
  }
}

TEST(QmpMessageTest, CommandIsOneLineWithItsId) {
  auto line =
      FormatQmpCommand(42, "qom-get", {{"path", "/objects/b\n1"}, {"property", "\xc3\xa9"}});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->find('\n'), line->size() - 1);
  const json back = json::parse(*line);
  EXPECT_EQ(back.at("execute"), "qom-get");
  EXPECT_EQ(back.at("id"), 42);
  EXPECT_EQ(back.at("arguments").at("path"), "/objects/b\n1");
}

TEST(QmpMessageTest, CommandWithBytesThatAreNoTextIsRefused) {
  EXPECT_FALSE(FormatQmpCommand(1, "object-add", {{"mem-path", "/pool/\xff"}}).ok());
}

TEST(QmpMessageTest, QomListIsChecked) {
  auto list = ParseQomList(json::parse(R"([{"name": "a", "type": "child<x>", "more": 1}])"));
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->size(), 1u);
  EXPECT_EQ((*list)[0].name, "a");
  for (const char* text : {"{}", "[1]", R"([{"name": "a"}])", R"([{"name": 1, "type": "t"}])"}) {
    EXPECT_FALSE(ParseQomList(json::parse(text)).ok()) << text;
  }
}

TEST(QmpMessageTest, QomValuesAreCheckedByType) {
  EXPECT_FALSE(ParseQomUint(-1).ok());
  EXPECT_FALSE(ParseQomUint(1.5).ok());
  EXPECT_FALSE(ParseQomUint("1").ok());
  EXPECT_FALSE(ParseQomBool(1).ok());
  EXPECT_FALSE(ParseQomString(1).ok());
}

TEST(QmpMessageTest, CpuThreadIsChecked) {
  EXPECT_EQ(*ParseCpuThread(json::parse(R"([{"thread-id": 77}])")), 77u);
  for (const char* text : {"[]", "[1]", "{}", R"([{"thread-id": "x"}])"}) {
    EXPECT_FALSE(ParseCpuThread(json::parse(text)).ok()) << text;
  }
}

TEST(QmpMessageTest, AChardevIsFoundByItsSocket) {
  const json seen = json::parse(R"([1, {"label": 1, "filename": "unix:/run/qmp,server=on"},
      {"label": "no"}, {"label": "a", "filename": "unix:/run/qmp.evict,server=on"},
      {"label": "b", "filename": "unix:/run/qmp,server=on"}])");
  EXPECT_EQ(*ParseChardev(seen, "/run/qmp"), "b");
  EXPECT_EQ(*ParseChardev(seen, "/run/qmp.evict"), "a");
  EXPECT_FALSE(ParseChardev(seen, "/run/other").ok());
  EXPECT_FALSE(ParseChardev(json::parse("{}"), "/run/qmp").ok());
}

}  // namespace
}  // namespace cxlpool::fm
