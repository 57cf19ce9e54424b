#include "test/rigs/fake_agent.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <list>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cxlpool::libpool {
namespace {

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

// Packets keep their bounds, as the agent's do.
UniqueFd Listen(const std::string& path) {
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), 16) != 0) {
    Die("fake agent: listen");
  }
  return listener;
}

v1::LocalResponse Refusal(absl::StatusCode code, const std::string& reason,
                          const std::string& message, const std::string& remedy) {
  v1::LocalResponse response;
  response.set_code(static_cast<int>(code));
  response.set_message(absl::StrCat(message, " (", remedy, ")"));
  response.mutable_error()->set_reason(reason);
  response.mutable_error()->set_remedy(remedy);
  return response;
}

// With descriptors, as SCM_RIGHTS. A peer that has gone is not told: it is noticed by the next
// read.
void SendPacket(int socket, const std::string& packet, const std::vector<int>& fds) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 250)] = {};
  iovec part = {const_cast<char*>(packet.data()), packet.size()};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
  }
  (void)::sendmsg(socket, &header, MSG_NOSIGNAL);
}

}  // namespace

TempDir::TempDir() {
  std::string path = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) Die("mkdtemp");
  path_ = path;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

FakeAgent::FakeAgent()
    : socket_path_(dir_.Path("agent.sock")), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  Start();
}

FakeAgent::~FakeAgent() { Stop(); }

void FakeAgent::Start() {
  {
    MutexLock lock(mutex_);
    stopping_ = false;
  }
  UniqueFd listener = Listen(socket_path_);
  thread_ = std::thread([this, fd = listener.Release()] { Serve(fd); });
}

void FakeAgent::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
}

void FakeAgent::Wake() const {
  const uint64_t one = 1;
  if (::write(wake_.get(), &one, sizeof one) < 0) Die("fake agent: wake");
}

// Returns once the thread has stopped to listen: what a client sends from then on stays in its
// socket.
void FakeAgent::Pause() {
  {
    MutexLock lock(mutex_);
    pause_wanted_ = true;
  }
  Wake();
  while (true) {
    {
      MutexLock lock(mutex_);
      if (paused_) return;
    }
    ::poll(nullptr, 0, 1);
  }
}

void FakeAgent::Resume() {
  {
    MutexLock lock(mutex_);
    pause_wanted_ = false;
    paused_ = false;
  }
  Wake();
}

void FakeAgent::Add(FakeRegion region) {
  {
    MutexLock lock(mutex_);
    AddLocked(std::move(region));
  }
  Wake();
}

// A file for each segment stands for its device.
void FakeAgent::AddLocked(FakeRegion region) {
  for (size_t i = 0; i < region.segment_bytes.size(); ++i) {
    UniqueFd file(::open(FilePath(region.name, i).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (::ftruncate(file.get(), static_cast<off_t>(region.segment_bytes[i])) != 0) Die("truncate");
  }
  regions_[region.name] = std::move(region);
}

void FakeAgent::Remove(const std::string& name) {
  MutexLock lock(mutex_);
  regions_.erase(name);
}

std::string FakeAgent::FilePath(const std::string& name, size_t segment) const {
  return dir_.Path(absl::StrCat(name.substr(name.find('/') + 1), ".", segment));
}

void FakeAgent::Next(Mishap mishap) {
  MutexLock lock(mutex_);
  mishaps_.push_back(std::move(mishap));
}

std::vector<v1::LocalRequest> FakeAgent::Requests() const {
  MutexLock lock(mutex_);
  return requests_;
}

int FakeAgent::Opens(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto found = opens_.find(name);
  return found == opens_.end() ? 0 : found->second;
}

bool FakeAgent::AwaitOpens(const std::string& name, int count) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (Opens(name) != count) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::poll(nullptr, 0, 1);
  }
  return true;
}

// The thread: all peers, one after the other, until Stop. Whoever changes something that a request
// waits for wakes it. When it ends, what was open is forgotten, as with an agent that ends.
void FakeAgent::Serve(int listener_fd) {
  UniqueFd listener(listener_fd);
  std::list<Peer> peers;
  while (true) {
    bool paused = false;
    {
      MutexLock lock(mutex_);
      if (stopping_) break;
      paused = paused_ = pause_wanted_;
    }
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
    if (!paused) {
      polled.push_back({listener.get(), POLLIN, 0});
      for (const Peer& peer : peers) polled.push_back({peer.socket.get(), POLLIN, 0});
    }
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;
    uint64_t drained = 0;
    (void)!::read(wake_.get(), &drained, sizeof drained);
    if (paused) continue;
    for (Peer& peer : peers) AnswerWaiting(peer);
    size_t i = 2;
    for (auto peer = peers.begin(); peer != peers.end(); ++i) {
      const bool over = polled[i].revents != 0 && !HandlePacket(*peer);
      if (over) {
        MutexLock lock(mutex_);
        for (const std::string& name : peer->opens) --opens_[name];
        usage_.erase(&*peer);
      }
      peer = over ? peers.erase(peer) : std::next(peer);
    }
    if (polled[1].revents != 0) {
      peers.push_back(
          {UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)), {}, {}, {}});
    }
  }
  ::unlink(socket_path_.c_str());
  MutexLock lock(mutex_);
  opens_.clear();
  usage_.clear();
}

// One request, by the next mishap where there is one. False: the peer is hung up on, because it has
// gone, said what is no request, or the mishap wants it so. A page of counters is no request that
// mishaps are counted by: clients send it by themselves.
bool FakeAgent::HandlePacket(Peer& peer) {
  std::vector<char> packet(64 << 10);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part = {packet.data(), packet.size()};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = CMSG_LEN(sizeof(int));
  const ssize_t size = ::recvmsg(peer.socket.get(), &header, MSG_CMSG_CLOEXEC);
  UniqueFd descriptor;
  if (const cmsghdr* rights = CMSG_FIRSTHDR(&header); size > 0 && rights != nullptr) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
    descriptor.Reset(fd);
  }
  v1::LocalRequest request;
  if (size <= 0 || !request.ParseFromArray(packet.data(), static_cast<int>(size))) return false;
  if (request.has_usage()) {
    TakeUsage(peer, std::move(descriptor));
    return true;
  }

  MutexLock lock(mutex_);
  requests_.push_back(request);
  Mishap mishap = {.what = Mishap::kEdit, .raw = {}, .edit = {}};
  if (!mishaps_.empty()) {
    mishap = std::move(mishaps_.front());
    mishaps_.pop_front();
  }
  if (mishap.what == Mishap::kDropBeforeWork) return false;
  if (HasToWait(request)) {
    peer.waiting = request;
    return true;
  }
  Answer answer = Work(peer, request);
  if (mishap.what == Mishap::kDropAfterWork) return false;
  if (mishap.edit) mishap.edit(answer.response);
  std::vector<int> fds;
  for (const UniqueFd& fd : answer.descriptors) fds.push_back(fd.get());
  if (mishap.descriptors >= 0) {
    fds.resize(static_cast<size_t>(mishap.descriptors), fds.empty() ? wake_.get() : fds[0]);
  }
  SendPacket(peer.socket.get(),
             mishap.what == Mishap::kSendRaw ? mishap.raw : answer.response.SerializeAsString(),
             fds);
  return true;
}

// An agent of an earlier release does not know the request; RefuseUsage makes this one such.
void FakeAgent::TakeUsage(Peer& peer, UniqueFd page) {
  v1::LocalResponse response;
  {
    MutexLock lock(mutex_);
    ++usage_requests_;
    if (!refuses_usage_.empty()) {
      response = Refusal(absl::StatusCode::kInvalidArgument, refuses_usage_,
                         "the request has no body", "use a libpool of the agent's release");
    } else {
      peer.usage = std::move(page);
      usage_[&peer] = peer.usage.get();
      response.mutable_usage();
    }
  }
  SendPacket(peer.socket.get(), response.SerializeAsString(), {});
}

void FakeAgent::RefuseUsage(std::string reason) {
  MutexLock lock(mutex_);
  refuses_usage_ = std::move(reason);
}

std::vector<UsagePage> FakeAgent::UsagePages() const {
  std::vector<UsagePage> pages;
  MutexLock lock(mutex_);
  for (const auto& [peer, fd] : usage_) {
    if (::pread(fd, &pages.emplace_back(), sizeof(UsagePage), 0) != sizeof(UsagePage)) Die("pread");
  }
  return pages;
}

size_t FakeAgent::usage_requests() const {
  MutexLock lock(mutex_);
  return usage_requests_;
}

void FakeAgent::AddFault(v1::LocalFault fault) {
  {
    MutexLock lock(mutex_);
    news_.emplace_back(std::move(fault));
  }
  Wake();
}

void FakeAgent::AddSize(v1::LocalSize size) {
  {
    MutexLock lock(mutex_);
    news_.emplace_back(std::move(size));
  }
  Wake();
}

void FakeAgent::ForgetFaults() {
  MutexLock lock(mutex_);
  news_.clear();
}

// Whether the request is answered later: one for faults and sizes, while there are none.
bool FakeAgent::HasToWait(const v1::LocalRequest& request) const {
  if (request.has_open()) {
    return request.open().wait_ms() > 0 && !regions_.contains(request.open().name());
  }
  return request.has_faults() && request.faults().wait_ms() > 0 &&
         request.faults().after() >= news_.size();
}

void FakeAgent::AnswerWaiting(Peer& peer) {
  MutexLock lock(mutex_);
  if (!peer.waiting.has_value() || HasToWait(*peer.waiting)) return;
  const Answer answer = Work(peer, *peer.waiting);
  std::vector<int> fds;
  for (const UniqueFd& fd : answer.descriptors) fds.push_back(fd.get());
  SendPacket(peer.socket.get(), answer.response.SerializeAsString(), fds);
  peer.waiting.reset();
}

// What the agent does with a request, on Regions that are files. The last is a list.
FakeAgent::Answer FakeAgent::Work(Peer& peer, const v1::LocalRequest& request) {
  Answer answer;
  switch (request.body_case()) {
    case v1::LocalRequest::kOpen:
      return OpenFor(peer, request.open().name(), request.open().access(),
                     request.open().as_file());
    case v1::LocalRequest::kAllocate:
      return AllocateFor(peer, request.allocate());
    case v1::LocalRequest::kRelease:
      if (std::erase_if(regions_, [&](const auto& region) {
            return region.first == request.release().name() ||
                   absl::StrCat("regions/", region.second.tag) == request.release().name();
          }) == 0) {
        answer.response = Refusal(
            absl::StatusCode::kNotFound, "NOT_ATTACHED",
            absl::StrCat(request.release().name(), " is not attached to this host"), "attach it");
        return answer;
      }
      answer.response.mutable_release();
      return answer;
    case v1::LocalRequest::kClose:
      opens_[request.close().name()] -= static_cast<int>(peer.opens.erase(request.close().name()));
      answer.response.mutable_close();
      return answer;
    case v1::LocalRequest::kFaults:
      for (size_t i = request.faults().after(); i < news_.size(); ++i) {
        v1::LocalFaultsResponse& faults = *answer.response.mutable_faults();
        if (const auto* fault = std::get_if<v1::LocalFault>(&news_[i])) {
          *faults.add_faults() = *fault;
        } else {
          *faults.add_sizes() = std::get<v1::LocalSize>(news_[i]);
        }
      }
      answer.response.mutable_faults()->set_last(news_.size());
      return answer;
    default:
      break;
  }
  v1::LocalListResponse& list = *answer.response.mutable_list();
  for (const auto& [name, region] : regions_) {
    v1::LocalRegion& listed = *list.add_regions();
    listed.set_name(name);
    listed.set_tag(region.tag);
    listed.set_size_bytes(
        std::accumulate(region.segment_bytes.begin(), region.segment_bytes.end(), uint64_t{0}));
    listed.mutable_attachment()->set_access(region.access);
    listed.mutable_attachment()->set_mode(region.mode);
    listed.mutable_attachment()->set_state(v1::Attachment::ONLINE);
    listed.set_opens(static_cast<uint32_t>(opens_[name]));
  }
  return answer;
}

// A request id that was seen is the same Region again, whatever else is asked for.
FakeAgent::Answer FakeAgent::AllocateFor(Peer& peer, const v1::LocalAllocateRequest& allocate) {
  const auto known = allocated_.find(allocate.request_id());
  if (known != allocated_.end()) {
    return OpenFor(peer, known->second, v1::READ_WRITE, allocate.as_file());
  }
  const std::string id =
      allocate.region_id().empty() ? absl::StrCat("r-", allocated_.size()) : allocate.region_id();
  const std::string name = absl::StrCat("regions/", id);
  Answer answer;
  if (regions_.count(name) != 0) {
    answer.response = Refusal(absl::StatusCode::kAlreadyExists, "REGION_EXISTS",
                              absl::StrCat(name, " exists"), "choose another name");
    return answer;
  }
  FakeRegion region;
  region.name = name;
  region.tag = absl::StrFormat("0f8fad5b-d9cb-469f-a165-%012x", allocated_.size());
  region.mode = allocate.mode();
  region.segment_bytes = {allocate.size_bytes()};
  AddLocked(std::move(region));
  allocated_[allocate.request_id()] = name;
  return OpenFor(peer, name, v1::READ_WRITE, allocate.as_file());
}

// Errors in the agent's own words, which clients go by. System-ram has no file: its nodes are
// named.
FakeAgent::Answer FakeAgent::OpenFor(Peer& peer, const std::string& name, v1::Access access,
                                     bool as_file) {
  Answer answer;
  const auto found = regions_.find(name);
  if (found == regions_.end()) {
    answer.response = Refusal(absl::StatusCode::kNotFound, "NOT_ATTACHED",
                              absl::StrCat(name, " is not attached to this host"), "attach it");
    return answer;
  }
  const FakeRegion& region = found->second;
  if (region.access == v1::READ_ONLY && access != v1::READ_ONLY) {
    answer.response = Refusal(absl::StatusCode::kPermissionDenied, "ATTACHMENT_READ_ONLY",
                              absl::StrCat(name, " is attached READ_ONLY"), "open it READ_ONLY");
    return answer;
  }
  if (peer.opens.insert(name).second) ++opens_[name];
  v1::LocalOpenResponse& open = *answer.response.mutable_open();
  open.set_name(name);
  open.set_tag(region.tag);
  open.set_generation(region.generation);
  open.set_access(access == v1::READ_ONLY ? v1::READ_ONLY : v1::READ_WRITE);
  open.set_mode(region.mode);
  open.set_coherence(region.coherence);
  uint64_t offset = 0;
  for (size_t i = 0; i < region.segment_bytes.size(); offset += region.segment_bytes[i++]) {
    if (region.mode == v1::SYSTEM_RAM) continue;
    v1::LocalSegment& segment = *open.add_segments();
    segment.set_fd_index(static_cast<uint32_t>(i));
    segment.set_length_bytes(region.segment_bytes[i]);
    segment.set_region_offset_bytes(offset);
    segment.set_alignment_bytes(region.alignment_bytes);
    if (as_file) segment.set_path(FilePath(name, i));
    const int flags = access == v1::READ_ONLY ? O_RDONLY : O_RDWR;
    answer.descriptors.emplace_back(::open(FilePath(name, i).c_str(), flags | O_CLOEXEC));
  }
  open.set_size_bytes(offset);
  if (region.mode == v1::SYSTEM_RAM) {
    open.set_numa_node(region.numa_nodes.front());
    for (const int node : region.numa_nodes) open.add_numa_nodes(node);
  }
  return answer;
}

}  // namespace cxlpool::libpool
