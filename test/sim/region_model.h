// One name of a Region as its clients may see it: what each call may find, do and answer.
//
// The steps that no client asks for (a Region that goes down comes to its end, a host lets go, a
// growth joins or is undone, a first Attachment cannot come up, a lease runs out) are not
// operations of their own. A state says what was seen last, and what may have become of it since:
// an answer fits if hidden steps lead from there to what it shows. Every step, hidden or not, gives
// the Region a new revision, and a call that finds nothing to do gives it none; so two answers of
// one revision show the same.
//
// The rules are those of fabric-manager/model/plans/planner.h and ladder.h, written down once more
// and from outside: nothing of the manager is included here.
#ifndef CXLPOOL_TEST_SIM_REGION_MODEL_H_
#define CXLPOOL_TEST_SIM_REGION_MODEL_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "test/sim/linearize.h"

namespace cxlpool::sim {

// What is not to be thought possible makes the check sharper. Attachments that are lost, expire or
// are fenced, and devices that fail, leave traces that look like lost updates.
struct RegionModelOptions {
  bool attachments_fail = true;  // They turn down by themselves; a first one fails its Region.
  bool devices_fail = true;      // Regions end in quarantine.
};

enum class Phase : uint8_t {
  kAbsent,
  kReserved,
  kAllocated,
  kReleasing,
  kScrubbing,
  kFailed,
  kQuarantined,
};
inline bool IsLive(Phase phase) { return phase == Phase::kReserved || phase == Phase::kAllocated; }
inline bool IsOnItsWayDown(Phase phase) {
  return phase == Phase::kReleasing || phase == Phase::kScrubbing || phase == Phase::kFailed;
}

// A Region as an answer shows it, with names made numbers.
struct RegionSeen {
  uint64_t revision = 0;    // Of its last change.
  uint64_t generation = 0;  // 0: not known.
  uint64_t size = 0;        // Granules.
  uint32_t up = 0;          // Hosts, a bit each: attached,
  uint32_t down = 0;        // and being detached.
  uint16_t tag = 0;         // From 1; 0: not known.
  Phase phase = Phase::kAbsent;
  bool resizing = false;
  friend bool operator==(const RegionSeen&, const RegionSeen&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const RegionSeen& s) {
    const uint64_t hosts = uint64_t{s.up} << 32 | s.down;
    const uint64_t rest = uint64_t{s.tag} << 16 | static_cast<uint64_t>(s.phase) << 8 | s.resizing;
    return H::combine(std::move(h), s.revision, s.generation, s.size, hosts, rest);
  }
};

struct RegionState {
  RegionSeen seen = {};   // If not `exact`: what it was at most, after a revision before.
  uint64_t gone = 0;      // Tags, a bit each, that have left for good.
  uint64_t target = 0;    // It grows to this or more; 0: it does not.
  bool exact = false;     // It is as `seen` at seen.revision.
  bool going = false;     // Being released for certain, whatever the phase says.
  bool lease = false;     // May go down by itself.
  bool at_least = false;  // Its size is seen.size or more.
  bool any = false;       // There is one, of which nothing is known.

  bool live() const { return IsLive(seen.phase) && !going; }
  bool goes_down() const { return IsOnItsWayDown(seen.phase) || going; }
  bool is_gone(uint16_t tag) const { return (gone & BitOf(tag)) != 0; }
  static uint64_t BitOf(uint16_t tag) {
    return tag == 0 || tag > 64 ? 0 : uint64_t{1} << (tag - 1);
  }
  friend bool operator==(const RegionState&, const RegionState&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const RegionState& s) {
    const int flags = s.exact | s.going << 1 | s.lease << 2 | s.at_least << 3 | s.any << 4;
    return H::combine(std::move(h), s.seen, s.gone, s.target, flags);
  }
};

// What a refusal says of the Region. kUnknown: it says nothing, and the call may have been done.
enum class RefusalNeeds : uint8_t {
  kNothing,
  kAbsent,
  kPresent,
  kGoing,
  kQuarantined,
  kReserved,
  kResizing,
  kAttached,
  kDetaching,  // On the call's host.
  kUnknown,
};

// An operation of the history of one name.
struct RegionEvent {
  enum class Kind : uint8_t {
    kAllocate,
    kGet,
    kAttach,
    kDetach,
    kResize,
    kRelease,
    kRenew,
    kRenameAway,
    kRenameHere,
  };
  enum class Part : uint8_t {
    kWhole,   // Effect and answer are one: the call was sent once.
    kEffect,  // Of a call without an answer, or that was sent more than once.
    kAnswer,  // What a later copy of the call got: the Region as it was then.
    kRefusal,
  };
  Kind kind = Kind::kGet;
  Part part = Part::kWhole;
  RefusalNeeds needs = RefusalNeeds::kNothing;  // Of a refusal.
  bool detach_all = false;                      // Of a release, also a forced one.
  bool force = false;
  bool lease = false;      // Of an allocation or renewal: with a term.
  uint32_t host = 0;       // One bit, or none.
  uint64_t size = 0;       // That was asked for.
  RegionSeen answer = {};  // kWhole, kAnswer. Of an effect the tag alone, if it is known.
};

class RegionModel {
 public:
  using State = RegionState;
  using Next = NextStates<RegionState>;

  // What is known of the whole history.
  struct Facts {
    bool renamed = false;  // Calls give Regions other names, and may take them to this one.
    bool leases = false;   // Some Region has one.
  };
  RegionModel(const RegionModelOptions& options, const std::vector<RegionEvent>& events,
              const Facts& facts)
      : options_(options), events_(events), facts_(facts) {}

  void Step(const State& state, size_t op, Next& next) const;

  // Why the last Step that led nowhere did: a clause of a sentence.
  const char* why() const { return why_; }

 private:
  void StepWhole(const State& state, const RegionEvent& event, Next& next) const;
  void StepEffect(const State& state, const RegionEvent& event, Next& next) const;
  void StepAnswer(const State& state, const RegionEvent& event, Next& next) const;
  void StepRefusal(const State& state, const RegionEvent& event, Next& next) const;

  // Hidden steps alone, after which it is as `seen`. False: there are none such.
  bool Settle(const State& state, const RegionSeen& seen, State& after) const;
  bool SettlePhase(const State& state, const RegionSeen& seen) const;
  bool SettleSize(const State& state, const RegionSeen& seen) const;
  bool SettleHosts(const State& state, const RegionSeen& seen) const;
  // Hidden steps alone, after which the name is free.
  bool Vanish(const State& state, State& after) const;

  bool Allocated(const State& state, const RegionEvent& event, State& after) const;
  bool Attached(const State& state, const RegionEvent& event, State& after) const;
  bool Detached(const State& state, const RegionEvent& event, State& after) const;
  bool Released(const State& state, const RegionEvent& event, State& after) const;
  bool Resized(const State& state, const RegionEvent& event, State& after) const;

  void EffectOfAllocate(const State& state, const RegionEvent& event, Next& next) const;
  void EffectOfAttach(const State& state, const RegionEvent& event, Next& next) const;
  void EffectOfRelease(const State& state, const RegionEvent& event, Next& next) const;
  void EffectOfResize(const State& state, const RegionEvent& event, Next& next) const;

  bool No(const char* why) const {
    why_ = why;
    return false;
  }

  const RegionModelOptions options_;
  const std::vector<RegionEvent>& events_;
  const Facts facts_;
  mutable const char* why_ = "";
};

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_REGION_MODEL_H_
