#include "cxlpool/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cxlpool/error.h"
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
  Client Connect(absl::Duration timeout = absl::Seconds(20)) {
    return Client::Connect({.socket_path = agent_.socket_path(), .timeout = timeout}).value();
  }

  FakeAgent agent_;
};

TEST(ClientConnectTest, SaysWhatToDoWithoutAnAgent) {
  const TempDir dir;
  const absl::Status status = Client::Connect({.socket_path = dir.Path("none.sock")}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ErrorReason(status), "AGENT_NOT_RUNNING");
  EXPECT_EQ(ErrnoOf(status), ENOENT);
  EXPECT_EQ(ErrorRemedy(status), "start cxlpool-agent or set CXLPOOL_SOCKET");
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir.Path("none.sock")));
}

TEST(ClientConnectTest, RefusesPathsAndSocketsThatCannotBe) {
  const TempDir dir;
  EXPECT_EQ(ErrorReason(Client::Connect({.socket_path = std::string(200, 'x')}).status()),
            "BAD_SOCKET");
  const std::string path = dir.Path("stream.sock");
  const UniqueFd stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(stream.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(stream.get(), 1), 0);
  EXPECT_EQ(ErrorReason(Client::Connect({.socket_path = path}).status()), "BAD_SOCKET");
}

TEST(ClientConnectTest, RefusesTimeoutsThatCannotBe) {
  for (absl::Duration timeout :
       {absl::ZeroDuration(), -absl::Seconds(1), absl::InfiniteDuration()}) {
    EXPECT_EQ(ErrorReason(Client::Connect({.socket_path = "/x", .timeout = timeout}).status()),
              "BAD_ARGUMENT");
  }
}

TEST_F(ClientTest, TakesTheSocketFromTheEnvironment) {
  ASSERT_EQ(::setenv("CXLPOOL_SOCKET", agent_.socket_path().c_str(), 1), 0);
  EXPECT_TRUE(Client::Connect().ok());
  ASSERT_EQ(::unsetenv("CXLPOOL_SOCKET"), 0);
}

TEST_F(ClientTest, AllocatesAndOpensWhatItAskedFor) {
  Client client = Connect();
  const AllocateOptions options = {.name = "kv",
                                   .size_bytes = 1 << 20,
                                   .sharing = Sharing::kSingleWriter,
                                   .max_extents = 3,
                                   .persistent = true,
                                   .open_to = {.uids = {7}, .gids = {8}, .everybody = true},
                                   .request_id = "0F8FAD5B-d9cb-469f-a165-70867728950e",
                                   .wait = absl::Seconds(7)};
  // A person who adds an option names it here, and looks below whether the agent is asked for it.
  [[maybe_unused]] const auto& [name, size_bytes, sharing, mode, max_extents, persistent, open_to,
                                request_id, wait] = options;
  const auto region = client.Allocate(options);
  ASSERT_TRUE(region.ok()) << region.status();
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
  // What the library's users cannot ask for: memory that the kernel may keep.
  EXPECT_EQ(FieldsNotSet(request.allocate()), std::vector<std::string>{"zone"});
}

TEST_F(ClientTest, EachAllocationHasItsOwnRequestId) {
  Client client = Connect();
  const auto first = client.Allocate({.size_bytes = 4096});
  const auto second = client.Allocate({.size_bytes = 4096});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->name(), second->name());
}

TEST_F(ClientTest, OpensByShortAndByFullName) {
  agent_.Add({.name = "regions/kv"});
  Client client = Connect();
  EXPECT_TRUE(client.Open("kv").ok());
  const auto region = client.Open("regions/kv", {.access = Access::kReadOnly});
  EXPECT_TRUE(region.ok()) << region.status();
  const v1::LocalRequest request = agent_.Requests().back();
  EXPECT_EQ(request.open().name(), "regions/kv");
  EXPECT_EQ(request.open().access(), v1::READ_ONLY);
}

TEST_F(ClientTest, RefusesBadArgumentsWithoutAsking) {
  Client client = Connect();
  for (const char* name : {"", "KV", "hosts/a", "a/b", "regions/", "regions/regions/a", "\xff"}) {
    EXPECT_EQ(ErrorReason(client.Open(name).status()), "BAD_NAME") << name;
    EXPECT_EQ(ErrorReason(client.Release(name)), "BAD_NAME") << name;
  }
  EXPECT_EQ(ErrorReason(client.Allocate({.size_bytes = 0}).status()), "BAD_ARGUMENT");
  EXPECT_EQ(ErrorReason(client.Open("kv", {.wait = absl::Hours(1)}).status()), "BAD_ARGUMENT");
  EXPECT_TRUE(agent_.Requests().empty());
}

TEST_F(ClientTest, PassesTheAgentsRefusalOn) {
  Client client = Connect();
  const absl::Status status = client.Open("kv").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorReason(status), "NOT_ATTACHED");
  EXPECT_EQ(ErrorRemedy(status), "attach it");
  EXPECT_EQ(status.message(), "regions/kv is not attached to this host (attach it)");
  EXPECT_EQ(ErrnoOf(status), 0);
  EXPECT_EQ(ErrorReason(client.Open("kv").status()), "NOT_ATTACHED");
}

TEST_F(ClientTest, ARefusalWithALocalReasonIsNotRetried) {
  agent_.Next({.what = FakeAgent::Mishap::kEdit, .edit = [](v1::LocalResponse& response) {
                 response.set_code(14);
                 response.mutable_error()->set_reason("AGENT_LOST");
               }});
  Client client = Connect();
  EXPECT_EQ(ErrorReason(client.Open("kv").status()), "AGENT_LOST");
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
  Client client = Connect();
  for (const char* reason : {"MANAGER_UNREACHABLE", "MANAGER_NOT_HEARD", "REQUEST_UNDER_WAY"}) {
    agent_.Next(Answering(14, reason));
  }
  agent_.Next(Answering(8, "QUEUE_FULL"));
  const auto region = client.Allocate({.name = "kv", .size_bytes = 4096});
  ASSERT_TRUE(region.ok()) << region.status();
  const auto requests = agent_.Requests();
  ASSERT_EQ(requests.size(), 5u);
  EXPECT_EQ(requests[0].allocate().request_id(), requests[4].allocate().request_id());

  Client hasty = Connect(absl::Milliseconds(300));
  for (int i = 0; i < 100; ++i) agent_.Next(Answering(14, "MANAGER_UNREACHABLE"));
  const absl::Time began = absl::Now();
  const absl::Status away = hasty.Allocate({.size_bytes = 4096}).status();
  EXPECT_EQ(ErrorReason(away), "MANAGER_UNREACHABLE");
  EXPECT_GE(absl::Now() - began, absl::Milliseconds(250));
  EXPECT_LT(absl::Now() - began, absl::Seconds(20)) << "not for as long as the memory may take";
}

TEST_F(ClientTest, AReleaseWhoseAnswerWasLostIsDoneWhereTheRegionIsGone) {
  agent_.Add({.name = "regions/kv"});
  Client client = Connect();
  agent_.Next({.what = FakeAgent::Mishap::kDropAfterWork});
  EXPECT_TRUE(client.Release("kv").ok());
  EXPECT_EQ(ErrorReason(client.Release("kv")), "NOT_ATTACHED") << "that one did nothing";
}

TEST_F(ClientTest, ARequestIdIsAUuid) {
  Client client = Connect();
  EXPECT_EQ(ErrorReason(client.Allocate({.size_bytes = 1, .request_id = "1"}).status()),
            "BAD_ARGUMENT");
}

TEST_F(ClientTest, AStatusPrintsAsText) {
  Client client = Connect();
  std::ostringstream out;
  out << client.Open("kv").status();
  EXPECT_THAT(out.str(), HasSubstr("NOT_FOUND: regions/kv is not attached to this host"));
  EXPECT_THAT(out.str(), HasSubstr("NOT_ATTACHED"));
  EXPECT_EQ(out.str().find('\\'), std::string::npos) << "no bytes: " << out.str();
}

// The child shares the parent's connection: it must neither ask on it nor close what is open there.
TEST_F(ClientTest, AForkedChildDoesNothingToItsParentsClient) {
  agent_.Add({.name = "regions/kv"});
  Client client = Connect();
  auto region = std::make_unique<absl::StatusOr<Region>>(client.Open("kv"));
  ASSERT_TRUE(region->ok());
  const size_t asked = agent_.Requests().size();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = ErrorReason(client.List().status()) == "FORKED";
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
  Client client = Connect();
  const auto region = client.Open("a", {.access = Access::kReadOnly});
  auto listed = client.List();
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->size(), 2u);
  EXPECT_EQ(listed->at(0).name, "regions/a");
  EXPECT_EQ(listed->at(0).size_bytes, 12288u);
  EXPECT_EQ(listed->at(0).access, Access::kReadOnly);
  EXPECT_EQ(listed->at(0).state, AttachmentState::kOnline);
  EXPECT_EQ(listed->at(0).opens, 1u);
  EXPECT_EQ(listed->at(1).mode, Mode::kSystemRam);
  EXPECT_TRUE(client.Release("b").ok());
  EXPECT_EQ(client.List()->size(), 1u);
}

TEST_F(ClientTest, AnAllocationWhoseReplyWasLostIsMadeOnce) {
  Client client = Connect();
  agent_.Next({.what = FakeAgent::Mishap::kDropAfterWork});
  agent_.Next({.what = FakeAgent::Mishap::kDropAfterWork});
  const auto region = client.Allocate({.size_bytes = 4096});
  ASSERT_TRUE(region.ok()) << region.status();
  const auto requests = agent_.Requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].allocate().request_id(), requests[2].allocate().request_id());
  EXPECT_EQ(client.List()->size(), 1u);
}

TEST_F(ClientTest, ARegionOutlivesItsClient) {
  agent_.Add({.name = "regions/kv"});
  auto client = std::make_unique<Client>(Connect());
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
