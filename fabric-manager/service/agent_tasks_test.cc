#include "fabric-manager/service/agent_tasks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <future>
#include <thread>

#include "proto/support/refusal.h"
#include "test/rigs/service_fixture.h"

namespace cxlpool::fm {
namespace {

// The session of an agent that keeps the tasks it is sent. All of a test runs on one thread, but
// for those who ask.
class TaskAgent : public SessionPeer {
 public:
  void Send(v1::ManagerMessage message) override {
    session = message.session();
    if (message.has_device_task()) tasks.push_back(message.device_task());
  }
  void Close(const absl::Status&) override {}
  std::string address() const override { return "test:tasks"; }

  uint64_t session = 0;
  std::vector<v1::DeviceTask> tasks;
};

// The core's queue, where other threads may post: the test's own thread runs it.
class PostedTasks : public Executor {
 public:
  void Post(Task task) override {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  void PostAfter(absl::Duration, Task task) override { Post(std::move(task)); }
  void Run() {
    std::deque<Task> tasks;
    {
      MutexLock lock(mutex_);
      tasks.swap(tasks_);
    }
    for (Task& task : tasks) std::move(task)();
  }

 private:
  Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
};

class SessionTasksTest : public ServiceTest {
 protected:
  SessionTasksTest() {
    Restart();
    tasks_.Attach(&posted_, &rig->sessions);
    HostSessions::Listener listener;
    listener.on_segments = [](const auto&, const auto&, bool) {};
    listener.on_events = [](const auto&, const auto&) {};
    listener.on_session = [this](const std::string& host, bool) {
      tasks_.OnSession(host, rig->sessions.LifeOf(host));
    };
    listener.on_device_answer = [this](const std::string& host, const v1::DeviceAnswer& answer) {
      tasks_.OnAnswer(host, answer);
    };
    tasks_.SetOnSession([this](const std::string& host) { sessions_.push_back(host); });
    rig->sessions.Start(std::move(listener));
  }
  ~SessionTasksTest() override { tasks_.Stop(); }

  void Connect(const std::string& life) {
    agent_ = std::make_shared<TaskAgent>();
    v1::Hello hello;
    hello.set_protocol_version(kHostProtocolVersion);
    hello.set_host("hosts/host-a");
    hello.set_incarnation(life);
    hello.set_agent_id("11111111-2222-4333-8444-555555555555");
    rig->sessions.OnHello(agent_, SessionIdentity{"", true}, hello);
  }
  std::future<absl::StatusOr<v1::DeviceLook>> AskLook(const std::string& life,
                                                      absl::Duration timeout = absl::Seconds(60),
                                                      uint64_t session = 0) {
    return std::async(std::launch::async, [this, life, timeout, session] {
      v1::DeviceTask task;
      task.mutable_look();
      return tasks_.Ask("host-a", life, session, std::move(task), timeout);
    });
  }
  // Runs the core until the agent has been given so many tasks.
  bool AgentHas(size_t count) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (agent_->tasks.size() < count && std::chrono::steady_clock::now() < end) {
      posted_.Run();
      std::this_thread::yield();
    }
    return agent_->tasks.size() >= count;
  }
  void Answer(const v1::DeviceAnswer& answer) {
    v1::AgentMessage message;
    message.set_session(agent_->session);
    *message.mutable_device_answer() = answer;
    rig->sessions.OnMessage(agent_.get(), message);
  }
  v1::DeviceAnswer AnswerTo(size_t task) {
    v1::DeviceAnswer answer;
    answer.set_id(agent_->tasks.at(task).id());
    return answer;
  }

  PostedTasks posted_;
  SessionTasks tasks_;
  std::shared_ptr<TaskAgent> agent_;
  std::vector<std::string> sessions_;
};

TEST_F(SessionTasksTest, ATaskOfOneSessionIsNotSentInTheNext) {
  EXPECT_EQ(tasks_.SessionOf("host-a"), 0u);
  Connect("boot-7");
  const uint64_t session = tasks_.SessionOf("host-a");
  EXPECT_EQ(session, 1u);
  rig->sessions.OnClosed(agent_.get());
  EXPECT_EQ(tasks_.SessionOf("host-a"), 0u);
  Connect("boot-7");
  EXPECT_EQ(tasks_.SessionOf("host-a"), 2u);
  auto late = AskLook("boot-7", absl::Seconds(1), session);
  EXPECT_EQ(ReasonOf(late.get().status()), "HOST_UNREACHABLE");
  auto now = AskLook("boot-7", absl::Seconds(60), 2);
  ASSERT_TRUE(AgentHas(1));
  Answer(AnswerTo(0));
  EXPECT_TRUE(now.get().ok());
}

// What the last manager asked for, the agent may answer in its session with the next one.
TEST_F(SessionTasksTest, TasksOfTwoManagersHaveNoNumberInCommon) {
  Connect("boot-7");
  auto first = AskLook("boot-7");
  ASSERT_TRUE(AgentHas(1));
  SessionTasks next;
  next.Attach(&posted_, &rig->sessions);
  next.OnSession("host-a", "boot-7");
  auto second = std::async(std::launch::async, [&next] {
    v1::DeviceTask task;
    task.mutable_look();
    return next.Ask("host-a", "boot-7", 0, std::move(task), absl::Seconds(60));
  });
  ASSERT_TRUE(AgentHas(2));
  EXPECT_NE(agent_->tasks[0].id(), agent_->tasks[1].id());
  next.Stop();
  EXPECT_TRUE(absl::IsCancelled(second.get().status()));
  Answer(AnswerTo(0));
  EXPECT_TRUE(first.get().ok());
}

TEST_F(SessionTasksTest, AnswersComeBackToWhoeverAsked) {
  EXPECT_EQ(tasks_.LifeOf("host-a"), "");
  Connect("boot-7");
  EXPECT_EQ(tasks_.LifeOf("host-a"), "boot-7");
  auto first = AskLook("boot-7");
  ASSERT_TRUE(AgentHas(1));
  auto second = AskLook("boot-7");
  ASSERT_TRUE(AgentHas(2));
  ASSERT_NE(agent_->tasks[0].id(), agent_->tasks[1].id());
  v1::DeviceAnswer answer = AnswerTo(1);
  answer.mutable_look()->add_devices()->set_name("dax0.0");
  Answer(answer);
  const auto look = second.get();
  ASSERT_TRUE(look.ok()) << look.status();
  EXPECT_EQ(look->devices(0).name(), "dax0.0");
  Answer(answer);  // Nobody waits for it any more.
  Answer(AnswerTo(0));
  EXPECT_TRUE(first.get().ok());
}

TEST_F(SessionTasksTest, ARefusalKeepsItsReasonAndItsRemedy) {
  Connect("boot-7");
  auto asked = AskLook("boot-7");
  ASSERT_TRUE(AgentHas(1));
  v1::DeviceAnswer answer = AnswerTo(0);
  answer.set_code(static_cast<int>(absl::StatusCode::kFailedPrecondition));
  answer.set_message("slot 3 is taken (use another)");
  answer.mutable_error()->set_reason("SLOT_TAKEN");
  answer.mutable_error()->set_remedy("use another");
  (*answer.mutable_error()->mutable_metadata())["slot"] = "3";
  Answer(answer);
  const absl::Status status = asked.get().status();
  const auto refusal = RefusalOf(status);
  ASSERT_TRUE(refusal.has_value()) << status;
  EXPECT_EQ(refusal->code, absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refusal->reason, "SLOT_TAKEN");
  EXPECT_EQ(refusal->message, "slot 3 is taken");
  EXPECT_EQ(refusal->remedy, "use another");
  EXPECT_EQ(refusal->metadata.size(), 1u);
}

// What an agent writes comes to be in the reasons of hosts, devices and Regions: one that writes
// megabytes must not make the lists of all others too large to be sent.
TEST_F(SessionTasksTest, OfWhatAnAgentWritesNoMoreThanTheLimitsIsKept) {
  Connect("boot-7");
  const std::string endless(100'000, 'x');
  auto shown = AskLook("boot-7");
  ASSERT_TRUE(AgentHas(1));
  v1::DeviceAnswer answer = AnswerTo(0);
  v1::SharedDevice& device = *answer.mutable_look()->add_devices();
  device.set_name("dax0.0");
  device.set_unfit_reason(endless);
  device.mutable_mark()->set_device(endless);
  answer.mutable_look()->add_grants()->set_region_tag(endless);
  Answer(answer);
  const auto look = shown.get();
  ASSERT_TRUE(look.ok()) << look.status();
  EXPECT_EQ(look->devices(0).name(), "dax0.0");
  EXPECT_EQ(look->devices(0).unfit_reason(), std::string(512, 'x'));
  EXPECT_EQ(look->devices(0).mark().device().size(), 512u);
  EXPECT_EQ(look->grants(0).region_tag().size(), 512u);

  auto refused = AskLook("boot-7");
  ASSERT_TRUE(AgentHas(2));
  answer = AnswerTo(1);
  answer.set_code(static_cast<int>(absl::StatusCode::kInternal));
  answer.set_message(endless);
  answer.mutable_error()->set_reason(endless);
  answer.mutable_error()->set_remedy(endless);
  (*answer.mutable_error()->mutable_metadata())["much"] = endless;
  (*answer.mutable_error()->mutable_metadata())["slot"] = "3";
  Answer(answer);
  const absl::Status status = refused.get().status();
  const auto refusal = RefusalOf(status);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_LT(status.message().size(), 4096u);
  EXPECT_EQ(refusal->reason.size(), 128u);
  EXPECT_EQ(refusal->remedy.size(), 1024u);
  ASSERT_EQ(refusal->metadata.size(), 1u);
  EXPECT_EQ(refusal->metadata[0].second, "3");
}

TEST_F(SessionTasksTest, ASessionThatEndsEndsItsAsks) {
  Connect("boot-7");
  auto asked = AskLook("boot-7", absl::Seconds(20));
  ASSERT_TRUE(AgentHas(1));
  const v1::DeviceAnswer late = AnswerTo(0);
  Connect("boot-8");
  EXPECT_EQ(ReasonOf(asked.get().status()), "HOST_UNREACHABLE");
  EXPECT_EQ(tasks_.LifeOf("host-a"), "boot-8");
  Answer(late);
  EXPECT_TRUE(agent_->tasks.empty());
  // The session that the rig had, and this one, began and ended; the third stands.
  EXPECT_EQ(sessions_, std::vector<std::string>(4, "host-a"));
}

TEST_F(SessionTasksTest, NothingIsSentIntoAnotherLife) {
  EXPECT_EQ(ReasonOf(AskLook("boot-7").get().status()), "HOST_UNREACHABLE");
  Connect("boot-8");
  EXPECT_EQ(ReasonOf(AskLook("boot-7", absl::Milliseconds(100)).get().status()),
            "HOST_UNREACHABLE");
  posted_.Run();
  EXPECT_TRUE(agent_->tasks.empty());
}

TEST_F(SessionTasksTest, NoAnswerHasADeadlineAndTooManyAreRefused) {
  Connect("boot-7");
  EXPECT_EQ(ReasonOf(AskLook("boot-7", absl::Milliseconds(20)).get().status()), "NO_ANSWER");
  std::vector<std::future<absl::StatusOr<v1::DeviceLook>>> asked;
  for (int i = 0; i < SessionTasks::kMaxUnderWay; ++i) asked.push_back(AskLook("boot-7"));
  ASSERT_TRUE(AgentHas(SessionTasks::kMaxUnderWay));
  EXPECT_EQ(ReasonOf(AskLook("boot-7").get().status()), "FABRIC_OVERLOADED");
  tasks_.Stop();
  for (auto& each : asked) EXPECT_TRUE(absl::IsCancelled(each.get().status()));
  EXPECT_TRUE(absl::IsCancelled(AskLook("boot-7").get().status())) << "for good";
}

}  // namespace
}  // namespace cxlpool::fm
