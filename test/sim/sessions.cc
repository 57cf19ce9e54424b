#include "test/sim/sessions.h"

#include <algorithm>
#include <utility>

namespace cxlpool::sim {
namespace {

constexpr int64_t kWelcomeTimeout_us = 1'500'000;
constexpr int64_t kFirstBackoff_us = 5'000;
constexpr int64_t kMaxBackoff_us = 400'000;
constexpr int64_t kRefusedRetry_us = 1'000'000;

// Delay from now at which the next message of a direction arrives: never before the one before it.
int64_t InOrder(int64_t& due_us, int64_t now_us, int64_t delay_us) {
  due_us = std::max(due_us, now_us + delay_us);
  return due_us - now_us;
}

}  // namespace

// The manager's end of a stream.
class SimPeer : public fm::SessionPeer {
 public:
  // `link`: the agent's, as long as it is there; may be null.
  SimPeer(SimLink::World world, std::weak_ptr<Stream> stream, std::weak_ptr<SimLink*> link,
          uint64_t attempt)
      : world_(world), stream_(std::move(stream)), link_(std::move(link)), attempt_(attempt) {}

  void Send(v1::ManagerMessage message) override {
    const auto stream = stream_.lock();
    if (stream == nullptr || !stream->manager_open || !world_.scheduler->Alive(stream->manager)) {
      return;
    }
    const int64_t delay = InOrder(stream->down_due_us, world_.scheduler->now_us(),
                                  world_.network->OfHost(stream->host));
    world_.scheduler->At(
        stream->agent, delay,
        [link = link_, stream, attempt = attempt_, message = std::move(message)]() mutable {
          const auto to = link.lock();
          if (to == nullptr || !stream->agent_open) return;
          (*to)->OnMessage(attempt, std::move(message));
        });
  }

  void Close(const absl::Status& status) override {
    const auto stream = stream_.lock();
    if (stream == nullptr || !stream->manager_open) return;
    stream->manager_open = false;
    const int64_t delay = InOrder(stream->down_due_us, world_.scheduler->now_us(),
                                  world_.network->OfHost(stream->host));
    world_.scheduler->At(stream->agent, delay, [link = link_, stream, attempt = attempt_, status] {
      const auto to = link.lock();
      if (to == nullptr || !stream->agent_open) return;
      (*to)->Lost(attempt, status, agent::IsPermanent(status));
    });
    // gRPC tells the server that the stream is over.
    world_.scheduler->At(stream->manager, 1, [sessions = stream->sessions, peer = stream->peer] {
      sessions->OnClosed(peer.get());
    });
  }

  std::string address() const override { return "sim"; }

 private:
  const SimLink::World world_;
  const std::weak_ptr<Stream> stream_;
  const std::weak_ptr<SimLink*> link_;
  const uint64_t attempt_;
};

SimLink::SimLink(World world, LifeId life, int host)
    : world_(world), life_(life), host_(host), self_(std::make_shared<SimLink*>(this)) {}

SimLink::~SimLink() { CutHere(world_.network->OfHost(host_)); }

void SimLink::Start(Handlers handlers) {
  handlers_ = std::move(handlers);
  Dial();
}

void SimLink::Stop() { ++attempt_; }

void SimLink::Dial() {
  const uint64_t attempt = ++attempt_;
  handlers_.make_hello(
      [link = std::weak_ptr<SimLink*>(self_), attempt](absl::StatusOr<v1::Hello> hello) {
        if (const auto to = link.lock()) (*to)->OnHello(attempt, std::move(hello));
      });
  world_.scheduler->At(life_, kWelcomeTimeout_us, [this, attempt] {
    if (session_ == 0) Lost(attempt, absl::DeadlineExceededError("no answer"), false);
  });
}

void SimLink::OnHello(uint64_t attempt, absl::StatusOr<v1::Hello> hello) {
  if (attempt != attempt_ || stream_ != nullptr) return;
  if (!hello.ok()) return Lost(attempt, hello.status(), false);
  if (world_.door->sessions == nullptr || world_.scheduler->IsPaused(world_.door->life)) {
    return Lost(attempt, absl::UnavailableError("nobody answers"), false);
  }
  for (v1::SegmentReport& report : *hello->mutable_segments()) Bend(&report);
  *world_.last_hello = *hello;
  stream_ = std::make_shared<Stream>();
  stream_->host = host_;
  stream_->agent = life_;
  stream_->manager = world_.door->life;
  stream_->sessions = world_.door->sessions;
  stream_->peer = std::make_shared<SimPeer>(world_, stream_, self_, attempt);
  v1::AgentMessage first;
  *first.mutable_hello() = *std::move(hello);
  SendUp(stream_, std::move(first));
}

void SimLink::SendUp(const std::shared_ptr<Stream>& stream, v1::AgentMessage message) {
  const int64_t delay =
      InOrder(stream->up_due_us, world_.scheduler->now_us(), world_.network->OfHost(host_));
  world_.scheduler->At(stream->manager, delay, [stream, message = std::move(message)] {
    // What the manager has closed it reads no more.
    if (!stream->manager_open) return;
    if (message.has_hello()) {
      stream->sessions->OnHello(stream->peer, {"", true}, message.hello());
    } else if (message.has_heartbeat()) {
      stream->sessions->OnHeartbeat(*stream->peer, message.session());
    } else {
      stream->sessions->OnMessage(stream->peer.get(), message);
    }
  });
}

void SimLink::OnMessage(uint64_t attempt, v1::ManagerMessage message) {
  if (attempt != attempt_) return;
  if (session_ == 0) {
    if (!message.has_welcome()) {
      return Lost(attempt, absl::InternalError("no Welcome"), false);
    }
    if (message.welcome().epoch() < epoch_) {
      return Lost(attempt, absl::UnavailableError("an earlier manager"), false);
    }
    epoch_ = message.welcome().epoch();
    session_ = message.session();
    backoff_ = 0;
    heartbeat_us_ = int64_t{message.welcome().heartbeat_ms()} * 1000;
    handlers_.on_welcome(std::move(*message.mutable_welcome()));
    world_.scheduler->At(life_, heartbeat_us_, [this, attempt] { Beat(attempt); });
    return;
  }
  if (message.session() != session_) return;
  if (message.has_offer()) handlers_.on_offer(std::move(*message.mutable_offer()));
  if (message.has_withdraw()) handlers_.on_withdraw(message.withdraw());
  if (message.has_events_seen()) {
    OnEventsSeen(message.events_seen().sequence());
    handlers_.on_events_seen(message.events_seen());
  }
}

void SimLink::OnEventsSeen(uint64_t sequence) {
  const bool alive = stream_ != nullptr && world_.scheduler->Alive(stream_->manager);
  for (const auto& [of, serial] : lost_) {
    if (of > sequence || !alive || world_.on_events_seen == nullptr) continue;
    (*world_.on_events_seen)(host_, serial);
  }
  std::erase_if(lost_, [sequence](const auto& reported) { return reported.first <= sequence; });
}

void SimLink::Beat(uint64_t attempt) {
  if (attempt != attempt_) return;
  v1::AgentMessage message;
  message.set_session(session_);
  message.mutable_heartbeat();
  SendUp(stream_, std::move(message));
  world_.scheduler->At(life_, heartbeat_us_, [this, attempt] { Beat(attempt); });
}

void SimLink::Lost(uint64_t attempt, absl::Status why, bool permanent) {
  if (attempt != attempt_) return;
  ++attempt_;
  session_ = 0;
  if (stream_ != nullptr) {
    stream_->agent_open = false;
    CloseManagerEnd(stream_, world_.network->OfHost(host_));
  }
  stream_.reset();
  const int64_t bound = std::min(kMaxBackoff_us, kFirstBackoff_us << std::min(backoff_++, 10));
  const int64_t wait =
      permanent ? kRefusedRetry_us : world_.network->random().Between(1'000, bound);
  handlers_.on_lost(std::move(why), permanent);
  world_.scheduler->At(life_, wait, [this] { Dial(); });
}

void SimLink::CloseManagerEnd(const std::shared_ptr<Stream>& stream, int64_t delay_us) {
  if (delay_us < 0) return;
  const int64_t delay = InOrder(stream->up_due_us, world_.scheduler->now_us(), delay_us);
  world_.scheduler->At(stream->manager, delay, [stream] {
    if (!stream->manager_open) return;
    stream->manager_open = false;
    stream->sessions->OnClosed(stream->peer.get());
  });
}

void SimLink::CutHere(int64_t far_us) {
  if (stream_ == nullptr) return;
  const std::shared_ptr<Stream> stream = stream_;
  stream->agent_open = false;
  CloseManagerEnd(stream, far_us);
  stream_.reset();  // Lost must not say goodbye once more.
  if (world_.scheduler->Alive(life_)) {
    Lost(attempt_, absl::UnavailableError("the connection was cut"), false);
  }
}

void SimLink::CutThere(int64_t far_us) {
  if (stream_ == nullptr) return;
  const std::shared_ptr<Stream> stream = stream_;
  world_.scheduler->At(stream->manager, 1, [stream] {
    if (!stream->manager_open) return;
    stream->manager_open = false;
    stream->sessions->OnClosed(stream->peer.get());
  });
  if (far_us < 0) return;
  world_.scheduler->At(life_, far_us, [this, attempt = attempt_] {
    Lost(attempt, absl::UnavailableError("the connection was cut"), false);
  });
}

void SimLink::Send(v1::Report report) {
  if (session_ == 0) return;
  for (v1::SegmentReport& segment : *report.mutable_segments()) Bend(&segment);
  for (const v1::HostEvent& event : report.events()) {
    if (event.bytes_lost()) lost_.emplace_back(event.sequence(), event.serial());
  }
  v1::AgentMessage message;
  message.set_session(session_);
  *message.mutable_report() = std::move(report);
  SendUp(stream_, std::move(message));
}

void SimLink::Bend(v1::SegmentReport* report) {
  if (world_.lies->until_us <= world_.scheduler->now_us()) return;
  if (!world_.lies->random.OneIn(2)) return;
  report->set_state(static_cast<v1::SegmentState>(world_.lies->random.Between(1, 5)));
  report->clear_error();
  if (world_.lies->random.OneIn(4)) report->set_opens(0);
}

void SimLink::Allocate(v1::AllocateRegionRequest, DoneWith<v1::AllocateRegionResponse> done) {
  std::move(done)(absl::UnavailableError("not simulated"));
}
void SimLink::Release(v1::ReleaseRegionRequest, DoneWith<v1::ReleaseRegionResponse> done) {
  std::move(done)(absl::UnavailableError("not simulated"));
}
void SimLink::Get(v1::GetRegionRequest, DoneWith<v1::Region> done) {
  std::move(done)(absl::UnavailableError("not simulated"));
}

void ComeBackAsOf(const SimLink::World& world, int host, const v1::Hello& hello) {
  if (world.door->sessions == nullptr || hello.host().empty()) return;
  auto stream = std::make_shared<Stream>();
  stream->host = host;
  stream->manager = world.door->life;
  stream->sessions = world.door->sessions;
  stream->peer = std::make_shared<SimPeer>(world, stream, std::weak_ptr<SimLink*>(), 0);
  world.scheduler->At(stream->manager, world.network->OfHost(host), [stream, hello] {
    stream->sessions->OnHello(stream->peer, {"", true}, hello);
  });
  // Then it is silent: its connection is found dead some time later.
  world.scheduler->At(stream->manager, world.network->random().Between(10'000, 3'000'000),
                      [stream] {
                        if (!stream->manager_open) return;
                        stream->manager_open = false;
                        stream->sessions->OnClosed(stream->peer.get());
                      });
}

}  // namespace cxlpool::sim
