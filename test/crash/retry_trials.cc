// cxlpool-retry-trials: the answer to an allocation is lost, after the commit or before; the call
// is sent again with its request_id, and makes one Region. Each seed is one call, or one batch.

#include <chrono>
#include <iostream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "test/crash/client.h"
#include "test/crash/hits.h"
#include "test/crash/pool.h"
#include "test/rigs/lossy_proxy.h"
#include "test/trials/trial.h"

namespace cxlpool::crash {
namespace {

constexpr uint64_t kManyRegions = 300;  // Then all go.
constexpr absl::Duration kCommitLimit = absl::Seconds(10);
constexpr absl::Duration kPoll = absl::Microseconds(200);
constexpr uint64_t kMoment_us = 1500;  // A call takes less, mostly.

using Batch = v1::BatchAllocateRegionsRequest;
using Tags = std::vector<std::string>;

class RetryTrials {
 public:
  // The pool lives from one seed to the next, which is what makes a seed take milliseconds. After a
  // failure it is made anew: what is left of it may be wrong.
  absl::Status Run(uint64_t seed, bool trace) {
    random_.seed(seed * 0x9e3779b97f4a7c15u);
    if (pool_ == nullptr) {
      if (absl::Status status = SetUp(); !status.ok()) return status;
    }
    absl::Status status = RunOne(trace);
    if (status.ok() && regions_ > kManyRegions) status = ReleaseAll();
    if (status.ok()) return status;
    status = pool_->WithLogs(status);
    TearDown();
    return status;
  }

  std::string Summary() const { return hits_.Text(); }
  std::string Missing() const {
    return hits_.Missing({"answer lost after the commit", "cut at a moment", "cancelled",
                          "manager killed", "sent again twice at once", "after the release"});
  }

 private:
  // Two ways to one manager: `lossy_` through a proxy that loses answers, `direct_` past it.
  absl::Status SetUp() {
    auto pool = Pool::Make({.devices = {{"cmm-0", 8 * kGiB}, {"cmm-1", 8 * kGiB}}, .hosts = {}});
    if (!pool.ok()) return pool.status();
    pool_ = *std::move(pool);
    if (absl::Status status = StartManager(); !status.ok()) return status;
    auto proxy = LossyProxy::Start(pool_->directory() + "/proxy.sock", pool_->socket());
    if (!proxy.ok()) return proxy.status();
    proxy_ = *std::move(proxy);
    lossy_ = std::make_unique<Client>(pool_->directory() + "/proxy.sock");
    return absl::OkStatus();
  }

  void TearDown() {
    lossy_.reset();
    direct_.reset();
    proxy_.reset();
    pool_.reset();
    regions_ = 0;
  }

  absl::Status StartManager() {
    if (absl::Status status = pool_->StartManager(); !status.ok()) return status;
    if (absl::Status status = pool_->AwaitServing(); !status.ok()) return status;
    direct_ = std::make_unique<Client>(pool_->socket());
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> Count() {
    const auto capacity = direct_->Call(&PoolStub::GetCapacity, v1::GetCapacityRequest());
    if (!capacity.ok()) return capacity.status();
    return capacity->regions();
  }

  // Until there are so many Regions: how a trial sees a commit whose answer it is not to have.
  absl::Status AwaitCount(uint64_t regions) {
    const absl::Time end = absl::Now() + kCommitLimit;
    while (true) {
      const auto count = Count();
      if (!count.ok() || *count == regions) return count.status();
      if (absl::Now() > end) {
        return absl::InternalError(absl::StrCat("there are ", *count, " Regions, not ", regions));
      }
      absl::SleepFor(kPoll);
    }
  }

  std::string RequestId() {
    std::string bytes;
    for (int i = 0; i < 16; ++i) bytes.push_back(static_cast<char>(random_()));
    return FormatUuid(bytes);
  }

  // One request, or in one of five seeds two to seven, to be sent as a batch.
  Batch Requests() {
    Batch batch;
    for (uint64_t i = random_() % 5 == 0 ? 2 + random_() % 6 : 1; i > 0; --i) {
      v1::AllocateRegionRequest& request = *batch.add_requests();
      request.set_request_id(RequestId());
      request.set_size_bytes(1 + random_() % (4 * kGranule));
      // Without a name nothing but the request_id keeps it from being made twice.
      if (random_() % 2 == 0) request.set_region_id(absl::StrCat("r", ++named_));
    }
    return batch;
  }

  // The call, or as a batch; the tags that it answers.
  absl::StatusOr<Tags> Send(Client& client, grpc::ClientContext& context, const Batch& batch) {
    if (batch.requests_size() == 1) {
      const auto answer = client.CallIn(context, &PoolStub::AllocateRegion, batch.requests(0));
      if (!answer.ok()) return answer.status();
      return Tags{answer->region().tag()};
    }
    const auto answer = client.CallIn(context, &PoolStub::BatchAllocateRegions, batch);
    if (!answer.ok()) return answer.status();
    Tags tags;
    for (const v1::BatchResult& result : answer->results()) {
      if (result.code() != 0) return absl::InternalError(result.ShortDebugString());
      tags.push_back(result.region().tag());
    }
    return tags;
  }

  absl::StatusOr<Tags> SendAgain(const Batch& batch) {
    grpc::ClientContext context;
    return Send(*direct_, context, batch);
  }

  // Sends the call and, mostly, loses its answer. Of 100 seeds: 40 lose it once the commit is seen,
  // 20 cut the connection at some moment, 25 cancel the call, 7 let it be, 8 kill the manager and
  // start another. Answers what the caller heard; INTERNAL: the trial itself did not work.
  absl::StatusOr<Tags> SendAndLose(const Batch& batch, bool trace) {
    const uint64_t dice = random_() % 100;
    const auto moment = absl::Microseconds(random_() % kMoment_us);
    const bool cancel = dice >= 60 && dice < 85, kill = dice >= 92;
    const char* how = dice < 40   ? "answer lost after the commit"
                      : dice < 60 ? "cut at a moment"
                      : cancel    ? "cancelled"
                      : kill      ? "manager killed"
                                  : "answered";
    if (trace) std::cout << how << ", " << batch.requests_size() << " items" << std::endl;
    hits_.Add(how);
    grpc::ClientContext context;
    absl::StatusOr<Tags> first = absl::UnknownError("");
    if (dice < 60) {
      // The connection has to be there: an answer can be lost on it alone.
      const auto warm = lossy_->Call(&PoolStub::GetCapacity, v1::GetCapacityRequest());
      if (!warm.ok()) return absl::InternalError(warm.status().ToString());
      proxy_->Lose(true);
    }
    std::thread call([&] { first = Send(dice < 60 ? *lossy_ : *direct_, context, batch); });
    absl::Status status;
    // The commit is there before the connection is cut, so the Region exists and nobody knows.
    if (dice < 40) status = AwaitCount(regions_ + static_cast<uint64_t>(batch.requests_size()));
    if (dice >= 40 && dice < 85) absl::SleepFor(moment);
    if (dice < 60) proxy_->Cut();
    if (cancel) context.TryCancel();
    if (kill) {
      absl::SleepFor(moment);
      pool_->manager().Kill();
    }
    call.join();
    proxy_->Lose(false);
    if (kill && status.ok()) status = StartManager();
    if (!status.ok()) return absl::InternalError(status.message());
    // Where the proxy lost nothing, nothing was tried.
    if (dice < 60 && first.ok()) return absl::InternalError("an answer that was lost was heard");
    return first;
  }

  // The call whose answer was lost is sent again, once or twice at the same time. Each answer has
  // to name the same Regions, and there must be no more of them than were asked for.
  absl::Status RunOne(bool trace) {
    const Batch batch = Requests();
    const absl::StatusOr<Tags> first = SendAndLose(batch, trace);
    if (!first.ok() && !Unanswered(first.status())) return first.status();
    if (first.ok()) hits_.Add("answered all the same");
    absl::StatusOr<Tags> again = absl::UnknownError("");
    if (random_() % 8 == 0) {
      hits_.Add("sent again twice at once");
      absl::StatusOr<Tags> other = absl::UnknownError("");
      std::thread beside([&] { other = SendAgain(batch); });
      again = SendAgain(batch);
      beside.join();
      if (!other.ok()) return other.status();
      if (again.ok() && *other != *again) return absl::InternalError("two answers differ");
    } else {
      again = SendAgain(batch);
    }
    if (!again.ok()) return again.status();
    if (first.ok() && *first != *again) return absl::InternalError("the second answer differs");
    if (std::set<std::string>(again->begin(), again->end()).size() != again->size()) {
      return absl::InternalError("two requests of a batch have one Region");
    }
    regions_ += again->size();
    const auto count = Count();
    if (!count.ok()) return count.status();
    if (*count != regions_) {
      return absl::InternalError(
          absl::StrCat("there are ", *count, " Regions where ", regions_, " were asked for"));
    }
    if (absl::Status status = SendAnother(batch); !status.ok()) return status;
    return random_() % 10 == 0 ? SendAfterRelease(batch, *again) : absl::OkStatus();
  }

  // The same request_id for something else is refused.
  absl::Status SendAnother(const Batch& batch) {
    v1::AllocateRegionRequest request = batch.requests(0);
    request.set_size_bytes(request.size_bytes() + 1);
    const auto answer = direct_->Call(&PoolStub::AllocateRegion, request);
    // An item of a batch has its id among those of single calls, too.
    if (ReasonOf(answer.status()) == "REQUEST_ID_REUSED") return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("another request under the same id: ", answer.status().ToString()));
  }

  // The Regions go; then the calls that made them come once more, and make nothing.
  absl::Status SendAfterRelease(const Batch& batch, const Tags& tags) {
    hits_.Add("after the release");
    for (const std::string& tag : tags) {
      v1::ReleaseRegionRequest request;
      request.set_request_id(RequestId());
      request.set_name("regions/" + tag);
      for (int i = 0; i < 2; ++i) {
        const auto answer = direct_->Call(&PoolStub::ReleaseRegion, request);
        if (!answer.ok()) return answer.status();
        if (answer->region().tag() != tag) return absl::InternalError("another was released");
      }
    }
    regions_ -= tags.size();
    if (absl::Status status = AwaitCount(regions_); !status.ok()) return status;
    const absl::StatusOr<Tags> again = SendAgain(batch);
    if (!again.ok()) return again.status();
    if (*again != tags) return absl::InternalError("after its release, it makes another Region");
    return AwaitCount(regions_);
  }

  // Before the pool is full.
  absl::Status ReleaseAll() {
    const auto regions = direct_->Regions();
    if (!regions.ok()) return regions.status();
    v1::BatchReleaseRegionsRequest batch;
    for (const v1::Region& region : regions->regions()) {
      v1::ReleaseRegionRequest& request = *batch.add_requests();
      request.set_request_id(RequestId());
      request.set_name(region.name());
    }
    const auto answer = direct_->Call(&PoolStub::BatchReleaseRegions, batch);
    if (!answer.ok()) return answer.status();
    regions_ = 0;
    return AwaitCount(0);
  }

  std::mt19937_64 random_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<LossyProxy> proxy_;
  std::unique_ptr<Client> lossy_, direct_;
  uint64_t regions_ = 0;
  uint64_t named_ = 0;
  Hits hits_;
};

}  // namespace
}  // namespace cxlpool::crash

int main(int argc, char** argv) {
  cxlpool::crash::RetryTrials trials;
  return cxlpool::RunTrials(
      argc, argv,
      {.name = "cxlpool-retry-trials",
       .what = "an allocation whose answer was lost is sent again, and made once",
       .ci_seeds = 1000,
       .run = [&](uint64_t seed, bool trace) { return trials.Run(seed, trace); },
       .summary = [&] { return trials.Summary(); },
       .missing = [&](uint64_t) { return trials.Missing(); }});
}
