// An agent of the release before, served by this manager. It knows the messages as they were
// released (test/data/api.binpb): what came later it does not say, and drops where it is told.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "test/rigs/service_rig.h"

namespace cxlpool::fm {
namespace {

class ReleasedMessages {
 public:
  ReleasedMessages() {
    std::ifstream in(CXLPOOL_SOURCE_DIR "/test/data/api.binpb", std::ios::binary);
    google::protobuf::FileDescriptorSet files;
    EXPECT_TRUE(files.ParseFromIstream(&in));
    for (const auto& file : files.file()) {
      EXPECT_NE(pool_.BuildFile(file), nullptr) << file.name();
    }
  }

  // `message` as one reads it, and says it again, who knows only what was released.
  template <typename Message>
  Message Of(const Message& message) {
    const auto* type = pool_.FindMessageTypeByName(message.GetTypeName());
    if (type == nullptr) {
      ADD_FAILURE() << message.GetTypeName() << " was not released";
      return Message();
    }
    const std::unique_ptr<google::protobuf::Message> known(types_.GetPrototype(type)->New());
    EXPECT_TRUE(known->ParseFromString(message.SerializeAsString()));
    known->DiscardUnknownFields();
    Message again;
    EXPECT_TRUE(again.ParseFromString(known->SerializeAsString()));
    return again;
  }

 private:
  google::protobuf::DescriptorPool pool_;
  google::protobuf::DynamicMessageFactory types_{&pool_};
};

class ReleasedAgent : public FakeAgent {
 public:
  ReleasedAgent(World* world, ReleasedMessages* released)
      : FakeAgent("host-a", world), released_(released) {}

  void Send(v1::ManagerMessage message) override { FakeAgent::Send(released_->Of(message)); }
  std::vector<v1::AgentMessage> Take() override {
    std::vector<v1::AgentMessage> messages = FakeAgent::Take();
    for (v1::AgentMessage& message : messages) message = released_->Of(message);
    return messages;
  }

 private:
  ReleasedMessages* const released_;
};

class ReleasedAgentTest : public testing::Test {
 protected:
  // The agent of host-a, in a session of its own from now on.
  std::shared_ptr<ReleasedAgent> Join() {
    auto agent = std::make_shared<ReleasedAgent>(&world, &released);
    rig.agents["host-a"] = agent;
    v1::Hello hello = agent->Hello();
    hello.set_agent_version("0.1.0");
    rig.sessions.OnHello(agent, {"", true}, released.Of(hello));
    return agent;
  }

  ReleasedMessages released;
  World world;
  ServiceRig rig{std::make_shared<MemoryDisk>(), &world};
};

TEST_F(ReleasedAgentTest, ReadsWhatWasReleasedAndNothingElse) {
  v1::Welcome welcome;
  welcome.set_lease_ms(7);
  v1::Welcome::GetReflection()->MutableUnknownFields(&welcome)->AddVarint(99999, 1);
  const v1::Welcome read = released.Of(welcome);
  EXPECT_EQ(read.lease_ms(), 7u);
  EXPECT_TRUE(v1::Welcome::GetReflection()->GetUnknownFields(read).empty());
}

TEST_F(ReleasedAgentTest, IsServedFromItsHelloToTheReleaseOfItsMemory) {
  rig.sessions.SetEpoch(7);  // As a manager of today says, where it has replicas.
  const auto first = Join();
  ASSERT_TRUE(first->closed.ok()) << first->closed;
  EXPECT_EQ(rig.writer.state().Runtime("host-a").agent_version, "0.1.0");
  ASSERT_TRUE(rig.Allocate(AllocateOn("kv", "host-a", 1)).ok());
  ASSERT_TRUE(rig.RunUntil([&] { return Settled(rig.Find("kv")); }));
  ASSERT_TRUE(rig.Resize("kv", 5 * kGranule, 2).ok());
  ASSERT_TRUE(rig.RunUntil([&] { return Settled(rig.Find("kv")); }));
  EXPECT_EQ(rig.Find("kv")->size_bytes(), 5 * kGranule);

  EXPECT_TRUE(first->closed.ok()) << first->closed;
  // It comes back with what it has, and stays as long as it is heard.
  const auto second = Join();
  ASSERT_TRUE(second->closed.ok()) << second->closed;
  for (int i = 0; i < 20; ++i) {
    rig.KeepAlive();
    rig.Run(absl::Seconds(1));
  }
  EXPECT_TRUE(second->closed.ok()) << second->closed;
  EXPECT_TRUE(Settled(rig.Find("kv")));

  ASSERT_TRUE(rig.Resize("kv", 2 * kGranule, 3).ok());
  ASSERT_TRUE(rig.RunUntil([&] { return Settled(rig.Find("kv")); }));
  ASSERT_TRUE(rig.Call(&PoolService::Release, ReleaseOf("kv", 4)).ok());
  ASSERT_TRUE(rig.RunUntil([&] { return rig.Find("kv") == nullptr; }));
  EXPECT_TRUE(world.bound.empty());
  EXPECT_EQ(rig.views.Get()->capacity.held_bytes, 0u);
  EXPECT_TRUE(second->closed.ok()) << second->closed;
}

}  // namespace
}  // namespace cxlpool::fm
