#include "host-agent/service/size_table.h"

#include "proto/support/mutant.h"

namespace cxlpool::agent {
namespace {

uint64_t UsableBytes(const Attachment& attachment, const HostObservation& host) {
  uint64_t bytes = 0;
  const size_t usable = UsableSegments(attachment, host);
  for (size_t i = 0; i < usable; ++i) bytes += attachment.segments[i].desired.length_bytes;
  return bytes;
}

}  // namespace

void SizeTable::Place(const AttachmentTable& attachments, const HostObservation& host,
                      FaultTable& numbers) {
  std::erase_if(sizes_,
                [&](const auto& entry) { return !attachments.all().contains(entry.first); });
  for (const auto& [key, attachment] : attachments.all()) {
    const uint64_t bytes = UsableBytes(attachment, host);
    const auto known = sizes_.find(key);
    if (known == sizes_.end()) {
      // What cannot be opened yet is no news.
      if (bytes > 0) sizes_[key] = {.sequence = numbers.TakeSequence(), .bytes = bytes};
    } else if (known->second.bytes != bytes) {
      known->second.bytes = bytes;
      if (!CXLPOOL_MUTANT("new-size-keeps-its-number")) {
        known->second.sequence = numbers.TakeSequence();
      }
    }
  }
}

}  // namespace cxlpool::agent
