// What the tests here share: a clock that sleeping moves, and a manager that answers from a script.
#ifndef CXLPOOL_TOOLS_CLI_TESTING_H_
#define CXLPOOL_TOOLS_CLI_TESTING_H_

#include <deque>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "proto/support/refusal.h"
#include "tools/cli/connection.h"
#include "tools/cli/manager_stub.h"
#include "tools/cli/pacer.h"

namespace cxlpool::cli {

class FakePacer : public Pacer {
 public:
  absl::Duration Elapsed() override { return now_; }
  void Sleep(absl::Duration period) override {
    sleeps.push_back(period);
    now_ += period;
  }
  void Pass(absl::Duration period) { now_ += period; }

  std::vector<absl::Duration> sleeps;

 private:
  absl::Duration now_ = absl::Hours(1);
};

class CountRetries : public CallListener {
 public:
  void OnChange(const std::string& request_id) override { changes.push_back(request_id); }
  void OnRetry(const absl::Status&, absl::Duration) override { ++retries; }
  std::vector<std::string> changes;
  int retries = 0;
};

// One stream of Watch: its events, then how it ends.
struct ScriptedStream {
  std::vector<v1::WatchRegionsResponse> events = {};
  absl::Status end = absl::OkStatus();
  absl::Duration takes = absl::ZeroDuration();  // Infinite: as long as the stream may live.
  bool opens = true;                            // There is a connection.
};

// Answers each call from its queue; an empty queue answers UNIMPLEMENTED, which nobody retries.
class FakeManager : public ManagerStub {
 public:
  explicit FakeManager(FakePacer& pacer) : pacer_(pacer) {}

  template <typename Request, typename Response>
  struct Method {
    std::deque<absl::StatusOr<Response>> answers;
    std::vector<Request> requests;
    std::vector<absl::Duration> limits;
    absl::Duration takes = absl::ZeroDuration();

    absl::StatusOr<Response> Answer(FakePacer& pacer, const Request& request,
                                    absl::Duration limit) {
      requests.push_back(request);
      limits.push_back(limit);
      pacer.Pass(std::min(takes, limit));
      if (answers.empty()) return absl::UnimplementedError("not in the script");
      absl::StatusOr<Response> answer = std::move(answers.front());
      answers.pop_front();
      return answer;
    }
  };

#define CXLPOOL_FAKE_METHOD(service, method, request_type, response_type)                 \
  Method<v1::request_type, v1::response_type> method##_calls;                             \
  Answer<v1::response_type> method(const v1::request_type& request, absl::Duration limit) \
      override {                                                                          \
    return method##_calls.Answer(pacer_, request, limit);                                 \
  }
  CXLPOOL_MANAGER_METHODS(CXLPOOL_FAKE_METHOD)
#undef CXLPOOL_FAKE_METHOD

  absl::Status WatchRegions(const v1::WatchRegionsRequest& request, absl::Duration limit,
                            OnOpen on_open, OnEvent on_event) override {
    watches.push_back(request);
    watch_limits.push_back(limit);
    if (streams.empty()) return absl::UnimplementedError("not in the script");
    const ScriptedStream stream = std::move(streams.front());
    streams.pop_front();
    if (stream.opens) on_open();
    for (const v1::WatchRegionsResponse& event : stream.events) {
      if (!on_event(event)) return absl::OkStatus();
    }
    pacer_.Pass(std::min(stream.takes, limit));
    return stream.end;
  }

  absl::Status Backup(const v1::BackupRequest&, absl::Duration connect, absl::Duration limit,
                      OnPiece on_piece) override {
    backup_connects.push_back(connect);
    backup_limits.push_back(limit);
    for (const v1::BackupResponse& piece : backup_pieces) {
      if (absl::Status status = on_piece(piece); !status.ok()) return status;
    }
    if (backup_breaks-- > 0) return absl::UnavailableError("Socket closed");
    return backup_end;
  }

  // To as many others in a row as there are.
  bool Turn(absl::Status& why) override {
    turned_from.push_back(why);
    if (others-- > 0) return true;
    if (!said.ok()) why = said;
    return false;
  }
  std::vector<std::string> addresses() const override {
    std::vector<std::string> addresses;
    for (const auto& [address, self] : selves) addresses.push_back(address);
    return addresses;
  }
  Answer<v1::Self> SelfAt(size_t manager, absl::Duration limit) override {
    self_limits.push_back(limit);
    return std::next(selves.begin(), static_cast<std::ptrdiff_t>(manager))->second;
  }

  int others = 0;
  absl::Status said;  // OK: of a round that is over there is no more to say than what came last.
  std::vector<absl::Status> turned_from;
  std::vector<std::pair<std::string, Answer<v1::Self>>> selves;  // By address.
  std::vector<absl::Duration> self_limits;
  std::deque<ScriptedStream> streams;
  std::vector<v1::BackupResponse> backup_pieces;
  absl::Status backup_end;
  int backup_breaks = 0;  // How many streams break before their end.
  std::vector<absl::Duration> backup_limits;
  std::vector<absl::Duration> backup_connects;
  std::vector<v1::WatchRegionsRequest> watches;
  std::vector<absl::Duration> watch_limits;

 private:
  FakePacer& pacer_;
};

inline absl::Status Refused(absl::StatusCode code, std::string reason) {
  return Refuse(code, std::move(reason), "the manager says no", "do better");
}

// A stream that stays open and quiet as long as it may live.
inline ScriptedStream Quiet(std::vector<v1::WatchRegionsResponse> events = {}) {
  return {.events = std::move(events),
          .end = absl::DeadlineExceededError("over"),
          .takes = absl::InfiniteDuration()};
}

inline v1::Region MakeRegion(v1::Region::State state, uint64_t revision,
                             const std::string& name = "regions/kv", const std::string& tag = "") {
  v1::Region region;
  region.set_name(name);
  region.set_tag(tag.empty() ? "tag of " + name : tag);
  region.set_size_bytes(uint64_t{512} << 20);
  region.set_state(state);
  region.set_revision(revision);
  return region;
}

inline v1::Region WithAttachment(v1::Region region, v1::Attachment::State state,
                                 uint64_t generation = 7,
                                 const std::string& host = "hosts/host-a") {
  v1::Attachment& attachment = *region.add_attachments();
  attachment.set_host(host);
  attachment.set_mode(v1::DEVDAX);
  attachment.set_access(v1::READ_WRITE);
  attachment.set_state(state);
  attachment.set_generation(generation);
  return region;
}

inline v1::WatchRegionsResponse MakeEvent(v1::WatchRegionsResponse::Event kind,
                                          const v1::Region& region, uint64_t revision) {
  v1::WatchRegionsResponse event;
  event.set_event(kind);
  *event.mutable_region() = region;
  event.set_revision(revision);
  return event;
}
inline v1::WatchRegionsResponse Changed(const v1::Region& region) {
  return MakeEvent(v1::WatchRegionsResponse::CHANGED, region, region.revision());
}
inline v1::WatchRegionsResponse Removed(const v1::Region& region, uint64_t revision) {
  return MakeEvent(v1::WatchRegionsResponse::REMOVED, region, revision);
}
inline v1::WatchRegionsResponse Synced(uint64_t revision) {
  v1::WatchRegionsResponse event;
  event.set_event(v1::WatchRegionsResponse::SYNCED);
  event.set_revision(revision);
  return event;
}

// A connection to a FakeManager, all of it at hand.
struct FakeConnection {
  FakePacer pacer;
  FakeManager manager{pacer};
  CountRetries listener;
  Connection connection{manager, pacer, listener, absl::Seconds(10)};
};

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_TESTING_H_
