#include "test/rigs/fake_qemu.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

namespace cxlpool::fm {
namespace {

using nlohmann::json;

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

constexpr char kPeripheral[] = "/machine/peripheral";

// What a command answers, and the events that it sets off.
class Model {
 public:
  Model(std::string path, const std::vector<uint32_t>& slots) : path_(std::move(path)) {
    for (uint32_t slot : slots) ports_["p" + std::to_string(slot)] = slot;
  }

  // The answer as QMP has it, but for its id: {"return": ...} or {"error": ...}. A command that the
  // driver does not need is as unknown here as one that QEMU does not have.
  json Execute(const std::string& command, const json& arguments) {
    if (command == "qmp_capabilities") return Return(json::object());
    if (command == "query-cpus-fast") return Return({{{"cpu-index", 0}, {"thread-id", getpid()}}});
    if (command == "qom-list") return List(arguments.value("path", ""));
    if (command == "qom-get") {
      return Get(arguments.value("path", ""), arguments.value("property", ""));
    }
    if (command == "object-add") return AddObject(arguments);
    if (command == "object-del") return DeleteObject(arguments.value("id", ""));
    if (command == "device_add") return AddDevice(arguments);
    if (command == "device_del") return DeleteDevice(arguments.value("id", ""));
    if (command == "human-monitor-command") return MemoryTree();
    if (command == "quit") _exit(0);
    if (command == "query-chardev") {
      return Return({{{"label", "evicts"}, {"filename", "unix:" + path_ + ".evict,server=on"}},
                     {{"label", "works"}, {"filename", "unix:" + path_ + ",server=on"}}});
    }
    return Error("CommandNotFound", "The command " + command + " has not been found");
  }

  // Takes what sits in the slot away. Its event, which is for the caller to send; null: the slot is
  // empty.
  json Eject(uint32_t slot) {
    for (auto& [id, device] : devices_) {
      if (ports_.at(device.at("bus")) != slot) continue;
      const json event = {{"event", "DEVICE_DELETED"},
                          {"timestamp", {{"seconds", 1}, {"microseconds", 2}}},
                          {"data", {{"device", id}, {"path", Path(id)}}}};
      devices_.erase(id);
      return event;
    }
    return nullptr;
  }

  // What sits in the slot is in no list any more, and its memory stays mapped for ever: no event
  // comes, so that what Eject answers is dropped.
  void Botch(uint32_t slot) {
    for (const auto& [id, device] : devices_) {
      if (ports_.at(device.at("bus")) == slot) remains_.push_back(device.at("volatile-memdev"));
    }
    Eject(slot);
  }

  uint32_t busy = 0;

 private:
  static json Return(json value) { return {{"return", std::move(value)}}; }
  static json Error(const std::string& error_class, const std::string& description) {
    return {{"error", {{"class", error_class}, {"desc", description}}}};
  }
  static json Generic(const std::string& description) { return Error("GenericError", description); }
  static json Missing(const std::string& id) {
    return Error("DeviceNotFound", "Device '" + id + "' not found");
  }
  static std::string Path(const std::string& id) { return std::string(kPeripheral) + "/" + id; }

  // All ports and devices, and something of another type, which is in QEMU's list, too.
  json List(const std::string& path) const {
    if (path != kPeripheral) return Missing(path);
    json list = {{{"name", "type"}, {"type", "string"}}};
    for (const auto& [id, slot] : ports_) {
      list.push_back({{"name", id}, {"type", "child<cxl-downstream>"}});
    }
    for (const auto& [id, device] : devices_) {
      list.push_back({{"name", id}, {"type", "child<cxl-type3>"}});
    }
    return Return(std::move(list));
  }

  // A property of a port, a device or a backend, by its path. QEMU answers two of a device's by
  // paths, though they were set by names: where it is plugged, and its memory.
  json Get(const std::string& path, const std::string& property) const {
    const size_t slash = path.rfind('/');
    const std::string id = slash == std::string::npos ? path : path.substr(slash + 1);
    const json* object = nullptr;
    if (const auto port = ports_.find(id); path == Path(id) && port != ports_.end()) {
      if (property == "slot") return Return(port->second);
    } else if (const auto device = devices_.find(id);
               path == Path(id) && device != devices_.end()) {
      object = &device->second;
      const std::string bus = object->at("bus");
      if (property == "parent_bus") return Return(Path(bus) + "/" + bus);
      if (property == "volatile-memdev") {
        return Return("/objects/" + object->at(property).get<std::string>());
      }
    } else if (const auto backend = objects_.find(id);
               path == "/objects/" + id && backend != objects_.end()) {
      object = &backend->second;
    } else {
      return Missing(path);
    }
    if (object == nullptr || !object->contains(property)) {
      return Generic("Property '" + property + "' not found");
    }
    return Return(object->at(property));
  }

  // As much of `info mtree -f` as says which backends are mapped.
  json MemoryTree() const {
    std::string text = "FlatView #0\r\n AS \"memory\", root: system\r\n";
    const auto add = [&](const std::string& backend) {
      text += "  0000000110000000-000000011fffffff (prio 0, ram): " + backend + "\r\n";
    };
    for (const auto& [id, device] : devices_) add(device.at("volatile-memdev"));
    for (const std::string& backend : remains_) add(backend);
    return Return(text);
  }

  // Refused where there is one of that id, or where its file is not there. Nothing is mapped here.
  json AddObject(const json& arguments) {
    const std::string id = arguments.value("id", "");
    if (objects_.count(id) != 0) return Generic("attempt to add duplicate property '" + id + "'");
    if (access(arguments.value("mem-path", "").c_str(), R_OK) != 0) {
      return Generic("can't open backing store for guest RAM: No such file or directory");
    }
    objects_[id] = arguments;
    return Return(json::object());
  }

  // Refused for one that was ever plugged, as AddDevice says.
  json DeleteObject(const std::string& id) {
    if (objects_.count(id) == 0) return Generic("object '" + id + "' not found");
    if (objects_[id].value("mapped", false)) {
      return Generic("Cannot delete host memory backend '" + id + "' which is mapped");
    }
    objects_.erase(id);
    return Return(json::object());
  }

  // Refused as QEMU does, in its order and its words: the driver takes some of them for an answer.
  json AddDevice(const json& arguments) {
    const std::string id = arguments.value("id", ""), bus = arguments.value("bus", "");
    if (ports_.count(bus) == 0) return Generic("Bus '" + bus + "' not found");
    if (devices_.count(id) != 0) return Generic("Duplicate device ID '" + id + "'");
    for (const auto& [other, device] : devices_) {
      if (device.at("bus") == bus) {
        return Generic(
            "PCI: slot 0 function 0 already occupied by cxl-type3, new func cxl-type3 "
            "cannot be exposed to guest.");
      }
    }
    const auto backend = objects_.find(arguments.value("volatile-memdev", ""));
    if (backend == objects_.end() || backend->second.value("mapped", false)) {
      return Generic("memory backend is absent or in use");
    }
    backend->second["mapped"] = true;  // For ever: QEMU does not let go of it.
    devices_[id] = arguments;
    return Return(json::object());
  }

  // Only asks the guest: the device is there until Eject, and a second request is refused until
  // then. A guest that is busy refuses so many requests before that.
  json DeleteDevice(const std::string& id) {
    const auto device = devices_.find(id);
    if (device == devices_.end()) return Missing(id);
    if (busy > 0) {
      --busy;
      return Generic("Hot-unplug failed: guest is busy (power indicator blinking)");
    }
    if (device->second.value("pending", false)) {
      return Generic("Device " + id + " is already in the process of unplug");
    }
    device->second["pending"] = true;
    return Return(json::object());
  }

  const std::string path_;  // Of the first socket.
  std::map<std::string, uint32_t> ports_;
  std::map<std::string, json> devices_;
  std::map<std::string, json> objects_;
  std::vector<std::string> remains_;  // Backends that are mapped by no device that is listed.
};

// A socket on which hardly anybody can wait, as QEMU's.
UniqueFd Listen(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  unlink(path.c_str());
  UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener.get(), 1) != 0) {
    Die("fake QEMU: listen");
  }
  return listener;
}

class Server {
 public:
  Server(const std::string& path, const std::vector<uint32_t>& slots, UniqueFd control)
      : model_(path, slots), control_(std::move(control)) {
    first_.listener = Listen(path);
    second_.listener = Listen(path + ".evict");
    Acknowledge();
  }

  // Until the test's end of `control_` is closed: the process ends with the test. A socket that has
  // a client reads from it, and one that has none takes the next.
  [[noreturn]] void Run() {
    while (true) {
      pollfd polls[] = {{control_.get(), POLLIN, 0}, first_.Poll(), second_.Poll()};
      poll(polls, std::size(polls), -1);
      if (polls[0].revents != 0) Obey();
      if (polls[1].revents != 0) first_.client.valid() ? Serve(first_) : Accept(first_);
      if (polls[2].revents != 0) second_.client.valid() ? Serve(second_) : Accept(second_);
    }
  }

 private:
  // A QMP socket and its one client.
  struct Socket {
    UniqueFd listener;
    UniqueFd client;
    std::string buffer;
    std::string holds;  // From this command on; empty: nothing.
    pollfd Poll() const { return {client.valid() ? client.get() : listener.get(), POLLIN, 0}; }
  };

  void Acknowledge() {
    if (write(control_.get(), "k", 1) != 1) _exit(1);
  }

  // One order of the test, answered once it is done, but for "await": that is answered when a
  // command is held, which may be later.
  void Obey() {
    char text[64] = {};
    if (read(control_.get(), text, sizeof(text) - 1) <= 0) _exit(0);
    std::istringstream order(text);
    std::string verb;
    uint32_t number = 0;
    order >> verb;
    if (verb == "hold") order >> first_.holds;
    order >> number;
    if (verb == "busy") model_.busy = number;
    if (verb == "hangup") first_.client.Reset();
    if (verb == "eject") {
      if (const json event = model_.Eject(number); !event.is_null()) Send(first_, event);
    }
    if (verb == "vanish") unsaid_ = model_.Eject(number);
    if (verb == "botch") model_.Botch(number);
    if (verb == "announce") Send(first_, unsaid_);
    if (verb == "await" && !held_) {
      awaited_ = true;
    } else {
      Acknowledge();
    }
  }

  // The next client of that socket. One that comes while another was evicted from it waits for its
  // greeting: Serve gives that one.
  void Accept(Socket& socket) {
    UniqueFd client(accept4(socket.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    char first = 0;
    // It has hung up meanwhile.
    if (recv(client.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 0) return;
    socket.client = std::move(client);
    if (&socket == &second_ || !yanked_) Greet(socket);
  }

  // What the client before has sent is done first.
  void Greet(Socket& socket) {
    UniqueFd client = std::move(socket.client);
    socket.holds.clear();
    Execute(socket);
    socket.client = std::move(client);
    socket.buffer.clear();
    Send(socket,
         {{"QMP",
           {{"version", {{"qemu", {{"major", 11}, {"minor", 1}, {"micro", 3}}}, {"package", ""}}},
            {"capabilities", {"oob"}}}}});
  }

  // What a client has sent, or its end. The end of the one that evicts is when the next client of
  // the other socket is greeted.
  void Serve(Socket& socket) {
    char bytes[4096];
    const ssize_t n = read(socket.client.get(), bytes, sizeof(bytes));
    if (n <= 0) {
      socket.client.Reset();
      if (&socket == &second_ && std::exchange(yanked_, false) && first_.client.valid()) {
        Greet(first_);
      }
      return;
    }
    socket.buffer.append(bytes, static_cast<size_t>(n));
    Execute(socket);
  }

  // Whole lines that have come, in their order; from the command on that is held nothing is done,
  // and the rest stays in the buffer.
  void Execute(Socket& socket) {
    for (size_t end; (end = socket.buffer.find('\n')) != std::string::npos;) {
      const json line = json::parse(socket.buffer.substr(0, end));
      const std::string command = line.at("execute");
      if (command == socket.holds) {
        held_ = true;
        if (std::exchange(awaited_, false)) Acknowledge();
        return;
      }
      socket.buffer.erase(0, end + 1);
      json reply;
      if (command == "yank") {
        first_.client.Reset();
        yanked_ = true;
        reply = {{"return", json::object()}};
      } else {
        reply = model_.Execute(command, line.value("arguments", json::object()));
      }
      reply["id"] = line.at("id");
      Send(socket, reply);
    }
  }

  // To whoever has the socket now: also the answer to a command of the client before, as QEMU does.
  static void Send(Socket& socket, const json& message) {
    const std::string text = message.dump() + "\r\n";
    if (socket.client.valid()) send(socket.client.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }

  Model model_;
  UniqueFd control_;
  Socket first_;
  Socket second_;
  json unsaid_;  // The event of what vanished.
  // The first one's client was evicted, and the one that asked for it is there: it takes a moment
  // until the next one is greeted, and that moment is as long as the worst.
  bool yanked_ = false;
  bool held_ = false;
  bool awaited_ = false;  // That something is held.
};

}  // namespace

FakeQemu::FakeQemu(const std::string& socket, const std::vector<uint32_t>& slots) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) Die("socketpair");
  control_ = UniqueFd(ends[0]);
  UniqueFd far_end(ends[1]);
  pid_ = fork();
  if (pid_ < 0) Die("fork");
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    control_.Reset();
    Server(socket, slots, std::move(far_end)).Run();
  }
  far_end.Reset();
  char ready = 0;
  if (read(control_.get(), &ready, 1) != 1) Die("fake QEMU: start");
}

FakeQemu::~FakeQemu() { Kill(); }

void FakeQemu::Eject(uint32_t slot) { Order("eject " + std::to_string(slot)); }
void FakeQemu::Vanish(uint32_t slot) { Order("vanish " + std::to_string(slot)); }
void FakeQemu::Botch(uint32_t slot) { Order("botch " + std::to_string(slot)); }
void FakeQemu::Announce() { Order("announce"); }
void FakeQemu::BeBusy(uint32_t times) { Order("busy " + std::to_string(times)); }
void FakeQemu::HangUp() { Order("hangup"); }
void FakeQemu::Hold(const std::string& command) { Order("hold " + command); }
void FakeQemu::AwaitHeld() { Order("await"); }
void FakeQemu::Freeze() { kill(pid_, SIGSTOP); }

void FakeQemu::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void FakeQemu::Order(const std::string& order) {
  char done = 0;
  if (send(control_.get(), order.data(), order.size(), MSG_NOSIGNAL) < 0 ||
      read(control_.get(), &done, 1) != 1) {
    return;  // It was killed: there is nobody to obey.
  }
}

}  // namespace cxlpool::fm
