// Clearing a slice: an agent zeroes it piece by piece, and another host's agent reads each piece
// back, where there is one.
//
// Whoever is asked to clear may stand still in the middle, and go on at any later time. So that it
// is asked is written down before (SharedState), and until the same host has answered something
// asked later, or lives another life, these bytes are not said to be clear by anybody: they would
// be somebody else's by the time it goes on. An agent works on its tasks one after the other, and
// ends the one that it has begun also when its session has ended. So the proof is any answer to a
// task that had its turn later. Within a session that is a check: other tasks overtake a clear that
// waits for its turn. KERNEL_TIMEOUT is none: the agent's kernel goes on with it.
//
// A host that cannot clear is left for another. One that says RANGE_TAKEN is no such host: somebody
// there still has these bytes, and nobody may be given them.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/fabric_shared/shared_backend.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr int kMaxTries = 3;  // Of a piece that was not zero afterwards.

bool Overlap(const Slice& a, const Slice& b) {
  return a.device == b.device &&
         cxlpool::fm::Overlap(a.dpa_bytes, a.length_bytes, b.dpa_bytes, b.length_bytes);
}

bool IsTaken(const absl::Status& status) {
  return ReasonOf(status) == "RANGE_TAKEN" && !CXLPOOL_MUTANT("taken-is-unable");
}

}  // namespace

class SharedScrub : public FabricScrub {
 public:
  // `piece_bytes`: that are cleared at a time.
  SharedScrub(SharedBackend* backend, Slice slice, std::string first, uint64_t piece_bytes)
      : backend_(backend),
        slice_(std::move(slice)),
        first_(std::move(first)),
        piece_bytes_(piece_bytes) {}

  // What the last task was is over, unless nobody knows.
  ~SharedScrub() override {
    if (!unheard_) Through();
  }

  absl::StatusOr<bool> Step(absl::Duration deadline) override;
  uint64_t done_bytes() const override { return done_; }

 private:
  absl::Status Choose();
  absl::StatusOr<bool> Clear(absl::Duration deadline);
  absl::StatusOr<bool> Check(absl::Duration deadline);
  absl::Status AskFor(const std::string& host, const std::string& life, bool only_check,
                      absl::Duration deadline);
  absl::StatusOr<bool> NextPiece();
  // RANGE_TAKEN, with who it is that has the bytes.
  absl::Status Taken(const std::string& host, const absl::Status& refused) const;
  void Through();
  uint64_t piece() const { return std::min(piece_bytes_, slice_.length_bytes - done_); }

  SharedBackend* const backend_;
  const Slice slice_;
  const std::string first_;  // The host that let it go; may be empty.
  const uint64_t piece_bytes_;
  bool settled_ = false;               // Nobody goes on clearing these bytes from an earlier time.
  std::optional<Clearing> by_;         // Who clears, as it is written down.
  uint64_t session_ = 0;               // The claim of that host. It clears in this session alone.
  bool unheard_ = false;               // `by_` did not answer.
  std::set<std::string> failed_;       // Hosts that could not.
  std::set<std::string> cannot_look_;  // Or that could not check.
  absl::Status why_;                   // The last of them.
  bool cleared_ = false;               // This piece; it is to be checked.
  int tries_ = 0;                      // Of this piece.
  uint64_t done_ = 0;
  bool lost_ = false;  // Some bytes cannot be cleared, nor read.
};

absl::StatusOr<std::unique_ptr<FabricScrub>> SharedBackend::BeginScrub(const Slice& slice) {
  std::string first;
  uint64_t piece_bytes = config_.clear_bytes;
  {
    MutexLock lock(mutex_);
    const auto device = devices_.find(slice.device);
    if (device != devices_.end() && device->second.align_bytes != 0) {
      const uint64_t align_bytes = device->second.align_bytes;
      piece_bytes = std::max(piece_bytes / align_bytes, uint64_t{1}) * align_bytes;
    }
    const auto host = released_.find(Piece(slice.device, slice.dpa_bytes, slice.length_bytes));
    if (host != released_.end()) first = host->second;
  }
  return std::make_unique<SharedScrub>(this, slice, std::move(first), piece_bytes);
}

// OK: whatever was asked for of these bytes earlier is over.
absl::Status SharedBackend::Settle(const Slice& slice, absl::Duration deadline) {
  if (absl::Status status = AwaitAll(slice, deadline); !status.ok()) return status;
  if (CXLPOOL_MUTANT("late-clear-forgotten")) return absl::OkStatus();
  const std::vector<Clearing> all = state_.clearings();
  for (const Clearing& each : all) {
    if (!Overlap(each.slice, slice)) continue;
    const std::string life = tasks_->LifeOf(each.host);
    // In another life nothing of the former one goes on.
    const bool over = life.empty() ? IsOff(each.host) || IsGivenUp(each.host) : life != each.life;
    if (!over) {
      absl::Status heard = AskWhether(each.host, life,
                                      absl::StrCat("was asked to clear bytes of device ",
                                                   slice.device, " and has not answered"),
                                      &each.slice, deadline);
      if (!heard.ok()) return heard;
    }
    if (absl::Status status = state_.Remove(each); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// OK: each host that a manager on another machine may have asked to clear something has answered
// this one, or is off. So it is through with that, and its agent refuses the former manager.
absl::Status SharedBackend::AwaitAll(const Slice& slice, absl::Duration deadline) {
  std::set<std::string> unheard;
  {
    MutexLock lock(mutex_);
    unheard = unheard_;
  }
  for (const std::string& host : unheard) {
    const std::string life = tasks_->LifeOf(host);
    if (!life.empty() || !IsOff(host)) {
      absl::Status heard = AskWhether(
          host, life,
          absl::StrCat("may have been asked by another manager to clear bytes of device ",
                       slice.device, " and has not answered this one yet"),
          nullptr, deadline);
      if (!heard.ok()) return heard;
    }
    MutexLock lock(mutex_);
    unheard_.erase(host);
  }
  return absl::OkStatus();
}

// OK: the host is through, in that life, with what it was asked for: in an earlier session of its
// agent, or (`cleared`) in this one. `asked`: what that may be, for people.
absl::Status SharedBackend::AskWhether(const std::string& host, const std::string& life,
                                       const std::string& asked, const Slice* cleared,
                                       absl::Duration deadline) {
  const std::string may = absl::StrCat("host ", host, " ", asked, ": it may still do so");
  if (life.empty()) {
    return Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE", may,
                  absl::StrCat("start cxlpool-agent on ", host,
                               ", or reboot or fence it; where it is off for good, `cxlpool host "
                               "retire ",
                               host, "`"));
  }
  const bool looks = cleared == nullptr || CXLPOOL_MUTANT("a-look-is-behind-a-clear");
  const absl::Status heard = Ask(host, life, looks ? LookTask() : CheckOf(*cleared),
                                 std::min(deadline, clock_.Elapsed() + config_.timing.clear))
                                 .status();
  // Whatever it says of the bytes. One for which there was no room has had no turn.
  const bool had_its_turn = !looks && !IsNoWord(heard) && !absl::IsResourceExhausted(heard);
  if (heard.ok() || had_its_turn) return absl::OkStatus();
  std::optional<Refusal> refusal = RefusalOf(heard);
  if (!refusal.has_value()) return heard;
  refusal->message = absl::StrCat(may, " (", refusal->message, ")");
  return refusal->ToStatus();
}

// A check of the first bytes, for the sake of its turn.
v1::DeviceTask SharedBackend::CheckOf(const Slice& slice) {
  v1::DeviceTask task;
  v1::DeviceClearTask& check = *task.mutable_clear();
  check.set_device(slice.device);
  check.set_dpa_bytes(slice.dpa_bytes);
  check.set_length_bytes(slice.length_bytes);
  check.set_only_check(true);
  check.set_coherent(config_.coherent);
  MutexLock lock(mutex_);
  if (const auto device = devices_.find(slice.device); device != devices_.end()) {
    check.set_mark(device->second.mark.id());
    check.set_length_bytes(std::min(slice.length_bytes, device->second.entry.granule_bytes));
  }
  return task;
}

// A piece: first it is cleared, then it is checked.
absl::StatusOr<bool> SharedScrub::Step(absl::Duration deadline) {
  deadline = std::min(deadline, backend_->clock_.Elapsed() + backend_->config_.timing.clear);
  if (!settled_) {
    if (absl::Status status = backend_->Settle(slice_, deadline); !status.ok()) return status;
    settled_ = true;
  }
  if (!by_.has_value()) {
    if (absl::Status status = Choose(); !status.ok()) return status;
  }
  return cleared_ ? Check(deadline) : Clear(deadline);
}

// The host that let the bytes go has them in its caches, if any has. Else any that reaches them.
absl::Status SharedScrub::Choose() {
  std::vector<std::string> hosts = backend_->HostsOf(slice_.device);
  std::erase_if(hosts, [&](const std::string& host) { return failed_.contains(host); });
  if (hosts.empty() && !why_.ok()) return why_;
  if (hosts.empty()) {
    return Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
                  absl::StrCat("no host that reaches device ", slice_.device,
                               " has an agent with a session that could clear it"),
                  "start cxlpool-agent on one of them");
  }
  const bool there = std::find(hosts.begin(), hosts.end(), first_) != hosts.end();
  Clearing by{there ? first_ : hosts.front(), "", slice_};
  by.life = backend_->tasks_->LifeOf(by.host);
  {
    MutexLock lock(backend_->mutex_);
    session_ = backend_->hosts_[by.host].claimed;
    if (session_ == 0) session_ = UINT64_MAX;  // None: it is refused.
  }
  if (absl::Status status = backend_->state_.Add(by); !status.ok()) return status;
  by_ = std::move(by);
  return absl::OkStatus();
}

absl::StatusOr<bool> SharedScrub::Clear(absl::Duration deadline) {
  const absl::Status cleared = AskFor(by_->host, by_->life, false, deadline);
  if (IsNoWord(cleared)) {
    unheard_ = true;
    return cleared;
  }
  if (ReasonOf(cleared) == "BYTES_LOST" && !CXLPOOL_MUTANT("lost-bytes-are-another-hosts")) {
    lost_ = true;  // All others are zero.
    return NextPiece();
  }
  if (IsTaken(cleared)) return Taken(by_->host, cleared);
  if (!cleared.ok()) {
    LogWarning(kSharedLogSubject, "host ", by_->host, " cannot clear bytes of device ",
               slice_.device, ": ", cleared.message());
    why_ = cleared;
    failed_.insert(by_->host);
    Through();
    return false;
  }
  cleared_ = true;
  return false;
}

// By another host than the one that cleared, so that what is seen is the memory, and not a cache.
absl::StatusOr<bool> SharedScrub::Check(absl::Duration deadline) {
  std::vector<std::string> hosts = backend_->HostsOf(slice_.device);
  std::erase_if(hosts, [&](const std::string& host) {
    return host == by_->host || cannot_look_.contains(host);
  });
  const std::string host = hosts.empty() ? by_->host : hosts.front();
  absl::Status zero;
  if (!CXLPOOL_MUTANT("cleared-is-not-checked")) {
    zero = AskFor(host, backend_->tasks_->LifeOf(host), true, deadline);
  }
  if (ReasonOf(zero) == "NOT_ZERO") {
    cleared_ = false;  // Once more.
    if (++tries_ < kMaxTries) return false;
    return zero;
  }
  if (IsTaken(zero)) return Taken(host, zero);
  lost_ |= ReasonOf(zero) == "BYTES_LOST";
  if (!zero.ok() && ReasonOf(zero) != "BYTES_LOST") {
    if (host == by_->host) return zero;
    cannot_look_.insert(host);
    return false;
  }
  return NextPiece();
}

// True: that was the last. Where bytes are lost nobody is to get them again: whoever loads them
// would be ended by it.
absl::StatusOr<bool> SharedScrub::NextPiece() {
  done_ += piece();
  cleared_ = false;
  tries_ = 0;
  if (done_ < slice_.length_bytes) return false;
  Through();
  MutexLock lock(backend_->mutex_);
  backend_->released_.erase(
      SharedBackend::Piece(slice_.device, slice_.dpa_bytes, slice_.length_bytes));
  if (!lost_) return true;
  return Refuse(absl::StatusCode::kUnimplemented, "NOT_SCRUBBABLE",
                absl::StrCat("some bytes of device ", slice_.device,
                             " are lost: they can be neither cleared nor read"),
                "see that device's health, and replace it");
}

absl::Status SharedScrub::Taken(const std::string& host, const absl::Status& refused) const {
  return Refuse(absl::StatusCode::kFailedPrecondition, "RANGE_TAKEN",
                absl::StrCat("host ", host, " still has some of these bytes of device ",
                             slice_.device, ": ", refused.message()),
                absl::StrCat("find out on ", host,
                             " whose it is (`daxctl list`), and remove it there if nobody needs it "
                             "(`daxctl destroy-device`); it is tried again"));
}

absl::Status SharedScrub::AskFor(const std::string& host, const std::string& life, bool only_check,
                                 absl::Duration deadline) {
  v1::DeviceTask task;
  v1::DeviceClearTask& clear = *task.mutable_clear();
  clear.set_device(slice_.device);
  {
    MutexLock lock(backend_->mutex_);
    const auto device = backend_->devices_.find(slice_.device);
    if (device != backend_->devices_.end()) clear.set_mark(device->second.mark.id());
  }
  clear.set_dpa_bytes(slice_.dpa_bytes + done_);
  clear.set_length_bytes(piece());
  clear.set_only_check(only_check);
  clear.set_coherent(backend_->config_.coherent);
  return backend_->Ask(host, life, std::move(task), deadline, only_check ? 0 : session_).status();
}

// Everything that this host was asked to clear it has answered.
void SharedScrub::Through() {
  if (!by_.has_value()) return;
  if (absl::Status status = backend_->state_.Remove(*by_); !status.ok()) {
    LogError(kSharedLogSubject, "cannot write down that host ", by_->host,
             " has cleared bytes of device ", slice_.device, ": ", status.message());
  }
  by_.reset();
}

}  // namespace cxlpool::fm
