// The codec against the generated classes of local.proto, which are the measure.
#include "libpool/src/local_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "cxlpool/v1/local.pb.h"
#include "google/protobuf/stubs/logging.h"
#include "google/protobuf/util/message_differencer.h"
#include "test/rigs/random_message.h"

namespace cxlpool::libpool {
namespace {

using ::google::protobuf::util::MessageDifferencer;

constexpr int kMessages = 2000;

// What the agent reads of a request.
v1::LocalRequest Reread(const LocalRequest& request) {
  v1::LocalRequest read;
  EXPECT_TRUE(read.ParseFromString(Encode(request)));
  return read;
}

// Each field of a request by itself and all of them together.
TEST(LocalCodecTest, TheAgentReadsWhatWasWritten) {
  std::mt19937_64 random(1);
  for (int i = 0; i < kMessages; ++i) {
    v1::LocalRequest wanted;
    RandomMessage(wanted, random);
    LocalRequest request;
    request.protocol_version = wanted.protocol_version();
    if (wanted.has_open()) {
      const v1::LocalOpenRequest& from = wanted.open();
      request.open = {from.name(), from.access(),        from.wait_ms(),
                      from.tag(),  from.at_most_bytes(), from.as_file()};
    }
    if (wanted.has_allocate()) {
      const v1::LocalAllocateRequest& from = wanted.allocate();
      request.allocate = {.request_id = from.request_id(),
                          .region_id = from.region_id(),
                          .size_bytes = from.size_bytes(),
                          .sharing = from.sharing(),
                          .mode = from.mode(),
                          .wait_ms = from.wait_ms(),
                          .max_extents = from.max_extents(),
                          .persistent = from.persistent(),
                          .zone = from.zone()};
      request.allocate->as_file = from.as_file();
      if (from.has_open_to()) {
        request.allocate->open_to = {
            .uids = {from.open_to().uids().begin(), from.open_to().uids().end()},
            .gids = {from.open_to().gids().begin(), from.open_to().gids().end()},
            .everybody = from.open_to().everybody()};
      }
    }
    if (wanted.has_release()) {
      request.release = {wanted.release().request_id(), wanted.release().name()};
    }
    if (wanted.has_list()) request.list.emplace();
    if (wanted.has_close()) request.close = {wanted.close().name()};
    if (wanted.has_usage()) request.usage.emplace();
    if (wanted.has_faults()) request.faults = {wanted.faults().after(), wanted.faults().wait_ms()};
    ASSERT_TRUE(MessageDifferencer::Equals(Reread(request), wanted)) << wanted.DebugString();
  }
}

// Everything that libpool keeps of an answer, as the generated classes give it.
void ExpectSame(const LocalResponse& read, const v1::LocalResponse& sent) {
  EXPECT_EQ(read.code, sent.code());
  EXPECT_EQ(read.message, sent.message());
  ASSERT_EQ(read.error.has_value(), sent.has_error());
  if (read.error.has_value()) {
    EXPECT_EQ(read.error->reason, sent.error().reason());
    EXPECT_EQ(read.error->remedy, sent.error().remedy());
  }
  ASSERT_EQ(read.open.has_value(), sent.has_open());
  if (read.open.has_value()) {
    const v1::LocalOpenResponse& open = sent.open();
    EXPECT_EQ(read.open->name, open.name());
    EXPECT_EQ(read.open->tag, open.tag());
    EXPECT_EQ(read.open->generation, open.generation());
    EXPECT_EQ(read.open->size_bytes, open.size_bytes());
    EXPECT_EQ(read.open->access, open.access());
    EXPECT_EQ(read.open->mode, open.mode());
    EXPECT_EQ(read.open->coherence, open.coherence());
    ASSERT_EQ(read.open->numa_node.has_value(), open.has_numa_node());
    EXPECT_EQ(read.open->numa_node.value_or(0), open.numa_node());
    EXPECT_THAT(read.open->numa_nodes, ::testing::ElementsAreArray(open.numa_nodes()));
    ASSERT_EQ(read.open->segments.size(), static_cast<size_t>(open.segments_size()));
    for (int i = 0; i < open.segments_size(); ++i) {
      const LocalSegment& segment = read.open->segments[static_cast<size_t>(i)];
      EXPECT_EQ(segment.fd_index, open.segments(i).fd_index());
      EXPECT_EQ(segment.offset_bytes, open.segments(i).offset_bytes());
      EXPECT_EQ(segment.length_bytes, open.segments(i).length_bytes());
      EXPECT_EQ(segment.region_offset_bytes, open.segments(i).region_offset_bytes());
      EXPECT_EQ(segment.alignment_bytes, open.segments(i).alignment_bytes());
      EXPECT_EQ(segment.path, open.segments(i).path());
    }
  }
  EXPECT_EQ(read.release.has_value(), sent.has_release());
  EXPECT_EQ(read.close.has_value(), sent.has_close());
  EXPECT_EQ(read.usage.has_value(), sent.has_usage());
  ASSERT_EQ(read.list.has_value(), sent.has_list());
  if (read.list.has_value()) {
    ASSERT_EQ(read.list->regions.size(), static_cast<size_t>(sent.list().regions_size()));
    for (int i = 0; i < sent.list().regions_size(); ++i) {
      const LocalRegion& region = read.list->regions[static_cast<size_t>(i)];
      const v1::LocalRegion& from = sent.list().regions(i);
      EXPECT_EQ(region.name, from.name());
      EXPECT_EQ(region.tag, from.tag());
      EXPECT_EQ(region.size_bytes, from.size_bytes());
      EXPECT_EQ(region.opens, from.opens());
      ASSERT_EQ(region.attachment.has_value(), from.has_attachment());
      if (!region.attachment.has_value()) continue;
      EXPECT_EQ(region.attachment->mode, from.attachment().mode());
      EXPECT_EQ(region.attachment->access, from.attachment().access());
      EXPECT_EQ(region.attachment->state, from.attachment().state());
      EXPECT_EQ(region.attachment->state_reason, from.attachment().state_reason());
      EXPECT_EQ(region.attachment->detaching, from.attachment().detaching());
    }
  }
  ASSERT_EQ(read.faults.has_value(), sent.has_faults());
  if (read.faults.has_value()) {
    EXPECT_EQ(read.faults->last, sent.faults().last());
    ASSERT_EQ(read.faults->faults.size(), static_cast<size_t>(sent.faults().faults_size()));
    for (int i = 0; i < sent.faults().faults_size(); ++i) {
      const LocalFault& fault = read.faults->faults[static_cast<size_t>(i)];
      const v1::LocalFault& from = sent.faults().faults(i);
      EXPECT_EQ(fault.name, from.name());
      EXPECT_EQ(fault.tag, from.tag());
      EXPECT_EQ(fault.region_offset_bytes, from.region_offset_bytes());
      EXPECT_EQ(fault.length_bytes, from.length_bytes());
      EXPECT_EQ(fault.message, from.message());
    }
    ASSERT_EQ(read.faults->sizes.size(), static_cast<size_t>(sent.faults().sizes_size()));
    for (int i = 0; i < sent.faults().sizes_size(); ++i) {
      const LocalSize& size = read.faults->sizes[static_cast<size_t>(i)];
      const v1::LocalSize& from = sent.faults().sizes(i);
      EXPECT_EQ(size.name, from.name());
      EXPECT_EQ(size.tag, from.tag());
      EXPECT_EQ(size.size_bytes, from.size_bytes());
    }
  }
}

TEST(LocalCodecTest, WhatTheAgentSendsIsRead) {
  std::mt19937_64 random(2);
  for (int i = 0; i < kMessages; ++i) {
    v1::LocalResponse sent;
    RandomMessage(sent, random);
    const std::optional<LocalResponse> read = DecodeResponse(sent.SerializeAsString());
    ASSERT_TRUE(read.has_value()) << sent.DebugString();
    ExpectSame(*read, sent);
    if (HasFailure()) FAIL() << sent.DebugString();
  }
}

// What protobuf takes is taken, and read alike; what it refuses for its shape is refused. (It also
// refuses text that is no UTF-8, and puts together a message that comes in two parts.)
TEST(LocalCodecTest, DamagedBytesAreReadAsProtobufReadsThem) {
  const ::google::protobuf::LogSilencer silence;  // Of each text that is no UTF-8.
  std::mt19937_64 random(3);
  int taken = 0;
  int refused = 0;
  for (int i = 0; i < 10 * kMessages; ++i) {
    v1::LocalResponse sent;
    RandomMessage(sent, random);
    std::string bytes = sent.SerializeAsString();
    if (bytes.empty()) continue;
    switch (random() % 3) {
      case 0:
        bytes.resize(random() % bytes.size());
        break;
      case 1:
        bytes[random() % bytes.size()] = static_cast<char>(random());
        break;
      default:
        bytes.insert(random() % bytes.size(), 1, static_cast<char>(random()));
    }
    const bool by_us = DecodeResponse(bytes).has_value();
    v1::LocalResponse theirs;
    const bool by_protobuf = theirs.ParseFromString(bytes);
    if (by_protobuf) {
      EXPECT_TRUE(by_us) << "protobuf reads " << theirs.DebugString();
    }
    ++(by_us ? taken : refused);
  }
  EXPECT_GT(taken, 100);
  EXPECT_GT(refused, 100);
}

TEST(LocalCodecTest, BytesThatAreNoMessageAreRefused) {
  using std::string_literals::operator""s;
  for (const std::string& bytes : {
           "\x0b"s,                                              // A group.
           "\x00\x01"s,                                          // Field 0.
           "\x12"s,                                              // No length.
           "\x12\x05kv"s,                                        // Fewer bytes than it says.
           "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01kv"s,    // Nearly 2^64 of them.
           "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s,  // Eleven bytes of a number.
           "\x08"s,                                              // None.
           "\x19\x01\x02"s,                                      // Part of a fixed64.
           "\x22\x02\x0a\x05"s,                                  // A message with half a field.
       }) {
    EXPECT_FALSE(DecodeResponse(bytes).has_value()) << testing::PrintToString(bytes);
  }
  EXPECT_TRUE(DecodeResponse("").has_value());
}

TEST(LocalCodecTest, FieldsOfALaterProtocolAreSkipped) {
  v1::LocalResponse sent;
  sent.set_code(5);
  std::string bytes = sent.SerializeAsString();
  using std::string_literals::operator""s;
  bytes += "\xf8\x07\x01"s;                              // 127: a number,
  bytes += "\xf9\x07\x01\x02\x03\x04\x05\x06\x07\x08"s;  // a fixed64,
  bytes += "\xfa\x07\x02kv"s;                            // bytes,
  bytes += "\xfd\x07\x01\x02\x03\x04"s;                  // a fixed32.
  bytes += "\x12\x02no"s;
  const std::optional<LocalResponse> read = DecodeResponse(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->code, 5);
  EXPECT_EQ(read->message, "no");
}

}  // namespace
}  // namespace cxlpool::libpool
