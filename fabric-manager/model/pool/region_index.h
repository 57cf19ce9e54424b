// How a Region is found: by its name, by its tag, and by the requests that made and changed it.
// One that is gone leaves a tombstone, which keeps its requests.
//
// Derived from the records, never stored. Not thread-safe; owned by PoolState.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_POOL_REGION_INDEX_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_POOL_REGION_INDEX_H_

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "fabric-manager/model/pool/region.h"
#include "proto/support/uuid.h"

namespace cxlpool::fm {

// The names of the Regions that are there: no two have one name, or one tag.
class RegionNames {
 public:
  // INTERNAL: another has its name or its tag. Nothing has changed then.
  absl::Status Add(const RegionPtr& region);
  void Remove(const Region& region);
  // `now` has the name and the tag of `before`, which is there.
  void Replace(const RegionPtr& before, const RegionPtr& now);
  void Reserve(size_t regions);

  // Null: there is none.
  const RegionPtr* FindById(absl::string_view id) const;  // Name's last segment.
  const RegionPtr* FindByTag(const Uuid& tag) const;

  // INTERNAL: it is not of just these.
  absl::Status Check(const absl::flat_hash_map<Key, RegionPtr>& regions) const;

 private:
  // Regions are found by id and tag without a copy of either.
  struct ById {
    using is_transparent = void;
    static absl::string_view Of(absl::string_view id) { return id; }
    static absl::string_view Of(const RegionPtr& region) { return region->id; }
    template <typename T>
    size_t operator()(const T& key) const {
      return absl::Hash<absl::string_view>()(Of(key));
    }
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return Of(a) == Of(b);
    }
  };
  struct ByTag {
    using is_transparent = void;
    static const Uuid& Of(const Uuid& tag) { return tag; }
    static const Uuid& Of(const RegionPtr& region) { return region->tag; }
    template <typename T>
    size_t operator()(const T& key) const {
      return absl::Hash<Uuid>()(Of(key));
    }
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return Of(a) == Of(b);
    }
  };

  absl::flat_hash_set<RegionPtr, ById, ById> by_id_;
  absl::flat_hash_set<RegionPtr, ByTag, ByTag> by_tag_;
};

// Which record remembers a request: that of a Region, or its tombstone. A request made one change.
class RequestIndex {
 public:
  // INTERNAL: one of the requests is another record's, or there twice. Nothing has changed then.
  absl::Status Add(const Region& region);
  void Remove(const Region& region);
  void Reserve(size_t requests) { by_id_.reserve(requests); }

  std::optional<Key> Find(const RequestId& id) const;

  friend bool operator==(const RequestIndex&, const RequestIndex&) = default;

 private:
  absl::flat_hash_map<RequestId, Key> by_id_;
};

// A Region that is gone, kept so that a late retry of its requests finds it.
struct Tombstone {
  RegionPtr region;
  absl::Time gone_time;
};
inline constexpr size_t kMaxTombstones = 100'000;
inline constexpr absl::Duration kTombstoneLife = absl::Hours(1);

class Tombstones {
 public:
  void Put(const Tombstone& tombstone);
  void Erase(Key key);  // That has one.

  const Tombstone* Find(Key key) const;  // Null: there is none.
  const std::map<Key, Tombstone>& all() const { return by_key_; }
  // Keys of those that are older than kTombstoneLife or beyond kMaxTombstones, oldest first, at
  // most `limit`.
  std::vector<Key> Expired(absl::Time now, size_t limit) const;

  // INTERNAL: the order of time is of others.
  absl::Status Check() const;

 private:
  std::map<Key, Tombstone> by_key_;
  std::set<std::pair<absl::Time, Key>> by_gone_time_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_REGION_INDEX_H_
