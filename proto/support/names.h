// Resource names (AIP-122): `regions/kv-cache`, `hosts/host-a`, `devices/cmm-0`.
//
// Pure functions, any thread.
#ifndef CXLPOOL_PROTO_SUPPORT_NAMES_H_
#define CXLPOOL_PROTO_SUPPORT_NAMES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/support/uuid.h"

namespace cxlpool {

// OK if `id` matches [a-z]([a-z0-9-]{0,61}[a-z0-9])?.
// INVALID_ARGUMENT/BAD_NAME quotes the id (escaped, cut to 80 characters) and states the rule.
absl::Status CheckResourceId(absl::string_view id);

// The same of a Region's: NAME, or TENANT.NAME, which is of the tenant's own name space (at most 63
// characters in all); or a UUID where `allow_uuid`.
absl::Status CheckRegionId(absl::string_view id, bool allow_uuid = false);

// What the names of Regions begin with that are claims of Kubernetes (tools/dra). Of a host's users
// root and the agent's own take them, and no other: a container would share its memory with who
// knew the claim's uid and was first.
inline constexpr absl::string_view kClaimRegionPrefix = "k8s-";

// "ml" of "ml.kv-cache"; empty: the name is of no tenant's name space.
absl::string_view TenantOfRegionId(absl::string_view id);

// The id of `name` within `collection` ("hosts"): "hosts/host-a" gives "host-a".
// INVALID_ARGUMENT/BAD_NAME if it is not of that collection or the id is not well formed.
absl::StatusOr<std::string> ParseResourceName(absl::string_view collection, absl::string_view name);

// The inverse.
std::string ResourceName(absl::string_view collection, absl::string_view id);

// 16 bytes of a UUID in text of 36 characters, any case. INVALID_ARGUMENT/BAD_UUID.
absl::StatusOr<std::string> ParseUuid(absl::string_view text);

// The same in place. False: it is none, and `uuid` is as it was.
bool ParseUuid(absl::string_view text, Uuid& uuid);

// Lower-case text of 16 bytes.
std::string FormatUuid(absl::string_view bytes);

// A random (version 4) UUID as 16 bytes, from the kernel.
std::string RandomUuid();

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_NAMES_H_
