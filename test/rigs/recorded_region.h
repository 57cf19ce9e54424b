// A Region in the records of a manager of which nothing runs but the Writer, on a fabric that
// answers when a test says so: for tests of one class of the core.
#ifndef CXLPOOL_TEST_RIGS_RECORDED_REGION_H_
#define CXLPOOL_TEST_RIGS_RECORDED_REGION_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "fabric-manager/service/active_regions.h"
#include "fabric-manager/service/fabric_calls.h"
#include "fabric-manager/service/probe.h"
#include "fabric-manager/service/track_table.h"
#include "fabric-manager/service/writer.h"
#include "test/rigs/held_fabric.h"
#include "test/rigs/manual_executor.h"

namespace cxlpool::fm {

// "kv" has two extents of device cmm-0. host-a has both, in slots 1 and 2, under serials 101 and
// 102.
class RecordedRegionTest : public testing::Test {
 protected:
  static constexpr Key kRegion = 3;
  static constexpr uint64_t kGeneration = 11;
  static constexpr uint64_t kBytes = 256ull << 20;

  void SetUp() override {
    writer.Open({.on_committed = [](const auto&) {}, .on_fatal = [](const absl::Status&) {}},
                [](const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; });
    executor.RunReady();
    Commit(Device{.key = 1,
                  .id = "cmm-0",
                  .serial = "1",
                  .capacity_bytes = 4 * kBytes,
                  .granule_bytes = kBytes});
    writer.SetReachable({{"cmm-0", ""}});
    Host host;
    host.key = 2;
    host.id = "host-a";
    Commit(host);
    Region made;
    made.key = kRegion;
    made.id = "kv";
    made.tag = Uuid(std::string(16, 'k'));
    made.generation = 10;
    Attachment attachment;
    attachment.host = "host-a";
    attachment.generation = kGeneration;
    for (uint32_t i = 0; i < 2; ++i) {
      made.extents.push_back({Interned("cmm-0"), i * kBytes, kBytes});
      Segment segment;
      segment.extent_index = i;
      segment.slot = 1 + i;
      segment.host_bridge = "ACPI0016:00";
      segment.serial = 101 + i;
      attachment.segments.push_back(segment);
    }
    made.requested_bytes = 2 * kBytes;
    made.attachments.push_back(attachment);
    Commit(std::make_shared<Region>(made));
    ASSERT_NE(writer.Durable(kRegion), nullptr);
  }

  void Commit(const Item& item) {
    writer.Submit(
        Audit{{}, "test", "test", ""},
        [item](const PoolState&, PlanContext&) -> absl::StatusOr<Proposal> {
          return Proposal::Of(item, nullptr);
        },
        [](const absl::StatusOr<Committed>& done) { ASSERT_TRUE(done.ok()) << done.status(); });
    executor.Advance(absl::Milliseconds(10));
  }
  void Change(const std::function<void(Region&)>& change) {
    Region changed = region();
    change(changed);
    Commit(std::make_shared<Region>(changed));
  }

  const Region& region() const { return *writer.Durable(kRegion); }
  const Attachment& attached() const { return region().attachments[0]; }
  // As the fabric shows the LD of segment `i` once it is bound.
  BoundLd Bound(uint32_t i) const {
    return {.host = "host-a",
            .slot = 1 + i,
            .slice = {"cmm-0", i * kBytes, kBytes},
            .serial = 101 + i,
            .key = LdKey{"host-a", "6b6b6b6b-6b6b-6b6b-6b6b-6b6b6b6b6b6b", kGeneration, i}};
  }

  ManualExecutor executor;
  MemoryStore store{std::make_shared<MemoryDisk>(), &executor, absl::Milliseconds(1)};
  ViewHolder views;
  WatchHub watch;
  Writer writer{{}, &executor, &executor, &store, &views, &watch};
  HeldFabric fabric;
  TrackTable tracks;
  std::vector<std::string> rungs;  // That were passed.
  ProbePoints probe{[this](absl::string_view rung) { rungs.emplace_back(rung); }};
  ActiveRegions active{&executor, &writer, [](Key) {}};
  std::vector<uint64_t> ended;  // Generations of which a call has ended.
  FabricCalls calls{{},      &executor, &executor, &writer,
                    &fabric, &tracks,   &probe,    [this](uint64_t of) { ended.push_back(of); }};
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_RECORDED_REGION_H_
