// How a call comes in: judged by its headers, then read, then parsed. All services are reached
// through here.
//
// gRPC's own services read and parse a request before a handler sees who sent it. Here the methods
// are a table, and gRPC hands over each call as soon as its headers are there: who may not make the
// call is refused with none of its body read, kept or parsed. A request of somebody who may is
// bounded in bytes, in elements (2 bytes on the wire can become 130 in memory) and in time.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_CALLS_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_CALLS_H_

#include <google/protobuf/arena.h>
#include <google/protobuf/message.h>
#include <grpcpp/generic/async_generic_service.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/rpc/admission.h"
#include "fabric-manager/rpc/authorize.h"
#include "fabric-manager/rpc/call_log.h"
#include "fabric-manager/rpc/tenant_view.h"
#include "fabric-manager/service/meters.h"
#include "proto/support/loop.h"
#include "proto/support/mutex.h"
#include "proto/support/status_wire.h"

namespace cxlpool::fm {

class Calls;

// A call that was let in.
struct Admitted {
  grpc::CallbackServerContext* context;
  Caller caller;  // Knows where the call came from.
  Place place;    // Its place among the calls of its kind; given back when the call is over.
  MethodMeter* meter = nullptr;  // Null: nobody counts.
};

// How much of a request is taken.
struct RequestLimits {
  size_t max_bytes = size_t{64} << 10;
  size_t max_elements = 8192;  // Fields, and what is packed into them, at all depths.
};

// Is informed, by the peer and whether it has shown a certificate, of a call that ended before its
// request was there.
using NoteEmpty = std::function<void(const std::string& peer, bool has_certificate)>;

// A reactor that refuses a call, at once or some time later.
class RefusedCall final : public grpc::ServerGenericBidiReactor {
 public:
  // How many are answered late at a time.
  using Late = std::atomic<int>;

  // Answers at once. `note_empty` outlives it; null: nobody is informed.
  static RefusedCall* Now(grpc::CallbackServerContext& context, const absl::Status& status,
                          const NoteEmpty* note_empty = nullptr);

  // Answers after `delay`, on `timer`, or as soon as the call is cancelled, and counts in `late`
  // until then. All outlive it.
  static RefusedCall* After(absl::Duration delay, Executor* timer,
                            grpc::CallbackServerContext& context, const absl::Status& status,
                            const NoteEmpty* note_empty, Late* late);

  void OnCancel() override { Answer(); }
  void OnDone() override;

 private:
  RefusedCall(grpc::CallbackServerContext& context, absl::Status status,
              const NoteEmpty* note_empty, Late* late)
      : context_(context), status_(std::move(status)), note_empty_(note_empty), late_(late) {}

  // The first time only.
  void Answer();

  grpc::CallbackServerContext& context_;
  const absl::Status status_;
  const NoteEmpty* const note_empty_;
  Late* const late_;  // Null: it is answered at once.
  std::atomic<bool> answered_ = false;
  std::shared_ptr<RefusedCall> self_;  // Until OnDone; the timer has it, too.
};

// Parses `bytes`, which is empty afterwards; its elements are counted before anything is made of
// them. INVALID_ARGUMENT: REQUEST_TOO_LARGE; BAD_REQUEST: it is no message of that type.
absl::Status ParseRequest(grpc::ByteBuffer& bytes, const RequestLimits& limits,
                          google::protobuf::Message* message);

grpc::ByteBuffer ToBytes(const google::protobuf::Message& message);

// A call with one request: unary, or with a stream of answers. It reads the request, within
// Calls::kRequestTime, and then calls OnRequest once, unless the call has ended before.
class OneRequestCall : public grpc::ServerGenericBidiReactor {
 public:
  // Starts to read. Right after construction.
  void ReadRequest(Calls* calls);

 protected:
  explicit OneRequestCall(Admitted admitted) : admitted_(std::move(admitted)) {}

  // On a thread of gRPC's. Finishes the call now or later, or goes on with writes.
  virtual void OnRequest(grpc::ByteBuffer& request) = 0;

  grpc::CallbackServerContext* context() const { return admitted_.context; }
  const Caller& caller() const { return admitted_.caller; }
  // Its caller says from now on which call it was, too: for the audit trail.
  void NoteRequestId(const std::string& request_id);
  // INVALID_ARGUMENT/BAD_FIELD: it changes something, and asks for what this release does not know.
  absl::Status CheckDemands(const google::protobuf::Message& request) const;
  // Before the call is finished: its caller may make the next as soon as the answer is there.
  void GiveBackPlace() { admitted_.place.GiveBack(); }
  // Before an answer of so many bytes is sent: the place of a large one is kept until it was read.
  // RESOURCE_EXHAUSTED/TOO_MUCH_UNREAD: it is not to be sent. Never of a call that changed
  // something.
  absl::Status PrepareToSend(size_t bytes);
  // Counts how the call ended: for those that NoteAnswer is not called for. Before it is finished.
  void CountEnd(const absl::Status& status) const;
  // Counts how the call ended and how long it took, and calls Calls::Hooks::answered. Likewise.
  void NoteAnswer(const google::protobuf::Message& request, const absl::Status& status) const;
  // Calls::Hooks::meters.
  Meters* meters() const;
  // Calls Calls::Hooks::answered, as if `request` had been a call by itself.
  void Report(const Caller& caller, const google::protobuf::Message& request,
              const absl::Status& status) const;

 private:
  friend class Calls;

  void OnReadDone(bool ok) final;

  Admitted admitted_;
  grpc::ByteBuffer request_;
  Calls* calls_ = nullptr;
  // Among the calls whose request is being read. Guarded by Calls::mutex_.
  absl::Duration since_;  // Of Clock::Elapsed.
  OneRequestCall* earlier_ = nullptr;
  OneRequestCall* later_ = nullptr;
};

// A unary call whose request is parsed: `handler` gets it and answers with Finish, now or later,
// from any thread. Request and response stay until then, and are made and forgotten together.
template <typename Request, typename Response>
class UnaryCall final : public OneRequestCall {
 public:
  using Handler = std::function<void(UnaryCall&)>;

  // `handler` outlives it.
  UnaryCall(Admitted admitted, const Handler& handler, const RequestLimits& limits)
      : OneRequestCall(std::move(admitted)), handler_(handler), limits_(limits) {}

  using OneRequestCall::caller;
  using OneRequestCall::context;
  const Request& request() const { return *request_; }
  Response* response() { return response_; }

  // One of a batch was refused for want of a right, though the call as a whole is not.
  template <typename Item>
  void NoteRefused(const Item& item, const absl::Status& status) const {
    Caller of_item = caller();
    if (Uuid id; ParseUuid(item.request_id(), id)) of_item.SetRequestId(id);
    Report(of_item, item, status);
  }

  // Request and response are gone then: what waits for its reader is the answer's bytes alone.
  void Finish(absl::Status status) {
    const bool for_tenants = caller().for_tenants();
    if (status.ok()) {
      if (for_tenants) HideOthers(response_);
      answer_ = ToBytes(*response_);
      status = PrepareToSend(answer_.Length());
    }
    if (request_ != nullptr) NoteAnswer(*request_, status);
    arena_.reset();
    if (status.ok()) return StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK);
    GiveBackPlace();
    answer_.Clear();
    grpc::ServerGenericBidiReactor::Finish(
        ToWire(for_tenants ? HideOthers(status) : status, *context()));
  }

 private:
  void OnRequest(grpc::ByteBuffer& bytes) override {
    google::protobuf::ArenaOptions options;
    // Room for a request that is about one Region, and for its answer.
    options.start_block_size = std::clamp(bytes.Length() * 4, size_t{2} << 10, size_t{64} << 10);
    options.max_block_size = size_t{256} << 10;
    arena_.emplace(options);
    request_ = google::protobuf::Arena::CreateMessage<Request>(&*arena_);
    response_ = google::protobuf::Arena::CreateMessage<Response>(&*arena_);
    if (absl::Status status = ParseRequest(bytes, limits_, request_); !status.ok()) {
      return Finish(status);
    }
    // Requests that change nothing have no request_id.
    if constexpr (requires { request_->request_id(); }) NoteRequestId(request_->request_id());
    if (absl::Status status = CheckDemands(*request_); !status.ok()) return Finish(status);
    handler_(*this);
  }
  void OnDone() override { delete this; }

  const Handler& handler_;
  const RequestLimits limits_;
  std::optional<google::protobuf::Arena> arena_;
  Request* request_ = nullptr;
  Response* response_ = nullptr;
  grpc::ByteBuffer answer_;
};

// What the connections' side is informed of.
struct CallHooks {
  // A call of `caller` from `peer` (grpc::ServerContext::peer) is about to be let in; an error
  // refuses it.
  std::function<absl::Status(const std::string& peer, const Caller& caller)> let_in;
  // A call of `method` was refused before its request was read.
  std::function<void(const std::string& peer, const std::string& method, const absl::Status& why)>
      refused;
  NoteEmpty empty;
  // A unary call's request was read, and it is about to be answered.
  std::function<void(const AnsweredCall& call)> answered;
  // Counts the calls of each method that is added.
  Meters* meters = nullptr;
};

// The table of methods, and what every call passes first. Methods are added before the server
// starts; then any thread.
class Calls final : public grpc::CallbackGenericService {
 public:
  static constexpr absl::Duration kRequestTime = absl::Seconds(5);
  // A tenant that calls more often than it may gets its refusals that much later: who waits for
  // answers then calls less, and the refusals take less of the manager's time. So many wait at a
  // time, which is some MiB in gRPC; what is beyond them is refused at once.
  static constexpr absl::Duration kTooBusyDelay = absl::Milliseconds(250);
  static constexpr int kMostLate = 2048;

  // Makes the reactor of an admitted call.
  using Start = std::function<grpc::ServerGenericBidiReactor*(Admitted)>;

  using Hooks = CallHooks;

  // `timer` ends calls whose request does not come. All outlive this, which outlives its calls.
  Calls(const ViewHolder* views, Admission* admission, Executor* timer, Hooks hooks = {},
        const std::vector<std::string>& admins = {});

  // `cost`: as how many calls it counts, where somebody's calls are counted a second.
  void Add(const std::string& path, Admission::Kind kind, Start start, int cost = 1);

  // A unary method that `service`, which outlives this, answers by `handler`.
  template <typename Service, typename Request, typename Response>
  void AddUnary(const std::string& path, Service* service,
                void (Service::*handler)(UnaryCall<Request, Response>&),
                const RequestLimits& limits = {}) {
    using Call = UnaryCall<Request, Response>;
    // One for all calls. It stays as long as the table does.
    auto answer = std::make_shared<const typename Call::Handler>(
        [service, handler](Call& call) { (service->*handler)(call); });
    Add(
        path, Admission::Kind::kCall,
        [this, answer = std::move(answer), limits](Admitted admitted) {
          auto* call = new Call(std::move(admitted), *answer, limits);
          call->ReadRequest(this);
          return call;
        },
        CostOf(limits));
  }

  // Ends the calls and watches of peers that may not make them any more. After each change of the
  // pool's access rules. Not from one of gRPC's own callbacks.
  void JudgeAgain();

  // Who is an admin whatever roles are bound; judges again.
  void SetAdmins(const std::vector<std::string>& admins);

  // From now on that is done when a binding ends, too. Once, after the methods are added.
  void WatchRoleBindings();

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  friend class OneRequestCall;

  void WatchRoleBindings(absl::Time since);

  // As whom the call may be made by these rules, or by those of now.
  absl::StatusOr<Caller> Judge(const grpc::GenericCallbackServerContext& context,
                               const AccessRules& access,
                               const FixedAdmins::Identities& admins) const;
  absl::StatusOr<Caller> Judge(const grpc::GenericCallbackServerContext& context) const;

  // The method's reactor, or why there is none.
  absl::StatusOr<grpc::ServerGenericBidiReactor*> LetIn(
      grpc::GenericCallbackServerContext* context);

  // By the bytes that a request may have.
  static int CostOf(const RequestLimits& limits) {
    return static_cast<int>(std::max<size_t>(1, limits.max_bytes / RequestLimits().max_bytes));
  }

  struct Method {
    Admission::Kind kind;
    Start start;
    int cost = 1;
    MethodMeter* meter = nullptr;
  };

  void Count(MethodMeter* meter, const absl::Status& status);
  void Link(OneRequestCall* call);
  // False: the call has been ended already.
  bool Unlink(OneRequestCall* call);
  void UnlinkLocked(OneRequestCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLate();
  grpc::ServerGenericBidiReactor* Refused(grpc::GenericCallbackServerContext* context,
                                          const absl::Status& why);

  const ViewHolder* const views_;
  Admission* const admission_;
  Executor* const timer_;
  const Hooks hooks_;
  FixedAdmins admins_;
  const SystemClock clock_;
  absl::flat_hash_map<std::string, Method> methods_;
  RefusedCall::Late late_ = 0;

  Mutex mutex_;
  // The calls whose request is being read, the oldest first.
  OneRequestCall* oldest_ ABSL_GUARDED_BY(mutex_) = nullptr;
  OneRequestCall* newest_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool ticking_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_CALLS_H_
