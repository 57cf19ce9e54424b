#include "host-agent/adapters/shared/device_mark.h"

#include <zlib.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

constexpr char kMagic[] = "CXLPMARK";
constexpr size_t kMagicBytes = 8;
constexpr size_t kBodyAt = 16;
constexpr size_t kNonceAt = 2048;
constexpr size_t kMaxBodyBytes = kNonceAt - kBodyAt;

uint32_t Crc(const char* bytes, size_t size) {
  return static_cast<uint32_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(bytes), static_cast<uInt>(size)));
}

absl::Status Damaged(absl::string_view what) {
  return Refuse(absl::StatusCode::kDataLoss, "MARK_DAMAGED",
                absl::StrCat("the device has a mark of a pool that is damaged: ", what),
                "find out whose device it is; if nobody's bytes are on it, zero its first 4 KiB by "
                "hand and add it again");
}

}  // namespace

absl::StatusOr<std::optional<v1::DeviceMark>> ReadMark(const void* at) {
  const char* const bytes = static_cast<const char*>(at);
  if (std::memcmp(bytes, kMagic, kMagicBytes) != 0) return std::nullopt;
  uint32_t length = 0, crc = 0;
  std::memcpy(&length, bytes + kMagicBytes, sizeof(length));
  std::memcpy(&crc, bytes + kMagicBytes + sizeof(length), sizeof(crc));
  if (length > kMaxBodyBytes) return Damaged("its length is impossible");
  const std::string body(bytes + kBodyAt, length);
  if (Crc(body.data(), body.size()) != crc) return Damaged("its checksum does not fit");
  v1::DeviceMark mark;
  if (!mark.ParseFromString(body) || mark.id().empty() || mark.pool().empty() ||
      mark.device().empty() || mark.reserved_bytes() < kMarkBytes) {
    return Damaged("it does not say whose the device is");
  }
  uint64_t nonce = 0;
  std::memcpy(&nonce, bytes + kNonceAt, sizeof(nonce));
  mark.set_nonce(nonce);
  return mark;
}

absl::Status WriteMark(const v1::DeviceMark& mark, void* at, const std::function<void()>& flush) {
  v1::DeviceMark without_nonce = mark;
  without_nonce.clear_nonce();
  const std::string body = without_nonce.SerializeAsString();
  if (body.size() > kMaxBodyBytes || mark.reserved_bytes() < kMarkBytes) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_MARK",
                  absl::StrCat("a mark of ", body.size(), " bytes with ", mark.reserved_bytes(),
                               " bytes reserved for it"),
                  "use ids of 63 characters and a granule of 4 KiB at least");
  }
  char* const bytes = static_cast<char*>(at);
  const auto length = static_cast<uint32_t>(body.size());
  const uint32_t crc = Crc(body.data(), body.size());
  std::memcpy(bytes + kMagicBytes, &length, sizeof(length));
  std::memcpy(bytes + kMagicBytes + sizeof(length), &crc, sizeof(crc));
  std::memcpy(bytes + kBodyAt, body.data(), body.size());
  WriteNonce(mark.nonce(), at);
  flush();
  std::memcpy(bytes, kMagic, kMagicBytes);
  flush();
  return absl::OkStatus();
}

void WriteNonce(uint64_t nonce, void* at) {
  std::memcpy(static_cast<char*>(at) + kNonceAt, &nonce, sizeof(nonce));
}

}  // namespace cxlpool::agent
