// A network that this program has to itself: nodes, each a network namespace with an address of its
// own, and a router between them that can drop what one sends to another, without a word to either.
//
// Everything is gone when the program ends, however it ends: nothing of it has a name outside.
#ifndef CXLPOOL_TEST_RIGS_PRIVATE_NETWORK_H_
#define CXLPOOL_TEST_RIGS_PRIVATE_NETWORK_H_

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/support/unique_fd.h"

namespace cxlpool {

// One thread makes it and uses it. It is in the router's namespace, and reaches every node always.
class PrivateNetwork {
 public:
  // Once, before the program has other threads: it gets a network, and mounts, of its own.
  // FAILED_PRECONDITION: it is not allowed to; the message says what would allow it.
  static absl::Status Enter();

  // At most 250 nodes.
  static absl::StatusOr<std::unique_ptr<PrivateNetwork>> Make(int nodes);
  ~PrivateNetwork();

  static std::string AddressOf(int node);
  // For setns(2), between fork and exec of what runs on that node.
  int NamespaceOf(int node) const { return nodes_[static_cast<size_t>(node)].get(); }

  // From now on no packet of one of the two reaches the other.
  absl::Status Cut(int a, int b);
  absl::Status CutFrom(int node, const std::vector<int>& others);
  // Every packet arrives again.
  absl::Status Heal();

 private:
  PrivateNetwork() = default;
  absl::Status AddNode(int router);

  std::vector<UniqueFd> nodes_;
  std::set<std::pair<int, int>> cuts_;  // (from, to).
};

}  // namespace cxlpool

#endif  // CXLPOOL_TEST_RIGS_PRIVATE_NETWORK_H_
