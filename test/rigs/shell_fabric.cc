#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "fabric-manager/ports/fabric_shell.h"
#include "test/rigs/bare_fabric.h"
#include "test/rigs/fake_fabric.h"

namespace cxlpool::fm {
namespace {

// Longer than any call takes on a busy machine. What is awaited may come as late as it likes.
constexpr std::chrono::seconds kNoAnswer{20};
constexpr std::chrono::milliseconds kAwaited{1};

// Others have the world meanwhile: the backend wants it, also in calls on this thread.
class Outside {
 public:
  explicit Outside(std::unique_lock<std::mutex>& world) : world_(world) { world_.unlock(); }
  ~Outside() { world_.lock(); }

 private:
  std::unique_lock<std::mutex>& world_;
};

class ShellFabric : public WorldFabric {
 public:
  explicit ShellFabric(World* world) : world_(world), mine_(world->threads->mutex.native()) {
    auto backend = std::make_unique<BareFabric>(world);
    backend_ = backend.get();
    FabricShell::Options options;
    options.recheck = absl::Milliseconds(1);
    shell_ = std::make_unique<FabricShell>(std::move(backend), options);
  }
  ~ShellFabric() override {
    mine_.unlock();  // Its threads end.
    shell_.reset();
  }

  FabricCapabilities capabilities() const override { return shell_->capabilities(); }
  void Start(KnownFabric known, absl::AnyInvocable<void(FabricEvent)> sink) override {
    started_with = known;
    auto shared = std::make_shared<absl::AnyInvocable<void(FabricEvent)>>(std::move(sink));
    const Outside outside(mine_);
    shell_->Start(std::move(known), [this, shared](const FabricEvent& event) {
      MutexLock lock(mutex_);
      answers_.emplace_back([shared, event] { (*shared)(event); });
    });
  }
  void Configure(FabricParts, Done done) override { std::move(done)(absl::OkStatus()); }
  void Discover(DoneWith<FabricView> done) override {
    if (dead) return;
    const Outside outside(mine_);
    shell_->Discover(InGoOn<absl::StatusOr<FabricView>>(std::move(done)));
  }
  void DiscoverHost(std::string host, DoneWith<FabricView> done) override {
    if (dead) return;
    const Outside outside(mine_);
    shell_->DiscoverHost(std::move(host), InGoOn<absl::StatusOr<FabricView>>(std::move(done)));
  }
  void Bind(BindRequest request, DoneWith<BoundLd> done) override {
    if (dead) return;
    auto held = std::make_shared<std::pair<BindRequest, DoneWith<BoundLd>>>(std::move(request),
                                                                            std::move(done));
    auto begin = [this, held] {
      const Outside outside(mine_);
      shell_->Bind(std::move(held->first),
                   InGoOn<absl::StatusOr<BoundLd>>(std::move(held->second)));
    };
    if (!world_->slow_binds) return begin();
    world_->slow.push_back([this, begin] {
      begin();
      Wait();
    });
  }
  void BeginUnbind(Binding binding, Done done) override {
    if (dead) return;
    const Outside outside(mine_);
    shell_->BeginUnbind(std::move(binding), InGoOn<absl::Status>(std::move(done)));
  }
  void AwaitUnbound(Binding binding, absl::Duration timeout, Done done) override {
    if (dead) return;
    const Outside outside(mine_);
    shell_->AwaitUnbound(std::move(binding), timeout,
                         InGoOn<absl::Status>(std::move(done), &awaited_));
  }
  void Fence(std::string host, Done done) override {
    if (dead) return;
    const Outside outside(mine_);
    shell_->Fence(std::move(host), InGoOn<absl::Status>(std::move(done)));
  }
  void Scrub(Slice slice, ScrubProgress progress, DoneWith<ScrubResult> done) override {
    if (dead) return;
    const Outside outside(mine_);
    shell_->Scrub(std::move(slice), std::move(progress),
                  InGoOn<absl::StatusOr<ScrubResult>>(std::move(done)));
  }
  void Emit(FabricEvent event) override {
    const Outside outside(mine_);
    backend_->Emit(std::move(event));
  }

  void GoOn() override {
    Wait();
    std::deque<std::function<void()>> answers;
    {
      MutexLock lock(mutex_);
      answers.swap(answers_);
    }
    for (const auto& answer : answers) {
      if (!dead) answer();
    }
  }

 private:
  // Of a completion that a lane's thread calls. `open`: which calls it is one of.
  template <typename Answer, typename Callback>
  absl::AnyInvocable<void(Answer) &&> InGoOn(Callback done, int* open = nullptr) {
    if (open == nullptr) open = &calls_;
    MutexLock lock(mutex_);
    ++*open;
    auto held = std::make_shared<Callback>(std::move(done));
    return [this, held, open](Answer answer) {
      auto given = std::make_shared<Answer>(std::move(answer));
      MutexLock answer_lock(mutex_);
      --*open;
      answers_.emplace_back([held, given] { std::move (*held)(std::move(*given)); });
      answered_.notify_all();
    };
  }

  // Until every call but those that await something was answered.
  void Wait() {
    const Outside outside(mine_);
    MutexLock lock(mutex_);
    if (calls_ > 0) {
      answered_.wait_for(lock.native(), kNoAnswer, [this] { return calls_ == 0; });
    } else if (awaited_ > 0) {
      answered_.wait_for(lock.native(), kAwaited);
    }
  }

  World* const world_;
  std::unique_lock<std::mutex> mine_;  // The world, while its thread runs.
  BareFabric* backend_;
  Mutex mutex_;
  std::condition_variable answered_;
  int calls_ = 0;    // Not answered, but those that await something.
  int awaited_ = 0;  // Of these.
  std::deque<std::function<void()>> answers_;
  std::unique_ptr<FabricShell> shell_;
};

}  // namespace

std::unique_ptr<WorldFabric> MakeShellFabric(World* world) {
  return std::make_unique<ShellFabric>(world);
}

}  // namespace cxlpool::fm
