#include "host-agent/adapters/emulated/slot_files.h"

#include <fcntl.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::agent {
namespace {

constexpr size_t kMaxSlotBytes = 64 << 10;

// One reason for whatever is wrong with such a file: the two sides do not agree on where it is, or
// whose.
absl::Status FileError(absl::StatusCode code, const std::string& path, absl::string_view what) {
  return Refuse(code, "SLOT_FILE", absl::StrCat(path, ": ", what),
                "check that manager and agent agree on the emulated root and its owner",
                {{"path", path}});
}

// Keeps the first message; protobuf would print them all.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int, const std::string& message) override {
    if (text_.empty()) text_ = absl::StrCat("line ", line + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// No such file: OK, and `message` stays empty. DATA_LOSS: it is too long, or does not parse.
absl::Status ReadMessage(const std::string& path, google::protobuf::Message& message) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) {
    if (errno == ENOENT) return absl::OkStatus();
    return FileError(absl::StatusCode::kUnavailable, path, std::strerror(errno));
  }
  // One more than it may have, so that a longer one is noticed without asking how long it is.
  std::string text(kMaxSlotBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = ::read(fd.get(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(absl::StatusCode::kUnavailable, path, std::strerror(errno));
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  if (size > kMaxSlotBytes) {
    return FileError(absl::StatusCode::kDataLoss, path, "larger than 64 KiB");
  }
  text.resize(size);
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.AllowUnknownField(true);  // Of a later release: managers are updated before agents.
  // Another user may have written the file, and the parser recurses.
  parser.SetRecursionLimit(8);
  if (!parser.ParseFromString(text, &message)) {
    return FileError(absl::StatusCode::kDataLoss, path, error.text());
  }
  return absl::OkStatus();
}

}  // namespace

std::string SlotDirectory(const std::string& root, const std::string& host, uint32_t slot) {
  return absl::StrCat(root, "/hosts/", host, "/slot-", slot);
}

// Read one after the other: the two sides may be of different moments, which the caller has to
// expect.
absl::StatusOr<SlotFiles> ReadSlot(const std::string& directory) {
  SlotFiles files;
  if (absl::Status s = ReadMessage(directory + "/fabric.textproto", files.fabric); !s.ok()) {
    return s;
  }
  if (absl::Status s = ReadMessage(directory + "/host.textproto", files.host); !s.ok()) return s;
  return files;
}

// By rename: a reader has the old file or the new one.
absl::Status WriteHostSide(const std::string& directory, const emulated::v1::HostSide& side) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(side, &text);
  const std::string path = directory + "/host.textproto";
  const std::string fresh = path + ".new";
  UniqueFd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd.valid()) return FileError(absl::StatusCode::kUnavailable, fresh, std::strerror(errno));
  if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return FileError(absl::StatusCode::kUnavailable, fresh, "short write");
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) {
    return FileError(absl::StatusCode::kUnavailable, path, std::strerror(errno));
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::agent
