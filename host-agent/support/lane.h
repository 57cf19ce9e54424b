// One thread for calls that block in the kernel, and a promise that each is answered in time.
//
// Jobs run one after another. A job still waiting when its time is up is answered
// DEADLINE_EXCEEDED and never runs. A running job is given its Deadline and should keep to it; one
// that is stuck in the kernel is answered for by a second thread shortly after, while it goes on
// (its late answer is dropped).
//
// Any thread may call Run. The destructor cancels what waits, gives the running job ten seconds,
// and then leaves it behind: a Job must own what it touches.
#ifndef CXLPOOL_HOST_AGENT_SUPPORT_LANE_H_
#define CXLPOOL_HOST_AGENT_SUPPORT_LANE_H_

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "host-agent/support/deadline.h"
#include "proto/support/executor.h"

namespace cxlpool::agent {

class Lane {
 public:
  // Behind all that wait, or before those that are to run last.
  enum class Turn { kLast, kNext };
  using Work = absl::AnyInvocable<absl::Status(const Deadline&) &&>;

  // More waiting jobs than this are refused: RESOURCE_EXHAUSTED/TOO_MANY_CALLS.
  static constexpr size_t kMaxWaiting = 64;

  Lane();
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // `what` names the job in errors. `done` is called once, from one of the Lane's threads, from
  // Run itself, or from the destructor.
  void Run(std::string what, absl::Duration timeout, Work work, Done done, Turn turn = Turn::kLast);

  // The same for work that has a result.
  template <typename T>
  void RunWith(std::string what, absl::Duration timeout,
               absl::AnyInvocable<absl::StatusOr<T>(const Deadline&) &&> work, DoneWith<T> done,
               Turn turn = Turn::kLast) {
    auto result = std::make_shared<T>();
    Run(
        std::move(what), timeout,
        [result, work = std::move(work)](const Deadline& deadline) mutable {
          absl::StatusOr<T> made = std::move(work)(deadline);
          if (made.ok()) *result = *std::move(made);
          return made.status();
        },
        // OK comes from the work's own thread, after it wrote `result`; no other status reads it.
        [result, done = std::move(done)](absl::Status status) mutable {
          if (status.ok()) {
            std::move(done)(std::move(*result));
          } else {
            std::move(done)(std::move(status));
          }
        },
        turn);
  }

 private:
  struct Job;
  struct Shared;
  static void WorkOff(const std::shared_ptr<Shared>& shared);
  static void KeepTime(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;
  std::thread worker_;
  std::thread keeper_;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SUPPORT_LANE_H_
