// cxlpool.h, on what this folder has in C++. No exception leaves it.
#include "libpool/src/c_api.h"

#include <sys/types.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cxlpool/cxlpool.h"
#include "libpool/src/connection.h"
#include "libpool/src/fault_watch.h"
#include "libpool/src/map.h"
#include "libpool/src/numa.h"
#include "libpool/src/opened_region.h"
#include "libpool/src/pin.h"
#include "libpool/src/region_name.h"
#include "libpool/src/reply.h"
#include "libpool/src/session.h"
#include "libpool/src/status.h"
#include "libpool/src/text.h"
#include "proto/support/mutant.h"

namespace lib = cxlpool::libpool;
using lib::CopyOut;
using lib::CopyText;
using lib::NotGiven;
using lib::Read;
using lib::Run;
using lib::Status;
using lib::StatusOr;
using lib::TextOf;

// What the handles of cxlpool.h are. A map shares what its Region has opened, so that the Region
// may be closed before it.
struct cxlpool_client {
  std::shared_ptr<lib::Session> session;
};
struct cxlpool_region {
  explicit cxlpool_region(std::shared_ptr<const lib::OpenedRegion> region)
      : opened(std::move(region)) {
    opened->has_handle = true;
  }
  cxlpool_region(const cxlpool_region&) = delete;
  cxlpool_region& operator=(const cxlpool_region&) = delete;
  ~cxlpool_region() { opened->has_handle = false; }

  const std::shared_ptr<const lib::OpenedRegion> opened;
};
struct cxlpool_list {
  std::vector<lib::LocalRegion> regions;
};
struct cxlpool_pin {
  std::unique_ptr<lib::Pin> pin;
};
struct cxlpool_fault_watch {
  std::unique_ptr<lib::FaultWatcher> watch;
};

namespace {

constexpr uint32_t kLongestWaitMs = 600'000;
constexpr uint32_t kLongestTimeoutMs = 3'600'000;
constexpr size_t kMaxOpenTo = 64;

Status CheckWait(uint32_t wait_ms) {
  if (wait_ms <= kLongestWaitMs) return Status();
  return lib::BadArgument(lib::Concat("wait_ms is ", wait_ms), "give 0 to 600000 (10 minutes)");
}

// 0 would be no time at all, and not for ever: then no call could succeed.
Status CheckTimeout(uint32_t timeout_ms) {
  if (timeout_ms > 0 && timeout_ms <= kLongestTimeoutMs) return Status();
  return lib::BadArgument(lib::Concat("timeout_ms is ", timeout_ms), "give 1 to 3600000 (an hour)");
}

// That an enum of the caller's is 1 to `last`.
Status CheckEnum(std::string_view what, int32_t value, int32_t last) {
  if (value >= 1 && value <= last) return Status();
  return lib::BadArgument(lib::Concat(what, " is ", value),
                          "give one of the enum of that name in cxlpool.h");
}

// Checks what the agent would refuse less clearly: numbers that are no value of their enum, and too
// many users. Without a request_id it has a new one, which only the retries of this call share.
StatusOr<lib::LocalAllocateRequest> AllocateRequest(const cxlpool_allocate_options& options) {
  if (options.size_bytes == 0) {
    return lib::BadArgument("size_bytes is 0", "say how much to allocate");
  }
  if (Status status = CheckWait(options.wait_ms); !status.ok()) return status;
  if (Status status = CheckEnum("sharing", options.sharing, CXLPOOL_MULTI_WRITER); !status.ok()) {
    return status;
  }
  if (Status status = CheckEnum("mode", options.mode, CXLPOOL_SYSTEM_RAM); !status.ok()) {
    return status;
  }
  if (options.open_to_uid_count > kMaxOpenTo || options.open_to_gid_count > kMaxOpenTo) {
    return lib::BadArgument("it is open to more than 64 users or groups", "open it to a group");
  }
  if ((options.open_to_uids == nullptr && options.open_to_uid_count > 0) ||
      (options.open_to_gids == nullptr && options.open_to_gid_count > 0)) {
    return lib::BadArgument("open_to_uids or open_to_gids is NULL, and its count is not 0",
                            "give as many ids as the count says, or 0");
  }
  StatusOr<std::string> request_id = lib::RequestIdOf(TextOf(options.request_id));
  if (!request_id.ok()) return request_id.status();
  lib::LocalAllocateRequest request = {.request_id = *std::move(request_id),
                                       .size_bytes = options.size_bytes,
                                       .sharing = options.sharing,
                                       .mode = options.mode,
                                       .persistent = options.persistent != 0,
                                       .as_file = options.as_file != 0};
  // Without a name it is given one.
  if (!TextOf(options.name).empty()) {
    StatusOr<std::string> id = lib::RegionIdOf(options.name);
    if (!id.ok()) return id.status();
    request.region_id = *std::move(id);
  }
  if (!CXLPOOL_MUTANT("client-drops-extents")) request.max_extents = options.max_extents;
  const auto* const uids = options.open_to_uids;
  const auto* const gids = CXLPOOL_MUTANT("users-for-groups") ? uids : options.open_to_gids;
  if (options.open_to_everybody != 0 || options.open_to_uid_count + options.open_to_gid_count > 0) {
    request.open_to = {.uids = {uids, uids + options.open_to_uid_count},
                       .gids = {gids, gids + options.open_to_gid_count},
                       .everybody = options.open_to_everybody != 0};
  }
  return request;
}

// Takes back an allocation that did not give what was asked for.
Status Undo(cxlpool_client* client, const std::string& name) {
  StatusOr<std::string> request_id = lib::RequestIdOf("");
  if (!request_id.ok()) return request_id.status();
  lib::LocalRequest request;
  request.release = {.request_id = *std::move(request_id), .name = name};
  return client->session->Call(std::move(request), lib::Duration(0), lib::Body::kRelease).status();
}

// What an agent that does not know as_file gave was closed again. It was allocated for this call
// only if this library made the call's request_id: then it is released. With one of the caller's it
// may be that of an earlier call, and in use.
Status AgentTooOld(cxlpool_client* client, const std::string& name, const std::string& tag,
                   bool allocated, bool own_request) {
  std::string message =
      lib::Concat("the host agent does not know as_file, and gave ", name, " without a path");
  std::string remedy = "update cxlpool-agent, or open it without as_file";
  if (allocated && !own_request && !CXLPOOL_MUTANT("undoes-another-call")) {
    message += "; it stays allocated, for its request_id may be that of an earlier call";
    remedy = lib::Concat("update cxlpool-agent, open it without as_file, or release ", name);
  } else if (allocated) {
    // By its tag, which no other Region ever has.
    const Status undone = Undo(client, lib::Concat("regions/", tag));
    if (undone.ok()) {
      message += "; it has been released";
      remedy = "update cxlpool-agent, or allocate it without as_file";
    } else {
      message += lib::Concat("; it could not be released: ", undone.failure().message);
      remedy = lib::Concat("update cxlpool-agent, open it without as_file, or release ", name);
    }
  }
  return lib::Refuse(lib::Code::kFailedPrecondition, "AGENT_TOO_OLD", std::move(message),
                     std::move(remedy));
}

// Opens what the request asks for. `own_request`: of an allocation, the library made its
// request_id.
Status OpenWith(cxlpool_client* client, lib::LocalRequest request, uint32_t wait_ms,
                bool own_request, cxlpool_region** region) {
  const bool allocates = request.allocate.has_value();
  const bool as_file = allocates ? request.allocate->as_file : request.open->as_file;
  auto opened = client->session->Open(std::move(request), lib::Duration(wait_ms));
  if (!opened.ok()) return opened.status();
  const lib::OpenReply& reply = (*opened)->reply;
  if (as_file && !reply.has_paths() && !CXLPOOL_MUTANT("old-agent-believed")) {
    // Copied before the Region is closed, for they live in it.
    const std::string name = reply.name;
    const std::string tag = reply.tag;
    *opened = nullptr;
    return AgentTooOld(client, name, tag, allocates, own_request);
  }
  *region = new cxlpool_region(*std::move(opened));
  return Status();
}

// Of a list or of extents.
Status NoSuchIndex(size_t index, size_t count) {
  return lib::BadArgument(lib::Concat("there is no ", index, ", there are ", count),
                          "count from 0");
}

}  // namespace

int cxlpool_connect(const cxlpool_connect_options* options, cxlpool_client** client,
                    cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (client == nullptr) return NotGiven("client");
    const StatusOr<cxlpool_connect_options> read = Read(options, CXLPOOL_CONNECT_OPTIONS_INIT);
    if (!read.ok()) return read.status();
    if (Status status = CheckTimeout(read->timeout_ms); !status.ok()) return status;
    lib::LeakList::Wanted();  // From the first client on.
    auto session =
        lib::Session::Connect(lib::SocketPath(read->socket_path), lib::Duration(read->timeout_ms));
    if (!session.ok()) return session.status();
    *client = new cxlpool_client{*std::move(session)};
    return Status();
  });
}

void cxlpool_disconnect(cxlpool_client* client) { delete client; }

int cxlpool_allocate(cxlpool_client* client, const cxlpool_allocate_options* options,
                     cxlpool_region** region, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (client == nullptr || region == nullptr) return NotGiven("client or region");
    const StatusOr<cxlpool_allocate_options> read = Read(options, CXLPOOL_ALLOCATE_OPTIONS_INIT);
    if (!read.ok()) return read.status();
    StatusOr<lib::LocalAllocateRequest> allocate = AllocateRequest(*read);
    if (!allocate.ok()) return allocate.status();
    lib::LocalRequest request;
    request.allocate = *std::move(allocate);
    // Only then may what came of it be taken back; see AgentTooOld.
    const bool own_request = TextOf(read->request_id).empty();
    return OpenWith(client, std::move(request), read->wait_ms, own_request, region);
  });
}

int cxlpool_open(cxlpool_client* client, const char* name, const cxlpool_open_options* options,
                 cxlpool_region** region, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (client == nullptr || region == nullptr) return NotGiven("client or region");
    const StatusOr<cxlpool_open_options> read = Read(options, CXLPOOL_OPEN_OPTIONS_INIT);
    if (!read.ok()) return read.status();
    if (Status status = CheckWait(read->wait_ms); !status.ok()) return status;
    if (Status status = CheckEnum("access", read->access, CXLPOOL_READ_ONLY); !status.ok()) {
      return status;
    }
    StatusOr<std::string> full_name = lib::RegionNameOf(TextOf(name));
    if (!full_name.ok()) return full_name.status();
    lib::LocalRequest request;
    request.open = {
        .name = *std::move(full_name), .access = read->access, .as_file = read->as_file != 0};
    if (CXLPOOL_MUTANT("opens-for-writing")) request.open->access = CXLPOOL_READ_WRITE;
    return OpenWith(client, std::move(request), read->wait_ms, false, region);
  });
}

// By name: no handle is needed.
int cxlpool_release(cxlpool_client* client, const char* name, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (client == nullptr) return NotGiven("client");
    StatusOr<std::string> full_name = lib::RegionNameOf(TextOf(name));
    if (!full_name.ok()) return full_name.status();
    StatusOr<std::string> request_id = lib::RequestIdOf("");
    if (!request_id.ok()) return request_id.status();
    lib::LocalRequest request;
    request.release = {.request_id = *std::move(request_id), .name = *std::move(full_name)};
    return client->session->Call(std::move(request), lib::Duration(0), lib::Body::kRelease)
        .status();
  });
}

// A copy, as of now: to read it needs no agent.
int cxlpool_list_regions(cxlpool_client* client, cxlpool_list** list, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (client == nullptr || list == nullptr) return NotGiven("client or list");
    lib::LocalRequest request;
    request.list.emplace();
    auto response = client->session->Call(std::move(request), lib::Duration(0), lib::Body::kList);
    if (!response.ok()) return response.status();
    *list = new cxlpool_list{std::move(response->list->regions)};
    return Status();
  });
}

size_t cxlpool_list_count(const cxlpool_list* list) {
  return list == nullptr ? 0 : list->regions.size();
}

int cxlpool_list_describe(const cxlpool_list* list, size_t index, cxlpool_region_info* info,
                          cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (info == nullptr) return NotGiven("info");
    if (index >= cxlpool_list_count(list)) return NoSuchIndex(index, cxlpool_list_count(list));
    const lib::LocalRegion& region = list->regions[index];
    const lib::LocalAttachment attachment = region.attachment.value_or(lib::LocalAttachment());
    cxlpool_region_info filled = CXLPOOL_REGION_INFO_INIT;
    CopyText(region.name, filled.name);
    CopyText(region.tag, filled.tag);
    filled.size_bytes = region.size_bytes;
    // A value that this library does not know counts as the least: READ_ONLY, devdax, unknown.
    const bool writes = attachment.access == CXLPOOL_READ_WRITE;
    filled.access = writes ? CXLPOOL_READ_WRITE : CXLPOOL_READ_ONLY;
    const bool is_ram = attachment.mode == CXLPOOL_SYSTEM_RAM;
    filled.mode = is_ram ? CXLPOOL_SYSTEM_RAM : CXLPOOL_DEVDAX;
    const bool known =
        attachment.state >= CXLPOOL_WANTED && attachment.state <= CXLPOOL_RELEASE_BLOCKED;
    filled.state = known ? attachment.state : CXLPOOL_STATE_UNKNOWN;
    filled.detaching = attachment.detaching ? 1 : 0;
    filled.opens = region.opens;
    CopyText(attachment.state_reason, filled.state_reason);
    CopyOut(filled, info);
    return Status();
  });
}

void cxlpool_list_free(cxlpool_list* list) { delete list; }

// Without a call: it is what the agent answered when it was opened, and may have grown since.
int cxlpool_region_describe(const cxlpool_region* region, cxlpool_region_info* info,
                            cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (region == nullptr || info == nullptr) return NotGiven("region or info");
    const lib::OpenReply& reply = region->opened->reply;
    cxlpool_region_info filled = CXLPOOL_REGION_INFO_INIT;
    CopyText(reply.name, filled.name);
    CopyText(reply.tag, filled.tag);
    filled.generation = reply.generation;
    filled.size_bytes = reply.size_bytes;
    filled.access = reply.access;
    filled.mode = reply.mode;
    filled.coherence = reply.coherence;
    filled.numa_node = reply.numa_node.value_or(-1);
    filled.alignment_bytes = lib::AlignmentOf(reply, lib::PageBytes());
    filled.state = CXLPOOL_ONLINE;
    CopyOut(filled, info);
    return Status();
  });
}

int cxlpool_region_check(const cxlpool_region* region, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    return region == nullptr ? NotGiven("region") : region->opened->hold.Check();
  });
}

size_t cxlpool_region_extent_count(const cxlpool_region* region) {
  return region == nullptr ? 0 : region->opened->reply.segments.size();
}

// The descriptor stays the Region's: who keeps it longer duplicates it.
int cxlpool_region_extent(const cxlpool_region* region, size_t index, cxlpool_extent* extent,
                          cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (extent == nullptr) return NotGiven("extent");
    const size_t count = cxlpool_region_extent_count(region);
    if (index >= count) return NoSuchIndex(index, count);
    const lib::LocalSegment& segment = region->opened->reply.segments[index];
    cxlpool_extent filled = CXLPOOL_EXTENT_INIT;
    filled.fd = region->opened->descriptors[segment.fd_index].get();
    filled.offset_bytes = segment.offset_bytes;
    filled.length_bytes = segment.length_bytes;
    filled.region_offset_bytes = segment.region_offset_bytes;
    filled.alignment_bytes = segment.alignment_bytes;
    CopyOut(filled, extent);
    return Status();
  });
}

// As snprintf does: the number of all, however many there was room for.
size_t cxlpool_region_nodes(const cxlpool_region* region, int* nodes, size_t room) {
  if (region == nullptr) return 0;
  const std::vector<int>& all = region->opened->reply.numa_nodes;
  std::copy_n(all.begin(), std::min(room, all.size()), nodes);
  return all.size();
}

const char* cxlpool_region_path(const cxlpool_region* region, size_t index) {
  if (index >= cxlpool_region_extent_count(region)) return nullptr;
  const std::string& path = region->opened->reply.segments[index].path;
  return path.empty() ? nullptr : path.c_str();
}

int cxlpool_keep_through_exec(const cxlpool_region* region, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    return region == nullptr ? NotGiven("region") : region->opened->hold.KeepThroughExec();
  });
}

int cxlpool_region_tell(const cxlpool_region* region, uint64_t live_bytes, uint64_t slack_bytes,
                        cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (region == nullptr) return NotGiven("region");
    region->opened->usage.Report(live_bytes, slack_bytes);
    return Status();
  });
}

void cxlpool_close(cxlpool_region* region) { delete region; }

// As it was opened, unless the options say otherwise: a writable map of a Region that was opened
// read-only is for Map::Make to refuse.
int cxlpool_map_region(const cxlpool_region* region, const cxlpool_map_options* options,
                       cxlpool_map** map, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (region == nullptr || map == nullptr) return NotGiven("region or map");
    const StatusOr<cxlpool_map_options> read = Read(options, CXLPOOL_MAP_OPTIONS_INIT);
    if (!read.ok()) return read.status();
    // 0 is as it was opened.
    if (read->writable != CXLPOOL_MAP_AS_OPENED) {
      const Status status = CheckEnum("writable", read->writable, CXLPOOL_MAP_READ_ONLY);
      if (!status.ok()) return status;
    }
    const bool opened_writable = region->opened->reply.access == CXLPOOL_READ_WRITE;
    lib::MapOptions wanted = {
        .writable = read->writable == CXLPOOL_MAP_WRITABLE ||
                    (read->writable == CXLPOOL_MAP_AS_OPENED && opened_writable),
        .populate = read->populate != 0,
        .address = read->address,
        .offset_bytes = read->offset_bytes,
        .length_bytes = read->length_bytes,
        .reserve_bytes = read->reserve_bytes};
    auto made = lib::Map::Make(region->opened, wanted);
    if (!made.ok()) return made.status();
    *map = new cxlpool_map{*std::move(made)};
    return Status();
  });
}

int cxlpool_publish(const cxlpool_map* map, const void* address, size_t bytes,
                    cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    return map == nullptr ? NotGiven("map") : map->map->Publish(address, bytes);
  });
}

int cxlpool_refresh(const cxlpool_map* map, const void* address, size_t bytes,
                    cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    return map == nullptr ? NotGiven("map") : map->map->Refresh(address, bytes);
  });
}

int cxlpool_guard(const cxlpool_map* map, void (*work)(void* context), void* context,
                  cxlpool_lost* lost, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (map == nullptr || work == nullptr) return NotGiven("map or work");
    // Also where the caller does not want to know, Guard has to write somewhere.
    cxlpool_lost filled = CXLPOOL_LOST_INIT;
    Status status = map->map->Guard(work, context, &filled);
    if (lost != nullptr && !status.ok()) CopyOut(filled, lost);
    return status;
  });
}

int cxlpool_map_extend(cxlpool_map* map, const cxlpool_region* grown, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (map == nullptr || grown == nullptr) return NotGiven("map or grown");
    return map->map->Extend(grown->opened);
  });
}

void* cxlpool_map_address(const cxlpool_map* map) {
  return map == nullptr ? nullptr : map->map->address();
}

size_t cxlpool_map_size(const cxlpool_map* map) { return map == nullptr ? 0 : map->map->size(); }

int cxlpool_map_writable(const cxlpool_map* map) {
  return map != nullptr && map->map->writable() ? 1 : 0;
}

void cxlpool_unmap(cxlpool_map* map) { delete map; }

int cxlpool_pin_map(const cxlpool_map* map, const cxlpool_pin_options* options, cxlpool_pin** pin,
                    cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (map == nullptr || pin == nullptr) return NotGiven("map or pin");
    const StatusOr<cxlpool_pin_options> read = Read(options, CXLPOOL_PIN_OPTIONS_INIT);
    if (!read.ok()) return read.status();
    if (read->register_fn == nullptr || read->unregister_fn == nullptr) {
      return NotGiven("register_fn or unregister_fn");
    }
    const lib::PinOptions wanted = {.register_fn = read->register_fn,
                                    .unregister_fn = read->unregister_fn,
                                    .context = read->context,
                                    .chunk_bytes = read->chunk_bytes,
                                    .read_only = read->read_only != 0};
    // The handle comes first: what is registered cannot fail to be handed out.
    auto handle = std::make_unique<cxlpool_pin>();
    auto made = lib::Pin::Make(map->map, wanted);
    if (!made.ok()) return made.status();
    handle->pin = *std::move(made);
    *pin = handle.release();
    return Status();
  });
}

// Null: nothing to do. Where something stays registered the handle stays as well, so that it can be
// tried again.
int cxlpool_unpin(cxlpool_pin* pin, cxlpool_error* error) {
  if (pin == nullptr) return CXLPOOL_OK;
  const int code = Run(error, [&] { return pin->pin->Undo(); });
  if (code == CXLPOOL_OK) delete pin;
  return code;
}

// The C structs that the callbacks get live on the watch's stack, for the time of the call only.
int cxlpool_fault_watch_start(const cxlpool_connect_options* connect,
                              const cxlpool_fault_watch_options* options,
                              cxlpool_fault_watch** watch, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (watch == nullptr) return NotGiven("watch");
    const StatusOr<cxlpool_connect_options> agent = Read(connect, CXLPOOL_CONNECT_OPTIONS_INIT);
    if (!agent.ok()) return agent.status();
    if (Status status = CheckTimeout(agent->timeout_ms); !status.ok()) return status;
    const StatusOr<cxlpool_fault_watch_options> read =
        Read(options, CXLPOOL_FAULT_WATCH_OPTIONS_INIT);
    if (!read.ok()) return read.status();
    if (read->on_fault == nullptr && read->on_size == nullptr) {
      return NotGiven("on_fault or on_size");
    }
    lib::FaultWatcher::OnFault on_fault;
    if (read->on_fault != nullptr) {
      on_fault = [call = read->on_fault, context = read->context](const lib::LocalFault& from) {
        const cxlpool_fault fault = {sizeof fault,      from.name.c_str(),
                                     from.tag.c_str(),  from.region_offset_bytes,
                                     from.length_bytes, from.message.c_str()};
        call(&fault, context);
      };
    }
    lib::FaultWatcher::OnSize on_size;
    if (read->on_size != nullptr) {
      on_size = [call = read->on_size, context = read->context](const lib::LocalSize& from) {
        const cxlpool_region_size now = {sizeof now, from.name.c_str(), from.tag.c_str(),
                                         from.size_bytes};
        call(&now, context);
      };
    }
    auto made = std::make_unique<lib::FaultWatcher>(lib::SocketPath(agent->socket_path),
                                                    lib::Duration(agent->timeout_ms),
                                                    std::move(on_fault), std::move(on_size));
    if (Status status = made->Start(); !status.ok()) return status;
    *watch = new cxlpool_fault_watch{std::move(made)};
    return Status();
  });
}

int cxlpool_fault_watch_check(const cxlpool_fault_watch* watch, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    return watch == nullptr ? NotGiven("watch") : watch->watch->Check();
  });
}

void cxlpool_fault_watch_stop(cxlpool_fault_watch* watch) {
  // A forked child has none of its thread, and a lock may be held for ever: it leaves all as it is.
  if (watch == nullptr || watch->watch->Forked()) return;
  delete watch;
}

int cxlpool_bind_to_node(void* address, size_t bytes, int node, cxlpool_error* error) {
  return Run(error, [&] { return lib::BindToNode(address, bytes, node); });
}

int cxlpool_nodes_of_pages(const void* address, size_t bytes, int* nodes, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    return nodes == nullptr ? NotGiven("nodes") : lib::NodesOfPages(address, bytes, nodes);
  });
}

const char* cxlpool_version(void) { return CXLPOOL_VERSION; }
