#include "test/border/local_world.h"

#include <algorithm>
#include <future>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::border {
namespace {

bool Has(const google::protobuf::RepeatedField<uint32_t>& ids, uint32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}
bool Has(const std::vector<uint32_t>& ids, uint32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

uint64_t SerialOf(uint64_t generation) { return 0x1000 + generation; }

// Runs on the executor, and waits until it has.
void RunOn(Executor* executor, const std::function<void()>& task) {
  std::promise<void> done;
  executor->Post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

absl::Status Unknown() {
  return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_REGION", "there is no such Region", "");
}

}  // namespace

// --- The judge.

const agent::UserRule* Judge::RuleOf(const User& user) const {
  for (const agent::UserRule& rule : policy_.users) {
    if (Has(rule.uids, user.uid)) return &rule;
    for (const uint32_t gid : user.gids) {
      if (Has(rule.gids, gid)) return &rule;
    }
  }
  return nullptr;
}

bool Judge::MayConnect(const User& user) const {
  if (IsRoot(user) || RuleOf(user) != nullptr) return true;
  return policy_.allowed_uids.empty() || Has(policy_.allowed_uids, user.uid);
}

bool Judge::OfTenant(const User& user, const Truth& region) const {
  const agent::UserRule* rule = RuleOf(user);
  return region.tenant == (rule == nullptr ? policy_.tenant : rule->tenant);
}

bool Judge::MayOpen(const User& user, const Truth& region) const {
  if (IsRoot(user)) return true;
  if (!MayConnect(user) || !OfTenant(user, region)) return false;
  const bool here = region.maker_host == kThisHost;
  if (here && region.maker_uid == user.uid) return true;
  if (here || region.maker_host.empty()) {
    if (region.open_to.everybody() || Has(region.open_to.uids(), user.uid)) return true;
    for (const uint32_t gid : user.gids) {
      if (Has(region.open_to.gids(), gid)) return true;
    }
  }
  const agent::UserRule* rule = RuleOf(user);
  return (rule == nullptr ? policy_.may_open : rule->may_open) == agent::Reach::kTenant;
}

bool Judge::MayRelease(const User& user, const Truth& region) const {
  if (IsRoot(user)) return true;
  if (!MayConnect(user) || !OfTenant(user, region)) return false;
  if (region.maker_host == kThisHost && region.maker_uid == user.uid) return true;
  const agent::UserRule* rule = RuleOf(user);
  return (rule == nullptr ? policy_.may_release : rule->may_release) == agent::Reach::kTenant;
}

// --- The manager.

Manager::Manager(agent::FakeHostMemory* memory, Executor* core, uint64_t seed)
    : memory_(memory), core_(core), random_(seed) {}

absl::Duration Manager::Soon() { return absl::Microseconds(random_() % 3000); }

// A session: Welcome comes after a while, in which applications ask already.
void Manager::Start(Handlers handlers) {
  MutexLock lock(mutex_);
  handlers_ = std::move(handlers);
  welcomed_ = false;
  const uint64_t session = ++session_;
  handlers_->make_hello([](const absl::StatusOr<v1::Hello>&) {});
  loop_.PostAfter(absl::Milliseconds(random_() % 30), [this, session] {
    MutexLock lock(mutex_);
    if (session != session_ || !handlers_.has_value()) return;
    welcomed_ = true;
    v1::Welcome welcome;
    for (const auto& [tag, live] : live_) *welcome.add_offers() = OfferOf(all_.at(tag), live);
    handlers_->on_welcome(std::move(welcome));
  });
}

void Manager::Stop() {
  MutexLock lock(mutex_);
  handlers_.reset();
  ++session_;
}

v1::Offer Manager::OfferOf(const Truth& truth, const Live& live) const {
  v1::Offer offer;
  offer.set_region_tag(truth.tag);
  offer.set_region_name(live.name);
  offer.set_attachment_generation(live.generation);
  offer.set_want(live.want);
  offer.set_mode(v1::DEVDAX);
  offer.set_access(v1::READ_WRITE);
  offer.set_tenant(truth.tenant);
  const bool here = truth.maker_host == kThisHost;
  if (here) offer.set_maker_uid(truth.maker_uid);
  if (here || truth.maker_host.empty()) *offer.mutable_open_to() = truth.open_to;
  v1::OfferedSegment& segment = *offer.add_segments();
  segment.set_length_bytes(kBytes);
  segment.set_host_bridge(absl::StrCat("ACPI0016:0", (live.slot - 1) / 2));
  segment.add_targets()->set_slot(live.slot);
  segment.mutable_targets(0)->set_serial(SerialOf(live.generation));
  return offer;
}

v1::Region Manager::RegionOf(const Truth& truth, const Live& live) const {
  v1::Region region;
  region.set_name(live.name);
  region.set_tag(truth.tag);
  region.set_tenant(truth.tenant);
  region.set_state(v1::Region::ALLOCATED);
  region.set_size_bytes(kBytes);
  if (!truth.maker_host.empty()) {
    region.mutable_maker()->set_host(truth.maker_host);
    region.mutable_maker()->set_uid(truth.maker_uid);
  }
  *region.mutable_open_to() = truth.open_to;
  return region;
}

void Manager::OfferSoon(const std::string& tag) {
  loop_.PostAfter(Soon(), [this, tag] {
    MutexLock lock(mutex_);
    const auto live = live_.find(tag);
    if (live == live_.end() || !handlers_.has_value() || !welcomed_) return;
    handlers_->on_offer(OfferOf(all_.at(tag), live->second));
  });
}

std::optional<Truth> Manager::MakeLocked(const std::string& name, Truth truth) {
  std::vector<bool> taken(kSlots + 1);
  for (const auto& [tag, live] : live_) taken[live.slot] = true;
  const auto slot = std::find(taken.begin() + 1, taken.end(), false);
  if (slot == taken.end() || FindLive(name) != nullptr) return std::nullopt;
  truth.tag = FormatUuid(RandomUuid());
  Live live{.name = name,
            .generation = ++last_generation_,
            .slot = static_cast<uint32_t>(slot - taken.begin())};
  core_->Post([memory = memory_, slot = live.slot, serial = SerialOf(live.generation)] {
    memory->plugged[slot] = serial;
  });
  live_[truth.tag] = live;
  all_[truth.tag] = truth;
  OfferSoon(truth.tag);
  return truth;
}

std::optional<Truth> Manager::Make(const std::string& name, Truth truth) {
  MutexLock lock(mutex_);
  return MakeLocked(name, std::move(truth));
}

void Manager::Allocate(v1::AllocateRegionRequest request,
                       DoneWith<v1::AllocateRegionResponse> done) {
  MutexLock lock(mutex_);
  Truth truth{.tag = {},
              .tenant = request.tenant(),
              .maker_host = request.has_maker_uid() ? request.host() : "",
              .maker_uid = request.maker_uid(),
              .open_to = request.open_to()};
  const std::string name = request.region_id().empty()
                               ? absl::StrCat("regions/r", last_generation_ + 1)
                               : ResourceName("regions", request.region_id());
  const std::optional<Truth> made = MakeLocked(name, std::move(truth));
  v1::AllocateRegionResponse response;
  if (made.has_value()) *response.mutable_region() = RegionOf(*made, live_.at(made->tag));
  loop_.PostAfter(Soon(), [made = made.has_value(), response, done = std::move(done)]() mutable {
    if (made) return std::move(done)(std::move(response));
    std::move(done)(absl::ResourceExhaustedError("full, or there is one of that name"));
  });
}

// Believes the agent in everything: what the agent lets through is what is tried here.
void Manager::Release(v1::ReleaseRegionRequest request, DoneWith<v1::ReleaseRegionResponse> done) {
  MutexLock lock(mutex_);
  released_[request.request_id()] = request.name();
  const std::string* found = FindLive(request.name());
  const bool there = found != nullptr;
  if (there) {
    const std::string tag = *found;
    const Live live = live_.at(tag);
    live_.erase(tag);
    core_->Post([memory = memory_, live] {
      memory->Unplug(live.slot);
      std::erase_if(memory->host.regions, [&](const agent::ObservedHostRegion& region) {
        return region.serials.front() == SerialOf(live.generation);
      });
    });
    loop_.PostAfter(Soon(), [this, tag, generation = live.generation] {
      MutexLock lock(mutex_);
      if (!handlers_.has_value()) return;
      v1::Withdraw gone;
      gone.set_region_tag(tag);
      gone.set_attachment_generation(generation);
      handlers_->on_withdraw(gone);
    });
  }
  loop_.PostAfter(Soon(), [there, done = std::move(done)]() mutable {
    if (there) return std::move(done)(v1::ReleaseRegionResponse());
    std::move(done)(Unknown());
  });
}

void Manager::Get(v1::GetRegionRequest request, DoneWith<v1::Region> done) {
  MutexLock lock(mutex_);
  absl::StatusOr<v1::Region> answer = Unknown();
  if (const std::string* tag = FindLive(request.name())) {
    answer = RegionOf(all_.at(*tag), live_.at(*tag));
  }
  loop_.PostAfter(Soon(), [answer = std::move(answer), done = std::move(done)]() mutable {
    std::move(done)(std::move(answer));
  });
}

const std::string* Manager::FindLive(const std::string& name) const {
  for (const auto& [tag, live] : live_) {
    if (live.name == name || absl::StrCat("regions/", tag) == name) return &tag;
  }
  return nullptr;
}

void Manager::SwapNames() {
  MutexLock lock(mutex_);
  if (live_.size() < 2) return;
  const auto one = std::next(live_.begin(), static_cast<long>(random_() % live_.size()));
  const auto other = std::next(live_.begin(), static_cast<long>(random_() % live_.size()));
  std::swap(one->second.name, other->second.name);
  OfferSoon(one->first);
  OfferSoon(other->first);
}

void Manager::Want(const std::string& tag, v1::Offer::Want want) {
  MutexLock lock(mutex_);
  const auto live = live_.find(tag);
  if (live == live_.end()) return;
  live->second.want = want;
  OfferSoon(tag);
}

std::optional<Truth> Manager::Find(const std::string& tag) const {
  MutexLock lock(mutex_);
  const auto found = all_.find(tag);
  return found == all_.end() ? std::nullopt : std::optional<Truth>(found->second);
}

std::string Manager::SomeTag() const {
  MutexLock lock(mutex_);
  // Mostly one that is there.
  if (!live_.empty() && random_() % 5 != 0) {
    return std::next(live_.begin(), static_cast<long>(random_() % live_.size()))->first;
  }
  return std::next(all_.begin(), static_cast<long>(random_() % all_.size()))->first;
}

std::string Manager::SomeName() const {
  MutexLock lock(mutex_);
  if (live_.empty()) return "regions/none";
  return std::next(live_.begin(), static_cast<long>(random_() % live_.size()))->second.name;
}

std::map<std::string, std::string> Manager::Released() const {
  MutexLock lock(mutex_);
  return released_;
}

// --- The host.

Memory::Memory(Executor* executor) : FakeHostMemory(executor), on_(executor) {
  host.bridges.clear();
  for (uint32_t b = 0; b < kSlots / 2; ++b) {
    host.bridges.push_back({.name = absl::StrCat("ACPI0016:0", b),
                            .slots = {2 * b + 1, 2 * b + 2},
                            .max_regions = 32,
                            .window_bytes = uint64_t{1} << 40,
                            .free_window_bytes = uint64_t{1} << 40});
  }
}

void Memory::FindHolders(uint64_t /*serial*/, DoneWith<std::vector<agent::ProcessId>> done) {
  on_->Post([this, done = std::move(done)]() mutable { std::move(done)(holding); });
}

World::World(std::string directory, agent::LocalPolicy policy, uint64_t seed)
    : socket_(directory + "/agent.sock"),
      hook_(directory + "/hook"),
      policy_(std::move(policy)),
      manager_(&memory_, &loop_, seed) {
  processes_.Start().IgnoreError();
}

World::~World() {
  StopAgent();
  processes_.Stop();
  loop_.Stop();
}

absl::Status World::StartAgent() {
  agent::AgentOptions options;
  options.host = kThisHost;
  options.incarnation = "boot-1";
  options.agent_id = FormatUuid(RandomUuid());
  drain_ = std::make_unique<agent::DrainProgram>(hook_, absl::Seconds(20));
  RunOn(&loop_, [&] {
    core_ = std::make_unique<agent::AgentCore>(options, &loop_, &clock_, &memory_, &manager_);
    core_->SetProcessWatch(&processes_);
    core_->SetDrainHook(drain_.get());
    service_ = std::make_unique<agent::LocalService>(policy_, core_.get(), &loop_, &clock_,
                                                     &memory_, &manager_);
    core_->Start([](const absl::Status&) {});
  });
  agent::LocalServerOptions server;
  server.path = socket_;
  server_ = std::make_unique<agent::LocalServer>(server, service_.get(), &loop_);
  return server_->Start();
}

void World::StopAgent() {
  if (server_ == nullptr) return;
  server_->Stop();
  manager_.Stop();
  drain_->Stop();
  RunOn(&loop_, [&] {
    core_->Stop();
    service_.reset();
    core_.reset();
  });
  server_.reset();
  drain_.reset();
}

absl::Status World::Restart() {
  StopAgent();
  return StartAgent();
}

void World::SetHolders(std::vector<agent::ProcessId> holders) {
  RunOn(&loop_, [&] { memory_.holding = std::move(holders); });
}

void World::LoseBytes(const std::string& tag) {
  RunOn(&loop_, [&] {
    const auto* found = core_->attachments().FindByTag(tag);
    if (found == nullptr || found->second.segments.empty()) return;
    v1::HostEvent event;
    event.set_serial(found->second.segments[0].desired.first_serial());
    event.set_kind(v1::HostEvent::POISON);
    event.set_severity(v1::HostEvent::FAILURE);
    event.set_bytes_lost(true);
    event.set_length_bytes(64);
    core_->TakeEvents({event});
  });
}

}  // namespace cxlpool::border
