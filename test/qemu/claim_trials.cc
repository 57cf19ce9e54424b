// cxlpool-claim-trials: a manager that lost has no effect any more, on real QEMU.
//
// Each trial has a QEMU of its own, with ports and no guest, and a former manager's driver in a
// process of its own, which is stopped with a bind, or a clear, in its hand (SIGSTOP). The next
// manager's driver claims the host and looks. Then the former one goes on.
//
// With a bind (even seeds): from the next one's look on nothing may appear in QEMU, no LD and no
// memory of one. Then the former one claims the host, too, as a manager does before it learns that
// it is none: what it decided before still has no effect.
//
// With a clear (odd seeds): the next one clears all slices as soon as it can, and somebody writes
// there. Those bytes stay. As long as the former one lives, the next one cannot.
//
// CXLPOOL_RACK_QEMU names the QEMU. Exit code 77: it names none.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_fabric.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "test/contract/fabric_event_log.h"
#include "test/trials/trial.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kGranule = 256 * kMiB;
constexpr uint32_t kPorts = 16;
constexpr char kJudgeSuffix[] = ".judge";
constexpr absl::Duration kLimit = absl::Seconds(30);  // Of what takes milliseconds.

// Ends with its object.
class Process {
 public:
  explicit Process(pid_t pid) : pid_(pid) {}
  ~Process() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  void Stop() const {
    ::kill(pid_, SIGSTOP);
    AwaitStop();
  }
  // False: it does not.
  bool AwaitStop() const {
    for (const absl::Time end = absl::Now() + kLimit; absl::Now() < end; ::poll(nullptr, 0, 1)) {
      if (::waitpid(pid_, nullptr, WUNTRACED | WNOHANG) == pid_) return true;
    }
    return false;
  }
  void GoOn() const { ::kill(pid_, SIGCONT); }

 private:
  const pid_t pid_;
};

// Runs `child` in a process of its own, which ends with this one.
template <typename Child>
std::unique_ptr<Process> Spawn(Child child) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    child();
    ::_exit(1);
  }
  return std::make_unique<Process>(pid);
}

std::unique_ptr<Process> StartQemu(const std::string& qemu, const std::string& socket) {
  std::vector<std::string> words = {
      qemu,       "-machine", "q35,cxl=on", "-accel", "tcg", "-nodefaults", "-no-user-config",
      "-display", "none",     "-S",         "-m",     "64M"};
  for (const std::string& path : {socket, socket + kEvictSuffix, socket + kJudgeSuffix}) {
    words.insert(words.end(), {"-qmp", absl::StrCat("unix:", path, ",server=on,wait=off")});
  }
  const auto device = [&](std::string text) {
    words.insert(words.end(), {"-device", std::move(text)});
  };
  device("pxb-cxl,id=b,bus=pcie.0,bus_nr=12");
  device("cxl-rp,port=0,bus=b,id=rp,chassis=0,slot=2");
  device("cxl-upstream,bus=rp,id=us");
  for (uint32_t i = 0; i < kPorts; ++i) {
    device(absl::StrCat("cxl-downstream,bus=us,id=d", i, ",port=", i, ",chassis=0,slot=", 10 + i));
  }
  words.insert(words.end(), {"-M", "cxl-fmw.0.targets.0=b,cxl-fmw.0.size=4G"});
  return Spawn([&] {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(qemu.c_str(), argv.data());
  });
}

absl::StatusOr<FabricHost> Discover(FabricDriver& driver, std::set<std::string>* bound = nullptr) {
  auto view = WaitForAnswer<absl::StatusOr<FabricView>>(
      [&](auto done) { driver.Discover(std::move(done)); });
  if (!view.ok()) return view.status();
  for (const BoundLd& ld : view->bound) {
    if (bound != nullptr) bound->insert(absl::StrCat("slot ", ld.slot, " serial ", ld.serial));
  }
  return view->hosts.at(0);
}

// Until the host can be claimed.
absl::StatusOr<FabricHost> AwaitHost(FabricDriver& driver, std::set<std::string>* bound = nullptr) {
  const SystemClock clock;
  const absl::Duration end = clock.Elapsed() + kLimit;
  while (true) {
    auto host = Discover(driver, bound);
    if (!host.ok() || host->reachable) return host;
    if (clock.Elapsed() > end) return absl::UnavailableError(host->unreachable_reason);
    ::poll(nullptr, 0, 5);
  }
}

char ReadByte(int fd) {
  pollfd ready{fd, POLLIN, 0};
  char byte = 0;
  if (::poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(kLimit))) != 1) return 0;
  return ::read(fd, &byte, 1) == 1 ? byte : '\0';
}

QemuFabricConfig Config(const std::string& directory, bool with_devices) {
  QemuFabricConfig config;
  config.hosts = {{"host-a", directory + "/qmp"}};
  if (with_devices) {
    config.devices = {{"cmm-0", "s", directory + "/pool", kPorts * kGranule, kGranule}};
  }
  config.timing.greeting = absl::Milliseconds(400);  // Each drives the other out, again and again.
  return config;
}

Slice SliceOf(uint32_t number) { return {"cmm-0", number * kGranule, kGranule}; }

absl::Status Clear(FabricDriver& driver, uint32_t number, ScrubProgress progress = {}) {
  return WaitForAnswer<absl::StatusOr<ScrubResult>>([&](auto done) {
           driver.Scrub(SliceOf(number), std::move(progress), std::move(done));
         })
      .status();
}

// What the former manager says after each bind; how many were refused it says from 'A' on.
constexpr char kBound = '.';
char ReadOutcome(int fd) {
  char said = kBound;
  while (said == kBound) said = ReadByte(fd);
  return said;
}

// How many of the binds, one for each port, were refused. `after_each` is called after each.
char BindAll(FabricDriver& driver, const FabricHost& host,
             const std::function<void()>& after_each) {
  char refused = 0;
  for (uint32_t i = 0; i < kPorts; ++i) {
    const BindRequest request{.key = {"host-a", FormatUuid(std::string(16, '\1')), i + 1, 0},
                              .slot = host.slots.at(i),
                              .slice = SliceOf(i),
                              .read_only = false,
                              .serial = i + 1,
                              .incarnation = host.fabric_incarnation,
                              .claim = host.claim};
    const auto bound = WaitForAnswer<absl::StatusOr<BoundLd>>(
        [&](auto done) { driver.Bind(request, std::move(done)); });
    if (!bound.ok()) ++refused;
    after_each();
  }
  return refused;
}

// The former manager's: says 'r' when it has claimed the host, and does what it is told to. Told to
// bind: says kBound after each, then with 'A' and more how many were refused; and that twice, and
// claims the host again in between.
// Told to clear: stops itself in the middle of the first slice, and says 'A' in the end.
void BeFormer(const std::string& directory, int in, int out) {
  const auto say = [&](char what) {
    if (::write(out, &what, 1) != 1) ::_exit(1);
  };
  auto driver = QemuFabric::Open(Config(directory, /*with_devices=*/true));
  if (!driver.ok()) ::_exit(1);
  (*driver)->Start({.hosts = {}, .epoch = 1}, [](const FabricEvent&) {});
  const auto host = AwaitHost(**driver);
  if (!host.ok()) ::_exit(1);
  say('r');
  switch (ReadByte(in)) {
    case 'b':
      say(static_cast<char>('A' + BindAll(**driver, *host, [&] { say(kBound); })));
      if (ReadByte(in) != 'b' || !AwaitHost(**driver).ok()) ::_exit(1);
      say(static_cast<char>('A' + BindAll(**driver, *host, [&] { say(kBound); })));
      break;
    case 'c': {
      std::once_flag once;
      (void)Clear(**driver, 0, [&](uint64_t) { std::call_once(once, [] { ::raise(SIGSTOP); }); });
      say('A');
      break;
    }
    default:
      ::_exit(1);
  }
  ::pause();
}

// One byte in each MiB, of all slices.
char ByteAt(uint64_t at) { return static_cast<char>('a' + at / kMiB % 26); }

absl::Status WriteBytes(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  for (uint64_t at = 0; at < kPorts * kGranule; at += kMiB) {
    const char byte = ByteAt(at);
    if (::pwrite(file.get(), &byte, 1, static_cast<off_t>(at)) != 1) {
      return absl::ErrnoToStatus(errno, path);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBytes(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  for (uint64_t at = 0; at < kPorts * kGranule; at += kMiB) {
    char byte = 0;
    if (::pread(file.get(), &byte, 1, static_cast<off_t>(at)) == 1 && byte == ByteAt(at)) continue;
    return absl::InternalError(absl::StrCat("the former manager cleared byte ", at,
                                            ", which was somebody else's by then"));
  }
  return absl::OkStatus();
}

// The memory of LDs that QEMU has, by a socket that no driver uses.
absl::StatusOr<std::set<std::string>> Backends(const std::string& socket) {
  const UniqueFd never(::eventfd(0, EFD_CLOEXEC));
  auto client = QmpClient::Connect(socket + kJudgeSuffix, never.get(), [](const QmpMessage&) {});
  if (!client.ok()) return client.status();
  if (absl::Status status = (*client)->Negotiate(kLimit); !status.ok()) return status;
  auto list = (*client)->Execute("qom-list", {{"path", "/objects"}}, kLimit);
  if (!list.ok()) return list.status();
  std::set<std::string> names;
  for (const auto& each : *list) {
    if (absl::StrContains(each.value("type", ""), "memory-backend-file")) {
      names.insert(each.value("name", ""));
    }
  }
  return names;
}

class Trials {
 public:
  explicit Trials(std::string qemu) : qemu_(std::move(qemu)) {}

  absl::Status Run(uint64_t seed, bool trace) {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    const std::string directory = ::mkdtemp(pattern.data());
    const absl::Status status = RunIn(directory, seed, trace);
    std::filesystem::remove_all(directory);
    return status;
  }

  std::string Summary() const {
    return absl::StrCat(in_hand_, " of ", binds_, " with a bind in its hand, ", WithCommas(seen_),
                        " binds seen by the look, ", WithCommas(refused_), " refused after it; ",
                        clears_, " with a clear in its hand, ", waited_, " waited for its end");
  }
  std::string Missing() const {
    if (in_hand_ == 0 || in_hand_ * 2 < binds_) {
      return absl::StrCat("a bind was in its hand in ", in_hand_, " of ", binds_);
    }
    return clears_ == 0 ? "no clear was in its hand" : "";
  }

 private:
  // A former manager that has the host, and works.
  struct Former {
    std::unique_ptr<Process> process;
    UniqueFd in, out;

    bool Tell(char what) const { return ::write(in.get(), &what, 1) == 1; }
  };

  static absl::StatusOr<Former> MakeFormer(const std::string& directory) {
    int to[2], from[2];
    if (::pipe(to) != 0 || ::pipe(from) != 0) return absl::ErrnoToStatus(errno, "a pipe");
    const UniqueFd far_in(to[0]), far_out(from[1]);
    Former former{nullptr, UniqueFd(to[1]), UniqueFd(from[0])};
    former.process = Spawn([&] { BeFormer(directory, far_in.get(), far_out.get()); });
    if (ReadByte(former.out.get()) == 'r') return former;
    return absl::UnavailableError("the former driver did not come");
  }

  absl::Status RunIn(const std::string& directory, uint64_t seed, bool trace) {
    { const UniqueFd pool(::open((directory + "/pool").c_str(), O_CREAT | O_RDWR, 0600)); }
    std::filesystem::resize_file(directory + "/pool", kPorts * kGranule);
    const auto qemu = StartQemu(qemu_, directory + "/qmp");
    auto former = MakeFormer(directory);
    if (!former.ok()) return former.status();
    const bool binds = seed % 2 == 0;
    const absl::Time told = absl::Now();
    if (!former->Tell(binds ? 'b' : 'c')) return absl::InternalError("no pipe");
    if (!binds) {
      if (!former->process->AwaitStop()) return absl::UnavailableError("no clear was begun");
      return WithAClear(directory, *former);
    }
    // In the middle of any of the binds: as long into it as those before it took, at most.
    std::mt19937_64 random(seed);
    const int before = static_cast<int>(random() % kPorts);
    for (int i = 0; i < before; ++i) {
      if (ReadByte(former->out.get()) != kBound) {
        return absl::UnavailableError("the former driver does not bind");
      }
    }
    const absl::Duration one = before == 0 ? absl::Milliseconds(1) : (absl::Now() - told) / before;
    absl::SleepFor(one * std::uniform_real_distribution<double>(0, 1)(random));
    former->process->Stop();
    return WithABind(directory, *former, trace);
  }

  absl::Status WithABind(const std::string& directory, const Former& former, bool trace) {
    const std::string socket = directory + "/qmp";
    auto next = QemuFabric::Open(Config(directory, /*with_devices=*/false));
    if (!next.ok()) return next.status();
    (*next)->Start({.hosts = {}, .epoch = 2}, [](const FabricEvent&) {});
    std::set<std::string> first;
    if (auto host = AwaitHost(**next, &first); !host.ok()) return host.status();
    const auto memory = Backends(socket);
    if (!memory.ok()) return memory.status();
    former.process->GoOn();
    for (int i = 0; i < 2; ++i) {
      const char said = ReadOutcome(former.out.get());
      if (said < 'A') return absl::UnavailableError("the former driver does not go on");
      if (i == 0) {
        ++binds_;
        in_hand_ += said > 'A' ? 1 : 0;
        seen_ += first.size();
        refused_ += static_cast<uint64_t>(said - 'A');
        if (trace) printf("%zu seen, %d refused\n", first.size(), said - 'A');
      }
      std::set<std::string> now;
      if (auto host = AwaitHost(**next, &now); !host.ok()) return host.status();
      const auto memory_now = Backends(socket);
      if (!memory_now.ok()) return memory_now.status();
      if (now != first || *memory_now != *memory) {
        return absl::InternalError(absl::StrCat(
            "after the look of the next manager the former one ", i == 0 ? "" : "claimed it and ",
            "had an effect: ", first.size(), " LDs became ", now.size(), ", ", memory->size(),
            " backends ", memory_now->size()));
      }
      if (!former.Tell('b')) return absl::InternalError("no pipe");
    }
    return absl::OkStatus();
  }

  absl::Status WithAClear(const std::string& directory, Former& former) {
    ++clears_;
    const absl::Status first = ClearByNext(directory);
    if (!first.ok() && ReasonOf(first) != "FABRIC_BUSY") return first;
    former.process->GoOn();
    if (ReadByte(former.out.get()) != 'A') {
      return absl::UnavailableError("the former driver does not go on");
    }
    if (!first.ok()) {
      ++waited_;
      former.process.reset();
      if (absl::Status status = ClearByNext(directory); !status.ok()) return status;
    }
    return CheckBytes(directory + "/pool");
  }

  // A new driver claims the host, looks, and clears all; then somebody writes there.
  static absl::Status ClearByNext(const std::string& directory) {
    auto next = QemuFabric::Open(Config(directory, /*with_devices=*/true));
    if (!next.ok()) return next.status();
    (*next)->Start({.hosts = {}, .epoch = 2}, [](const FabricEvent&) {});
    if (auto host = AwaitHost(**next); !host.ok()) return host.status();
    for (uint32_t i = 0; i < kPorts; ++i) {
      if (absl::Status status = Clear(**next, i); !status.ok()) return status;
    }
    return WriteBytes(directory + "/pool");
  }

  const std::string qemu_;
  uint64_t binds_ = 0, in_hand_ = 0, seen_ = 0, refused_ = 0;
  uint64_t clears_ = 0, waited_ = 0;
};

}  // namespace
}  // namespace cxlpool::fm

int main(int argc, char** argv) {
  const char* qemu = std::getenv("CXLPOOL_RACK_QEMU");
  if (qemu == nullptr || ::access(qemu, X_OK) != 0) {
    std::cerr << "CXLPOOL_RACK_QEMU names no QEMU: qemu-cxl/fetch brings one\n";
    return 77;
  }
  cxlpool::fm::Trials trials(qemu);
  cxlpool::TrialProgram program;
  program.name = "cxlpool-claim-trials";
  program.what = "a manager that lost has no effect any more";
  program.more = "CXLPOOL_RACK_QEMU: the QEMU, as in the cache of qemu-cxl/fetch.";
  program.ci_seeds = 40;
  program.run = [&](uint64_t seed, bool trace) { return trials.Run(seed, trace); };
  program.summary = [&] { return trials.Summary(); };
  program.missing = [&](uint64_t) { return trials.Missing(); };
  return cxlpool::RunTrials(argc, argv, program);
}
