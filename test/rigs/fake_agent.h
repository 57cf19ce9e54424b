// A host agent for tests: the local protocol's far end on a real socket, files for memory.
//
// Keeps Regions in a table, opens per connection, and remembers each request_id that allocated.
// A test can stop it and start it again (the Regions stay, the opens go), pause it, and have it
// misbehave on the next request. One thread inside; the methods may be called from any.
#ifndef CXLPOOL_TEST_RIGS_FAKE_AGENT_H_
#define CXLPOOL_TEST_RIGS_FAKE_AGENT_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cxlpool/v1/local.pb.h"
#include "proto/support/mutex.h"
#include "proto/support/unique_fd.h"
#include "proto/support/usage_page.h"

namespace cxlpool::libpool {

// An empty directory, removed with all that is in it.
class TempDir {
 public:
  TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();
  std::string Path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

struct FakeRegion {
  std::string name = {};
  std::string tag = "0f8fad5b-d9cb-469f-a165-70867728950e";
  uint64_t generation = 1;
  v1::Access access = v1::READ_WRITE;
  v1::AttachmentMode mode = v1::DEVDAX;
  v1::Coherence coherence = v1::HARDWARE;
  std::vector<uint64_t> segment_bytes = {1 << 20};
  uint64_t alignment_bytes = 4096;
  std::vector<int> numa_nodes = {0};
};

class FakeAgent {
 public:
  FakeAgent();
  FakeAgent(const FakeAgent&) = delete;
  FakeAgent& operator=(const FakeAgent&) = delete;
  ~FakeAgent();

  const std::string& socket_path() const { return socket_path_; }

  void Start();
  void Stop();  // Ends every connection.

  // While paused it accepts and reads nothing; Pause returns once that is so.
  void Pause();
  void Resume();

  // Replaces one of the same name. Its bytes are the files of FilePath.
  void Add(FakeRegion region);
  void Remove(const std::string& name);
  std::string FilePath(const std::string& name, size_t segment) const;

  // Tells of a fault or a size from now on, in order.
  void AddFault(v1::LocalFault fault);
  void AddSize(v1::LocalSize size);
  void ForgetFaults();  // Counts anew, as an agent that restarts.

  // What to do with the next request instead of answering it; several apply one after another.
  struct Mishap {
    enum What { kDropAfterWork, kDropBeforeWork, kSendRaw, kEdit };
    What what = kDropAfterWork;
    std::string raw = {};                               // kSendRaw
    std::function<void(v1::LocalResponse&)> edit = {};  // kEdit: changes the right answer.
    int descriptors = -1;                               // Send so many, if not negative.
  };
  void Next(Mishap mishap);

  // Those for usage, which come before the first Open of a connection, are neither here nor have
  // they mishaps.
  std::vector<v1::LocalRequest> Requests() const;
  // As an agent of a release before usage; or for another reason.
  void RefuseUsage(std::string reason = "BAD_REQUEST");
  // The pages that programs have given it, of connections that live.
  std::vector<UsagePage> UsagePages() const;
  size_t usage_requests() const;
  // Connections that have the Region open now.
  int Opens(const std::string& name) const;
  // Waits, 10 s at most, for Opens(name) == count.
  bool AwaitOpens(const std::string& name, int count) const;

 private:
  struct Answer {
    v1::LocalResponse response;
    std::vector<UniqueFd> descriptors;
  };
  struct Peer {
    UniqueFd socket;
    std::set<std::string> opens;
    UniqueFd usage = {};
    // For a fault, or for a Region that is not there yet; without end.
    std::optional<v1::LocalRequest> waiting = {};
  };

  void Serve(int listener);
  bool HandlePacket(Peer& peer);  // False: the connection is over.
  void TakeUsage(Peer& peer, UniqueFd page);
  bool HasToWait(const v1::LocalRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerWaiting(Peer& peer);
  Answer Work(Peer& peer, const v1::LocalRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Answer OpenFor(Peer& peer, const std::string& name, v1::Access access, bool as_file)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Answer AllocateFor(Peer& peer, const v1::LocalAllocateRequest& allocate)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddLocked(FakeRegion region) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wake() const;

  TempDir dir_;
  const std::string socket_path_;
  UniqueFd wake_;  // An eventfd.
  std::thread thread_;

  mutable Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool pause_wanted_ ABSL_GUARDED_BY(mutex_) = false;
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, FakeRegion> regions_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::variant<v1::LocalFault, v1::LocalSize>> news_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> allocated_ ABSL_GUARDED_BY(mutex_);  // request_id to name.
  std::deque<Mishap> mishaps_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::LocalRequest> requests_ ABSL_GUARDED_BY(mutex_);
  std::string refuses_usage_ ABSL_GUARDED_BY(mutex_);  // Why; empty: it does not.
  size_t usage_requests_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<const Peer*, int> usage_ ABSL_GUARDED_BY(mutex_);  // The page's descriptor.
  std::map<std::string, int> opens_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_TEST_RIGS_FAKE_AGENT_H_
