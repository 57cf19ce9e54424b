// Sessions between agents and the manager, over the simulated network: the ManagerLink of an
// agent's life on one end, the SessionPeer of a manager's life on the other.
//
// The link behaves as host-agent/rpc does: it dials, sends the Hello, has a session with the
// Welcome, beats, and dials again after a backoff. Applications' Allocate and Release, which go
// beside the session, are not simulated here: UNAVAILABLE.
#ifndef CXLPOOL_TEST_SIM_SESSIONS_H_
#define CXLPOOL_TEST_SIM_SESSIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric-manager/service/host_sessions.h"
#include "host-agent/ports/manager_link.h"
#include "test/sim/network.h"

namespace cxlpool::sim {

// Where agents find the manager.
struct ManagerDoor {
  fm::HostSessions* sessions = nullptr;  // Null: nobody answers.
  LifeId life = kWorld;
};

// What an agent says is bent while it lies. Outlives the agents.
struct Lies {
  int64_t until_us = 0;
  Random random{1};
};

// One TCP connection. Each end has its own idea of whether it is still there.
struct Stream {
  int host = 0;
  LifeId agent = kWorld;
  LifeId manager = kWorld;
  fm::HostSessions* sessions = nullptr;  // Of the manager, while it lives.
  bool agent_open = true;
  bool manager_open = true;
  int64_t up_due_us = 0;  // The last message of each direction arrives then.
  int64_t down_due_us = 0;
  std::shared_ptr<fm::SessionPeer> peer;
};

class SimLink : public agent::ManagerLink {
 public:
  struct World {
    Scheduler* scheduler;
    Network* network;
    const ManagerDoor* door;
    Lies* lies;
    v1::Hello* last_hello;  // Kept of each session, for an agent that comes back with old state.
    // Called with each serial whose lost bytes a manager, that is alive, has acknowledged. May be
    // null.
    const std::function<void(int host, uint64_t serial)>* on_events_seen = nullptr;
  };

  // `life`: of the agent on host number `host`.
  SimLink(World world, LifeId life, int host);
  // The agent died: the machine closes its connections, unless it is gone itself.
  ~SimLink() override;

  void Start(Handlers handlers) override;
  void Stop() override;
  void Send(v1::Report report) override;
  void Answer(uint64_t, absl::StatusOr<v1::DeviceLook>) override {}  // No fabric here asks.
  void Allocate(v1::AllocateRegionRequest request,
                DoneWith<v1::AllocateRegionResponse> done) override;
  void Release(v1::ReleaseRegionRequest request, DoneWith<v1::ReleaseRegionResponse> done) override;
  void Get(v1::GetRegionRequest request, DoneWith<v1::Region> done) override;

  // Ends the session as the network would. What the other end hears, and when: after `far_us`;
  // negative: never, so that a lease has to find out.
  void CutHere(int64_t far_us);   // The agent's end first.
  void CutThere(int64_t far_us);  // The manager's end first.

  // Whose stream it has, or had last and does not know better; kWorld: none.
  LifeId manager() const { return stream_ == nullptr ? kWorld : stream_->manager; }

 private:
  friend class SimPeer;

  void Dial();
  void OnHello(uint64_t attempt, absl::StatusOr<v1::Hello> hello);
  void OnMessage(uint64_t attempt, v1::ManagerMessage message);
  void Beat(uint64_t attempt);
  void Lost(uint64_t attempt, absl::Status why, bool permanent);
  void SendUp(const std::shared_ptr<Stream>& stream, v1::AgentMessage message);
  void CloseManagerEnd(const std::shared_ptr<Stream>& stream, int64_t delay_us);
  void Bend(v1::SegmentReport* report);
  void OnEventsSeen(uint64_t sequence);

  const World world_;
  const LifeId life_;
  const int host_;
  Handlers handlers_;
  uint64_t attempt_ = 0;
  std::shared_ptr<Stream> stream_;
  std::vector<std::pair<uint64_t, uint64_t>> lost_;  // Sequence and serial, reported and not seen.
  uint64_t session_ = 0;
  uint64_t epoch_ = 0;  // The highest that a manager has led under.
  int64_t heartbeat_us_ = 0;
  int backoff_ = 0;
  std::shared_ptr<SimLink*> self_;  // Null inside once this is gone.
};

// An agent that comes back as it once was, for example from a snapshot of its machine: it says
// `hello` to the manager and nothing after that.
void ComeBackAsOf(const SimLink::World& world, int host, const v1::Hello& hello);

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_SESSIONS_H_
