// What hosts report of their memory: takes the events of their kernels, marks the Extents that lost
// bytes (model/plans/plan_media.h), and acknowledges what is durable.
//
// An agent sends an event again in each session until EventsSeen covers it, and that is sent only
// once everything reported up to there is durable or means nothing here. So no mark is lost with a
// session, an agent or a manager, and hearing of one twice is harmless. What cannot be made durable
// now is tried again.
//
// An agent is believed only of the Attachments of its own host.
//
// Runs on the executor.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_MEDIA_KEEPER_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_MEDIA_KEEPER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "fabric-manager/model/plans/plan_media.h"
#include "fabric-manager/service/host_sessions.h"
#include "fabric-manager/service/writer.h"

namespace cxlpool::fm {

class MediaKeeper {
 public:
  struct Options {
    absl::Duration retry = absl::Milliseconds(500);  // After a commit that failed.
    size_t max_waiting = 4096;                       // Serials of one host that are not durable.
    int max_lines = 64;                              // A host and minute, of the log.
  };

  MediaKeeper(Options options, Executor* executor, Clock* clock, Writer* writer,
              HostSessions* sessions)
      : options_(options),
        executor_(executor),
        clock_(clock),
        writer_(writer),
        sessions_(sessions) {}

  // A session of `host` began or ended: the next one counts events by itself.
  void OnSession(const std::string& host);

  void OnEvents(const std::string& host, const HostEvents& events);

 private:
  struct FromHost {
    uint64_t reported = 0;  // Greatest sequence of this session that is not acknowledged; 0: none.
    std::map<uint64_t, MediaError> waiting;  // By serial: not durable yet.
    bool committing = false;
    absl::Duration minute = -absl::InfiniteDuration();  // When the count of lines began.
    int lines = 0;
  };

  void Count(const std::string& host, const v1::HostEvent& event);
  void Log(const std::string& host, FromHost& from, const v1::HostEvent& event);
  void Commit(const std::string& host, FromHost& from);
  void Acknowledge(const std::string& host, FromHost& from);

  const Options options_;
  Executor* const executor_;
  Clock* const clock_;
  Writer* const writer_;
  HostSessions* const sessions_;
  std::map<std::string, FromHost> hosts_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_MEDIA_KEEPER_H_
