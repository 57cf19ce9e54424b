#include "test/crash/contenders.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "test/crash/pool.h"

namespace cxlpool::crash {
namespace {

constexpr int kContenders = 3;
constexpr uint64_t kNames = 3;
// A manager that is stopped keeps a call for so long; then another one is asked.
constexpr absl::Duration kPatience = absl::Milliseconds(300);
constexpr absl::Duration kPause = absl::Milliseconds(20);  // Where nobody answers.
// At most, between two calls: a history of more than a thousand on one name cannot be judged.
constexpr absl::Duration kThinks = absl::Milliseconds(16);
// Of a call that nobody answers, and of what is to be gone in the end.
constexpr absl::Duration kLimit = absl::Seconds(20);

int64_t NowMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// What an answer shows of the Region, as the judge wants it.
void WriteDown(const v1::Region& region, sim::ClientOp& op) {
  op.tag = region.tag();
  op.generation = region.generation();
  op.revision = region.revision();
  op.answered_granules = region.size_bytes() / kGranule;
  op.resizing = region.resizing();
  op.state = v1::Region::State_Name(region.state());
  for (const v1::Attachment& attachment : region.attachments()) {
    op.hosts.push_back({attachment.host(), attachment.detaching()});
  }
}

// GetRegion answers the Region itself, the others one within their answer.
const v1::Region& RegionOf(const v1::Region& answer) { return answer; }
template <typename Answer>
const v1::Region& RegionOf(const Answer& answer) {
  return answer.region();
}

template <typename Request>
Request WithId() {
  Request request;
  request.set_request_id(FormatUuid(RandomUuid()));
  return request;
}

}  // namespace

// One of them: a call after the other, and what came of each. Used by its own thread alone.
class Contenders::Contender {
 public:
  Contender(const Contenders& all, int number)
      : all_(all), number_(number), random_(all.seed_ + static_cast<uint64_t>(number)) {
    for (const std::string& socket : all.sockets_) {
      clients_.push_back(std::make_unique<Client>(socket));
    }
  }

  std::vector<sim::ClientOp> Run() {
    for (; !all_.stop_; absl::SleepFor(kThinks * (random_() % 100) / 100)) One();
    return std::move(history_);
  }

 private:
  std::string Name() { return absl::StrCat(all_.prefix_, random_() % kNames); }

  // One call of any kind on any of the names. Whether the Region is there is left to chance: a
  // refusal is an answer, and has to fit as well.
  void One() {
    sim::ClientOp op;
    op.client = number_;
    op.request = history_.size();
    op.region_id = Name();
    const std::string name = "regions/" + op.region_id;
    const uint64_t dice = random_() % 10;
    if (dice < 3) {
      op.kind = sim::ClientOp::kAllocate;
      op.size_granules = 1 + random_() % 3;
      auto request = WithId<v1::AllocateRegionRequest>();
      request.set_region_id(op.region_id);
      request.set_size_bytes(op.size_granules * kGranule);
      Send(&PoolStub::AllocateRegion, request, std::move(op));
    } else if (dice < 6) {
      op.kind = sim::ClientOp::kGet;
      v1::GetRegionRequest request;
      request.set_name(name);
      Send(&PoolStub::GetRegion, request, std::move(op));
    } else if (dice < 7) {
      op.kind = sim::ClientOp::kResize;
      op.size_granules = 1 + random_() % 6;
      auto request = WithId<v1::ResizeRegionRequest>();
      request.set_name(name);
      request.set_size_bytes(op.size_granules * kGranule);
      Send(&PoolStub::ResizeRegion, request, std::move(op));
    } else if (dice < 8) {
      op.kind = sim::ClientOp::kRename;
      op.new_region_id = Name();
      auto request = WithId<v1::RenameRegionRequest>();
      request.set_name(name);
      request.set_new_region_id(op.new_region_id);
      Send(&PoolStub::RenameRegion, request, std::move(op));
    } else {
      op.kind = sim::ClientOp::kRelease;
      op.detach_all = true;
      auto request = WithId<v1::ReleaseRegionRequest>();
      request.set_name(name);
      request.set_detach_all(true);
      Send(&PoolStub::ReleaseRegion, request, std::move(op));
    }
  }

  // Makes one operation of it, however often it is sent: the request_id is the same each time, and
  // the interval goes from the first sending to the answer. The manager that answered last is asked
  // first; where it is silent or leads no more, the next one. Without an answer within kLimit
  // nobody knows what became of it, and the judge may take it for done at any time, or never.
  template <typename Method, typename Request>
  void Send(Method method, const Request& request, sim::ClientOp op) {
    op.invoke_us = NowMicros();
    op.sends = 0;
    for (const absl::Time end = absl::Now() + kLimit; absl::Now() < end; absl::SleepFor(kPause)) {
      for (size_t tries = 0; tries < clients_.size(); ++tries) {
        ++op.sends;
        const auto answer = clients_[serves_]->Call(method, request, kPatience);
        if (answer.ok()) {
          op.return_us = NowMicros();
          op.outcome = sim::ClientOp::kOk;
          WriteDown(RegionOf(*answer), op);
          return history_.push_back(std::move(op));
        }
        if (!Unanswered(answer.status())) {
          op.return_us = NowMicros();
          op.outcome = sim::ClientOp::kRefused;
          op.reason = ReasonOf(answer.status());
          return history_.push_back(std::move(op));
        }
        // NOT_LEADER: it has done nothing, so this sending cannot have been carried out.
        if (ReasonOf(answer.status()) == "NOT_LEADER") --op.sends;
        serves_ = (serves_ + 1) % clients_.size();
      }
    }
    history_.push_back(std::move(op));
  }

  const Contenders& all_;
  const int number_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Client>> clients_;
  size_t serves_ = 0;  // Who answered last.
  std::vector<sim::ClientOp> history_;
};

Contenders::Contenders(std::vector<std::string> sockets, uint64_t life, uint64_t seed)
    : sockets_(std::move(sockets)),
      prefix_(absl::StrCat("contended-", life, "-")),
      seed_(seed),
      histories_(kContenders) {
  for (int i = 0; i < kContenders; ++i) {
    threads_.emplace_back(
        [this, i] { histories_[static_cast<size_t>(i)] = Contender(*this, i).Run(); });
  }
}

Contenders::~Contenders() { Join(); }

void Contenders::Join() {
  stop_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

// The histories of all threads are judged as one. Their Regions are on no host and no
// device fails: with both excluded the check is sharper.
absl::Status Contenders::End() {
  Join();
  std::vector<sim::ClientOp> history;
  for (auto& part : histories_) {
    history.insert(history.end(), std::make_move_iterator(part.begin()),
                   std::make_move_iterator(part.end()));
  }
  answered_ = static_cast<size_t>(
      std::count_if(history.begin(), history.end(),
                    [](const sim::ClientOp& op) { return op.outcome != sim::ClientOp::kUnknown; }));
  const auto judged = sim::CheckRegionHistory(
      history, {.model = {.attachments_fail = false, .devices_fail = false}});
  names_ = judged.names;
  gave_up_ = judged.gave_up;
  if (!judged.ok()) return absl::InternalError(absl::StrCat("not linearizable: ", judged.why));
  return Clear();
}

// Releases what is left, again and again until nothing is: the audit of the next life would find
// Regions that no client of the load has asked for. Standbys refuse and are passed over.
absl::Status Contenders::Clear() {
  std::vector<std::unique_ptr<Client>> clients;
  for (const std::string& socket : sockets_) clients.push_back(std::make_unique<Client>(socket));
  std::string left = "nobody answers";
  for (const absl::Time end = absl::Now() + kLimit; absl::Now() < end; absl::SleepFor(kPause)) {
    for (const auto& client : clients) {
      const auto regions = client->Regions();
      if (!regions.ok()) continue;
      left.clear();
      for (const v1::Region& region : regions->regions()) {
        if (!absl::StartsWith(region.name(), "regions/" + prefix_)) continue;
        left = region.ShortDebugString();
        auto request = WithId<v1::ReleaseRegionRequest>();
        request.set_name(region.name());
        // One that goes already is refused, which is no harm.
        (void)client->Call(&PoolStub::ReleaseRegion, request);
      }
      if (left.empty()) return absl::OkStatus();
    }
  }
  return absl::InternalError(absl::StrCat("it does not go within 20 s of its release: ", left));
}

}  // namespace cxlpool::crash
