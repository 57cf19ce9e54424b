// What lies where in etcd, below a prefix. Pure functions.
//
//   head           who owns the store, and what was committed last (EtcdHead)
//   log/REV/PART   what the commit of that revision changed, compressed, in pieces; a piece is
//                  nobody's where REV is beyond head's revision
//   p/FIRST        a pack (ports/pack.h) of the records from FIRST on, compressed
//   folded         up to which revision the packs have what the log had, the digest there, how many
//                  bytes all packs have, and the epoch of whoever may fold
//   beat           the owner's last sign of life, or that it has let go
//
// REV, PART and FIRST are 16 hexadecimal digits, so that keys are in order of the numbers.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_LAYOUT_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "fabric-manager/ports/store.h"

namespace cxlpool::fm {

// No two commits have the same: epoch and revision ascend, the digest tells two changes of one
// revision apart, and the owner two claims of one epoch.
struct EtcdHead {
  uint64_t epoch = 0;
  uint64_t revision = 0;
  std::string digest = "0";  // Of all changes so far: NextDigest.
  std::string owner;         // A UUID of the process, and "@" and its address where it has one.

  friend bool operator==(const EtcdHead&, const EtcdHead&) = default;
};

std::string ToText(const EtcdHead& head);
std::optional<EtcdHead> ParseHead(absl::string_view text);
// Whether a later release wrote it: all that a head has, and more.
bool IsLaterHead(absl::string_view text);

struct EtcdFolded {
  uint64_t revision = 0;
  std::string digest = "0";
  uint64_t pack_bytes = 0;  // Of all packs.
  uint64_t epoch = 0;       // Of the claim since which nobody else may fold.
};
std::string ToText(const EtcdFolded& folded);
std::optional<EtcdFolded> ParseFolded(absl::string_view text);

std::string NextDigest(absl::string_view digest, absl::string_view change);

class EtcdKeys {
 public:
  explicit EtcdKeys(std::string prefix) : prefix_(std::move(prefix)) {}

  std::string Head() const { return prefix_ + "head"; }
  std::string Folded() const { return prefix_ + "folded"; }
  std::string Beat() const { return prefix_ + "beat"; }
  std::string Log(uint64_t revision, uint64_t part = 0) const;
  std::string LogEnd() const { return prefix_ + "log0"; }
  std::string Pack(uint64_t first) const;
  std::string PackEnd() const { return prefix_ + "p0"; }

  // The inverses. Nothing: it is no such key.
  std::optional<uint64_t> RevisionOfLog(absl::string_view key) const;
  std::optional<uint64_t> FirstOfPack(absl::string_view key) const;

 private:
  const std::string prefix_;  // Ends in "/".
};

// Each byte goes through all members, into the log and once more into a pack; records shrink to
// two fifths. A word, how many bytes there were, and an LZ4 block (liblz4's lz4_Block_format.md).
std::string Compress(absl::string_view bytes);
// Its inverse, into `bytes`. False: it is not what was written.
bool Expand(absl::string_view compressed, std::string& bytes);

// The rows that a batch puts and erases, compressed, as bytes that are checked when they are read.
std::string EncodeChange(const StoreBatch& batch);
// False: they are not what was written.
bool DecodeChange(absl::string_view compressed, StoreBatch& batch);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_LAYOUT_H_
