#include "fabric-manager/adapters/fabric_qemu/qemu_fabric.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/fabric_qemu/ld_name.h"
#include "proto/support/refusal.h"
#include "test/contract/fabric_event_log.h"
#include "test/rigs/fake_qemu.h"
#include "test/rigs/qemu_fabric_fixture.h"
#include "test/rigs/scripted_qmp_server.h"

// What the contract (test/contract/fabric_driver_contract.h) leaves to this driver.
namespace cxlpool::fm {
namespace {

// Another manager's driver, which has none of the files.
class QemuFabricTakeoverTest : public QemuFabricTest {
 protected:
  void SetUp() override {
    config_.timing.evict = absl::Milliseconds(20);
    Boot();
    Open();
    ASSERT_TRUE(DiscoverHost().reachable);
  }
  // By `driver`.
  static FabricView Look(FabricDriver& driver) {
    auto view = WaitForAnswer<absl::StatusOr<FabricView>>(
        [&](auto done) { driver.Discover(std::move(done)); });
    EXPECT_TRUE(view.ok()) << view.status();
    return view.ok() ? *std::move(view) : FabricView();
  }
  std::unique_ptr<FabricDriver> Next() {
    QemuFabricConfig config = config_;
    config.devices.clear();
    auto next = QemuFabric::Open(std::move(config));
    EXPECT_TRUE(next.ok()) << next.status();
    (*next)->Start(known_, [](const FabricEvent&) {});
    return *std::move(next);
  }
};

TEST_F(QemuFabricTakeoverTest, TheFirstLookOfTheNextManagerEvictsTheFormerOne) {
  const std::unique_ptr<FabricDriver> next = Next();
  EXPECT_TRUE(Look(*next).hosts.at(0).reachable);
  EXPECT_TRUE(Saw(Kind::kHostUnreachable)) << "the former one notices";
  // Whatever it still has to do, only a look would take the host back.
  EXPECT_EQ(ReasonOf(BeginUnbind(Request(1))), "HOST_UNREACHABLE");
  EXPECT_EQ(ReasonOf(AwaitUnbound(Request(1), absl::Milliseconds(20))), "UNBIND_NOT_PROVEN");
}

// They have hung up, and QEMU does not know while it has a client: nobody can even wait behind
// them.
TEST_F(QemuFabricTakeoverTest, ThoseWhoWaitedInVainAreInNobodysWay) {
  const UniqueFd interrupt(::eventfd(0, EFD_CLOEXEC));
  absl::Status full;
  for (int i = 0; i < 100 && full.ok(); ++i) {
    full = QmpClient::Connect(socket_, interrupt.get(), [](const QmpMessage&) {}).status();
  }
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  const std::unique_ptr<FabricDriver> next = Next();
  EXPECT_TRUE(Look(*next).hosts.at(0).reachable);
}

// Its command has come to QEMU, which has not got to it.
TEST_F(QemuFabricTakeoverTest, ACommandThatIsUnderWayIsDoneBeforeTheNextManagersLook) {
  const FabricHost host = DiscoverHost();
  BindRequest request = Request(1);
  request.incarnation = host.fabric_incarnation;
  request.claim = host.claim;
  qemu_->Hold("device_add");
  fabric_->Bind(request, [](const absl::StatusOr<BoundLd>&) {});
  qemu_->AwaitHeld();
  const std::unique_ptr<FabricDriver> next = Next();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Look(*next).bound.size(), 1u);
}

// A connection that QEMU or the manager lost is another claim: what was decided before has no
// effect under it.
TEST_F(QemuFabricTakeoverTest, ABindIsOfTheConnectionThatItWasDecidedUnder) {
  BindRequest request = Request(1);
  const FabricHost before = DiscoverHost();
  request.incarnation = before.fabric_incarnation;
  request.claim = before.claim;
  Forget();
  qemu_->HangUp();
  ASSERT_TRUE(Saw(Kind::kHostReachable));
  const auto bind = [&] {
    return WaitForAnswer<absl::StatusOr<BoundLd>>(
        [&](auto done) { fabric_->Bind(request, std::move(done)); });
  };
  EXPECT_EQ(ReasonOf(bind().status()), "HOST_UNREACHABLE");
  const uint64_t now = DiscoverHost().claim;
  EXPECT_NE(now, before.claim);
  EXPECT_EQ(ReasonOf(bind().status()), "HOST_UNREACHABLE");
  request.claim = now;
  const auto bound = bind();
  EXPECT_TRUE(bound.ok()) << bound.status();
}

// Through another socket it is another connection, though the QEMU behind it is the same.
TEST_F(QemuFabricTakeoverTest, NoClaimHasTheNumberOfOneThroughAnotherSocket) {
  const FabricHost before = DiscoverHost();
  BindRequest request = Request(1);
  request.incarnation = before.fabric_incarnation;
  request.claim = before.claim;
  const std::string elsewhere = socket_ + "-2";
  std::filesystem::create_symlink(socket_, elsewhere);
  config_.hosts[0].qmp_socket = elsewhere;
  ASSERT_TRUE(Configure().ok());
  const FabricHost now = DiscoverHost();
  ASSERT_TRUE(now.reachable) << now.unreachable_reason;
  EXPECT_EQ(now.fabric_incarnation, before.fabric_incarnation);
  EXPECT_NE(now.claim, before.claim);
  const auto bound = WaitForAnswer<absl::StatusOr<BoundLd>>(
      [&](auto done) { fabric_->Bind(request, std::move(done)); });
  EXPECT_EQ(ReasonOf(bound.status()), "HOST_UNREACHABLE");
}

TEST_F(QemuFabricTest, BadConfigurationIsRefused) {
  const auto reason = [](const QemuFabricConfig& config) {
    return ReasonOf(QemuFabric::Open(config).status());
  };
  QemuFabricConfig config = config_;
  config.devices[0].path += ".absent";
  EXPECT_EQ(reason(config), "BAD_POOL_FILE");
  config = config_;
  config.devices[0].capacity_bytes *= 2;
  EXPECT_EQ(reason(config), "BAD_POOL_FILE");
  config = config_;
  config.devices[0].capacity_bytes -= 1;
  EXPECT_EQ(reason(config), "BAD_CONFIG");
  config = config_;
  config.devices.push_back(config.devices[0]);
  config.devices[1].id = "cmm-1";
  EXPECT_EQ(reason(config), "BAD_CONFIG") << "one file for two devices";
  config = config_;
  config.hosts.push_back({"host-b", socket_});
  EXPECT_EQ(reason(config), "BAD_CONFIG") << "one socket for two hosts";
}

TEST_F(QemuFabricTest, APoolFileHasOneManagerAndOneIdentity) {
  const auto device = [&] {
    const std::vector<FabricDevice> devices = Devices();
    EXPECT_EQ(devices.size(), 1u);
    return devices.empty() ? FabricDevice() : devices[0];
  };
  Open();
  EXPECT_EQ(ReasonOf(QemuFabric::Open(config_).status()), "FABRIC_BUSY");
  const std::string identity = device().identity;
  EXPECT_FALSE(identity.empty());
  EXPECT_FALSE(device().has_bytes);
  std::ofstream(config_.devices[0].path, std::ios::in | std::ios::out).seekp(5 * 4096) << 'x';
  Open();
  EXPECT_EQ(device().identity, identity) << "over a restart";
  EXPECT_TRUE(device().has_bytes);
  // Another file in the place of the first: neither shown, nor scrubbed.
  const std::string path = config_.devices[0].path;
  std::filesystem::copy_file(path, path + ".copy");
  std::filesystem::rename(path + ".copy", path);
  auto view = WaitForAnswer<absl::StatusOr<FabricView>>(
      [&](auto done) { fabric_->Discover(std::move(done)); });
  ASSERT_TRUE(view.ok());
  EXPECT_TRUE(view->devices.empty());
  const auto scrubbed = WaitForAnswer<absl::StatusOr<ScrubResult>>(
      [&](auto done) { fabric_->Scrub(Request(1).slice, {}, std::move(done)); });
  EXPECT_EQ(ReasonOf(scrubbed.status()), "BAD_POOL_FILE");
  // A path that leads elsewhere is another device.
  config_.devices[0].path = directory_ + "/elsewhere";
  std::filesystem::copy_file(path, config_.devices[0].path);
  Open();
  EXPECT_NE(device().identity, identity);
}

// A pool file that comes to the topology while another manager has it: all else is taken in, and
// the file as soon as it is let go.
TEST_F(QemuFabricTest, ADeviceThatAnotherManagerHasIsTakenInOnceItIsLetGo) {
  Boot();
  QemuFabricConfig files = config_;
  files.hosts.clear();
  auto other = QemuFabric::Open(files);
  ASSERT_TRUE(other.ok()) << other.status();
  const QemuFabricConfig all = config_;
  config_.devices.clear();
  config_.hosts.clear();
  Open();
  config_ = all;
  EXPECT_EQ(ReasonOf(Configure()), "FABRIC_BUSY");
  EXPECT_TRUE(Devices().empty());
  EXPECT_TRUE(Saw(Kind::kHostReachable)) << "the host was taken in";
  other->reset();
  const absl::Status configured = Configure();
  EXPECT_TRUE(configured.ok()) << configured;
  ASSERT_EQ(Devices().size(), 1u);
  const auto bound = Bind(Request(1));
  EXPECT_TRUE(bound.ok()) << bound.status();
}

TEST_F(QemuFabricTest, APoolFileThatGrewIsTheSameDevice) {
  Boot();
  OpenReachable();
  const FabricDevice before = Devices().at(0);
  ASSERT_EQ(::truncate(config_.devices[0].path.c_str(), 6 * kGranule), 0);
  config_.devices[0].capacity_bytes = 6 * kGranule;
  ASSERT_TRUE(Configure().ok());
  const FabricDevice after = Devices().at(0);
  EXPECT_EQ(after.identity, before.identity);
  EXPECT_EQ(after.capacity_bytes, 6 * kGranule);
  BindRequest request = Request(1);
  request.slice.dpa_bytes = 5 * kGranule;
  const auto bound = Bind(request);
  EXPECT_TRUE(bound.ok()) << bound.status();
}

// Also after its qmp key was changed a host is the process that it was, until that has ended.
TEST_F(QemuFabricTest, AHostWithAnotherSocketIsAskedThereOnceItsFormerProcessHasEnded) {
  Boot();
  OpenReachable();
  ASSERT_TRUE(Bind(Request(1)).ok());
  const std::string before = DiscoverHost().fabric_incarnation;
  Forget();
  const std::string elsewhere = socket_ + "-2";
  FakeQemu second(elsewhere, {10, 11});
  config_.hosts[0].qmp_socket = elsewhere;
  ASSERT_TRUE(Configure().ok());
  EXPECT_EQ(ReasonOf(Bind(Request(2, 11)).status()), "HOST_UNREACHABLE");
  EXPECT_EQ(ReasonOf(AwaitUnbound(Request(1), absl::Milliseconds(20))), "UNBIND_NOT_PROVEN");
  qemu_->Kill();
  ASSERT_TRUE(Saw(Kind::kHostReachable));
  EXPECT_NE(DiscoverHost().fabric_incarnation, before);
  EXPECT_TRUE(AwaitUnbound(Request(1)).ok());
  const auto bound = Bind(Request(2, 11));
  EXPECT_TRUE(bound.ok()) << bound.status();
}

// It is plugged, and one of its properties cannot be read: it is not taken for absent.
TEST_F(QemuFabricTest, AnLdThatCannotBeReadIsNotProvenUnbound) {
  constexpr absl::Duration kPatience = absl::Seconds(5);
  Boot();
  OpenReachable();
  ASSERT_TRUE(DiscoverHost().reachable);
  const UniqueFd interrupt(::eventfd(0, EFD_CLOEXEC));
  auto other = QmpClient::Connect(socket_ + ".evict", interrupt.get(), [](const QmpMessage&) {});
  ASSERT_TRUE(other.ok()) << other.status();
  ASSERT_TRUE((*other)->Negotiate(kPatience).ok());
  const BindRequest request = Request(1);
  const std::string backend = LdBackendId(request.key, 1);
  // Without `readonly`.
  auto done = (*other)->Execute("object-add",
                                {{"qom-type", "memory-backend-file"},
                                 {"id", backend},
                                 {"mem-path", config_.devices[0].path},
                                 {"offset", 0},
                                 {"size", kGranule}},
                                kPatience);
  ASSERT_TRUE(done.ok()) << done.status();
  done = (*other)->Execute("device_add",
                           {{"driver", "cxl-type3"},
                            {"bus", "p10"},
                            {"id", LdDeviceId(request.key)},
                            {"volatile-memdev", backend},
                            {"sn", 1}},
                           kPatience);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(ReasonOf(AwaitUnbound(request, absl::Milliseconds(20))), "UNBIND_NOT_PROVEN");
  EXPECT_FALSE(DiscoverHost().reachable);
}

TEST_F(QemuFabricTest, HostThatIsNotThereIsUnreachableAndNothingIsDone) {
  Open();
  ASSERT_TRUE(Saw(Kind::kHostUnreachable));
  EXPECT_FALSE(DiscoverHost().reachable);
  EXPECT_EQ(ReasonOf(Bind(Request(1)).status()), "HOST_UNREACHABLE");
  EXPECT_EQ(ReasonOf(BeginUnbind(Request(1))), "HOST_UNREACHABLE");
  EXPECT_EQ(ReasonOf(AwaitUnbound(Request(1), absl::Milliseconds(20))), "UNBIND_NOT_PROVEN");
  EXPECT_EQ(ReasonOf(Fence()), "FENCE_FAILED") << "nobody knows which process it was";
  Boot();
  ASSERT_TRUE(Saw(Kind::kHostReachable));
  EXPECT_TRUE(Bind(Request(1)).ok());
}

TEST_F(QemuFabricTest, EndOfTheProcessIsProofAndAnEvent) {
  Boot();
  OpenReachable();
  ASSERT_TRUE(Bind(Request(1)).ok());
  const std::string before = DiscoverHost().fabric_incarnation;
  EXPECT_NE(before.find(absl::StrCat("/", qemu_->pid(), ":")), std::string::npos) << before;
  qemu_->Kill();
  ASSERT_TRUE(Saw(Kind::kHostGone));
  EXPECT_TRUE(AwaitUnbound(Request(1)).ok());
  EXPECT_TRUE(BeginUnbind(Request(1)).ok());
  const FabricHost host = DiscoverHost();
  EXPECT_FALSE(host.reachable);
  EXPECT_TRUE(events_->WaitFor([&](const FabricEvent& event) {
    return event.kind == Kind::kHostGone && event.incarnation == before;
  }));
  Forget();
  Boot();
  ASSERT_TRUE(Saw(Kind::kHostReachable));
  EXPECT_NE(DiscoverHost().fabric_incarnation, before);
  EXPECT_TRUE(bound_.empty());
}

TEST_F(QemuFabricTest, EndOfTheProcessWhileNobodyWatchedIsProofToo) {
  Boot();
  OpenReachable();
  ASSERT_TRUE(Bind(Request(1)).ok());
  fabric_.reset();
  qemu_->Kill();
  Open();
  EXPECT_TRUE(Saw(Kind::kHostGone));
  EXPECT_TRUE(AwaitUnbound(Request(1)).ok());
  EXPECT_TRUE(Fence().ok());
}

TEST_F(QemuFabricTest, LostConnectionIsNoProofAndComesBack) {
  Boot();
  OpenReachable();
  ASSERT_TRUE(Bind(Request(1)).ok());
  Forget();
  qemu_->HangUp();
  ASSERT_TRUE(Saw(Kind::kHostUnreachable));
  ASSERT_TRUE(Saw(Kind::kHostReachable));
  DiscoverHost();
  EXPECT_EQ(bound_.size(), 1u);
}

TEST_F(QemuFabricTest, UnplugThatNoClientHeardIsSeenAfterTheReconnect) {
  Boot();
  OpenReachable();
  ASSERT_TRUE(Bind(Request(1)).ok());
  ASSERT_TRUE(Bind(Request(2, 11)).ok());
  ASSERT_TRUE(BeginUnbind(Request(1)).ok());
  fabric_.reset();
  qemu_->Eject(10);
  Open();
  EXPECT_FALSE(AwaitUnbound(Request(1), absl::Milliseconds(20)).ok()) << "it is not claimed";
  DiscoverHost();
  EXPECT_TRUE(AwaitUnbound(Request(1)).ok());
  ASSERT_EQ(bound_.size(), 1u);
  EXPECT_EQ(bound_[0].key, Request(2).key);
}

TEST_F(QemuFabricTest, LateNewsOfAnEarlierLdIsNoProofForItsSuccessor) {
  config_.timing.recheck = absl::Minutes(1);
  Boot();
  OpenReachable();
  BindRequest request = Request(1);
  ASSERT_TRUE(Bind(request).ok());
  qemu_->Vanish(10);
  DiscoverHost();
  ASSERT_TRUE(bound_.empty());
  request.serial = 2;  // Lost, and so bound again, by the same key.
  ASSERT_TRUE(Bind(request).ok());
  ASSERT_TRUE(BeginUnbind(request).ok());
  Forget();
  const absl::Status proof = WaitForAnswer<absl::Status>([&](auto done) {
    fabric_->AwaitUnbound(request.binding(), absl::Milliseconds(300), std::move(done));
    DiscoverHost();
    qemu_->Announce();
  });
  EXPECT_EQ(ReasonOf(proof), "UNBIND_NOT_PROVEN") << proof;
  DiscoverHost();
  ASSERT_EQ(bound_.size(), 1u);
  EXPECT_EQ(bound_[0].serial, 2u);
  EXPECT_TRUE(bound_[0].unbinding);
  qemu_->Eject(10);
  EXPECT_TRUE(AwaitUnbound(request).ok());
}

TEST_F(QemuFabricTest, LdThatIsInNoListButStillMappedIsNotProvenUnbound) {
  Boot();
  OpenReachable();
  const BindRequest request = Request(1);
  ASSERT_TRUE(Bind(request).ok());
  ASSERT_TRUE(BeginUnbind(request).ok());
  qemu_->Botch(10);
  const absl::Duration briefly = absl::Milliseconds(100);
  EXPECT_EQ(ReasonOf(AwaitUnbound(request, briefly)), "UNBIND_NOT_PROVEN");
  // Nor for a manager that did not see it go.
  OpenReachable();
  EXPECT_EQ(ReasonOf(AwaitUnbound(request, briefly)), "UNBIND_NOT_PROVEN");
  DiscoverHost();
  ASSERT_EQ(bound_.size(), 1u);
  EXPECT_EQ(bound_[0].key, request.key);
  EXPECT_EQ(bound_[0].slice, request.slice);
  EXPECT_TRUE(bound_[0].unbinding);
  EXPECT_TRUE(Fence().ok());
  EXPECT_TRUE(AwaitUnbound(request).ok());
}

TEST_F(QemuFabricTest, LdThatIsPulledAndStillMappedIsLost) {
  Boot();
  OpenReachable();
  ASSERT_TRUE(Bind(Request(1)).ok());
  qemu_->Botch(10);
  DiscoverHost();
  EXPECT_TRUE(Saw(Kind::kLdLost));
  ASSERT_EQ(bound_.size(), 1u);
  EXPECT_TRUE(bound_[0].unbinding);
}

TEST_F(QemuFabricTest, BusyGuestIsAskedAgain) {
  Boot();
  OpenReachable();
  ASSERT_TRUE(Bind(Request(1)).ok());
  qemu_->BeBusy(5);
  const absl::Status begun = BeginUnbind(Request(1));
  ASSERT_TRUE(begun.ok()) << begun;
  qemu_->Eject(10);
  EXPECT_TRUE(AwaitUnbound(Request(1)).ok());
}

TEST_F(QemuFabricTest, GuestThatStaysBusyEndsWithItsReason) {
  config_.timing.operation = absl::Milliseconds(200);
  Boot();
  OpenReachable();
  ASSERT_TRUE(Bind(Request(1)).ok());
  qemu_->BeBusy(1000000);
  const absl::Status status = BeginUnbind(Request(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(ReasonOf(status), "GUEST_BUSY");
}

TEST_F(QemuFabricTest, HungQemuIsFencedAtOnce) {
  Boot();
  OpenReachable();
  ASSERT_TRUE(Bind(Request(1)).ok());
  qemu_->Freeze();
  // Something is under way that would wait for its own deadline.
  auto promise = std::make_shared<std::promise<absl::Status>>();
  auto answer = promise->get_future();
  fabric_->Bind(Request(2, 11),
                [promise](absl::StatusOr<BoundLd> ld) { promise->set_value(ld.status()); });
  const absl::Status fenced = Fence();
  EXPECT_TRUE(fenced.ok()) << fenced;
  EXPECT_FALSE(answer.get().ok());
  EXPECT_TRUE(AwaitUnbound(Request(1)).ok());
}

TEST_F(QemuFabricTest, HungQemuIsFencedAfterARestartOfTheManager) {
  Boot();
  OpenReachable();
  ASSERT_TRUE(Bind(Request(1)).ok());
  fabric_.reset();
  qemu_->Freeze();
  Open();
  EXPECT_EQ(ReasonOf(AwaitUnbound(Request(1), absl::Milliseconds(20))), "UNBIND_NOT_PROVEN");
  EXPECT_TRUE(Fence().ok());
  EXPECT_TRUE(AwaitUnbound(Request(1)).ok());
}

// Of a QEMU that has no socket to evict it by.
TEST_F(QemuFabricTest, SocketThatAnotherClientHoldsIsNamed) {
  Boot();
  std::filesystem::remove(socket_ + kEvictSuffix);
  const UniqueFd interrupt(::eventfd(0, EFD_CLOEXEC));
  auto other = QmpClient::Connect(socket_, interrupt.get(), [](const QmpMessage&) {});
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE((*other)->Negotiate(absl::Seconds(20)).ok());
  Open();
  ASSERT_TRUE(Saw(Kind::kHostUnreachable));
  const absl::Status status = Bind(Request(1)).status();
  EXPECT_NE(std::string(status.message()).find("another client"), std::string::npos) << status;
  other->reset();
  EXPECT_TRUE(Saw(Kind::kHostReachable));
}

TEST_F(QemuFabricTest, ForeignMemoryOccupiesItsSlotAndIsNoneOfOurs) {
  Boot();
  {
    const UniqueFd interrupt(::eventfd(0, EFD_CLOEXEC));
    auto other = QmpClient::Connect(socket_, interrupt.get(), [](const QmpMessage&) {});
    ASSERT_TRUE(other.ok());
    ASSERT_TRUE((*other)->Negotiate(absl::Seconds(20)).ok());
    const nlohmann::json backend = {{"qom-type", "memory-backend-file"},
                                    {"id", "m"},
                                    {"mem-path", config_.devices[0].path},
                                    {"offset", 0},
                                    {"size", kGranule},
                                    {"readonly", false}};
    ASSERT_TRUE((*other)->Execute("object-add", backend, absl::Seconds(20)).ok());
    const nlohmann::json device = {{"driver", "cxl-type3"},
                                   {"bus", "p10"},
                                   {"id", "mine"},
                                   {"volatile-memdev", "m"},
                                   {"sn", 9}};
    ASSERT_TRUE((*other)->Execute("device_add", device, absl::Seconds(20)).ok());
  }
  OpenReachable();
  DiscoverHost();
  EXPECT_TRUE(bound_.empty());
  EXPECT_EQ(ReasonOf(Bind(Request(1)).status()), "NO_FREE_PORT");
  EXPECT_TRUE(Bind(Request(1, 11)).ok());
}

TEST_F(QemuFabricTest, ListenerThatIsNoQemuIsNeverTaken) {
  // Its vCPU is a thread of no process that listens here.
  ScriptedQmpServer server(socket_, [](const ScriptedPeer& peer) {
    peer.Greet();
    peer.Answer(1, "{}");
    peer.Answer(2, "[{\"thread-id\": 1}]");
    peer.WaitUntilGone();
  });
  Open();
  ASSERT_TRUE(Saw(Kind::kHostUnreachable));
  const absl::Status status = Bind(Request(1)).status();
  EXPECT_EQ(ReasonOf(status), "HOST_UNREACHABLE");
  EXPECT_EQ(ReasonOf(Fence()), "FENCE_FAILED");
  fabric_.reset();
}

TEST_F(QemuFabricTest, RefusedBindLeavesNothingBehind) {
  Boot();
  OpenReachable();
  std::filesystem::rename(config_.devices[0].path, config_.devices[0].path + ".away");
  EXPECT_EQ(ReasonOf(Bind(Request(1)).status()), "BAD_POOL_FILE");
  DiscoverHost();
  EXPECT_TRUE(bound_.empty());
  std::filesystem::rename(config_.devices[0].path + ".away", config_.devices[0].path);
  EXPECT_TRUE(Bind(Request(1)).ok());
}

TEST_F(QemuFabricTest, StoppingAnswersWhoWaits) {
  Boot();
  OpenReachable();
  ASSERT_TRUE(Bind(Request(1)).ok());
  auto promise = std::make_shared<std::promise<absl::Status>>();
  auto answer = promise->get_future();
  fabric_->AwaitUnbound(Request(1).binding(), absl::Hours(1),
                        [promise](absl::Status status) { promise->set_value(status); });
  fabric_.reset();
  ASSERT_EQ(answer.wait_for(kNeverCame), std::future_status::ready);
  EXPECT_TRUE(absl::IsCancelled(answer.get()));
}

}  // namespace
}  // namespace cxlpool::fm
