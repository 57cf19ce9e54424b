// A finished file gets the name that others look for.
#ifndef CXLPOOL_PROTO_SUPPORT_GIVE_NAME_H_
#define CXLPOOL_PROTO_SUPPORT_GIVE_NAME_H_

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

namespace cxlpool {

// Moves `from` to the name `to`, never in place of another file (EEXIST). In one step: between a
// link and an unlink a power cut would leave a file of two names, which fsck refuses of a database.
// NFS has no such call, and there it takes two. False: errno says why.
inline bool GiveName(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  return link(from.c_str(), to.c_str()) == 0 && unlink(from.c_str()) == 0;
}

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_GIVE_NAME_H_
