#include "host-agent/adapters/linux/events/linux_host_events.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "host-agent/adapters/linux/cxl/sysfs_snapshot.h"
#include "host-agent/adapters/linux/events/trace_event.h"
#include "host-agent/adapters/linux/events/trace_instance.h"
#include "host-agent/model/observation.h"
#include "proto/support/log.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::agent {
namespace {

constexpr char kSubject[] = "events";
constexpr size_t kMaxEventsACall = 256;
constexpr int kMaxCallsATurn = 16;
constexpr auto kShortestPause = std::chrono::milliseconds(100);  // Between looks at the lists.

using Clock = std::chrono::steady_clock;

class LinuxHostEvents : public HostEvents {
 public:
  explicit LinuxHostEvents(LinuxHostEventsOptions options)
      : files_(options.root),
        interval_(std::max(absl::ToChronoMilliseconds(options.poison_interval), kShortestPause)),
        every_memdev_(options.every_memdev) {}
  ~LinuxHostEvents() override { Stop(); }

  void Start(OnEvents on_events) override {
    on_events_ = std::move(on_events);
    wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    thread_ = std::thread([this] { Run(); });
  }

  void Stop() override {
    if (!thread_.joinable()) return;
    ::eventfd_write(wake_.get(), 1);
    thread_.join();
  }

 private:
  void Run() {
    Clock::time_point look_at = Clock::now();
    while (true) {
      const bool listening = Listens();
      if (listening && Clock::now() >= look_at) {
        ReadPoisonLists();
        look_at = Clock::now() + interval_;
      }
      if (listening && Deliver()) look_at = std::min(look_at, Clock::now() + kShortestPause);
      if (!listening) look_at = Clock::now() + interval_;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(look_at - Clock::now());
      pollfd polled[] = {{wake_.get(), POLLIN, 0}, {instance_.fd(), POLLIN, 0}};
      ::poll(polled, 2, static_cast<int>(std::max<int64_t>(left.count(), 0)));
      if (polled[0].revents != 0) break;
    }
    instance_.Close();
  }

  bool Listens() {
    const absl::Status status = instance_.Open();
    if (status != said_) {
      said_ = status;
      if (!status.ok()) {
        LogWarning(kSubject, status.message());
      } else {
        LogInfo(kSubject, "listening to the kernel's events of CXL memory");
      }
    }
    return status.ok();
  }

  // The kernel answers with trace events. A device without such a list, or that is just leaving,
  // says nothing.
  void ReadPoisonLists() {
    for (const PoolMemdev& memdev : ReadPoolMemdevs(files_, every_memdev_)) {
      pollfd stop = {wake_.get(), POLLIN, 0};
      if (::poll(&stop, 1, 0) > 0) return;
      files_.Write(absl::StrCat(memdev.path, "/trigger_poison_list"), "1");
    }
  }

  // True if a poison list may have grown.
  bool Deliver() {
    bool look = false;
    for (int call = 0; call < kMaxCallsATurn; ++call) {
      absl::StatusOr<std::vector<std::string>> lines = instance_.ReadLines(kMaxEventsACall);
      if (!lines.ok()) {
        LogWarning(kSubject, lines.status().message());
        return true;
      }
      if (lines->empty()) break;
      std::vector<v1::HostEvent> events;
      bool lost = false;
      for (const std::string& text : *lines) {
        TraceLine line = ParseTraceLine(text);
        lost |= line.kind == TraceLine::Kind::kLost;
        if (line.kind == TraceLine::Kind::kEvent) Take(std::move(line), events);
      }
      // What is lost of a list comes with the next look in any case: else a list that is longer
      // than the buffer would be read without end.
      look |= std::any_of(events.begin(), events.end(), [](const v1::HostEvent& event) {
        return event.kind() != v1::HostEvent::POISON;
      });
      if (lost) LogWarning(kSubject, "the kernel has lost events of CXL memory: looking instead");
      if (!events.empty()) on_events_(std::move(events));
      if (lost) on_events_({});
    }
    return look;
  }

  void Take(TraceLine line, std::vector<v1::HostEvent>& events) {
    if (line.event.serial() != 0) {
      if (every_memdev_ || IsPoolSerial(line.event.serial()))
        events.push_back(std::move(line.event));
      return;
    }
    if (line.pci_function.empty()) {
      events.push_back(std::move(line.event));
      return;
    }
    for (const PoolMemdev& memdev : ReadPoolMemdevs(files_, every_memdev_)) {
      if (events.size() >= kMaxEventsACall || !IsBehind(memdev, line.pci_function)) continue;
      line.event.set_serial(memdev.serial);
      events.push_back(line.event);
    }
  }

  // Constant after Start.
  const HostFiles files_;
  const std::chrono::milliseconds interval_;
  const bool every_memdev_;
  OnEvents on_events_;
  UniqueFd wake_;  // An eventfd.

  // The thread's.
  TraceInstance instance_{&files_};
  absl::Status said_;

  std::thread thread_;
};

}  // namespace

std::unique_ptr<HostEvents> MakeLinuxHostEvents(LinuxHostEventsOptions options) {
  return std::make_unique<LinuxHostEvents>(std::move(options));
}

}  // namespace cxlpool::agent
