// Which process is a host: the one that the records know, until it has certainly ended.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_process.h"
#include "proto/support/refusal.h"
#include "test/rigs/fake_qemu.h"
#include "test/rigs/qemu_fabric_fixture.h"

namespace cxlpool::fm {
namespace {

TEST_F(QemuFabricTest, AnotherProcessIsNotTakenForAHostThatStillRuns) {
  Boot();
  OpenReachable();
  ASSERT_TRUE(Bind(Request(1)).ok());
  const std::string before = DiscoverHost().fabric_incarnation;
  Forget();
  FakeQemu impostor(socket_, {10, 11});  // Takes the socket's name over.
  qemu_->HangUp();
  ASSERT_TRUE(Saw(Kind::kHostUnreachable));
  EXPECT_EQ(ReasonOf(Bind(Request(2, 11)).status()), "HOST_UNREACHABLE");
  EXPECT_EQ(ReasonOf(AwaitUnbound(Request(1), absl::Milliseconds(20))), "UNBIND_NOT_PROVEN");
  EXPECT_EQ(DiscoverHost().fabric_incarnation, before);
  qemu_->Kill();
  ASSERT_TRUE(Saw(Kind::kHostReachable));
  EXPECT_NE(DiscoverHost().fabric_incarnation, before);
}

// The qmp keys of two hosts were exchanged while no manager ran, and one host's QEMU has ended.
TEST_F(QemuFabricTest, AHostsQemuIsNotTakenForAnotherHost) {
  const std::string other_socket = directory_ + "/other";
  config_.hosts.push_back({"host-b", other_socket});
  Boot();
  FakeQemu other(other_socket, {10, 11});
  Open();
  const auto both = [&] {
    auto view = WaitForAnswer<absl::StatusOr<FabricView>>(
        [&](auto done) { fabric_->Discover(std::move(done)); });
    return view.ok() ? view->hosts : std::vector<FabricHost>();
  };
  const auto end = std::chrono::steady_clock::now() + kNeverCame;
  while (!both().at(0).reachable || !both().at(1).reachable) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
  }
  for (const FabricHost& host : both()) known_.hosts[host.id] = host.fabric_incarnation;
  fabric_.reset();
  std::swap(config_.hosts[0].qmp_socket, config_.hosts[1].qmp_socket);
  qemu_->Kill();
  Open();
  ASSERT_TRUE(Saw(Kind::kHostGone)) << "host-a's process has ended, and host-b's answers for it";
  ASSERT_TRUE(Saw(Kind::kHostUnreachable));
  EXPECT_FALSE(both().at(0).reachable);
  EXPECT_NE(both().at(0).unreachable_reason.find("host-b"), std::string::npos)
      << both().at(0).unreachable_reason;
  EXPECT_FALSE(both().at(1).reachable) << "its socket is nobody's now";
}

// Its process is looked for on this machine, and what is found here says nothing of it.
TEST_F(QemuFabricTest, AProcessOfAnotherMachineHasNotEndedAndNoneOfThisOneIsTakenForIt) {
  Boot();
  OpenReachable();
  ASSERT_TRUE(Bind(Request(1)).ok());
  const std::string life = DiscoverHost().fabric_incarnation;
  const std::string process = life.substr(life.rfind('/'));
  fabric_.reset();
  qemu_->Kill();
  Boot();
  const std::string boot = "00000000-0000-0000-0000-000000000000";
  for (const std::string& before : {std::string(32, '0') + "/" + boot, boot}) {
    known_.hosts["host-a"] = before + process;
    Open();
    ASSERT_TRUE(Saw(Kind::kHostUnreachable)) << before;
    const FabricHost host = DiscoverHost();
    EXPECT_FALSE(host.reachable) << before;
    EXPECT_EQ(host.fabric_incarnation, before + process);
    EXPECT_NE(host.unreachable_reason.find("another machine"), std::string::npos)
        << host.unreachable_reason;
    EXPECT_EQ(ReasonOf(AwaitUnbound(Request(1), absl::Milliseconds(20))), "UNBIND_NOT_PROVEN");
    EXPECT_EQ(ReasonOf(Fence()), "FENCE_FAILED");
    EXPECT_FALSE(events_->WaitFor(
        [](const FabricEvent& event) {
          return event.kind == Kind::kHostGone || event.kind == Kind::kHostReachable;
        },
        std::chrono::milliseconds(100)))
        << before;
  }
}

// The machine has restarted: nothing runs there that ran before.
TEST_F(QemuFabricTest, AnEarlierBootOfThisMachineIsProofOfTheEnd) {
  Boot();
  OpenReachable();
  ASSERT_TRUE(Bind(Request(1)).ok());
  std::vector<std::string> parts = absl::StrSplit(DiscoverHost().fabric_incarnation, '/');
  if (parts.size() != 3) GTEST_SKIP() << "/etc/machine-id has none";
  fabric_.reset();
  qemu_->Kill();
  parts[1] = "00000000-0000-0000-0000-000000000000";
  known_.hosts["host-a"] = absl::StrJoin(parts, "/");
  Open();
  EXPECT_TRUE(Saw(Kind::kHostGone));
  EXPECT_TRUE(AwaitUnbound(Request(1)).ok());
}

// As earlier builds wrote it: the host keeps the name that the records know it by for as long as it
// lives, or it would be taken for another one.
TEST_F(QemuFabricTest, AProcessThatIsKnownWithoutItsMachineKeepsItsName) {
  Boot();
  OpenReachable();
  std::vector<std::string> parts = absl::StrSplit(DiscoverHost().fabric_incarnation, '/');
  const std::string old = parts[parts.size() - 2] + "/" + parts.back();
  known_.hosts["host-a"] = old;
  OpenReachable();
  EXPECT_EQ(DiscoverHost().fabric_incarnation, old);
  ASSERT_TRUE(Bind(Request(1)).ok());
  qemu_->Kill();
  EXPECT_TRUE(events_->WaitFor([&](const FabricEvent& event) {
    return event.kind == Kind::kHostGone && event.incarnation == old;
  }));
}

// What earlier releases kept in a file, for records that do not know the host's process yet.
TEST_F(QemuFabricTest, TheFileOfAnEarlierReleaseIsHeardUntilTheRecordsKnow) {
  Boot();
  OpenReachable();
  const std::string life = DiscoverHost().fabric_incarnation;
  const auto former = ParseIncarnation(life);
  ASSERT_TRUE(former.has_value());
  fabric_.reset();
  qemu_->Kill();
  config_.state_directory = directory_;
  const std::vector<std::string> parts = absl::StrSplit(life, '/');
  std::ofstream(directory_ + "/host-a.qemu") << parts[parts.size() - 2] << " " << former->name.pid
                                             << " " << former->name.start_ticks << "\n";
  known_.hosts.clear();
  Open();
  EXPECT_TRUE(Saw(Kind::kHostGone));
}

}  // namespace
}  // namespace cxlpool::fm
