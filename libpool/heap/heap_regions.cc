#include "libpool/heap/heap_regions.h"

#include <algorithm>
#include <new>
#include <utility>

#include "libpool/src/region_name.h"
#include "libpool/src/text.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {
namespace {

constexpr uint64_t kUnit = uint64_t{2} << 20;
constexpr uint64_t kLargest = uint64_t{1} << 56;

uint64_t RoundUp(uint64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

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
// one prefix need something of their own.
StatusOr<std::string> NameStem(const std::string& prefix) {
  if (prefix.empty()) return std::string();
  const StatusOr<std::string> uuid = RequestIdOf("");
  if (!uuid.ok()) return uuid.status();
  return Concat(prefix, "-", uuid->substr(0, 8), "-");
}

}  // namespace

StatusOr<std::unique_ptr<HeapRegions>> HeapRegions::Make(cxlpool_client* client,
                                                         HeapOptions options) {
  StatusOr<HeapOptions> resolved = Resolve(std::move(options));
  if (!resolved.ok()) return resolved.status();
  StatusOr<std::string> stem = NameStem(resolved->name_prefix);
  if (!stem.ok()) return stem.status();
  std::unique_ptr<HeapRegions> regions(
      new HeapRegions(client, *std::move(resolved), *std::move(stem)));
  const MutexLock growing(regions->growing_);
  StatusOr<std::unique_ptr<Part>> first = regions->Allocate(regions->options_.size_bytes);
  if (!first.ok()) return first.status();
  const MutexLock lock(regions->mutex_);
  regions->parts_.push_back(*std::move(first));
  return regions;
}

// Called by jemalloc, which is C: nothing is thrown.
void* HeapRegions::Take(size_t size, size_t alignment) noexcept {
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
    auto* const begin = static_cast<std::byte*>(cxlpool_map_address(part->map.get()));
    return begin + (taken - reinterpret_cast<uintptr_t>(begin));
  }
  return nullptr;
}

// Gets a Region in which there is room. Threads that come meanwhile wait for that one: they take of
// what it brings, and where it was refused they are refused with it, instead of asking one after
// the other, and waiting each for its own refusal.
void* HeapRegions::GrowAndTake(size_t size, size_t alignment) {
  uint64_t refusals = 0;
  {
    const MutexLock lock(mutex_);
    refusals = refusals_;
  }
  const MutexLock growing(growing_);
  {
    const MutexLock lock(mutex_);
    if (void* const taken = TakeFree(size, alignment); taken != nullptr) return taken;
    if (refusals_ != refusals && !CXLPOOL_MUTANT("heap-refusal-asked-again")) return nullptr;
  }
  StatusOr<std::unique_ptr<Part>> part = AllocateFor(size, alignment);
  const MutexLock lock(mutex_);
  if (!part.ok()) {
    ++refusals_;
    last_refusal_ = part.status();
    return nullptr;
  }
  last_refusal_ = Status();
  parts_.push_back(*std::move(part));
  return TakeFree(size, alignment);
}

StatusOr<std::unique_ptr<HeapRegions::Part>> HeapRegions::AllocateFor(size_t size,
                                                                      size_t alignment) {
  const StatusOr<uint64_t> next = SizeOfNext(size, alignment);
  if (!next.ok()) return next.status();
  return Allocate(*next);
}

StatusOr<uint64_t> HeapRegions::SizeOfNext(size_t size, size_t alignment) const {
  const MutexLock lock(mutex_);
  const uint64_t mapped = MappedBytes();
  const uint64_t room = options_.max_bytes - std::min(options_.max_bytes, mapped);
  // A Region begins at a multiple of 2 MiB as a rule, and nowhere better.
  const uint64_t needed = size > kLargest || alignment > kLargest
                              ? kLargest
                              : RoundUp(size + (alignment > 4096 ? alignment : 0));
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

StatusOr<std::unique_ptr<HeapRegions::Part>> HeapRegions::Allocate(uint64_t size_bytes) {
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  cxlpool_allocate_options options = CXLPOOL_ALLOCATE_OPTIONS_INIT;
  const std::string name = name_stem_.empty() ? "" : Concat(name_stem_, named_++);
  options.name = name.c_str();
  options.size_bytes = size_bytes;
  options.wait_ms = options_.wait_ms;
  cxlpool_region* allocated = nullptr;
  if (cxlpool_allocate(client_, &options, &allocated, &error) != 0) return StatusOf(error);
  std::unique_ptr<cxlpool_region, Close> region(allocated);
  cxlpool_region_info info = CXLPOOL_REGION_INFO_INIT;
  if (cxlpool_region_describe(region.get(), &info, &error) != 0) return StatusOf(error);

  cxlpool_map_options map_options = CXLPOOL_MAP_OPTIONS_INIT;
  map_options.populate = options_.populate ? 1 : 0;
  // What is reserved and not mapped keeps two Regions apart.
  map_options.reserve_bytes = info.size_bytes + info.alignment_bytes;
  cxlpool_map* mapped = nullptr;
  if (cxlpool_map_region(region.get(), &map_options, &mapped, &error) != 0) {
    Status status = StatusOf(error);
    region.reset();
    cxlpool_release(client_, info.tag, nullptr);
    return status;
  }
  std::unique_ptr<cxlpool_map, Close> map(mapped);
  const auto begin = reinterpret_cast<uintptr_t>(cxlpool_map_address(mapped));
  const size_t size = cxlpool_map_size(mapped) / 4096 * 4096;
  return std::make_unique<Part>(
      Part{std::move(region), std::move(map), info.tag, AlignedRanges(begin, size)});
}

bool HeapRegions::Give(void* address, size_t size) noexcept {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const MutexLock lock(mutex_);
  for (const std::unique_ptr<Part>& part : parts_) {
    if (!part->free.Contains(begin)) continue;
    try {
      part->free.Give(begin, size);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  return false;
}

// The Regions leave the table before they are unmapped, and the lock is free while the agent is
// spoken to.
Status HeapRegions::GiveBack() {
  std::vector<std::unique_ptr<Part>> given_back;
  std::vector<std::string> tags;
  {
    const MutexLock lock(mutex_);
    uint64_t mapped = MappedBytes();
    for (size_t i = parts_.size(); i-- > 0;) {
      const uint64_t size = cxlpool_map_size(parts_[i]->map.get());
      if (!parts_[i]->free.all_free() || mapped - size < options_.size_bytes) continue;
      mapped -= size;
      given_back.push_back(std::move(parts_[i]));
      parts_.erase(parts_.begin() + static_cast<ptrdiff_t>(i));
    }
    tags = std::move(unreleased_);
    unreleased_.clear();
  }
  for (const std::unique_ptr<Part>& part : given_back) tags.push_back(part->tag);
  given_back.clear();  // Unmapped and closed.
  if (CXLPOOL_MUTANT("heap-region-kept")) return Status();
  Status status;
  while (!tags.empty()) {
    cxlpool_error error = CXLPOOL_ERROR_INIT;
    const int code = cxlpool_release(client_, tags.back().c_str(), &error);
    // Somebody has released it already.
    if (code != 0 && code != CXLPOOL_NOT_FOUND) {
      status = StatusOf(error);
      break;
    }
    tags.pop_back();
  }
  const MutexLock lock(mutex_);
  unreleased_.insert(unreleased_.end(), tags.begin(), tags.end());
  return status;
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
    const int code = cxlpool_release(client_, tag.c_str(), nullptr);
    // The next one would wait for nothing, too.
    if (code == CXLPOOL_UNAVAILABLE || code == CXLPOOL_DEADLINE_EXCEEDED) return;
  }
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
