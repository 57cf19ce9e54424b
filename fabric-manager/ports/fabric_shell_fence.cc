// How a FabricShell cuts hosts off: by the fabric, binding by binding, or by the operator's
// program.

#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/ports/fabric_shell.h"
#include "proto/support/mutant.h"
#include "proto/support/operator_program.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

absl::Status NoFence(const std::string& host) {
  return Refuse(absl::StatusCode::kUnimplemented, "NO_FENCE",
                absl::StrCat("this fabric cannot cut host ", host, " off"),
                "cut its power by hand, or give the manager a program that does (fence_program)");
}

}  // namespace

absl::Status FenceFailed(const std::string& host, absl::string_view why, std::string remedy) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "FENCE_FAILED",
                absl::StrCat("host ", host, " was not fenced: ", why), std::move(remedy));
}

absl::StatusOr<bool> FabricBackend::Fence(const std::string& host, absl::Duration) {
  return NoFence(host);
}

absl::Status FabricBackend::EndLife(const std::string& host, const std::string&) {
  return NoFence(host);
}

absl::StatusOr<bool> FabricBackend::FenceBinding(const Binding& binding, absl::Duration) {
  return NoFence(binding.key.host);
}

// A caller who asks while a fence of the host is under way gets that one's answer.
void FabricShell::Fence(std::string host, Done done) {
  bool known = false;
  {
    // Both in one: it is not forgotten while its fence is under way.
    MutexLock lock(mutex_);
    known = hosts_.contains(host);
    if (known) {
      std::vector<Done>& waiting = fences_[host];
      waiting.push_back(std::move(done));
      if (waiting.size() > 1) return;
    }
  }
  if (!known) return std::move(done)(UnknownHost(host));
  const auto answer = std::make_shared<Answer<absl::Status>>([this, host](absl::Status status) {
    std::vector<Done> waiting;
    {
      MutexLock lock(mutex_);
      waiting.swap(fences_[host]);
      fences_.erase(host);
    }
    for (Done& waits : waiting) {
      if (&waits != &waiting.back()) std::move(waits)(status);
    }
    std::move(waiting.back())(std::move(status));
  });
  if (!options_.fence_program.path.empty()) return FenceByProgram(host, answer);
  auto call = MakeFabricCall(answer);
  call->limit = options_.fence;
  call->deadline = clock_.Elapsed() + options_.fence;
  call->attempt = [this, answer, host](FabricCall& own) {
    absl::StatusOr<bool> fenced = FenceNow(host, own.end);
    if (fenced.ok() && !*fenced) return false;
    answer->Give(std::move(fenced).status());
    return true;
  };
  call->late = [host](bool) {
    return FenceFailed(host, "the fabric does not answer",
                       "end the host by hand, then fence it again");
  };
  SubmitFor(host, std::move(call), /*first=*/true);
}

// A piece of a fence by the fabric itself. Where it can only cut binding by binding, each that it
// shows is cut, until it shows none.
absl::StatusOr<bool> FabricShell::FenceNow(const std::string& host, absl::Duration deadline) {
  if (capabilities_.fence != FenceScope::kBinding) return backend_->Fence(host, deadline);
  const HostLook look = ClaimAndLook(host, deadline);
  if (!look.host.reachable) {
    return FenceFailed(host, look.host.unreachable_reason, "end the host by hand");
  }
  for (const BoundLd& ld : look.bound) {
    const absl::StatusOr<bool> cut = backend_->FenceBinding(ld.binding(), deadline);
    if (!cut.ok()) return cut.status();
    if (CXLPOOL_MUTANT("fence-cuts-the-first")) return true;
  }
  return look.bound.empty();
}

// Where the life that was to end was not known (""), finding another one proves nothing.
bool FabricShell::IsCutOff(const std::string& host, const std::string& life) {
  const HostLook look = ClaimAndLook(host, clock_.Elapsed() + options_.operation);
  const bool another = (!life.empty() || CXLPOOL_MUTANT("any-life-is-another")) &&
                       look.host.fabric_incarnation != life;
  if (look.host.reachable && (another || look.bound.empty())) return true;
  MutexLock lock(mutex_);
  const auto gone = gone_.find(host);
  return gone != gone_.end() && !life.empty() && gone->second == life;
}

// Asks the fence program, which has just cut the power, whether it is off: the status by which
// fence agents say so. One that knows no actions exits with another.
bool FabricShell::IsOff(const ProgramCall& call) {
  constexpr int kOff = 2;
  ProgramRun run;
  run.Run(call).IgnoreError();
  run.AwaitDeath(stop_.get());
  return run.exit_status() == kOff || CXLPOOL_MUTANT("any-status-is-off");
}

// The program runs on a lane of its own, for the host's may hang. Then the host's lane looks, until
// the fabric shows that the host is cut off, or long enough. One that does not even die of SIGKILL
// keeps that lane: who asks meanwhile is told so, and does not wait for it.
void FabricShell::FenceByProgram(const std::string& host,
                                 std::shared_ptr<Answer<absl::Status>> answer) {
  std::string life;
  {
    MutexLock lock(mutex_);
    life = hosts_.at(host).fabric_incarnation;
  }
  const auto confirm = [this, host, life, answer] {
    const absl::Duration end = clock_.Elapsed() + options_.fence_confirmed;
    auto call = MakeFabricCall(answer);
    call->deadline = end + kGrace;
    call->retry = options_.recheck;
    call->late = [host](bool) {
      return FenceFailed(host, "its fence program ended well, and the fabric still shows it bound",
                         "cut its power by hand, and repair the program");
    };
    call->attempt = [this, host, life, answer, end](FabricCall& own) {
      if (IsCutOff(host, life)) {
        answer->Give(absl::OkStatus());
      } else if (clock_.Elapsed() >= end) {
        answer->Give(own.late(true));
      } else {
        return false;
      }
      return true;
    };
    SubmitFor(host, std::move(call));
  };
  auto call = MakeFabricCall(answer);
  if (!CXLPOOL_MUTANT("fence-program-has-no-deadline")) {
    call->limit = 2 * options_.fence_program.timeout + options_.operation;
    call->deadline = clock_.Elapsed() + call->limit;
  }
  call->late = [host](bool begun) {
    return FenceFailed(host,
                       begun ? "its fence program, or what comes of it, does not end"
                             : "what an earlier run of its fence program began does not end",
                       "cut its power by hand, and see why the program hangs");
  };
  call->attempt = [this, host, life, answer, confirm](FabricCall&) {
    const auto program = [&](absl::string_view action) {
      return ProgramCall{.what = "the fence program",
                         .reason = "FENCE_PROGRAM",
                         .subject = "fence",
                         .about = absl::StrCat("host ", host),
                         .path = options_.fence_program.path,
                         .arguments = {host},
                         .environment = {absl::StrCat("CXLPOOL_ACTION=", action),
                                         absl::StrCat("CXLPOOL_HOST=", host),
                                         absl::StrCat("CXLPOOL_INCARNATION=", life)},
                         .timeout = options_.fence_program.timeout,
                         .stop = stop_.get()};
    };
    ProgramRun run;
    const absl::Status ran = run.Run(program("off"));
    if (absl::IsCancelled(ran)) {
      answer->Give(ran);
    } else if (!ran.ok()) {
      answer->Give(FenceFailed(host, ran.message(), "what it wrote is in the log; repair it"));
    } else if (CXLPOOL_MUTANT("fence-program-believed")) {
      answer->Give(absl::OkStatus());
    } else if (!backend_->SeesEnds() && !life.empty() && IsOff(program("status"))) {
      answer->Give(backend_->EndLife(host, life));
    } else {
      confirm();
    }
    run.AwaitDeath(stop_.get());
    return true;
  };
  const std::string lane = FenceLaneOf(host);
  lanes_.Open(lane);
  lanes_.Submit(lane, std::move(call));
}

std::string FabricShell::FenceLaneOf(const std::string& host) {
  return absl::StrCat("<fence> ", host);
}

}  // namespace cxlpool::fm
