#include "libpool/src/usage.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "proto/support/mutant.h"

namespace cxlpool::libpool {
namespace {

constexpr unsigned kNoExec = 8;  // MFD_NOEXEC_SEAL, Linux 6.3; older headers do not have it.

// Words of the page: another process reads them at any moment.
void Store(uint64_t& word, uint64_t value) { __atomic_store_n(&word, value, __ATOMIC_RELAXED); }
void Add(uint64_t& word, uint64_t value) { __atomic_fetch_add(&word, value, __ATOMIC_RELAXED); }

// A file of one page in memory that keeps its size. Some kernels refuse one that could be executed,
// and older ones do not know the word for one that cannot.
UniqueFd MakeFile() {
  constexpr char kName[] = "cxlpool-usage";
  UniqueFd fd(::memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExec));
  if (!fd.valid() && errno == EINVAL) {
    fd.Reset(::memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  }
  if (!fd.valid() || ::ftruncate(fd.get(), kUsagePageBytes) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return UniqueFd();
  }
  return fd;
}

}  // namespace

std::shared_ptr<UsageCounters> UsageCounters::Make() {
  UniqueFd fd = MakeFile();
  if (!fd.valid()) return nullptr;
  void* const page =
      ::mmap(nullptr, kUsagePageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  void* const own =
      ::mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || own == MAP_FAILED ||
      ::madvise(own, sizeof(uint64_t), MADV_WIPEONFORK) != 0) {
    if (page != MAP_FAILED) ::munmap(page, kUsagePageBytes);
    if (own != MAP_FAILED) ::munmap(own, sizeof(uint64_t));
    return nullptr;
  }
  auto* const is_parent = static_cast<uint64_t*>(own);
  *is_parent = 1;
  return std::shared_ptr<UsageCounters>(
      new UsageCounters(std::move(fd), new (page) UsagePage, is_parent));
}

UsageCounters::~UsageCounters() {
  ::munmap(page_, kUsagePageBytes);
  ::munmap(is_parent_, sizeof(uint64_t));
}

UsageEntry* UsageCounters::Claim(std::string_view tag) {
  const UsageTag wanted = UsageTagOf(tag);
  if (!wanted.is_set() || forked()) return nullptr;
  const MutexLock lock(mutex_);
  size_t free = kMaxUsageEntries;
  for (size_t i = 0; i < kMaxUsageEntries; ++i) {
    if (uses_[i] == 0) {
      if (free == kMaxUsageEntries) free = i;
    } else if (page_->entries[i].tag == wanted) {
      ++uses_[i];
      return &page_->entries[i];
    }
  }
  if (free == kMaxUsageEntries) return nullptr;
  uses_[free] = 1;
  UsageEntry& entry = page_->entries[free];
  Store(entry.tag.low, wanted.low);
  __atomic_store_n(&entry.tag.high, wanted.high, __ATOMIC_RELEASE);
  return &entry;
}

// The last one leaves an entry of zeros: what was counted has been taken away again but where a
// caller's own counts were wrong.
void UsageCounters::End(UsageEntry* entry) {
  if (entry == nullptr || forked()) return;
  const MutexLock lock(mutex_);
  if (--uses_[entry - page_->entries] != 0) return;
  if (CXLPOOL_MUTANT("usage-of-closed-region-stays")) return;
  Store(entry->tag.high, 0);
  Store(entry->tag.low, 0);
  for (uint64_t* word :
       {&entry->mapped_bytes, &entry->live_bytes, &entry->slack_bytes, &entry->pins}) {
    Store(*word, 0);
  }
}

RegionUsage::RegionUsage(std::shared_ptr<UsageCounters> counters, std::string_view tag)
    : counters_(std::move(counters)),
      entry_(counters_ == nullptr ? nullptr : counters_->Claim(tag)) {}

RegionUsage::~RegionUsage() {
  if (entry_ == nullptr) return;
  Report(0, 0);
  counters_->End(entry_);
}

void RegionUsage::AddMap(int64_t maps, int64_t bytes) const {
  maps_.fetch_add(static_cast<uint32_t>(maps), std::memory_order_relaxed);
  if (counts()) Add(entry_->mapped_bytes, static_cast<uint64_t>(bytes));
}

void RegionUsage::AddPins(int64_t pins) const {
  pins_.fetch_add(static_cast<uint32_t>(pins), std::memory_order_relaxed);
  if (counts()) Add(entry_->pins, static_cast<uint64_t>(pins));
}

void RegionUsage::AddLive(int64_t bytes) const {
  if (counts()) Add(entry_->live_bytes, static_cast<uint64_t>(bytes));
}

// Adds the difference from what was reported before: other objects may report the same Region.
void RegionUsage::Report(uint64_t live_bytes, uint64_t slack_bytes) const {
  if (!counts()) return;
  Add(entry_->live_bytes,
      live_bytes - reported_live_.exchange(live_bytes, std::memory_order_relaxed));
  Add(entry_->slack_bytes,
      slack_bytes - reported_slack_.exchange(slack_bytes, std::memory_order_relaxed));
}

}  // namespace cxlpool::libpool
