#include "fabric-manager/adapters/store_sqlite/log_file.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "fabric-manager/adapters/store_sqlite/schema.h"
#include "fabric-manager/adapters/store_sqlite/store_file.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kHeaderBytes = 32;
constexpr size_t kFrameHeaderBytes = 24;
constexpr size_t kFrameBytes = kFrameHeaderBytes + kPageBytes;
constexpr uint32_t kMagic = 0x377f0682;  // Checksums over little-endian words, as hosts are.
constexpr uint32_t kFormatVersion = 3007000;

struct Checksum {
  uint32_t one = 0;
  uint32_t two = 0;
  friend bool operator==(const Checksum&, const Checksum&) = default;
};

uint32_t BigEndian(const char* from) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  return static_cast<uint32_t>(bytes[0]) << 24 | static_cast<uint32_t>(bytes[1]) << 16 |
         static_cast<uint32_t>(bytes[2]) << 8 | static_cast<uint32_t>(bytes[3]);
}

Checksum StoredAt(const char* from) { return {BigEndian(from), BigEndian(from + 4)}; }

// SQLite's checksum of `bytes`, a multiple of 8 of them, going on from `sum`.
Checksum Extend(Checksum sum, absl::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint32_t words[2];
    std::memcpy(words, bytes.data() + i, sizeof(words));
    sum.one += words[0] + sum.two;
    sum.two += words[1] + sum.one;
  }
  return sum;
}

// The checksum that a frame must have behind one that has `before`: of its page number and commit
// size, and of its page. Its salts are not in it.
Checksum ChecksumOf(Checksum before, absl::string_view frame) {
  return Extend(Extend(before, frame.substr(0, 8)), frame.substr(kFrameHeaderBytes));
}

}  // namespace

absl::StatusOr<LogFile> LogFile::Read(const std::string& path) {
  absl::StatusOr<std::string> bytes = ReadStoreFile(path);
  if (!bytes.ok()) return bytes.status();
  return LogFile(*std::move(bytes));
}

LogFile::LogFile(std::string bytes) : bytes_(std::move(bytes)) {
  if (bytes_.size() >= kHeaderBytes) Scan();
}

absl::string_view LogFile::FrameBytes(size_t index) const {
  return absl::string_view(bytes_).substr(kHeaderBytes + index * kFrameBytes, kFrameBytes);
}

uint64_t LogFile::EndOf(size_t frames) { return kHeaderBytes + frames * kFrameBytes; }

// Verifies the chain of frames from the header on, as SQLite does when it opens the log: each
// checksum goes over the one before. The last commit in the unbroken chain is the log's end.
void LogFile::Scan() {
  const absl::string_view header = absl::string_view(bytes_).substr(0, kHeaderBytes);
  const Checksum of_header = StoredAt(header.data() + 24);
  header_is_sound_ =
      BigEndian(header.data()) == kMagic && BigEndian(header.data() + 4) == kFormatVersion &&
      BigEndian(header.data() + 8) == kPageBytes && Extend({}, header.substr(0, 24)) == of_header;

  // A frame at the end that was not written to its end is none.
  frames_.resize((bytes_.size() - kHeaderBytes) / kFrameBytes);
  absl::string_view salts = header.substr(16, 8);
  if (!header_is_sound_ && !frames_.empty()) salts = FrameBytes(0).substr(8, 8);
  Checksum before = of_header;
  for (size_t i = 0; i < frames_.size(); ++i) {
    const absl::string_view bytes = FrameBytes(i);
    const Checksum stored = StoredAt(bytes.data() + 16);
    Frame& frame = frames_[i];
    frame.page = BigEndian(bytes.data());
    frame.commit_pages = BigEndian(bytes.data() + 4);
    frame.of_this_round = bytes.substr(8, 8) == salts && frame.page != 0;
    // Without a header there is nothing that the first frame could be verified by: it is taken as
    // it is, and what follows verifies it or does not.
    frame.verified = frame.of_this_round &&
                     (ChecksumOf(before, bytes) == stored || (i == 0 && !header_is_sound_));
    before = stored;
  }
  while (chain_ < frames_.size() && frames_[chain_].verified) ++chain_;
  for (size_t i = 0; i < chain_; ++i) {
    if (frames_[i].commit_pages != 0) committed_ = i + 1;
  }
  last_verified_commit_ = committed_;
  has_more_ = header_is_sound_ &&
              std::any_of(frames_.begin() + static_cast<std::ptrdiff_t>(committed_), frames_.end(),
                          [](const Frame& frame) { return frame.of_this_round; });
  FindWhatLiesBehind();
}

// Looks for a commit behind the break that yet another frame follows. What a power cut leaves of
// one transaction that was never synced has no such thing: its commit is its last frame.
void LogFile::FindWhatLiesBehind() {
  bool commit = false;  // At or behind the break, before frame i.
  for (size_t i = chain_; i < frames_.size(); ++i) {
    if (frames_[i].verified) has_commits_behind_damage_ |= commit;
    if (frames_[i].verified && frames_[i].commit_pages != 0) last_verified_commit_ = i + 1;
    commit |= frames_[i].commit_pages != 0 && (frames_[i].verified || IsTrueToItsHeader(i));
  }
  if (CXLPOOL_MUTANT("store-log-ends-at-damage")) has_commits_behind_damage_ = false;
}

// Whether the header of a frame whose page is damaged is the one that was written: the next frame
// verifies by the checksum in it, and no power cut can have kept that without what stands before it
// in the same sector.
bool LogFile::IsTrueToItsHeader(size_t index) const {
  constexpr size_t kSectorBytes = 512;
  const size_t at = kHeaderBytes + index * kFrameBytes;
  return frames_[index].of_this_round && at % kSectorBytes + kFrameHeaderBytes <= kSectorBytes &&
         index + 1 < frames_.size() && frames_[index + 1].verified;
}

std::string LogFile::CopyInto(std::string main, bool all) const {
  const size_t end = all ? last_verified_commit_ : header_is_sound_ ? committed_ : 0;
  size_t pages = 0;
  for (size_t i = 0; i < end; ++i) {
    if (!frames_[i].verified) continue;
    const size_t at = (size_t{frames_[i].page} - 1) * kPageBytes;
    // A page number is covered by the checksum; the bound keeps a forged one from taking all
    // memory.
    if (at > main.size() + bytes_.size()) continue;
    if (main.size() < at + kPageBytes) main.resize(at + kPageBytes);
    const absl::string_view page = PageBytes(i);
    std::copy(page.begin(), page.end(), main.begin() + static_cast<std::ptrdiff_t>(at));
    if (frames_[i].commit_pages != 0) pages = frames_[i].commit_pages;
  }
  if (pages != 0) main.resize(std::min(main.size(), pages * size_t{kPageBytes}));
  return main;
}

bool LogFile::IsCopiedInto(absl::string_view main) const {
  std::map<uint32_t, size_t> last;  // Frame of each page.
  for (size_t i = 0; i < committed_; ++i) last[frames_[i].page] = i;
  return std::all_of(last.begin(), last.end(), [&](const auto& entry) {
    const size_t at = (size_t{entry.first} - 1) * kPageBytes;
    return at + kPageBytes <= main.size() && main.substr(at, kPageBytes) == PageBytes(entry.second);
  });
}

}  // namespace cxlpool::fm
