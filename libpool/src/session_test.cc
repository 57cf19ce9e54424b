// The conversation's rules: holds, restarts, replies that break the protocol, time-outs.
#include "libpool/src/session.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <thread>
#include <vector>

#include "cxlpool/pool.h"
#include "libpool/src/reason_for_test.h"
#include "test/rigs/fake_agent.h"

namespace cxlpool::libpool {
namespace {

constexpr char kRegionName[] = "regions/kv";

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() { agent_.Add({.name = kRegionName}); }

  Pool Connect(std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    return Pool::Connect({.socket_path = agent_.socket_path(), .timeout = timeout}).value();
  }

  // What Open says when the agent's answer is changed by `edit`.
  std::string OpenEdited(std::function<void(v1::LocalResponse&)> edit) {
    agent_.Next({.what = FakeAgent::Mishap::kEdit, .edit = std::move(edit)});
    Pool client = Connect();
    return ReasonOf(client.Open("kv"));
  }

  FakeAgent agent_;
};

TEST_F(SessionTest, TheLastUseClosesTheRegion) {
  Pool client = Connect();
  auto first = client.Open("kv");
  auto second = client.Open("kv", {.access = Access::kReadOnly});
  ASSERT_TRUE(first.ok() && second.ok());
  auto mapping = first->Map();
  ASSERT_TRUE(mapping.ok());

  { const Region ended = *std::move(first); }
  { const Region ended = *std::move(second); }
  ASSERT_TRUE(client.List().ok());
  EXPECT_EQ(agent_.Opens(kRegionName), 1) << "the mapping is in use";
  mapping->Unmap();
  EXPECT_EQ(agent_.Opens(kRegionName), 0);
  EXPECT_TRUE(mapping->bytes().empty());
}

TEST_F(SessionTest, ARestartedAgentIsAskedForThePathAgain) {
  Pool client = Connect();
  const auto region = client.Open("kv", {.as_file = true});
  ASSERT_TRUE(region.ok());
  agent_.Stop();
  agent_.Start();
  ASSERT_TRUE(client.List().ok());
  const std::vector<v1::LocalRequest> requests = agent_.Requests();
  EXPECT_TRUE(requests[requests.size() - 2].open().as_file());
}

TEST_F(SessionTest, PathsThatAreNoneAreNotHandedOn) {
  for (const char* path : {"dev/dax1.0", "/dev/dax1.0\n", "/dev/\x1b[2J", "/\x7f"}) {
    EXPECT_EQ(OpenEdited([=](v1::LocalResponse& response) {
                response.mutable_open()->mutable_segments(0)->set_path(path);
              }),
              "BAD_REPLY")
        << path;
  }
  EXPECT_EQ(OpenEdited([](v1::LocalResponse& response) {
              response.mutable_open()->mutable_segments(0)->set_path(std::string(5000, '/'));
            }),
            "BAD_REPLY");
}

// A child that becomes another program has the connection as long as that lives.
TEST_F(SessionTest, TheProgramAfterExecKeepsWhatItIsToKeep) {
  int to_child[2] = {-1, -1};
  int from_child[2] = {-1, -1};
  ASSERT_EQ(::pipe2(to_child, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(from_child, O_CLOEXEC), 0);
  const std::string socket = agent_.socket_path();
  agent_.Add({.name = "regions/other", .tag = "0f8fad5b-d9cb-469f-a165-708677289501"});
  const pid_t child = ::fork();
  if (child == 0) {
    Pool kept = Pool::Connect({.socket_path = socket}).value();
    Pool dropped = Pool::Connect({.socket_path = socket}).value();
    const auto region = kept.Open("kv", {.as_file = true});
    const auto other = dropped.Open("other");
    if (!region.ok() || !other.ok() || !region->KeepThroughExec().ok()) ::_exit(3);
    ::dup2(to_child[0], STDIN_FILENO);
    ::dup2(from_child[1], STDOUT_FILENO);
    ::execlp("sh", "sh", "-c", "echo ready; cat", nullptr);
    ::_exit(4);
  }
  ::close(to_child[0]);
  ::close(from_child[1]);
  char ready = 0;
  ASSERT_EQ(::read(from_child[0], &ready, 1), 1) << "the child has ended before it was sh";
  // Both would have ended in the exec: where the agent has seen one end, and has answered another
  // question since, it has seen both.
  EXPECT_TRUE(agent_.AwaitOpens("regions/other", 0));
  EXPECT_TRUE(Connect().List().ok());
  EXPECT_EQ(agent_.Opens(kRegionName), 1);
  ::close(to_child[1]);
  ::close(from_child[0]);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(agent_.AwaitOpens(kRegionName, 0));
}

TEST_F(SessionTest, WhatIsOpenOnNoConnectionCannotBeKept) {
  Pool client = Connect();
  const auto region = client.Open("kv");
  ASSERT_TRUE(region.ok());
  agent_.Stop();
  agent_.Remove(kRegionName);
  agent_.Start();
  ASSERT_TRUE(client.List().ok());
  EXPECT_EQ(region->KeepThroughExec().error().reason, "AGENT_LOST");
}

TEST_F(SessionTest, ARestartedAgentIsAskedForWhatWasOpenAndNoMore) {
  agent_.Add({.name = kRegionName, .segment_bytes = {1 << 20, 2 << 20}});
  Pool client = Connect();
  const auto region = client.Open("kv");
  ASSERT_TRUE(region.ok());
  EXPECT_EQ(region->size_bytes(), uint64_t{3} << 20);
  EXPECT_EQ(agent_.Requests().back().open().tag(), "");  // A first Open goes by the name.
  EXPECT_EQ(agent_.Requests().back().open().at_most_bytes(), 0u);
  agent_.Stop();
  agent_.Start();
  ASSERT_TRUE(client.List().ok());
  const std::vector<v1::LocalRequest> requests = agent_.Requests();
  const v1::LocalOpenRequest& again = requests[requests.size() - 2].open();
  EXPECT_EQ(again.name(), kRegionName);
  EXPECT_EQ(again.tag(), region->tag());
  EXPECT_EQ(again.at_most_bytes(), uint64_t{3} << 20);
  EXPECT_EQ(agent_.Opens(kRegionName), 1);
  EXPECT_TRUE(region->Check().ok());
}

TEST_F(SessionTest, ARestartedAgentHearsOfWhatIsOpen) {
  Pool client = Connect();
  const auto region = client.Open("kv");
  ASSERT_TRUE(region.ok());
  auto mapping = region->Map();
  ASSERT_TRUE(mapping.ok());
  std::memcpy(mapping->mutable_bytes().data(), "kept", 4);

  agent_.Stop();
  mapping->mutable_bytes()[4] = std::byte{'!'};
  agent_.Start();
  EXPECT_EQ(agent_.Opens(kRegionName), 0);
  ASSERT_TRUE(client.List().ok());
  EXPECT_EQ(agent_.Opens(kRegionName), 1);
  EXPECT_TRUE(region->Check().ok());
  EXPECT_EQ(std::memcmp(mapping->bytes().data(), "kept!", 5), 0);
  EXPECT_TRUE(region->Map().ok());
}

TEST_F(SessionTest, ACallOutwaitsARestart) {
  Pool client = Connect();
  agent_.Stop();
  std::thread restart([this] { agent_.Start(); });
  EXPECT_TRUE(client.List().ok());
  restart.join();
}

TEST_F(SessionTest, ACallEndsWhenTheAgentStaysAway) {
  Pool client = Connect(std::chrono::milliseconds(300));
  auto region = client.Open("kv");
  ASSERT_TRUE(region.ok());
  agent_.Stop();
  const Error status = client.List().error();
  EXPECT_EQ(status.code, CXLPOOL_UNAVAILABLE);
  EXPECT_EQ(status.reason, "AGENT_NOT_RUNNING");
  { const Region ended = *std::move(region); }
  agent_.Start();
  EXPECT_TRUE(client.List().ok());
  EXPECT_EQ(agent_.Opens(kRegionName), 0);
}

TEST_F(SessionTest, ARegionThatCannotBeReopenedSaysSoAndIsTriedAgain) {
  Pool client = Connect();
  const auto region = client.Open("kv");
  ASSERT_TRUE(region.ok());
  agent_.Stop();
  agent_.Remove(kRegionName);
  agent_.Start();
  EXPECT_TRUE(client.List().ok());
  EXPECT_EQ(ReasonOf(region->Check()), "NOT_ATTACHED");
  agent_.Add({.name = kRegionName});
  EXPECT_TRUE(client.List().ok());
  EXPECT_TRUE(region->Check().ok());
  EXPECT_EQ(agent_.Opens(kRegionName), 1);
}

TEST_F(SessionTest, AnotherGenerationIsNotTakenForTheSameRegion) {
  Pool client = Connect();
  const auto region = client.Open("kv");
  ASSERT_TRUE(region.ok());
  agent_.Stop();
  agent_.Add({.name = kRegionName, .generation = 2});
  agent_.Start();
  EXPECT_TRUE(client.List().ok());
  EXPECT_EQ(ReasonOf(region->Check()), "STALE_GENERATION");
  EXPECT_EQ(agent_.Opens(kRegionName), 0) << "what was opened by mistake is closed";

  const auto fresh = client.Open("kv");
  ASSERT_TRUE(fresh.ok());
  EXPECT_EQ(fresh->generation(), 2u);
  EXPECT_EQ(ReasonOf(region->Check()), "STALE_GENERATION");
  EXPECT_EQ(agent_.Opens(kRegionName), 1);
}

TEST_F(SessionTest, EndingAStaleRegionLeavesItsSuccessorOpen) {
  Pool client = Connect();
  auto region = client.Open("kv");
  ASSERT_TRUE(region.ok());
  agent_.Stop();
  agent_.Add({.name = kRegionName, .generation = 2});
  agent_.Start();
  const auto fresh = client.Open("kv");
  ASSERT_TRUE(fresh.ok());
  { const Region ended = *std::move(region); }
  ASSERT_TRUE(client.List().ok());
  EXPECT_EQ(agent_.Opens(kRegionName), 1);
}

TEST_F(SessionTest, ASilentAgentEndsTheCallInTime) {
  Pool client = Connect(std::chrono::milliseconds(300));
  agent_.Pause();
  const auto begin = std::chrono::steady_clock::now();
  const Error status = client.List().error();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(status.code, CXLPOOL_DEADLINE_EXCEEDED);
  EXPECT_EQ(status.reason, "AGENT_TIMEOUT");
  agent_.Resume();
}

TEST_F(SessionTest, LateRepliesAreNotTakenForLaterOnes) {
  Pool client = Connect(std::chrono::milliseconds(300));
  auto held = client.Open("kv");
  ASSERT_TRUE(held.ok());
  agent_.Add({.name = "regions/late"});
  agent_.Pause();
  // The Open is sent, and its caller goes; the List waits for the reply that is owed, in vain.
  EXPECT_EQ(ReasonOf(client.Open("late")), "AGENT_TIMEOUT");
  EXPECT_EQ(ReasonOf(client.List()), "AGENT_TIMEOUT");
  agent_.Resume();

  // Whatever the machine's load: a call succeeds in the end, and always by its own reply.
  bool answered = false;
  for (int i = 0; i < 200; ++i) {
    const auto listed = client.List();
    answered = listed.ok();
    if (answered) {
      EXPECT_EQ(listed->size(), 2u);
      break;
    }
    EXPECT_EQ(ReasonOf(listed), "AGENT_TIMEOUT");
  }
  ASSERT_TRUE(answered);
  EXPECT_EQ(agent_.Opens(kRegionName), 1) << "the connection stayed";
  for (int i = 0; i < 200 && agent_.Opens("regions/late") != 0; ++i) (void)client.List();
  EXPECT_EQ(agent_.Opens("regions/late"), 0) << "opened for nobody";
  // The agent did open it: what is closed now was open.
  int opened = 0, closed = 0;
  for (const v1::LocalRequest& request : agent_.Requests()) {
    opened += request.has_open() && request.open().name() == "regions/late" ? 1 : 0;
    closed += request.has_close() && request.close().name() == "regions/late" ? 1 : 0;
  }
  EXPECT_EQ(opened, 1);
  EXPECT_EQ(closed, 1);
}

TEST_F(SessionTest, ARegionEndsWithoutWaitingForOtherCalls) {
  Pool client = Connect();
  auto region = client.Open("kv");
  ASSERT_TRUE(region.ok());
  std::promise<void> working, go_on;
  agent_.Next({.what = FakeAgent::Mishap::kEdit, .edit = [&](v1::LocalResponse&) {
                 working.set_value();
                 go_on.get_future().wait();
               }});
  std::thread other([&client] { EXPECT_TRUE(client.List().ok()); });
  working.get_future().wait();
  { const Region ended = *std::move(region); }  // The agent is at work for the other call.
  go_on.set_value();
  other.join();
  EXPECT_TRUE(agent_.AwaitOpens(kRegionName, 0)) << "the other call said it";
}

// The other call takes all its time: there is none left to wait for the answer to a close.
TEST_F(SessionTest, ARegionEndsAlsoBesideACallThatTakesAllItsTime) {
  Pool client = Connect(std::chrono::seconds(2));
  auto region = client.Open("kv");
  ASSERT_TRUE(region.ok());
  std::promise<void> working, go_on;
  const auto away = [](v1::LocalResponse& response) {
    response.Clear();
    response.set_code(CXLPOOL_UNAVAILABLE);
    response.mutable_error()->set_reason("MANAGER_UNREACHABLE");
  };
  agent_.Next({.what = FakeAgent::Mishap::kEdit, .edit = [&](v1::LocalResponse& response) {
                 away(response);
                 working.set_value();
                 go_on.get_future().wait();
               }});
  for (int i = 0; i < 100; ++i) agent_.Next({.what = FakeAgent::Mishap::kEdit, .edit = away});
  std::thread other([&client] { EXPECT_EQ(ReasonOf(client.List()), "MANAGER_UNREACHABLE"); });
  working.get_future().wait();
  { const Region ended = *std::move(region); }
  go_on.set_value();
  other.join();
  EXPECT_TRUE(agent_.AwaitOpens(kRegionName, 0)) << "no other call follows";
}

// Opens Regions that are not there yet, from as many threads as a client has lanes.
class WaitingCalls {
 public:
  WaitingCalls(FakeAgent& agent, Pool& client, size_t count) : agent_(agent) {
    for (size_t i = 0; i < count; ++i) {
      threads_.emplace_back([&client, i] {
        const auto region = client.Open(Name(i), {.wait = std::chrono::minutes(1)});
        EXPECT_TRUE(region.ok()) << region.error().text();
        EXPECT_EQ(region->name(), Name(i));
      });
    }
    while (Asked() < count) std::this_thread::yield();
  }
  void End() {
    for (size_t i = threads_.size(); i > 0; --i) agent_.Add({.name = Name(i - 1)});
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  static std::string Name(size_t i) { return "regions/late-" + std::to_string(i); }
  size_t Asked() const {
    size_t asked = 0;
    for (const v1::LocalRequest& request : agent_.Requests()) {
      asked += request.has_open() && request.open().name().starts_with("regions/late-") ? 1 : 0;
    }
    return asked;
  }
  FakeAgent& agent_;
  std::vector<std::thread> threads_;
};

TEST_F(SessionTest, CallsRunSideBySide) {
  Pool client = Connect();
  const auto held = client.Open("kv");
  ASSERT_TRUE(held.ok());
  WaitingCalls waiting(agent_, client, CXLPOOL_MAX_CALLS - 1);
  const auto listed = client.List();
  ASSERT_TRUE(listed.ok()) << listed.error().text();
  waiting.End();
  EXPECT_EQ(agent_.Opens(kRegionName), 1);
}

TEST_F(SessionTest, ACallWaitsForItsTurnNoLongerThanItsTime) {
  Pool client = Connect(std::chrono::milliseconds(300));
  WaitingCalls waiting(agent_, client, CXLPOOL_MAX_CALLS);
  EXPECT_EQ(ReasonOf(client.List()), "CLIENT_BUSY");
  waiting.End();
}

// Whoever calls next sees what another lane has lost, and opens it again on its own.
TEST_F(SessionTest, WhatWasOpenOnALostConnectionIsOpenedAgainByTheNextCall) {
  Pool client = Connect();
  // The first lane is taken: this one is held on another, which no call uses afterwards.
  WaitingCalls waiting(agent_, client, 1);
  Result<Region> held = client.Open("kv");
  ASSERT_TRUE(held.ok());
  waiting.End();
  agent_.Stop();
  agent_.Start();
  ASSERT_TRUE(client.List().ok());
  EXPECT_EQ(agent_.Opens(kRegionName), 1);
  EXPECT_TRUE(held->Check().ok());
  { const Region ended = *std::move(held); }
  ASSERT_TRUE(client.List().ok());
  EXPECT_TRUE(agent_.AwaitOpens(kRegionName, 0));
}

TEST_F(SessionTest, ManyThreadsShareAClient) {
  Pool client = Connect();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&client] {
      for (int i = 0; i < 50; ++i) {
        const auto region = client.Open("kv");
        ASSERT_TRUE(region.ok()) << region.error().text();
        ASSERT_TRUE(region->Map().ok());
        ASSERT_TRUE(client.List().ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(agent_.AwaitOpens(kRegionName, 0));
}

TEST_F(SessionTest, GarbageIsRefusedAndTheNextCallWorks) {
  Pool client = Connect();
  for (const std::string& raw : {std::string("\xff\xff\xff garbage"), std::string(60000, '\x7f')}) {
    agent_.Next({.what = FakeAgent::Mishap::kSendRaw, .raw = raw});
    const Error status = client.Open("kv").error();
    EXPECT_EQ(status.code, CXLPOOL_INTERNAL);
    EXPECT_EQ(status.reason, "BAD_REPLY");
    EXPECT_TRUE(client.List().ok());
  }
  EXPECT_TRUE(agent_.AwaitOpens(kRegionName, 0));
}

TEST_F(SessionTest, AnOversizedPacketIsRefused) {
  Pool client = Connect();
  v1::LocalResponse large;
  large.mutable_list()->add_regions()->set_name(std::string(70 << 10, 'x'));
  agent_.Next({.what = FakeAgent::Mishap::kSendRaw, .raw = large.SerializeAsString()});
  EXPECT_EQ(ReasonOf(client.List()), "BAD_REPLY");
  EXPECT_TRUE(client.List().ok());
}

TEST_F(SessionTest, TooManyDescriptorsAreRefusedAndNoneLeaks) {
  Pool client = Connect();
  ASSERT_TRUE(client.Open("kv").ok());  // From then on there is a page of counters.
  ASSERT_TRUE(client.List().ok());
  const size_t before = OpenDescriptors();
  for (int descriptors : {65, 200}) {
    agent_.Next({.what = FakeAgent::Mishap::kEdit, .edit = {}, .descriptors = descriptors});
    EXPECT_EQ(ReasonOf(client.Open("kv")), "DESCRIPTORS_LOST");
  }
  // More than the segments name is harmless.
  agent_.Next({.what = FakeAgent::Mishap::kEdit, .edit = {}, .descriptors = 64});
  EXPECT_TRUE(client.Open("kv").ok());
  ASSERT_TRUE(client.List().ok());
  ASSERT_TRUE(agent_.AwaitOpens(kRegionName, 0));
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(SessionTest, AnAnswerToAnotherQuestionIsRefused) {
  EXPECT_EQ(OpenEdited([](v1::LocalResponse& r) { r.mutable_list(); }), "BAD_REPLY");
  EXPECT_EQ(OpenEdited([](v1::LocalResponse& r) {
              r.clear_body();
              r.set_message("neither");  // No bytes at all would read as the connection's end.
            }),
            "BAD_REPLY");
}

TEST_F(SessionTest, AMissingDescriptorIsRefused) {
  Pool client = Connect();
  agent_.Next({.what = FakeAgent::Mishap::kEdit, .edit = {}, .descriptors = 0});
  EXPECT_EQ(ReasonOf(client.Open("kv")), "BAD_REPLY");
}

TEST_F(SessionTest, RepliesCutAnywhereNeverCrash) {
  v1::LocalResponse good;
  {
    Pool client = Connect();
    agent_.Next(
        {.what = FakeAgent::Mishap::kEdit, .edit = [&good](v1::LocalResponse& r) { good = r; }});
    ASSERT_TRUE(client.Open("kv").ok());
  }
  const std::string packet = good.SerializeAsString();
  Pool client = Connect();
  for (size_t size = 1; size <= packet.size(); ++size) {
    std::string flipped = packet;
    flipped[size - 1] = static_cast<char>(flipped[size - 1] ^ (1 << (size % 8)));
    for (const std::string& raw : {packet.substr(0, size), flipped}) {
      agent_.Next({.what = FakeAgent::Mishap::kSendRaw, .raw = raw});
      (void)client.Open("kv");
    }
  }
  EXPECT_TRUE(client.List().ok());
}

}  // namespace
}  // namespace cxlpool::libpool
