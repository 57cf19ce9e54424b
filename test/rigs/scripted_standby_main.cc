// scripted-standby: a manager for tests that never leads (standby_server.h).
//
//   scripted-standby ADDRESS CA CERT KEY
//
// Each line of its input is LEADER EPOCH REVISION, LEADER "-" for nobody: what it says from then
// on, which it confirms with a line. Ends with its input.
#include <iostream>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "fabric-manager/rpc/standby_server.h"
#include "proto/support/mutex.h"
#include "proto/support/tls.h"

namespace cxlpool::fm {
namespace {

// What the standby says of the leader.
class Words {
 public:
  void Say(StandbyFacts facts) {
    MutexLock lock(mutex_);
    facts_ = std::move(facts);
  }
  StandbyFacts Get() {
    MutexLock lock(mutex_);
    return facts_;
  }

 private:
  Mutex mutex_;
  StandbyFacts facts_ ABSL_GUARDED_BY(mutex_);
};

int Main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: scripted-standby ADDRESS CA CERT KEY\n";
    return 2;
  }
  auto tls = TlsSource::Load({argv[2], argv[3], argv[4]}, CertificateUse::Manager());
  if (!tls.ok()) {
    std::cerr << tls.status() << "\n";
    return 1;
  }
  ServerOptions options;
  options.listen = {{.address = argv[1]}};
  options.tls = *std::move(tls);
  Words words;
  auto server = StandbyServer::Start(options, [&words] { return words.Get(); });
  if (!server.ok()) {
    std::cerr << server.status() << "\n";
    return 1;
  }
  StandbyFacts facts;
  while (std::cin >> facts.leader >> facts.epoch >> facts.revision) {
    if (facts.leader == "-") facts.leader.clear();
    words.Say(facts);
    std::cout << "said" << std::endl;
  }
  (*server)->Shutdown(absl::Seconds(1));
  return 0;
}

}  // namespace
}  // namespace cxlpool::fm

int main(int argc, char** argv) { return cxlpool::fm::Main(argc, argv); }
