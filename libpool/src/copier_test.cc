// Copies in the background: their order, their end, who is told, and what they keep alive.
#include "libpool/src/copier.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cxlpool/copier.h"
#include "cxlpool/pool.h"
#include "libpool/src/reason_for_test.h"
#include "libpool/src/session.h"
#include "test/rigs/fake_agent.h"

namespace cxlpool::libpool {
namespace {

constexpr size_t kChunk = Copier::kChunkBytes;
constexpr Duration kLong = std::chrono::seconds(30);
using Op = std::shared_ptr<Copier::Op>;

// Something that one thread sets and others wait for, 30 s at most.
class Gate {
 public:
  void Open() { promise_.set_value(); }
  void Pass() const { ASSERT_EQ(future_.wait_for(kLong), std::future_status::ready); }

 private:
  std::promise<void> promise_;
  std::shared_future<void> future_ = promise_.get_future().share();
};

// A map of a Region of 8 chunks, and copiers whose threads the test can hold before a chunk.
class CopierTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 8 * kChunk;

  CopierTest() {
    agent_.Add({.name = "regions/kv", .segment_bytes = {kBytes}});
    auto session = Session::Connect(agent_.socket_path(), kLong);
    LocalRequest request;
    request.open = {.name = "regions/kv", .access = CXLPOOL_READ_WRITE};
    map_ = *Map::Make(*(*session)->Open(std::move(request), Duration(0)), {.writable = true});
  }
  ~CopierTest() override {
    if (copier_ != nullptr) copier_->Stop();
  }

  void StartCopier(std::function<void(size_t)> before_chunk, uint32_t max_waiting = 16) {
    copier_ = *Copier::Start(
        {.threads = 1, .max_waiting = max_waiting, .before_chunk = std::move(before_chunk)});
  }
  Copier::Request PutRequest(size_t bytes, int32_t priority = 0) {
    return {.map = map_,
            .copy = {libpool::Copy::What::kPut, 0, source_.data(), bytes},
            .priority = priority};
  }
  // Copies nothing, and is told of like any other.
  Copier::Request Empty(std::function<void(const Copier::End&)> on_end, int32_t priority = 0) {
    Copier::Request request = PutRequest(0, priority);
    request.on_end = std::move(on_end);
    return request;
  }

  FakeAgent agent_;
  std::shared_ptr<Map> map_;
  std::vector<std::byte> source_ = std::vector<std::byte>(kBytes, std::byte{7});
  std::shared_ptr<Copier> copier_;
};

TEST_F(CopierTest, ACopyIsCancelledBeforeEachOfItsChunks) {
  const size_t bytes = 3 * kChunk + 5;
  for (size_t chunk = 0; chunk <= 4; ++chunk) {
    std::memset(map_->address(), 0, kBytes);
    Gate submitted;
    Op op;
    int told = 0;
    StartCopier([&](size_t done) {
      submitted.Pass();
      if (done == chunk * kChunk) op->Cancel();
    });
    Copier::Request request = PutRequest(bytes);
    request.on_end = [&](const Copier::End&) { ++told; };
    op = *copier_->Submit(std::move(request));
    submitted.Open();
    const Copier::End end = op->Wait(kLong);
    const size_t copied = std::min(chunk * kChunk, bytes);
    EXPECT_EQ(end.status.reason(), chunk == 4 ? "" : "COPY_CANCELLED") << chunk;
    EXPECT_EQ(end.status.code(), chunk == 4 ? Code::kOk : Code::kCancelled);
    EXPECT_EQ(std::memcmp(map_->address(), source_.data(), copied), 0);
    EXPECT_EQ(map_->address()[copied], std::byte{0});
    op->Cancel();  // It has ended: without effect.
    EXPECT_EQ(op->Wait(Duration(0)).status.code(), end.status.code());
    copier_->Stop();
    EXPECT_EQ(told, 1) << chunk;
  }
}

TEST_F(CopierTest, TheHighestPriorityGoesFirstAndOfEqualOnesTheOldest) {
  Gate begun, all_wait;
  StartCopier([&](size_t) {
    begun.Open();
    all_wait.Pass();
  });
  const Op first = *copier_->Submit(PutRequest(1));
  begun.Pass();
  std::vector<std::pair<int32_t, int>> order;
  std::vector<Op> ops;
  int age = 0;
  for (const int32_t priority : {0, 5, -3, 5, 0, INT32_MIN, INT32_MAX, 0}) {
    ops.push_back(*copier_->Submit(
        Empty([&order, priority, age](const Copier::End&) { order.emplace_back(priority, age); },
              priority)));
    ++age;
  }
  all_wait.Open();
  for (const Op& op : ops) EXPECT_TRUE(op->Wait(kLong).status.ok());
  const std::vector<std::pair<int32_t, int>> expected = {
      {INT32_MAX, 6}, {5, 1}, {5, 3}, {0, 0}, {0, 4}, {0, 7}, {-3, 2}, {INT32_MIN, 5}};
  EXPECT_EQ(order, expected);
}

TEST_F(CopierTest, BeyondTheLimitOfTheQueueOneIsRefused) {
  Gate begun, full;
  std::atomic<bool> first_chunk = true;
  StartCopier(
      [&](size_t) {
        if (first_chunk.exchange(false)) begun.Open();
        full.Pass();
      },
      3);
  std::vector<Op> ops = {*copier_->Submit(PutRequest(1))};
  begun.Pass();
  for (int i = 0; i < 3; ++i) ops.push_back(*copier_->Submit(PutRequest(1)));
  const Status refused = copier_->Submit(PutRequest(1)).status();
  EXPECT_EQ(refused.reason(), "QUEUE_FULL");
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  full.Open();
  for (const Op& op : ops) EXPECT_TRUE(op->Wait(kLong).status.ok());
  const auto again = copier_->Submit(PutRequest(1));
  ASSERT_TRUE(again.ok()) << "there is room again";
  EXPECT_TRUE((*again)->Wait(kLong).status.ok());
}

TEST_F(CopierTest, WhoCancelsACopyThatWaitsDoesNotWaitForTheOneThatRuns) {
  Gate submitted;
  Op waits;
  bool ended_before = false, ended_after = false;
  StartCopier([&](size_t done) {
    if (done == 0) {
      submitted.Pass();
      ended_before = waits->Ended();
      waits->Cancel();
      waits->Cancel();
    } else {
      ended_after = waits->Ended();
    }
  });
  const Op runs = *copier_->Submit(PutRequest(2 * kChunk));
  int told = 0;
  waits = *copier_->Submit(Empty([&](const Copier::End& end) {
    ++told;
    EXPECT_EQ(end.status.reason(), "COPY_CANCELLED");
  }));
  submitted.Open();
  EXPECT_TRUE(runs->Wait(kLong).status.ok());
  EXPECT_FALSE(ended_before);
  EXPECT_TRUE(ended_after);
  EXPECT_EQ(told, 1);
}

TEST_F(CopierTest, StoppingEndsWhatRunsAtItsNextChunkAndAllThatWaits) {
  Gate running;
  StartCopier([&](size_t done) {
    if (done == 0) return running.Open();
    // Until it is being stopped.
    const Deadline deadline = After(kLong);
    while (copier_->Submit(Empty(nullptr)).status().reason() != "COPY_CANCELLED") {
      ASSERT_GT(RemainingMs(deadline, 1), 0);
      std::this_thread::yield();
    }
  });
  const Op runs = *copier_->Submit(PutRequest(kBytes));
  std::vector<Op> waiting;
  std::atomic<int> told = 0;
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(*copier_->Submit(Empty([&](const Copier::End&) { ++told; })));
  }
  running.Pass();
  copier_->Stop();
  EXPECT_EQ(told, 4);
  EXPECT_EQ(runs->Wait(Duration(0)).status.reason(), "COPY_CANCELLED");
  for (const Op& op : waiting) EXPECT_TRUE(op->Ended());
  EXPECT_EQ(map_->address()[kChunk], std::byte{0});
}

uint64_t Count(int eventfd) {
  uint64_t count = 0;
  return ::read(eventfd, &count, sizeof count) == sizeof count ? count : 0;
}

TEST_F(CopierTest, EachEndIsToldOnceBeItDoneFailedOrCancelled) {
  const UniqueFd eventfd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  Gate submitted;
  std::vector<Op> ops;
  StartCopier([&](size_t) {
    submitted.Pass();
    ops[2]->Cancel();
  });
  // The second half of the file is gone.
  ASSERT_EQ(::truncate(agent_.FilePath("regions/kv", 0).c_str(), 4 * kChunk), 0);
  std::vector<std::string> told(3);
  for (size_t i = 0; i < 3; ++i) {
    Copier::Request request = PutRequest(kChunk);
    if (i == 1) {
      request.copy.offset = 3 * kChunk;
      request.copy.bytes = 3 * kChunk;
    }
    request.eventfd = eventfd.get();
    request.on_end = [&told, i](const Copier::End& end) {
      told[i] += end.status.ok() ? "done " : std::string(end.status.reason()) + " ";
    };
    ops.push_back(*copier_->Submit(std::move(request)));
  }
  submitted.Open();
  for (const Op& op : ops) op->Wait(kLong);
  EXPECT_EQ(told, (std::vector<std::string>{"done ", "REVOKED ", "COPY_CANCELLED "}));
  EXPECT_EQ(Count(eventfd.get()), 3u);
  const Copier::End lost = ops[1]->Wait(Duration(0));
  EXPECT_EQ(lost.lost.region_offset_bytes / kChunk, 4u) << "the first chunk that is gone";
  EXPECT_EQ(std::memcmp(map_->address() + 3 * kChunk, source_.data(), kChunk), 0)
      << "what comes before the loss is copied";
  copier_->Stop();
  EXPECT_EQ(Count(eventfd.get()), 0u) << "and not once more";
}

TEST_F(CopierTest, ItsThreadsTakeFaultsAndNoOtherSignalsWhateverTheirMakerBlocks) {
  sigset_t bus, before;
  ::sigemptyset(&bus);
  ::sigaddset(&bus, SIGBUS);
  ::pthread_sigmask(SIG_BLOCK, &bus, &before);
  StartCopier(nullptr);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  sigset_t mask;
  EXPECT_TRUE((*copier_->Submit(Empty([&mask](const Copier::End&) {
                ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
              })))
                  ->Wait(kLong)
                  .status.ok());
  for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) {
    EXPECT_EQ(::sigismember(&mask, fault), 0) << fault;
  }
  for (const int other : {SIGTERM, SIGINT, SIGUSR1, SIGCHLD}) {
    EXPECT_EQ(::sigismember(&mask, other), 1) << other;
  }
  ASSERT_EQ(::sigismember(&mask, SIGBUS), 0) << "what follows would end the process";
  ASSERT_EQ(::truncate(agent_.FilePath("regions/kv", 0).c_str(), 0), 0);
  EXPECT_EQ((*copier_->Submit(PutRequest(1)))->Wait(kLong).status.reason(), "REVOKED");
}

TEST_F(CopierTest, ACopyIsHandedOutBeforeItCanEnd) {
  StartCopier(nullptr);
  Op handed_out;
  bool in_time = false;
  const Op op =
      *copier_->Submit(Empty([&](const Copier::End&) { in_time = handed_out != nullptr; }),
                       [&handed_out](const Op& queued) { handed_out = queued; });
  EXPECT_TRUE(op->Wait(kLong).status.ok());
  EXPECT_EQ(handed_out, op);
  EXPECT_TRUE(in_time);
}

TEST_F(CopierTest, WhoFreesACopyThatRunsWaitsUntilItHasEnded) {
  Gate begun;
  StartCopier([&](size_t done) {
    if (done == 0) begun.Open();
  });
  int told = 0;
  Copier::Request request = PutRequest(kBytes);
  request.on_end = [&](const Copier::End&) { ++told; };
  const Op op = *copier_->Submit(std::move(request));
  begun.Pass();
  op->CancelAndWait();
  EXPECT_TRUE(op->Ended());
  EXPECT_EQ(told, 1);
}

TEST_F(CopierTest, ACallbackMayAskAndFreeItsOwnCopy) {
  StartCopier(nullptr);
  Gate freed, submitted;
  Op op;
  op = *copier_->Submit(Empty([&](const Copier::End&) {
    submitted.Pass();
    EXPECT_TRUE(op->Ended());
    EXPECT_TRUE(op->Wait(Duration(0)).status.ok());
    op->CancelAndWait();
    op.reset();
    freed.Open();
  }));
  submitted.Open();
  freed.Pass();
}

TEST_F(CopierTest, APrefetchTouchesEveryPage) {
  StartCopier(nullptr);
  Copier::Request request = PutRequest(kBytes - 100);
  request.copy.what = libpool::Copy::What::kPrefetch;
  request.copy.offset = 50;
  request.copy.memory = nullptr;
  EXPECT_TRUE((*copier_->Submit(std::move(request)))->Wait(kLong).status.ok());
  std::vector<unsigned char> resident(kBytes / 4096);
  ASSERT_EQ(::mincore(map_->address(), kBytes, resident.data()), 0);
  for (size_t i = 0; i < resident.size(); ++i) ASSERT_EQ(resident[i] & 1, 1) << i;
}

// The same through the public interface.
class CopierApiTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 8 * kChunk;
  CopierApiTest() { agent_.Add({.name = "regions/kv", .segment_bytes = {kBytes}}); }
  Mapping MapIt() { return pool_.Open("kv").value().Map().value(); }

  FakeAgent agent_;
  Pool pool_ = Pool::Connect({.socket_path = agent_.socket_path()}).value();
};

TEST_F(CopierApiTest, EightThreadsCopySideBySide) {
  const Mapping mapping = MapIt();
  const cxlpool::Copier copier = cxlpool::Copier::Start({.threads = 4}).value();
  std::atomic<int> told = 0;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int turn = 0; turn < 8; ++turn) {
        const std::vector<std::byte> put(kChunk / 2 + 777, std::byte(t * 8 + turn));
        std::vector<std::byte> got(put.size());
        const auto count = [&](const Result<void>& ended) { told += ended.ok() ? 1 : 1000; };
        const auto wrote = copier.PutAsync(mapping, t * kChunk + 3, put, {.on_copied = count});
        ASSERT_TRUE(wrote.ok() && wrote->Wait(kLong).ok());
        const auto read = copier.GetAsync(mapping, t * kChunk + 3, got, {.on_copied = count});
        ASSERT_TRUE(read.ok() && read->Wait(kLong).ok());
        ASSERT_TRUE(read->Done());
        ASSERT_EQ(put, got);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told, 8 * 8 * 2);
}

TEST_F(CopierApiTest, ACopyKeepsItsMapAndLetsItGoAtItsEnd) {
  const cxlpool::Copier copier = cxlpool::Copier::Start().value();
  std::optional<Mapping> mapping = MapIt();
  const Mapping other = MapIt();
  Gate unmapped;
  const std::vector<std::byte> put(2 * kChunk, std::byte{9});
  const auto first =
      copier.PrefetchAsync(other, 0, 1, {.on_copied = [&](auto&) { unmapped.Pass(); }});
  const auto second = copier.PutAsync(*mapping, kChunk, put);
  ASSERT_TRUE(first.ok() && second.ok());
  const std::byte* const where = mapping->data();
  mapping.reset();
  EXPECT_EQ(agent_.Opens("regions/kv"), 1);
  unmapped.Open();
  ASSERT_TRUE(second->Wait(kLong).ok());
  EXPECT_EQ(std::memcmp(other.data() + kChunk, put.data(), put.size()), 0);
  unsigned char resident = 0;
  EXPECT_EQ(::mincore(const_cast<std::byte*>(where), 4096, &resident), -1) << "it is unmapped";
}

TEST_F(CopierApiTest, AWaitEndsByItsDeadlineAndTheCopyGoesOn) {
  const Mapping mapping = MapIt();
  const cxlpool::Copier copier = cxlpool::Copier::Start().value();
  Gate waited;
  const auto copy =
      copier.PrefetchAsync(mapping, 0, 1, {.on_copied = [&](auto&) { waited.Pass(); }});
  const Result<void> late = copy->Wait(std::chrono::milliseconds(1));
  EXPECT_EQ(ReasonOf(late), "COPY_UNDER_WAY");
  EXPECT_EQ(late.error().code, CXLPOOL_DEADLINE_EXCEEDED);
  // A time that has passed already is not waited for.
  std::promise<std::string> at_once;
  std::thread waiter(
      [&] { at_once.set_value(ReasonOf(copy->Wait(std::chrono::milliseconds(-1)))); });
  auto answer = at_once.get_future();
  EXPECT_EQ(answer.wait_for(kLong), std::future_status::ready);
  waited.Open();
  waiter.join();
  EXPECT_EQ(answer.get(), "COPY_UNDER_WAY");
  EXPECT_TRUE(copy->Wait(kLong).ok());
  // The callback was told of what it was asked for, and a failure as it is.
  std::promise<std::string> reason;
  ASSERT_EQ(::truncate(agent_.FilePath("regions/kv", 0).c_str(), 0), 0);
  std::vector<std::byte> into(10);
  const auto lost =
      copier.GetAsync(mapping, 0, into,
                      {.on_copied = [&](const auto& ended) { reason.set_value(ReasonOf(ended)); }});
  EXPECT_EQ(reason.get_future().get(), "REVOKED");
  EXPECT_EQ(ReasonOf(lost->Wait(kLong)), "REVOKED");
}

TEST_F(CopierApiTest, AForkedChildIsRefusedAndWaitsForNothing) {
  const Mapping mapping = MapIt();
  std::optional<cxlpool::Copier> copier = cxlpool::Copier::Start().value();
  std::vector<std::byte> some(10);
  Gate done;
  const auto blocks =
      copier->PrefetchAsync(mapping, 0, 1, {.on_copied = [&](auto&) { done.Pass(); }});
  std::optional<cxlpool::Copy> waits = copier->PutAsync(mapping, 0, some).value();
  const pid_t child = ::fork();
  if (child == 0) {
    bool right = ReasonOf(waits->Wait(kLong)) == "FORKED";
    right = right && ReasonOf(copier->PutAsync(mapping, 0, some)) == "FORKED";
    right = right && mapping.Put(0, some).ok();
    waits->Cancel();
    waits.reset();
    copier.reset();
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  done.Open();
  EXPECT_TRUE(waits->Wait(kLong).ok());
}

TEST_F(CopierApiTest, OptionsThatCannotBeAreRefused) {
  EXPECT_EQ(ReasonOf(cxlpool::Copier::Start({.threads = 0})), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonOf(cxlpool::Copier::Start({.threads = 5})), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonOf(cxlpool::Copier::Start({.max_waiting = 0})), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonOf(cxlpool::Copier::Start({.max_waiting = 1025})), "BAD_ARGUMENT");
  const Mapping mapping = MapIt();
  cxlpool_copier* copier = nullptr;
  cxlpool_op* op = nullptr;
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  char byte = 0;
  ASSERT_EQ(cxlpool_copier_start(nullptr, &copier, &error), 0) << error.message;
  EXPECT_EQ(cxlpool_put_async(copier, mapping.handle(), 0, &byte, 1, nullptr, nullptr, &error),
            CXLPOOL_INVALID_ARGUMENT)
      << "nobody would hear of its end";
  EXPECT_EQ(cxlpool_put_async(copier, nullptr, 0, &byte, 1, nullptr, &op, &error),
            CXLPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(cxlpool_get_async(copier, mapping.handle(), kBytes, &byte, 1, nullptr, &op, &error),
            CXLPOOL_INVALID_ARGUMENT);
  cxlpool_copy_options options = CXLPOOL_COPY_OPTIONS_INIT;
  options.eventfd = 1 << 20;
  EXPECT_EQ(cxlpool_get_async(copier, mapping.handle(), 0, &byte, 1, &options, &op, &error),
            CXLPOOL_INVALID_ARGUMENT);
  for (const char* what : {"/dev/null", "/proc/self/stat"}) {
    const UniqueFd file(::open(what, O_RDONLY | O_CLOEXEC));
    options.eventfd = file.get();
    EXPECT_EQ(cxlpool_get_async(copier, mapping.handle(), 0, &byte, 1, &options, &op, &error),
              CXLPOOL_INVALID_ARGUMENT)
        << what;
  }
  cxlpool_copy_options zeroed = {};
  zeroed.size = sizeof zeroed;  // Its eventfd is 0, the standard input.
  EXPECT_EQ(cxlpool_get_async(copier, mapping.handle(), 0, &byte, 1, &zeroed, &op, &error),
            CXLPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(op, nullptr);
  EXPECT_EQ(cxlpool_prefetch_async(copier, mapping.handle(), 0, 1, nullptr, nullptr, &error), 0);
  EXPECT_EQ(cxlpool_op_wait(nullptr, 0, nullptr, &error), CXLPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(cxlpool_op_done(nullptr), 1);
  cxlpool_op_cancel(nullptr);
  cxlpool_op_free(nullptr);
  cxlpool_copier_stop(copier);
  cxlpool_copier_stop(nullptr);
}

}  // namespace
}  // namespace cxlpool::libpool
