#include "host-agent/rpc/grpc_manager_link.h"

#include <grpcpp/create_channel.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cxlpool/v1/host_service.grpc.pb.h"
#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "host-agent/rpc/session_stream.h"
#include "host-agent/rpc/unary_calls.h"
#include "host-agent/service/backoff.h"
#include "host-agent/support/run_file.h"
#include "proto/support/address.h"
#include "proto/support/log.h"
#include "proto/support/loop.h"
#include "proto/support/manager_rotation.h"
#include "proto/support/mutant.h"
#include "proto/support/mutex.h"
#include "proto/support/refusal.h"
#include "proto/support/status_wire.h"
#include "proto/support/tls_diagnosis.h"

namespace cxlpool::agent {
namespace {

constexpr int kMaxMessageBytes = 16 << 20;
constexpr char kSubject[] = "manager-link";

// How soon a manager that says nothing is taken for gone.
struct Patience {
  int ping_ms;  // Between pings. The manager allows one a second.
  int answer_ms;
  int connect_ms;
};
constexpr Patience kOneManager = {10000, 10000, 10000};    // Emulated: the first handshake is slow.
constexpr Patience kSeveralManagers = {1200, 1800, 5000};  // Another leads by then.
constexpr absl::Duration kMinHeartbeat = absl::Milliseconds(50);
constexpr absl::Duration kMaxHeartbeat = absl::Minutes(1);
// A session that lasts so long was a success; one that ends at once must not be dialled at once.
constexpr absl::Duration kSettled = absl::Seconds(1);
constexpr absl::Duration kDiagnosisTimeout = absl::Seconds(2);

// Of the file of the highest epoch.
constexpr char kEpochText[] = "epoch";
constexpr size_t kMaxEpochBytes = 256;

// The highest epoch that the agents before this one have met in this boot. 0: none; or their file
// does not say it, which is as if there were none.
uint64_t ReadEpoch(const std::string& path, const std::string& boot_id) {
  if (path.empty()) return 0;
  const auto lines = ReadRunFile(path, kMaxEpochBytes, kEpochText, boot_id);
  uint64_t epoch = 0;
  if (lines.has_value() && lines->size() == 1 && absl::SimpleAtoi(lines->front(), &epoch)) {
    return epoch;
  }
  if (::access(path.c_str(), F_OK) == 0) {
    LogWarning(kSubject, path,
               " does not say under which epoch a manager has led in this boot: the one that "
               "answers first is believed");
  }
  return 0;
}

absl::Status ProtocolError(const std::string& message) {
  return Refuse(absl::StatusCode::kInternal, "PROTOCOL_ERROR",
                absl::StrCat("the fabric manager ", message), "update the agent or the manager");
}

std::shared_ptr<grpc::Channel> MakeChannel(const GrpcLinkOptions& options,
                                           const std::string& address);

// A channel to one manager and what speaks over it, with the credentials of one moment.
struct Wire {
  Wire(const GrpcLinkOptions& options, const std::string& to)
      : address(to),
        channel(MakeChannel(options, to)),
        host(v1::HostService::NewStub(channel)),
        pool(v1::PoolService::NewStub(channel)) {}
  const std::string address;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<v1::HostService::Stub> host;
  const std::unique_ptr<v1::PoolService::Stub> pool;
};

class GrpcManagerLink final : public ManagerLink {
 public:
  explicit GrpcManagerLink(const GrpcLinkOptions& options)
      : options_(options),
        backoff_(options.backoff_min, options.backoff_max, std::random_device()()),
        calls_(options.call_timeout),
        highest_epoch_(ReadEpoch(options.epoch_path, options.boot_id)),
        rotation_(options.addresses),
        said_(options.addresses.size()),
        wire_(std::make_shared<Wire>(options, options.addresses.front())),
        wired_with_(VersionOf(options)),
        loop_("manager-link") {
    MutexLock lock(door_->mutex);
    door_->link = this;
  }

  ~GrpcManagerLink() override { Stop(); }

  void Start(Handlers handlers) override {
    loop_.Post([this, handlers = std::move(handlers)]() mutable {
      handlers_ = std::move(handlers);
      Dial();
    });
  }

  void Stop() override {
    {
      MutexLock lock(door_->mutex);
      door_->link = nullptr;
    }
    calls_.Stop();
    loop_.Post([this] {
      stopping_ = true;
      ++attempt_;
      if (stream_ != nullptr) stream_->Cancel(absl::CancelledError("the host agent is stopping"));
      stream_.reset();
    });
    loop_.Stop();
    // The loop runs what was posted before it stops, so the stream has been cancelled; gRPC needs
    // this object until the last of them is gone.
    MutexLock lock(mutex_);
    while (live_streams_ > 0) streams_gone_.wait(lock.native());
  }

  void Send(v1::Report report) override {
    loop_.Post([this, report = std::move(report)]() mutable {
      if (session_ == 0) return;
      v1::AgentMessage message;
      *message.mutable_report() = std::move(report);
      SendInSession(std::move(message));
    });
  }

  void Answer(uint64_t task_id, absl::StatusOr<v1::DeviceLook> look) override {
    loop_.Post([this, task_id, look = std::move(look)]() mutable {
      if (session_ == 0) return;
      v1::AgentMessage message;
      v1::DeviceAnswer& answer = *message.mutable_device_answer();
      answer.set_id(task_id);
      answer.set_code(static_cast<int>(look.status().code()));
      if (look.ok()) {
        *answer.mutable_look() = *std::move(look);
      } else {
        FillOutcome(look.status(), answer.mutable_message(), answer.mutable_error());
      }
      SendInSession(std::move(message));
    });
  }

  void Allocate(v1::AllocateRegionRequest request,
                DoneWith<v1::AllocateRegionResponse> done) override {
    const std::shared_ptr<Wire> wire = CurrentWire();
    calls_.Call(wire->address, std::move(request), std::move(done), [&](auto... arguments) {
      wire->pool->async()->AllocateRegion(std::move(arguments)...);
    });
  }

  void Release(v1::ReleaseRegionRequest request,
               DoneWith<v1::ReleaseRegionResponse> done) override {
    const std::shared_ptr<Wire> wire = CurrentWire();
    calls_.Call(wire->address, std::move(request), std::move(done), [&](auto... arguments) {
      wire->pool->async()->ReleaseRegion(std::move(arguments)...);
    });
  }

  void Get(v1::GetRegionRequest request, DoneWith<v1::Region> done) override {
    const std::shared_ptr<Wire> wire = CurrentWire();
    calls_.Call(wire->address, std::move(request), std::move(done), [&](auto... arguments) {
      wire->pool->async()->GetRegion(std::move(arguments)...);
    });
  }

 private:
  // An attempt is everything from asking for a Hello to the end of the session. What belongs to an
  // earlier attempt finds that its number is not the current one, and does nothing.
  void Dial();
  void OnHello(uint64_t attempt, absl::StatusOr<v1::Hello> hello);
  void OnMessage(uint64_t attempt, v1::ManagerMessage message);
  void OnWelcome(v1::ManagerMessage message);
  absl::Status LowerEpoch(uint64_t epoch) const;
  void KeepEpoch(uint64_t epoch);
  void Beat(uint64_t attempt);
  void OnWelcomeTimeout(uint64_t attempt);
  void Refused(uint64_t attempt, const absl::Status& why) { Lost(attempt, why, IsPermanent(why)); }
  void Lost(uint64_t attempt, absl::Status why, bool permanent = false);
  // Whether another manager, which was not tried in this round, is dialled at once. If not, `why`
  // is what there is to say of the round.
  bool TurnFrom(absl::Status& why);
  void SendInSession(v1::AgentMessage message);
  static uint64_t VersionOf(const GrpcLinkOptions& options) {
    return options.tls == nullptr ? 0 : options.tls->version();
  }
  // To the manager whose turn it is, with the certificates of now. gRPC's channels hold theirs for
  // good, and dial again with them.
  std::shared_ptr<Wire> CurrentWire();
  // Of the manager whose turn it is.
  std::string Address() const {
    MutexLock lock(mutex_);
    return rotation_.address();
  }
  // That our own certificate has not ended: an agent may run for longer.
  absl::Status CheckOwnCertificate() const;
  // `why`, or what is wrong with a certificate where that is the reason.
  absl::Status Explained(absl::Status why) const;

  // By which a Hello comes back; the core may answer when the link is no more.
  struct Door {
    Mutex mutex;
    GrpcManagerLink* link ABSL_GUARDED_BY(mutex) = nullptr;
  };

  const GrpcLinkOptions options_;
  const std::shared_ptr<Door> door_ = std::make_shared<Door>();
  RandomBackoff backoff_;
  UnaryCalls calls_;

  // The loop's.
  Handlers handlers_;
  bool stopping_ = false;
  uint64_t attempt_ = 0;
  std::shared_ptr<SessionStream> stream_;
  std::shared_ptr<Wire> stream_wire_;  // Under stream_.
  uint64_t session_ = 0;               // 0: no Welcome yet.
  absl::Duration heartbeat_;
  absl::Duration welcomed_at_;
  uint64_t written_ = 0;  // Of the session's messages, and since when it is so many or all.
  absl::Duration written_at_;
  uint64_t highest_epoch_;                // That a manager has led under, in this boot.
  uint64_t kept_epoch_ = highest_epoch_;  // Of them, what the file has.

  mutable Mutex mutex_;
  std::condition_variable streams_gone_;
  int live_streams_ ABSL_GUARDED_BY(mutex_) = 0;
  ManagerRotation rotation_ ABSL_GUARDED_BY(mutex_);  // Changed by the loop only.
  std::vector<std::string> said_;  // The loop's: what the log has of each manager since a Welcome.
  std::shared_ptr<Wire> wire_ ABSL_GUARDED_BY(mutex_);
  uint64_t wired_with_ ABSL_GUARDED_BY(mutex_);  // The version of options_.tls.

  SystemClock clock_;
  Loop loop_;  // Last: its thread uses all of the above.
};

std::shared_ptr<Wire> GrpcManagerLink::CurrentWire() {
  MutexLock lock(mutex_);
  const uint64_t version = VersionOf(options_);
  if (version == wired_with_ && wire_->address == rotation_.address()) return wire_;
  wire_ = std::make_shared<Wire>(options_, rotation_.address());
  wired_with_ = version;
  return wire_;
}

absl::Status GrpcManagerLink::CheckOwnCertificate() const {
  if (options_.tls == nullptr) return absl::OkStatus();
  absl::Status status = CheckTimes(*options_.tls->current(), absl::Now());
  // Maybe it has been renewed, and this process does not know it.
  if (!status.ok() && options_.tls->Reload().ok()) return absl::OkStatus();
  return status;
}

absl::Status GrpcManagerLink::Explained(absl::Status why) const {
  if (options_.tls == nullptr || ReasonOf(why) != "MANAGER_UNREACHABLE") return why;
  absl::Status found =
      DiagnoseManager(Address(), options_.server_name, *options_.tls->current(), kDiagnosisTimeout);
  return found.ok() ? why : found;
}

void GrpcManagerLink::Dial() {
  if (stopping_) return;
  const uint64_t attempt = ++attempt_;
  handlers_.make_hello([door = door_, attempt](absl::StatusOr<v1::Hello> hello) {
    MutexLock lock(door->mutex);
    if (door->link == nullptr) return;
    door->link->loop_.Post([link = door->link, attempt, hello = std::move(hello)]() mutable {
      link->OnHello(attempt, std::move(hello));
    });
  });
  loop_.PostAfter(options_.welcome_timeout, [this, attempt] { OnWelcomeTimeout(attempt); });
}

// Opens the stream, unless this attempt is over: the core may take long to look at its host. A
// certificate of ours that has expired is reported here, since gRPC would not say why it failed.
void GrpcManagerLink::OnHello(uint64_t attempt, absl::StatusOr<v1::Hello> hello) {
  if (attempt != attempt_ || stream_ != nullptr) return;
  if (!hello.ok()) return Lost(attempt, hello.status());
  if (absl::Status status = CheckOwnCertificate(); !status.ok()) return Refused(attempt, status);
  v1::AgentMessage first;
  *first.mutable_hello() = *std::move(hello);
  SessionStream::Events events;
  events.on_message = [this, attempt](v1::ManagerMessage message) {
    OnMessage(attempt, std::move(message));
  };
  events.on_done = [this, attempt](absl::Status why) {
    if (why.ok()) why = absl::UnavailableError("the fabric manager has ended the session");
    if (attempt == attempt_ && session_ == 0) why = Explained(std::move(why));
    Refused(attempt, why);
  };
  events.on_gone = [this] {
    MutexLock lock(mutex_);
    --live_streams_;
    streams_gone_.notify_all();
  };
  {
    MutexLock lock(mutex_);
    ++live_streams_;
  }
  stream_wire_ = CurrentWire();
  stream_ = SessionStream::Start(stream_wire_->host.get(), stream_wire_->address, &loop_,
                                 std::move(first), std::move(events));
}

void GrpcManagerLink::OnMessage(uint64_t attempt, v1::ManagerMessage message) {
  if (attempt != attempt_) return;
  if (session_ == 0) {
    if (message.has_welcome() && message.session() != 0) return OnWelcome(std::move(message));
    return Lost(attempt, ProtocolError("did not begin the session with a Welcome"));
  }
  if (message.session() != session_) return;
  switch (message.body_case()) {
    case v1::ManagerMessage::kOffer:
      return handlers_.on_offer(std::move(*message.mutable_offer()));
    case v1::ManagerMessage::kWithdraw:
      return handlers_.on_withdraw(std::move(*message.mutable_withdraw()));
    case v1::ManagerMessage::kWelcome:
      return Lost(attempt, ProtocolError("has sent a second Welcome in one session"));
    case v1::ManagerMessage::kEventsSeen:
      return handlers_.on_events_seen(message.events_seen());
    case v1::ManagerMessage::kDeviceTask:
      return handlers_.on_device_task(std::move(*message.mutable_device_task()));
    case v1::ManagerMessage::BODY_NOT_SET:
      return;  // From a later release: not for us.
  }
}

// The remedy names the file that outlives a restart: where etcd was put back to an earlier state
// the manager is right, and the file is what has to go.
absl::Status GrpcManagerLink::LowerEpoch(uint64_t epoch) const {
  const std::string& kept = options_.epoch_path;
  return Refuse(
      absl::StatusCode::kUnavailable, "LOWER_EPOCH",
      absl::StrCat("the fabric manager at ", Address(), " leads under epoch ", epoch,
                   ", and one has led under epoch ", highest_epoch_),
      absl::StrCat("see which managers run (`cxlpool status`), and stop the one that was replaced; "
                   "if the store was put back to an earlier state, ",
                   kept.empty() ? "" : absl::StrCat("remove ", kept, " and "), "restart the agent"),
      {{"epoch", absl::StrCat(epoch)}});
}

// It is written down before anything is done that its manager asks for: the next agent of this boot
// knows it however this one ends. Where it cannot be, the agent works on, since what brings memory
// here must not depend on it, and tries again with the next session.
void GrpcManagerLink::KeepEpoch(uint64_t epoch) {
  highest_epoch_ = std::max(highest_epoch_, epoch);
  if (highest_epoch_ <= kept_epoch_ || CXLPOOL_MUTANT("epoch-is-not-kept")) return;
  if (options_.epoch_path.empty()) return;
  const int error = WriteRunFile(options_.epoch_path, kEpochText, options_.boot_id,
                                 absl::StrCat(highest_epoch_, "\n"));
  if (error == 0) {
    kept_epoch_ = highest_epoch_;
    return;
  }
  LogWarning(kSubject, options_.epoch_path, " cannot be written: ", std::strerror(error),
             "; the next agent of this boot does not know that a manager before this one was "
             "replaced (make room in /run, and see that the directory is the agent's own)");
}

// A manager that was replaced may not know it yet: what it wants of this host is no longer true.
void GrpcManagerLink::OnWelcome(v1::ManagerMessage message) {
  const uint64_t epoch = message.welcome().epoch();
  if (epoch != 0 && epoch < highest_epoch_ && !CXLPOOL_MUTANT("lower-epoch-accepted")) {
    return Lost(attempt_, LowerEpoch(epoch));
  }
  KeepEpoch(epoch);
  said_.assign(said_.size(), "");
  session_ = message.session();
  welcomed_at_ = written_at_ = clock_.Elapsed();
  heartbeat_ = std::clamp(absl::Milliseconds(message.welcome().heartbeat_ms()), kMinHeartbeat,
                          kMaxHeartbeat);
  handlers_.on_welcome(std::move(*message.mutable_welcome()));
  loop_.PostAfter(heartbeat_, [this, attempt = attempt_] { Beat(attempt); });
}

// Each message has to be handed to the network in its time: a manager that takes none is as good as
// gone, whatever its machine says to pings.
void GrpcManagerLink::Beat(uint64_t attempt) {
  if (attempt != attempt_) return;
  const absl::Duration now = clock_.Elapsed();
  if (stream_->idle()) {
    written_at_ = now;
    v1::AgentMessage message;
    message.mutable_heartbeat();
    SendInSession(std::move(message));
  } else if (stream_->written() != written_) {
    written_ = stream_->written();
    written_at_ = now;
  } else if (now - written_at_ > options_.write_timeout) {
    return Lost(attempt,
                Refuse(absl::StatusCode::kUnavailable, "MANAGER_UNREACHABLE",
                       absl::StrCat("the fabric manager at ", Address(), " has taken nothing for ",
                                    absl::FormatDuration(options_.write_timeout)),
                       "look at its log, and at the network between"));
  }
  loop_.PostAfter(heartbeat_, [this, attempt] { Beat(attempt); });
}

void GrpcManagerLink::SendInSession(v1::AgentMessage message) {
  message.set_session(session_);
  stream_->Send(std::move(message));
}

void GrpcManagerLink::OnWelcomeTimeout(uint64_t attempt) {
  if (attempt != attempt_ || session_ != 0) return;
  Lost(attempt, Refuse(absl::StatusCode::kDeadlineExceeded, "NO_ANSWER",
                       absl::StrCat("the fabric manager at ", Address(), " has not answered in ",
                                    absl::FormatDuration(options_.welcome_timeout)),
                       "look at its log, and at the network between"));
}

// Ends the attempt, and begins the next: at once with a manager that was not tried in this round,
// else after a pause. The core is told of a session that ended, and of a round without one.
void GrpcManagerLink::Lost(uint64_t attempt, absl::Status why, bool permanent) {
  if (attempt != attempt_) return;
  const bool had_session = session_ != 0;
  const bool settled = had_session && clock_.Elapsed() - welcomed_at_ >= kSettled;
  ++attempt_;
  session_ = 0;
  if (stream_ != nullptr) stream_->Cancel(why);
  stream_.reset();
  if (settled) {
    backoff_.Reset();
    MutexLock lock(mutex_);
    rotation_.Reached();
  }
  const std::string reason = ReasonOf(why);
  const bool at_once = TurnFrom(why);
  const absl::Duration wait = at_once     ? absl::ZeroDuration()
                              : permanent ? options_.refused_retry
                                          : backoff_.Next();
  if (had_session || !at_once) {
    if (ReasonOf(why) != reason) permanent = IsPermanent(why);
    handlers_.on_lost(std::move(why), permanent);
  }
  loop_.PostAfter(wait, [this] { Dial(); });
}

bool GrpcManagerLink::TurnFrom(absl::Status& why) {
  std::string from, to;
  std::string text(why.message());
  size_t index = 0;
  bool at_once = false;
  {
    MutexLock lock(mutex_);
    if (!ManagerRotation::MayAnswerElsewhere(why)) {
      rotation_.Reached();  // It leads, and so it is the one to ask again.
      return false;
    }
    index = rotation_.index();
    from = rotation_.address();
    at_once = rotation_.Turn(why);
    to = rotation_.address();
  }
  if (from == to) return at_once;
  // gRPC looks the address up while the core makes its Hello.
  CurrentWire();
  if (said_[index] != text) {
    LogInfo(kSubject, from, " has no session for this agent (", text, "); the next is ", to);
    said_[index] = std::move(text);
  }
  return at_once;
}

// A channel of its own connection. Keepalives find a manager whose machine is gone, which sends no
// end of the connection.
std::shared_ptr<grpc::Channel> MakeChannel(const GrpcLinkOptions& options,
                                           const std::string& address) {
  const bool several = options.addresses.size() > 1 && !CXLPOOL_MUTANT("gone-machine-keeps-agents");
  const Patience& patience = several ? kSeveralManagers : kOneManager;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, patience.ping_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, patience.answer_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // The link has a backoff of its own: gRPC's must not be the longer one.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(options.backoff_min)));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(options.backoff_min)));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, patience.connect_ms);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  if (options.tls != nullptr) {
    credentials = ClientTlsOf(*options.tls->current());
    if (!options.server_name.empty()) arguments.SetSslTargetNameOverride(options.server_name);
  } else {
    credentials = grpc::InsecureChannelCredentials();
  }
  auto channel = grpc::CreateCustomChannel(address, credentials, arguments);
  // Looks the address up now. gRPC 1.51 crashes in ClientChannel::CallData::CheckResolutionLocked
  // where a call is cancelled while the first look-up ends.
  channel->GetState(/*try_to_connect=*/true);
  return channel;
}

absl::Status CheckAddresses(const GrpcLinkOptions& options) {
  if (options.tls != nullptr) return absl::OkStatus();
  for (const std::string& address : options.addresses) {
    if (absl::Status status = CheckInsecureAddress(address); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Where the manager cannot be reached, DiagnoseManager looks for the cause: gRPC does not give it.
absl::StatusOr<std::string> AskOne(const GrpcLinkOptions& options, const std::string& address,
                                   const v1::Hello& hello, absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  v1::CheckSessionRequest request;
  *request.mutable_hello() = hello;
  v1::CheckSessionResponse answer;
  const auto stub = v1::HostService::NewStub(MakeChannel(options, address));
  absl::Status status = FromWire(stub->CheckSession(&context, request, &answer), context, address);
  if (status.ok()) {
    return absl::StrCat(
        "the fabric manager at ", address, " takes ", hello.host(), " as ", answer.identity(),
        answer.active_peer().empty()
            ? ""
            : absl::StrCat("; its agent has a session from ", answer.active_peer()));
  }
  if (ReasonOf(status) == "MANAGER_UNREACHABLE" && options.tls != nullptr) {
    absl::Status found =
        DiagnoseManager(address, options.server_name, *options.tls->current(), timeout);
    if (!found.ok()) return found;
  }
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ManagerLink>> MakeGrpcManagerLink(const GrpcLinkOptions& options) {
  if (absl::Status status = CheckAddresses(options); !status.ok()) return status;
  return std::make_unique<GrpcManagerLink>(options);
}

// One round of the managers, each with its part of the time.
absl::StatusOr<std::string> AskManager(const GrpcLinkOptions& options, const v1::Hello& hello,
                                       absl::Duration timeout) {
  if (absl::Status status = CheckAddresses(options); !status.ok()) return status;
  ManagerRotation rotation(options.addresses);
  while (true) {
    auto answer = AskOne(options, rotation.address(), hello,
                         timeout / static_cast<int64_t>(options.addresses.size()));
    if (answer.ok() || !ManagerRotation::MayAnswerElsewhere(answer.status())) return answer;
    absl::Status why = answer.status();
    if (!rotation.Turn(why)) return why;
  }
}

}  // namespace cxlpool::agent
