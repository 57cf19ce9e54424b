#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cxlpool/pool.h"
#include "libpool/src/reason_for_test.h"
#include "libpool/src/without_exceptions_for_test.h"
#include "test/rigs/each_field_fixture.h"
#include "test/rigs/fake_agent.h"

namespace cxlpool {
namespace {

using libpool::FakeAgent;
using libpool::FakeRegion;
using libpool::TempDir;
using ::testing::HasSubstr;

class ClientTest : public ::testing::Test {
 protected:
  Pool Connect(std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    return Pool::Connect({.socket_path = agent_.socket_path(), .timeout = timeout}).value();
  }

  FakeAgent agent_;
};

constexpr char kNowhere[] = "/nowhere/agent.sock";

// Run by the test below.
TEST(SecureProgram, DISABLED_Connects) {
  const Result<Pool> pool = Pool::Connect({});
  EXPECT_TRUE(pool.ok() || pool.error().message.find(kNowhere) == std::string::npos)
      << pool.error().message;
}

// The kernel takes it for one that is set-user-id: it has not the rights of who starts it.
TEST(ClientConnectTest, WhoStartsAProgramWithOtherRightsDoesNotChooseItsAgent) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to start a program with other rights";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::setenv("CXLPOOL_SOCKET", kNowhere, 1);
    ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // It may not look at itself.
    if (::setresuid(65534, 0, 0) != 0) ::_exit(2);
    ::execl("/proc/self/exe", "libpool_test", "--gtest_filter=SecureProgram.DISABLED_Connects",
            "--gtest_also_run_disabled_tests", nullptr);
    ::_exit(3);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(ClientConnectTest, SaysWhatToDoWithoutAnAgent) {
  const TempDir dir;
  const Error status = Pool::Connect({.socket_path = dir.Path("none.sock")}).error();
  EXPECT_EQ(status.code, CXLPOOL_UNAVAILABLE);
  EXPECT_EQ(status.reason, "AGENT_NOT_RUNNING");
  EXPECT_EQ(status.sys_errno, ENOENT);
  EXPECT_EQ(status.remedy, "start cxlpool-agent or set CXLPOOL_SOCKET");
  EXPECT_THAT(status.message, HasSubstr(dir.Path("none.sock")));
}

TEST(ClientConnectTest, RefusesPathsAndSocketsThatCannotBe) {
  const TempDir dir;
  EXPECT_EQ(ReasonOf(Pool::Connect({.socket_path = std::string(200, 'x')})), "BAD_SOCKET");
  const std::string path = dir.Path("stream.sock");
  const UniqueFd stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(stream.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(stream.get(), 1), 0);
  EXPECT_EQ(ReasonOf(Pool::Connect({.socket_path = path})), "BAD_SOCKET");
}

// Root may go everywhere, so it is somebody else who asks.
TEST(ClientConnectTest, AFolderThatIsShutIsWhatKeepsAUserOut) {
  const TempDir dir;
  const std::string shut = dir.Path("shut");
  ASSERT_EQ(::mkdir(shut.c_str(), 0), 0);
  EXPECT_EXIT(
      {
        constexpr uid_t kNobody = 65534;
        if (::geteuid() == 0 && ::setuid(kNobody) != 0) _exit(2);
        const Error error = Pool::Connect({.socket_path = shut + "/agent.sock"}).error();
        std::fputs(error.text().c_str(), stderr);
        _exit(error.reason == "SOCKET_DENIED" ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "namei -l .*/shut/agent.sock");
  ASSERT_EQ(::chmod(shut.c_str(), 0700), 0);  // So that it can be removed.
}

TEST(ClientConnectTest, RefusesTimeoutsThatCannotBe) {
  for (std::chrono::milliseconds timeout :
       {std::chrono::milliseconds(0), std::chrono::milliseconds(-1000),
        std::chrono::milliseconds::max()}) {
    EXPECT_EQ(ReasonOf(Pool::Connect({.socket_path = "/x", .timeout = timeout})), "BAD_ARGUMENT");
  }
}

// Each part of a program keeps its own way, whichever of them the linker comes to first.
TEST(ClientErrorTest, PartsOfAProgramWithAndWithoutExceptionsGoTogether) {
  EXPECT_EXIT(ValueOfAnError(), ::testing::KilledBySignal(SIGABRT), "none there");
  const Result<int> result = Error{.message = "none here"};
  EXPECT_THROW((void)result.value(), Failure);
}

TEST_F(ClientTest, TakesTheSocketFromTheEnvironment) {
  ASSERT_EQ(::setenv("CXLPOOL_SOCKET", agent_.socket_path().c_str(), 1), 0);
  EXPECT_TRUE(Pool::Connect().ok());
  ASSERT_EQ(::unsetenv("CXLPOOL_SOCKET"), 0);
}

TEST_F(ClientTest, AllocatesAndOpensWhatItAskedFor) {
  Pool client = Connect();
  const AllocateOptions options = {.name = "kv",
                                   .size_bytes = 1 << 20,
                                   .sharing = Sharing::kSingleWriter,
                                   .max_extents = 3,
                                   .persistent = true,
                                   .open_to = {.uids = {7}, .gids = {8}, .everybody = true},
                                   .request_id = "0F8FAD5B-d9cb-469f-a165-70867728950e",
                                   .wait = std::chrono::seconds(7),
                                   .as_file = true};
  // A person who adds an option names it here, and looks below whether the agent is asked for it.
  [[maybe_unused]] const auto& [name, size_bytes, sharing, mode, max_extents, persistent, open_to,
                                request_id, wait, as_file] = options;
  const auto region = client.Allocate(options);
  ASSERT_TRUE(region.ok()) << region.error().text();
  EXPECT_EQ(region->name(), "regions/kv");
  EXPECT_EQ(region->size_bytes(), 1u << 20);
  EXPECT_EQ(region->access(), Access::kReadWrite);
  EXPECT_EQ(region->mode(), Mode::kDevdax);
  EXPECT_EQ(region->coherence(), Coherence::kHardware);
  EXPECT_FALSE(region->numa_node().has_value());

  const v1::LocalRequest request = agent_.Requests().at(0);
  EXPECT_EQ(request.protocol_version(), 1u);
  EXPECT_EQ(request.allocate().region_id(), "kv");
  EXPECT_EQ(request.allocate().request_id(), "0f8fad5b-d9cb-469f-a165-70867728950e");
  EXPECT_EQ(request.allocate().open_to().uids(0), 7u);
  EXPECT_EQ(request.allocate().open_to().gids(0), 8u);
  EXPECT_TRUE(request.allocate().open_to().everybody());
  EXPECT_EQ(request.allocate().sharing(), v1::SINGLE_WRITER);
  EXPECT_EQ(request.allocate().mode(), v1::DEVDAX);
  EXPECT_EQ(request.allocate().max_extents(), 3u);
  EXPECT_TRUE(request.allocate().persistent());
  EXPECT_GT(request.allocate().wait_ms(), 6000u);
  EXPECT_LE(request.allocate().wait_ms(), 7000u);
  EXPECT_EQ(request.allocate().size_bytes(), 1u << 20);
  EXPECT_TRUE(request.allocate().as_file());
  // What the library's users cannot ask for: memory that the kernel may keep.
  EXPECT_EQ(FieldsNotSet(request.allocate()), std::vector<std::string>{"zone"});
}

// The agent takes 0 for a minute, which is longer than the call lasts.
TEST_F(ClientTest, AnAllocationThatIsNotToWaitSaysSoToTheAgent) {
  Pool client = Connect();
  const auto region = client.Allocate({.name = "kv", .size_bytes = 1 << 20, .wait = {}});
  ASSERT_TRUE(region.ok());
  EXPECT_EQ(agent_.Requests().back().allocate().wait_ms(), 1u);
}

TEST_F(ClientTest, OpensAsAFile) {
  agent_.Add({.name = "regions/kv", .segment_bytes = {1 << 20}});
  Pool client = Connect();
  const auto region = client.Open("kv", {.access = Access::kReadOnly, .as_file = true});
  ASSERT_TRUE(region.ok()) << region.error().text();
  EXPECT_EQ(region->path(), agent_.FilePath("regions/kv", 0));
  EXPECT_EQ(cxlpool_region_path(region->handle(), 1), nullptr);
  EXPECT_TRUE(agent_.Requests().back().open().as_file());
  const auto plain = client.Open("kv");
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(agent_.Requests().back().open().as_file());
  EXPECT_EQ(plain->path(), "");
  EXPECT_EQ(cxlpool_region_path(nullptr, 0), nullptr);
}

// It skips what it does not know, and gives the Region without a path.
const FakeAgent::Mishap kOldAgent = {
    .what = FakeAgent::Mishap::kEdit, .edit = [](v1::LocalResponse& response) {
      for (v1::LocalSegment& segment : *response.mutable_open()->mutable_segments()) {
        segment.clear_path();
      }
    }};

TEST_F(ClientTest, AnAgentThatDoesNotKnowPathsIsToldFromOneThatDoes) {
  agent_.Add({.name = "regions/kv"});
  Pool client = Connect();
  agent_.Next(kOldAgent);
  const Error error = client.Open("kv", {.as_file = true}).error();
  EXPECT_EQ(error.code, CXLPOOL_FAILED_PRECONDITION);
  EXPECT_EQ(error.reason, "AGENT_TOO_OLD");
  EXPECT_THAT(error.message, HasSubstr("regions/kv"));
  EXPECT_EQ(agent_.Opens("regions/kv"), 0);

  agent_.Next(kOldAgent);
  const AllocateOptions options = {.name = "new", .size_bytes = 4096, .as_file = true};
  const Error released = client.Allocate(options).error();
  EXPECT_EQ(released.reason, "AGENT_TOO_OLD");
  EXPECT_THAT(released.message, HasSubstr("it has been released"));
  // By its tag, which no other Region ever has.
  const v1::LocalRequest last = agent_.Requests().back();
  EXPECT_EQ(last.release().name().size(), std::strlen("regions/") + FakeRegion().tag.size());
}

// With the request_id of an earlier call, the Region may be one that is in use.
TEST_F(ClientTest, WhatAnEarlierCallMayHaveAllocatedIsNotReleased) {
  Pool client = Connect();
  AllocateOptions options = {
      .name = "new", .size_bytes = 4096, .request_id = "0f8fad5b-d9cb-469f-a165-70867728950e"};
  const auto earlier = client.Allocate(options);
  ASSERT_TRUE(earlier.ok()) << earlier.error().text();
  options.as_file = true;
  agent_.Next(kOldAgent);
  const Error error = client.Allocate(options).error();
  EXPECT_EQ(error.reason, "AGENT_TOO_OLD");
  EXPECT_THAT(error.message, HasSubstr("it stays allocated"));
  EXPECT_THAT(error.remedy, HasSubstr("release regions/new"));
  for (const v1::LocalRequest& request : agent_.Requests()) EXPECT_FALSE(request.has_release());
}

TEST_F(ClientTest, AnAllocationThatCannotBeUndoneSaysSo) {
  Pool client = Connect();
  agent_.Next(kOldAgent);
  for (int i = 0; i < 2; ++i) {  // The close, and the release.
    agent_.Next({.what = FakeAgent::Mishap::kEdit, .edit = [](v1::LocalResponse& response) {
                   if (response.has_close()) return;
                   response.set_code(CXLPOOL_PERMISSION_DENIED);
                   response.set_message("not yours");
                   response.mutable_error()->set_reason("REGION_NOT_YOURS");
                 }});
  }
  const Error error = client.Allocate({.name = "new", .size_bytes = 4096, .as_file = true}).error();
  EXPECT_EQ(error.reason, "AGENT_TOO_OLD");
  EXPECT_THAT(error.message, HasSubstr("it could not be released: not yours"));
  EXPECT_THAT(error.remedy, HasSubstr("release regions/new"));
}

TEST_F(ClientTest, EachAllocationHasItsOwnRequestId) {
  Pool client = Connect();
  const auto first = client.Allocate({.size_bytes = 4096});
  const auto second = client.Allocate({.size_bytes = 4096});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->name(), second->name());
}

TEST_F(ClientTest, OpensByShortAndByFullName) {
  agent_.Add({.name = "regions/kv"});
  Pool client = Connect();
  EXPECT_TRUE(client.Open("kv").ok());
  const auto region = client.Open("regions/kv", {.access = Access::kReadOnly});
  EXPECT_TRUE(region.ok()) << region.error().text();
  const v1::LocalRequest request = agent_.Requests().back();
  EXPECT_EQ(request.open().name(), "regions/kv");
  EXPECT_EQ(request.open().access(), v1::READ_ONLY);
}

// TENANT.NAME.
TEST_F(ClientTest, OpensATenantsRegion) {
  agent_.Add({.name = "regions/ml.kv"});
  Pool client = Connect();
  const auto region = client.Open("ml.kv");
  EXPECT_TRUE(region.ok()) << region.error().text();
}

TEST_F(ClientTest, RefusesBadArgumentsWithoutAsking) {
  Pool client = Connect();
  for (const char* name : {"", "KV", "hosts/a", "a/b", "regions/", "regions/regions/a", "\xff"}) {
    EXPECT_EQ(ReasonOf(client.Open(name)), "BAD_NAME") << name;
    EXPECT_EQ(ReasonOf(client.Release(name)), "BAD_NAME") << name;
  }
  const std::string with_nul("kv\0x", 4);  // C would take it for "kv".
  EXPECT_EQ(ReasonOf(client.Open(with_nul)), "BAD_NAME");
  EXPECT_EQ(ReasonOf(client.Release(with_nul)), "BAD_NAME");
  EXPECT_EQ(ReasonOf(client.Allocate({.name = with_nul, .size_bytes = 4096})), "BAD_NAME");
  EXPECT_EQ(ReasonOf(client.Allocate({.size_bytes = 0})), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonOf(client.Open("kv", {.wait = std::chrono::hours(1)})), "BAD_ARGUMENT");
  EXPECT_TRUE(agent_.Requests().empty());
}

TEST_F(ClientTest, PassesTheAgentsRefusalOn) {
  Pool client = Connect();
  const Error status = client.Open("kv").error();
  EXPECT_EQ(status.code, CXLPOOL_NOT_FOUND);
  EXPECT_EQ(status.reason, "NOT_ATTACHED");
  EXPECT_EQ(status.remedy, "attach it");
  EXPECT_EQ(status.message, "regions/kv is not attached to this host");
  EXPECT_EQ(status.sys_errno, 0);
  EXPECT_EQ(ReasonOf(client.Open("kv")), "NOT_ATTACHED");
}

TEST_F(ClientTest, ARefusalWithALocalReasonIsNotRetried) {
  agent_.Next({.what = FakeAgent::Mishap::kEdit, .edit = [](v1::LocalResponse& response) {
                 response.set_code(14);
                 response.mutable_error()->set_reason("AGENT_LOST");
               }});
  Pool client = Connect();
  EXPECT_EQ(ReasonOf(client.Open("kv")), "AGENT_LOST");
  EXPECT_EQ(agent_.Requests().size(), 1u);
}

FakeAgent::Mishap Answering(int code, const std::string& reason) {
  return {.what = FakeAgent::Mishap::kEdit, .edit = [code, reason](v1::LocalResponse& response) {
            response.Clear();
            response.set_code(code);
            response.set_message("the manager is away");
            response.mutable_error()->set_reason(reason);
            response.mutable_error()->set_remedy("retry with the same request_id");
          }};
}

TEST_F(ClientTest, WhatPassesIsTriedAgainUnderTheSameIdForAsLongAsTheTimeout) {
  Pool client = Connect();
  for (const char* reason : {"MANAGER_UNREACHABLE", "MANAGER_NOT_HEARD", "REQUEST_UNDER_WAY"}) {
    agent_.Next(Answering(14, reason));
  }
  agent_.Next(Answering(8, "QUEUE_FULL"));
  const auto region = client.Allocate({.name = "kv", .size_bytes = 4096});
  ASSERT_TRUE(region.ok()) << region.error().text();
  const auto requests = agent_.Requests();
  ASSERT_EQ(requests.size(), 5u);
  EXPECT_EQ(requests[0].allocate().request_id(), requests[4].allocate().request_id());

  Pool hasty = Connect(std::chrono::milliseconds(300));
  for (int i = 0; i < 100; ++i) agent_.Next(Answering(14, "MANAGER_UNREACHABLE"));
  const auto began = std::chrono::steady_clock::now();
  const Error away = hasty.Allocate({.size_bytes = 4096}).error();
  EXPECT_EQ(away.reason, "MANAGER_UNREACHABLE");
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(250));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20))
      << "not for as long as the memory may take";
}

// Its last pause ends with its time.
TEST_F(ClientTest, ACallWithoutAWaitThatGivesUpSaysWhatTheAgentAnswered) {
  agent_.Add({.name = "regions/kv"});
  Pool hasty = Connect(std::chrono::seconds(1));
  for (int i = 0; i < 100; ++i) agent_.Next(Answering(14, "MANAGER_UNREACHABLE"));
  EXPECT_EQ(ReasonOf(hasty.Release("kv")), "MANAGER_UNREACHABLE");
}

TEST_F(ClientTest, AReleaseWhoseAnswerWasLostIsDoneWhereTheRegionIsGone) {
  agent_.Add({.name = "regions/kv"});
  Pool client = Connect();
  agent_.Next({.what = FakeAgent::Mishap::kDropAfterWork});
  EXPECT_TRUE(client.Release("kv").ok());
  EXPECT_EQ(ReasonOf(client.Release("kv")), "NOT_ATTACHED") << "that one did nothing";
}

TEST_F(ClientTest, ARequestIdIsAUuid) {
  Pool client = Connect();
  EXPECT_EQ(ReasonOf(client.Allocate({.size_bytes = 1, .request_id = "1"})), "BAD_ARGUMENT");
}

TEST_F(ClientTest, AnErrorPrintsAsText) {
  Pool client = Connect();
  const std::string text = client.Open("kv").error().text();
  EXPECT_THAT(text, HasSubstr("NOT_FOUND: regions/kv is not attached to this host"));
  EXPECT_THAT(text, HasSubstr("NOT_ATTACHED"));
  EXPECT_EQ(text.find('\\'), std::string::npos) << "no bytes: " << text;
}

// The child shares the parent's connection: it must neither ask on it nor close what is open there,
// nor wait for a lock that it has of a thread of its parent's.
TEST_F(ClientTest, AForkedChildDoesNothingToItsParentsClient) {
  agent_.Add({.name = "regions/kv"});
  Pool client = Connect();
  auto region = std::make_unique<Result<Region>>(client.Open("kv"));
  ASSERT_TRUE(region->ok());
  const size_t asked = agent_.Requests().size();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = ReasonOf(client.List()) == "FORKED" &&
                         ReasonOf((*region)->Check()) == "FORKED" &&
                         ReasonOf((*region)->KeepThroughExec()) == "FORKED";
    region.reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(client.List().ok());
  EXPECT_EQ(agent_.Requests().size(), asked + 1);
  EXPECT_EQ(agent_.Opens("regions/kv"), 1);
}

TEST_F(ClientTest, ListsAndReleases) {
  agent_.Add({.name = "regions/a", .access = v1::READ_ONLY, .segment_bytes = {4096, 8192}});
  agent_.Add({.name = "regions/b", .mode = v1::SYSTEM_RAM});
  Pool client = Connect();
  const auto region = client.Open("a", {.access = Access::kReadOnly});
  auto listed = client.List();
  ASSERT_TRUE(listed.ok()) << listed.error().text();
  ASSERT_EQ(listed->size(), 2u);
  EXPECT_EQ(listed->at(0).name, "regions/a");
  EXPECT_EQ(listed->at(0).size_bytes, 12288u);
  EXPECT_EQ(listed->at(0).access, Access::kReadOnly);
  EXPECT_EQ(listed->at(0).state, State::kOnline);
  EXPECT_EQ(listed->at(0).opens, 1u);
  EXPECT_EQ(listed->at(1).mode, Mode::kSystemRam);
  EXPECT_TRUE(client.Release("b").ok());
  EXPECT_EQ(client.List()->size(), 1u);
}

TEST_F(ClientTest, AnAllocationWhoseReplyWasLostIsMadeOnce) {
  Pool client = Connect();
  agent_.Next({.what = FakeAgent::Mishap::kDropAfterWork});
  agent_.Next({.what = FakeAgent::Mishap::kDropAfterWork});
  const auto region = client.Allocate({.size_bytes = 4096});
  ASSERT_TRUE(region.ok()) << region.error().text();
  const auto requests = agent_.Requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].allocate().request_id(), requests[2].allocate().request_id());
  EXPECT_EQ(client.List()->size(), 1u);
}

TEST_F(ClientTest, ARegionOutlivesItsClient) {
  agent_.Add({.name = "regions/kv"});
  auto client = std::make_unique<Pool>(Connect());
  auto region = client->Open("kv");
  ASSERT_TRUE(region.ok());
  client.reset();
  EXPECT_EQ(agent_.Opens("regions/kv"), 1);
  EXPECT_TRUE(region->Map().ok());
  { const Region ended = *std::move(region); }
  EXPECT_TRUE(agent_.AwaitOpens("regions/kv", 0));
}

}  // namespace
}  // namespace cxlpool
