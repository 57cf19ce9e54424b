#include "tools/benches/placement_peers.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace cxlpool::bench {

BitmapReference::BitmapReference(uint32_t devices, uint32_t granules_each)
    : granules_each_(granules_each),
      starts_(size_t{devices} * granules_each + 1, kNone),
      ends_(size_t{devices} * granules_each + 1, kNone) {
  heads_.fill(kNone);
  for (uint32_t device = 0; device < devices; ++device) {
    Link(NewNode(device * granules_each, granules_each));
  }
}

uint32_t BitmapReference::ListOf(uint32_t length) {
  if (length <= kExact) return length - 1;
  const uint32_t octave = static_cast<uint32_t>(std::bit_width(length)) - 1;
  return kExact + (octave - 8) * 4 + ((length >> (octave - 2)) & 3);
}

uint32_t BitmapReference::ListAbove(uint32_t length) {
  if (length <= kExact) return length - 1;
  const uint32_t octave = static_cast<uint32_t>(std::bit_width(length)) - 1;
  return ListOf(length + (uint32_t{1} << (octave - 2)) - 1);
}

uint32_t BitmapReference::NewNode(uint32_t start, uint32_t length) {
  uint32_t node = static_cast<uint32_t>(nodes_.size());
  if (unused_.empty()) {
    nodes_.emplace_back();
  } else {
    node = unused_.back();
    unused_.pop_back();
  }
  nodes_[node].start = start;
  nodes_[node].length = length;
  return node;
}

void BitmapReference::Link(uint32_t index) {
  Node& node = nodes_[index];
  const uint32_t list = ListOf(node.length);
  node.previous = kNone;
  node.next = heads_[list];
  if (node.next != kNone) nodes_[node.next].previous = index;
  heads_[list] = index;
  present_[list / 64] |= uint64_t{1} << (list % 64);
  starts_[node.start] = index;
  ends_[node.start + node.length] = index;
}

void BitmapReference::Unlink(uint32_t index) {
  const Node& node = nodes_[index];
  const uint32_t list = ListOf(node.length);
  if (node.next != kNone) nodes_[node.next].previous = node.previous;
  if (node.previous != kNone) {
    nodes_[node.previous].next = node.next;
  } else {
    heads_[list] = node.next;
    if (node.next == kNone) present_[list / 64] &= ~(uint64_t{1} << (list % 64));
  }
  starts_[node.start] = kNone;
  ends_[node.start + node.length] = kNone;
}

std::optional<Piece> BitmapReference::Take(uint32_t length) {
  uint32_t list = ListAbove(length);
  size_t word = list / 64;
  uint64_t bits = word < present_.size() ? present_[word] & (~uint64_t{0} << (list % 64)) : 0;
  while (bits == 0) {
    if (++word >= present_.size()) return std::nullopt;
    bits = present_[word];
  }
  list = static_cast<uint32_t>(word * 64 + static_cast<size_t>(std::countr_zero(bits)));
  const uint32_t index = heads_[list];
  Unlink(index);
  Node& node = nodes_[index];
  const uint32_t start = node.start;
  if (node.length == length) {
    unused_.push_back(index);
  } else {
    node.start += length;
    node.length -= length;
    Link(index);
  }
  return Piece{static_cast<fm::DeviceIndex>(start / granules_each_), start % granules_each_,
               length};
}

void BitmapReference::Give(const Piece& piece) {
  const uint32_t device_start = piece.device * granules_each_;
  uint32_t start = device_start + piece.start;
  uint32_t end = start + piece.length;
  const uint32_t lower = start > device_start ? ends_[start] : kNone;
  const uint32_t upper = end < device_start + granules_each_ ? starts_[end] : kNone;
  if (lower != kNone) {
    start = nodes_[lower].start;
    Unlink(lower);
    unused_.push_back(lower);
  }
  if (upper != kNone) {
    end = nodes_[upper].start + nodes_[upper].length;
    Unlink(upper);
    unused_.push_back(upper);
  }
  Link(NewNode(start, end - start));
}

std::optional<Piece> TreeBestFit::Take(const fm::DeviceSet& among, uint32_t length) {
  auto found = by_length_.lower_bound({length, 0, 0});
  while (found != by_length_.end() && !among.Contains(std::get<1>(*found))) ++found;
  if (found == by_length_.end()) return std::nullopt;
  const auto [free, device, start] = *found;
  by_length_.erase(found);
  by_start_[device].erase(start);
  if (free > length) {
    by_length_.emplace(free - length, device, start + length);
    by_start_[device].emplace(start + length, free - length);
  }
  return Piece{device, start, length};
}

void TreeBestFit::Give(const Piece& piece) {
  std::map<uint32_t, uint32_t>& runs = by_start_[piece.device];
  uint32_t start = piece.start;
  uint32_t length = piece.length;
  auto upper = runs.lower_bound(start);
  if (upper != runs.begin()) {
    if (const auto lower = std::prev(upper); lower->first + lower->second == start) {
      start = lower->first;
      length += lower->second;
      by_length_.erase({lower->second, piece.device, lower->first});
      runs.erase(lower);
    }
  }
  if (upper != runs.end() && piece.start + piece.length == upper->first) {
    length += upper->second;
    by_length_.erase({upper->second, piece.device, upper->first});
    runs.erase(upper);
  }
  runs.emplace(start, length);
  by_length_.emplace(length, piece.device, start);
}

}  // namespace cxlpool::bench
