#include "fabric-manager/adapters/fabric_emulated/emulated_fabric.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "test/contract/fabric_effects.h"
#include "test/contract/fabric_event_log.h"

// What the contract (test/contract/fabric_driver_contract.h) leaves to this driver.
namespace cxlpool::fm {
namespace {

constexpr uint64_t kGranule = 1 << 20;
constexpr char kTag[] = "0f0e0d0c-0b0a-4908-8706-050403020100";

class EmulatedFabricTest : public ::testing::Test {
 protected:
  EmulatedFabricTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    config_ = {.root_directory = root_ + "/fabric",
               .devices = {{"cmm-0", "s0", 8 * kGranule, kGranule}},
               .hosts = {{"host-a", {1, 2}, std::nullopt}, {"host-b", {1, 2}, std::nullopt}},
               .watch_interval = absl::Milliseconds(20)};
  }
  ~EmulatedFabricTest() override {
    fabric_.reset();
    ::unsetenv("CXLPOOL_FABRIC_EFFECTS");
    std::filesystem::remove_all(root_);
  }

  void Open(KnownFabric known = {}) {
    fabric_.reset();
    auto fabric = EmulatedFabric::Open(config_);
    ASSERT_TRUE(fabric.ok()) << fabric.status();
    fabric_ = std::move(*fabric);
    events_ = std::make_shared<FabricEventLog>();
    fabric_->Start(std::move(known),
                   [log = events_](FabricEvent event) { log->Add(std::move(event)); });
  }

  FabricView Discover() {
    auto view = WaitForAnswer<absl::StatusOr<FabricView>>(
        [&](auto done) { fabric_->Discover(std::move(done)); });
    EXPECT_TRUE(view.ok()) << view.status();
    return view.value_or(FabricView());
  }

  static BindRequest Request(const std::string& host, uint32_t slot, uint64_t serial) {
    return {.key = {.host = host, .tag = kTag, .generation = serial, .extent_index = 0},
            .slot = slot,
            .slice = {.device = "cmm-0", .dpa_bytes = 0, .length_bytes = kGranule},
            .read_only = false,
            .serial = serial,
            .incarnation = ""};
  }

  absl::StatusOr<BoundLd> Bind(BindRequest request) {
    for (const FabricHost& host : Discover().hosts) {
      if (host.id == request.key.host) request.incarnation = host.fabric_incarnation;
    }
    return WaitForAnswer<absl::StatusOr<BoundLd>>(
        [&](auto done) { fabric_->Bind(request, std::move(done)); });
  }

  absl::Status BeginUnbind(const Binding& binding) {
    return WaitForAnswer<absl::Status>(
        [&](auto done) { fabric_->BeginUnbind(binding, std::move(done)); });
  }

  absl::Status AwaitUnbound(const Binding& binding, absl::Duration timeout) {
    return WaitForAnswer<absl::Status>(
        [&](auto done) { fabric_->AwaitUnbound(binding, timeout, std::move(done)); });
  }

  absl::Status Fence(const std::string& host) {
    return WaitForAnswer<absl::Status>([&](auto done) { fabric_->Fence(host, std::move(done)); });
  }

  absl::Status Scrub() {
    return WaitForAnswer<absl::StatusOr<ScrubResult>>([&](auto done) {
             fabric_->Scrub({"cmm-0", 0, kGranule}, {}, std::move(done));
           })
        .status();
  }

  void WriteHostSide(const std::string& text) {
    std::ofstream(root_ + "/fabric/hosts/host-a/slot-1/host.textproto") << text;
  }

  std::string root_;
  EmulatedFabricConfig config_;
  std::shared_ptr<FabricEventLog> events_;
  std::unique_ptr<FabricDriver> fabric_;
};

TEST_F(EmulatedFabricTest, BadConfigurationIsRefused) {
  const auto reason = [](const EmulatedFabricConfig& config) {
    return ReasonOf(EmulatedFabric::Open(config).status());
  };
  EmulatedFabricConfig config = config_;
  config.root_directory = "relative";
  EXPECT_EQ(reason(config), "BAD_CONFIG");
  config = config_;
  config.devices[0].granule_bytes = 0;
  EXPECT_EQ(reason(config), "BAD_CONFIG");
  config = config_;
  config.hosts[1].id = "host-a";
  EXPECT_EQ(reason(config), "BAD_CONFIG");
  config = config_;
  config.hosts[0].slots = {5, 5};
  EXPECT_EQ(reason(config), "BAD_CONFIG");
  config = config_;
  config.hosts[0].id = "../host";
  EXPECT_EQ(reason(config), "BAD_NAME");
}

TEST_F(EmulatedFabricTest, OneDriverToARoot) {
  Open();
  EXPECT_EQ(ReasonOf(EmulatedFabric::Open(config_).status()), "FABRIC_BUSY");
}

// What a manager does with an LD from its bind to its scrub is done before the next one has the
// root, and the file that the trials of lost managers look at says so.
TEST_F(EmulatedFabricTest, NothingOfAFormerManagerComesAfterTheNextOneHasTheRoot) {
  const std::string file = root_ + "/effects";
  ::setenv("CXLPOOL_FABRIC_EFFECTS", file.c_str(), 1);
  Open({.hosts = {}, .epoch = 6});
  auto ld = Bind(Request("host-a", 1, 7));
  ASSERT_TRUE(ld.ok()) << ld.status();
  {
    auto next = EmulatedFabric::Open(config_);
    if (next.ok()) (*next)->Start({.hosts = {}, .epoch = 7}, [](const FabricEvent&) {});
    ASSERT_TRUE(BeginUnbind(ld->binding()).ok());
    ASSERT_TRUE(AwaitUnbound(ld->binding(), absl::Seconds(10)).ok());
    ASSERT_TRUE(Scrub().ok());
  }
  Open({.hosts = {}, .epoch = 7});
  ASSERT_TRUE(Bind(Request("host-a", 1, 8)).ok());
  const FabricEffects effects = ReadFabricEffects(file);
  EXPECT_EQ(effects.wrong, "");
  EXPECT_EQ(effects.claims, 2u);
  EXPECT_EQ(effects.binds, 2u);
  EXPECT_EQ(effects.scrubs, 1u);
}

TEST_F(EmulatedFabricTest, AnEffectUnderALowerEpochIsFound) {
  const std::string file = root_ + "/effects";
  EXPECT_EQ(ReadFabricEffects(file).wrong, "");
  std::ofstream(file) << "6 claim\n6 bind host-a\n7 claim\n7 scrub cmm-0\n6 bind host-b\n7 claim\n";
  EXPECT_EQ(ReadFabricEffects(file).wrong, "\"6 bind host-b\" came after something of epoch 7");
}

TEST_F(EmulatedFabricTest, HostStateOfAnOlderLdIsNotHeldAgainstAnUnbind) {
  Open();
  WriteHostSide("serial: 6 powered: true");
  auto ld = Bind(Request("host-a", 1, 7));
  ASSERT_TRUE(ld.ok()) << ld.status();
  ASSERT_TRUE(BeginUnbind(ld->binding()).ok());
  EXPECT_TRUE(AwaitUnbound(ld->binding(), absl::Seconds(10)).ok());
}

TEST_F(EmulatedFabricTest, UnreadableHostStateIsNoProofAndIsNamed) {
  Open();
  auto ld = Bind(Request("host-a", 1, 7));
  ASSERT_TRUE(ld.ok()) << ld.status();
  ASSERT_TRUE(BeginUnbind(ld->binding()).ok());
  WriteHostSide("serial: seven");
  const absl::Status status = AwaitUnbound(ld->binding(), absl::Milliseconds(50));
  EXPECT_EQ(ReasonOf(status), "UNBIND_NOT_PROVEN");
  EXPECT_NE(std::string(status.message()).find("host.textproto"), std::string::npos) << status;
}

TEST_F(EmulatedFabricTest, ASlotThatIsNoLongerConfiguredIsClosedAndNotForgotten) {
  Open();
  auto ld = Bind(Request("host-a", 1, 7));
  ASSERT_TRUE(ld.ok()) << ld.status();
  WriteHostSide("serial: 7 powered: true");
  config_.hosts[0].slots = {2};
  Open();
  const FabricView view = Discover();
  ASSERT_EQ(view.bound.size(), 1u);
  EXPECT_EQ(view.bound[0].key, ld->key);
  EXPECT_EQ(view.hosts[0].slots, std::vector<uint32_t>{2});
  EXPECT_EQ(view.hosts[0].closed_slots, std::vector<uint32_t>{1});
  EXPECT_EQ(ReasonOf(Bind(Request("host-a", 1, 9)).status()), "UNKNOWN_SLOT");
  ASSERT_TRUE(BeginUnbind(ld->binding()).ok());
  EXPECT_EQ(ReasonOf(AwaitUnbound(ld->binding(), absl::Milliseconds(50))), "UNBIND_NOT_PROVEN");
  EXPECT_EQ(ReasonOf(Scrub()), "STILL_BOUND");
  WriteHostSide("serial: 7 powered: false");
  EXPECT_TRUE(AwaitUnbound(ld->binding(), absl::Seconds(10)).ok());
}

TEST_F(EmulatedFabricTest, ADamagedSlotIsNotAnEmptyOne) {
  Open();
  auto ld = Bind(Request("host-a", 1, 7));
  ASSERT_TRUE(ld.ok()) << ld.status();
  const std::string file = root_ + "/fabric/hosts/host-a/slot-1/fabric.textproto";
  for (const char* text : {"", "tag: 5", "nonsense"}) {
    std::ofstream(file, std::ios::trunc) << text;
    for (const bool restarted : {false, true}) {
      if (restarted) Open();
      const FabricView view = Discover();
      EXPECT_FALSE(view.hosts[0].reachable) << text;
      EXPECT_NE(view.hosts[0].unreachable_reason.find("slot-1"), std::string::npos);
      EXPECT_TRUE(view.hosts[1].reachable) << "the others go on";
      EXPECT_FALSE(BeginUnbind(ld->binding()).ok()) << text;
      EXPECT_FALSE(AwaitUnbound(ld->binding(), absl::Milliseconds(50)).ok()) << text;
      EXPECT_FALSE(Fence("host-a").ok()) << text;
    }
  }
}

TEST_F(EmulatedFabricTest, AnotherRootIsAnotherFabric) {
  Open();
  const FabricView before = Discover();
  KnownFabric known;
  for (const FabricHost& host : before.hosts) known.hosts[host.id] = host.fabric_incarnation;
  Open(known);
  EXPECT_EQ(Discover().devices[0].identity, before.devices[0].identity);
  EXPECT_TRUE(Discover().hosts[0].reachable);
  config_.root_directory = root_ + "/other";
  Open(known);
  EXPECT_NE(Discover().devices[0].identity, before.devices[0].identity);
  EXPECT_FALSE(Discover().hosts[0].reachable);
}

TEST_F(EmulatedFabricTest, VanishedExtentIsALostLd) {
  Open();
  auto ld = Bind(Request("host-a", 1, 7));
  ASSERT_TRUE(ld.ok()) << ld.status();
  std::filesystem::remove(absl::StrCat(root_, "/fabric/extents/", kTag, ".0"));
  EXPECT_TRUE(events_->WaitFor([&](const FabricEvent& event) {
    return event.kind == FabricEvent::Kind::kLdLost && event.key == ld->key;
  }));
}

TEST_F(EmulatedFabricTest, FenceThatWouldHitAnotherHostIsRefused) {
  Open();
  auto a = Bind(Request("host-a", 1, 7));
  auto b = Bind(Request("host-b", 1, 8));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(ReasonOf(Fence("host-a")), "FENCE_FAILED");
  ASSERT_TRUE(BeginUnbind(b->binding()).ok());
  ASSERT_TRUE(AwaitUnbound(b->binding(), absl::Seconds(10)).ok());
  EXPECT_TRUE(Fence("host-a").ok());
}

TEST_F(EmulatedFabricTest, WhatAFencedHostHasOpenReachesTheBytesNoMore) {
  Open();
  ASSERT_TRUE(Bind(Request("host-a", 1, 7)).ok());
  const std::string path = absl::StrCat(root_, "/fabric/extents/", kTag, ".0");
  std::fstream held(path, std::ios::in | std::ios::out | std::ios::binary);
  held << 'a' << std::flush;
  ASSERT_TRUE(Fence("host-a").ok());
  held << 'b' << std::flush;
  ASSERT_TRUE(held.good());
  std::ifstream now(path, std::ios::binary);
  EXPECT_EQ(now.get(), 'a') << "the Region keeps its bytes";
  EXPECT_EQ(now.get(), 0);
}

TEST_F(EmulatedFabricTest, ScrubOfABoundExtentIsRefused) {
  Open();
  ASSERT_TRUE(Bind(Request("host-a", 1, 7)).ok());
  EXPECT_EQ(ReasonOf(Scrub()), "STILL_BOUND");
}

// The bytes of a place are in files that bear the names of what was bound there: all of them go.
TEST_F(EmulatedFabricTest, AScrubClearsWhateverWasBoundAtThatPlace) {
  Open();
  std::vector<std::string> files;
  for (const uint64_t serial : {7, 8}) {
    BindRequest request = Request("host-a", 1, serial);
    if (serial == 8) request.key.tag = FormatUuid(RandomUuid());
    auto ld = Bind(request);
    ASSERT_TRUE(ld.ok()) << ld.status();
    files.push_back(absl::StrCat(root_, "/fabric/extents/", request.key.tag, ".0"));
    ASSERT_TRUE(std::filesystem::exists(files.back()));
    EXPECT_EQ(ReasonOf(Scrub()), "STILL_BOUND");
    ASSERT_TRUE(BeginUnbind(ld->binding()).ok());
    ASSERT_TRUE(AwaitUnbound(ld->binding(), absl::Seconds(10)).ok());
  }
  const absl::Status scrubbed = Scrub();
  EXPECT_TRUE(scrubbed.ok()) << scrubbed;
  for (const std::string& file : files) EXPECT_FALSE(std::filesystem::exists(file)) << file;
}

// A name that were lost from the note would be a file that no scrub clears.
TEST_F(EmulatedFabricTest, AScrubMissesNoFileHoweverManyWereNoted) {
  Open();
  std::vector<std::string> files;
  absl::Status bound;
  for (uint64_t serial = 7; bound.ok() && serial < 200; ++serial) {
    BindRequest request = Request("host-a", 1, serial);
    request.key.tag = FormatUuid(RandomUuid());
    const auto ld = Bind(request);
    bound = ld.status();
    if (!bound.ok()) break;
    files.push_back(absl::StrCat(root_, "/fabric/extents/", request.key.tag, ".0"));
    ASSERT_TRUE(BeginUnbind(ld->binding()).ok());
    ASSERT_TRUE(AwaitUnbound(ld->binding(), absl::Seconds(20)).ok());
  }
  EXPECT_GT(files.size(), 50u);
  EXPECT_EQ(ReasonOf(bound), "EXTENT_NOTES_FULL") << bound;
  const absl::Status scrubbed = Scrub();
  EXPECT_TRUE(scrubbed.ok()) << scrubbed;
  for (const std::string& file : files) EXPECT_FALSE(std::filesystem::exists(file)) << file;
  EXPECT_TRUE(Bind(Request("host-a", 1, 7)).ok());
}

TEST_F(EmulatedFabricTest, TagThatIsNoUuidNeverBecomesAPath) {
  Open();
  BindRequest request = Request("host-a", 1, 7);
  request.key.tag = "../../../../../../../../etc/passwd!!";
  EXPECT_EQ(ReasonOf(Bind(request).status()), "BAD_UUID");
}

TEST_F(EmulatedFabricTest, StoppingAnswersWhoWaits) {
  Open();
  auto ld = Bind(Request("host-a", 1, 7));
  ASSERT_TRUE(ld.ok()) << ld.status();
  auto promise = std::make_shared<std::promise<absl::Status>>();
  auto answer = promise->get_future();
  fabric_->AwaitUnbound(ld->binding(), absl::Hours(1),
                        [promise](absl::Status status) { promise->set_value(status); });
  fabric_.reset();
  ASSERT_EQ(answer.wait_for(kNeverCame), std::future_status::ready);
  EXPECT_EQ(answer.get().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace cxlpool::fm
