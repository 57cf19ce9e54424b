// HostEvents without CXL: poison that a test or a person writes into a file.
//
//   ROOT/hosts/HOST/slot-N/poison    one line an entry: SERIAL DPA LENGTH, decimal or with 0x
//
// The file is the poison list of the memdev in that slot: read every `interval`, and reported again
// each time for as long as it says so. Lines with another serial than the slot's memdev are of an
// earlier one, and are ignored, as are lines that are no entry, and what is behind the first 256.
//
// Reads on the Executor given; `on_events` is called there.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_EMULATED_EMULATED_HOST_EVENTS_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_EMULATED_EMULATED_HOST_EVENTS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "host-agent/ports/host_events.h"
#include "proto/support/executor.h"
#include "proto/support/mutex.h"

namespace cxlpool::agent {

struct EmulatedEventsOptions {
  std::string root;  // Absolute.
  std::string host;  // Host id, without "hosts/".
  std::vector<uint32_t> slots;
  absl::Duration interval = absl::Milliseconds(500);
};

// The entries of a poison file that are about `serial`.
std::vector<v1::HostEvent> ParsePoisonFile(absl::string_view text, uint64_t serial);

class EmulatedHostEvents : public HostEvents {
 public:
  // `executor` outlives this.
  EmulatedHostEvents(EmulatedEventsOptions options, Executor* executor)
      : options_(std::move(options)), executor_(executor) {}
  ~EmulatedHostEvents() override { Stop(); }

  void Start(OnEvents on_events) override;
  void Stop() override;

 private:
  // What a task that is still posted finds.
  struct Listener {
    Mutex mutex;
    OnEvents on_events ABSL_GUARDED_BY(mutex);  // Empty: stopped.
  };

  static void Look(const EmulatedEventsOptions& options, Executor* executor,
                   const std::shared_ptr<Listener>& listener);

  const EmulatedEventsOptions options_;
  Executor* const executor_;
  const std::shared_ptr<Listener> listener_ = std::make_shared<Listener>();
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_EMULATED_EMULATED_HOST_EVENTS_H_
