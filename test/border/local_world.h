// A host for the trials of the local border: an agent's core, its service and its server on a real
// socket, and a manager that is a table of Regions. The table is the truth that calls are judged
// by.
//
// Thread-safe, but for Restart and the destructor: one thread at a time, and nobody else calls.
#ifndef CXLPOOL_TEST_BORDER_LOCAL_WORLD_H_
#define CXLPOOL_TEST_BORDER_LOCAL_WORLD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "host-agent/local/drain_program.h"
#include "host-agent/local/local_server.h"
#include "host-agent/local/pidfd_watch.h"
#include "proto/support/loop.h"
#include "proto/support/mutex.h"
#include "test/rigs/fake_host_memory.h"

namespace cxlpool::border {

// Of a Region, what nobody can change while it has its tag.
struct Truth {
  std::string tag;
  std::string tenant;
  std::string maker_host;  // Empty: an operator made it.
  uint32_t maker_uid = 0;
  v1::OpenTo open_to;
};

struct User {
  uint32_t uid = 0;
  std::vector<uint32_t> gids;  // The first is the primary one.
};

// The policy once more, written as simply as can be: what the agent's judge is held against. Of a
// Region made on another host its user ids and its open_to mean nothing here.
class Judge {
 public:
  explicit Judge(agent::LocalPolicy policy) : policy_(std::move(policy)) {}
  bool MayConnect(const User& user) const;
  bool MayOpen(const User& user, const Truth& region) const;
  bool MayRelease(const User& user, const Truth& region) const;

 private:
  const agent::UserRule* RuleOf(const User& user) const;
  bool IsRoot(const User& user) const { return user.uid == 0 || user.uid == policy_.agent_uid; }
  bool OfTenant(const User& user, const Truth& region) const;
  const agent::LocalPolicy policy_;
};

inline constexpr char kThisHost[] = "hosts/host-a";
inline constexpr uint64_t kBytes = uint64_t{512} << 20;
inline constexpr uint32_t kSlots = 16;

// The manager: answers late, and offers what there is when it likes.
class Manager : public agent::ManagerLink {
 public:
  Manager(agent::FakeHostMemory* memory, Executor* core, uint64_t seed);
  ~Manager() override { loop_.Stop(); }

  void Start(Handlers handlers) override;
  void Stop() override;
  void Send(v1::Report) override {}
  void Answer(uint64_t, absl::StatusOr<v1::DeviceLook>) override {}
  void Allocate(v1::AllocateRegionRequest request,
                DoneWith<v1::AllocateRegionResponse> done) override;
  void Release(v1::ReleaseRegionRequest request, DoneWith<v1::ReleaseRegionResponse> done) override;
  void Get(v1::GetRegionRequest request, DoneWith<v1::Region> done) override;

  // Makes a Region and offers it. Nothing: all slots are taken.
  std::optional<Truth> Make(const std::string& name, Truth truth);
  // Some Region's name goes to another one, and that one's to it.
  void SwapNames();
  void Want(const std::string& tag, v1::Offer::Want want);

  // Of every Region that there ever was.
  std::optional<Truth> Find(const std::string& tag) const;
  std::string SomeTag() const;
  std::string SomeName() const;
  // What it was asked to release: by request_id, the name that it was called by.
  std::map<std::string, std::string> Released() const;

 private:
  struct Live {
    std::string name;
    uint64_t generation = 0;
    uint32_t slot = 0;
    v1::Offer::Want want = v1::Offer::WANT_ONLINE;
  };
  std::optional<Truth> MakeLocked(const std::string& name, Truth truth)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::Offer OfferOf(const Truth& truth, const Live& live) const;
  v1::Region RegionOf(const Truth& truth, const Live& live) const;
  void OfferSoon(const std::string& tag) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const std::string* FindLive(const std::string& name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration Soon() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  agent::FakeHostMemory* const memory_;
  Executor* const core_;
  mutable Mutex mutex_;
  mutable std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  std::optional<Handlers> handlers_ ABSL_GUARDED_BY(mutex_);
  uint64_t session_ ABSL_GUARDED_BY(mutex_) = 0;
  bool welcomed_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t last_generation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Truth> all_ ABSL_GUARDED_BY(mutex_);  // By tag.
  std::map<std::string, Live> live_ ABSL_GUARDED_BY(mutex_);  // By tag.
  std::map<std::string, std::string> released_ ABSL_GUARDED_BY(mutex_);
  Loop loop_{"manager"};
};

// A host in memory whose holders are processes of this machine.
class Memory : public agent::FakeHostMemory {
 public:
  explicit Memory(Executor* executor);
  void FindHolders(uint64_t serial, DoneWith<std::vector<agent::ProcessId>> done) override;
  std::vector<agent::ProcessId> holding;  // The core's thread.

 private:
  Executor* const on_;
};

class World {
 public:
  // `directory`: of the socket and the drain hook.
  World(std::string directory, agent::LocalPolicy policy, uint64_t seed);
  ~World();

  // The agent ends, and another takes its place. It hears from the manager a little later.
  absl::Status Restart();

  Manager& manager() { return manager_; }
  const std::string& socket_path() const { return socket_; }

  void SetHolders(std::vector<agent::ProcessId> holders);
  void LoseBytes(const std::string& tag);

 private:
  absl::Status StartAgent();
  void StopAgent();

  const std::string socket_;
  const std::string hook_;
  const agent::LocalPolicy policy_;
  SystemClock clock_;
  Loop loop_{"core"};
  Memory memory_{&loop_};
  Manager manager_;
  agent::PidfdWatch processes_;
  std::unique_ptr<agent::DrainProgram> drain_;
  std::unique_ptr<agent::AgentCore> core_;
  std::unique_ptr<agent::LocalService> service_;
  std::unique_ptr<agent::LocalServer> server_;
};

}  // namespace cxlpool::border

#endif  // CXLPOOL_TEST_BORDER_LOCAL_WORLD_H_
