// Feeds libpool's decoder of what a host agent answers.
//
// The sanitizers see that nothing is read out of bounds. This program sees that no more comes out
// than went in, and that a field of a later protocol changes nothing of the rest.

#include <cstddef>
#include <optional>
#include <string>

#include "libpool/src/local_codec.h"
#include "test/fuzz/fuzz_target.h"

namespace cxlpool::fuzz {
namespace {

using libpool::DecodeResponse;
using libpool::LocalResponse;

// How many things an answer holds, and how many bytes of text: a short way to compare two.
size_t Weigh(const LocalResponse& response) {
  size_t weight = response.message.size();
  if (response.error.has_value()) {
    weight += 1 + response.error->reason.size() + response.error->remedy.size();
  }
  if (response.open.has_value()) {
    weight += 1 + response.open->name.size() + response.open->tag.size();
    weight += response.open->numa_nodes.size();
    for (const auto& segment : response.open->segments) weight += 1 + segment.path.size();
  }
  if (response.list.has_value()) {
    for (const auto& region : response.list->regions) {
      weight += 1 + region.name.size() + region.tag.size();
      if (region.attachment.has_value()) weight += 1 + region.attachment->state_reason.size();
    }
  }
  if (response.faults.has_value()) {
    for (const auto& fault : response.faults->faults) {
      weight += 1 + fault.name.size() + fault.tag.size() + fault.message.size();
    }
    for (const auto& size : response.faults->sizes)
      weight += 1 + size.name.size() + size.tag.size();
  }
  return weight;
}

CXLPOOL_FUZZ(local_codec) {
  const std::optional<LocalResponse> response = DecodeResponse(bytes);
  if (!response.has_value()) return;
  Require(Weigh(*response) <= bytes.size());
  const std::optional<LocalResponse> later = DecodeResponse(std::string(bytes) + "\xf8\x07\x01");
  Require(later.has_value() && later->code == response->code);
  Require(Weigh(*later) == Weigh(*response));
}

}  // namespace
}  // namespace cxlpool::fuzz
