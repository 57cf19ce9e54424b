#include "cxlpool/client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "libpool/src/connection.h"
#include "libpool/src/errors.h"
#include "libpool/src/reply.h"
#include "libpool/src/session.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"

namespace cxlpool {
namespace {

using libpool::BadArgument;

constexpr absl::Duration kLongestWait = absl::Minutes(10);

absl::Status CheckWait(absl::Duration wait) {
  if (wait >= absl::ZeroDuration() && wait <= kLongestWait) return absl::OkStatus();
  return BadArgument(absl::StrCat("wait is ", absl::FormatDuration(wait)), "give 0 to 10 minutes");
}

// "kv" and "regions/kv" both give "kv". A tag stands for itself.
absl::StatusOr<std::string> RegionId(absl::string_view name) {
  const absl::string_view id = absl::StripPrefix(name, "regions/");
  return ParseResourceName("regions", ResourceName("regions", id));
}

absl::StatusOr<std::string> RegionName(absl::string_view name) {
  auto id = RegionId(name);
  if (!id.ok()) return id.status();
  return ResourceName("regions", *id);
}

v1::Sharing ToProto(Sharing sharing) {
  switch (sharing) {
    case Sharing::kExclusive:
      return v1::EXCLUSIVE;
    case Sharing::kSingleWriter:
      return v1::SINGLE_WRITER;
    case Sharing::kMultiWriter:
      return v1::MULTI_WRITER;
  }
  return v1::SHARING_UNSPECIFIED;
}

std::string NewRequestId() { return FormatUuid(RandomUuid()); }

// The caller's, in the one way of writing it, or a new one.
absl::StatusOr<std::string> RequestId(const std::string& given) {
  if (given.empty()) return NewRequestId();
  const auto uuid = ParseUuid(given);
  if (uuid.ok()) return FormatUuid(*uuid);
  return BadArgument("request_id is no UUID", "give 36 characters, as `uuidgen` writes them");
}

}  // namespace

Client::Client(std::shared_ptr<libpool::Session> session) : session_(std::move(session)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

absl::StatusOr<Client> Client::Connect(const ConnectOptions& options) {
  if (absl::Status status = libpool::CheckTimeout(options); !status.ok()) return status;
  auto session = libpool::Session::Connect(libpool::SocketPath(options), options.timeout);
  if (!session.ok()) return session.status();
  return Client(*std::move(session));
}

absl::StatusOr<Region> Client::Allocate(const AllocateOptions& options) {
  if (absl::Status status = CheckWait(options.wait); !status.ok()) return status;
  if (options.size_bytes == 0) return BadArgument("size_bytes is 0", "say how much to allocate");
  v1::LocalRequest request;
  v1::LocalAllocateRequest& allocate = *request.mutable_allocate();
  if (!options.name.empty()) {
    auto id = RegionId(options.name);
    if (!id.ok()) return id.status();
    allocate.set_region_id(*std::move(id));
  }
  auto request_id = RequestId(options.request_id);
  if (!request_id.ok()) return request_id.status();
  allocate.set_request_id(*std::move(request_id));
  const OpenTo& open_to = options.open_to;
  if (open_to.everybody || !open_to.uids.empty() || !open_to.gids.empty()) {
    v1::OpenTo& to = *allocate.mutable_open_to();
    to.mutable_uids()->Add(open_to.uids.begin(), open_to.uids.end());
    const auto& gids = CXLPOOL_MUTANT("users-for-groups") ? open_to.uids : open_to.gids;
    to.mutable_gids()->Add(gids.begin(), gids.end());
    to.set_everybody(open_to.everybody);
  }
  allocate.set_size_bytes(options.size_bytes);
  allocate.set_sharing(ToProto(options.sharing));
  allocate.set_mode(options.mode == Mode::kSystemRam ? v1::SYSTEM_RAM : v1::DEVDAX);
  if (!CXLPOOL_MUTANT("client-drops-extents")) allocate.set_max_extents(options.max_extents);
  allocate.set_persistent(options.persistent);
  auto opened = session_->Open(std::move(request), options.wait);
  if (!opened.ok()) return opened.status();
  return Region(*std::move(opened));
}

absl::StatusOr<Region> Client::Open(absl::string_view name, const OpenOptions& options) {
  if (absl::Status status = CheckWait(options.wait); !status.ok()) return status;
  auto full_name = RegionName(name);
  if (!full_name.ok()) return full_name.status();
  v1::LocalRequest request;
  request.mutable_open()->set_name(*std::move(full_name));
  const bool read_only =
      options.access == Access::kReadOnly && !CXLPOOL_MUTANT("opens-for-writing");
  request.mutable_open()->set_access(read_only ? v1::READ_ONLY : v1::READ_WRITE);
  auto opened = session_->Open(std::move(request), options.wait);
  if (!opened.ok()) return opened.status();
  return Region(*std::move(opened));
}

absl::Status Client::Release(absl::string_view name) {
  auto full_name = RegionName(name);
  if (!full_name.ok()) return full_name.status();
  v1::LocalRequest request;
  request.mutable_release()->set_request_id(NewRequestId());
  request.mutable_release()->set_name(*std::move(full_name));
  return session_->Call(std::move(request), absl::ZeroDuration(), v1::LocalResponse::kRelease)
      .status();
}

absl::StatusOr<std::vector<RegionInfo>> Client::List() {
  v1::LocalRequest request;
  request.mutable_list();
  auto response =
      session_->Call(std::move(request), absl::ZeroDuration(), v1::LocalResponse::kList);
  if (!response.ok()) return response.status();
  std::vector<RegionInfo> regions;
  for (const v1::LocalRegion& region : response->list().regions()) {
    regions.push_back(libpool::ParseListed(region));
  }
  return regions;
}

}  // namespace cxlpool
