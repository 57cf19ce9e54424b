#include "fabric-manager/service/region_table.h"

#include <algorithm>
#include <utility>

#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMax = 32;  // Entries of a node.
constexpr size_t kMin = 8;   // A node below it is merged with a neighbour that has room.

// An id that is looked for, and whose Region is not known.
struct Wanted {
  absl::string_view id;
  uint64_t first_bytes = RegionEntry::FirstBytesOf(id);
};

bool IsBefore(const RegionEntry& entry, const Wanted& wanted) {
  if (entry.first_bytes != wanted.first_bytes) return entry.first_bytes < wanted.first_bytes;
  return entry.region->id < wanted.id;
}

bool EntryBefore(const RegionEntry& a, const RegionEntry& b) { return a.ComesBefore(b); }

// The shortest text that is greater than `low` and not greater than `high`.
std::string Separator(absl::string_view low, absl::string_view high) {
  size_t same = 0;
  while (same < low.size() && same < high.size() && low[same] == high[same]) ++same;
  return std::string(high.substr(0, same + 1));
}

}  // namespace

uint64_t RegionEntry::FirstBytesOf(absl::string_view id) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < sizeof(bytes); ++i) {
    bytes = bytes << 8 | (i < id.size() ? static_cast<unsigned char>(id[i]) : 0);
  }
  return bytes;
}

// A leaf has Regions; an inner node has children, and between each two of them a separator that is
// greater than all ids before it and not greater than any after.
struct RegionTable::Node {
  std::vector<RegionEntry> entries;
  std::vector<std::string> separators;
  std::vector<NodePtr> children;

  bool leaf() const { return children.empty(); }
  size_t size() const { return leaf() ? entries.size() : children.size(); }
  size_t ChildOf(absl::string_view id) const {
    const auto after =
        std::upper_bound(separators.begin(), separators.end(), id,
                         [](absl::string_view want, const std::string& s) { return want < s; });
    return static_cast<size_t>(after - separators.begin());
  }
};

// What became too large gave its upper half away.
struct RegionTable::Split {
  std::string separator;
  NodePtr upper;  // Null: nothing was split.
};

// The node, to be edited: a copy where another table has it, too. What is above it has been owned
// before, so nobody can come to it meanwhile: a node that is referred to once is ours.
RegionTable::Node& RegionTable::Own(NodePtr& node) {
  if (node.use_count() > 1 && !CXLPOOL_MUTANT("table-edits-what-is-shared")) {
    node = std::make_shared<Node>(*node);
  } else {
    // Counts once more, and so comes after whoever read it last and gave it up.
    const NodePtr again = node;
  }
  return *node;
}

// Whether the id is new.
bool RegionTable::Put(NodePtr& node, const RegionEntry& entry, Split& split) {
  Node& own = Own(node);
  bool fresh = true;
  if (own.leaf()) {
    const auto place = std::lower_bound(own.entries.begin(), own.entries.end(), entry, EntryBefore);
    fresh = place == own.entries.end() || !place->HasIdOf(entry);
    if (fresh) {
      own.entries.insert(place, entry);
    } else {
      *place = entry;
    }
  } else {
    const size_t at = own.ChildOf(entry.region->id);
    Split below;
    fresh = Put(own.children[at], entry, below);
    if (below.upper != nullptr) {
      const auto offset = static_cast<ptrdiff_t>(at);
      own.separators.insert(own.separators.begin() + offset, std::move(below.separator));
      own.children.insert(own.children.begin() + offset + 1, std::move(below.upper));
    }
  }
  if (own.size() <= kMax) return fresh;
  split.upper = std::make_shared<Node>();
  const auto half = static_cast<ptrdiff_t>(own.size() / 2);
  if (own.leaf()) {
    split.upper->entries.assign(std::make_move_iterator(own.entries.begin() + half),
                                std::make_move_iterator(own.entries.end()));
    own.entries.erase(own.entries.begin() + half, own.entries.end());
    split.separator =
        Separator(own.entries.back().region->id, split.upper->entries.front().region->id);
  } else {
    split.upper->children.assign(std::make_move_iterator(own.children.begin() + half),
                                 std::make_move_iterator(own.children.end()));
    split.upper->separators.assign(std::make_move_iterator(own.separators.begin() + half),
                                   std::make_move_iterator(own.separators.end()));
    split.separator = std::move(own.separators[static_cast<size_t>(half) - 1]);
    own.children.resize(static_cast<size_t>(half));
    own.separators.resize(static_cast<size_t>(half) - 1);
  }
  return fresh;
}

// Its id is there. The node may end empty, or smaller than kMin where no neighbour has room.
void RegionTable::Take(NodePtr& node, const RegionEntry& entry) {
  Node& own = Own(node);
  if (own.leaf()) {
    own.entries.erase(std::lower_bound(own.entries.begin(), own.entries.end(), entry, EntryBefore));
    return;
  }
  const size_t at = own.ChildOf(entry.region->id);
  Take(own.children[at], entry);
  if (own.children[at]->size() >= kMin || own.children.size() == 1) return;
  const size_t left = at == 0 ? 0 : at - 1;
  if (own.children[left]->size() + own.children[left + 1]->size() > kMax) return;
  Node& into = Own(own.children[left]);
  const Node& from = *own.children[left + 1];
  into.entries.insert(into.entries.end(), from.entries.begin(), from.entries.end());
  if (!from.leaf()) into.separators.push_back(own.separators[left]);
  into.separators.insert(into.separators.end(), from.separators.begin(), from.separators.end());
  into.children.insert(into.children.end(), from.children.begin(), from.children.end());
  own.separators.erase(own.separators.begin() + static_cast<ptrdiff_t>(left));
  own.children.erase(own.children.begin() + static_cast<ptrdiff_t>(left) + 1);
}

// Builds the tree level by level from Regions in order, so that a start with a million of them
// splits no node.
RegionTable RegionTable::Of(std::vector<RegionPtr> regions) {
  constexpr size_t kFill = kMax * 3 / 4;  // Room for a few more before a node is split.
  RegionTable table;
  table.size_ = regions.size();
  // Nodes of one level, and the text before each but the first.
  std::vector<NodePtr> level;
  std::vector<std::string> before;
  for (size_t from = 0; from < regions.size(); from += kFill) {
    auto leaf = std::make_shared<Node>();
    const size_t to = std::min(from + kFill, regions.size());
    if (from > 0) before.push_back(Separator(regions[from - 1]->id, regions[from]->id));
    leaf->entries.assign(regions.begin() + static_cast<ptrdiff_t>(from),
                         regions.begin() + static_cast<ptrdiff_t>(to));
    level.push_back(std::move(leaf));
  }
  while (level.size() > 1) {
    std::vector<NodePtr> upper;
    std::vector<std::string> upper_before;
    for (size_t from = 0; from < level.size(); from += kFill) {
      // Two at least: the last is not left alone.
      size_t to = std::min(from + kFill, level.size());
      if (level.size() - to == 1) ++to;
      auto node = std::make_shared<Node>();
      if (from > 0) upper_before.push_back(std::move(before[from - 1]));
      for (size_t i = from; i < to; ++i) {
        if (i > from) node->separators.push_back(std::move(before[i - 1]));
        node->children.push_back(std::move(level[i]));
      }
      upper.push_back(std::move(node));
      if (to == level.size()) break;
    }
    level = std::move(upper);
    before = std::move(upper_before);
  }
  if (!level.empty()) table.root_ = std::move(level.front());
  return table;
}

// Most Regions of a busy pool change several times between two readers, or come and go.
void RegionTable::Change(const std::vector<Edit>& edits) {
  for (size_t i = 0; i < edits.size(); ++i) {
    const Edit& edit = edits[i];
    if (i + 1 < edits.size() && edits[i + 1].HasIdOf(edit)) continue;
    if (edit.taken_away) {
      if (Find(edit.region->id) == nullptr) continue;
      Take(root_, edit);
      --size_;
      while (root_ != nullptr && root_->size() <= 1 && !root_->leaf()) {
        root_ = NodePtr(root_->children.front());
      }
      if (size_ == 0) root_ = nullptr;
      continue;
    }
    if (root_ == nullptr) root_ = std::make_shared<Node>();
    Split split;
    size_ += Put(root_, edit, split);
    if (split.upper == nullptr) continue;
    auto root = std::make_shared<Node>();
    root->separators.push_back(std::move(split.separator));
    root->children = {std::move(root_), std::move(split.upper)};
    root_ = std::move(root);
  }
}

RegionPtr RegionTable::Find(absl::string_view id) const {
  if (root_ == nullptr) return nullptr;
  const Node* node = root_.get();
  while (!node->leaf()) node = node->children[node->ChildOf(id)].get();
  const auto place =
      std::lower_bound(node->entries.begin(), node->entries.end(), Wanted{id}, IsBefore);
  return place != node->entries.end() && place->region->id == id ? place->region : nullptr;
}

void RegionTable::List(const Node& node, absl::string_view after, size_t limit,
                       std::vector<RegionPtr>& out) {
  if (node.leaf()) {
    auto place =
        std::lower_bound(node.entries.begin(), node.entries.end(), Wanted{after}, IsBefore);
    if (place != node.entries.end() && place->region->id == after) ++place;
    for (; place != node.entries.end() && out.size() < limit; ++place) out.push_back(place->region);
    return;
  }
  for (size_t at = node.ChildOf(after); at < node.children.size() && out.size() < limit; ++at) {
    List(*node.children[at], after, limit, out);
  }
}

std::vector<RegionPtr> RegionTable::List(absl::string_view after, size_t limit) const {
  std::vector<RegionPtr> out;
  if (root_ != nullptr) List(*root_, after, limit, out);
  return out;
}

// Whether to go on.
bool RegionTable::Walk(const Node& node, absl::FunctionRef<bool(const Region&)> look) {
  for (const RegionEntry& entry : node.entries) {
    if (!look(*entry.region)) return false;
  }
  for (const NodePtr& child : node.children) {
    if (!Walk(*child, look)) return false;
  }
  return true;
}

void RegionTable::ForEach(absl::FunctionRef<bool(const Region&)> look) const {
  if (root_ != nullptr) Walk(*root_, look);
}

}  // namespace cxlpool::fm
