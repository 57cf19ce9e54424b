// etcd members as processes of this machine, for tests of what is built on them.
#ifndef CXLPOOL_TEST_RIGS_ETCD_CLUSTER_H_
#define CXLPOOL_TEST_RIGS_ETCD_CLUSTER_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace cxlpool::fm {

// One thread, which outlives it: members end with the thread that started them.
class EtcdCluster {
 public:
  // The program that qemu-cxl/fetch --with etcd brings; empty: it is not there.
  static std::string Program();

  // Waits until they have a leader. Their files lie below `parent` (empty: where temporary files
  // do), and are gone with it.
  explicit EtcdCluster(int members, const std::string& parent = "");
  ~EtcdCluster();
  EtcdCluster(const EtcdCluster&) = delete;
  EtcdCluster& operator=(const EtcdCluster&) = delete;

  const std::vector<std::string>& endpoints() const { return endpoints_; }
  bool is_up() const { return up_; }

  void Signal(int member, int signal) const;
  // Again, with the files that it has.
  void Start(int member);
  void Kill(int member);

 private:
  struct Member {
    int client_port = 0, peer_port = 0;
    pid_t pid = -1;
  };

  bool Answers() const;

  std::string directory_;
  std::vector<Member> members_;
  std::vector<std::string> endpoints_;
  bool up_ = false;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_ETCD_CLUSTER_H_
