#include "fabric-manager/adapters/fabric_qemu/qemu_tree.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

using nlohmann::json;

// Answers by "command path property".
class Tree {
 public:
  Tree& Set(const std::string& question, json answer) {
    answers_[question] = std::move(answer);
    return *this;
  }

  absl::StatusOr<json> operator()(const std::string& command, const json& arguments) const {
    const std::string question = absl::StrCat(command, " ", arguments.value("path", ""), " ",
                                              arguments.value("property", ""));
    const auto answer = answers_.find(question);
    if (answer == answers_.end()) return absl::NotFoundError(question);
    return answer->second;
  }

  static Tree Rack() {
    Tree tree;
    tree.Set("qom-list /machine/peripheral ", json::parse(R"([{"name": "type", "type": "string"},
                             {"name": "p0_0", "type": "child<cxl-downstream>"},
                             {"name": "us0", "type": "child<cxl-upstream>"},
                             {"name": "p0_1", "type": "child<cxl-downstream>"},
                             {"name": "m0", "type": "child<cxl-type3>"}])"))
        .Set("qom-get /machine/peripheral/p0_0 slot", 10u)
        .Set("qom-get /machine/peripheral/p0_1 slot", 11u)
        .Set("qom-get /machine/peripheral/m0 parent_bus", "/machine/peripheral/p0_1/p0_1")
        .Set("qom-get /machine/peripheral/m0 volatile-memdev", "/objects/b0")
        .Set("qom-get /machine/peripheral/m0 sn", uint64_t{UINT64_MAX})
        .Set("qom-get /objects/b0 mem-path", "/pool")
        .Set("qom-get /objects/b0 offset", 268435456u)
        .Set("qom-get /objects/b0 size", 536870912u)
        .Set("qom-get /objects/b0 readonly", true);
    return tree;
  }

 private:
  std::map<std::string, json> answers_;
};

TEST(QemuTreeTest, PortsAreFoundBySlot) {
  auto ports = ReadPorts(Tree::Rack());
  ASSERT_TRUE(ports.ok()) << ports.status();
  EXPECT_EQ(*ports, (std::map<uint32_t, std::string>{{10, "p0_0"}, {11, "p0_1"}}));
}

TEST(QemuTreeTest, OneSlotNumberForTwoPortsIsRefused) {
  auto ports = ReadPorts(Tree::Rack().Set("qom-get /machine/peripheral/p0_1 slot", 10u));
  EXPECT_EQ(ReasonOf(ports.status()), "SLOT_NOT_UNIQUE");
}

TEST(QemuTreeTest, MemoryIsReadThroughItsBackend) {
  auto memory = ReadMemory(Tree::Rack(), "m0");
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->port, "p0_1");
  EXPECT_EQ(memory->path, "/pool");
  EXPECT_EQ(memory->offset_bytes, 268435456u);
  EXPECT_EQ(memory->length_bytes, 536870912u);
  EXPECT_TRUE(memory->read_only);
  EXPECT_EQ(memory->serial, UINT64_MAX);
}

TEST(QemuTreeTest, GoneDeviceIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(ReadMemory(Tree::Rack(), "m1").status()));
}

TEST(QemuTreeTest, WrongTypesAreErrors) {
  const std::vector<std::pair<std::string, json>> wrong = {
      {"qom-get /machine/peripheral/m0 parent_bus", "nowhere"},
      {"qom-get /machine/peripheral/m0 parent_bus", 5},
      {"qom-get /machine/peripheral/m0 sn", "5"},
      {"qom-get /objects/b0 mem-path", nullptr},
      {"qom-get /objects/b0 offset", -1},
      {"qom-get /objects/b0 readonly", "on"}};
  for (const auto& [question, answer] : wrong) {
    EXPECT_FALSE(ReadMemory(Tree::Rack().Set(question, answer), "m0").ok()) << question;
  }
  EXPECT_FALSE(ReadPorts(Tree::Rack().Set("qom-get /machine/peripheral/p0_0 slot", 1e9)).ok());
  EXPECT_FALSE(ReadPorts(Tree::Rack().Set("qom-list /machine/peripheral ", json::object())).ok());
}

TEST(QemuTreeTest, EndlessTreeIsRefused) {
  json list = json::array();
  for (size_t i = 0; i <= kMaxPeripherals; ++i) list.push_back({{"name", "x"}, {"type", "t"}});
  auto ids = ListPeripherals(Tree().Set("qom-list /machine/peripheral ", list), "cxl-type3");
  EXPECT_TRUE(absl::IsResourceExhausted(ids.status()));
}

}  // namespace
}  // namespace cxlpool::fm
