// scripted-manager: a manager for tests of an agent by itself. It offers what its standard input
// says, and prints what the agent says. It binds nothing: the author of the script plays the
// fabric.
//
//   scripted-manager CA CERT KEY
//
// First prints the loopback port that it listens on. Then one JSON message a line: an Offer in,
// which stands until one of the same Region and generation replaces it; SegmentReports out. An
// agent that dials again is welcomed with every Offer that stands. Ends with its input.
#include <google/protobuf/util/json_util.h>

#include <atomic>
#include <cstdio>
#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/tls.h"
#include "test/rigs/fake_manager.h"

namespace cxlpool::agent {
namespace {

constexpr uint32_t kHeartbeatMs = 1000;
constexpr uint32_t kLeaseMs = 10'000;

// The Offers that stand, and the session they go to.
class Script {
 public:
  explicit Script(FakeManager& manager) : manager_(manager) {}

  void Take(const v1::Offer& offer) {
    const std::lock_guard lock(mutex_);
    offers_[{offer.region_tag(), offer.attachment_generation()}] = offer;
    if (session_ == nullptr) return;
    v1::ManagerMessage message = Message();
    *message.mutable_offer() = offer;
    session_->Say(std::move(message));
  }

  void Welcome(FakeSession* session) {
    const std::lock_guard lock(mutex_);
    session_ = session;
    ++number_;
    v1::ManagerMessage message = Message();
    v1::Welcome& welcome = *message.mutable_welcome();
    welcome.set_protocol_version(1);
    welcome.set_heartbeat_ms(kHeartbeatMs);
    welcome.set_lease_ms(kLeaseMs);
    welcome.set_manager_version("script");
    for (const auto& [key, offer] : offers_) *welcome.add_offers() = offer;
    session_->Say(std::move(message));
  }

  // Prints what the newest session's agent says, for as long as `on` holds.
  void Listen(const std::atomic<bool>& on) {
    size_t sessions = 0;
    size_t printed = 0;
    while (on) {
      v1::AgentMessage message;
      bool newer = false;
      const bool any = manager_.watched.Await([&] {
        newer = manager_.sessions.size() > sessions && !manager_.sessions.back()->heard.empty();
        return !on || newer ||
               (sessions > 0 && manager_.sessions[sessions - 1]->heard.size() > printed);
      });
      if (!any || !on) continue;
      manager_.watched.Set([&] {
        if (newer) {
          sessions = manager_.sessions.size();
          printed = 0;
        }
        message = manager_.sessions[sessions - 1]->heard[printed++];
      });
      Print(message);
      if (newer) Welcome(manager_.sessions[sessions - 1].get());
    }
  }

 private:
  v1::ManagerMessage Message() const {
    v1::ManagerMessage message;
    message.set_session(number_);
    return message;
  }

  static void Print(const v1::AgentMessage& message) {
    for (const auto& segments : {message.hello().segments(), message.report().segments()}) {
      for (const v1::SegmentReport& report : segments) {
        google::protobuf::util::JsonPrintOptions options;
        options.preserve_proto_field_names = true;
        std::string line;
        if (google::protobuf::util::MessageToJsonString(report, &line, options).ok()) {
          std::cout << line << std::endl;
        }
      }
    }
  }

  FakeManager& manager_;
  std::mutex mutex_;
  std::map<std::pair<std::string, uint64_t>, v1::Offer> offers_;
  FakeSession* session_ = nullptr;
  uint64_t number_ = 0;
};

// Serves until its input ends, which is success, or until a line that is no Offer, which is not.
// The listener is through before the manager goes that it listens to.
int Main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: scripted-manager CA CERT KEY\n");
    return 2;
  }
  const auto credentials = ServerTls({.ca = argv[1], .cert = argv[2], .key = argv[3]});
  if (!credentials.ok()) {
    std::fprintf(stderr, "scripted-manager: %s\n", credentials.status().ToString().c_str());
    return 1;
  }
  FakeManager manager(*credentials);
  std::cout << manager.port << std::endl;
  Script script(manager);
  std::atomic<bool> on = true;
  std::thread listener([&] { script.Listen(on); });
  int exit = 0;
  for (std::string line; exit == 0 && std::getline(std::cin, line);) {
    v1::Offer offer;
    const auto parsed = google::protobuf::util::JsonStringToMessage(line, &offer);
    if (parsed.ok()) {
      script.Take(offer);
    } else {
      std::fprintf(stderr, "scripted-manager: %s\n", parsed.ToString().c_str());
      exit = 1;
    }
  }
  manager.watched.Set([&] { on = false; });
  listener.join();
  manager.Stop();
  return exit;
}

}  // namespace
}  // namespace cxlpool::agent

int main(int argc, char** argv) { return cxlpool::agent::Main(argc, argv); }
