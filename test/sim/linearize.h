// Linearizability: whether the answers that clients of a concurrent thing got could have come from
// one that does one operation at a time, each at some moment between its call and its answer
// (Herlihy and Wing, TOPLAS 1990).
//
// The search is Wing and Gong's (JPDC 1993): take any operation that no other has to precede, see
// whether the model can do it, go on from there, else go back. Places that were searched before are
// not searched again (Lowe, CCPE 2017). The model may be nondeterministic: a step has any number of
// outcomes, none where the answer does not fit.
//
//   struct Model {
//     using State = ...;  // Copied, compared and hashed: small.
//     // Puts what `state` may be after operation `op` (an index into the history) into `next`.
//     void Step(const State& state, size_t op, NextStates<State>& next) const;
//   };
//
// Pure; the same history gives the same result.
#ifndef CXLPOOL_TEST_SIM_LINEARIZE_H_
#define CXLPOOL_TEST_SIM_LINEARIZE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"

namespace cxlpool::sim {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
inline constexpr size_t kNoOperation = std::numeric_limits<size_t>::max();
inline constexpr size_t kMaxOperations = 1024;  // Of one history; longer ones are given up.

// When an operation may take effect: from its call to its answer, both included.
struct Interval {
  int64_t invoke_us = 0;
  int64_t return_us = kNever;   // kNever: it may take effect at any time after the call, or never.
  size_t after = kNoOperation;  // Not before this one has taken effect.
};

template <typename State>
using NextStates = absl::InlinedVector<State, 2>;

enum class Linearizable : uint8_t { kYes, kNo, kGaveUp };

template <typename State>
struct Linearization {
  Linearizable answer = Linearizable::kYes;
  std::vector<size_t> order;  // An order that fits; if there is none, the longest that begins well,
  State state = {};           // where it ends,
  std::vector<size_t> stuck;  // and what would have to come next: none of these fits.
  uint64_t states = 0;        // Looked at.
};

template <typename Model>
class Linearizer {
 public:
  using State = typename Model::State;

  // `history` in any order; what it refers to must outlive this.
  Linearizer(const std::vector<Interval>& history, const Model& model, uint64_t max_states)
      : history_(history), model_(model), max_states_(max_states) {}

  Linearization<State> Run(const State& initial) {
    found_.state = initial;
    found_.answer = Linearizable::kGaveUp;
    if (history_.size() > kMaxOperations) return std::move(found_);
    Prepare();
    // What has no answer has mostly done little, and any number of sets can be made of it: first
    // with few of them, then with more.
    for (const size_t unanswered : {size_t{0}, size_t{2}, size_t{6}, kMaxOperations}) {
      unanswered_left_ = unanswered;
      wanted_more_ = false;
      ++fewest_left_;  // As far with more of them says more.
      hopeless_.clear();
      if (Search(initial)) {
        found_.answer = Linearizable::kYes;
        found_.order = Named(order_);
        found_.stuck.clear();
      } else if (found_.states <= max_states_ && !wanted_more_) {
        found_.answer = Linearizable::kNo;
      } else if (found_.states <= max_states_) {
        continue;
      }
      break;
    }
    return std::move(found_);
  }

 private:
  using Bits = absl::InlinedVector<uint64_t, 2>;
  struct Place {
    Bits done;  // Without the loose ones.
    State state;
    friend bool operator==(const Place&, const Place&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Place& p) {
      for (const uint64_t word : p.done) h = H::combine(std::move(h), word);
      return H::combine(std::move(h), p.state);
    }
  };
  // The sets of loose operations that were done when the search left a place.
  using LooseSets = absl::InlinedVector<Bits, 1>;
  // An operation, by its place in order of call.
  struct Op {
    int64_t invoke_us, return_us;
    size_t name;   // In the history.
    size_t after;  // By its place.
  };

  void Prepare() {
    ops_.reserve(history_.size());
    for (size_t i = 0; i < history_.size(); ++i) {
      ops_.push_back({history_[i].invoke_us, history_[i].return_us, i, history_[i].after});
      if (history_[i].return_us != kNever) ++left_;
    }
    std::stable_sort(ops_.begin(), ops_.end(),
                     [](const Op& a, const Op& b) { return a.invoke_us < b.invoke_us; });
    std::vector<size_t> place(ops_.size());
    for (size_t i = 0; i < ops_.size(); ++i) place[ops_[i].name] = i;
    for (Op& op : ops_) {
      if (op.after != kNoOperation) op.after = place[op.after];
    }
    done_.assign((ops_.size() + 63) / 64, 0);
    loose_ = done_;
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (ops_[i].return_us == kNever) loose_[i / 64] |= uint64_t{1} << (i % 64);
    }
    for (const Op& op : ops_) {
      if (op.after != kNoOperation) loose_[op.after / 64] &= ~(uint64_t{1} << (op.after % 64));
    }
    fewest_left_ = left_ + 1;
  }

  bool IsLoose(size_t op) const { return (loose_[op / 64] >> (op % 64) & 1) != 0; }
  bool IsDone(size_t op) const { return (done_[op / 64] >> (op % 64) & 1) != 0; }
  void Flip(size_t op) { done_[op / 64] ^= uint64_t{1} << (op % 64); }

  using Candidates = absl::InlinedVector<size_t, 8>;

  // Those that may come next: no other that is left had returned before they were called.
  Candidates MayComeNext() const {
    Candidates found;
    int64_t first_return_us = kNever;
    for (size_t word = 0; word < done_.size(); ++word) {
      for (uint64_t left = ~done_[word]; left != 0; left &= left - 1) {
        const size_t op = word * 64 + static_cast<size_t>(__builtin_ctzll(left));
        if (op >= ops_.size() || ops_[op].invoke_us > first_return_us) return found;
        first_return_us = std::min(first_return_us, ops_[op].return_us);
        if (ops_[op].after == kNoOperation || IsDone(ops_[op].after)) found.push_back(op);
      }
    }
    return found;
  }

  // Where the search is: what is done, apart from the loose operations, and those.
  std::pair<Place, Bits> Here(const State& state) const {
    std::pair<Place, Bits> here{{done_, state}, done_};
    for (size_t i = 0; i < done_.size(); ++i) {
      here.first.done[i] &= ~loose_[i];
      here.second[i] &= loose_[i];
    }
    return here;
  }

  // Whether the search has failed from where `done_` and `state` are. Or from where fewer loose
  // operations were done, all else equal: from there everything can follow that can follow from
  // here.
  bool IsHopeless(const State& state) const {
    if (hopeless_.empty()) return false;
    const auto [place, loose] = Here(state);
    const auto sets = hopeless_.find(place);
    if (sets == hopeless_.end()) return false;
    for (const Bits& other : sets->second) {
      bool fewer = true;
      for (size_t i = 0; i < loose.size(); ++i) fewer &= (other[i] & ~loose[i]) == 0;
      if (fewer) return true;
    }
    return false;
  }

  void NoteHopeless(const State& state) {
    auto [place, loose] = Here(state);
    hopeless_[std::move(place)].push_back(std::move(loose));
  }

  bool Search(const State& state) {
    if (++found_.states > max_states_) return false;
    if (left_ == 0) {
      found_.state = state;
      return true;
    }
    Candidates candidates = MayComeNext();
    // The soonest to return first; those without an answer only where nothing else goes on.
    std::sort(candidates.begin(), candidates.end(), [this](size_t a, size_t b) {
      return std::pair(ops_[a].return_us, a) < std::pair(ops_[b].return_us, b);
    });
    NextStates<State> next;
    for (const size_t op : candidates) {
      const bool has_answer = ops_[op].return_us != kNever;
      if (!has_answer && unanswered_left_ == 0) {
        wanted_more_ = true;
        break;  // So have those after it.
      }
      next.clear();
      model_.Step(state, ops_[op].name, next);
      if (next.empty()) continue;
      Flip(op);
      (has_answer ? left_ : unanswered_left_) -= 1;
      order_.push_back(op);
      for (const State& then : next) {
        // What changes nothing, and need not be done, only makes more sets of the same place.
        if (!has_answer && IsLoose(op) && then == state) continue;
        // Where there is one way on alone, the place it leads to needs no note.
        const bool one_way = candidates.size() == 1 && next.size() == 1;
        if (!one_way && IsHopeless(then)) continue;
        if (Search(then)) return true;
        if (found_.states > max_states_) return false;
        if (!one_way) NoteHopeless(then);
      }
      order_.pop_back();
      (has_answer ? left_ : unanswered_left_) += 1;
      Flip(op);
    }
    if (left_ < fewest_left_) {
      fewest_left_ = left_;
      found_.order = Named(order_);
      found_.state = state;
      found_.stuck = Named(candidates);
    }
    return false;
  }

  template <typename Places>
  std::vector<size_t> Named(const Places& places) const {
    std::vector<size_t> names;
    names.reserve(places.size());
    for (const size_t op : places) names.push_back(ops_[op].name);
    return names;
  }

  const std::vector<Interval>& history_;
  const Model& model_;
  const uint64_t max_states_;
  std::vector<Op> ops_;
  Bits done_;                   // By place.
  Bits loose_;                  // Without an answer, and nothing has to come after them.
  size_t left_ = 0;             // With an answer, and not done.
  size_t unanswered_left_ = 0;  // So many more may be done,
  bool wanted_more_ = false;    // which was not enough somewhere.
  std::vector<size_t> order_;
  absl::flat_hash_map<Place, LooseSets> hopeless_;  // From there nothing that fits follows.
  size_t fewest_left_ = 0;
  Linearization<State> found_;
};

template <typename Model>
Linearization<typename Model::State> Linearize(const std::vector<Interval>& history,
                                               const Model& model,
                                               const typename Model::State& initial,
                                               uint64_t max_states) {
  return Linearizer<Model>(history, model, max_states).Run(initial);
}

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_LINEARIZE_H_
