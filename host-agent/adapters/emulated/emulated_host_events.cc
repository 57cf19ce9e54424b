#include "host-agent/adapters/emulated/emulated_host_events.h"

#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "host-agent/adapters/emulated/slot_files.h"

namespace cxlpool::agent {
namespace {

constexpr size_t kMaxEntries = 256;
constexpr size_t kMaxEventsBytes = 64 << 10;

std::optional<uint64_t> Number(absl::string_view text) {
  uint64_t value = 0;
  const bool ok = absl::StartsWith(text, "0x") ? absl::SimpleHexAtoi(text, &value)
                                               : absl::SimpleAtoi(text, &value);
  return ok ? std::optional(value) : std::nullopt;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxEventsBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace

std::vector<v1::HostEvent> ParsePoisonFile(absl::string_view text, uint64_t serial) {
  std::vector<v1::HostEvent> events;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (events.size() == kMaxEntries) break;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() != 3) continue;
    const std::optional<uint64_t> whose = Number(words[0]);
    const std::optional<uint64_t> dpa = Number(words[1]);
    const std::optional<uint64_t> length = Number(words[2]);
    if (whose != serial || !dpa.has_value() || length.value_or(0) == 0) continue;
    v1::HostEvent event;
    event.set_serial(serial);
    event.set_kind(v1::HostEvent::POISON);
    event.set_severity(v1::HostEvent::FAILURE);
    event.set_bytes_lost(true);
    event.set_dpa_bytes(*dpa);
    event.set_length_bytes(*length);
    event.set_text("poison, source Emulated");
    events.push_back(std::move(event));
  }
  return events;
}

void EmulatedHostEvents::Start(OnEvents on_events) {
  {
    MutexLock lock(listener_->mutex);
    listener_->on_events = std::move(on_events);
  }
  executor_->Post([options = options_, executor = executor_, listener = listener_] {
    Look(options, executor, listener);
  });
}

void EmulatedHostEvents::Stop() {
  MutexLock lock(listener_->mutex);
  listener_->on_events = nullptr;
}

void EmulatedHostEvents::Look(const EmulatedEventsOptions& options, Executor* executor,
                              const std::shared_ptr<Listener>& listener) {
  for (const uint32_t slot : options.slots) {
    const std::string directory = SlotDirectory(options.root, options.host, slot);
    const std::string text = ReadFile(absl::StrCat(directory, "/poison"));
    if (text.empty()) continue;
    const absl::StatusOr<SlotFiles> files = ReadSlot(directory);
    if (!files.ok() || !files->has_memdev()) continue;
    std::vector<v1::HostEvent> events = ParsePoisonFile(text, files->host.serial());
    MutexLock lock(listener->mutex);
    if (listener->on_events && !events.empty()) listener->on_events(std::move(events));
  }
  {
    MutexLock lock(listener->mutex);
    if (!listener->on_events) return;
  }
  executor->PostAfter(options.interval,
                      [options, executor, listener] { Look(options, executor, listener); });
}

}  // namespace cxlpool::agent
