#include <algorithm>

#include "test/sim/scheduler.h"
#include "test/sim/script.h"

namespace cxlpool::sim {
namespace {

// How often each operation comes, in parts.
struct Weight {
  Verb verb;
  int parts;
};
constexpr Weight kOperations[] = {
    {Verb::kAllocate, 26}, {Verb::kAllocateBatch, 2}, {Verb::kAttach, 9},
    {Verb::kDetach, 8},    {Verb::kResize, 7},        {Verb::kRename, 2},
    {Verb::kRenew, 2},     {Verb::kRelease, 19},      {Verb::kReleaseBatch, 1},
    {Verb::kGet, 10},      {Verb::kSetTenant, 2},     {Verb::kDrainDevice, 1},
    {Verb::kAddDevice, 2}, {Verb::kOpen, 5},          {Verb::kClose, 4},
};
// Of those that take part of the pool out of use, at most a few a seed.
constexpr Weight kDrastic[] = {
    {Verb::kForceRelease, 3}, {Verb::kFailDevice, 1}, {Verb::kFenceHost, 4},
    {Verb::kRetireHost, 1},   {Verb::kEnrolHost, 2},
};
constexpr Verb kFaults[] = {
    Verb::kPartitionHost, Verb::kCutSession,      Verb::kPartitionClient, Verb::kSlowStore,
    Verb::kFullStore,     Verb::kFailStore,       Verb::kLoseCommit,      Verb::kKillManager,
    Verb::kKillManagerAt, Verb::kFabricFails,     Verb::kFabricUnknown,   Verb::kFabricSlow,
    Verb::kFabricLies,    Verb::kSurpriseRemoval, Verb::kUnreachableHost, Verb::kFalseEvent,
    Verb::kNoFence,       Verb::kKillAgent,       Verb::kKillAgentAt,     Verb::kPauseHost,
    Verb::kResetHost,     Verb::kPowerLoss,       Verb::kRefuseOffline,   Verb::kHoldMemory,
    Verb::kRungFails,     Verb::kAgentLies,       Verb::kOldState,        Verb::kWallJumps,
};

constexpr int64_t kStandby_us = 3'000'000;  // The least that a script with a standby takes.
constexpr int64_t kLull_us = 5'000'000;

class Maker {
 public:
  Maker(uint64_t seed, int operations, bool standby)
      : random_(seed), operations_(operations), standby_(standby) {
    script_.seed = seed;
  }

  Script Make() {
    // Dense scripts meet more of each other, sparse ones see whole lifecycles.
    const int64_t spacing_us = random_.Between(2, 30) * 1000;
    const int64_t end_us = spacing_us * operations_;
    for (int i = 0; i < operations_; ++i) {
      const bool drastic = drastic_left_ > 0 && random_.OneIn(60);
      if (drastic) --drastic_left_;
      Add(drastic ? Pick(kDrastic) : Pick(kOperations), random_.Between(0, end_us));
    }
    AddFaults(end_us);
    AddCallers(end_us);
    AddStandby(end_us);
    std::stable_sort(script_.steps.begin(), script_.steps.end(),
                     [](const Step& a, const Step& b) { return a.at_us < b.at_us; });
    return std::move(script_);
  }

 private:
  template <size_t N>
  Verb Pick(const Weight (&weights)[N]) {
    int sum = 0;
    for (const Weight& w : weights) sum += w.parts;
    int at = static_cast<int>(random_.Below(static_cast<uint64_t>(sum)));
    for (const Weight& w : weights) {
      if ((at -= w.parts) < 0) return w.verb;
    }
    return weights[0].verb;
  }

  void AddFaults(int64_t end_us) {
    if (random_.Percent(60)) {
      Step weather{0, Verb::kWeather, {}};
      weather.Set("drop", random_.Between(0, 5)).Set("duplicate", random_.Between(0, 5));
      weather.Set("late", random_.Between(0, 10));
      script_.steps.push_back(weather);
    }
    if (random_.Percent(8)) return;
    // Kinds that this seed has: a few, so that they meet more often than by chance.
    std::vector<Verb> kinds;
    const int64_t kind_count = random_.Percent(25) ? 1 : random_.Between(2, 8);
    for (int64_t i = 0; i < kind_count; ++i)
      kinds.push_back(kFaults[random_.Below(std::size(kFaults))]);
    const int64_t count = random_.Between(1, std::max(2, operations_ / 8));
    for (int64_t i = 0; i < count; ++i) {
      Add(kinds[random_.Below(kinds.size())], random_.Between(0, end_us));
    }
    AddPoison(end_us);
  }

  // On top of what the others do, which it leaves as it is.
  void AddPoison(int64_t end_us) {
    Random own(script_.seed ^ 0x706f69736f6e);
    if (!own.Percent(30)) return;
    for (int64_t left = own.Between(1, 3); left > 0; --left) {
      Step step{own.Between(end_us / 8, end_us), Verb::kPoison, {}};
      step.Set("host", own.Between(0, kHosts - 1)).Set("slot", own.Between(0, kSlotsPerHost - 1));
      script_.steps.push_back(step);
    }
  }

  // Another manager, and what makes it take over, in one seed of four: on top of the rest. A
  // takeover takes its time, so there must be some.
  void AddStandby(int64_t end_us) {
    Random own(script_.seed ^ 0x7374616e646279);
    if (!own.OneIn(4) && !standby_) return;
    script_.standby = true;
    const int64_t stretch = 1 + kStandby_us / end_us;
    for (Step& step : script_.steps) step.at_us *= stretch;
    end_us *= stretch;
    if (own.Percent(30)) end_us = AddLull(own, end_us);
    for (int64_t left = own.Between(1, 3); left > 0; --left) {
      Step pause{own.Between(0, end_us), Verb::kPauseManager, {}};
      const bool at_a_call = own.Percent(60);
      pause.Set("standby", !at_a_call && own.OneIn(4))
          .Set("call", at_a_call ? own.Between(1, 5) : 0);
      pause.Set("for", own.Between(1, own.OneIn(3) ? 500 : 3'000) * 1000);
      script_.steps.push_back(pause);
    }
    if (own.Percent(50)) {
      Step kill{own.Between(0, end_us), Verb::kKillManager, {}};
      script_.steps.push_back(kill.Set("for", own.Between(1, 3'000) * 1000));
    }
    if (own.Percent(30)) {
      Step cut_off{own.Between(0, end_us), Verb::kFailStore, {}};
      script_.steps.push_back(cut_off.Set("done", own.Between(0, 1)));
    }
  }

  // Nobody asks for anything for a while, and the standby sleeps through it: when it wakes up, it
  // has seen nothing of the leader for long, though that one has always been there.
  int64_t AddLull(Random& own, int64_t end_us) {
    const int64_t begins_us = own.Between(0, end_us);
    for (Step& step : script_.steps) {
      if (step.at_us > begins_us) step.at_us += kLull_us;
    }
    Step pause{begins_us + own.Between(kLull_us / 2, kLull_us * 3 / 4), Verb::kPauseManager, {}};
    pause.Set("standby", 1).Set("for", own.Between(kLull_us / 8, kLull_us / 2));
    script_.steps.push_back(pause);
    return end_us + kLull_us;
  }

  // Who calls, on what condition, and who watches: on top of the rest, as AddPoison.
  void AddCallers(int64_t end_us) {
    Random own(script_.seed ^ 0x63616c6c657273);
    for (int64_t left = own.Between(0, 2); left > 0; --left) {
      Step watch{own.Between(0, end_us / 2), Verb::kWatch, {}};
      watch.Set("every", own.Between(5, own.OneIn(3) ? 1'500 : 200) * 1000);
      script_.steps.push_back(watch.Set("limit", own.Between(1, 12)));
    }
    if (own.Percent(20)) return;  // An operator alone, who asks for what he wants.
    std::vector<Step> more;
    for (Step& step : script_.steps) {
      const bool of_hosts =
          step.verb == Verb::kAllocate || step.verb == Verb::kRenew || step.verb == Verb::kRelease;
      if (of_hosts && own.Percent(35)) {
        step.Set("by", own.OneIn(30) ? kStranger : own.Between(1, kHosts));
        // For itself, and not always.
        if (own.Percent(85)) step.Set("host", step.Get("by") - 1);
        if (step.verb == Verb::kAllocate && own.OneIn(5)) AddSharing(step, own, more);
      }
      if (own.Percent(25)) step.Set("etag", own.Between(1, 2));
      if (own.Percent(15)) step.Set("dry", own.OneIn(4) ? 2 : 1);
    }
    script_.steps.insert(script_.steps.end(), more.begin(), more.end());
    for (int tenant = 1; tenant < kTenants; ++tenant) {
      if (own.OneIn(8)) continue;
      Step step{own.Between(0, 4'000), Verb::kSetTenant, {}};
      step.Set("tenant", tenant);
      script_.steps.push_back(step.Set("quota", own.OneIn(3) ? 0 : own.Between(4, 40)));
    }
    for (int64_t left = own.Between(kHosts, kHosts + 3); left > 0; --left) {
      Step step{left > 3 ? own.Between(0, end_us) : 6'000, Verb::kEnrolHost, {}};
      step.Set("host", left % kHosts);
      script_.steps.push_back(step.Set("serves", own.Between(1, (1 << kTenants) - 1)));
    }
  }

  // Another host has it as well when the one that made it lets go of it.
  static void AddSharing(Step& allocate, Random& own, std::vector<Step>& more) {
    allocate.Set("shape", 6).Set("mode", 0);
    Step attach{allocate.at_us + own.Between(20, 300) * 1000, Verb::kAttach, {}};
    attach.Set("region", allocate.Get("region")).Set("host", allocate.Get("by") % kHosts);
    more.push_back(attach);
    Step release{attach.at_us + own.Between(5, 300) * 1000, Verb::kRelease, {}};
    release.Set("region", allocate.Get("region")).Set("by", allocate.Get("by")).Set("all", 1);
    more.push_back(release);
  }

  void Add(Verb verb, int64_t at_us) {
    Step step{at_us, verb, {}};
    const VerbInfo& info = InfoOf(verb);
    for (size_t i = 0; i < info.arguments.size() && !info.arguments[i].empty(); ++i) {
      step.arguments[i] = Value(verb, info.arguments[i]);
    }
    script_.steps.push_back(step);
  }

  int64_t Value(Verb verb, Argument name) {
    if (name == "client") return random_.Between(0, kClients - 1);
    // One more than there are: the manager is to choose a name.
    if (name == "region" && verb == Verb::kAllocate && random_.OneIn(12)) return kRegionNames;
    if (name == "region" || name == "to") return random_.Between(0, kRegionNames - 1);
    if (name == "granules")
      return random_.Percent(85) ? random_.Between(1, 4) : random_.Between(5, 24);
    if (name == "host") return Host(verb);
    if (name == "mode") return random_.Between(0, 2);  // devdax, system-ram, read-only devdax.
    if (name == "shape") return random_.Percent(50) ? 0 : random_.Between(1, 8);
    if (name == "tenant") return random_.Between(0, kTenants - 1);
    if (name == "count") return random_.Between(2, 5);
    if (name == "extents") return random_.Between(1, 3);
    if (name == "fence") return random_.Percent(30);
    if (name == "all") return random_.Percent(80);
    if (name == "quota") return random_.Percent(50) ? 0 : random_.Between(4, 48);
    if (name == "reserved") return random_.Percent(70) ? 0 : random_.Between(1, 8);
    if (name == "device") return random_.Between(0, kDevices - 1);
    if (name == "connection") return random_.Between(1, 3);
    if (name == "for") return Duration(verb);
    if (name == "cut") return random_.Between(0, 2);
    if (name == "done") return random_.Between(0, 1);
    if (name == "probe") return random_.Between(0, 60);
    if (name == "call") return random_.Between(0, 5);
    if (name == "slot") return random_.Between(0, kSlotsPerHost - 1);
    if (name == "kind") return random_.Between(0, 2);
    if (name == "how") return random_.Percent(95) ? random_.Between(0, 3) : 4;
    if (name == "ahead") return random_.Between(-1'500, 1'500) * 1'000'000;
    return 0;
  }

  int64_t Host(Verb verb) {
    if (verb == Verb::kAllocate && random_.Percent(35)) return kNoHost;
    return random_.Between(0, kHosts - 1);
  }

  // Short ones mostly, and some that outlast every lease and deadline.
  int64_t Duration(Verb verb) {
    const bool long_one = random_.Percent(15);
    if (verb == Verb::kKillManager || verb == Verb::kKillManagerAt) {
      return random_.Between(1, long_one ? 5'000 : 100) * 1000;
    }
    return random_.Between(1, long_one ? 12'000 : 600) * 1000;
  }

  Script script_;
  Random random_;
  const int operations_;
  const bool standby_;
  int drastic_left_ = 3;
};

}  // namespace

Script MakeScript(uint64_t seed, int operations, bool standby) {
  return Maker(seed, operations, standby).Make();
}

}  // namespace cxlpool::sim
