// Histories of a small pool that does one thing at a time, with calls that overlap at random, lost
// answers, retries and late copies. Every one of them must fit; one answer changed, hardly any.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "test/sim/region_history.h"
#include "test/sim/scheduler.h"

namespace cxlpool::sim {
namespace {

struct ToyRegion {
  std::string tag, name, state;
  uint64_t generation = 0, revision = 0, size = 0;
  std::map<std::string, bool> hosts;  // Whether it is on its way down.
  uint64_t tail = 0;                  // Granules.
  bool leaving = false, compensating = false, lease = false;

  bool resizing() const { return tail != 0; }
  bool going() const {
    return compensating || state == "RELEASING" || state == "SCRUBBING" || state == "FAILED";
  }
  void Release() {
    state = "RELEASING";
    size += tail;
    tail = 0;
    for (auto& [host, down] : hosts) down = true;
  }
};

// The rules once more, for one Region after the other and with everything in sight.
class ToyPool {
 public:
  explicit ToyPool(Random& random) : random_(random) {}

  // Does `op` and fills in its answer. What it did it to is found again by `tag`.
  void Do(ClientOp& op) {
    op.reason = Try(op);
    op.outcome = op.reason.empty() ? ClientOp::kOk : ClientOp::kRefused;
    if (op.reason.empty()) Show(op);
  }

  // The answer to a later copy of a call that was done.
  void Show(ClientOp& op) {
    const auto live = regions_.find(op.tag);
    const ToyRegion& region = live == regions_.end() ? gone_.at(op.tag) : live->second;
    op.generation = region.generation;
    op.revision = region.revision;
    op.answered_granules = region.size;
    op.resizing = region.resizing();
    op.state = region.state;
    op.hosts.clear();
    for (const auto& [host, down] : region.hosts) op.hosts.push_back({host, down});
  }

  void HiddenStep() {
    if (regions_.empty()) return;
    auto at = regions_.begin();
    std::advance(at, random_.Below(regions_.size()));
    ToyRegion& region = at->second;
    if (!Hidden(region)) return;
    Changed(region);
    if (region.state != "GONE") return;
    region.state = last_state_;
    gone_[region.tag] = region;
    regions_.erase(at);
  }

 private:
  void Changed(ToyRegion& region) { region.revision = ++revision_; }

  ToyRegion* Find(const std::string& name) {
    for (auto& [tag, region] : regions_) {
      if (region.name == name) return &region;
    }
    return nullptr;
  }

  bool Hidden(ToyRegion& region) {
    for (auto it = region.hosts.begin(); it != region.hosts.end(); ++it) {
      if (it->second && random_.OneIn(2)) {
        region.hosts.erase(it);
        return true;
      }
    }
    if (region.state == "RELEASING" || region.state == "SCRUBBING" || region.state == "FAILED") {
      if (!region.hosts.empty()) return false;
      last_state_ = region.state;
      region.state = region.state == "RELEASING" ? "SCRUBBING" : "GONE";
      return true;
    }
    if (region.compensating) {
      region.state = "FAILED";
      return true;
    }
    if (region.lease && region.state != "QUARANTINED" && random_.OneIn(8)) {
      region.Release();
      return true;
    }
    if (region.state != "QUARANTINED" && random_.OneIn(40)) {
      region.state = "QUARANTINED";
      return true;
    }
    if (!region.hosts.empty() && !region.hosts.begin()->second && random_.OneIn(12)) {
      region.hosts.begin()->second = true;
      region.compensating = region.state == "RESERVED";
      return true;
    }
    if (region.state == "RESERVED") {
      for (const auto& [host, down] : region.hosts) {
        if (down) return false;
      }
      region.state = "ALLOCATED";
      return true;
    }
    if (!region.resizing() || region.state != "ALLOCATED") return false;
    if (!region.leaving && random_.OneIn(3)) {
      region.leaving = true;
      return true;
    }
    if (!region.leaving) region.size += region.tail;
    region.tail = 0;
    return true;
  }

  std::string Allocate(ClientOp& op) {
    if (Find(op.region_id) != nullptr) return "REGION_EXISTS";
    if (random_.OneIn(8)) return "POOL_FULL";
    ToyRegion region;
    region.tag = op.tag = "t" + std::to_string(++tags_);
    region.name = op.region_id;
    region.generation = ++tags_;
    region.size = op.size_granules + random_.Below(2);
    region.lease = op.lease;
    region.state = op.host.empty() ? "ALLOCATED" : "RESERVED";
    if (!op.host.empty()) region.hosts[op.host] = false;
    Changed(region);
    regions_[region.tag] = region;
    return "";
  }

  std::string NotReady(const ToyRegion& region) {
    if (region.state == "QUARANTINED") return "REGION_QUARANTINED";
    if (region.going()) return "REGION_RELEASING";
    if (region.state == "RESERVED") return "REGION_NOT_READY";
    return region.resizing() ? "RESIZE_IN_PROGRESS" : "";
  }

  std::string Attach(ToyRegion& region, const ClientOp& op) {
    const auto present = region.hosts.find(op.host);
    if (!region.going() && region.state != "QUARANTINED" && present != region.hosts.end()) {
      return present->second ? "DETACH_IN_PROGRESS" : "";
    }
    if (std::string why = NotReady(region); !why.empty()) return why;
    if (random_.OneIn(8)) return "NO_FREE_PORT";
    region.hosts[op.host] = false;
    Changed(region);
    return "";
  }

  std::string Resize(ToyRegion& region, const ClientOp& op) {
    if (std::string why = NotReady(region); !why.empty()) return why;
    if (op.size_granules == region.size) return "";
    for (const auto& [host, down] : region.hosts) {
      if (down) return "NOT_RESIZABLE";
    }
    if (op.size_granules > region.size) {
      const uint64_t more = op.size_granules - region.size + random_.Below(2);
      (region.hosts.empty() ? region.size : region.tail) += more;
      region.leaving = false;
    } else {
      const uint64_t size = op.size_granules + random_.Below(2);
      if (size >= region.size) return "RESIZE_INSIDE_EXTENT";
      region.tail = region.size - size;
      region.size = size;
      region.leaving = true;
    }
    Changed(region);
    return "";
  }

  std::string Release(ToyRegion& region, const ClientOp& op) {
    if (!region.going()) {
      if (region.state == "QUARANTINED" && !op.force) return "REGION_QUARANTINED";
      for (const auto& [host, down] : region.hosts) {
        if (!down && !op.detach_all && !op.force) return "REGION_ATTACHED";
      }
      region.Release();
    } else if (!op.force) {
      return "";
    }
    Changed(region);
    return "";
  }

  std::string Try(ClientOp& op) {
    if (op.kind == ClientOp::kAllocate) return Allocate(op);
    ToyRegion* const region = Find(op.region_id);
    if (region == nullptr) return "UNKNOWN_REGION";
    op.tag = region->tag;
    switch (op.kind) {
      case ClientOp::kAttach:
        return Attach(*region, op);
      case ClientOp::kResize:
        return Resize(*region, op);
      case ClientOp::kRelease:
        return Release(*region, op);
      case ClientOp::kDetach:
        if (const auto at = region->hosts.find(op.host); at != region->hosts.end() && !at->second) {
          at->second = true;
          break;
        }
        return "";
      case ClientOp::kRename:
        if (region->name == op.new_region_id) return "";
        if (region->going()) return "REGION_RELEASING";
        if (Find(op.new_region_id) != nullptr) return "REGION_EXISTS";
        region->name = op.new_region_id;
        region->generation = ++tags_;
        break;
      case ClientOp::kRenew:
        if (region->going()) return "REGION_RELEASING";
        region->lease = true;
        break;
      default:
        return "";
    }
    Changed(*region);
    return "";
  }

  Random& random_;
  std::map<std::string, ToyRegion> regions_, gone_;  // By tag.
  std::string last_state_;
  uint64_t revision_ = 0, tags_ = 0;
};

struct Shape {
  int operations = 60;
  int names = 2;
  bool lossy = true;  // Answers are lost, calls are sent again.
  bool renames = false;
  int64_t overlap_us = 250;  // Calls begin 100 us apart.
};

ClientOp MakeOp(Random& random, const Shape& shape) {
  constexpr ClientOp::Kind kKinds[] = {ClientOp::kAllocate, ClientOp::kAllocate, ClientOp::kGet,
                                       ClientOp::kGet,      ClientOp::kGet,      ClientOp::kResize,
                                       ClientOp::kAttach,   ClientOp::kAttach,   ClientOp::kDetach,
                                       ClientOp::kRelease,  ClientOp::kRenew,    ClientOp::kRename};
  const auto name = [&] { return "r" + std::to_string(random.Below(shape.names)); };
  ClientOp op;
  op.kind = kKinds[random.Below(std::size(kKinds) - (shape.renames ? 0 : 1))];
  op.region_id = name();
  if (op.kind == ClientOp::kRename) op.new_region_id = name();
  if (op.kind == ClientOp::kAllocate || op.kind == ClientOp::kResize) {
    op.size_granules = 1 + random.Below(8);
  }
  const bool hosted = op.kind == ClientOp::kAttach || op.kind == ClientOp::kDetach ||
                      (op.kind == ClientOp::kAllocate && random.OneIn(2));
  if (hosted) op.host = "h" + std::to_string(random.Below(3));
  if (op.kind == ClientOp::kRelease) {
    op.detach_all = random.Percent(70);
    op.force = random.OneIn(5);
  }
  op.lease = op.kind == ClientOp::kRenew || (op.kind == ClientOp::kAllocate && random.OneIn(5));
  return op;
}

std::vector<ClientOp> MakeHistory(uint64_t seed, const Shape& shape) {
  Random random(seed);
  ToyPool pool(random);
  std::vector<ClientOp> history;
  struct Late {
    int64_t at_us;
    size_t op;
    bool answer;  // Else a copy that takes effect.
  };
  std::vector<Late> late;
  for (int i = 0; i < shape.operations; ++i) {
    const int64_t now = 1000 + 100 * i;
    for (uint64_t hidden = random.Below(4); hidden > 0; --hidden) pool.HiddenStep();
    for (const Late& then : late) {
      if (then.at_us != now) continue;
      ClientOp& op = history[then.op];
      ClientOp copy = op;
      then.answer ? pool.Show(op) : pool.Do(copy);
    }
    ClientOp op = MakeOp(random, shape);
    op.request = static_cast<uint64_t>(i);
    op.client = i % 4;
    op.invoke_us = now - random.Between(0, shape.overlap_us);
    op.return_us = now + random.Between(0, shape.overlap_us);
    const uint64_t fate = shape.lossy ? random.Below(20) : 20;
    const int64_t later = now + 100 * random.Between(1, 6);
    const bool changes = op.kind != ClientOp::kGet;
    if (fate == 0 && changes) {  // No answer, and it may be done now, later or never.
      if (random.OneIn(2)) {
        ClientOp done = op;
        pool.Do(done);
      } else if (random.OneIn(2)) {
        late.push_back({later, history.size(), false});
      }
      op.outcome = ClientOp::kUnknown;
      if (random.OneIn(2)) op.return_us = kNever;
    } else {
      pool.Do(op);
      if (fate <= 3 && changes) {
        op.sends = 2;
        const bool done = op.outcome == ClientOp::kOk;
        // Done at once, answered later; or refused, and a copy comes later.
        late.push_back({later, history.size(), done});
        if (done) op.return_us = later + random.Between(0, 50);
      }
    }
    history.push_back(op);
  }
  // What comes after the end is not awaited.
  for (const Late& then : late) {
    if (then.answer && then.at_us >= 1000 + 100 * shape.operations) {
      history[then.op].outcome = ClientOp::kUnknown;
    }
  }
  return history;
}

// One answer made another. False: nothing was changed.
bool Spoil(Random& random, std::vector<ClientOp>& history, bool& refusal) {
  ClientOp& op = history[random.Below(history.size())];
  if (op.return_us == kNever || op.outcome == ClientOp::kUnknown || op.sends > 1) return false;
  refusal = op.outcome == ClientOp::kRefused;
  if (refusal) {
    if (op.reason == "UNKNOWN_REGION") {
      op.reason = op.kind == ClientOp::kGet ? "" : "ETAG_MISMATCH";
    } else if (op.reason == "REGION_EXISTS") {
      op.reason = "POOL_FULL";
    } else if (op.reason == "POOL_FULL") {
      op.reason = "REGION_EXISTS";
    } else {
      op.reason = "UNKNOWN_REGION";
    }
    return !op.reason.empty();
  }
  switch (random.Below(6)) {
    case 0:
      ++op.answered_granules;
      break;
    case 1:
      op.tag = "somebody else's";
      break;
    case 2:
      op.state = op.state == "ALLOCATED" ? "SCRUBBING" : "ALLOCATED";
      break;
    case 3:
      op.hosts.push_back({"h9", random.OneIn(2)});
      break;
    case 4:
      op.revision = op.revision > 8 ? op.revision - 8 : op.revision + 8;
      break;
    default:
      op.outcome = ClientOp::kRefused;
      op.reason = op.kind == ClientOp::kAllocate ? "REGION_EXISTS" : "UNKNOWN_REGION";
      break;
  }
  return true;
}

TEST(RegionHistoryRandomTest, WhatReallyHappenedFits) {
  uint64_t gave_up = 0, names = 0, states = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Shape shape{.operations = 20 + static_cast<int>(seed % 100),
                      .names = 1 + static_cast<int>(seed % 3),
                      .lossy = seed % 4 != 0,
                      .renames = seed % 5 == 0,
                      .overlap_us = static_cast<int64_t>(seed % 7) * 60};
    const auto history = MakeHistory(seed, shape);
    const auto result = CheckRegionHistory(history);
    ASSERT_EQ(result.why, "") << "seed " << seed;
    gave_up += result.gave_up;
    names += result.names;
    states += result.states;
  }
  std::printf("%lu names, %lu given up, %.1f states a name\n", names, gave_up,
              static_cast<double>(states) / static_cast<double>(names));
  EXPECT_LT(gave_up, names / 100);
}

TEST(RegionHistoryRandomTest, AChangedAnswerMostlyDoesNotFit) {
  // What was spoiled, and of that what was caught: answers, refusals. A refusal tells little; where
  // calls overlap, another one is often as good.
  uint64_t spoiled[2] = {}, caught[2] = {};
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    auto history = MakeHistory(seed, {.lossy = seed % 2 == 0, .renames = seed % 5 == 0});
    Random random(seed);
    bool refusal = false;
    if (!Spoil(random, history, refusal)) continue;
    ++spoiled[refusal];
    caught[refusal] += !CheckRegionHistory(history).ok();
  }
  std::printf("caught: %lu of %lu answers, %lu of %lu refusals\n", caught[0], spoiled[0], caught[1],
              spoiled[1]);
  EXPECT_GT(spoiled[0], 1000u);
  EXPECT_GT(spoiled[1], 1000u);
  EXPECT_GT(caught[0], spoiled[0] * 90 / 100);
  EXPECT_GT(caught[1], spoiled[1] * 60 / 100);
}

TEST(RegionHistoryRandomTest, IsQuick) {
  std::vector<std::vector<ClientOp>> histories;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    histories.push_back(MakeHistory(seed, {.operations = 200, .names = 12, .renames = true}));
  }
  constexpr int kRounds = 10;
  uint64_t names = 0, states = 0;
  const std::clock_t begin = std::clock();
  for (int round = 0; round < kRounds; ++round) {
    for (const auto& history : histories) {
      const auto result = CheckRegionHistory(history);
      EXPECT_EQ(result.why, "");
      names += result.names;
      states += result.states;
    }
  }
  const double took_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  const double count = static_cast<double>(kRounds * histories.size());
  std::printf(
      "histories of 200 calls on 12 names: %.0f a second of CPU, %.1f us and %.1f states "
      "a name\n",
      count / took_s, 1e6 * took_s / static_cast<double>(names),
      static_cast<double>(states) / static_cast<double>(names));
}

}  // namespace
}  // namespace cxlpool::sim
