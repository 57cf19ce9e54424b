#include "test/crash/pool.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "proto/support/unique_fd.h"
#include "test/crash/client.h"

namespace cxlpool::crash {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kPrefix = "cxlpool-crash-";
constexpr int kFirstSlot = 17;
constexpr int kSlotsApart = 20;
constexpr absl::Duration kAnswer = absl::Milliseconds(300);

// Where this program lies. Asked before main: one that has left its mounts (PrivateNetwork::Enter)
// is told another path.
const std::string kPrograms = [] {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().string();
}();

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  return file ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("cannot write ", path));
}

// What a trial program left that was itself killed: its number is in the directory's name.
void RemoveOrphans(const fs::path& parent) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    const std::string name = entry.path().filename().string();
    int pid = 0;
    if (!absl::StartsWith(name, kPrefix) ||
        !absl::SimpleAtoi(name.substr(kPrefix.size(), name.rfind('-') - kPrefix.size()), &pid)) {
      continue;
    }
    std::error_code ignored;
    if (!fs::exists(absl::StrCat("/proc/", pid), ignored)) fs::remove_all(entry.path(), ignored);
  }
}

std::vector<int> SlotsOf(int bridge) {
  const int first = kFirstSlot + kSlotsApart * bridge;
  return {first, first + 1};
}

}  // namespace

// Makes the directory and, of several managers, their network and etcd's members, which have a
// leader when this returns OK. Directories of trials that were killed go first.
absl::StatusOr<std::unique_ptr<Pool>> Pool::Make(PoolLayout layout) {
  auto pool = std::unique_ptr<Pool>(new Pool(std::move(layout)));
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  RemoveOrphans(parent);
  std::string path = (parent / absl::StrCat(kPrefix, getpid(), "-XXXXXX")).string();
  if (mkdtemp(path.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat("mkdir ", path, ": ", strerror(errno)));
  }
  pool->directory_ = path;
  if (mkdir(pool->store_directory().c_str(), 0700) != 0) {
    return absl::UnavailableError(absl::StrCat("mkdir: ", strerror(errno)));
  }
  pool->managers_.resize(static_cast<size_t>(pool->layout_.managers));
  if (pool->layout_.managers > 1) {
    auto network = PrivateNetwork::Make(kMembers + pool->layout_.managers);
    if (!network.ok()) return network.status();
    pool->network_ = *std::move(network);
    pool->etcd_ =
        std::make_unique<fm::EtcdCluster>(kMembers, pool->directory_, pool->network_.get());
    if (!pool->etcd_->status().ok()) return pool->etcd_->status();
  }
  if (absl::Status status = pool->WriteConfigs(); !status.ok()) return status;
  return pool;
}

// Whoever uses something ends before it: processes, then what they have files and addresses in.
Pool::~Pool() {
  managers_.clear();
  agents_.clear();
  etcd_.reset();  // Its files are below the directory.
  std::error_code ignored;
  if (!directory_.empty()) fs::remove_all(directory_, ignored);
}

std::string Pool::NameOfManager(size_t manager) const {
  return layout_.managers == 1 ? "fm" : absl::StrCat("fm", manager);
}

std::vector<std::string> Pool::sockets() const {
  std::vector<std::string> all;
  for (size_t i = 0; i < managers_.size(); ++i) all.push_back(SocketOf(i));
  return all;
}

std::string Pool::SocketOf(size_t manager) const {
  return absl::StrCat(directory_, "/", NameOfManager(manager), ".sock");
}

// What stands below [store]. Of several managers each tells agents its own socket.
std::string Pool::StoreConfig(size_t manager) const {
  if (etcd_ == nullptr) return absl::StrCat("path = \"", store_file(), "\"");
  const fm::EtcdOptions& etcd = etcd_->options();
  return absl::StrCat("kind = \"etcd\"\nendpoints = [\"", absl::StrJoin(etcd.endpoints, "\", \""),
                      "\"]\nca = \"", etcd.ca, "\"\ncert = \"", etcd.cert, "\"\nkey = \"", etcd.key,
                      "\"\nadvertise = \"unix:", SocketOf(manager), "\"\ntakeover = \"",
                      absl::ToInt64Milliseconds(layout_.takeover), "ms\"");
}

// A file for each agent and each manager. An agent knows all managers; managers differ in their
// sockets and in what StoreConfig says. An attach may take long: a trial that kills an agent is not
// to find that its Region was given up meanwhile.
absl::Status Pool::WriteConfigs() {
  std::string rest = absl::StrCat("\n[fabric]\ndriver = \"emulated\"\nroot = \"", directory_,
                                  "/fabric\"\n[reconciler]\nattach_timeout = \"10m\"\n");
  for (const auto& [id, capacity] : layout_.devices) {
    absl::StrAppend(&rest, "[[device]]\nid = \"", id, "\"\ncapacity = ", capacity,
                    "\ngranule = ", layout_.granule_bytes, "\n");
  }
  for (const std::string& host : layout_.hosts) {
    std::vector<int> slots;
    std::string agent = absl::StrCat(
        "host = \"", host, "\"\nadapter = \"emulated\"\nobserve_interval = \"100ms\"\n[manager]\n",
        "address = \"unix:", absl::StrJoin(sockets(), ",unix:"),
        "\"\ninsecure = true\n[applications]\nsocket = \"", agent_socket(host),
        "\"\n[emulated]\nroot = \"", directory_, "/fabric\"\n");
    for (int bridge = 0; bridge < layout_.bridges; ++bridge) {
      const std::vector<int> here = SlotsOf(bridge);
      slots.insert(slots.end(), here.begin(), here.end());
      absl::StrAppend(&agent, "[[emulated.bridge]]\nname = \"ACPI0016:0", bridge, "\"\nslots = [",
                      absl::StrJoin(here, ", "), "]\nmax_regions = 4\nwindow = \"64GiB\"\n");
    }
    absl::StrAppend(&rest, "[[host]]\nid = \"", host, "\"\nslots = [", absl::StrJoin(slots, ", "),
                    "]\n");
    if (absl::Status status = WriteFile(absl::StrCat(directory_, "/", host, ".toml"), agent);
        !status.ok()) {
      return status;
    }
  }
  for (size_t i = 0; i < managers_.size(); ++i) {
    const std::string fm = absl::StrCat("[[listen]]\naddress = \"unix:", SocketOf(i),
                                        "\"\ninsecure = true\n[store]\n", StoreConfig(i), rest);
    const absl::Status status =
        WriteFile(absl::StrCat(directory_, "/", NameOfManager(i), ".toml"), fm);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

std::string Pool::Program(const std::string& name) const { return kPrograms + "/" + name; }

std::string Pool::agent_socket(const std::string& host) const {
  return absl::StrCat(directory_, "/", host, ".sock");
}

// A single manager is started anew in any case; one that runs is killed by the assignment. Of
// several, those that run go on.
absl::Status Pool::StartManager(const std::string& crash_at) {
  std::vector<std::string> environment;
  if (!crash_at.empty()) environment.push_back("CXLPOOL_CRASH_AT=" + crash_at);
  if (layout_.managers > 1) environment.push_back("CXLPOOL_FABRIC_EFFECTS=" + effects_file());
  for (size_t i = 0; i < managers_.size(); ++i) {
    Process& manager = managers_[i];
    const bool runs = manager.started() && !manager.Wait(absl::ZeroDuration()).ok();
    if (layout_.managers > 1 && runs) continue;
    const std::string file = absl::StrCat(directory_, "/", NameOfManager(i));
    std::optional<int> network;
    if (network_ != nullptr) network = network_->NamespaceOf(NodeOfManager(i));
    auto started = Process::Start({Program("cxlpool-fm"), "--config", file + ".toml"},
                                  file + ".log", environment, network);
    if (!started.ok()) return started.status();
    manager = *std::move(started);
  }
  return absl::OkStatus();
}

absl::Status Pool::StartAgent(const std::string& host, const std::string& crash_at) {
  std::vector<std::string> environment;
  if (!crash_at.empty()) environment.push_back("CXLPOOL_CRASH_AT=" + crash_at);
  auto started = Process::Start(
      {Program("cxlpool-agent"), "--config", absl::StrCat(directory_, "/", host, ".toml")},
      absl::StrCat(directory_, "/", host, ".log"), environment);
  if (!started.ok()) return started.status();
  agents_[host] = *std::move(started);
  return absl::OkStatus();
}

// A connection is enough: a single manager listens only once it has read its store.
bool Pool::Serving() const {
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = socket();
  if (path.size() >= sizeof(address.sun_path)) return false;
  memcpy(address.sun_path, path.data(), path.size());
  return connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

// Of several, a standby takes connections too: whether it answers is asked.
bool Pool::Leads(size_t manager) const {
  if (layout_.managers == 1) return Serving();
  Client client(SocketOf(manager));
  return client.Call(&PoolStub::GetCapacity, v1::GetCapacityRequest(), kAnswer).ok();
}

// Asks each manager in turn. A single one that has ended will never serve, which is said at once;
// of several, one that has ended may be replaced by another, and where all have, they are started
// again, as systemd does.
absl::Status Pool::AwaitServing(absl::Duration limit) {
  const absl::Time end = absl::Now() + limit;
  while (true) {
    bool any_runs = false;
    for (size_t i = 0; i < managers_.size(); ++i) {
      const auto ended = managers_[i].Wait(absl::Milliseconds(1));
      any_runs = any_runs || (!ended.ok() && managers_[i].started());
      if (!ended.ok() && managers_[i].started() && Leads(i)) {
        lead_ = i;
        return absl::OkStatus();
      }
      if (ended.ok() && layout_.managers == 1) {
        return absl::InternalError(
            absl::StrCat("the manager ended with ", *ended, " before it served"));
      }
    }
    if (!any_runs && layout_.managers > 1) {
      if (absl::Status status = StartManager(); !status.ok()) return status;
    }
    if (absl::Now() > end) {
      return absl::InternalError(
          absl::StrCat("the manager does not serve within ", absl::FormatDuration(limit)));
    }
  }
}

std::vector<std::string> Pool::BoundSlots() const {
  std::vector<std::string> bound;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(directory_ + "/fabric/hosts", error)) {
    if (entry.path().filename() == "fabric.textproto") bound.push_back(entry.path().string());
  }
  return bound;
}

bool Pool::BackupUnderWay() const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(store_directory(), error)) {
    if (absl::StartsWith(entry.path().filename().string(), ".backup-")) return true;
  }
  return false;
}

std::vector<std::string> Pool::ExtentFiles() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(extents_directory(), error)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

absl::Status Pool::WithLogs(const absl::Status& status) {
  if (status.ok()) return status;
  std::string text(status.message());
  for (size_t i = 0; i < managers_.size(); ++i) {
    const std::string log = NameOfManager(i) + ".log";
    absl::StrAppend(&text, "\n--- ", log, "\n", TailOf(absl::StrCat(directory_, "/", log)));
  }
  for (const std::string& host : layout_.hosts) {
    const auto ended = agents_[host].Wait(absl::ZeroDuration());
    absl::StrAppend(&text, "--- ", host, ".log",
                    ended.ok() ? absl::StrCat(" (ended with ", *ended, ")") : "", "\n",
                    TailOf(absl::StrCat(directory_, "/", host, ".log")));
  }
  return absl::Status(status.code(), text);
}

}  // namespace cxlpool::crash
