#include "host-agent/service/usage_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/support/mutant.h"

namespace cxlpool::agent {

// The seals first: only what lies in the kernel's memory has any, and of anything else fstat might
// ask a server that never answers. A huge page's file has them too, and never this size.
bool IsUsagePage(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  const bool keeps_size = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
  if (!keeps_size && !CXLPOOL_MUTANT("usage-page-not-checked-for-seals")) return false;
  struct stat file = {};
  if (::fstat(fd, &file) != 0 || file.st_size != static_cast<off_t>(kUsagePageBytes)) return false;
  uint64_t magic = 0;
  return ::pread(fd, &magic, sizeof magic, 0) == static_cast<ssize_t>(sizeof magic) &&
         magic == kUsageMagic;
}

UsageSource::UsageSource(UniqueFd page) : page_(std::move(page)) {
  struct stat file = {};
  if (::fstat(page_.get(), &file) == 0) inode_ = file.st_ino;
  if (CXLPOOL_MUTANT("same-page-counted-twice")) inode_ = static_cast<uint64_t>(page_.get());
}

std::optional<UsagePage> UsageSource::Read() const {
  std::optional<UsagePage> page(std::in_place);
  const ssize_t size = ::pread(page_.get(), &*page, sizeof *page, 0);
  if (size != static_cast<ssize_t>(sizeof *page)) page.reset();
  return page;
}

}  // namespace cxlpool::agent
