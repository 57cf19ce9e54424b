// Going on behind SIGBUS, and who else hears of it. Pages beyond the end of a file stand for memory
// that was taken away; lost bytes need a kernel's hand (test/qemu).
#include "libpool/src/bus_guard.h"

#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cxlpool/pool.h"
#include "libpool/src/bus_fault_for_test.h"
#include "libpool/src/reason_for_test.h"
#include "test/rigs/fake_agent.h"

namespace cxlpool::libpool {
namespace {

template <typename Work>
std::optional<BusFault> Guarded(const void* begin, size_t size, Work work) {
  return *RunGuarded(
      begin, size, [](void* context) { (*static_cast<Work*>(context))(); }, &work);
}

TEST(BusGuardTest, ComesBackWithWhereItWas) {
  const Cut cut;
  EXPECT_FALSE(Guarded(cut.begin(), 2 * kPageBytes, [&] { *cut.there() = 1; }).has_value());
  int done = 0;
  for (int i = 0; i < 3; ++i) {  // The handler stays, and signals are not blocked afterwards.
    const auto fault = Guarded(cut.begin(), 2 * kPageBytes, [&] {
      ++done;
      cut.gone()[7] = 1;
      done += 100;
    });
    ASSERT_TRUE(fault.has_value());
    EXPECT_TRUE(fault->taken_away);
    EXPECT_EQ(fault->address, reinterpret_cast<uintptr_t>(cut.begin()) + kPageBytes + 7);
  }
  EXPECT_EQ(done, 3);
}

TEST(BusGuardTest, TheInnermostGuardOfTheRangeHasIt) {
  const Cut outer, inner;
  bool after = false;
  const auto fault = Guarded(outer.begin(), 2 * kPageBytes, [&] {
    const auto first = Guarded(inner.begin(), 2 * kPageBytes, [&] { *inner.gone() = 1; });
    EXPECT_TRUE(first.has_value());
    // Within the inner guard, of the outer one's range.
    const auto none = Guarded(inner.begin(), 2 * kPageBytes, [&] { *outer.gone() = 1; });
    after = none.has_value();
  });
  EXPECT_TRUE(fault.has_value());
  EXPECT_FALSE(after) << "it was left, with the inner one";
  EXPECT_FALSE(Guarded(outer.begin(), 2 * kPageBytes, [&] { *outer.there() = 1; }).has_value());
}

TEST(BusGuardTest, EachThreadHasItsOwn) {
  std::vector<std::thread> threads;
  std::atomic<int> faults = 0;
  for (int t = 0; t < 32; ++t) {
    threads.emplace_back([&faults] {
      const Cut cut;
      for (int i = 0; i < 50; ++i) {
        if (Guarded(cut.begin(), 2 * kPageBytes, [&] { *cut.gone() = 1; }).has_value()) ++faults;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(faults, 32 * 50);
}

TEST(BusGuardTest, AForeignHandlerStillHearsOfItsOwn) {
  for (const bool installed_before : {true, false}) {
    EXPECT_EQ(InAChild([&] {
                const Cut ours, theirs;
                if (installed_before) InstallForeign();
                if (!Guarded(ours.begin(), 2 * kPageBytes, [&] { *ours.gone() = 1; })) return 1;
                if (!installed_before) {
                  InstallForeign();
                  // The next guard comes before it again.
                  if (!Guarded(ours.begin(), 2 * kPageBytes, [&] { *ours.gone() = 1; })) return 2;
                }
                if (g_heard != 0) return 3;
                *theirs.gone() = 5;  // Guarded by nobody.
                if (g_heard != 1 || *theirs.gone() != 5) return 4;
                ::raise(SIGBUS);
                if (g_heard != 2) return 5;
                return Guarded(ours.begin(), 2 * kPageBytes, [&] { *ours.gone() = 1; }) ? 0 : 6;
              }),
              0)
        << installed_before;
  }
}

struct sigaction g_passed_on_to = {};

void OnChaining(int signal, siginfo_t* info, void* context) {
  g_heard = g_heard + 1;
  g_passed_on_to.sa_sigaction(signal, info, context);
}

// It comes before ours until a guard looks, and blocks every signal while it runs.
void InstallChaining() {
  struct sigaction action = {};
  action.sa_sigaction = OnChaining;
  action.sa_flags = SA_SIGINFO;
  ::sigfillset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, &g_passed_on_to);
}

TEST(BusGuardTest, BehindAHandlerThatPassesOnToUsNoSignalStaysBlocked) {
  EXPECT_EQ(InAChild([] {
              const Cut ours;
              const auto store = [](void* at) { *static_cast<volatile char*>(at) = 1; };
              const auto guarded = [&](Handler handler) {
                return RunGuarded(ours.begin(), 2 * kPageBytes, store,
                                  const_cast<char*>(ours.begin()) + kPageBytes, handler)
                    ->has_value();
              };
              // Until both are in one tick of the clock, so that the second guard does not look.
              for (int turn = 0; turn < 100'000 && g_heard == 0; ++turn) {
                if (!guarded(Handler::kNow) || !guarded(Handler::kNowAndThen)) return 1;
                InstallChaining();
                if (!guarded(Handler::kNowAndThen)) return 2;
                sigset_t mask;
                ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
                if (::sigismember(&mask, SIGBUS) || ::sigismember(&mask, SIGTERM)) return 3;
              }
              return g_heard > 0 ? 0 : 4;
            }),
            0);
}

sigjmp_buf g_left_to;

// A foreign handler as most are that want to go on.
void OnForeignThatLeaves(int, siginfo_t*, void*) {
  g_heard = g_heard + 1;
  siglongjmp(g_left_to, 1);
}

bool IsLeft(const Cut& theirs) {
  if (sigsetjmp(g_left_to, 1) != 0) return true;
  *theirs.gone() = 5;
  return false;
}

TEST(BusGuardTest, AForeignHandlerMayLeaveByALongJumpEachTime) {
  EXPECT_EQ(InAChild([] {
              const Cut ours, theirs;
              struct sigaction action = {};
              action.sa_sigaction = OnForeignThatLeaves;
              action.sa_flags = SA_SIGINFO;
              ::sigaction(SIGBUS, &action, nullptr);
              for (int turn = 1; turn <= 3; ++turn) {
                if (!Guarded(ours.begin(), 2 * kPageBytes, [&] { *ours.gone() = 1; })) return 1;
                if (!IsLeft(theirs)) return 2;
                if (g_heard != turn) return 3;
              }
              return 0;
            }),
            0);
}

TEST(BusGuardTest, WhatAForeignHandlerPassesBackEndsTheProcess) {
  EXPECT_EQ(InAChild([] {
              const Cut ours, theirs;
              if (!Guarded(ours.begin(), 2 * kPageBytes, [&] { *ours.gone() = 1; })) return 1;
              InstallChaining();
              // Ours comes before it again, and knows nobody but it.
              if (!Guarded(ours.begin(), 2 * kPageBytes, [&] { *ours.gone() = 1; })) return 2;
              *theirs.gone() = 5;
              return 3;
            }),
            -SIGBUS);
}

// As the kernel tells a process with PR_MCE_KILL_EARLY of lost bytes that nobody has touched.
void TellEarly(const void* address) {
  siginfo_t info = {};
  info.si_signo = SIGBUS;
  info.si_code = BUS_MCEERR_AO;
  info.si_addr = const_cast<void*>(address);
  ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::gettid(), SIGBUS, &info);
}

TEST(BusGuardTest, AnEarlyWordOfLostBytesIsHandledLikeOneThatWasSent) {
  for (const bool ignored : {true, false}) {
    EXPECT_EQ(InAChild([ignored] {
                const Cut ours;
                if (ignored) ::signal(SIGBUS, SIG_IGN);
                if (!Guarded(ours.begin(), 2 * kPageBytes, [&] { *ours.gone() = 1; })) return 1;
                TellEarly(ours.begin());
                return Guarded(ours.begin(), 2 * kPageBytes, [&] { *ours.gone() = 1; }) ? 0 : 2;
              }),
              ignored ? 0 : -SIGBUS);
  }
}

TEST(BusGuardTest, WithoutOneTheProcessEndsByTheSignal) {
  EXPECT_EQ(InAChild([] {
              const Cut ours, theirs;
              if (!Guarded(ours.begin(), 2 * kPageBytes, [&] { *ours.gone() = 1; })) return 1;
              *theirs.gone() = 5;
              return 2;
            }),
            -SIGBUS);
  EXPECT_EQ(InAChild([] {
              const Cut ours;
              if (!Guarded(ours.begin(), 2 * kPageBytes, [&] { *ours.gone() = 1; })) return 1;
              ::raise(SIGBUS);
              return 2;
            }),
            -SIGBUS);
}

// Another thread installs the handler again and again, also while this one forks.
TEST(BusGuardTest, AForkedChildWaitsForNoThreadOfItsParents) {
  const auto fork_beside_a_guard = [] {
    const Cut cut;
    std::atomic<bool> done = false;
    std::thread other([&] {
      while (!done) {
        InstallForeign();
        Guarded(cut.begin(), cut.size(), [&] { *cut.there() = 1; });
      }
    });
    int ended = 0;
    for (int i = 0; i < 30 && ended == 0; ++i) {
      ended = InAChild([&] {
        ::alarm(10);
        InstallForeign();
        return Guarded(cut.begin(), cut.size(), [&] { *cut.gone() = 1; }).has_value() ? 0 : 1;
      });
    }
    done = true;
    other.join();
    return ended < 0 ? 2 : ended;
  };
  EXPECT_EQ(InAChild(fork_beside_a_guard), 0);
}

TEST(BusGuardTest, OfAMapping) {
  FakeAgent agent;
  agent.Add({.name = "regions/kv", .segment_bytes = {8 * kPageBytes}});
  Pool pool = Pool::Connect({.socket_path = agent.socket_path()}).value();
  const Mapping mapping = pool.Open("kv").value().Map({.offset_bytes = kPageBytes}).value();
  volatile std::byte* const at = mapping.data();
  EXPECT_TRUE(mapping.Guard([&] { at[5 * kPageBytes] = std::byte{1}; }).ok());
  ASSERT_EQ(::truncate(agent.FilePath("regions/kv", 0).c_str(), 4 * kPageBytes), 0);
  const Result<void> revoked = mapping.Guard([&] { at[5 * kPageBytes + 3] = std::byte{1}; });
  EXPECT_EQ(ReasonOf(revoked), "REVOKED");
  EXPECT_EQ(revoked.error().code, CXLPOOL_FAILED_PRECONDITION);
  EXPECT_NE(revoked.error().message.find(std::to_string(6 * kPageBytes + 3)), std::string::npos)
      << "of the Region: " << revoked.error().message;
  EXPECT_TRUE(mapping.Guard([&] { at[0] = std::byte{1}; }).ok());
}

// That every instruction may be used here, and changes no bytes. What they are for no test of one
// host can see.
class VisibilityTest : public ::testing::TestWithParam<v1::Coherence> {};

TEST_P(VisibilityTest, PublishAndRefreshKeepToTheMap) {
  FakeAgent agent;
  agent.Add({.name = "regions/kv", .coherence = GetParam(), .segment_bytes = {8 * kPageBytes}});
  Pool pool = Pool::Connect({.socket_path = agent.socket_path()}).value();
  const Mapping mapping = pool.Open("kv").value().Map().value();
  const auto bytes = mapping.mutable_bytes();
  for (size_t offset = 0; offset < 130; ++offset) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{64}, size_t{65}, size_t{1000}}) {
      std::memset(&bytes[offset], static_cast<int>(offset), size);
      ASSERT_TRUE(mapping.Publish(bytes.subspan(offset, size)).ok());
      ASSERT_TRUE(mapping.Refresh(bytes.subspan(offset, size)).ok());
      for (size_t i = 0; i < size; ++i) ASSERT_EQ(bytes[offset + i], std::byte(offset));
    }
  }
  EXPECT_TRUE(mapping.Publish(mapping.bytes()).ok());
  EXPECT_EQ(ReasonOf(mapping.Publish({bytes.data() + 1, bytes.size()})), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonOf(mapping.Refresh({bytes.data() - 1, 1})), "BAD_ARGUMENT");
}

INSTANTIATE_TEST_SUITE_P(Both, VisibilityTest, ::testing::Values(v1::SOFTWARE, v1::HARDWARE));

}  // namespace
}  // namespace cxlpool::libpool
