// The local border holds: whatever local users ask of an agent, by name or by tag, in races, before
// it has heard from the manager and after restarts, they get what the policy lets them have and
// nothing else; and no pid that is another's reaches the drain hook.
//
// Each seed is a policy, some Regions and some hundred calls over real sockets. Users are real: a
// call is made by a thread with the user's ids (the kernel takes those of the process that
// connects). What was answered is held against Judge (local_world.h). Needs root.

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "host-agent/local/packet.h"
#include "proto/support/names.h"
#include "proto/support/process_stat.h"
#include "test/border/local_world.h"
#include "test/trials/trial.h"

namespace cxlpool::border {
namespace {

constexpr int kCallers = 4;
constexpr int kCallsOfCaller = 70;
constexpr uint64_t kCiSeeds = 40;  // 11,200 calls, and one stale pid each.
constexpr uint32_t kAgentUid = 990;

const std::vector<User>& Users() {
  static const auto& users = *new std::vector<User>{
      {0, {0}},       {kAgentUid, {990}},   {1001, {1001}},       {1002, {1002, 2001}},
      {1003, {1003}}, {1004, {1004, 2002}}, {1005, {2001, 2002}}, {1006, {1006}}};
  return users;
}

// The calling thread connects as the user. By system calls: the library's would change every
// thread.
UniqueFd ConnectAs(const User& user, const std::string& path) {
  const std::vector<gid_t> groups(user.gids.begin(), user.gids.end());
  ::syscall(SYS_setgroups, groups.size(), groups.data());
  ::syscall(SYS_setresgid, -1, user.gids.front(), -1);
  ::syscall(SYS_setresuid, -1, user.uid, -1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    socket.Reset();
  }
  ::syscall(SYS_setresuid, -1, 0, -1);
  ::syscall(SYS_setresgid, -1, 0, -1);
  ::syscall(SYS_setgroups, 0, nullptr);
  return socket;
}

// Nothing: the agent went away, or hung up.
std::optional<v1::LocalResponse> Ask(int socket, const v1::LocalRequest& request) {
  const std::string bytes = request.SerializeAsString();
  ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  std::string packet(agent::kMaxPacketBytes, '\0');
  for (int tries = 0; tries < 2; ++tries) {  // The kernel tells of a hang-up before what was said.
    pollfd ready = {.fd = socket, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 20'000) != 1) return std::nullopt;
    const ssize_t size =
        ::recv(socket, packet.data(), packet.size(), 0);  // Descriptors are dropped.
    if (size < 0 && errno == ECONNRESET) continue;
    v1::LocalResponse response;
    if (size <= 0 || !response.ParseFromArray(packet.data(), static_cast<int>(size))) break;
    return response;
  }
  return std::nullopt;
}

bool IsOfTheJudge(const std::string& reason) {
  return reason == "USER_NOT_ALLOWED" || reason == "WRONG_TENANT" || reason == "REGION_NOT_YOURS";
}

// What was tried, over all seeds.
struct Tried {
  std::atomic<uint64_t> calls = 0, granted = 0, refused = 0, unheard = 0, lost = 0;
  std::atomic<uint64_t> restarts = 0, stale_pids = 0, reused_pids = 0;
};

class Trial {
 public:
  Trial(uint64_t seed, Tried* tried)
      : random_(seed), tried_(tried), policy_(MakePolicy()), judge_(policy_) {
    char name[] = "/tmp/cxlpool-border-XXXXXX";
    directory_ = ::mkdtemp(name);
    ::chmod(directory_.c_str(), 0755);
    std::ofstream(directory_ + "/hook")
        << "#!/bin/sh\necho \"$CXLPOOL_PIDS|$CXLPOOL_PID_STARTS\" >> " << directory_ << "/pids\n";
    ::chmod((directory_ + "/hook").c_str(), 0755);
    world_ = std::make_unique<World>(directory_, policy_, seed);
  }
  ~Trial() {
    world_.reset();
    std::filesystem::remove_all(directory_);
  }

  absl::Status Run() {
    if (absl::Status s = world_->Restart(); !s.ok()) return s;
    for (int i = 0; i < 8; ++i) world_->manager().Make(absl::StrCat("regions/r", i), SomeTruth());
    std::atomic<int> callers = kCallers;
    std::vector<std::thread> threads;
    for (int i = 0; i < kCallers; ++i) {
      threads.emplace_back([this, &callers, seed = random_()] {
        std::mt19937_64 random(seed);
        for (int call = 0; call < kCallsOfCaller; ++call) Call(random);
        --callers;
      });
    }
    Meddle(callers);
    for (std::thread& thread : threads) thread.join();
    for (const auto& [id, name] : world_->manager().Released()) CheckReleased(id, name);
    if (Failure().empty()) StalePid();
    const std::string failure = Failure();
    return failure.empty() ? absl::OkStatus() : absl::InternalError(failure);
  }

 private:
  bool OneIn(int n) { return random_() % static_cast<uint64_t>(n) == 0; }
  uint32_t SomeUid() { return 1001 + static_cast<uint32_t>(random_() % 6); }

  agent::LocalPolicy MakePolicy() {
    agent::LocalPolicy policy;
    policy.agent_uid = kAgentUid;
    const auto reach = [this] { return OneIn(4) ? agent::Reach::kTenant : agent::Reach::kOwn; };
    policy.may_open = reach();
    policy.may_release = reach();
    if (OneIn(3)) policy.allowed_uids = {1001, 1003, SomeUid()};
    for (int rules = static_cast<int>(random_() % 3); rules > 0; --rules) {
      agent::UserRule rule;
      if (OneIn(2)) rule.uids = {SomeUid(), SomeUid()};
      if (rule.uids.empty() || OneIn(3)) rule.gids = {OneIn(2) ? 2001u : 2002u};
      rule.tenant = OneIn(2) ? "tenants/ml" : "tenants/default";
      rule.persistent = true;
      rule.may_open = reach();
      rule.may_release = reach();
      policy.users.push_back(std::move(rule));
    }
    return policy;
  }

  Truth SomeTruth() {
    Truth truth;
    truth.tenant = OneIn(3) ? "tenants/ml" : "tenants/default";
    if (!OneIn(3)) {
      truth.maker_host = OneIn(4) ? "hosts/host-b" : kThisHost;
      truth.maker_uid = OneIn(6) ? 0 : SomeUid();
    }
    if (OneIn(3)) truth.open_to.add_uids(SomeUid());
    if (OneIn(4)) truth.open_to.add_gids(OneIn(2) ? 2001 : 2002);
    if (OneIn(6)) truth.open_to.set_everybody(true);
    return truth;
  }

  // Names change hands, Regions come, bytes are lost, the agent restarts.
  void Meddle(const std::atomic<int>& callers) {
    int made = 0;
    while (callers > 0) {
      absl::SleepFor(absl::Milliseconds(random_() % 8));
      switch (random_() % 8) {
        case 0:
          ++tried_->restarts;
          if (absl::Status s = world_->Restart(); !s.ok()) Fail(std::string(s.message()));
          break;
        case 1:
        case 2:
          world_->manager().Make(absl::StrCat("regions/m", made++), SomeTruth());
          break;
        case 3:
          world_->LoseBytes(world_->manager().SomeTag());
          break;
        default:
          world_->manager().SwapNames();
      }
    }
  }

  // One call of some user, and what must not come of it.
  void Call(std::mt19937_64& random) {
    const User& user = Users()[random() % Users().size()];
    Manager& manager = world_->manager();
    const std::string tag = manager.SomeTag();
    const bool by_tag = random() % 2 == 0;
    const std::string name = by_tag ? absl::StrCat("regions/", tag) : manager.SomeName();
    v1::LocalRequest request;
    request.set_protocol_version(agent::kLocalProtocolVersion);
    const uint64_t verb = random() % 10;
    if (verb < 3) {
      request.mutable_open()->set_name(random() % 4 == 0 ? "regions/made-up" : name);
      if (by_tag) request.mutable_open()->set_tag(tag);
      request.mutable_open()->set_wait_ms(random() % 3 == 0 ? 10 : 0);
    } else if (verb < 6) {
      request.mutable_release()->set_name(name);
      request.mutable_release()->set_request_id(FormatUuid(RandomUuid()));
      MutexLock lock(mutex_);
      askers_[request.release().request_id()] = user;
    } else if (verb < 7) {
      request.mutable_list();
    } else if (verb < 8) {
      request.mutable_faults();
    } else {
      v1::LocalAllocateRequest& allocate = *request.mutable_allocate();
      allocate.set_request_id(FormatUuid(RandomUuid()));
      allocate.set_size_bytes(1 + random() % kBytes);
      allocate.set_persistent(random() % 2 == 0);
      allocate.set_wait_ms(50);
      if (random() % 3 == 0) allocate.mutable_open_to()->set_everybody(true);
    }
    UniqueFd socket = ConnectAs(user, world_->socket_path());
    for (int tries = 0; tries < 5000 && !socket.valid(); ++tries) {  // Between two agents.
      absl::SleepFor(absl::Milliseconds(1));
      socket = ConnectAs(user, world_->socket_path());
    }
    ++tried_->calls;
    const auto answer = Ask(socket.get(), request);
    if (!answer.has_value()) {
      ++tried_->lost;
      return;
    }
    const std::string what = absl::StrCat("uid ", user.uid, ": ", request.ShortDebugString(),
                                          " -> ", answer->ShortDebugString().substr(0, 300));
    if (answer->code() != 0) return CheckRefusal(user, request, by_tag ? tag : "", *answer, what);
    ++tried_->granted;
    if (!judge_.MayConnect(user)) return Fail(absl::StrCat("served, and not let in: ", what));
    if (answer->has_open()) {
      CheckSeen(user, answer->open().tag(), what);
      if (request.has_allocate()) CheckMade(user, answer->open().tag(), what);
    }
    for (const v1::LocalRegion& region : answer->list().regions()) {
      CheckSeen(user, region.tag(), what);
    }
    for (const v1::LocalFault& fault : answer->faults().faults()) {
      CheckSeen(user, fault.tag(), what);
    }
    for (const v1::LocalSize& size : answer->faults().sizes()) {
      CheckSeen(user, size.tag(), what);
    }
  }

  void CheckSeen(const User& user, const std::string& tag, const std::string& what) {
    const auto truth = world_->manager().Find(tag);
    if (truth.has_value() && judge_.MayOpen(user, *truth)) return;
    Fail(absl::StrCat("the policy forbids it: ", what));
  }

  void CheckMade(const User& user, const std::string& tag, const std::string& what) {
    const auto truth = world_->manager().Find(tag);
    if (truth.has_value() && truth->maker_host == kThisHost && truth->maker_uid == user.uid) return;
    Fail(absl::StrCat("it is another's: ", what));
  }

  // The border is no wall for those who may: by a tag there is no doubt what was meant.
  void CheckRefusal(const User& user, const v1::LocalRequest& request, const std::string& tag,
                    const v1::LocalResponse& answer, const std::string& what) {
    const std::string& reason = answer.error().reason();
    if (!IsOfTheJudge(reason)) {
      ++tried_->unheard;
      return;
    }
    ++tried_->refused;
    if (judge_.MayConnect(user) != (reason != "USER_NOT_ALLOWED")) {
      return Fail(absl::StrCat("let in or not, against the policy: ", what));
    }
    const auto truth = tag.empty() ? std::nullopt : world_->manager().Find(tag);
    if (!truth.has_value() || request.has_allocate()) return;
    // What its tag names may be gone, and its name another's: then that one was judged.
    const bool may = request.has_release()
                         ? judge_.MayRelease(user, *truth)
                         : request.open().name() == absl::StrCat("regions/", tag) &&
                               judge_.MayOpen(user, *truth);
    if (may) Fail(absl::StrCat("the policy allows it: ", what));
  }

  // What the manager was asked to release: by tag, and for somebody who may.
  void CheckReleased(const std::string& id, const std::string& name) {
    MutexLock lock(mutex_);
    const auto asker = askers_.find(id);
    const auto tag = ParseResourceName("regions", name);
    const auto truth = tag.ok() ? world_->manager().Find(*tag) : std::nullopt;
    if (asker == askers_.end() || !truth.has_value()) {
      failure_ = absl::StrCat("a release of ", name, ", which is no tag, or by nobody");
    } else if (!judge_.MayRelease(asker->second, *truth)) {
      failure_ = absl::StrCat("uid ", asker->second.uid, " released ", name,
                              ", which the policy forbids: maker ", truth->maker_host, " ",
                              truth->maker_uid, ", ", truth->tenant);
    }
  }

  // A process opens a Region, leaves the connection to a child, and ends; its pid becomes
  // another's. The hook must hear of the child and of nobody else.
  void StalePid() {
    const User user{0, {0}};
    std::optional<Truth> region;
    for (int i = 0; i < 200 && !region.has_value(); ++i) {
      region = world_->manager().Make("regions/stale", SomeTruth());
      if (region.has_value()) break;
      v1::LocalRequest release;
      release.set_protocol_version(agent::kLocalProtocolVersion);
      release.mutable_release()->set_name(world_->manager().SomeName());
      release.mutable_release()->set_request_id(FormatUuid(RandomUuid()));
      Ask(ConnectAs(user, world_->socket_path()).get(), release);
      absl::SleepFor(absl::Milliseconds(2));  // It may not have heard from the manager yet.
    }
    if (!region.has_value()) return Fail("no room for the Region of the stale pid");
    v1::LocalRequest open;
    open.set_protocol_version(agent::kLocalProtocolVersion);
    open.mutable_open()->set_name(absl::StrCat("regions/", region->tag));
    open.mutable_open()->set_wait_ms(5000);
    std::array<int, 2> pipe;
    if (::pipe(pipe.data()) != 0) return Fail("pipe");
    const std::string bytes = open.SerializeAsString();
    const std::string path = world_->socket_path();
    const pid_t opener = ::fork();
    if (opener == 0) {  // System calls alone: the process has threads.
      const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
      sockaddr_un address = {};
      address.sun_family = AF_UNIX;
      memcpy(address.sun_path, path.c_str(), std::min(path.size(), sizeof(address.sun_path) - 1));
      std::array<char, 4096> answer;
      if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
          ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0 ||
          ::recv(socket, answer.data(), answer.size(), 0) <= 0) {
        ::_exit(1);
      }
      const pid_t heir = ::fork();
      if (heir == 0) {
        while (true) ::pause();
      }
      const bool sent = ::write(pipe[1], &heir, sizeof(heir)) == sizeof(heir);
      ::_exit(sent ? 0 : 1);
    }
    int status = 0;
    ::waitpid(opener, &status, 0);
    pid_t heir = 0;
    ::close(pipe[1]);
    const bool heard = ::read(pipe[0], &heir, sizeof(heir)) == sizeof(heir);
    ::close(pipe[0]);
    if (status != 0 || !heard) return Fail("the opener of the stale pid failed");
    // A start is given in hundredths of a second. No machine goes through all its pids in one.
    absl::SleepFor(absl::Milliseconds(30));
    const pid_t bystander = ProcessWithPid(opener);
    const auto id = static_cast<uint32_t>(heir);
    world_->SetHolders({{id, StartTicksOf(id)}});
    world_->manager().Want(region->tag, v1::Offer::WANT_OFFLINE);
    const std::string hook_saw = AwaitHook();
    if (hook_saw != absl::StrCat(heir, "|", StartTicksOf(id))) {
      Fail(absl::StrCat("the hook heard of \"", hook_saw, "\"; ", heir, " has the Region, ", opener,
                        " has ended", bystander > 0 ? ", and its pid is another's" : ""));
    }
    ++tried_->stale_pids;
    if (bystander > 0) ++tried_->reused_pids;
    for (const pid_t pid : {heir, bystander}) {
      if (pid <= 0) continue;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  // A process that has got this pid; 0: the kernel does not give it away at will.
  static pid_t ProcessWithPid(pid_t pid) {
    for (int tries = 0; tries < 5; ++tries) {
      std::ofstream last("/proc/sys/kernel/ns_last_pid");
      if (!(last << pid - 1 << std::flush)) return 0;
      const pid_t child = ::fork();
      if (child == 0) {
        while (true) ::pause();
      }
      if (child == pid) return child;
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    return 0;
  }

  std::string AwaitHook() const {
    for (int i = 0; i < 1000; ++i) {
      std::ifstream in(directory_ + "/pids");
      std::string line;
      if (std::getline(in, line) && !in.eof()) return line;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return "nobody at all";
  }

  void Fail(const std::string& what) {
    MutexLock lock(mutex_);
    if (failure_.empty()) failure_ = what;
  }
  std::string Failure() {
    MutexLock lock(mutex_);
    return failure_;
  }

  std::mt19937_64 random_;
  Tried* const tried_;
  const agent::LocalPolicy policy_;
  const Judge judge_;
  std::string directory_;
  std::unique_ptr<World> world_;
  Mutex mutex_;
  std::map<std::string, User> askers_ ABSL_GUARDED_BY(mutex_);  // By request_id.
  std::string failure_ ABSL_GUARDED_BY(mutex_);
};

int Main(int argc, char** argv) {
  if (::geteuid() != 0) {
    std::cout << "skipped: needs root, to connect as other users" << std::endl;
    return 77;
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // The heirs of stale pids are ended here.
  Tried tried;
  const int result =
      RunTrials(argc, argv,
                {.name = "cxlpool-border-trials",
                 .what = "local users ask an agent for what is theirs and for what is not",
                 .ci_seeds = kCiSeeds,
                 .run = [&](uint64_t seed, bool) { return Trial(seed, &tried).Run(); },
                 .missing = [&](uint64_t seeds) -> std::string {
                   if (tried.granted < 10 * seeds || tried.refused < 10 * seeds)
                     return "too few judgements";
                   if (tried.stale_pids < seeds) return "too few stale pids";
                   return tried.restarts == 0 ? "no restart" : "";
                 }});
  std::cout << "local-border: " << WithCommas(tried.calls) << " calls, "
            << (result == 0 ? "0 that the policy forbids" : "NOT ALL AS THE POLICY SAYS") << "; "
            << WithCommas(tried.granted) << " granted, " << WithCommas(tried.refused)
            << " refused by it, " << WithCommas(tried.unheard) << " otherwise, "
            << WithCommas(tried.lost) << " cut off by " << WithCommas(tried.restarts)
            << " restarts; " << tried.stale_pids << " stale pids, " << tried.reused_pids
            << " of them another's" << std::endl;
  return result;
}

}  // namespace
}  // namespace cxlpool::border

int main(int argc, char** argv) { return cxlpool::border::Main(argc, argv); }
