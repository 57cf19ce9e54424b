#include "host-agent/service/host_event_log.h"

#include <gtest/gtest.h>

#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kSerial = 0x0c00000000000051;

v1::HostEvent Poison(uint64_t dpa, uint64_t serial = kSerial) {
  v1::HostEvent event;
  event.set_serial(serial);
  event.set_kind(v1::HostEvent::POISON);
  event.set_bytes_lost(true);
  event.set_dpa_bytes(dpa);
  event.set_length_bytes(64);
  return event;
}

v1::HostEvent Aer(uint64_t serial = kSerial) {
  v1::HostEvent event;
  event.set_serial(serial);
  event.set_kind(v1::HostEvent::AER_CORRECTABLE);
  return event;
}

std::vector<uint64_t> Reported(HostEventLog& log) {
  std::vector<uint64_t> sequences;
  while (true) {
    v1::Report report;
    if (!log.TakeUnsent(report)) return sequences;
    EXPECT_LE(report.events_size(), kMaxEventsAReport);
    for (const v1::HostEvent& event : report.events()) sequences.push_back(event.sequence());
  }
}

TEST(HostEventLogTest, ToldOnceASessionUntilSeen) {
  HostEventLog log;
  EXPECT_TRUE(log.Add(Poison(0), absl::ZeroDuration()));
  EXPECT_TRUE(log.Add(Poison(64), absl::ZeroDuration()));
  EXPECT_EQ(Reported(log), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(Reported(log), std::vector<uint64_t>());
  log.OnSeen(1);
  log.Rewind();
  EXPECT_EQ(Reported(log), (std::vector<uint64_t>{2}));
  log.OnSeen(2);
  log.Rewind();
  EXPECT_EQ(Reported(log), std::vector<uint64_t>());
}

TEST(HostEventLogTest, LostBytesAreNewsOnceWhileTheirMemdevIsThere) {
  HostEventLog log;
  EXPECT_TRUE(log.Add(Poison(0), absl::ZeroDuration()));
  log.OnSeen(1);
  EXPECT_FALSE(log.Add(Poison(0), absl::Hours(5)));
  EXPECT_TRUE(log.Add(Poison(0, kSerial + 1), absl::Hours(5)));
  HostObservation host;
  host.memdevs.emplace_back().serial = kSerial;
  log.ForgetGone(host);
  EXPECT_FALSE(log.Add(Poison(0), absl::Hours(5)));
  EXPECT_TRUE(log.Add(Poison(0, kSerial + 1), absl::Hours(5)));
}

TEST(HostEventLogTest, WhatLosesNoBytesIsNewsOnceAMinute) {
  HostEventLog log;
  EXPECT_TRUE(log.Add(Aer(), absl::ZeroDuration()));
  EXPECT_FALSE(log.Add(Aer(), absl::Seconds(59)));
  EXPECT_TRUE(log.Add(Aer(), absl::Seconds(60)));
  EXPECT_FALSE(log.Add(Aer(), absl::Seconds(61)));
}

TEST(HostEventLogTest, TheSameLineMayGetWorse) {
  HostEventLog log;
  v1::HostEvent event = Poison(0);
  event.set_kind(v1::HostEvent::DRAM);
  event.set_bytes_lost(false);
  EXPECT_TRUE(log.Add(event, absl::ZeroDuration()));
  event.set_bytes_lost(true);
  EXPECT_TRUE(log.Add(event, absl::ZeroDuration()));
  EXPECT_FALSE(log.Add(event, absl::ZeroDuration()));
}

TEST(HostEventLogTest, FullOfLostBytesItTakesMoreOnceSomeAreSeen) {
  HostEventLog log;
  for (uint64_t i = 0; i < HostEventLog::kMaxWaiting - 1; ++i) {
    EXPECT_TRUE(log.Add(Poison(i * 64), absl::ZeroDuration()));
  }
  EXPECT_TRUE(log.Add(Aer(), absl::ZeroDuration()));
  EXPECT_FALSE(log.Add(Aer(kSerial + 1), absl::ZeroDuration()));
  EXPECT_TRUE(log.Add(Poison(1 << 20), absl::ZeroDuration()));  // In the place of the PCIe error.
  EXPECT_FALSE(log.Add(Poison(2 << 20), absl::ZeroDuration()));
  std::vector<uint64_t> reported = Reported(log);
  EXPECT_EQ(reported.size(), HostEventLog::kMaxWaiting);
  EXPECT_TRUE(std::is_sorted(reported.begin(), reported.end()));
  log.OnSeen(reported.back());
  EXPECT_TRUE(log.Add(Poison(2 << 20), absl::ZeroDuration()));
  EXPECT_EQ(Reported(log), std::vector<uint64_t>{reported.back() + 1});
}

TEST(HostEventLogTest, KnowsNoMoreThanItMay) {
  HostEventLog log;
  uint64_t taken = 0;
  for (uint64_t i = 0; i < 2 * HostEventLog::kMaxKnown; ++i) {
    taken += log.Add(Aer(i + 1), absl::ZeroDuration()) ? 1 : 0;
    log.OnSeen(~uint64_t{0});
  }
  EXPECT_EQ(taken, HostEventLog::kMaxKnown);
  EXPECT_TRUE(log.Add(Poison(0), absl::Minutes(2)));  // Old news made room.
}

// --- In the core.

struct EventRig : CoreRig {
  void TakeEvent(const v1::HostEvent& event) {
    core->TakeEvents({event});
    executor.RunReady();
  }
  // The sequences of all events reported so far, in order.
  std::vector<uint64_t> Sequences() const {
    std::vector<uint64_t> sequences;
    for (const v1::Report& report : link.reports) {
      for (const v1::HostEvent& event : report.events()) sequences.push_back(event.sequence());
    }
    return sequences;
  }
  std::vector<int> Kinds() const {
    std::vector<int> kinds;
    for (const v1::Report& report : link.reports) {
      for (const v1::HostEvent& event : report.events()) kinds.push_back(event.kind());
    }
    return kinds;
  }
};

TEST(AgentCoreEventsTest, ToldAgainInANewSessionUntilDurable) {
  EventRig rig;
  rig.Start();
  rig.TakeEvent(Poison(0));  // With no session yet.
  EXPECT_EQ(rig.Sequences(), std::vector<uint64_t>());
  rig.Connect();
  EXPECT_EQ(rig.Sequences(), (std::vector<uint64_t>{1}));
  rig.TakeEvent(Poison(64));
  rig.TakeEvent(Poison(0));
  EXPECT_EQ(rig.Sequences(), (std::vector<uint64_t>{1, 2}));
  v1::EventsSeen seen;
  seen.set_sequence(1);
  rig.link.handlers.on_events_seen(seen);
  rig.link.handlers.on_lost(absl::UnavailableError("gone"), false);
  rig.executor.RunReady();
  rig.link.reports.clear();
  rig.Connect();
  EXPECT_EQ(rig.Sequences(), (std::vector<uint64_t>{2}));
}

TEST(AgentCoreEventsTest, AnEventIsAReasonToLookAtOnce) {
  EventRig rig;
  rig.memory.plugged = {{1, 0x51}};
  rig.Start();
  rig.Connect({MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, 0x51}})});
  ASSERT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
  rig.memory.LoseDax(0x51);  // As a fatal PCIe error does; seen by itself after seconds only.
  rig.TakeEvent(Aer(0x51));
  EXPECT_EQ(rig.Calls("CreateHostRegion 0x51"), 2);
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
}

TEST(AgentCoreEventsTest, LostEventsAreAReasonToLookToo) {
  EventRig rig;
  rig.memory.plugged = {{1, 0x51}};
  rig.Start();
  rig.Connect({MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, 0x51}})});
  rig.memory.LoseDax(0x51);
  rig.core->TakeEvents({});
  rig.executor.RunReady();
  EXPECT_EQ(rig.Calls("CreateHostRegion 0x51"), 2);
}

// An agent that starts reads at once what the kernel recorded before, and may do so before it has
// looked at the host: by then it cannot be said whose a host address is.
TEST(AgentCoreEventsTest, WhatComesBeforeTheFirstLookWaitsForIt) {
  EventRig rig;
  rig.memory.plugged = {{1, 0x51}};
  rig.Start();
  rig.Connect({MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, 0x51}})});
  ASSERT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
  constexpr uint64_t kHpa = 0x110000000;
  ASSERT_EQ(rig.memory.host.regions.size(), 1u);
  rig.memory.host.regions[0].hpa_bytes = kHpa;
  rig.NewCore();
  rig.link.reports.clear();
  v1::HostEvent page = Poison(0, 0);
  page.set_hpa_bytes(kHpa + 8192);
  rig.core->TakeEvents({page, Poison(4096, 0x51)});
  rig.Start();
  rig.Connect({MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, 0x51}})});
  EXPECT_EQ(rig.Kinds(), (std::vector<int>{v1::HostEvent::POISON, v1::HostEvent::POISON}));
  std::vector<uint64_t> offsets;  // Of what applications are told.
  for (const FaultTable::Fault& fault : rig.core->faults().faults()) {
    offsets.push_back(fault.range.offset_bytes);
  }
  EXPECT_EQ(offsets, (std::vector<uint64_t>{8192, 4096}));
}

TEST(AgentCoreEventsTest, AMemdevThatNobodyWantedToGoIsASurprise) {
  EventRig rig;
  rig.memory.plugged = {{1, 0x51}};
  rig.Start();
  rig.Connect({MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, 0x51}})});
  EXPECT_EQ(rig.Kinds(), std::vector<int>());
  rig.memory.Unplug(1);
  rig.executor.Advance(absl::Seconds(3));
  EXPECT_EQ(rig.Kinds(), std::vector<int>{v1::HostEvent::SURPRISE_REMOVAL});
}

TEST(AgentCoreEventsTest, AMemdevThatWasEjectedIsNone) {
  EventRig rig;
  rig.memory.plugged = {{1, 0x51}};
  rig.Start();
  rig.Connect({MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, 0x51}})});
  rig.Offer(MakeOffer(1, v1::Offer::WANT_OFFLINE, {{1, 0x51}}));
  rig.Offer(MakeOffer(1, v1::Offer::WANT_EJECTED, {{1, 0x51}}));
  rig.executor.Advance(absl::Seconds(3));
  EXPECT_TRUE(rig.memory.host.memdevs.empty());
  EXPECT_EQ(rig.Kinds(), std::vector<int>());
}

}  // namespace
}  // namespace cxlpool::agent
