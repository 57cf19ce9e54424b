// What a bound LD is called inside QEMU: its device id carries its whole key, which is how a
// restarted manager learns what is bound.
//
//   device   ld-<tag>-<extent index>-<generation>
//   backend  be-<tag>-<extent index>-<generation>-<nonce>
//
// A QEMU id begins with a letter and goes on with letters, digits, '-', '.' and '_'. The nonce
// makes a backend's id one that was never used before: after an unplug QEMU neither frees a
// backend nor takes its id again. Pure; any thread.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_LD_NAME_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_LD_NAME_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "fabric-manager/ports/fabric_driver.h"

namespace cxlpool::fm {

// `key.tag` is a UUID in lower case.
std::string LdDeviceId(const LdKey& key);
std::string LdBackendId(const LdKey& key, uint64_t nonce);

// The key that LdDeviceId gave `id`; nothing for every other id. The host is not in the name.
std::optional<LdKey> ParseLdDeviceId(absl::string_view id, absl::string_view host);

// The same of a backend's id.
std::optional<LdKey> ParseLdBackendId(absl::string_view id, absl::string_view host);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_LD_NAME_H_
