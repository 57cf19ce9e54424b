#include "host-agent/local/access_list.h"

#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>

#include <algorithm>

#include "proto/support/mutant.h"

namespace cxlpool::agent {
namespace {

constexpr size_t kEntryBytes = sizeof(posix_acl_xattr_entry);
constexpr size_t kHeaderBytes = sizeof(posix_acl_xattr_header);
static_assert(kEntryBytes == 8 && kHeaderBytes == 4);

void PutNumber(std::string& to, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

uint32_t GetNumber(absl::string_view from, size_t at, size_t bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes; ++i) {
    value |= static_cast<uint32_t>(static_cast<unsigned char>(from[at + i])) << (8 * i);
  }
  return value;
}

bool IsNamed(const AccessEntry& entry) { return entry.kind == ACL_USER || entry.kind == ACL_GROUP; }

// What the list holds back from everybody but its owner and others; without a mask, nothing.
uint16_t MaskOf(const AccessList& list) {
  for (const AccessEntry& entry : list) {
    if (entry.kind == ACL_MASK) return entry.rights;
  }
  return ACL_READ | ACL_WRITE | ACL_EXECUTE;
}

}  // namespace

AccessList AccessListOfMode(uint32_t mode) {
  const auto rights = [mode](int shift) { return static_cast<uint16_t>(mode >> shift & 7); };
  return {{.kind = ACL_USER_OBJ, .rights = rights(6)},
          {.kind = ACL_GROUP_OBJ, .rights = rights(3)},
          {.kind = ACL_OTHER, .rights = rights(0)}};
}

// Checks only the form: the kernel has checked kinds and order when the list was set.
std::optional<AccessList> DecodeAccessList(absl::string_view bytes) {
  if (bytes.size() < kHeaderBytes || (bytes.size() - kHeaderBytes) % kEntryBytes != 0 ||
      GetNumber(bytes, 0, 4) != POSIX_ACL_XATTR_VERSION) {
    return std::nullopt;
  }
  AccessList list;
  for (size_t at = kHeaderBytes; at < bytes.size(); at += kEntryBytes) {
    list.push_back({.kind = static_cast<uint16_t>(GetNumber(bytes, at, 2)),
                    .rights = static_cast<uint16_t>(GetNumber(bytes, at + 2, 2)),
                    .id = GetNumber(bytes, at + 4, 4)});
  }
  return list;
}

std::string EncodeAccessList(const AccessList& list) {
  std::string bytes;
  PutNumber(bytes, POSIX_ACL_XATTR_VERSION, 4);
  for (const AccessEntry& entry : list) {
    PutNumber(bytes, entry.kind, 2);
    PutNumber(bytes, entry.rights, 2);
    PutNumber(bytes, entry.id, 4);
  }
  return bytes;
}

AccessList WithUsers(const AccessList& list, const std::vector<PathUser>& users) {
  AccessList with;
  const uint16_t mask_before = CXLPOOL_MUTANT("mask-forgotten") ? 7 : MaskOf(list);
  for (const AccessEntry& entry : list) {
    if (entry.kind == ACL_USER || entry.kind == ACL_MASK) continue;
    with.push_back(entry);
    // The mask will be wider for the users' sake, and must not be for the groups.
    if (entry.kind == ACL_GROUP_OBJ || entry.kind == ACL_GROUP) with.back().rights &= mask_before;
  }
  for (const PathUser& user : users) {
    const bool writes = user.writable || CXLPOOL_MUTANT("acl-writable");
    with.push_back({.kind = ACL_USER,
                    .rights = static_cast<uint16_t>(ACL_READ | (writes ? ACL_WRITE : 0)),
                    .id = user.uid});
  }
  if (std::any_of(with.begin(), with.end(), IsNamed)) {
    AccessEntry mask = {.kind = ACL_MASK};
    for (const AccessEntry& entry : with) {
      if (IsNamed(entry) || entry.kind == ACL_GROUP_OBJ) mask.rights |= entry.rights;
    }
    with.push_back(mask);
  }
  // The kernel wants the kinds in the order of their numbers.
  std::stable_sort(with.begin(), with.end(),
                   [](const AccessEntry& a, const AccessEntry& b) { return a.kind < b.kind; });
  return with;
}

// A right that the mask holds back does not count.
std::vector<PathUser> NamedOf(const AccessList& list, const std::vector<PathUser>& users) {
  std::vector<PathUser> named;
  for (const PathUser& user : users) {
    for (const AccessEntry& entry : list) {
      const unsigned rights = entry.rights & MaskOf(list);
      if (entry.kind != ACL_USER || entry.id != user.uid || (rights & ACL_READ) == 0) continue;
      named.push_back({user.uid, user.writable && (rights & ACL_WRITE) != 0});
    }
  }
  return named;
}

}  // namespace cxlpool::agent
