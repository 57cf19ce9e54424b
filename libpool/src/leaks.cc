#include "libpool/src/leaks.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "libpool/src/opened_region.h"
#include "libpool/src/text.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {
namespace {

constexpr char kVariable[] = "CXLPOOL_LEAKS";

// In the largest unit of which there is one, with a tenth.
std::string SizeText(uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  uint64_t one = 1024;
  while (unit + 1 < kUnits.size() && bytes >= one * 1024) {
    one *= 1024;
    ++unit;
  }
  return Concat(bytes / one, ".", bytes % one * 10 / one, " ", kUnits[unit]);
}

}  // namespace

// Never destroyed: what ends later than this library's own objects may still ask.
LeakList* LeakList::Wanted() {
  static LeakList* const list = []() -> LeakList* {
    const char* const wanted = ::secure_getenv(kVariable);
    if (wanted == nullptr || std::string_view(wanted) != "1") return nullptr;
    auto* const made = new LeakList;
    std::atexit(&ReportAtExit);
    return made;
  }();
  return list;
}

void LeakList::ReportAtExit() {
  const LeakList* const list = Wanted();
  // A forked child has its parent's list, and gives nothing of it back.
  if (list->Forked()) return;
  const std::string text = list->Report();
  for (std::string_view left = text; !left.empty();) {
    const ssize_t written = ::write(STDERR_FILENO, left.data(), left.size());
    if (written <= 0) return;
    left.remove_prefix(static_cast<size_t>(written));
  }
}

void LeakList::Add(const OpenedRegion* region) {
  if (Forked()) return;
  const MutexLock lock(mutex_);
  regions_.insert(region);
}

void LeakList::Remove(const OpenedRegion* region) {
  if (Forked() || CXLPOOL_MUTANT("closed-region-is-a-leak")) return;
  const MutexLock lock(mutex_);
  regions_.erase(region);
}

std::string LeakList::Report() const {
  constexpr std::string_view kPrefix = "regions/";
  std::string text;
  const MutexLock lock(mutex_);
  for (const OpenedRegion* const region : regions_) {
    std::string_view name = region->reply.name;
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    text += Concat("cxlpool: leak: region ", name, " (", SizeText(region->reply.size_bytes), ")");
    if (region->has_handle) text += ", opened";
    if (region->usage.maps() != 0) text += Concat(", ", region->usage.maps(), " map(s)");
    if (region->usage.pins() != 0) text += Concat(", ", region->usage.pins(), " pin(s)");
    text += "\n";
  }
  return text;
}

}  // namespace cxlpool::libpool
