// etcd members as processes of this machine, for tests of what is built on them.
#ifndef CXLPOOL_TEST_RIGS_ETCD_CLUSTER_H_
#define CXLPOOL_TEST_RIGS_ETCD_CLUSTER_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "fabric-manager/adapters/store_etcd/etcd_store.h"
#include "test/rigs/private_network.h"

namespace cxlpool::fm {

// One thread, which outlives it: members end with the thread that started them.
class EtcdCluster {
 public:
  // The program that qemu-cxl/fetch --with etcd brings; empty: it is not there.
  static std::string Program();

  // Waits until they have a leader. Their files lie below `parent` (empty: where temporary files
  // do), and are gone with it. With a `network`, which outlives it, members are its first nodes,
  // speak TLS, and the files of the last one lie on a tmpfs, for SetDiskFull.
  explicit EtcdCluster(int members, const std::string& parent = "",
                       const PrivateNetwork* network = nullptr);
  ~EtcdCluster();
  EtcdCluster(const EtcdCluster&) = delete;
  EtcdCluster& operator=(const EtcdCluster&) = delete;

  const std::vector<std::string>& endpoints() const { return options_.endpoints; }
  // How a manager reaches them.
  const EtcdOptions& options() const { return options_; }
  // Not OK: they have no leader, and why.
  const absl::Status& status() const { return status_; }

  void Signal(int member, int signal) const;
  // Again, with the files that it has.
  void Start(int member);
  void Kill(int member);
  pid_t pid(int member) const { return members_[static_cast<size_t>(member)].pid; }
  std::string DirectoryOf(int member) const;

  // The member that leads the others; -1: none says so.
  int Leader() const;
  // Whether a member takes part: it answers with what all of them have committed.
  bool Answers(int member) const;

  // The last member's disk has no byte left, or all it had. UNAVAILABLE: it cannot be set.
  absl::Status SetDiskFull(bool full);

  // What a member has, as a file. UNAVAILABLE: it answers no snapshot.
  absl::Status SaveSnapshot(int member, const std::string& file) const;
  // Each of them, which all were killed, has what is in the snapshot and nothing else, as
  // docs/replicated.md says it.
  absl::Status Restore(const std::string& snapshot);

 private:
  struct Member {
    std::string client, peer;  // HOST:PORT.
    pid_t pid = -1;
  };

  absl::Status MakeCertificates();
  absl::Status MakeDisk() const;
  std::string NameOf(int member) const { return "m" + std::to_string(member); }
  std::string UrlOf(const std::string& host_port) const;
  std::string InitialCluster() const;
  std::string Etcdctl(int member) const;
  std::vector<std::string> TlsFlags() const;

  const PrivateNetwork* const network_;
  std::string directory_;
  std::vector<Member> members_;
  EtcdOptions options_;
  absl::Status status_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_ETCD_CLUSTER_H_
