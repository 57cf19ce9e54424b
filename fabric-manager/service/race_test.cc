// Two clients on threads of their own race for the last of something, round after round: one gets
// it, the other hears what there is no more of.
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/loop.h"
#include "test/rigs/service_rig.h"

namespace cxlpool::fm {
namespace {

constexpr int kRounds = 1000;
constexpr int kClients = 2;

// A writer on a loop of its own; nobody binds or scrubs, so that what is taken stays taken.
class RaceTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(Wait([&](Done done) {
                  writer_.Open(
                      {.on_committed = [](const auto&) {},
                       .on_fatal = [](const absl::Status& status) { ADD_FAILURE() << status; }},
                      std::move(done));
                }).ok());
  }
  void TearDown() override {
    const absl::Status sound = OnLoop([&] { return writer_.state().CheckInvariants(); });
    EXPECT_TRUE(sound.ok()) << sound;
    loop_.Stop();
  }

  // Calls, and waits for the answer.
  template <typename Call>
  absl::Status Wait(Call call) {
    std::promise<absl::Status> answer;
    call([&](absl::Status status) { answer.set_value(std::move(status)); });
    return answer.get_future().get();
  }
  template <typename Work>
  std::invoke_result_t<Work> OnLoop(Work work) {
    std::promise<std::invoke_result_t<Work>> done;
    loop_.Post([&] { done.set_value(work()); });
    return done.get_future().get();
  }

  void Put(std::function<Item(PlanContext&)> make) {
    const absl::Status status = Wait([&](Done done) {
      writer_.Submit(
          Audit{{}, "test", "test", ""},
          [make = std::move(make)](const PoolState&, PlanContext& context)
              -> absl::StatusOr<Proposal> { return Proposal::Of(make(context), nullptr); },
          [done = std::move(done)](absl::StatusOr<Committed> got) mutable {
            std::move(done)(got.status());
          });
    });
    ASSERT_TRUE(status.ok()) << status;
  }
  void AddDevice(const std::string& id, uint64_t granules) {
    Put([&](PlanContext& context) {
      return Device{.key = context.next_id(),
                    .id = id,
                    .serial = id,
                    .capacity_bytes = granules * kGranule,
                    .granule_bytes = kGranule,
                    .service_reason = {}};
    });
    OnLoop([&] {
      writer_.SetReachable({{id, ""}});
      return true;
    });
  }
  // With one port.
  void AddHost(const std::string& id) {
    Put([&](PlanContext& context) {
      return Host{.key = context.next_id(), .id = id, .identity = absl::StrCat("test://", id)};
    });
    OnLoop([&] {
      HostRuntime runtime;
      runtime.online = true;
      runtime.fabric_reachable = true;
      runtime.fabric_slots = {7};
      runtime.bridges = {{.name = "ACPI0016:00",
                          .slots = {7},
                          .max_regions = 4,
                          .window_bytes = uint64_t{1} << 40,
                          .free_window_bytes = uint64_t{1} << 40}};
      runtime.region_granule_bytes = kGranule;
      runtime.page_struct_spare_bytes = uint64_t{1} << 40;
      writer_.SetRuntime(id, runtime);
      return true;
    });
  }

  // Each round `prepare(round)` leaves just enough for one; both clients then send `spec(round)`
  // at once.
  void Race(const std::function<void(int)>& prepare, const std::function<AllocateSpec(int)>& spec,
            const std::string& refusal) {
    std::barrier start(kClients + 1);
    std::barrier end(kClients + 1);
    std::array<absl::StatusOr<Committed>, kClients> answers;
    std::array<std::thread, kClients> clients;
    for (int client = 0; client < kClients; ++client) {
      clients[static_cast<size_t>(client)] = std::thread([&, client] {
        for (int round = 0; round < kRounds; ++round) {
          AllocateSpec mine = spec(round);
          mine.region_id = absl::StrCat("r-", round, "-", client);
          mine.request.id.principal = absl::StrCat("client-", client);
          mine.request.id.method = "AllocateRegion";
          mine.request.id.id = Uuid(RandomUuid());
          std::promise<absl::StatusOr<Committed>> answer;
          auto answered = answer.get_future();
          start.arrive_and_wait();
          pool_.Allocate(std::move(mine), false,
                         [&](absl::StatusOr<Committed> got) { answer.set_value(std::move(got)); });
          answers[static_cast<size_t>(client)] = answered.get();
          end.arrive_and_wait();
        }
      });
    }
    std::array<int, kClients> wins = {};
    for (int round = 0; round < kRounds; ++round) {
      prepare(round);
      start.arrive_and_wait();
      end.arrive_and_wait();
      int won = 0;
      for (size_t client = 0; client < kClients; ++client) {
        if (answers[client].ok()) {
          ++won;
          ++wins[client];
        } else {
          EXPECT_EQ(ReasonOf(answers[client].status()), refusal) << answers[client].status();
        }
      }
      EXPECT_EQ(won, 1) << "round " << round;
    }
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(wins[0] + wins[1], kRounds);
    RecordProperty("wins_of_the_first", wins[0]);
  }

  static AllocateSpec OneGranule() {
    AllocateSpec spec;
    spec.caller = Caller::Admin("cxlpool://operator/alice");
    spec.size_bytes = kGranule;
    return spec;
  }

  SystemClock clock_;
  Loop loop_{"race"};
  World world_;
  MemoryStore store_{std::make_shared<MemoryDisk>(), &loop_};
  ViewHolder views_;
  WatchHub watch_;
  Writer writer_{{}, &loop_, &clock_, &store_, &views_, &watch_};
  FakeFabric fabric_{&world_};
  HostSessions sessions_{{}, &loop_, &clock_, &writer_};
  Reconciler reconciler_{{}, &loop_, &clock_, &writer_, &fabric_, &sessions_, nullptr};
  PoolService pool_{&loop_, &writer_, &reconciler_, &sessions_};
};

TEST_F(RaceTest, TheLastGranule) {
  // A device more each round, and so one granule: what was there before is taken.
  Race([&](int round) { AddDevice(absl::StrCat("d-", round), 1); },
       [](int) { return OneGranule(); }, "POOL_FULL");
  EXPECT_EQ(views_.Get()->capacity.free_bytes, 0u);
  EXPECT_EQ(views_.Get()->capacity.held_bytes, kRounds * kGranule);
}

TEST_F(RaceTest, TheLastByteOfAQuota) {
  AddDevice("d", 2 * kRounds);
  const auto tenant = [](int round) { return absl::StrCat("t-", round); };
  Race(
      [&](int round) {
        Tenant limited;
        limited.id = tenant(round);
        limited.quota_bytes = kGranule;
        ASSERT_TRUE(Wait([&](Done done) {
                      pool_.ChangePool(Caller::Admin("test"), {.method = "SetTenant"},
                                       PlanFor(&PlanSetTenant, limited), std::move(done));
                    }).ok());
      },
      [&](int round) {
        AllocateSpec spec = OneGranule();
        spec.tenant = tenant(round);
        return spec;
      },
      "QUOTA_EXCEEDED");
  for (const TenantView& each : *views_.Get()->tenants) {
    EXPECT_LE(each.use.held_bytes, kGranule) << each.tenant.id;
  }
}

TEST_F(RaceTest, TheLastPort) {
  AddDevice("d", 2 * kRounds);
  const auto host = [](int round) { return absl::StrCat("h-", round); };
  Race([&](int round) { AddHost(host(round)); },
       [&](int round) {
         AllocateSpec spec = OneGranule();
         spec.host = host(round);
         return spec;
       },
       "NO_FREE_PORT");
  EXPECT_EQ(views_.Get()->capacity.held_bytes, kRounds * kGranule);
}

}  // namespace
}  // namespace cxlpool::fm
