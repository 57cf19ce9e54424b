#include "host-agent/adapters/shared/grant_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "host-agent/support/run_file.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr size_t kMaxGrantsBytes = size_t{4} << 20;

// "grant STATE OFFSET BASE64 NAME" or "work OFFSET LENGTH DEVICE": nothing for any other line, of a
// later release. STATE: "ready", "owing" (not ready, and owes a flush), or "bare"; one of a later
// release is taken for "owing". An earlier release knows "owing" for "bare", and flushes only where
// there still is a DAX device.
std::optional<Granted> ParseGrant(const std::vector<std::string>& words) {
  Granted granted;
  std::string bytes;
  if (words.size() != 5 || words[0] != "grant" ||
      !absl::SimpleAtoi(words[2], &granted.offset_bytes) ||
      !absl::WebSafeBase64Unescape(words[3], &bytes) || !granted.grant.ParseFromString(bytes)) {
    return std::nullopt;
  }
  granted.ready = words[1] == "ready";
  granted.owes_flush = words[1] != "bare";
  granted.name = words[4];
  return granted;
}

// The device is last, for its name may have spaces.
std::optional<WorkRange> ParseWork(const std::vector<std::string>& words) {
  WorkRange work;
  if (words.size() != 4 || words[0] != "work" || !absl::SimpleAtoi(words[1], &work.offset_bytes) ||
      !absl::SimpleAtoi(words[2], &work.length_bytes)) {
    return std::nullopt;
  }
  work.device = words[3];
  return work;
}

template <typename Table, typename Is>
// Null: none is that. Of a constant table, a pointer to a constant.
auto FindIf(Table& table, Is is) -> decltype(&table[0]) {
  const auto found = std::find_if(table.begin(), table.end(), is);
  return found == table.end() ? nullptr : &*found;
}

}  // namespace

GrantTable::GrantTable(std::string path, std::string boot_id)
    : path_(std::move(path)), boot_id_(std::move(boot_id)) {
  // A file of another boot is none: its grants ended with the kernel that had the DAX devices.
  const auto lines = ReadRunFile(path_, kMaxGrantsBytes, kGrantsText, boot_id_);
  if (!lines.has_value()) return;
  for (const std::string& line : *lines) {
    const auto words = [&](int most) -> std::vector<std::string> {
      return absl::StrSplit(line, absl::MaxSplits(' ', most));
    };
    if (auto granted = ParseGrant(words(4))) granted_.push_back(*std::move(granted));
    if (auto work = ParseWork(words(3))) work_ = *std::move(work);
  }
}

const Granted* GrantTable::FindSerial(uint64_t serial) const {
  return FindIf(granted_, [&](const Granted& each) { return each.grant.serial() == serial; });
}

const Granted* GrantTable::FindSlot(uint32_t slot) const {
  return FindIf(granted_, [&](const Granted& each) { return each.grant.slot() == slot; });
}

absl::Status GrantTable::Add(Granted granted) {
  std::vector<Granted> all = granted_;
  all.push_back(std::move(granted));
  return Keep(std::move(all), work_);
}

// The manager wants it back. It stays here until the bytes are flushed and the DAX device is gone.
absl::Status GrantTable::Revoke(uint32_t slot) {
  std::vector<Granted> granted = granted_;
  for (Granted& each : granted) {
    if (each.grant.slot() == slot) each.grant.set_revoked(true);
  }
  return Keep(std::move(granted), work_);
}

// Once it has been ready somebody may have stored, so that it owes a flush even if it is not ready
// any more.
absl::Status GrantTable::SetReady(uint64_t serial, bool ready) {
  std::vector<Granted> granted = granted_;
  for (Granted& each : granted) {
    if (each.grant.serial() != serial) continue;
    each.ready = ready;
    each.owes_flush |= ready;
  }
  return Keep(std::move(granted), work_);
}

// Of one that is ready again meanwhile a flush is owed all the same.
absl::Status GrantTable::SetFlushed(uint64_t serial) {
  std::vector<Granted> granted = granted_;
  for (Granted& each : granted) {
    if (each.grant.serial() == serial) each.owes_flush = each.ready;
  }
  return Keep(std::move(granted), work_);
}

absl::Status GrantTable::Remove(uint64_t serial) {
  std::vector<Granted> granted = granted_;
  std::erase_if(granted, [&](const Granted& each) { return each.grant.serial() == serial; });
  return Keep(std::move(granted), work_);
}

absl::Status GrantTable::SetWork(std::optional<WorkRange> work) {
  return Keep(granted_, std::move(work));
}

// The file first, then the members: what cannot be written has not happened.
absl::Status GrantTable::Keep(std::vector<Granted> granted, std::optional<WorkRange> work) {
  std::string lines;
  for (const Granted& each : granted) {
    const char* const state = each.ready ? "ready" : each.owes_flush ? "owing" : "bare";
    absl::StrAppend(&lines, "grant ", state, " ", each.offset_bytes, " ",
                    absl::WebSafeBase64Escape(each.grant.SerializeAsString()), " ", each.name,
                    "\n");
  }
  if (work.has_value()) {
    absl::StrAppend(&lines, "work ", work->offset_bytes, " ", work->length_bytes, " ", work->device,
                    "\n");
  }
  if (const int error = WriteRunFile(path_, kGrantsText, boot_id_, lines); error != 0) {
    return Refuse(absl::StatusCode::kUnavailable, "RUN_FILE",
                  absl::StrCat(path_, " cannot be written: ", std::strerror(error)),
                  "make room in /run, and see that the directory is the agent's own");
  }
  granted_ = std::move(granted);
  work_ = std::move(work);
  return absl::OkStatus();
}

}  // namespace cxlpool::agent
