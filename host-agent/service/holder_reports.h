// Reports to the manager which programs have Regions of this host open, and what they count of
// their use: the HoldersReport of host_service.proto.
//
// A holder is a process: its connections count as one. What it has open the agent knows; the
// counters are read from the pages that programs gave (usage_source.h), and are handed on as they
// are. A report is sent where something differs from what was sent in this session, and at most
// once in kInterval; in a new session one is sent at once, if there is anything to say. It also
// says of which Regions nobody has opened since when. On the core's thread only; never waits.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_HOLDER_REPORTS_H_
#define CXLPOOL_HOST_AGENT_SERVICE_HOLDER_REPORTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "cxlpool/v1/host_service.pb.h"
#include "host-agent/ports/manager_link.h"
#include "host-agent/service/agent_core.h"
#include "host-agent/service/usage_source.h"

namespace cxlpool::agent {

class HolderReports {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(10);
  static constexpr int kMaxOfRegion = 32;
  static constexpr int kMaxHolders = 256;
  static constexpr size_t kMaxPages = 256;

  // All outlive this.
  HolderReports(AgentCore* core, Executor* executor, Clock* clock, ManagerLink* link)
      : core_(core), executor_(executor), clock_(clock), link_(link) {}

  // The connection has the Attachment open now; its process is this user's, and has this program's
  // name.
  void Opened(const AttachmentKey& key, uint64_t connection, uint32_t uid,
              const std::string& program);
  // Replaces what the connection gave before. RESOURCE_EXHAUSTED/TOO_MANY_USAGE_PAGES.
  absl::Status TakePage(uint64_t connection, UniqueFd page);
  // The connection has closed something.
  void Closed() { Consider(); }
  // It has ended.
  void Forget(uint64_t connection);

  // Has to be called when a session may have begun, or a Region may have come online.
  void Saw();

  // Who has what open now.
  v1::HoldersReport Collect() const;

 private:
  struct Program {
    uint32_t uid = 0;
    std::string name;
  };
  // Of one Region: a process, by pid, start and user.
  struct HolderKey {
    uint32_t pid = 0;
    uint64_t start_ticks = 0;
    uint32_t uid = 0;
    friend auto operator<=>(const HolderKey&, const HolderKey&) = default;
  };
  struct Holder {
    std::string program;
    std::set<uint64_t> serials;  // Of the segments that it has open.
    std::set<uint64_t> pages;    // Inodes: several connections may have given the same.
  };
  using Pages = std::map<uint64_t, UsagePage>;  // By inode.

  // Has for each DAX device that can be opened when that was first so; of no others.
  void NoteUsable();
  void Consider();
  void Look();
  void Wake();
  Pages ReadPages() const;
  static void Fill(const HolderKey& key, const Holder& holder, const AttachmentKey& region,
                   const Attachment& attachment, const Pages& pages, v1::RegionHolder& message);

  AgentCore* const core_;
  Executor* const executor_;
  Clock* const clock_;
  ManagerLink* const link_;

  std::map<uint64_t, Program> programs_;   // By connection.
  std::map<uint64_t, UsageSource> pages_;  // By connection.

  // When it could first be opened; unset: somebody has opened it.
  std::map<AttachmentKey, std::optional<absl::Time>> unopened_since_;

  uint64_t session_ = 0;
  std::string sent_;                                 // In this session, serialized.
  absl::Duration next_ = -absl::InfiniteDuration();  // On the clock's Elapsed; no report before.
  bool wakes_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_HOLDER_REPORTS_H_
