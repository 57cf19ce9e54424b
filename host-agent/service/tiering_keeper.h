// Keeps the kernel's memory policy as [tiering] wants it while memory of the pool is online as
// system-ram, and gives the host its own back: when the last such memory goes, when the agent
// stops, and when it starts after a crash and nothing needs the policy any more.
//
// The former values are saved before the first one is changed. A value that somebody else
// changed meanwhile stays, and so does what this kernel does not have (TIERING_UNSUPPORTED): both
// are logged, and neither keeps memory from coming or going. What fails is tried again.
//
// Works on its Executor, which may be held up for milliseconds: not the core's.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_TIERING_KEEPER_H_
#define CXLPOOL_HOST_AGENT_SERVICE_TIERING_KEEPER_H_

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "host-agent/model/tiering.h"
#include "host-agent/ports/host_policy.h"
#include "proto/support/executor.h"

namespace cxlpool::agent {

inline constexpr absl::Duration kTieringRetry = absl::Seconds(5);

class TieringKeeper {
 public:
  // Both outlive this. An empty `config`: only takes back what an agent before left.
  TieringKeeper(const TieringConfig& config, Executor* executor, HostPolicy* policy);

  // The host has been looked at. From one thread; quick where nothing has changed.
  void Update(const TieringNodes& nodes);

  // Takes everything back, and does nothing more. Any thread.
  void Stop();

 private:
  enum class Outcome { kDone, kFailed, kNever };  // Never: this host cannot.

  void Settle();
  bool Restore(const PolicyValues& wanted);
  bool Set(const PolicyValues& wanted);
  bool Save(const SavedPolicy& saved);
  Outcome Write(const std::string& name, const std::string& value);
  bool Failed(const std::string& text);

  const TieringConfig config_;
  Executor* const executor_;
  HostPolicy* const policy_;
  std::optional<TieringNodes> latest_;  // Of Update's thread.

  // Used only on the Executor's thread.
  TieringNodes nodes_;
  bool stopped_ = false;
  bool retrying_ = false;
  std::optional<SavedPolicy> saved_;  // Nothing: not read yet.
  std::set<std::string> unsupported_;
  std::set<std::string> failed_;  // What went wrong and was logged, since all was well.

  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_TIERING_KEEPER_H_
