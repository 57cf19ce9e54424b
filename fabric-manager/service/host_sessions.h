// The agents that are connected: who may speak for a host, which session counts, and what is
// sent to each agent.
//
// Offers are level-triggered: the last Offer of an Attachment stands, and every new session gets
// all that concern its host. A session ends by its stream, by a newer one, or by silence beyond
// the lease; silence proves nothing about the host's memory.
//
// Runs on the executor, but for OnHeartbeat: many agents that have nothing to say must cost next to
// nothing.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_HOST_SESSIONS_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_HOST_SESSIONS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cxlpool/v1/host_service.pb.h"
#include "fabric-manager/service/writer.h"
#include "proto/support/executor.h"

namespace cxlpool::fm {

inline constexpr uint32_t kHostProtocolVersion = 1;

using SegmentReports = google::protobuf::RepeatedPtrField<v1::SegmentReport>;
using HostEvents = google::protobuf::RepeatedPtrField<v1::HostEvent>;

// One connected stream. Calls from the executor; they do not block.
class SessionPeer {
 public:
  virtual ~SessionPeer() = default;

  // Queues a message. A peer that does not read ends its stream when its queue is full.
  virtual void Send(v1::ManagerMessage message) = 0;

  // Ends the stream with `status`. Again: no effect.
  virtual void Close(const absl::Status& status) = 0;

  // Where it comes from, for messages.
  virtual std::string address() const = 0;

 private:
  friend class HostSessions;
  std::string host_;                       // Whose session it is; empty: none yet. On the executor.
  std::atomic<uint64_t> session_{0};       // 0: none, or no longer.
  std::atomic<int64_t> last_heard_ns_{0};  // Of Clock::Elapsed.
};

// Who the transport says is there.
struct SessionIdentity {
  std::string uri;              // URI SAN of the certificate.
  bool insecure_local = false;  // No TLS: a Unix socket or a loopback address marked insecure.
  std::string serial = {};      // Of the certificate; empty without TLS.
  absl::Time end = absl::InfiniteFuture();
};

class HostSessions {
 public:
  struct Options {
    absl::Duration heartbeat = absl::Seconds(2);
    absl::Duration lease = absl::Seconds(10);
    size_t max_segments = 4096;  // In one message.
    size_t max_events = 256;     // Likewise.
  };
  struct Listener {
    // What the agent says of segments; `complete`: of every one on the host.
    std::function<void(const std::string& host, const SegmentReports&, bool complete)> on_segments;
    // What its kernel reported, in the current session; SendEventsSeen answers.
    std::function<void(const std::string& host, const HostEvents&)> on_events;
    // A session of `host` began or ended.
    std::function<void(const std::string& host, bool online)> on_session;
    // What the agent answers to a task that was sent in this session. May be empty: nobody asks.
    std::function<void(const std::string& host, const v1::DeviceAnswer&)> on_device_answer = {};
  };

  HostSessions(Options options, Executor* executor, Clock* clock, Writer* writer);

  void Start(Listener listener);

  // What agents are told, from the next Welcome on; 0, as at the start: the manager has no
  // replicas.
  void SetEpoch(uint64_t epoch) { epoch_ = epoch; }

  // A stream's first message. Answers Welcome, or closes the peer with the refusal.
  void OnHello(std::shared_ptr<SessionPeer> peer, const SessionIdentity& identity,
               const v1::Hello& hello);
  // What OnHello would say, and nothing changes. That an agent of this host has a session already
  // is no refusal here: the answer's `active_peer` says so.
  absl::StatusOr<v1::CheckSessionResponse> Check(const SessionIdentity& identity,
                                                 const v1::Hello& hello) const;
  // Later ones. Of a session that is not current: dropped.
  void OnMessage(SessionPeer* peer, const v1::AgentMessage& message);
  // A Heartbeat. Any thread.
  void OnHeartbeat(SessionPeer& peer, uint64_t session) const;
  // The stream is over, no matter which side ended it.
  void OnClosed(const SessionPeer* peer);

  // What the manager wants of an Attachment, until replaced or withdrawn. Each is sent.
  void SetOffer(const std::string& host, v1::Offer offer);
  void Withdraw(const std::string& host, const std::string& tag, uint64_t generation);

  // In the host's session, if it has one: what it reported up to `sequence` is durable.
  void SendEventsSeen(const std::string& host, uint64_t sequence);

  // In the host's session, if it has one; nobody keeps it for a later one.
  void SendTask(const std::string& host, v1::DeviceTask task);

  // Ends the host's session, if it has one.
  void End(const std::string& host, const absl::Status& why);

  // Ends the sessions of peers that may not speak for their host any more: it was removed, retired
  // or enrolled with another identity (UNKNOWN_HOST, HOST_RETIRED, WRONG_IDENTITY), or the peer's
  // certificate or identity is revoked (CERTIFICATE_REVOKED).
  void EndUnwelcome();

  bool Online(const std::string& host) const;

  // The boot id under which the host's agent has its session; empty: it has none.
  std::string LifeOf(const std::string& host) const;

 private:
  struct Session {
    uint64_t number = 0;
    std::shared_ptr<SessionPeer> peer;
    std::string incarnation;
    std::string agent_id;
    SessionIdentity identity;
    Key host_key = 0;         // Of the host's record when the session began, and
    std::string enrolled_as;  // the identity that it had.
    int64_t shown_ns = -1;    // What ShowHeartbeats last showed of the peer's last_heard_ns_.
  };

  using SessionMap = std::map<std::string, Session>;  // By host id.

  // Why the session may not go on; OK: it may.
  absl::Status CheckWelcome(const std::string& host, const Session& session) const;
  // The current session that `peer` is; end() if it is none.
  SessionMap::iterator Find(const SessionPeer* peer);
  // Shows what OnHeartbeat noted, of a few hosts in turn.
  void ShowHeartbeats();
  // Whether the peer may speak for the host at all.
  absl::Status Admit(const SessionIdentity& identity, const v1::Hello& hello,
                     std::string& host) const;
  // Whether it may now, beside the session that the host has.
  absl::Status CheckRival(const SessionPeer& peer, const v1::Hello& hello,
                          const std::string& host) const;
  void TakeDeviceAnswer(const std::string& host, const v1::DeviceAnswer& answer);
  void NoteRefused(const std::string& address, const absl::Status& why);
  void Drop(const std::string& host, const absl::Status& why);
  void TakeInventory(const std::string& host, const v1::HostInventory& inventory,
                     const v1::Hello* hello);
  void Tick();
  // Says in the log, once a day, whose certificates end soon or have ended.
  void WarnOfCertificates();
  void WarnOf(const std::string& host, const Session& session) const;

  const Options options_;
  Executor* const executor_;
  Clock* const clock_;
  Writer* const writer_;
  Listener listener_;
  uint64_t epoch_ = 0;
  uint64_t next_session_ = 1;
  SessionMap sessions_;
  absl::Time warned_ = absl::InfinitePast();                   // When WarnOfCertificates did.
  absl::Duration refusal_logged_ = -absl::InfiniteDuration();  // When a refused agent was logged.
  uint64_t refusals_not_logged_ = 0;                           // Since then.
  std::string shown_;  // The last host that ShowHeartbeats looked at.
  std::map<std::string, std::map<uint64_t, v1::Offer>> offers_;  // By host id and generation.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_HOST_SESSIONS_H_
