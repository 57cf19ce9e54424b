#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "fabric-manager/adapters/fabric_emulated/emulated_fabric.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kStepBytes = 64 << 20;  // Copied between two looks at other work.

}  // namespace

std::vector<std::string> EndedLives(const std::string& host_directory) {
  const auto text = ReadValue(absl::StrCat(host_directory, "/ended"));
  if (!text.ok()) return {};
  return absl::StrSplit(*text, ' ', absl::SkipEmpty());
}

uid_t EmulatedFabric::Host::agent_uid() const { return config.agent_uid.value_or(::geteuid()); }

// The life that ends is written down first: a driver that is started later, by records that know
// the host in it, finds there that it has ended. The records may be some fences behind.
absl::Status EmulatedFabric::RenewIncarnation(Host& host) const {
  if (!host.incarnation.empty()) {
    std::vector<std::string> ended = EndedLives(host.directory);
    ended.insert(ended.begin(), host.incarnation);
    ended.resize(std::min(ended.size(), kEndedLives));
    absl::Status status =
        WriteValue(absl::StrCat(host.directory, "/ended"), absl::StrJoin(ended, " "));
    if (!status.ok()) return status;
  }
  const std::string value = FormatUuid(RandomUuid());
  if (absl::Status status = WriteValue(absl::StrCat(host.directory, "/incarnation"), value);
      !status.ok()) {
    return status;
  }
  host.incarnation = value;
  return absl::OkStatus();
}

// Whether its file is about to be swapped: nothing may be bound to it or cleared meanwhile.
bool EmulatedFabric::BeingFenced(const std::string& extent) const {
  for (const auto& [id, host] : hosts_) {
    if (!host.fence.has_value()) continue;
    const std::list<std::string>& left = host.fence->extents;
    if (std::find(left.begin(), left.end(), extent) != left.end()) return true;
  }
  return false;
}

// Called again until it answers true. A fence that failed is forgotten, so that the next one looks
// again at what is bound.
absl::StatusOr<bool> EmulatedFabric::Fence(const std::string& id, absl::Duration) {
  Host& host = hosts_.at(id);
  if (!host.fence.has_value()) {
    if (absl::Status status = StartFence(host); !status.ok()) return status;
  }
  absl::StatusOr<bool> done = StepFence(host);
  if (!done.ok() || *done) host.fence.reset();
  return done;
}

// A host whose state is not known cannot be fenced: its extents are not known either.
absl::Status EmulatedFabric::StartFence(Host& host) {
  if (absl::Status status = CheckHost(host.config.id); !status.ok()) {
    return FenceFailed(host.config.id, status.message(),
                       "set that right and fence it again, or end the host by hand and "
                       "release its Regions with force");
  }
  FenceJob job;
  for (auto& [number, slot] : host.slots) {
    if (!slot.ld.has_value()) continue;
    const std::string extent = ExtentFileName(slot.ld->key->tag, slot.ld->key->extent_index);
    if (BoundElsewhere(extent, host.config.id)) {
      return FenceFailed(
          host.config.id,
          absl::StrCat("extent ", extent, " is shared, and another host would lose it too"),
          "detach the other hosts from it first");
    }
    if (!CXLPOOL_MUTANT("fence-leaves-mappings")) job.extents.push_back(extent);
  }
  host.fence = std::move(job);
  return absl::OkStatus();
}

// Swaps a piece of an extent. True: all are swapped, and nothing is bound to the host any more.
absl::StatusOr<bool> EmulatedFabric::StepFence(Host& host) {
  FenceJob& job = *host.fence;
  if (job.swap != nullptr) {
    auto swapped = job.swap->Step(kStepBytes);
    if (!swapped.ok()) {
      return FenceFailed(host.config.id, swapped.status().message(), "fence it again");
    }
    if (*swapped) {
      job.swap.reset();
      job.extents.pop_front();
    }
    return false;
  }
  if (!job.extents.empty()) {
    auto swap = extents_->BeginSwap(job.extents.front());
    if (!swap.ok()) {
      return FenceFailed(host.config.id, swap.status().message(), "fence it again");
    }
    job.swap = std::move(*swap);
    if (job.swap == nullptr) job.extents.pop_front();
    return false;
  }
  if (absl::Status status = FinishFence(host); !status.ok()) return status;
  return true;
}

// The bytes are out of the host's reach already; now the slots are emptied, and a new life begins,
// which is what proves the end of the old one to everybody who asks later.
absl::Status EmulatedFabric::FinishFence(Host& host) {
  for (auto& [number, slot] : host.slots) {
    if (absl::Status status = slot.files.RemoveFabricSide(); !status.ok()) {
      return FenceFailed(host.config.id, status.message(), "fence it again");
    }
    slot.ld.reset();
  }
  if (absl::Status status = RenewIncarnation(host); !status.ok()) {
    return FenceFailed(host.config.id, status.message(), "fence it again");
  }
  LogWarning("fabric-emulated", "fenced host ", host.config.id);
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
