#include "fabric-manager/model/space/free_runs.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/space/sixteen.h"

namespace cxlpool::fm {
namespace {

constexpr uint32_t kBeyond = std::numeric_limits<uint32_t>::max();

}  // namespace

FreeRuns::FreeRuns(uint32_t granules) : granules_(granules) {
  if (granules > 0) Insert({}, {0, granules});
  free_ = granules;
}

FreeRuns::FreeRuns(const FreeRuns& other)
    : granules_(other.granules_), free_(other.free_), size_(other.size_) {
  blocks_.reserve(other.blocks_.size());
  for (const Block& block : other.blocks_) blocks_.push_back(Resized(block, block.capacity));
}

FreeRuns& FreeRuns::operator=(const FreeRuns& other) {
  if (this != &other) *this = FreeRuns(other);
  return *this;
}

FreeRuns::Block FreeRuns::MakeBlock(uint32_t capacity) {
  Block block;
  block.capacity = capacity;
  block.numbers = std::make_unique<uint32_t[]>(2 * size_t{capacity});
  std::fill_n(block.starts(), capacity, kBeyond);
  return block;
}

FreeRuns::Block FreeRuns::Resized(const Block& block, uint32_t capacity) {
  Block made = MakeBlock(capacity);
  made.first = block.first;
  made.size = block.size;
  made.stale = block.stale;
  made.filter = block.filter;
  std::copy_n(block.starts(), block.size, made.starts());
  std::copy_n(block.lengths(), block.size, made.lengths());
  return made;
}

// Neighbouring lengths share a bit; all long ones have the last.
uint64_t FreeRuns::FilterBit(uint32_t length) {
  return uint64_t{1} << std::min<uint32_t>((length - 1) / 4, 63);
}

void FreeRuns::Refilter(Block& block) {
  block.stale = 0;
  block.filter = 0;
  for (uint32_t i = 0; i < block.size; ++i) block.filter |= FilterBit(block.lengths()[i]);
}

// The filter may hold too much for a while: making it anew each time would cost more.
void FreeRuns::Went(Block& block) {
  if (++block.stale > kBlock) Refilter(block);
}

uint32_t FreeRuns::IndexOf(const Block& block, uint32_t length) {
  for (uint32_t i = 0; i < block.size; i += kStride) {
    const uint32_t equal = EqualOfSixteen(block.lengths() + i, length);
    if (equal != 0) return i + static_cast<uint32_t>(std::countr_zero(equal));
  }
  return kBlock;
}

uint32_t FreeRuns::CountUpTo(const Block& block, uint32_t start) {
  for (uint32_t i = 0; i < block.size; i += kStride) {
    const uint32_t above = AboveOfSixteen(block.starts() + i, start);
    if (above != 0) return i + static_cast<uint32_t>(std::countr_zero(above));
  }
  return block.size;
}

bool FreeRuns::IsOnly(uint32_t length) const {
  bool seen = false;
  for (const Block& block : blocks_) {
    if ((block.filter & FilterBit(length)) == 0) continue;
    for (uint32_t i = 0; i < block.size; i += kStride) {
      const uint32_t equal = EqualOfSixteen(block.lengths() + i, length);
      if (equal == 0) continue;
      if (seen || (equal & (equal - 1)) != 0) return false;
      seen = true;
    }
  }
  return seen;
}

std::optional<FreeRuns::Place> FreeRuns::AtOrBelow(uint32_t start) const {
  if (size_ == 0 || blocks_[0].first > start) return std::nullopt;
  Place place;
  for (size_t count = blocks_.size(); count > 1;) {
    const size_t half = count / 2;
    if (blocks_[place.block + half].first <= start) place.block += half;
    count -= half;
  }
  place.index = CountUpTo(blocks_[place.block], start) - 1;
  return place;
}

FreeRuns::Place FreeRuns::Next(Place place) const {
  if (place.index + 1 < blocks_[place.block].size) return {place.block, place.index + 1};
  return {place.block + 1, 0};
}

void FreeRuns::Set(Place place, Run run) {
  Block& block = blocks_[place.block];
  block.starts()[place.index] = run.start;
  block.lengths()[place.index] = run.length;
  block.filter |= FilterBit(run.length);
  if (place.index == 0) block.first = run.start;
  Went(block);
}

void FreeRuns::Insert(Place place, Run run) {
  if (blocks_.empty()) {
    blocks_.push_back(MakeBlock(kStride));
    place = {};
  } else if (place.index == 0 && place.block > 0) {
    --place.block;  // Its end; keeps blocks full where addresses ascend.
    place.index = blocks_[place.block].size;
  }
  if (blocks_[place.block].size == kBlock) {
    Split(place.block);
    if (place.index > blocks_[place.block].size) {
      place.index -= blocks_[place.block].size;
      ++place.block;
    }
  }
  Block& block = blocks_[place.block];
  if (block.size == block.capacity) block = Resized(block, 2 * block.capacity);
  uint32_t* starts = block.starts();
  uint32_t* lengths = block.lengths();
  std::copy_backward(starts + place.index, starts + block.size, starts + block.size + 1);
  std::copy_backward(lengths + place.index, lengths + block.size, lengths + block.size + 1);
  ++block.size;
  ++size_;
  Set(place, run);
}

void FreeRuns::Erase(Place place) {
  Block& block = blocks_[place.block];
  uint32_t* starts = block.starts();
  uint32_t* lengths = block.lengths();
  std::copy(starts + place.index + 1, starts + block.size, starts + place.index);
  std::copy(lengths + place.index + 1, lengths + block.size, lengths + place.index);
  --block.size;
  --size_;
  starts[block.size] = kBeyond;
  lengths[block.size] = 0;
  if (block.size == 0) {
    blocks_.erase(blocks_.begin() + static_cast<ptrdiff_t>(place.block));
    return;
  }
  block.first = starts[0];
  Went(block);
  if (blocks_.size() > 1) Merge(place.block);
}

void FreeRuns::Split(size_t index) {
  constexpr uint32_t kKept = kBlock / 2;
  Block upper = MakeBlock(kBlock);
  Block& lower = blocks_[index];
  upper.size = lower.size - kKept;
  std::copy_n(lower.starts() + kKept, upper.size, upper.starts());
  std::copy_n(lower.lengths() + kKept, upper.size, upper.lengths());
  std::fill_n(lower.starts() + kKept, upper.size, kBeyond);
  std::fill_n(lower.lengths() + kKept, upper.size, 0);
  upper.first = upper.starts()[0];
  lower.size = kKept;
  blocks_.insert(blocks_.begin() + static_cast<ptrdiff_t>(index) + 1, std::move(upper));
  Refilter(blocks_[index]);
  Refilter(blocks_[index + 1]);
}

void FreeRuns::Merge(size_t index) {
  if (index + 1 == blocks_.size()) --index;
  Block& lower = blocks_[index];
  const Block& upper = blocks_[index + 1];
  if (lower.size + upper.size > kMerge) return;
  if (lower.capacity < kBlock) lower = Resized(lower, kBlock);
  std::copy_n(upper.starts(), upper.size, lower.starts() + lower.size);
  std::copy_n(upper.lengths(), upper.size, lower.lengths() + lower.size);
  lower.size += upper.size;
  lower.filter |= upper.filter;
  blocks_.erase(blocks_.begin() + static_cast<ptrdiff_t>(index) + 1);
}

std::optional<FreeRuns::Change> FreeRuns::Take(uint32_t start, uint32_t length) {
  const std::optional<Place> found = AtOrBelow(start);
  if (!found || length == 0) return std::nullopt;
  const Run run = At(*found);
  const uint32_t offset = start - run.start;
  if (offset >= run.length || run.length - offset < length) return std::nullopt;
  const Run below{run.start, offset};
  const Run above{start + length, run.length - offset - length};
  Change change{{run, {}}, {below, above}, {IsOnly(run.length), false}};
  if (below.length > 0) {
    Set(*found, below);
    if (above.length > 0) Insert({found->block, found->index + 1}, above);
  } else if (above.length > 0) {
    Set(*found, above);
  } else {
    Erase(*found);
  }
  free_ -= length;
  return change;
}

std::optional<FreeRuns::Change> FreeRuns::Give(uint32_t start, uint32_t length) {
  if (length == 0 || start >= granules_ || granules_ - start < length) return std::nullopt;
  const std::optional<Place> before = AtOrBelow(start);
  const Place after = before ? Next(*before) : Place{};
  const Run lower = before ? At(*before) : Run{};
  const Run upper = after.block < blocks_.size() ? At(after) : Run{};
  if (before && start - lower.start < lower.length) return std::nullopt;
  if (upper.length > 0 && upper.start - start < length) return std::nullopt;
  const bool joins_lower = before && lower.start + lower.length == start;
  const bool joins_upper = upper.length > 0 && start + length == upper.start;
  Change change;
  Run& grown = change.come[0];
  grown = {joins_lower ? lower.start : start, length};
  if (joins_lower) {
    change.gone[0] = lower;
    grown.length += lower.length;
  }
  if (joins_upper) {
    change.gone[1] = upper;
    grown.length += upper.length;
  }
  if (joins_lower) {
    Set(*before, grown);
    if (joins_upper) Erase(after);
  } else if (joins_upper) {
    Set(after, grown);
  } else if (before) {
    Insert({before->block, before->index + 1}, grown);
  } else {
    Insert({}, grown);
  }
  for (size_t i = 0; i < 2; ++i) {
    change.none_left[i] = !FirstOfLength(change.gone[i].length).has_value();
  }
  free_ += length;
  return change;
}

std::optional<uint32_t> FreeRuns::FirstOfLength(uint32_t length) const {
  if (length == 0) return std::nullopt;
  for (const Block& block : blocks_) {
    if ((block.filter & FilterBit(length)) == 0) continue;
    if (const uint32_t i = IndexOf(block, length); i < kBlock) return block.starts()[i];
  }
  return std::nullopt;
}

std::optional<FreeRuns::Run> FreeRuns::BestFit(uint32_t length) const {
  Run best;
  for (const Block& block : blocks_) {
    // No length of the block can be long enough if its highest bit is below the length's.
    if (block.filter < FilterBit(length)) continue;
    for (uint32_t i = 0; i < block.size; ++i) {
      const uint32_t found = block.lengths()[i];
      if (found < length || (best.length > 0 && found >= best.length)) continue;
      best = {block.starts()[i], found};
      if (found == length) return best;
    }
  }
  return best.length > 0 ? std::optional(best) : std::nullopt;
}

std::optional<FreeRuns::Run> FreeRuns::Longest() const {
  Run best;
  ForEach([&](Run run) {
    if (run.length > best.length) best = run;
  });
  return best.length > 0 ? std::optional(best) : std::nullopt;
}

absl::Status FreeRuns::Check() const {
  uint64_t end = 0;
  uint64_t free = 0;
  size_t size = 0;
  for (const Block& block : blocks_) {
    if (block.size == 0 || block.size > kBlock || block.first != block.starts()[0]) {
      return absl::InternalError("a block of runs has a wrong size or first run");
    }
    for (uint32_t i = 0; i < block.capacity; ++i) {
      const Run run{block.starts()[i], block.lengths()[i]};
      if ((run.length == 0) != (i >= block.size)) {
        return absl::InternalError(absl::StrCat("the block at ", block.first, " has an empty run"));
      }
      if (i >= block.size) continue;
      if ((block.filter & FilterBit(run.length)) == 0) {
        return absl::InternalError(absl::StrCat("the run at ", run.start, " is filtered out"));
      }
      if (size + i > 0 && run.start <= end) {
        return absl::InternalError(
            absl::StrCat("the run at ", run.start, " touches the one below"));
      }
      end = uint64_t{run.start} + run.length;
      free += run.length;
    }
    size += block.size;
  }
  if (end > granules_ || free != free_ || size != size_) {
    return absl::InternalError(absl::StrCat(size, " runs with ", free, " granules up to ", end,
                                            "; counted ", size_, " with ", free_, " of ",
                                            granules_));
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
