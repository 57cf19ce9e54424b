// Memory of the rack's CXL pool, for programs in C++20. Header-only, on cxlpool.h: link libcxlpool.
//
//   using namespace cxlpool::literals;  // 100_GiB
//   auto tensor = cxlpool::Pool::Connect().value().Allocate(100_GiB).value().Map().value();
//   std::span<std::byte> memory = tensor.mutable_bytes();
//
// A Mapping keeps its Region in use and a Region outlives its Pool, so no more than the Mapping has
// to be kept. What calls do, which errors they give, and what threads and forked children may do
// stands in cxlpool.h.
//
// Calls that can fail return a Result: a value, or an Error. value() of an Error throws a Failure
// (without exceptions: says it on standard error and aborts); ok(), error(), * and -> are for
// programs that look first. Parts of a program that are compiled with exceptions and parts without
// go together, but hand each other no objects of these types.
//
// Objects are moved, not copied. const functions: any thread; move, assign and destroy with no one
// using it. A moved-from object may only be assigned to or destroyed.
#ifndef CXLPOOL_POOL_H_
#define CXLPOOL_POOL_H_

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "cxlpool/cxlpool.h"

// With and without exceptions all of this is different things of the same names, so that a program
// may have parts of both kinds: otherwise the linker would take one of two functions for both.
#if defined(__cpp_exceptions)
#define CXLPOOL_EXCEPTIONS with_exceptions
#else
#define CXLPOOL_EXCEPTIONS without_exceptions
#endif

namespace cxlpool {
inline namespace CXLPOOL_EXCEPTIONS {

// ---- What went wrong ---------------------------------------------------------------------------

// "NOT_FOUND".
inline std::string_view ToString(cxlpool_code code) {
  constexpr std::string_view kTexts[] = {"OK",
                                         "CANCELLED",
                                         "UNKNOWN",
                                         "INVALID_ARGUMENT",
                                         "DEADLINE_EXCEEDED",
                                         "NOT_FOUND",
                                         "ALREADY_EXISTS",
                                         "PERMISSION_DENIED",
                                         "RESOURCE_EXHAUSTED",
                                         "FAILED_PRECONDITION",
                                         "ABORTED",
                                         "OUT_OF_RANGE",
                                         "UNIMPLEMENTED",
                                         "INTERNAL",
                                         "UNAVAILABLE",
                                         "DATA_LOSS",
                                         "UNAUTHENTICATED"};
  return code >= 0 && code <= CXLPOOL_UNAUTHENTICATED ? kTexts[code] : kTexts[CXLPOOL_UNKNOWN];
}

// The error of a call that failed: code and reason for programs, message and remedy for people.
// Reasons stand at cxlpool_error, in cxlpool.h.
struct Error {
  cxlpool_code code = CXLPOOL_UNKNOWN;
  int sys_errno = 0;         // Of the system call that failed; 0: none did.
  std::string reason = {};   // UPPER_SNAKE, stable; "" if none was given.
  std::string message = {};  // What and why.
  std::string remedy = {};   // One imperative sentence, or "".

  // "CODE: message (remedy) [REASON]", as far as there are such.
  std::string text() const {
    std::string all = std::string(ToString(code)) + ": " + message;
    if (!remedy.empty()) all += " (" + remedy + ")";
    if (!reason.empty()) all += " [" + reason + "]";
    return all;
  }
};

// What value() of an Error throws.
class Failure : public std::runtime_error {
 public:
  explicit Failure(Error error) : std::runtime_error(error.text()), error_(std::move(error)) {}
  const Error& error() const { return error_; }

 private:
  Error error_;
};

namespace internal {

[[noreturn]] inline void Fail(const Error& error) {
#if defined(__cpp_exceptions)
  throw Failure(error);
#else
  std::fprintf(stderr, "cxlpool: %s\n", error.text().c_str());
  std::abort();
#endif
}

// Where a C call puts its error.
class ErrorOut {
 public:
  // The rest is filled by the call if it fails, and is not read otherwise.
  ErrorOut() { error_.size = sizeof error_; }
  explicit ErrorOut(const cxlpool_error& error) : error_(error) {}
  cxlpool_error* out() { return &error_; }
  Error Take() const {
    return {.code = static_cast<cxlpool_code>(error_.code),
            .sys_errno = error_.sys_errno,
            .reason = error_.reason,
            .message = error_.message,
            .remedy = error_.remedy};
  }

 private:
  cxlpool_error error_;
};

// Milliseconds as the C interface has them. What is out of its range it refuses by itself.
inline uint32_t Milliseconds(std::chrono::milliseconds time) {
  const auto count = time.count();
  return count >= 0 && count < UINT32_MAX ? static_cast<uint32_t>(count) : UINT32_MAX;
}

// The C interface would take a name's beginning for the name, and release another Region.
inline bool HasNul(const std::string& name) { return name.find('\0') != std::string::npos; }
inline Error RegionNameWithNul() {
  return {.code = CXLPOOL_INVALID_ARGUMENT,
          .reason = "BAD_NAME",
          .message = "a Region's name has a NUL in it",
          .remedy = "give one without"};
}

}  // namespace internal

// A value or an Error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : result_(std::move(value)) {}
  Result(Error error) : result_(std::move(error)) {}

  bool ok() const { return result_.index() == 0; }
  explicit operator bool() const { return ok(); }
  // Only where it is not ok().
  const Error& error() const { return std::get<Error>(result_); }

  T& value() & {
    Check();
    return std::get<T>(result_);
  }
  const T& value() const& {
    Check();
    return std::get<T>(result_);
  }
  T&& value() && {
    Check();
    return std::get<T>(std::move(result_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void Check() const {
    if (!ok()) internal::Fail(error());
  }
  std::variant<T, Error> result_;
};

// The result of a call that answers nothing.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }
  void value() const {
    if (!ok()) internal::Fail(error());
  }

 private:
  std::optional<Error> error_;
};

// ---- Words of a Region -------------------------------------------------------------------------

enum class Access { kReadWrite = CXLPOOL_READ_WRITE, kReadOnly = CXLPOOL_READ_ONLY };
enum class Mode { kDevdax = CXLPOOL_DEVDAX, kSystemRam = CXLPOOL_SYSTEM_RAM };
enum class Sharing {
  kExclusive = CXLPOOL_EXCLUSIVE,
  kSingleWriter = CXLPOOL_SINGLE_WRITER,
  kMultiWriter = CXLPOOL_MULTI_WRITER,
};
enum class Coherence {
  kUnknown = 0,  // In a listing.
  kSoftware = CXLPOOL_COHERENCE_SOFTWARE,
  kHardware = CXLPOOL_COHERENCE_HARDWARE,
};
enum class State {
  kUnknown = CXLPOOL_STATE_UNKNOWN,
  kWanted = CXLPOOL_WANTED,
  kBound = CXLPOOL_BOUND,
  kOnline = CXLPOOL_ONLINE,
  kOffline = CXLPOOL_OFFLINE,
  kEjecting = CXLPOOL_EJECTING,
  kUnbound = CXLPOOL_UNBOUND,
  kReleaseBlocked = CXLPOOL_RELEASE_BLOCKED,
};

// As the CLI writes them.
inline std::string_view ToString(Access access) {
  return access == Access::kReadOnly ? "READ_ONLY" : "READ_WRITE";
}
inline std::string_view ToString(Mode mode) {
  return mode == Mode::kSystemRam ? "system-ram" : "devdax";
}
inline std::string_view ToString(Coherence coherence) {
  return coherence == Coherence::kHardware ? "HARDWARE" : "SOFTWARE";
}
inline std::string_view ToString(State state) {
  constexpr std::string_view kTexts[] = {"UNKNOWN", "WANTED",   "BOUND",   "ONLINE",
                                         "OFFLINE", "EJECTING", "UNBOUND", "RELEASE_BLOCKED"};
  const auto index = static_cast<size_t>(state);
  return index < std::size(kTexts) ? kTexts[index] : kTexts[0];
}

// As cxlpool_region_info, which says what each is.
struct RegionInfo {
  std::string name = {};
  std::string tag = {};
  uint64_t generation = 0;
  uint64_t size_bytes = 0;
  Access access = Access::kReadWrite;
  Mode mode = Mode::kDevdax;
  Coherence coherence = Coherence::kUnknown;
  std::optional<int> numa_node = {};
  uint64_t alignment_bytes = 0;
  State state = State::kUnknown;
  bool detaching = false;
  uint32_t opens = 0;
  std::string state_reason = {};

  explicit RegionInfo(const cxlpool_region_info& from)
      : name(from.name),
        tag(from.tag),
        generation(from.generation),
        size_bytes(from.size_bytes),
        access(static_cast<Access>(from.access)),
        mode(static_cast<Mode>(from.mode)),
        coherence(static_cast<Coherence>(from.coherence)),
        alignment_bytes(from.alignment_bytes),
        state(static_cast<State>(from.state)),
        detaching(from.detaching != 0),
        opens(from.opens),
        state_reason(from.state_reason) {
    if (from.numa_node >= 0) numa_node = from.numa_node;
  }
};

// A part of a Region as a descriptor has it; as cxlpool_extent.
struct Extent {
  int fd = -1;
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;
  uint64_t region_offset_bytes = 0;
  uint64_t alignment_bytes = 0;
};

// ---- The bytes ---------------------------------------------------------------------------------

class Region;

// As cxlpool_pin_options, which says what each is.
struct PinOptions {
  cxlpool_register_fn register_fn = nullptr;
  cxlpool_unregister_fn unregister_fn = nullptr;
  void* context = nullptr;
  uint64_t chunk_bytes = uint64_t{256} << 30;
  bool read_only = false;
};

// A Mapping that an accelerator's runtime has registered. Unregistered when it goes; the bytes stay
// mapped till then, also where the Mapping goes first.
class Pin {
 public:
  // cxlpool_unpin. What fails can be tried again.
  Result<void> Unpin() {
    internal::ErrorOut error;
    if (cxlpool_unpin(pin_.get(), error.out()) != 0) return error.Take();
    (void)pin_.release();
    return {};
  }

 private:
  friend class Mapping;
  struct Free {
    // What the runtime does not give back stays registered, and mapped.
    void operator()(cxlpool_pin* pin) const { cxlpool_unpin(pin, nullptr); }
  };
  explicit Pin(cxlpool_pin* pin) : pin_(pin) {}

  std::unique_ptr<cxlpool_pin, Free> pin_;
};

// A Region, or a part of it, as one range of addresses. Loads and stores go straight to the memory.
// If it is taken away all the same (surprise removal, a forced release), they end in SIGBUS.
class Mapping {
 public:
  // Maps nothing: bytes() is empty.
  Mapping() = default;

  std::span<const std::byte> bytes() const { return {begin_, size()}; }
  // The same to write; empty unless writable().
  std::span<std::byte> mutable_bytes() const {
    return writable() ? std::span<std::byte>(begin_, size()) : std::span<std::byte>();
  }
  std::byte* data() const { return begin_; }
  size_t size() const { return cxlpool_map_size(map_.get()); }
  bool writable() const { return cxlpool_map_writable(map_.get()) != 0; }

  // cxlpool_publish and cxlpool_refresh, of a part of bytes().
  Result<void> Publish(std::span<const std::byte> part) const {
    internal::ErrorOut error;
    if (cxlpool_publish(map_.get(), part.data(), part.size(), error.out()) != 0) {
      return error.Take();
    }
    return {};
  }
  Result<void> Refresh(std::span<const std::byte> part) const {
    internal::ErrorOut error;
    if (cxlpool_refresh(map_.get(), part.data(), part.size(), error.out()) != 0) {
      return error.Take();
    }
    return {};
  }

  // cxlpool_put and cxlpool_get: copies to and from the bytes from `offset` of bytes() on. They
  // come back with DATA_LOST or REVOKED where bytes or memory are gone.
  Result<void> Put(uint64_t offset, std::span<const std::byte> from) const {
    internal::ErrorOut error;
    if (cxlpool_put(map_.get(), offset, from.data(), from.size(), nullptr, error.out()) != 0) {
      return error.Take();
    }
    return {};
  }
  Result<void> Get(uint64_t offset, std::span<std::byte> into) const {
    internal::ErrorOut error;
    if (cxlpool_get(map_.get(), offset, into.data(), into.size(), nullptr, error.out()) != 0) {
      return error.Take();
    }
    return {};
  }

  // cxlpool_guard: calls `work`, which is left at a fault as by longjmp, so that it makes no object
  // that has to be destroyed, and throws nothing.
  template <typename Work>
  Result<void> Guard(Work&& work) const {
    const auto call = [](void* context) {
      (*static_cast<std::remove_reference_t<Work>*>(context))();
    };
    internal::ErrorOut error;
    if (cxlpool_guard(map_.get(), call, const_cast<void*>(static_cast<const void*>(&work)), nullptr,
                      error.out()) != 0) {
      return error.Take();
    }
    return {};
  }

  // cxlpool_map_extend: maps all that `grown`, the same Region opened again, has more.
  Result<void> Extend(const Region& grown);

  // For the C interface. The Mapping's own.
  cxlpool_map* handle() const { return map_.get(); }

  // cxlpool_pin_map: registers the range with an accelerator's runtime.
  Result<cxlpool::Pin> Pin(const PinOptions& options) const {
    cxlpool_pin_options c = CXLPOOL_PIN_OPTIONS_INIT;
    c.register_fn = options.register_fn;
    c.unregister_fn = options.unregister_fn;
    c.context = options.context;
    c.chunk_bytes = options.chunk_bytes;
    c.read_only = options.read_only ? 1 : 0;
    internal::ErrorOut error;
    cxlpool_pin* pin = nullptr;
    if (cxlpool_pin_map(map_.get(), &c, &pin, error.out()) != 0) return error.Take();
    return cxlpool::Pin(pin);
  }

  // Unmaps now, unless a Pin keeps it. Pointers into the range are dead; bytes() is empty.
  void Unmap() {
    map_.reset();
    begin_ = nullptr;
  }

 private:
  friend class Region;
  struct Free {
    void operator()(cxlpool_map* map) const { cxlpool_unmap(map); }
  };
  explicit Mapping(cxlpool_map* map)
      : map_(map), begin_(static_cast<std::byte*>(cxlpool_map_address(map))) {}

  std::unique_ptr<cxlpool_map, Free> map_;
  std::byte* begin_ = nullptr;
};

// As cxlpool_map_options.
struct MapOptions {
  std::optional<bool> writable = {};  // Unset: as the Region's access allows.
  bool populate = false;
  void* address = nullptr;
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;
  uint64_t reserve_bytes = 0;
};

// A Region that this process has open. Closed when it and all its Mappings are gone.
class Region {
 public:
  const RegionInfo& info() const { return info_; }
  const std::string& name() const { return info_.name; }
  const std::string& tag() const { return info_.tag; }
  uint64_t generation() const { return info_.generation; }
  uint64_t size_bytes() const { return info_.size_bytes; }
  Access access() const { return info_.access; }
  Mode mode() const { return info_.mode; }
  Coherence coherence() const { return info_.coherence; }
  std::optional<int> numa_node() const { return info_.numa_node; }

  Result<Mapping> Map(const MapOptions& options = {}) const {
    cxlpool_map_options c = CXLPOOL_MAP_OPTIONS_INIT;
    if (options.writable.has_value()) {
      c.writable = *options.writable ? CXLPOOL_MAP_WRITABLE : CXLPOOL_MAP_READ_ONLY;
    }
    c.populate = options.populate ? 1 : 0;
    c.address = options.address;
    c.offset_bytes = options.offset_bytes;
    c.length_bytes = options.length_bytes;
    c.reserve_bytes = options.reserve_bytes;
    internal::ErrorOut error;
    cxlpool_map* map = nullptr;
    if (cxlpool_map_region(region_.get(), &c, &map, error.out()) != 0) return error.Take();
    return Mapping(map);
  }

  // cxlpool_region_nodes.
  std::vector<int> Nodes() const {
    std::vector<int> nodes(cxlpool_region_nodes(region_.get(), nullptr, 0));
    cxlpool_region_nodes(region_.get(), nodes.data(), nodes.size());
    return nodes;
  }

  std::vector<Extent> Extents() const {
    std::vector<Extent> extents(cxlpool_region_extent_count(region_.get()));
    for (size_t i = 0; i < extents.size(); ++i) {
      cxlpool_extent from = CXLPOOL_EXTENT_INIT;
      cxlpool_region_extent(region_.get(), i, &from, nullptr);
      extents[i] = {.fd = from.fd,
                    .offset_bytes = from.offset_bytes,
                    .length_bytes = from.length_bytes,
                    .region_offset_bytes = from.region_offset_bytes,
                    .alignment_bytes = from.alignment_bytes};
    }
    return extents;
  }

  // cxlpool_region_check.
  Result<void> Check() const {
    internal::ErrorOut error;
    if (cxlpool_region_check(region_.get(), error.out()) != 0) return error.Take();
    return {};
  }

  // cxlpool_region_path, of the first extent. "": it is not open as_file.
  std::string path() const {
    const char* const path = cxlpool_region_path(region_.get(), 0);
    return path == nullptr ? "" : path;
  }

  // cxlpool_region_tell.
  void Tell(uint64_t live_bytes, uint64_t slack_bytes) const {
    cxlpool_region_tell(region_.get(), live_bytes, slack_bytes, nullptr);
  }

  // cxlpool_keep_through_exec.
  Result<void> KeepThroughExec() const {
    internal::ErrorOut error;
    if (cxlpool_keep_through_exec(region_.get(), error.out()) != 0) return error.Take();
    return {};
  }

  // For the C interface. The Region's own.
  cxlpool_region* handle() const { return region_.get(); }

 private:
  friend class Pool;
  struct Free {
    void operator()(cxlpool_region* region) const { cxlpool_close(region); }
  };
  static RegionInfo Describe(const cxlpool_region* region) {
    cxlpool_region_info info = CXLPOOL_REGION_INFO_INIT;
    cxlpool_region_describe(region, &info, nullptr);
    return RegionInfo(info);
  }
  explicit Region(cxlpool_region* region) : region_(region), info_(Describe(region)) {}

  std::unique_ptr<cxlpool_region, Free> region_;
  RegionInfo info_;
};

inline Result<void> Mapping::Extend(const Region& grown) {
  internal::ErrorOut error;
  if (cxlpool_map_extend(map_.get(), grown.handle(), error.out()) != 0) return error.Take();
  return {};
}

// ---- The way to the pool -----------------------------------------------------------------------

// As cxlpool_connect_options.
struct ConnectOptions {
  std::string socket_path = {};
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
};

// Which users of this host may open a Region besides the one who makes it and root.
struct OpenTo {
  std::vector<uint32_t> uids = {};
  std::vector<uint32_t> gids = {};
  bool everybody = false;
};

// As cxlpool_allocate_options.
struct AllocateOptions {
  std::string name = {};
  uint64_t size_bytes = 0;
  Sharing sharing = Sharing::kExclusive;
  Mode mode = Mode::kDevdax;
  uint32_t max_extents = 0;
  bool persistent = false;
  OpenTo open_to = {};
  std::string request_id = {};
  std::chrono::milliseconds wait = std::chrono::minutes(2);
  bool as_file = false;
};

// As cxlpool_open_options.
struct OpenOptions {
  Access access = Access::kReadWrite;
  std::chrono::milliseconds wait = {};
  bool as_file = false;
};

// A process's connection to the host agent.
class Pool {
 public:
  static Result<Pool> Connect(const ConnectOptions& options = {}) {
    const cxlpool_connect_options c = {sizeof c, options.socket_path.c_str(),
                                       internal::Milliseconds(options.timeout)};
    internal::ErrorOut error;
    cxlpool_client* client = nullptr;
    if (cxlpool_connect(&c, &client, error.out()) != 0) return error.Take();
    return Pool(client);
  }

  Result<Region> Allocate(const AllocateOptions& options) {
    if (internal::HasNul(options.name)) return internal::RegionNameWithNul();
    cxlpool_allocate_options c = CXLPOOL_ALLOCATE_OPTIONS_INIT;
    c.name = options.name.c_str();
    c.size_bytes = options.size_bytes;
    c.sharing = static_cast<int32_t>(options.sharing);
    c.mode = static_cast<int32_t>(options.mode);
    c.max_extents = options.max_extents;
    c.persistent = options.persistent ? 1 : 0;
    c.open_to_uids = options.open_to.uids.data();
    c.open_to_uid_count = options.open_to.uids.size();
    c.open_to_gids = options.open_to.gids.data();
    c.open_to_gid_count = options.open_to.gids.size();
    c.open_to_everybody = options.open_to.everybody ? 1 : 0;
    c.wait_ms = internal::Milliseconds(options.wait);
    c.request_id = options.request_id.c_str();
    c.as_file = options.as_file ? 1 : 0;
    internal::ErrorOut error;
    cxlpool_region* region = nullptr;
    if (cxlpool_allocate(client_.get(), &c, &region, error.out()) != 0) return error.Take();
    return Region(region);
  }

  // A Region for this process only.
  Result<Region> Allocate(uint64_t size_bytes) { return Allocate({.size_bytes = size_bytes}); }

  Result<Region> Open(const std::string& name, const OpenOptions& options = {}) {
    if (internal::HasNul(name)) return internal::RegionNameWithNul();
    const cxlpool_open_options c = {sizeof c, static_cast<int32_t>(options.access),
                                    internal::Milliseconds(options.wait), options.as_file ? 1 : 0,
                                    0};
    internal::ErrorOut error;
    cxlpool_region* region = nullptr;
    if (cxlpool_open(client_.get(), name.c_str(), &c, &region, error.out()) != 0) {
      return error.Take();
    }
    return Region(region);
  }

  Result<void> Release(const std::string& name) {
    if (internal::HasNul(name)) return internal::RegionNameWithNul();
    internal::ErrorOut error;
    if (cxlpool_release(client_.get(), name.c_str(), error.out()) != 0) return error.Take();
    return {};
  }

  Result<std::vector<RegionInfo>> List() {
    internal::ErrorOut error;
    cxlpool_list* list = nullptr;
    if (cxlpool_list_regions(client_.get(), &list, error.out()) != 0) return error.Take();
    const std::unique_ptr<cxlpool_list, decltype(&cxlpool_list_free)> freed(list,
                                                                            &cxlpool_list_free);
    std::vector<RegionInfo> regions;
    for (size_t i = 0; i < cxlpool_list_count(list); ++i) {
      cxlpool_region_info info = CXLPOOL_REGION_INFO_INIT;
      cxlpool_list_describe(list, i, &info, nullptr);
      regions.emplace_back(info);
    }
    return regions;
  }

  // For the C interface. The Pool's own.
  cxlpool_client* handle() const { return client_.get(); }

 private:
  struct Free {
    void operator()(cxlpool_client* client) const { cxlpool_disconnect(client); }
  };
  explicit Pool(cxlpool_client* client) : client_(client) {}

  std::unique_ptr<cxlpool_client, Free> client_;
};

// ---- Memory of a system-ram Region -------------------------------------------------------------

// cxlpool_bind_to_node.
inline Result<void> BindToNode(void* address, size_t bytes, int node) {
  internal::ErrorOut error;
  if (cxlpool_bind_to_node(address, bytes, node, error.out()) != 0) return error.Take();
  return {};
}

// cxlpool_nodes_of_pages: of each page of the system's that the range has a part of.
inline Result<std::vector<int>> NodesOfPages(const void* address, size_t bytes) {
  const auto page_bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<int> nodes(bytes / page_bytes + (bytes % page_bytes != 0 ? 1 : 0), -1);
  internal::ErrorOut error;
  if (cxlpool_nodes_of_pages(address, bytes, nodes.data(), error.out()) != 0) return error.Take();
  return nodes;
}

// ---- Sizes -------------------------------------------------------------------------------------

inline namespace literals {

constexpr uint64_t operator""_MiB(unsigned long long count) { return count << 20; }
constexpr uint64_t operator""_GiB(unsigned long long count) { return count << 30; }
constexpr uint64_t operator""_TiB(unsigned long long count) { return count << 40; }

}  // namespace literals
}  // namespace CXLPOOL_EXCEPTIONS
}  // namespace cxlpool

#include "cxlpool/pool_directory.h"
#include "cxlpool/pool_faults.h"

#endif  // CXLPOOL_POOL_H_
