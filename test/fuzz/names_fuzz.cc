// Names, UUIDs, sizes, addresses, tokens and anchors as people and programs write them.

#include <string>

#include "fabric-manager/model/audit/audit_chain.h"
#include "proto/support/address.h"
#include "proto/support/byte_size.h"
#include "proto/support/certificate.h"
#include "proto/support/names.h"
#include "proto/support/process_stat.h"
#include "proto/support/token.h"
#include "test/fuzz/fuzz_target.h"

namespace cxlpool::fuzz {
namespace {

CXLPOOL_FUZZ(names) {
  if (const auto id = ParseResourceName("regions", bytes); id.ok()) {
    Require(ResourceName("regions", *id) == bytes);
    Require(CheckRegionId(*id, /*allow_uuid=*/true).ok());
  }
  if (const auto uuid = ParseUuid(bytes); uuid.ok()) {
    Require(uuid->size() == 16);
    Require(ParseUuid(FormatUuid(*uuid)).value() == *uuid);
  }
  // What is not exact in print is marked with a "~".
  if (const auto size = ParseByteSize(bytes); size.ok()) {
    const std::string text = FormatByteSize(*size);
    if (text[0] != '~') Require(ParseByteSize(text).value() == *size);
  }
  if (const auto address = ParseAddress(bytes); address.ok()) {
    Require(address->is_unix() ? address->path[0] == '/'
                               : address->port >= 1 && address->port <= 65535);
  }
  if (const auto serial = CanonicalSerial(bytes); serial.ok()) {
    Require(CanonicalSerial(*serial).value() == *serial);
  }
  if (const auto name = TokenName(bytes); name.ok()) {
    Require(CheckResourceId(*name).ok());
    Require(bytes.size() > name->size() && TokenHash(bytes).size() == kTokenHashBytes);
  }
  // Digits of either case, so that the text may be another; what it says is the same.
  if (const auto anchor = fm::ParseAuditHead(bytes); anchor.ok()) {
    Require(fm::ParseAuditHead(fm::ToText(*anchor)).value() == *anchor);
  }
  (void)ParseStartTicks(bytes);
}

}  // namespace
}  // namespace cxlpool::fuzz
