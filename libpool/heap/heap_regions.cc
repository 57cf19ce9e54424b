#include "libpool/heap/heap_regions.h"

#include <poll.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <string_view>
#include <utility>

#include "libpool/src/region_name.h"
#include "libpool/src/text.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {
namespace {

constexpr uint64_t kUnit = uint64_t{2} << 20;
constexpr uint64_t kLargest = uint64_t{1} << 56;
// Of the 63 bytes that a Region's name may have, "-12345678-" and ten digits take the rest.
constexpr size_t kLongestPrefix = 43;
// How long the end of a heap waits for a Region of which it is not known whether it was allocated.
constexpr uint32_t kLateWaitMs = 10'000;

constinit thread_local bool met_the_limit = false;  // See HeapRegions::MetTheLimit.

uint64_t RoundUp(uint64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

// How large a Region has room for a block whatever is in the others. It begins at a multiple of 2
// MiB as a rule, and nowhere better.
uint64_t NeededFor(size_t size, size_t alignment) {
  if (size > kLargest || alignment > kLargest) return kLargest;
  return RoundUp(size + (alignment > 4096 ? alignment : 0));
}

// Whether a Region may be there, or come, though the call that asked for it failed.
bool MayBeThere(const cxlpool_error& error) {
  const std::string_view reason = error.reason;
  return error.code == CXLPOOL_DEADLINE_EXCEEDED || error.code == CXLPOOL_UNAVAILABLE ||
         reason == "DESCRIPTORS_LOST" || reason == "NO_MEMORY";
}

// Whether a release failed so that the next one would only wait for nothing, too.
bool NobodyAnswers(int code) {
  return code == CXLPOOL_UNAVAILABLE || code == CXLPOOL_DEADLINE_EXCEEDED;
}

// What a call of libcxlpool filled.
Status StatusOf(const cxlpool_error& error) {
  return Status({.code = static_cast<Code>(error.code),
                 .reason = error.reason,
                 .message = error.message,
                 .remedy = error.remedy,
                 .sys_errno = error.sys_errno});
}

// The options with what was left open decided, or why they cannot be.
StatusOr<HeapOptions> Resolve(HeapOptions options) {
  const uint64_t largest = std::max({options.size_bytes, options.max_bytes, options.grow_bytes});
  if (options.size_bytes == 0 || largest > kLargest) {
    return BadArgument(Concat("size_bytes is ", options.size_bytes, ", max_bytes ",
                              options.max_bytes, ", grow_bytes ", options.grow_bytes),
                       "say how much the heap begins with, and at most 2^56 for each");
  }
  if (options.max_bytes == 0) options.max_bytes = options.size_bytes;
  if (options.grow_bytes == 0) options.grow_bytes = options.size_bytes;
  options.size_bytes = RoundUp(options.size_bytes);
  options.max_bytes = RoundUp(options.max_bytes);
  options.grow_bytes = RoundUp(options.grow_bytes);
  if (options.max_bytes < options.size_bytes) {
    return BadArgument(
        Concat("max_bytes is ", options.max_bytes, ", and size_bytes ", options.size_bytes),
        "give a max_bytes that is no smaller, or 0 for a heap that does not grow");
  }
  return options;
}

// What the names of a heap's Regions begin with: names are the whole rack's, so that two heaps of
// one prefix need something of their own. One that is only just short enough for the first Region
// would leave the heap unable to grow, once its numbers have more digits.
StatusOr<std::string> NameStem(const std::string& prefix) {
  if (prefix.empty()) return std::string();
  if (prefix.size() > kLongestPrefix) {
    return BadArgument(Concat("name_prefix has ", prefix.size(), " bytes"),
                       Concat("give at most ", kLongestPrefix,
                              ": its Regions' names are longer, and have at most 63"));
  }
  const StatusOr<std::string> uuid = RequestIdOf("");
  if (!uuid.ok()) return uuid.status();
  return Concat(prefix, "-", uuid->substr(0, 8), "-");
}

}  // namespace

// Where the first Region cannot be had and may be there all the same, it is asked for and released:
// who is refused a heap has no name to release it by, and it would stay as long as this process.
StatusOr<std::unique_ptr<HeapRegions>> HeapRegions::Make(cxlpool_client* client,
                                                         HeapOptions options) {
  StatusOr<HeapOptions> resolved = Resolve(std::move(options));
  if (!resolved.ok()) return resolved.status();
  StatusOr<std::string> stem = NameStem(resolved->name_prefix);
  if (!stem.ok()) return stem.status();
  std::unique_ptr<HeapRegions> regions(
      new HeapRegions(client, *std::move(resolved), *std::move(stem)));
  Status refused;
  {
    const MutexLock growing(regions->growing_);
    StatusOr<std::unique_ptr<Part>> first = regions->Allocate(regions->options_.size_bytes);
    if (first.ok()) {
      const MutexLock lock(regions->mutex_);
      regions->parts_.push_back(*std::move(first));
      ReportUsage(*regions->parts_.back());
      return regions;
    }
    refused = first.status();
  }
  if (!CXLPOOL_MUTANT("heap-that-failed-keeps-its-region")) regions->End();
  return refused;
}

// What jemalloc has taken counts as live: which of it are blocks it reports only under its own
// locks, and one of them may be held here.
void HeapRegions::ReportUsage(const Part& part) {
  const uint64_t free_bytes = part.free.free_bytes();
  cxlpool_region_tell(part.region.get(), cxlpool_map_size(part.map.get()) - free_bytes, free_bytes,
                      nullptr);
}

// Called by jemalloc, which is C: nothing is thrown.
void* HeapRegions::Take(size_t size, size_t alignment) noexcept {
  met_the_limit = false;
  try {
    {
      const MutexLock lock(mutex_);
      if (void* const taken = TakeFree(size, alignment); taken != nullptr) return taken;
    }
    return GrowAndTake(size, alignment);
  } catch (const std::bad_alloc&) {
    return nullptr;  // Not for want of pool memory: there is none of this process's own.
  }
}

// From the oldest Region that has room, so that the younger ones become empty.
void* HeapRegions::TakeFree(size_t size, size_t alignment) {
  for (const std::unique_ptr<Part>& part : parts_) {
    if (part->free.free_bytes() < size) continue;
    const uintptr_t taken = part->free.Take(size, alignment);
    if (taken == 0) continue;
    ReportUsage(*part);
    auto* const begin = static_cast<std::byte*>(cxlpool_map_address(part->map.get()));
    return begin + (taken - reinterpret_cast<uintptr_t>(begin));
  }
  return nullptr;
}

// Gets a Region in which there is room. Threads that come meanwhile wait for that one: they take of
// what it brings, and where it was refused those that need as much are refused with it, instead of
// asking one after the other, and waiting each for its own refusal.
void* HeapRegions::GrowAndTake(size_t size, size_t alignment) {
  const uint64_t needed = NeededFor(size, alignment);
  uint64_t refusals = 0;
  {
    const MutexLock lock(mutex_);
    refusals = refusals_;
  }
  const MutexLock growing(growing_);
  {
    const MutexLock lock(mutex_);
    if (void* const taken = TakeFree(size, alignment); taken != nullptr) return taken;
    const bool is_refused =
        needed >= refused_bytes_ || CXLPOOL_MUTANT("heap-large-refusal-for-all");
    if (refusals_ != refusals && is_refused && !CXLPOOL_MUTANT("heap-refusal-asked-again")) {
      met_the_limit = refused_for_the_limit_;
      return nullptr;
    }
  }
  const StatusOr<void*> taken = AddAndTake(size, alignment);
  const MutexLock lock(mutex_);
  last_refusal_ = taken.status();
  if (taken.ok()) return *taken;
  ++refusals_;
  // What may be there would be asked for again, whatever is needed.
  refused_bytes_ = asked_.has_value() ? 0 : needed;
  refused_for_the_limit_ = taken.status().reason() == "HEAP_FULL";
  met_the_limit = refused_for_the_limit_;
  return nullptr;
}

bool HeapRegions::MetTheLimit() { return met_the_limit; }

// First the Region whose fate is unknown, if there is one, and then one of the size that is needed.
// What is taken of a Region is taken before any other thread sees it: one that comes just then
// could take so much that the block does not fit, and this call would be refused for no reason.
StatusOr<void*> HeapRegions::AddAndTake(size_t size, size_t alignment) {
  {
    const MutexLock lock(mutex_);
    parts_.reserve(parts_.size() + 2);  // So that what was allocated is noted for certain.
  }
  if (asked_.has_value() && !CXLPOOL_MUTANT("heap-region-forgotten")) {
    StatusOr<std::unique_ptr<Part>> late = AskFor(options_.wait_ms);
    if (late.ok()) {
      const MutexLock lock(mutex_);
      parts_.push_back(*std::move(late));
      if (void* const taken = TakeFree(size, alignment); taken != nullptr) return taken;
    } else if (asked_.has_value()) {
      return late.status();
    }
  }
  const StatusOr<uint64_t> next = SizeOfNext(size, alignment);
  if (!next.ok()) return next.status();
  StatusOr<std::unique_ptr<Part>> part = Allocate(*next);
  if (!part.ok()) return part.status();
  {
    const MutexLock lock(mutex_);
    parts_.push_back(*std::move(part));
    if (!CXLPOOL_MUTANT("heap-region-for-who-comes-first")) return TakeFree(size, alignment);
  }
  ::poll(nullptr, 0, 100);  // Only that defect gets here: other threads come first.
  const MutexLock lock(mutex_);
  return TakeFree(size, alignment);
}

StatusOr<uint64_t> HeapRegions::SizeOfNext(size_t size, size_t alignment) const {
  const MutexLock lock(mutex_);
  const uint64_t mapped = MappedBytes();
  const uint64_t room = options_.max_bytes - std::min(options_.max_bytes, mapped);
  const uint64_t needed = NeededFor(size, alignment);
  const bool is_full = needed > room && !CXLPOOL_MUTANT("heap-limit-ignored");
  if (is_full || parts_.size() >= kMaxRegions) {
    return Refuse(Code::kResourceExhausted, "HEAP_FULL",
                  Concat("the heap has ", mapped, " bytes in ", parts_.size(),
                         " Regions, and no room for ", size, " more: its limit is ",
                         options_.max_bytes, " bytes in at most ", kMaxRegions, " Regions"),
                  "free blocks, or create the heap with a larger max_bytes or grow_bytes");
  }
  return std::max(needed, std::min(options_.grow_bytes, room));
}

struct HeapRegions::Allocated {
  Allocated(cxlpool_client* owner, cxlpool_region* allocated) : client(owner), region(allocated) {}
  Allocated(const Allocated&) = delete;
  Allocated& operator=(const Allocated&) = delete;
  ~Allocated() {
    if (region == nullptr) return;
    region.reset();
    cxlpool_release(client, info.tag, nullptr);
  }

  cxlpool_client* const client;
  std::unique_ptr<cxlpool_region, Close> region;
  cxlpool_region_info info = CXLPOOL_REGION_INFO_INIT;
};

StatusOr<std::unique_ptr<HeapRegions::Part>> HeapRegions::Allocate(uint64_t size_bytes) {
  StatusOr<std::string> request_id = RequestIdOf("");
  if (!request_id.ok()) return request_id.status();
  asked_ = Asked{.request_id = *std::move(request_id),
                 .name = name_stem_.empty() ? "" : Concat(name_stem_, named_++),
                 .size_bytes = size_bytes};
  return AskFor(options_.wait_ms);
}

// Whatever fails after the Region was allocated, it is released again.
StatusOr<std::unique_ptr<HeapRegions::Part>> HeapRegions::AskFor(uint32_t wait_ms) {
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  cxlpool_allocate_options options = CXLPOOL_ALLOCATE_OPTIONS_INIT;
  options.name = asked_->name.c_str();
  options.size_bytes = asked_->size_bytes;
  options.request_id = asked_->request_id.c_str();
  options.wait_ms = wait_ms;
  cxlpool_region* opened = nullptr;
  if (cxlpool_allocate(client_, &options, &opened, &error) != 0) {
    if (!MayBeThere(error)) asked_.reset();
    return StatusOf(error);
  }
  asked_.reset();
  Allocated allocated(client_, opened);
  const cxlpool_region_info& info = allocated.info;
  if (cxlpool_region_describe(opened, &allocated.info, &error) != 0) return StatusOf(error);

  cxlpool_map_options map_options = CXLPOOL_MAP_OPTIONS_INIT;
  map_options.populate = options_.populate ? 1 : 0;
  // What is reserved and not mapped keeps two Regions apart.
  map_options.reserve_bytes = info.size_bytes + info.alignment_bytes;
  cxlpool_map* mapped = nullptr;
  if (cxlpool_map_region(opened, &map_options, &mapped, &error) != 0) return StatusOf(error);
  std::unique_ptr<cxlpool_map, Close> map(mapped);
  const auto begin = reinterpret_cast<uintptr_t>(cxlpool_map_address(mapped));
  const size_t size = cxlpool_map_size(mapped) / 4096 * 4096;
  auto part = std::make_unique<Part>(Part{nullptr, nullptr, info.tag, AlignedRanges(begin, size)});
  part->map = std::move(map);
  part->region = std::move(allocated.region);
  return part;
}

bool HeapRegions::Give(void* address, size_t size) noexcept {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const MutexLock lock(mutex_);
  for (const std::unique_ptr<Part>& part : parts_) {
    if (!part->free.Contains(begin)) continue;
    try {
      part->free.Give(begin, size);
      if (!CXLPOOL_MUTANT("heap-tells-only-what-it-takes")) ReportUsage(*part);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  return false;
}

// The Regions leave the table before they are unmapped, and the lock is free while the agent is
// spoken to. One whose release is refused, perhaps for good, is in no other one's way.
Status HeapRegions::GiveBack() {
  std::vector<std::unique_ptr<Part>> given_back;
  std::vector<std::string> tags;
  {
    const MutexLock lock(mutex_);
    // What needs memory comes first: nothing that leaves the table is forgotten.
    given_back.reserve(parts_.size());
    tags.reserve(unreleased_.size() + parts_.size());
    unreleased_.reserve(unreleased_.size() + parts_.size());
    uint64_t mapped = MappedBytes();
    for (size_t i = parts_.size(); i-- > 0;) {
      const uint64_t size = cxlpool_map_size(parts_[i]->map.get());
      if (!parts_[i]->free.all_free() || mapped - size < options_.size_bytes) continue;
      mapped -= size;
      given_back.push_back(std::move(parts_[i]));
      parts_.erase(parts_.begin() + static_cast<ptrdiff_t>(i));
    }
    std::move(unreleased_.begin(), unreleased_.end(), std::back_inserter(tags));
    unreleased_.clear();
  }
  for (const std::unique_ptr<Part>& part : given_back) tags.push_back(std::move(part->tag));
  given_back.clear();  // Unmapped and closed.
  if (CXLPOOL_MUTANT("heap-region-kept")) return Status();
  cxlpool_error first_refusal = CXLPOOL_ERROR_INIT;
  for (auto tag = tags.begin(); tag != tags.end();) {
    cxlpool_error error = CXLPOOL_ERROR_INIT;
    const int code = cxlpool_release(client_, tag->c_str(), &error);
    // Not found: somebody has released it already.
    if (code == 0 || code == CXLPOOL_NOT_FOUND) {
      tag = tags.erase(tag);
      continue;
    }
    if (first_refusal.code == 0) first_refusal = error;
    if (NobodyAnswers(code) || CXLPOOL_MUTANT("heap-release-stops-at-a-refusal")) break;
    ++tag;
  }
  {
    const MutexLock lock(mutex_);
    std::move(tags.begin(), tags.end(), std::back_inserter(unreleased_));
  }
  return first_refusal.code == 0 ? Status() : StatusOf(first_refusal);
}

void HeapRegions::End() {
  std::vector<std::string> tags;
  {
    const MutexLock lock(mutex_);
    tags = std::move(unreleased_);
    for (const std::unique_ptr<Part>& part : parts_) tags.push_back(part->tag);
    parts_.clear();
  }
  for (const std::string& tag : tags) {
    if (NobodyAnswers(cxlpool_release(client_, tag.c_str(), nullptr))) return;
  }
  const MutexLock growing(growing_);
  if (!asked_.has_value()) return;
  // Its tag is not known without. It may be on its way still.
  StatusOr<std::unique_ptr<Part>> late = AskFor(std::min(options_.wait_ms, kLateWaitMs));
  if (!late.ok()) return;
  const std::string tag = std::move((*late)->tag);
  late->reset();
  cxlpool_release(client_, tag.c_str(), nullptr);
}

// The mutex may be held by a thread that the child does not have.
void HeapRegions::Forget() ABSL_NO_THREAD_SAFETY_ANALYSIS { parts_.clear(); }

Status HeapRegions::Check() const {
  const MutexLock lock(mutex_);
  return last_refusal_;
}

HeapRegions::Usage HeapRegions::Used() const {
  const MutexLock lock(mutex_);
  Usage usage = {.mapped_bytes = MappedBytes(), .regions = parts_.size()};
  for (const std::unique_ptr<Part>& part : parts_) usage.free_bytes += part->free.free_bytes();
  return usage;
}

uint64_t HeapRegions::MappedBytes() const {
  uint64_t bytes = 0;
  for (const std::unique_ptr<Part>& part : parts_) bytes += cxlpool_map_size(part->map.get());
  return bytes;
}

}  // namespace cxlpool::libpool
