// Named, sealed objects in a Region: cxlpool/directory.h, in C++20. What it says of owners, hosts,
// errors and threads holds here.
//
//   auto directory = cxlpool::Directory::Open(mapping, {.partition = 0}).value();
//   directory.Put("layer-0", bytes).value();
//   auto layer = directory.Borrow("layer-0").value();   // A std::span, until `layer` goes.
#ifndef CXLPOOL_POOL_DIRECTORY_H_
#define CXLPOOL_POOL_DIRECTORY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cxlpool/directory.h"
#include "cxlpool/pool.h"

namespace cxlpool {
inline namespace CXLPOOL_EXCEPTIONS {

// As cxlpool_directory_create_options.
struct DirectoryCreateOptions {
  uint32_t partitions = 1;
  uint32_t entries = 65536;
  uint32_t pins = 64;
  bool keeps_objects = false;
  bool replace = false;
};

// As cxlpool_directory_options.
struct DirectoryOptions {
  std::optional<uint32_t> partition = {};
  bool take_over = false;
};

// As cxlpool_object_info.
struct ObjectInfo {
  uint64_t size_bytes = 0;
  uint64_t generation = 0;
  uint32_t partition = 0;
};

// An object in place: borrowed, or with room that is filled and then sealed. Given back by the
// destructor.
class Object {
 public:
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(cxlpool_object_bytes(object_.get())),
            cxlpool_object_size(object_.get())};
  }
  // Only of an object that is not sealed yet.
  std::span<std::byte> mutable_bytes() {
    return {static_cast<std::byte*>(cxlpool_object_bytes(object_.get())),
            cxlpool_object_size(object_.get())};
  }
  // cxlpool_object_seal.
  Result<void> Seal() {
    internal::ErrorOut error;
    if (cxlpool_object_seal(object_.get(), error.out()) != 0) return error.Take();
    return {};
  }

 private:
  friend class Directory;
  struct Free {
    void operator()(cxlpool_object* object) const { cxlpool_object_free(object); }
  };
  explicit Object(cxlpool_object* object) : object_(object) {}

  std::unique_ptr<cxlpool_object, Free> object_;
};

namespace internal {

inline Error NameWithNul() {
  return {.code = CXLPOOL_INVALID_ARGUMENT,
          .reason = "BAD_ARGUMENT",
          .message = "an object's name has a NUL in it",
          .remedy = "give one without"};
}

}  // namespace internal

// Names are as directory.h says; one with a NUL in it is INVALID_ARGUMENT/BAD_ARGUMENT.
class Directory {
 public:
  static Result<void> Create(const Mapping& mapping, const DirectoryCreateOptions& options = {}) {
    cxlpool_directory_create_options c = CXLPOOL_DIRECTORY_CREATE_OPTIONS_INIT;
    c.partitions = options.partitions;
    c.entries = options.entries;
    c.pins = options.pins;
    c.keeps_objects = options.keeps_objects ? 1 : 0;
    c.replace = options.replace ? 1 : 0;
    internal::ErrorOut error;
    if (cxlpool_directory_create(mapping.handle(), &c, error.out()) != 0) return error.Take();
    return {};
  }

  static Result<Directory> Open(const Mapping& mapping, const DirectoryOptions& options = {}) {
    cxlpool_directory_options c = CXLPOOL_DIRECTORY_OPTIONS_INIT;
    if (options.partition.has_value()) {
      // What no Directory has is refused, and not taken for "none".
      c.partition = static_cast<int32_t>(std::min<uint32_t>(*options.partition, INT32_MAX));
    }
    c.take_over = options.take_over ? 1 : 0;
    internal::ErrorOut error;
    cxlpool_directory* directory = nullptr;
    if (cxlpool_directory_open(mapping.handle(), &c, &directory, error.out()) != 0) {
      return error.Take();
    }
    return Directory(directory);
  }

  Result<void> Put(const std::string& name, std::span<const std::byte> bytes) {
    if (internal::HasNul(name)) return internal::NameWithNul();
    internal::ErrorOut error;
    if (cxlpool_directory_put(directory_.get(), name.c_str(), bytes.data(), bytes.size(),
                              error.out()) != 0) {
      return error.Take();
    }
    return {};
  }

  // cxlpool_directory_create_object: room to fill, then Object::Seal.
  Result<Object> CreateObject(const std::string& name, size_t size) {
    if (internal::HasNul(name)) return internal::NameWithNul();
    internal::ErrorOut error;
    cxlpool_object* object = nullptr;
    if (cxlpool_directory_create_object(directory_.get(), name.c_str(), size, &object,
                                        error.out()) != 0) {
      return error.Take();
    }
    return Object(object);
  }

  // The object's size.
  Result<size_t> Get(const std::string& name, std::span<std::byte> into) const {
    if (internal::HasNul(name)) return internal::NameWithNul();
    internal::ErrorOut error;
    size_t size = 0;
    if (cxlpool_directory_get(directory_.get(), name.c_str(), into.data(), into.size(), &size,
                              error.out()) != 0) {
      return error.Take();
    }
    return size;
  }

  Result<Object> Borrow(const std::string& name) {
    if (internal::HasNul(name)) return internal::NameWithNul();
    internal::ErrorOut error;
    cxlpool_object* object = nullptr;
    if (cxlpool_directory_borrow(directory_.get(), name.c_str(), &object, error.out()) != 0) {
      return error.Take();
    }
    return Object(object);
  }

  Result<void> Remove(const std::string& name) {
    if (internal::HasNul(name)) return internal::NameWithNul();
    internal::ErrorOut error;
    if (cxlpool_directory_remove(directory_.get(), name.c_str(), error.out()) != 0) {
      return error.Take();
    }
    return {};
  }

  Result<ObjectInfo> Find(const std::string& name) const {
    if (internal::HasNul(name)) return internal::NameWithNul();
    internal::ErrorOut error;
    cxlpool_object_info info = CXLPOOL_OBJECT_INFO_INIT;
    if (cxlpool_directory_find(directory_.get(), name.c_str(), &info, error.out()) != 0) {
      return error.Take();
    }
    return ObjectInfo{info.size_bytes, info.generation, info.partition};
  }

  // cxlpool_directory_describe, as C says it.
  cxlpool_directory_info Describe() const {
    cxlpool_directory_info info = CXLPOOL_DIRECTORY_INFO_INIT;
    cxlpool_directory_describe(directory_.get(), &info, nullptr);
    return info;
  }

  // cxlpool_directory_check.
  Result<void> Check() const {
    internal::ErrorOut error;
    if (cxlpool_directory_check(directory_.get(), error.out()) != 0) return error.Take();
    return {};
  }

 private:
  struct Free {
    void operator()(cxlpool_directory* directory) const { cxlpool_directory_close(directory); }
  };
  explicit Directory(cxlpool_directory* directory) : directory_(directory) {}

  std::unique_ptr<cxlpool_directory, Free> directory_;
};

}  // namespace CXLPOOL_EXCEPTIONS
}  // namespace cxlpool

#endif  // CXLPOOL_POOL_DIRECTORY_H_
