#include "fabric-manager/adapters/store_etcd/etcd_client.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "etcd/v3/kv.grpc.pb.h"
#include "proto/support/mutex.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

using etcdserverpb::KV;

// A part of a batch, or a page of packs, with what is around it.
constexpr int kMaxMessageBytes = 64 << 20;
constexpr int kKeepaliveMs = 2000;
// etcd finds a new leader sooner, and a member that is asked again has answered or not.
constexpr absl::Duration kAskTimeout = absl::Seconds(3);

// A PEM file: gRPC wants its text.
absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (in) return text.str();
  return Refuse(absl::StatusCode::kFailedPrecondition, "TLS_FILE",
                absl::StrCat("cannot read ", path), "give the manager's user the right to");
}

// gRPC's codes are Abseil's. The code tells the store what may have been done (INVALID_ARGUMENT:
// nothing), the message is for people.
absl::Status StatusOf(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat("etcd: ", status.error_message()));
}

}  // namespace

// A connection to each member, made when it is first used and again after it broke. One that ends
// is noticed within two keepalives, also where its machine says nothing.
class EtcdClient::Members {
 public:
  Members(const EtcdOptions& options, const std::shared_ptr<grpc::ChannelCredentials>& credentials)
      : timeout_(options.call_timeout) {
    for (const std::string& endpoint : options.endpoints) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      arguments.SetInt(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, kMaxMessageBytes);
      arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
      arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
      arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kKeepaliveMs);
      stubs_.push_back(KV::NewStub(grpc::CreateCustomChannel(endpoint, credentials, arguments)));
    }
  }

  // What was asked and not answered is given up; nobody is told of that any more.
  ~Members() {
    std::set<std::shared_ptr<Question>> asked;
    {
      MutexLock lock(mutex_);
      closing_ = true;
      asked = asked_;
    }
    for (const auto& question : asked) question->context.TryCancel();
    MutexLock lock(mutex_);
    while (!asked_.empty()) answered_.wait(lock.native());
  }

  // A read goes by the member that leads etcd unless it says that an old answer will do: so the
  // answer of each says that it reaches most of the others, too.
  void Ask(const std::string& key, EtcdMeters* meters) {
    for (size_t i = 0; i < stubs_.size(); ++i) {
      const auto question = std::make_shared<Question>();
      question->request.set_key(key);
      question->request.set_keys_only(true);
      question->context.set_deadline(absl::ToChronoTime(absl::Now() + kAskTimeout));
      {
        MutexLock lock(mutex_);
        asked_.insert(question);
      }
      stubs_[i]->async()->Range(
          &question->context, &question->request, &question->response,
          [this, question, member = &meters->members[i]](const grpc::Status& status) {
            MutexLock lock(mutex_);
            if (!closing_) {
              *member = status.ok() ? EtcdMeters::Member::kAnswers : EtcdMeters::Member::kAway;
            }
            asked_.erase(question);
            answered_.notify_all();
          });
    }
  }

  // Asks the member that answered last. Where that fails it is the next one's turn, whatever the
  // error was: a member without quorum answers, too, and another one may be better off.
  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (KV::Stub::*method)(grpc::ClientContext*, const Request&,
                                                     Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    // gRPC counts it from now by a clock that nobody sets.
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_));
    const grpc::Status status = (stubs_[current_].get()->*method)(&context, request, response);
    if (status.ok()) {
      ++answers_;
      return absl::OkStatus();
    }
    current_ = (current_ + 1) % stubs_.size();
    return StatusOf(status);
  }

  uint64_t answered() const { return answers_; }

 private:
  // To one member, until it is answered.
  struct Question {
    grpc::ClientContext context;
    etcdserverpb::RangeRequest request;
    etcdserverpb::RangeResponse response;
  };

  const absl::Duration timeout_;
  std::vector<std::unique_ptr<KV::Stub>> stubs_;
  size_t current_ = 0;
  std::atomic<uint64_t> answers_ = 0;
  Mutex mutex_;
  std::condition_variable answered_;
  std::set<std::shared_ptr<Question>> asked_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
};

// Files are read once: a certificate that was replaced counts at the next start.
absl::StatusOr<std::unique_ptr<EtcdClient>> EtcdClient::Make(EtcdOptions options) {
  if (options.endpoints.empty()) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_CONFIG", "no member of etcd is named",
                  "write store.endpoints");
  }
  auto credentials = grpc::InsecureChannelCredentials();
  if (!options.ca.empty()) {
    grpc::SslCredentialsOptions tls;
    for (const auto& [path, text] : {std::pair(&options.ca, &tls.pem_root_certs),
                                     std::pair(&options.cert, &tls.pem_cert_chain),
                                     std::pair(&options.key, &tls.pem_private_key)}) {
      absl::StatusOr<std::string> read = ReadWhole(*path);
      if (!read.ok()) return read.status();
      *text = *std::move(read);
    }
    credentials = grpc::SslCredentials(tls);
  }
  return std::unique_ptr<EtcdClient>(
      new EtcdClient(std::make_unique<Members>(options, credentials)));
}

EtcdClient::EtcdClient(std::unique_ptr<Members> members) : members_(std::move(members)) {}
EtcdClient::~EtcdClient() = default;

absl::StatusOr<etcdserverpb::RangeResponse> EtcdClient::Range(
    const etcdserverpb::RangeRequest& request) {
  etcdserverpb::RangeResponse response;
  absl::Status status = members_->Call(&KV::Stub::Range, request, &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<etcdserverpb::TxnResponse> EtcdClient::Txn(const etcdserverpb::TxnRequest& request) {
  etcdserverpb::TxnResponse response;
  absl::Status status = members_->Call(&KV::Stub::Txn, request, &response);
  if (!status.ok()) return status;
  return response;
}

absl::Status EtcdClient::Compact(int64_t revision) {
  etcdserverpb::CompactionRequest request;
  request.set_revision(revision);
  etcdserverpb::CompactionResponse response;
  return members_->Call(&KV::Stub::Compact, request, &response);
}

uint64_t EtcdClient::answered() const { return members_->answered(); }

void EtcdClient::AskMembers(const std::string& key, EtcdMeters* meters) {
  members_->Ask(key, meters);
}

}  // namespace cxlpool::fm
