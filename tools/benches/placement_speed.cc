#include "tools/benches/placement_speed.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <random>
#include <utility>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "absl/strings/str_format.h"
#include "fabric-manager/model/space/bytes.h"
#include "fabric-manager/model/space/free_space.h"
#include "tools/benches/placement_peers.h"
#include "tools/benches/stats.h"

namespace cxlpool::bench {
namespace {

constexpr uint64_t kGranule = 256 * fm::kMiB;
constexpr uint32_t kMaxLength = 64;
constexpr uint32_t kSwitches = 8;
constexpr size_t kHosts = 256;
constexpr size_t kDevicesOfEach = 8;
constexpr size_t kRequests = 1 << 16;
constexpr size_t kMaxWays = 4;

// Ticks of the processor's clock, with nothing under way before or after.
uint64_t Ticks() {
#if defined(__x86_64__)
  _mm_lfence();
  const uint64_t ticks = __rdtsc();
  _mm_lfence();
  return ticks;
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// What a tick is worth, by the system's clock over 50 ms: the processor does not say.
double NanosecondsATick() {
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t first = Ticks();
  auto end = begin;
  while (end - begin < std::chrono::milliseconds(50)) end = std::chrono::steady_clock::now();
  const uint64_t last = Ticks();
  return std::chrono::duration<double, std::nano>(end - begin).count() /
         static_cast<double>(last - first);
}

// What it costs to measure nothing.
uint64_t EmptyTicks() {
  std::vector<uint64_t> ticks(10'001);
  for (uint64_t& value : ticks) {
    const uint64_t begin = Ticks();
    value = Ticks() - begin;
  }
  std::nth_element(ticks.begin(), ticks.begin() + 5'000, ticks.end());
  return ticks[5'000];
}

struct Request {
  const fm::DeviceSet* among;
  uint32_t length;  // Of each piece.
  uint32_t ways;
};

struct Decision {
  std::array<Piece, kMaxWays> pieces;
  uint32_t count = 0;  // 0: refused.
};

// Of a decision for which there was not room for all pieces: it is refused.
template <typename System>
void Undo(System& system, Decision& decision) {
  while (decision.count > 0) system.Give(decision.pieces[--decision.count]);
}

// What is asked for, in a loop, the same of everybody.
class Requests {
 public:
  // Sets in this order: all devices, those of each switch, those of each host. With fewer devices
  // than switches each switch has all.
  Requests(uint32_t devices, uint64_t seed) {
    std::mt19937_64 random(seed);
    sets_.reserve(1 + kSwitches + kHosts);  // Requests point into it.
    sets_.push_back(fm::DeviceSet::All());
    for (uint32_t i = 0; i < kSwitches; ++i) {
      fm::DeviceSet& set = sets_.emplace_back();
      for (uint32_t device = 0; device < devices; ++device) {
        if (devices < kSwitches || device * kSwitches / devices == i) {
          set.Add(static_cast<fm::DeviceIndex>(device));
        }
      }
    }
    for (size_t i = 0; i < kHosts; ++i) {
      fm::DeviceSet& set = sets_.emplace_back();
      for (size_t k = 0; k < kDevicesOfEach; ++k)
        set.Add(static_cast<fm::DeviceIndex>(random() % devices));
    }
    for (size_t i = 0; i < kRequests; ++i) requests_.push_back(Make(random));
  }

  const Request& operator[](size_t i) const { return requests_[i % kRequests]; }

 private:
  // The smaller a request, the more there are of it: sizes are even in their logarithm.
  // docs/performance.md has the shares of ways and sets.
  Request Make(std::mt19937_64& random) const {
    std::uniform_real_distribution<double> logarithm(0, std::log(kMaxLength + 1.0));
    const uint32_t size =
        std::clamp(static_cast<uint32_t>(std::exp(logarithm(random))), 1u, kMaxLength);
    const uint32_t ways_dice = random() % 100;
    const uint32_t ways = ways_dice < 85 ? 1 : ways_dice < 95 ? 2 : 4;
    const uint32_t set_dice = random() % 4;
    const size_t set = set_dice < 2    ? 0
                       : set_dice == 2 ? 1 + random() % kSwitches
                                       : 1 + kSwitches + random() % kHosts;
    return {&sets_[set], (size + ways - 1) / ways, ways};
  }

  std::vector<fm::DeviceSet> sets_;
  std::vector<Request> requests_;
};

// Ours.
class Placed {
 public:
  Placed(uint32_t devices, uint32_t granules_each) {
    for (uint32_t i = 0; i < devices; ++i) {
      if (!space_.AddDevice(granules_each * kGranule, kGranule).ok()) std::abort();
    }
  }

  // All pieces, each on a device of its own, or none. One piece needs no copy of the set.
  void Decide(const Request& request, Decision& decision) {
    if (request.ways == 1) return TakeOne(*request.among, request.length, decision);
    fm::DeviceSet rest = *request.among;
    for (uint32_t i = 0; i < request.ways; ++i) {
      TakeOne(rest, request.length, decision);
      if (decision.count == i) return Undo(*this, decision);
      rest.Remove(decision.pieces[i].device);
    }
  }

  void Give(const Piece& piece) {
    if (!space_.Give(piece.device, piece.start * kGranule, piece.length * kGranule).ok())
      std::abort();
  }

 private:
  void TakeOne(const fm::DeviceSet& among, uint32_t length, Decision& decision) {
    const auto run = space_.BestFit(among, length * kGranule);
    if (!run.has_value()) return;
    if (!space_.Take(run->device, run->dpa_bytes, run->length_bytes).ok()) std::abort();
    decision.pieces[decision.count++] = {run->device,
                                         static_cast<uint32_t>(run->dpa_bytes / kGranule), length};
  }
  friend class Tree;

  fm::FreeSpace space_;
};

// The reference: as many pieces, wherever they are.
class Anywhere {
 public:
  Anywhere(uint32_t devices, uint32_t granules_each) : runs_(devices, granules_each) {}

  void Decide(const Request& request, Decision& decision) {
    for (uint32_t i = 0; i < request.ways; ++i) {
      const auto piece = runs_.Take(request.length);
      if (!piece.has_value()) return Undo(*this, decision);
      decision.pieces[decision.count++] = *piece;
    }
  }

  void Give(const Piece& piece) { runs_.Give(piece); }

 private:
  BitmapReference runs_;
};

// The peer that keeps to devices, too: a tree of runs.
class Tree {
 public:
  // Of the same pool: it would have chosen the same, only slower.
  explicit Tree(const Placed& placed) : runs_(placed.space_.devices().size()) {
    placed.space_.devices().ForEach([&](fm::DeviceIndex device) {
      for (const fm::FreeSpace::Run& run : placed.space_.RunsOf(device)) {
        runs_.Give({device, static_cast<uint32_t>(run.dpa_bytes / kGranule),
                    static_cast<uint32_t>(run.length_bytes / kGranule)});
      }
    });
  }

  void Decide(const Request& request, Decision& decision) {
    fm::DeviceSet rest = *request.among;
    for (uint32_t i = 0; i < request.ways; ++i) {
      const auto piece = runs_.Take(rest, request.length);
      if (!piece.has_value()) return Undo(*this, decision);
      decision.pieces[decision.count++] = *piece;
      rest.Remove(piece->device);
    }
  }

  void Give(const Piece& piece) { runs_.Give(piece); }

 private:
  TreeBestFit runs_;
};

struct Latency {
  double p50 = 0;
  double p99 = 0;
};

// A pool kept as full as it should be while decisions are made.
template <typename System>
class Pool {
 public:
  Pool(const SpeedOptions& options, const Requests& requests, uint32_t devices)
      : requests_(requests),
        random_(options.seed + 1),
        empty_ticks_(EmptyTicks()),
        nanoseconds_a_tick_(NanosecondsATick()),
        most_taken_(static_cast<uint64_t>(options.fill * devices * options.granules_each)),
        system_(devices, options.granules_each) {
    while (taken_ < most_taken_) {
      Decision decision;
      system_.Decide(requests_[next_++], decision);
      Keep(decision);
    }
    // As old as it is full: every extent has been replaced once.
    for (size_t i = live_.size(); i > 0; --i) Step(nullptr);
  }

  // A pool as full of the same extents.
  template <typename Other>
  explicit Pool(const Pool<Other>& other)
      : requests_(other.requests_),
        random_(other.random_),
        empty_ticks_(other.empty_ticks_),
        nanoseconds_a_tick_(other.nanoseconds_a_tick_),
        most_taken_(other.most_taken_),
        system_(other.system_),
        live_(other.live_),
        taken_(other.taken_),
        next_(other.next_),
        refused_(other.refused_) {}

  // A tenth more decisions come first, to warm up, and are not measured.
  Latency Slice(int decisions) {
    for (int i = decisions / 10; i > 0; --i) Step(nullptr);
    std::vector<uint64_t> ticks;
    ticks.reserve(static_cast<size_t>(decisions));
    for (int i = 0; i < decisions; ++i) Step(&ticks);
    return {At(ticks, 0.50), At(ticks, 0.99)};
  }

  size_t extents() const { return live_.size(); }
  double refused() const { return static_cast<double>(refused_) / static_cast<double>(next_); }

 private:
  template <typename Other>
  friend class Pool;

  // One decision, once there is room below the fill that is wanted. `ticks`: takes what it cost,
  // without what measuring costs; giving back is not in it. Null: nobody measures.
  void Step(std::vector<uint64_t>* ticks) {
    while (taken_ > most_taken_) Drop();
    const Request& request = requests_[next_++];
    Decision decision;
    if (ticks == nullptr) {
      system_.Decide(request, decision);
    } else {
      const uint64_t begin = Ticks();
      system_.Decide(request, decision);
      const uint64_t spent = Ticks() - begin;
      ticks->push_back(spent > empty_ticks_ ? spent - empty_ticks_ : 0);
    }
    Keep(decision);
  }

  // Notes what was taken.
  void Keep(const Decision& decision) {
    if (decision.count == 0) ++refused_;
    for (uint32_t i = 0; i < decision.count; ++i) {
      live_.push_back(decision.pieces[i]);
      taken_ += decision.pieces[i].length;
    }
    if (decision.count == 0 && !live_.empty()) Drop();  // Else it might be stuck.
  }

  // Gives any extent back: the last one takes its place, so that none is moved but that.
  void Drop() {
    std::swap(live_[random_() % live_.size()], live_.back());
    system_.Give(live_.back());
    taken_ -= live_.back().length;
    live_.pop_back();
  }

  // A quantile, in nanoseconds. Leaves `ticks` in another order.
  double At(std::vector<uint64_t>& ticks, double share) const {
    const auto at =
        ticks.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(ticks.size()));
    std::nth_element(ticks.begin(), at, ticks.end());
    return static_cast<double>(*at) * nanoseconds_a_tick_;
  }

  const Requests& requests_;
  std::mt19937_64 random_;
  const uint64_t empty_ticks_;
  const double nanoseconds_a_tick_;
  const uint64_t most_taken_;
  System system_;
  std::vector<Piece> live_;
  uint64_t taken_ = 0;
  size_t next_ = 0;
  size_t refused_ = 0;
};

// Rounds of two pools: the p50s, and the p99s.
struct Rounds {
  std::vector<Round> p50, p99;
};

// Ours, peer, peer, ours in each round, on pools that live on from one to the next.
template <typename Ours, typename Peer>
Rounds Interleave(Ours& ours, Peer& peer, const SpeedOptions& options) {
  Rounds rounds;
  for (int i = 0; i < options.rounds; ++i) {
    const Latency a = ours.Slice(options.decisions);
    const Latency b = peer.Slice(options.decisions);
    const Latency c = peer.Slice(options.decisions);
    const Latency d = ours.Slice(options.decisions);
    rounds.p50.push_back({a.p50, b.p50, c.p50, d.p50});
    rounds.p99.push_back({a.p99, b.p99, c.p99, d.p99});
  }
  return rounds;
}

// Nanoseconds a decision as decisions a second.
std::vector<Round> AsRates(const std::vector<Round>& costs) {
  std::vector<Round> rates;
  for (const Round& cost : costs) {
    rates.push_back(
        {1e9 / cost.ours_first, 1e9 / cost.peer_first, 1e9 / cost.peer_last, 1e9 / cost.ours_last});
  }
  return rates;
}

}  // namespace

// The three rows of placement's speed. Each peer has a pool of its own; ours goes on aging.
std::vector<Row> MeasureSpeed(const SpeedOptions& options) {
  const Requests requests(options.devices, options.seed);
  Pool<Placed> ours(options, requests, options.devices);
  std::vector<Row> rows;
  {
    Pool<Anywhere> reference(options, requests, options.devices);
    std::cout << absl::StreamFormat(
        "%d devices, %.0f %% full: %d extents, reference %d; refused %.2f %%, reference %.2f %%\n",
        options.devices, options.fill * 100, ours.extents(), reference.extents(),
        ours.refused() * 100, reference.refused() * 100);
    const Rounds rounds = Interleave(ours, reference, options);
    rows.push_back(MakeRow(6, "placement decision, p99, by an unconstrained bitmap reference", "ns",
                           1.6, Aim::kAtMost, rounds.p99));
  }
  {
    // As many extents a device, and one in 1500 of the devices.
    const uint32_t few = std::max(1u, options.devices / 1500 + 1);
    const Requests few_requests(few, options.seed);
    Pool<Placed> small(options, few_requests, few);
    std::cout << absl::StreamFormat("%d devices: %d extents; refused %.2f %%\n", few,
                                    small.extents(), small.refused() * 100);
    rows.push_back(MakeRow(6, "placement decision, p50, by one among a thousand extents", "ns", 2,
                           Aim::kAtMost, Interleave(ours, small, options).p50));
  }
  {
    Pool<Tree> tree(ours);
    rows.push_back(MakeRow(6, "placement decisions by a red-black best fit", "decisions/s", 2,
                           Aim::kAtLeast, AsRates(Interleave(ours, tree, options).p50)));
  }
  return rows;
}

}  // namespace cxlpool::bench
