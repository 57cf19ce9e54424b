#include "fabric-manager/rpc/calls.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "proto/support/unknown_field.h"

namespace cxlpool::fm {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr absl::Duration kTick = absl::Seconds(1);
constexpr absl::Duration kOverlap = absl::Seconds(1);
constexpr int kMaxDepth = 32;
// gRPC sends less than that without waiting for its reader, as a rule.
constexpr size_t kLargeAnswer = size_t{64} << 10;

// Takes from `left` one for each field on the wire, and for each element that is packed into one,
// in `in` up to its limit and in the messages inside; false once there are more. Where the bytes
// are no message of `type` the count ends early: the parser ends there, too.
bool CountElements(CodedInputStream& in, const Descriptor* type, int depth, size_t& left) {
  while (const uint32_t tag = in.ReadTag()) {
    if (left == 0) return false;
    --left;
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&in, tag)) return true;
      continue;
    }
    int length = 0;
    if (!in.ReadVarintSizeAsInt(&length)) return true;
    const FieldDescriptor* field = type->FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    if (field != nullptr && field->type() == FieldDescriptor::TYPE_MESSAGE && depth < kMaxDepth) {
      const auto limit = in.PushLimit(length);
      if (!CountElements(in, field->message_type(), depth + 1, left)) return false;
      if (in.BytesUntilLimit() > 0) return true;
      in.PopLimit(limit);
      continue;
    }
    if (field != nullptr && field->is_packable()) {
      // A byte for each element at least.
      if (left < static_cast<size_t>(length)) return false;
      left -= static_cast<size_t>(length);
    }
    if (!in.Skip(length)) return true;
  }
  return true;
}

absl::Status TooLarge(const Descriptor& type, const std::string& what, size_t max) {
  return Refuse(absl::StatusCode::kInvalidArgument, "REQUEST_TOO_LARGE",
                absl::StrCat("the ", type.name(), " has ", what), "send less in one call",
                {{"max", absl::StrCat(max)}});
}

}  // namespace

RefusedCall* RefusedCall::Now(grpc::CallbackServerContext& context, const absl::Status& status,
                              const NoteEmpty* note_empty) {
  std::shared_ptr<RefusedCall> call(new RefusedCall(context, status, note_empty, nullptr));
  call->self_ = call;
  call->Answer();
  return call.get();
}

RefusedCall* RefusedCall::After(absl::Duration delay, Executor* timer,
                                grpc::CallbackServerContext& context, const absl::Status& status,
                                const NoteEmpty* note_empty, Late* late) {
  std::shared_ptr<RefusedCall> call(new RefusedCall(context, status, note_empty, late));
  call->self_ = call;
  ++*late;
  timer->PostAfter(delay, [call] { call->Answer(); });
  return call.get();
}

void RefusedCall::Answer() {
  if (answered_.exchange(true)) return;
  if (late_ != nullptr) --*late_;
  Finish(ToWire(status_, context_));
}

void RefusedCall::OnDone() {
  // Its request is never read: that it was taken back is all that is known.
  if (note_empty_ != nullptr && *note_empty_ != nullptr && context_.IsCancelled()) {
    (*note_empty_)(context_.peer(), context_.auth_context()->IsPeerAuthenticated());
  }
  self_.reset();
}

// Counts the elements before anything is made of them: two bytes on the wire can become 130 in
// memory.
absl::Status ParseRequest(grpc::ByteBuffer& bytes, const RequestLimits& limits,
                          google::protobuf::Message* message) {
  const Descriptor& type = *message->GetDescriptor();
  const size_t size = bytes.Length();
  if (size > limits.max_bytes) {
    return TooLarge(type, absl::StrCat(size, " bytes; at most ", limits.max_bytes, " are taken"),
                    limits.max_bytes);
  }
  // A field takes two bytes at least, but for the last: less than this cannot hold too many.
  if (size > limits.max_elements && !CXLPOOL_MUTANT("elements-not-counted")) {
    grpc::ProtoBufferReader reader(&bytes);
    CodedInputStream in(&reader);
    size_t left = limits.max_elements;
    if (!CountElements(in, &type, 0, left)) {
      return TooLarge(type, absl::StrCat("more than ", limits.max_elements, " fields"),
                      limits.max_elements);
    }
  }
  if (grpc::SerializationTraits<google::protobuf::Message>::Deserialize(&bytes, message).ok()) {
    return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_REQUEST",
                absl::StrCat("what was sent is no ", type.full_name()),
                "use a client of the manager's version");
}

grpc::ByteBuffer ToBytes(const google::protobuf::Message& message) {
  grpc::ByteBuffer bytes;
  bool own = false;
  // Fails for messages beyond 2 GiB only, which no answer of ours is.
  grpc::SerializationTraits<google::protobuf::Message>::Serialize(message, &bytes, &own);
  return bytes;
}

void OneRequestCall::ReadRequest(Calls* calls) {
  calls->Link(this);
  StartRead(&request_);
}

void OneRequestCall::OnReadDone(bool ok) {
  // Only the first message is ever read, so this comes once.
  if (!calls_->Unlink(this)) return;
  if (!ok) {
    GiveBackPlace();
    const absl::Status ended =
        Refuse(absl::StatusCode::kInvalidArgument, "BAD_REQUEST",
               "the call ended without a request", "use a client of the manager's version");
    CountEnd(ended);
    if (calls_->hooks_.empty != nullptr) {
      calls_->hooks_.empty(caller().origin().peer,
                           context()->auth_context()->IsPeerAuthenticated());
    }
    Finish(ToWire(ended, *context()));
    return;
  }
  OnRequest(request_);
}

void OneRequestCall::NoteRequestId(const std::string& request_id) {
  // What is no UUID is refused later, where it has to be one.
  if (Uuid id; ParseUuid(request_id, id)) admitted_.caller.SetRequestId(id);
}

// Of what is only read less can be lost, and an answer is of use.
absl::Status OneRequestCall::CheckDemands(const google::protobuf::Message& request) const {
  const auto* call = static_cast<grpc::GenericCallbackServerContext*>(admitted_.context);
  if (OnlyReads(call->method()) || CXLPOOL_MUTANT("unknown-demands-are-dropped")) {
    return absl::OkStatus();
  }
  return CheckFields(request, "manager");
}

absl::Status OneRequestCall::PrepareToSend(size_t bytes) {
  if (bytes >= kLargeAnswer && !CXLPOOL_MUTANT("unread-answers-have-no-place")) {
    const auto* call = static_cast<grpc::GenericCallbackServerContext*>(admitted_.context);
    absl::Status status = admitted_.place.AddUnread(bytes);
    return OnlyReads(call->method()) ? status : absl::OkStatus();
  }
  GiveBackPlace();
  return absl::OkStatus();
}

void OneRequestCall::CountEnd(const absl::Status& status) const {
  if (admitted_.meter != nullptr) calls_->Count(admitted_.meter, status);
}

Meters* OneRequestCall::meters() const { return calls_->hooks_.meters; }

void OneRequestCall::NoteAnswer(const google::protobuf::Message& request,
                                const absl::Status& status) const {
  CountEnd(status);
  if (admitted_.meter != nullptr) {
    admitted_.meter->duration.Observe(calls_->clock_.Elapsed() - since_);
  }
  Report(caller(), request, status);
}

void OneRequestCall::Report(const Caller& caller, const google::protobuf::Message& request,
                            const absl::Status& status) const {
  if (calls_->hooks_.answered == nullptr) return;
  const auto* call = static_cast<grpc::GenericCallbackServerContext*>(admitted_.context);
  calls_->hooks_.answered({.method = call->method(),
                           .peer = caller.origin().peer,
                           .caller = caller,
                           .tenant = caller.for_tenants() && caller.tenants().size() == 1
                                         ? absl::string_view(caller.tenants().front())
                                         : absl::string_view(),
                           .request = request,
                           .status = status});
}

Calls::Calls(const ViewHolder* views, Admission* admission, Executor* timer, Hooks hooks,
             const std::vector<std::string>& admins)
    : views_(views),
      admission_(admission),
      timer_(timer),
      hooks_(std::move(hooks)),
      admins_(admins) {}

void Calls::Add(const std::string& path, Admission::Kind kind, Start start, int cost) {
  Method& method = methods_[path];
  method = Method{kind, std::move(start), cost};
  if (hooks_.meters == nullptr) return;
  auto& meter = hooks_.meters->methods[path.substr(path.rfind('/') + 1)];
  meter = std::make_unique<MethodMeter>();
  method.meter = meter.get();
}

void Calls::Count(MethodMeter* meter, const absl::Status& status) {
  const auto code = static_cast<size_t>(status.raw_code());
  meter->answered[std::min(code, MethodMeter::kCodes - 1)].Add();
  // A client that went away was refused nothing.
  if (!status.ok() && !absl::IsCancelled(status)) {
    hooks_.meters->refusals.Add(ReasonOrCode(status));
  }
}

namespace {

// Whether somebody who is `now` may go on with what was let in as `was`: what a stream shows was
// decided when it began.
bool GoesOn(const Caller& now, const Caller& was) {
  return now == was || (now.for_pool() && was.for_pool());
}

}  // namespace

grpc::ServerGenericBidiReactor* Calls::CreateReactor(grpc::GenericCallbackServerContext* context) {
  auto reactor = LetIn(context);
  if (reactor.ok()) return *reactor;
  if (hooks_.refused != nullptr) {
    hooks_.refused(context->peer(), context->method(), reactor.status());
  }
  if (const auto method = methods_.find(context->method()); method != methods_.end()) {
    if (method->second.meter != nullptr) Count(method->second.meter, reactor.status());
  }
  return Refused(context, reactor.status());
}

grpc::ServerGenericBidiReactor* Calls::Refused(grpc::GenericCallbackServerContext* context,
                                               const absl::Status& why) {
  if (ReasonOrCode(why) != "TENANT_TOO_BUSY" || late_ >= kMostLate) {
    return RefusedCall::Now(*context, why, &hooks_.empty);
  }
  return RefusedCall::After(kTooBusyDelay, timer_, *context, why, &hooks_.empty, &late_);
}

absl::StatusOr<Caller> Calls::Judge(const grpc::GenericCallbackServerContext& context,
                                    const AccessRules& access,
                                    const FixedAdmins::Identities& admins) const {
  return Authorize(*context.auth_context(), AuthorizationOf(context), context.method(), access,
                   admins, *views_);
}

absl::StatusOr<Caller> Calls::Judge(const grpc::GenericCallbackServerContext& context) const {
  return Judge(context, *views_->GetAccessRules(), *admins_.Get());
}

// Everything that happens before a byte of the request is asked for. What it was judged by is held
// against what there is once the call is among those under way, which are judged again after each
// change: so none slips in between.
absl::StatusOr<grpc::ServerGenericBidiReactor*> Calls::LetIn(
    grpc::GenericCallbackServerContext* context) {
  const auto access = views_->GetAccessRules();
  const auto admins = admins_.Get();
  absl::StatusOr<Caller> caller = Judge(*context, *access, *admins);
  if (CXLPOOL_MUTANT("judged-after-the-request") && !caller.ok()) caller = Caller();
  if (!caller.ok()) return caller.status();
  const auto method = methods_.find(context->method());
  if (method == methods_.end()) {
    // There is a rule for it, and no method: a seam of ours is broken.
    return absl::InternalError(absl::StrCat(context->method(), " has a rule and is not served"));
  }
  std::string peer = context->peer();  // gRPC makes the text anew for everybody who asks.
  if (hooks_.let_in != nullptr) {
    if (absl::Status status = hooks_.let_in(peer, *caller); !status.ok()) return status;
  }
  absl::StatusOr<Place> place =
      admission_->Enter(method->second.kind, *caller, context, method->second.cost);
  if (!place.ok()) return place.status();
  // A change since Authorize has not found this call among those under way.
  if (views_->GetAccessRules() != access || admins_.Get() != admins) {
    const auto still = Judge(*context);
    if (!still.ok()) return still.status();
    if (!GoesOn(*still, *caller)) {
      return Refuse(absl::StatusCode::kAborted, "RIGHTS_CHANGED",
                    absl::StrCat("the role of ", caller->identity(), " has just changed"),
                    "call again", {{"identity", caller->identity()}});
    }
  }
  caller->SetOrigin({.peer = std::move(peer)});
  return method->second.start(
      Admitted{context, *std::move(caller), *std::move(place), method->second.meter});
}

void Calls::JudgeAgain() {
  if (CXLPOOL_MUTANT("lost-roles-stand")) return;
  admission_->Judge([this](const grpc::GenericCallbackServerContext& context, const Caller& was) {
    const auto now = Judge(context);
    return now.ok() && (GoesOn(*now, was) || CXLPOOL_MUTANT("demoted-watches-stand"));
  });
}

void Calls::SetAdmins(const std::vector<std::string>& admins) {
  admins_.Set(admins);
  JudgeAgain();
}

void Calls::WatchRoleBindings() { WatchRoleBindings(absl::Now()); }

// Looks every few seconds: bindings that end are few, and no change of the pool says that one did.
// Each look begins where the one before was begun, which may have taken a while, and a little
// earlier: a call that was judged just before its role ended may have been let in just after.
void Calls::WatchRoleBindings(absl::Time since) {
  timer_->PostAfter(kTick, [this, since] {
    const absl::Time now = absl::Now();
    const auto access = views_->GetAccessRules();
    const bool ended = std::any_of(
        access->bindings.begin(), access->bindings.end(),
        [&](const auto& bound) { return bound.second.end > since && bound.second.end <= now; });
    if (ended) JudgeAgain();
    WatchRoleBindings(now - kOverlap);
  });
}

void Calls::Link(OneRequestCall* call) {
  bool begin = false;
  {
    MutexLock lock(mutex_);
    call->calls_ = this;
    call->since_ = clock_.Elapsed();
    call->earlier_ = newest_;
    (newest_ == nullptr ? oldest_ : newest_->later_) = call;
    newest_ = call;
    begin = !std::exchange(ticking_, true);
  }
  if (begin) timer_->PostAfter(kTick, [this] { EndLate(); });
}

bool Calls::Unlink(OneRequestCall* call) {
  MutexLock lock(mutex_);
  // The only one of a list has no neighbours either.
  if (call->earlier_ == nullptr && call->later_ == nullptr && oldest_ != call) return false;
  UnlinkLocked(call);
  return true;
}

void Calls::UnlinkLocked(OneRequestCall* call) {
  (call->earlier_ == nullptr ? oldest_ : call->earlier_->later_) = call->later_;
  (call->later_ == nullptr ? newest_ : call->later_->earlier_) = call->earlier_;
  call->earlier_ = nullptr;
  call->later_ = nullptr;
}

// Ends calls whose request has not come in time. A call that was unlinked here is finished here,
// and stays until then: gRPC lets go of a reactor only after Finish.
void Calls::EndLate() {
  while (true) {
    OneRequestCall* late = nullptr;
    {
      MutexLock lock(mutex_);
      if (oldest_ == nullptr) {
        ticking_ = false;
        return;
      }
      if (clock_.Elapsed() - oldest_->since_ < kRequestTime) break;
      late = oldest_;
      UnlinkLocked(late);
    }
    late->GiveBackPlace();
    const absl::Status too_late =
        Refuse(absl::StatusCode::kDeadlineExceeded, "REQUEST_TIMEOUT",
               absl::StrCat("the request did not come within ", absl::FormatDuration(kRequestTime)),
               "call again");
    late->CountEnd(too_late);
    late->Finish(ToWire(too_late, *late->context()));
  }
  timer_->PostAfter(kTick, [this] { EndLate(); });
}

}  // namespace cxlpool::fm
