// cxlpool-claim-trials: a manager that lost has no effect any more, on real QEMU.
//
// Each trial has a QEMU of its own, with ports and no guest. One process, the former manager's
// driver, binds one LD after the other, and is stopped with one in its hand (SIGSTOP). The next
// manager's driver claims the host and looks. Then the former one goes on. From that look on
// nothing may appear in QEMU: no LD, and no memory of one. Then the former one claims the host,
// too, as a manager does before it learns that it is none: what it decided before still has no
// effect.
//
// CXLPOOL_RACK_QEMU names the QEMU.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_fabric.h"
#include "proto/support/names.h"
#include "test/contract/fabric_event_log.h"
#include "test/trials/trial.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kGranule = 256 << 20;
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
    ::waitpid(pid_, nullptr, WUNTRACED);
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

QemuFabricConfig Config(const std::string& directory) {
  QemuFabricConfig config;
  config.hosts = {{"host-a", directory + "/qmp"}};
  config.timing.greeting = absl::Milliseconds(400);  // Each drives the other out, again and again.
  return config;
}

// The former manager's: says 'r' when it has claimed the host, binds when it is told to, says 'd'
// when it is through, with how many were refused; then claims the host, tries all of them again,
// and says so again.
void BeFormer(const std::string& directory, int in, int out) {
  const auto say = [&](char what) {
    if (::write(out, &what, 1) != 1) ::_exit(1);
  };
  QemuFabricConfig config = Config(directory);
  config.devices = {{"cmm-0", "s", directory + "/pool", kPorts * kGranule, kGranule}};
  auto driver = QemuFabric::Open(std::move(config));
  if (!driver.ok()) ::_exit(1);
  (*driver)->Start({.hosts = {}, .epoch = 1}, [](const FabricEvent&) {});
  const auto host = AwaitHost(**driver);
  if (!host.ok()) ::_exit(1);
  say('r');
  if (ReadByte(in) != 'g') ::_exit(1);
  const auto bind = [&] {
    char refused = 0;
    for (uint32_t i = 0; i < kPorts; ++i) {
      const BindRequest request{.key = {"host-a", FormatUuid(std::string(16, '\1')), i + 1, 0},
                                .slot = host->slots.at(i),
                                .slice = {"cmm-0", i * kGranule, kGranule},
                                .read_only = false,
                                .serial = i + 1,
                                .incarnation = host->fabric_incarnation,
                                .claim = host->claim};
      const auto bound = WaitForAnswer<absl::StatusOr<BoundLd>>(
          [&](auto done) { (*driver)->Bind(request, std::move(done)); });
      if (!bound.ok()) ++refused;
    }
    return refused;
  };
  const char refused = bind();
  say(static_cast<char>('A' + refused));
  if (ReadByte(in) != 'g' || !AwaitHost(**driver).ok()) ::_exit(1);
  say(static_cast<char>('A' + bind()));
  ::pause();
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
    return absl::StrCat(in_hand_, " with a bind in its hand, ", WithCommas(seen_),
                        " binds seen by the look, ", WithCommas(refused_), " refused after it");
  }
  std::string Missing() const { return in_hand_ == 0 ? "no bind was in its hand" : ""; }

 private:
  absl::Status RunIn(const std::string& directory, uint64_t seed, bool trace) {
    const std::string socket = directory + "/qmp";
    { const UniqueFd pool(::open((directory + "/pool").c_str(), O_CREAT | O_RDWR, 0600)); }
    std::filesystem::resize_file(directory + "/pool", kPorts * kGranule);
    const auto qemu = StartQemu(qemu_, socket);
    int to[2], from[2];
    if (::pipe(to) != 0 || ::pipe(from) != 0) return absl::InternalError("no pipe");
    const UniqueFd far_in(to[0]), in(to[1]), out(from[0]), far_out(from[1]);
    const auto former = Spawn([&] { BeFormer(directory, far_in.get(), far_out.get()); });
    if (ReadByte(out.get()) != 'r') return absl::UnavailableError("the former driver did not come");
    std::mt19937_64 random(seed);
    if (::write(in.get(), "g", 1) != 1) return absl::InternalError("no pipe");
    ::usleep(static_cast<useconds_t>(random() % 150'000));
    former->Stop();

    auto next = QemuFabric::Open(Config(directory));
    if (!next.ok()) return next.status();
    (*next)->Start({.hosts = {}, .epoch = 2}, [](const FabricEvent&) {});
    std::set<std::string> first;
    if (auto host = AwaitHost(**next, &first); !host.ok()) return host.status();
    const auto memory = Backends(socket);
    if (!memory.ok()) return memory.status();
    former->GoOn();
    for (int i = 0; i < 2; ++i) {
      const char said = ReadByte(out.get());
      if (said < 'A') return absl::UnavailableError("the former driver does not go on");
      if (i == 0) {
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
      if (::write(in.get(), "g", 1) != 1) return absl::InternalError("no pipe");
    }
    return absl::OkStatus();
  }

  const std::string qemu_;
  uint64_t in_hand_ = 0, seen_ = 0, refused_ = 0;
};

}  // namespace
}  // namespace cxlpool::fm

int main(int argc, char** argv) {
  const char* qemu = std::getenv("CXLPOOL_RACK_QEMU");
  cxlpool::fm::Trials trials(qemu == nullptr ? "" : qemu);
  cxlpool::TrialProgram program;
  program.name = "cxlpool-claim-trials";
  program.what = "a manager that lost has no effect any more";
  program.more = "CXLPOOL_RACK_QEMU: the QEMU, as in the cache of qemu-cxl/fetch.";
  program.ci_seeds = 20;
  program.run = [&](uint64_t seed, bool trace) { return trials.Run(seed, trace); };
  program.summary = [&] { return trials.Summary(); };
  program.missing = [&](uint64_t) { return trials.Missing(); };
  return cxlpool::RunTrials(argc, argv, program);
}
