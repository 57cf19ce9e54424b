#include "libpool/src/local_codec.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace cxlpool::libpool {
namespace {

// Protobuf's wire types (https://protobuf.dev/programming-guides/encoding/).
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Writes a message's fields; as in proto3, none that has its default value.
class Writer {
 public:
  void Number(uint32_t field, uint64_t value) {
    if (value == 0) return;
    Tag(field, kVarint);
    Varint(value);
  }

  // A negative one has ten bytes.
  void Signed(uint32_t field, int32_t value) {
    Number(field, static_cast<uint64_t>(int64_t{value}));
  }

  void Text(uint32_t field, std::string_view text) {
    if (!text.empty()) Bytes(field, text);
  }

  void Numbers(uint32_t field, const std::vector<uint32_t>& values) {
    Writer packed;
    for (const uint32_t value : values) packed.Varint(value);
    Text(field, packed.bytes_);
  }

  // A message in this one: `fields` writes what is in it. It is there though nothing is.
  template <typename Fields>
  void Message(uint32_t field, const Fields& fields) {
    Writer inner;
    fields(inner);
    Bytes(field, inner.bytes_);
  }

  std::string Take() { return std::move(bytes_); }

 private:
  void Tag(uint32_t field, WireType type) { Varint(uint64_t{field} << 3 | type); }

  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }

  void Bytes(uint32_t field, std::string_view bytes) {
    Tag(field, kBytes);
    Varint(bytes.size());
    bytes_ += bytes;
  }

  std::string bytes_;
};

// A field as it came, not yet of any type.
struct Field {
  uint32_t number = 0;
  uint32_t type = 0;
  uint64_t value = 0;           // kVarint.
  std::string_view bytes = {};  // kBytes.

  // Each sets `to` where the field has the right wire type, and leaves it alone where not: such a
  // field is another one, of a protocol that we do not know.
  void Get(uint64_t& to) const {
    if (type == kVarint) to = value;
  }
  void Get(uint32_t& to) const {
    if (type == kVarint) to = static_cast<uint32_t>(value);
  }
  void Get(int32_t& to) const {
    if (type == kVarint) to = static_cast<int32_t>(value);
  }
  void Get(bool& to) const {
    if (type == kVarint) to = value != 0;
  }
  void Get(std::optional<int32_t>& to) const {
    if (type == kVarint) to = static_cast<int32_t>(value);
  }
  void Get(std::string& to) const {
    if (type == kBytes) to = std::string(bytes);
  }
};

std::optional<uint64_t> TakeVarint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// Takes the first field off `bytes`. Nothing: it is cut short, or has a number or wire type that
// protobuf does not have (groups are not supported, either).
std::optional<Field> TakeField(std::string_view& bytes) {
  const std::optional<uint64_t> tag = TakeVarint(bytes);
  if (!tag.has_value()) return std::nullopt;
  const auto key = static_cast<uint32_t>(*tag);  // As protobuf, which drops what is beyond.
  if (key >> 3 == 0) return std::nullopt;
  Field field{.number = key >> 3, .type = key & 7};
  uint64_t length = 0;
  switch (field.type) {
    case kVarint: {
      const std::optional<uint64_t> value = TakeVarint(bytes);
      if (!value.has_value()) return std::nullopt;
      field.value = *value;
      return field;
    }
    case kBytes: {
      const std::optional<uint64_t> given = TakeVarint(bytes);
      if (!given.has_value()) return std::nullopt;
      length = *given;
      break;
    }
    case kFixed64:
      length = 8;
      break;
    case kFixed32:
      length = 4;
      break;
    default:
      return std::nullopt;
  }
  if (length > bytes.size()) return std::nullopt;
  field.bytes = bytes.substr(0, length);
  bytes.remove_prefix(length);
  return field;
}

// The overloads of Set say where a message's field goes. A field that it does not name is skipped.
// All answer whether the field could be read; only one with a message or a list in it cannot.

template <typename Message>
bool Parse(std::string_view bytes, Message& message) {
  while (!bytes.empty()) {
    const std::optional<Field> field = TakeField(bytes);
    if (!field.has_value() || !Set(message, *field)) return false;
  }
  return true;
}

// Of a list of numbers: one of them, or several in one field.
bool GetNumbers(const Field& field, std::vector<int32_t>& to) {
  if (field.type == kVarint) to.push_back(static_cast<int32_t>(field.value));
  if (field.type != kBytes) return true;
  for (std::string_view left = field.bytes; !left.empty();) {
    const std::optional<uint64_t> value = TakeVarint(left);
    if (!value.has_value()) return false;
    to.push_back(static_cast<int32_t>(*value));
  }
  return true;
}

template <typename Message>
bool GetMessage(const Field& field, std::optional<Message>& to) {
  return field.type != kBytes || Parse(field.bytes, to.emplace());
}

template <typename Message>
bool GetMessage(const Field& field, std::vector<Message>& to) {
  return field.type != kBytes || Parse(field.bytes, to.emplace_back());
}

bool Set(LocalErrorInfo& error, const Field& field) {
  if (field.number == 1) field.Get(error.reason);
  if (field.number == 3) field.Get(error.remedy);
  return true;
}

bool Set(LocalSegment& segment, const Field& field) {
  if (field.number == 1) field.Get(segment.fd_index);
  if (field.number == 2) field.Get(segment.offset_bytes);
  if (field.number == 3) field.Get(segment.length_bytes);
  if (field.number == 4) field.Get(segment.region_offset_bytes);
  if (field.number == 5) field.Get(segment.alignment_bytes);
  if (field.number == 6) field.Get(segment.path);
  return true;
}

bool Set(LocalOpenResponse& open, const Field& field) {
  if (field.number == 1) field.Get(open.name);
  if (field.number == 2) field.Get(open.tag);
  if (field.number == 3) field.Get(open.generation);
  if (field.number == 4) field.Get(open.size_bytes);
  if (field.number == 5) field.Get(open.access);
  if (field.number == 6) field.Get(open.mode);
  if (field.number == 7) field.Get(open.coherence);
  if (field.number == 8) return GetMessage(field, open.segments);
  if (field.number == 9) field.Get(open.numa_node);
  if (field.number == 10) return GetNumbers(field, open.numa_nodes);
  return true;
}

bool Set(LocalAttachment& attachment, const Field& field) {
  if (field.number == 2) field.Get(attachment.mode);
  if (field.number == 3) field.Get(attachment.access);
  if (field.number == 5) field.Get(attachment.state);
  if (field.number == 6) field.Get(attachment.state_reason);
  if (field.number == 7) field.Get(attachment.detaching);
  return true;
}

bool Set(LocalRegion& region, const Field& field) {
  if (field.number == 1) field.Get(region.name);
  if (field.number == 2) field.Get(region.tag);
  if (field.number == 3) field.Get(region.size_bytes);
  if (field.number == 4) return GetMessage(field, region.attachment);
  if (field.number == 5) field.Get(region.opens);
  return true;
}

bool Set(LocalListResponse& list, const Field& field) {
  return field.number != 1 || GetMessage(field, list.regions);
}

bool Set(LocalFault& fault, const Field& field) {
  if (field.number == 1) field.Get(fault.name);
  if (field.number == 2) field.Get(fault.tag);
  if (field.number == 3) field.Get(fault.region_offset_bytes);
  if (field.number == 4) field.Get(fault.length_bytes);
  if (field.number == 5) field.Get(fault.message);
  return true;
}

bool Set(LocalSize& size, const Field& field) {
  if (field.number == 1) field.Get(size.name);
  if (field.number == 2) field.Get(size.tag);
  if (field.number == 3) field.Get(size.size_bytes);
  return true;
}

bool Set(LocalFaultsResponse& faults, const Field& field) {
  if (field.number == 1) field.Get(faults.last);
  if (field.number == 2) return GetMessage(field, faults.faults);
  return field.number != 3 || GetMessage(field, faults.sizes);
}

bool Set(LocalReleaseResponse&, const Field&) { return true; }
bool Set(LocalCloseResponse&, const Field&) { return true; }
bool Set(LocalUsageResponse&, const Field&) { return true; }

bool Set(LocalResponse& response, const Field& field) {
  if (field.number == 1) field.Get(response.code);
  if (field.number == 2) field.Get(response.message);
  if (field.number == 3) return GetMessage(field, response.error);
  if (field.number == 4) return GetMessage(field, response.open);
  if (field.number == 5) return GetMessage(field, response.release);
  if (field.number == 6) return GetMessage(field, response.list);
  if (field.number == 7) return GetMessage(field, response.close);
  if (field.number == 8) return GetMessage(field, response.faults);
  if (field.number == 9) return GetMessage(field, response.usage);
  return true;
}

void Put(Writer& to, const LocalOpenRequest& open) {
  to.Text(1, open.name);
  to.Signed(2, open.access);
  to.Number(3, open.wait_ms);
  to.Text(4, open.tag);
  to.Number(5, open.at_most_bytes);
  to.Number(6, open.as_file ? 1 : 0);
}

void Put(Writer& to, const LocalOpenTo& open_to) {
  to.Numbers(1, open_to.uids);
  to.Numbers(2, open_to.gids);
  to.Number(3, open_to.everybody ? 1 : 0);
}

void Put(Writer& to, const LocalAllocateRequest& allocate) {
  to.Text(1, allocate.request_id);
  to.Text(2, allocate.region_id);
  to.Number(3, allocate.size_bytes);
  to.Signed(4, allocate.sharing);
  to.Signed(5, allocate.mode);
  to.Number(6, allocate.wait_ms);
  to.Number(7, allocate.max_extents);
  to.Number(8, allocate.persistent ? 1 : 0);
  to.Signed(9, allocate.zone);
  if (allocate.open_to.has_value()) {
    to.Message(10, [&](Writer& inner) { Put(inner, *allocate.open_to); });
  }
  to.Number(11, allocate.as_file ? 1 : 0);
}

void Put(Writer& to, const LocalReleaseRequest& release) {
  to.Text(1, release.request_id);
  to.Text(2, release.name);
}

void Put(Writer&, const LocalListRequest&) {}

void Put(Writer& to, const LocalCloseRequest& close) { to.Text(1, close.name); }

void Put(Writer& to, const LocalFaultsRequest& faults) {
  to.Number(1, faults.after);
  to.Number(2, faults.wait_ms);
}

void Put(Writer&, const LocalUsageRequest&) {}

}  // namespace

std::string Encode(const LocalRequest& request) {
  Writer to;
  to.Number(1, request.protocol_version);
  const auto body = [&to](uint32_t field, const auto& message) {
    if (message.has_value()) to.Message(field, [&](Writer& inner) { Put(inner, *message); });
  };
  body(2, request.open);
  body(3, request.allocate);
  body(4, request.release);
  body(5, request.list);
  body(6, request.close);
  body(7, request.faults);
  body(8, request.usage);
  return to.Take();
}

std::optional<LocalResponse> DecodeResponse(std::string_view bytes) {
  std::optional<LocalResponse> response(std::in_place);
  if (!Parse(bytes, *response)) response.reset();
  return response;
}

}  // namespace cxlpool::libpool
