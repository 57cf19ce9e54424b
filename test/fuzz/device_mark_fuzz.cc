// The first bytes of a shared device, which every host can write.

#include <algorithm>
#include <cstring>
#include <string>

#include "cxlpool/v1/host_service.pb.h"
#include "host-agent/adapters/shared/device_mark.h"
#include "test/fuzz/fuzz_target.h"

namespace cxlpool::fuzz {
namespace {

// As they are; and as the message of a mark whose checksum is right, which no fuzzer would find.
CXLPOOL_FUZZ(device_mark) {
  std::string page(agent::kMarkBytes, '\0');
  std::memcpy(page.data(), bytes.data(), std::min(bytes.size(), page.size()));
  (void)agent::ReadMark(page.data());

  v1::DeviceMark mark;
  if (!mark.ParseFromString(bytes)) return;
  page.assign(agent::kMarkBytes, '\0');
  if (!agent::WriteMark(mark, page.data(), [] {}).ok()) return;
  const auto read = agent::ReadMark(page.data());
  if (mark.id().empty() || mark.pool().empty() || mark.device().empty()) {
    Require(!read.ok());
    return;
  }
  Require(read.ok() && read->has_value());
  const v1::DeviceMark& found = **read;
  Require(found.id() == mark.id() && found.pool() == mark.pool());
  Require(found.device() == mark.device() && found.nonce() == mark.nonce());
  Require(found.reserved_bytes() == mark.reserved_bytes() && found.was_zero() == mark.was_zero());
}

}  // namespace
}  // namespace cxlpool::fuzz
