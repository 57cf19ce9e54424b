// The users that a POSIX access list (acl(5)) names, and the bytes of the kernel's extended
// attribute system.posix_acl_access, so that no libacl is needed.
//
// The attribute is a version and then entries of a kind, rights and an id, little-endian, in the
// order of the kinds (linux/posix_acl_xattr.h). Pure functions, any thread.
#ifndef CXLPOOL_HOST_AGENT_LOCAL_ACCESS_LIST_H_
#define CXLPOOL_HOST_AGENT_LOCAL_ACCESS_LIST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "host-agent/ports/device_paths.h"

namespace cxlpool::agent {

inline constexpr char kAccessListAttribute[] = "system.posix_acl_access";

// One entry; `kind` as linux/posix_acl.h has it, `rights` as in a mode: 4 reads, 2 writes.
struct AccessEntry {
  uint16_t kind = 0;
  uint16_t rights = 0;
  uint32_t id = 0xffffffff;  // Only of a named user or group.
  friend bool operator==(const AccessEntry&, const AccessEntry&) = default;
};

using AccessList = std::vector<AccessEntry>;

// What a mode says, as a list: owner, group, others.
AccessList AccessListOfMode(uint32_t mode);

// Nothing: these bytes are no access list.
std::optional<AccessList> DecodeAccessList(absl::string_view bytes);
std::string EncodeAccessList(const AccessList& list);

// The same list with exactly these named users. All others may then what they could before: what
// the list's mask held back from the group or a named group is taken from its entry. The new mask
// is what the named users, or the group, may; a list without named users has none, so that the
// file's mode is afterwards what it was before.
AccessList WithUsers(const AccessList& list, const std::vector<PathUser>& users);

// Those of `users` whom the list names, with no right that it does not give them.
std::vector<PathUser> NamedOf(const AccessList& list, const std::vector<PathUser>& users);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_LOCAL_ACCESS_LIST_H_
