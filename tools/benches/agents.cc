#include "tools/benches/agents.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cxlpool/v1/host_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "tools/benches/load.h"
#include "tools/benches/requests.h"

namespace cxlpool::bench {
namespace {

constexpr char kEnrol[] = "/cxlpool.v1.InventoryService/EnrolHost";
constexpr char kSession[] = "/cxlpool.v1.HostService/Session";
constexpr int kEnrollers = 64;
// Sending more seldom and more at once would flatter whoever reads.
constexpr absl::Duration kTick = absl::Milliseconds(2);
// The first ones' leases run while the last ones connect.
constexpr absl::Duration kGreetEvery = absl::Seconds(2);

std::string HelloFrom(const std::string& host, uint64_t number) {
  v1::AgentMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_protocol_version(1);
  hello.set_host(host);
  hello.set_incarnation("00000000-0000-4000-8000-000000000001");
  hello.set_agent_id(absl::StrFormat("00000000-0000-4000-8000-%012x", number));
  hello.set_agent_version("bench");
  return message.SerializeAsString();
}

absl::StatusOr<std::vector<std::string>> Enrol(const std::string& address, int count,
                                               absl::Duration limit) {
  v1::EnrolHostRequest request;
  request.set_request_id(absl::StrCat("00000000-0000-4000-8000-", kMarker));
  request.set_host(absl::StrCat("hosts/h", kMarker));
  LoadOptions options;
  options.address = address;
  options.method = kEnrol;
  options.request = request.SerializeAsString();
  options.callers = kEnrollers;
  options.calls_per_caller = (count + kEnrollers - 1) / kEnrollers;
  auto load = Load::Start(options, limit);
  if (!load.ok()) return load.status();
  if (auto end = (*load)->Join(limit); !end.ok()) return end.status();
  if (absl::Status status = (*load)->failure(); !status.ok()) return status;
  // The same requests once more, for their names.
  std::vector<std::string> hosts;
  for (int caller = 0; caller < kEnrollers; ++caller) {
    NumberedRequest numbered(options.request, caller);
    for (uint64_t i = 0; i < options.calls_per_caller; ++i) {
      if (!request.ParseFromString(numbered.Next())) return absl::InternalError("no request");
      hosts.push_back(request.host());
    }
  }
  hosts.resize(count);
  return hosts;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Agents>> Agents::Start(const std::string& address, int count,
                                                      absl::Duration limit) {
  const auto hosts = Enrol(address, count, limit);
  if (!hosts.ok()) return hosts.status();
  StreamsOptions options;
  options.address = address;
  options.method = kSession;
  options.keep_first_answer = true;
  for (const std::string& host : *hosts) {
    options.first.push_back(HelloFrom(host, options.first.size()));
  }
  auto streams = Streams::Open(options, limit);
  if (!streams.ok()) return streams.status();
  std::unique_ptr<Agents> agents(new Agents());
  agents->streams_ = *std::move(streams);
  agents->heartbeats_.resize(hosts->size());
  const absl::Time end = absl::Now() + limit;
  while (true) {
    const absl::Status all = agents->streams_->Await(hosts->size(), kGreetEvery);
    if (absl::Status status = agents->Greet(); !status.ok()) return status;
    if (all.ok()) return agents;
    if (!absl::IsDeadlineExceeded(all) || absl::Now() > end) return all;
  }
}

absl::Status Agents::Greet() {
  for (size_t i = 0; i < heartbeats_.size(); ++i) {
    const std::string* answer = streams_->first_answer(i);
    if (answer == nullptr) continue;
    if (heartbeats_[i].empty()) {
      v1::ManagerMessage welcome;
      if (!welcome.ParseFromString(*answer) || !welcome.has_welcome()) {
        return absl::InternalError("an agent was not welcomed");
      }
      v1::AgentMessage heartbeat;
      heartbeat.set_session(welcome.session());
      heartbeat.mutable_heartbeat();
      heartbeats_[i] = heartbeat.SerializeAsString();
    }
    streams_->Send(i, heartbeats_[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Agents::Beat(double per_second, absl::Duration duration) {
  uint64_t sent = 0;
  const absl::Time began = absl::Now();
  for (absl::Duration spent; spent < duration; spent = absl::Now() - began) {
    const auto due = static_cast<uint64_t>(absl::ToDoubleSeconds(spent) * per_second);
    // No agent is ever two behind: what the machine could not send in time is not made up for.
    for (uint64_t n = std::min<uint64_t>(due - std::min(due, sent), size()); n > 0; --n) {
      if (streams_->Send(next_, heartbeats_[next_])) ++sent;
      next_ = (next_ + 1) % size();
    }
    absl::SleepFor(kTick);
  }
  const absl::Status alive = streams_->Await(streams_->received(), absl::ZeroDuration());
  if (!alive.ok()) return alive;
  return sent;
}

}  // namespace cxlpool::bench
