#include "test/contract/fabric_driver_contract.h"

#include <algorithm>
#include <random>
#include <utility>

#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

void FabricDriverContract::SetUp() {
  auto rig = GetParam()();
  if (absl::IsUnavailable(rig.status())) GTEST_SKIP() << rig.status().message();
  ASSERT_TRUE(rig.ok()) << rig.status();
  rig_ = std::move(*rig);
  // Serials are never used twice in a host, and a rack may outlive the test.
  next_serial_ = (uint64_t{std::random_device()()} << 20) + 1;
  StartDriver();
  if (HasFatalFailure()) return;
  auto view = Discover();
  ASSERT_TRUE(view.ok()) << view.status();
  start_ = *view;
  ASSERT_FALSE(start_.devices.empty());
  ASSERT_GE(start_.devices[0].capacity_bytes, 4 * start_.devices[0].granule_bytes);
  ASSERT_GE(start_.hosts.size(), 2u);
  for (const FabricHost& host : start_.hosts) ASSERT_GE(host.slots.size(), 2u);
  ASSERT_TRUE(start_.bound.empty()) << "the rack is in use";
}

void FabricDriverContract::TearDown() {
  if (rig_ == nullptr || HasFatalFailure()) return;
  auto view = Discover();
  ASSERT_TRUE(view.ok()) << view.status();
  for (const BoundLd& ld : view->bound) EXPECT_TRUE(Unbind(ld).ok());
}

// The next life of a manager has a higher epoch than the one before.
void FabricDriverContract::StartDriver() {
  events_ = std::make_shared<FabricEventLog>();
  ++known_.epoch;
  driver().Start(known_, [log = events_](FabricEvent event) { log->Add(std::move(event)); });
  AwaitAll(driver());
}

// Until the driver has claimed every host, which may take more than one look.
void FabricDriverContract::AwaitAll(FabricDriver& driver) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (true) {
    auto view = Discover(driver);
    ASSERT_TRUE(view.ok()) << view.status();
    if (std::all_of(view->hosts.begin(), view->hosts.end(),
                    [](const FabricHost& host) { return host.reachable; })) {
      return;
    }
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "a host does not become reachable";
    FabricEventLog().WaitFor([](const FabricEvent&) { return false; },
                             std::chrono::milliseconds(20));
  }
}

void FabricDriverContract::Restart() {
  auto view = Discover();
  ASSERT_TRUE(view.ok()) << view.status();
  for (const FabricHost& host : view->hosts) known_.hosts[host.id] = host.fabric_incarnation;
  rig_->Restart();
  StartDriver();
}

FabricHost FabricDriverContract::Look(const std::string& host) {
  auto view = Discover();
  EXPECT_TRUE(view.ok()) << view.status();
  if (!view.ok()) return {};
  for (const FabricHost& seen : view->hosts) {
    if (seen.id == host) return seen;
  }
  return {};
}

absl::StatusOr<FabricView> FabricDriverContract::Discover(FabricDriver& driver) {
  return WaitForAnswer<absl::StatusOr<FabricView>>(
      [&](auto done) { driver.Discover(std::move(done)); });
}

absl::StatusOr<BoundLd> FabricDriverContract::Bind(const BindRequest& request) {
  return WaitForAnswer<absl::StatusOr<BoundLd>>(
      [&](auto done) { driver().Bind(request, std::move(done)); });
}

absl::Status FabricDriverContract::BeginUnbind(const Binding& binding) {
  return WaitForAnswer<absl::Status>(
      [&](auto done) { driver().BeginUnbind(binding, std::move(done)); });
}

absl::Status FabricDriverContract::AwaitUnbound(const Binding& binding, absl::Duration timeout) {
  return WaitForAnswer<absl::Status>(
      [&](auto done) { driver().AwaitUnbound(binding, timeout, std::move(done)); });
}

absl::Status FabricDriverContract::Fence(const std::string& host) {
  return WaitForAnswer<absl::Status>([&](auto done) { driver().Fence(host, std::move(done)); });
}

absl::Status FabricDriverContract::Scrub(const BoundLd& ld) {
  const auto result = WaitForAnswer<absl::StatusOr<ScrubResult>>(
      [&](auto done) { driver().Scrub(ld.slice, {}, std::move(done)); });
  if (result.ok()) {
    EXPECT_EQ(*result, ScrubResult::kZero);
  }
  return result.status();
}

absl::Status FabricDriverContract::Unbind(const BoundLd& ld) {
  if (absl::Status status = BeginUnbind(ld.binding()); !status.ok()) return status;
  rig_->PowerOff(ld);
  return AwaitUnbound(ld.binding());
}

BindRequest FabricDriverContract::Request(size_t host_index, size_t slot_index,
                                          uint64_t granule_index) {
  const FabricDevice& device = start_.devices.at(0);
  const FabricHost& host = start_.hosts.at(host_index);
  const FabricHost now = Look(host.id);
  return BindRequest{
      .key = {.host = host.id,
              .tag = FormatUuid(RandomUuid()),
              .generation = next_serial_,
              .extent_index = 3},
      .slot = host.slots.at(slot_index),
      .slice = {.device = device.id,
                .dpa_bytes = granule_index *
                             (device.max_lds == 0 ? device.granule_bytes : device.capacity_bytes),
                .length_bytes = device.granule_bytes},
      .read_only = false,
      .serial = next_serial_++,
      .incarnation = now.fabric_incarnation,
      .claim = now.claim};
}

std::optional<BoundLd> FabricDriverContract::Find(const Binding& binding) {
  auto view = Discover();
  EXPECT_TRUE(view.ok()) << view.status();
  if (!view.ok()) return std::nullopt;
  for (const BoundLd& ld : view->bound) {
    const bool there =
        ld.host == binding.key.host && ld.slot == binding.slot && ld.slice == binding.slice;
    if (driver().capabilities().keeps_keys ? ld.key == binding.key : there) return ld;
  }
  return std::nullopt;
}

void FabricDriverContract::ExpectAsAsked(const BoundLd& ld, const BindRequest& request) {
  const FabricCapabilities can = driver().capabilities();
  EXPECT_EQ(ld.host, request.key.host);
  EXPECT_EQ(ld.slot, request.slot);
  EXPECT_EQ(ld.slice, request.slice);
  EXPECT_EQ(ld.key, can.keeps_keys ? std::optional(request.key) : std::nullopt);
  if (can.chooses_serial) {
    EXPECT_EQ(ld.serial, request.serial);
  } else {
    EXPECT_NE(ld.serial, 0u) << "the host sees something";
  }
  if (can.keeps_keys || can.enforces_read_only) {
    EXPECT_EQ(ld.read_only, request.read_only);
  }
}

TEST_P(FabricDriverContract, BoundLdIsDiscoveredAsItWasAsked) {
  for (bool read_only : {false, true}) {
    BindRequest request = Request(0, read_only ? 1 : 0, read_only ? 2 : 1);
    request.read_only = read_only;
    auto ld = Bind(request);
    ASSERT_TRUE(ld.ok()) << ld.status();
    ExpectAsAsked(*ld, request);
    EXPECT_FALSE(ld->unbinding);
    const auto found = Find(request.binding());
    ASSERT_TRUE(found.has_value());
    ExpectAsAsked(*found, request);
  }
}

TEST_P(FabricDriverContract, OneHostIsLookedAtAlone) {
  const BindRequest here = Request(0, 0, 0), there = Request(1, 0, 1);
  ASSERT_TRUE(Bind(here).ok());
  ASSERT_TRUE(Bind(there).ok());
  for (const std::string& host : {here.key.host, there.key.host, std::string("nowhere")}) {
    auto all = Discover();
    auto one = WaitForAnswer<absl::StatusOr<FabricView>>(
        [&](auto done) { driver().DiscoverHost(host, std::move(done)); });
    ASSERT_TRUE(all.ok() && one.ok()) << all.status() << one.status();
    KeepOnly(host, *all);
    EXPECT_TRUE(one->devices.empty());
    ASSERT_EQ(one->hosts.size(), host == "nowhere" ? 0u : 1u);
    ASSERT_EQ(one->bound.size(), one->hosts.size());
    for (size_t i = 0; i < one->hosts.size(); ++i) {
      EXPECT_EQ(one->hosts[i].id, host);
      EXPECT_EQ(one->hosts[i].slots, all->hosts[i].slots);
      EXPECT_EQ(one->bound[i].slot, all->bound[i].slot);
      EXPECT_EQ(one->bound[i].slice, all->bound[i].slice);
    }
  }
}

TEST_P(FabricDriverContract, LargestSerialAndGenerationSurvive) {
  BindRequest request = Request(0, 0, 0);
  request.key.generation = UINT64_MAX;
  request.key.extent_index = UINT32_MAX;
  request.serial = UINT64_MAX - next_serial_;
  ASSERT_TRUE(Bind(request).ok());
  const auto found = Find(request.binding());
  ASSERT_TRUE(found.has_value());
  ExpectAsAsked(*found, request);
}

TEST_P(FabricDriverContract, BindAgainIsTheSame) {
  const BindRequest request = Request(0, 0, 0);
  ASSERT_TRUE(Bind(request).ok());
  auto again = Bind(request);
  ASSERT_TRUE(again.ok()) << again.status();
  ExpectAsAsked(*again, request);
  auto view = Discover();
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->bound.size(), 1u);
}

TEST_P(FabricDriverContract, OccupiedSlotIsRefused) {
  const BindRequest first = Request(0, 0, 0);
  const BindRequest second = Request(0, 0, 1);
  ASSERT_TRUE(Bind(first).ok());
  auto refused = Bind(second);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
  EXPECT_EQ(ReasonOf(refused.status()), "NO_FREE_PORT");
  EXPECT_TRUE(Find(first.binding()).has_value());
  EXPECT_FALSE(Find(second.binding()).has_value());
}

TEST_P(FabricDriverContract, SameKeyWithOtherArgumentsIsRefused) {
  const BindRequest request = Request(0, 0, 0);
  ASSERT_TRUE(Bind(request).ok());
  BindRequest other_slot = request, other_slice = request, other_serial = request,
              other_access = request;
  other_slot.slot = start_.hosts[0].slots[1];
  other_slice.slice = Request(0, 0, 1).slice;
  other_serial.serial = next_serial_++;
  other_access.read_only = true;
  std::vector<BindRequest> conflicts = {other_slot};
  if (driver().capabilities().keeps_keys) {
    conflicts = {other_slot, other_slice, other_serial, other_access};
  } else {
    EXPECT_EQ(ReasonOf(Bind(other_slice).status()), "NO_FREE_PORT");
  }
  for (const BindRequest& other : conflicts) {
    auto refused = Bind(other);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kAlreadyExists) << refused.status();
    EXPECT_EQ(ReasonOf(refused.status()), "LD_CONFLICT");
  }
  const auto found = Find(request.binding());
  ASSERT_TRUE(found.has_value());
  ExpectAsAsked(*found, request);
}

TEST_P(FabricDriverContract, UnknownHostDeviceAndSlotAreNotFound) {
  BindRequest host = Request(0, 0, 0), device = host, slot = host;
  host.key.host = "nowhere";
  device.slice.device = "nothing";
  slot.slot = 4242;
  EXPECT_EQ(ReasonOf(Bind(host).status()), "UNKNOWN_HOST");
  EXPECT_EQ(ReasonOf(Bind(device).status()), "UNKNOWN_DEVICE");
  EXPECT_EQ(ReasonOf(Bind(slot).status()), "UNKNOWN_SLOT");
  for (const BindRequest& request : {host, device, slot}) {
    EXPECT_EQ(Bind(request).status().code(), absl::StatusCode::kNotFound);
  }
}

TEST_P(FabricDriverContract, SliceOutsideOfTheDeviceOrItsGranulesIsRefused) {
  const FabricDevice& device = start_.devices[0];
  BindRequest empty = Request(0, 0, 0), ragged = empty, shifted = empty, beyond = empty,
              wrapping = empty;
  empty.slice.length_bytes = 0;
  ragged.slice.length_bytes -= 4096;
  shifted.slice.dpa_bytes = 4096;
  beyond.slice.dpa_bytes = device.capacity_bytes * std::max(device.max_lds, 1u);
  wrapping.slice.dpa_bytes = UINT64_MAX - device.granule_bytes + 1;
  wrapping.slice.length_bytes = 2 * device.granule_bytes;
  for (const BindRequest& request : {empty, ragged, shifted, beyond, wrapping}) {
    auto refused = Bind(request);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << refused.status();
    EXPECT_EQ(ReasonOf(refused.status()), "BAD_SLICE");
  }
}

TEST_P(FabricDriverContract, UnbindingNothingIsOk) {
  const BindRequest request = Request(0, 0, 0);
  EXPECT_TRUE(BeginUnbind(request.binding()).ok());
  EXPECT_TRUE(AwaitUnbound(request.binding()).ok());
}

TEST_P(FabricDriverContract, NoProofWhileTheHostHoldsOn) {
  auto ld = Bind(Request(0, 0, 0));
  ASSERT_TRUE(ld.ok()) << ld.status();
  rig_->PowerOn(*ld);
  ASSERT_TRUE(BeginUnbind(ld->binding()).ok());
  ASSERT_TRUE(BeginUnbind(ld->binding()).ok()) << "again";
  const absl::Status status = AwaitUnbound(ld->binding(), absl::Milliseconds(200));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(ReasonOf(status), "UNBIND_NOT_PROVEN");
  const auto found = Find(ld->binding());
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->unbinding);
}

TEST_P(FabricDriverContract, NoProofBeforeTheUnbindBegan) {
  auto ld = Bind(Request(0, 0, 0));
  ASSERT_TRUE(ld.ok()) << ld.status();
  EXPECT_EQ(ReasonOf(AwaitUnbound(ld->binding(), absl::Milliseconds(100))), "UNBIND_NOT_PROVEN");
  EXPECT_TRUE(Find(ld->binding()).has_value());
}

TEST_P(FabricDriverContract, ProofFreesTheSlotForAnother) {
  auto first = Bind(Request(0, 0, 0));
  ASSERT_TRUE(first.ok()) << first.status();
  rig_->PowerOn(*first);
  const absl::Status unbound = Unbind(*first);
  ASSERT_TRUE(unbound.ok()) << unbound;
  EXPECT_FALSE(Find(first->binding()).has_value());
  EXPECT_TRUE(AwaitUnbound(first->binding()).ok()) << "still proven";
  auto second = Bind(Request(0, 0, 0));
  ASSERT_TRUE(second.ok()) << second.status();
}

TEST_P(FabricDriverContract, WaitEndsWhenTheHostLetsGo) {
  auto ld = Bind(Request(0, 0, 0));
  ASSERT_TRUE(ld.ok()) << ld.status();
  rig_->PowerOn(*ld);
  ASSERT_TRUE(BeginUnbind(ld->binding()).ok());
  auto promise = std::make_shared<std::promise<absl::Status>>();
  auto proof = promise->get_future();
  driver().AwaitUnbound(ld->binding(), absl::Seconds(20),
                        [promise](absl::Status status) { promise->set_value(status); });
  // The wait keeps nobody else waiting.
  ASSERT_TRUE(Bind(Request(0, 1, 1)).ok());
  EXPECT_EQ(proof.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  rig_->PowerOff(*ld);
  ASSERT_EQ(proof.wait_for(kNeverCame), std::future_status::ready);
  EXPECT_TRUE(proof.get().ok());
  EXPECT_FALSE(Find(ld->binding()).has_value());
}

TEST_P(FabricDriverContract, LdThatTheHostNeverTookIsUnbound) {
  auto ld = Bind(Request(1, 1, 2));
  ASSERT_TRUE(ld.ok()) << ld.status();
  const absl::Status unbound = Unbind(*ld);
  EXPECT_TRUE(unbound.ok()) << unbound;
  EXPECT_FALSE(Find(ld->binding()).has_value());
}

TEST_P(FabricDriverContract, TwoHostsShareASliceAndPartOneByOne) {
  const BindRequest on_a = Request(0, 0, 0);
  BindRequest on_b = Request(1, 0, 0);
  on_b.key.tag = on_a.key.tag;
  auto a = Bind(on_a);
  auto b = Bind(on_b);
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  ASSERT_TRUE(rig_->Store(*a, 4096, "written by a").ok());
  auto seen = rig_->Load(*b, 4096, 12);
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_EQ(*seen, "written by a");
  ASSERT_TRUE(Unbind(*a).ok());
  EXPECT_FALSE(Find(on_a.binding()).has_value());
  EXPECT_TRUE(Find(on_b.binding()).has_value());
}

TEST_P(FabricDriverContract, BytesOutliveTheUnbind) {
  const BindRequest first = Request(0, 0, 2);
  auto ld = Bind(first);
  ASSERT_TRUE(ld.ok()) << ld.status();
  ASSERT_TRUE(rig_->Store(*ld, first.slice.length_bytes - 4, "kept").ok());
  ASSERT_TRUE(Unbind(*ld).ok());
  BindRequest second = Request(1, 1, 2);
  second.key.tag = first.key.tag;
  auto again = Bind(second);
  ASSERT_TRUE(again.ok()) << again.status();
  auto bytes = rig_->Load(*again, first.slice.length_bytes - 4, 4);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, "kept");
}

TEST_P(FabricDriverContract, ScrubLeavesZeroesAndNothingElseIsTouched) {
  const BindRequest first = Request(0, 0, 1);
  auto mine = Bind(first);
  auto other = Bind(Request(0, 1, 2));
  ASSERT_TRUE(mine.ok()) << mine.status();
  ASSERT_TRUE(other.ok()) << other.status();
  const uint64_t last = mine->slice.length_bytes - 6;
  for (const BoundLd& ld : {*mine, *other}) {
    ASSERT_TRUE(rig_->Store(ld, 0, "secret").ok());
    ASSERT_TRUE(rig_->Store(ld, last, "secret").ok());
  }
  ASSERT_TRUE(Unbind(*mine).ok());
  const absl::Status scrubbed = Scrub(*mine);
  ASSERT_TRUE(scrubbed.ok()) << scrubbed;
  ASSERT_TRUE(Scrub(*mine).ok()) << "again";
  // The same bytes, and by the same tag: some drivers keep them by the one, some by the other.
  BindRequest request = Request(1, 0, 1);
  request.key.tag = first.key.tag;
  auto next = Bind(request);
  ASSERT_TRUE(next.ok()) << next.status();
  for (uint64_t offset : {uint64_t{0}, last}) {
    auto bytes = rig_->Load(*next, offset, 6);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_EQ(*bytes, std::string(6, '\0'));
    auto kept = rig_->Load(*other, offset, 6);
    ASSERT_TRUE(kept.ok()) << kept.status();
    EXPECT_EQ(*kept, "secret");
  }
}

// Of a device that is carved into LDs: they are of any size, as long as there is room; a scrub
// gives the room back, and what comes out of it again has nobody's bytes.
TEST_P(FabricDriverContract, WhatIsScrubbedIsCarvedAnew) {
  const FabricDevice& device = start_.devices[0];
  if (device.max_lds == 0) return;
  BindRequest small = Request(0, 0, 0), large = Request(0, 1, 1), third = Request(1, 0, 2);
  large.slice.length_bytes = device.capacity_bytes - small.slice.length_bytes;
  auto ld = Bind(large);
  ASSERT_TRUE(ld.ok()) << ld.status();
  ASSERT_TRUE(Bind(small).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Bind(third).status())) << "there is no room";
  for (uint64_t at = 0; at < large.slice.length_bytes; at += device.granule_bytes) {
    ASSERT_TRUE(rig_->Store(*ld, at, "secret").ok());
  }
  ASSERT_TRUE(Unbind(*ld).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Bind(third).status())) << "its bytes are kept until then";
  ASSERT_TRUE(Scrub(*ld).ok());
  third.slice.length_bytes = large.slice.length_bytes;
  auto next = Bind(third);
  ASSERT_TRUE(next.ok()) << next.status();
  for (uint64_t at = 0; at < third.slice.length_bytes; at += device.granule_bytes) {
    auto bytes = rig_->Load(*next, at, 6);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_EQ(*bytes, std::string(6, '\0'));
  }
}

TEST_P(FabricDriverContract, RestartedDriverReadsBackWhatIsBound) {
  BindRequest first = Request(0, 0, 0), second = Request(1, 1, 3);
  second.read_only = true;
  ASSERT_TRUE(Bind(first).ok());
  ASSERT_TRUE(Bind(second).ok());
  Restart();
  auto view = Discover();
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->bound.size(), 2u);
  for (const BindRequest& request : {first, second}) {
    const auto found = Find(request.binding());
    ASSERT_TRUE(found.has_value());
    ExpectAsAsked(*found, request);
    EXPECT_TRUE(Bind(request).ok()) << "the same again";
  }
  for (size_t i = 0; i < start_.hosts.size(); ++i) {
    EXPECT_EQ(view->hosts[i].fabric_incarnation, start_.hosts[i].fabric_incarnation);
    EXPECT_EQ(view->hosts[i].slots, start_.hosts[i].slots);
  }
}

TEST_P(FabricDriverContract, UnbindGoesOnAfterARestart) {
  auto ld = Bind(Request(0, 0, 0));
  ASSERT_TRUE(ld.ok()) << ld.status();
  rig_->PowerOn(*ld);
  ASSERT_TRUE(BeginUnbind(ld->binding()).ok());
  Restart();
  ASSERT_TRUE(BeginUnbind(ld->binding()).ok()) << "again";
  rig_->PowerOff(*ld);
  const absl::Status proof = AwaitUnbound(ld->binding());
  EXPECT_TRUE(proof.ok()) << proof;
}

TEST_P(FabricDriverContract, LdRemovedBehindItsBackIsReported) {
  auto ld = Bind(Request(0, 1, 0));
  ASSERT_TRUE(ld.ok()) << ld.status();
  rig_->Remove(*ld);
  EXPECT_TRUE(events_->WaitFor([&](const FabricEvent& event) {
    return event.kind == FabricEvent::Kind::kLdLost && event.host == ld->host &&
           event.slot == ld->slot && event.key == ld->key;
  }));
  EXPECT_FALSE(Find(ld->binding()).has_value());
  EXPECT_TRUE(AwaitUnbound(ld->binding()).ok());
}

// Not to know a host is no proof that it has nothing.
TEST_P(FabricDriverContract, NothingIsProvenOfAnUnknownHost) {
  Binding binding = Request(0, 0, 0).binding();
  binding.key.host = "nowhere";
  EXPECT_EQ(ReasonOf(BeginUnbind(binding)), "UNKNOWN_HOST");
  const absl::Status proof = AwaitUnbound(binding, absl::Milliseconds(50));
  EXPECT_FALSE(proof.ok());
}

TEST_P(FabricDriverContract, NothingIsBoundInALifeThatTheRecordsDoNotKnow) {
  for (const std::string& life : {std::string(), std::string("of another host")}) {
    BindRequest request = Request(0, 0, 0);
    request.incarnation = life;
    auto bound = Bind(request);
    EXPECT_TRUE(absl::IsUnavailable(bound.status())) << bound.status();
    EXPECT_EQ(ReasonOf(bound.status()), "HOST_UNREACHABLE");
    EXPECT_FALSE(Find(request.binding()).has_value());
  }
}

// The configuration was pointed at another host: what the records know may be bound anywhere.
TEST_P(FabricDriverContract, AHostThatTheRecordsKnowInAnotherLifeIsNotReachable) {
  const std::string other = rig_->AnotherLife();
  if (other.empty()) GTEST_SKIP() << "this rig has no other host to be mistaken for";
  const Binding binding = Request(0, 0, 0).binding();
  const std::string& id = binding.key.host;
  known_.hosts[id] = other;
  rig_->Restart();
  events_ = std::make_shared<FabricEventLog>();
  driver().Start(known_, [log = events_](FabricEvent event) { log->Add(std::move(event)); });
  EXPECT_FALSE(events_->WaitFor(
      [&](const FabricEvent& event) {
        return event.host == id && (event.kind == FabricEvent::Kind::kHostGone ||
                                    event.kind == FabricEvent::Kind::kHostReachable);
      },
      std::chrono::milliseconds(300)));
  auto view = Discover();
  ASSERT_TRUE(view.ok()) << view.status();
  for (const FabricHost& host : view->hosts) {
    EXPECT_EQ(host.reachable, host.id != id) << host.id;
    EXPECT_NE(host.unreachable_reason.empty(), host.id == id) << host.id;
  }
  EXPECT_FALSE(BeginUnbind(binding).ok());
  EXPECT_FALSE(AwaitUnbound(binding, absl::Milliseconds(50)).ok());
  EXPECT_EQ(ReasonOf(Bind(Request(0, 0, 0)).status()), "HOST_UNREACHABLE");
  EXPECT_FALSE(Fence(id).ok());
}

// The manager before was stopped with a bind in its hand. The next one has looked, and goes by
// that; when the former one goes on its bind has no effect, not even where it can claim the host
// again: it would have to commit first.
TEST_P(FabricDriverContract, ABindOfAFormerManagerHasNoEffectAfterTheNextOneHasLooked) {
  std::unique_ptr<FabricDriver> next = rig_->Another();
  if (next == nullptr) GTEST_SKIP() << "this fabric has one manager for as long as that lives";
  const BindRequest in_hand = Request(0, 0, 0);
  const std::string& host = in_hand.key.host;
  next->Start({.hosts = {{host, in_hand.incarnation}}, .epoch = known_.epoch + 1},
              [](const FabricEvent&) {});
  AwaitAll(*next);
  const auto shown = [&]() -> size_t {
    auto view = Discover(*next);
    EXPECT_TRUE(view.ok()) << view.status();
    return view.ok() ? view->bound.size() : 0;
  };
  EXPECT_EQ(shown(), 0u);
  EXPECT_EQ(ReasonOf(Bind(in_hand).status()), "HOST_UNREACHABLE");
  EXPECT_EQ(shown(), 0u);
  next.reset();
  AwaitAll(driver());
  EXPECT_EQ(ReasonOf(Bind(in_hand).status()), "HOST_UNREACHABLE");
  EXPECT_FALSE(Find(in_hand.binding()).has_value());
}

TEST_P(FabricDriverContract, FenceOfAnUnknownHostIsNotFound) {
  EXPECT_EQ(ReasonOf(Fence("nowhere")), "UNKNOWN_HOST");
}

TEST_P(FabricDriverContract, CallsBeyondTheQueueAreRefusedAndTheEndAnswersTheRest) {
  if (!rig_->has_queue()) GTEST_SKIP() << "nothing waits here";
  auto ld = Bind(Request(0, 0, 0));
  ASSERT_TRUE(ld.ok()) << ld.status();
  rig_->PowerOn(*ld);
  for (const FabricHost& host : start_.hosts) known_.hosts[host.id] = host.fabric_incarnation;
  struct Answers {
    Mutex mutex;
    std::map<std::string, int> count ABSL_GUARDED_BY(mutex);
    int Of(const std::string& what) {
      MutexLock lock(mutex);
      return count[what];
    }
  };
  auto answers = std::make_shared<Answers>();
  int calls = 0;
  while (answers->Of("FABRIC_OVERLOADED") == 0 && calls < 100'000) {
    ++calls;
    driver().AwaitUnbound(ld->binding(), absl::Hours(1), [answers](const absl::Status& status) {
      MutexLock lock(answers->mutex);
      ++answers->count[absl::IsCancelled(status) ? "CANCELLED" : ReasonOf(status)];
    });
  }
  EXPECT_EQ(answers->Of("FABRIC_OVERLOADED"), 1);
  EXPECT_EQ(answers->Of("CANCELLED"), 0);
  // The other host has its own queue, or shares one; nobody is cancelled for it.
  rig_->Restart();
  EXPECT_EQ(answers->Of("CANCELLED"), calls - 1);
  EXPECT_EQ(answers->Of("FABRIC_OVERLOADED"), 1);
  StartDriver();
}

TEST_P(FabricDriverContract, AHostThatHangsKeepsNobodyElseWaiting) {
  auto a = Bind(Request(0, 0, 0));
  ASSERT_TRUE(a.ok()) << a.status();
  const BindRequest on_a = Request(0, 1, 1);
  const BindRequest on_b = Request(1, 0, 2);
  if (!rig_->Hang(a->host, true)) GTEST_SKIP() << "no host of this rig hangs";
  auto promise = std::make_shared<std::promise<absl::Status>>();
  auto bound_a = promise->get_future();
  driver().Bind(on_a,
                [promise](const absl::StatusOr<BoundLd>& ld) { promise->set_value(ld.status()); });
  const auto start = std::chrono::steady_clock::now();
  const auto taken = [&] { return std::chrono::steady_clock::now() - start; };
  auto b = Bind(on_b);
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_LT(taken(), std::chrono::seconds(2)) << "a bind on another host";
  for (int look = 0; look < 3; ++look) {
    auto view = Discover();
    ASSERT_TRUE(view.ok()) << view.status();
    ASSERT_EQ(view->hosts.size(), start_.hosts.size());
    for (const FabricHost& host : view->hosts) {
      EXPECT_EQ(host.reachable, host.id != a->host) << host.id;
      EXPECT_EQ(host.unreachable_reason.empty(), host.id != a->host);
    }
    ASSERT_EQ(view->bound.size(), 1u);
    EXPECT_EQ(view->bound[0].host, b->host);
  }
  EXPECT_LT(taken(), std::chrono::seconds(5)) << "its part of a look";
  EXPECT_EQ(ReasonOf(AwaitUnbound(a->binding(), absl::Milliseconds(20))), "UNBIND_NOT_PROVEN");
  EXPECT_FALSE(events_->WaitFor(
      [](const FabricEvent& event) { return event.kind == FabricEvent::Kind::kHostGone; },
      std::chrono::milliseconds(0)));
  events_->Clear();
  ASSERT_TRUE(rig_->Hang(a->host, false));
  EXPECT_TRUE(events_->WaitFor([&](const FabricEvent& event) {
    return event.kind == FabricEvent::Kind::kHostReachable && event.host == a->host;
  }));
  EXPECT_EQ(bound_a.wait_for(kNeverCame), std::future_status::ready);
  EXPECT_TRUE(Find(a->binding()).has_value()) << "and has what it had";
}

// Last: a rack that is not the rig's own has a host less afterwards.
TEST_P(FabricDriverContract, FenceProvesAllOfAHostUnboundAndNoOther) {
  if (!rig_->may_fence()) GTEST_SKIP() << "this rack's hosts are not to be ended";
  if (driver().capabilities().fence == FenceScope::kNone) {
    EXPECT_EQ(ReasonOf(Fence(start_.hosts[0].id)), "NO_FENCE");
    return;
  }
  auto a0 = Bind(Request(0, 0, 0));
  auto a1 = Bind(Request(0, 1, 1));
  auto b = Bind(Request(1, 0, 2));
  for (const auto* ld : {&a0, &a1, &b}) {
    ASSERT_TRUE(ld->ok()) << ld->status();
    rig_->PowerOn(**ld);
  }
  auto waits = std::make_shared<std::promise<absl::Status>>();
  auto proof = waits->get_future();
  driver().AwaitUnbound(a0->binding(), absl::Hours(1),
                        [waits](absl::Status status) { waits->set_value(std::move(status)); });
  const absl::Status fenced = Fence(a0->host);
  ASSERT_TRUE(fenced.ok()) << fenced;
  EXPECT_TRUE(AwaitUnbound(a0->binding()).ok());
  EXPECT_TRUE(AwaitUnbound(a1->binding()).ok());
  ASSERT_EQ(proof.wait_for(kNeverCame), std::future_status::ready);
  EXPECT_TRUE(proof.get().ok()) << "who waited gets an answer";
  EXPECT_FALSE(Find(a0->binding()).has_value());
  EXPECT_FALSE(Find(a1->binding()).has_value());
  EXPECT_TRUE(Find(b->binding()).has_value());
  EXPECT_TRUE(Fence(a0->host).ok()) << "again";
  if (driver().capabilities().fence == FenceScope::kBinding) {
    EXPECT_TRUE(Bind(Request(0, 0, 0)).ok()) << "the host goes on";
    return;
  }
  auto view = Discover();
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_TRUE(!view->hosts[0].reachable ||
              view->hosts[0].fabric_incarnation != start_.hosts[0].fabric_incarnation);
  EXPECT_EQ(view->hosts[1].fabric_incarnation, start_.hosts[1].fabric_incarnation);
  // The end names the life that ended; also a driver that is made later says so, to records that
  // know the host in that life.
  const std::string host = a0->host;
  const std::string life = start_.hosts[0].fabric_incarnation;
  KnownFabric known{.hosts = {}, .epoch = ++known_.epoch};
  known.hosts[host] = life;
  rig_->Restart();
  events_ = std::make_shared<FabricEventLog>();
  driver().Start(known, [log = events_](FabricEvent event) { log->Add(std::move(event)); });
  EXPECT_TRUE(events_->WaitFor([&](const FabricEvent& event) {
    return event.kind == FabricEvent::Kind::kHostGone && event.host == host &&
           event.incarnation == life;
  }));
  Binding another = a0->binding();
  another.key = {.host = host, .tag = FormatUuid(RandomUuid()), .generation = 7};
  EXPECT_TRUE(AwaitUnbound(another).ok());
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FabricDriverContract);

}  // namespace cxlpool::fm
