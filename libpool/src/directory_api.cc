// cxlpool/directory.h, on directory.h.
#include <memory>
#include <optional>
#include <utility>

#include "cxlpool/directory.h"
#include "libpool/src/c_api.h"
#include "libpool/src/directory.h"

namespace lib = cxlpool::libpool;
using lib::CopyOut;
using lib::NotGiven;
using lib::Read;
using lib::Run;
using lib::Status;
using lib::StatusOr;
using lib::TextOf;

struct cxlpool_directory {
  std::shared_ptr<lib::Directory> directory;
};
struct cxlpool_object {
  std::unique_ptr<lib::DirectoryObject> object;
};

// Each call here checks its pointers, reads the options by their size, and hands over to
// lib::Directory; Run turns the Status, and an exception, into a code.
int cxlpool_directory_create(const cxlpool_map* map,
                             const cxlpool_directory_create_options* options,
                             cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (map == nullptr) return NotGiven("map");
    const StatusOr<cxlpool_directory_create_options> read =
        Read(options, CXLPOOL_DIRECTORY_CREATE_OPTIONS_INIT);
    if (!read.ok()) return read.status();
    return lib::Directory::Create(*map->map, {.partitions = read->partitions,
                                              .entries = read->entries,
                                              .pins = read->pins,
                                              .keeps_objects = read->keeps_objects != 0,
                                              .replace = read->replace != 0});
  });
}

// -1 is no partition; other numbers below 0 are refused, and not taken for it. Here and below a
// handle or a struct of the caller's is written only on success.
int cxlpool_directory_open(const cxlpool_map* map, const cxlpool_directory_options* options,
                           cxlpool_directory** directory, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (map == nullptr || directory == nullptr) return NotGiven("map or directory");
    const StatusOr<cxlpool_directory_options> read = Read(options, CXLPOOL_DIRECTORY_OPTIONS_INIT);
    if (!read.ok()) return read.status();
    if (read->partition < -1) {
      return lib::BadArgument(lib::Concat("partition is ", read->partition),
                              "give -1, or the number of one");
    }
    const auto partition =
        read->partition < 0 ? std::nullopt : std::optional(static_cast<uint32_t>(read->partition));
    auto opened = lib::Directory::Open(map->map, partition, read->take_over != 0);
    if (!opened.ok()) return opened.status();
    *directory = new cxlpool_directory{*std::move(opened)};
    return Status();
  });
}

void cxlpool_directory_close(cxlpool_directory* directory) { delete directory; }

int cxlpool_directory_put(cxlpool_directory* directory, const char* name, const void* bytes,
                          size_t size, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (directory == nullptr) return NotGiven("directory");
    if (bytes == nullptr && size > 0) return NotGiven("bytes");
    return directory->directory->Put(TextOf(name), bytes, size);
  });
}

int cxlpool_directory_create_object(cxlpool_directory* directory, const char* name, size_t size,
                                    cxlpool_object** object, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (directory == nullptr || object == nullptr) return NotGiven("directory or object");
    auto made = directory->directory->CreateObject(TextOf(name), size);
    if (!made.ok()) return made.status();
    *object = new cxlpool_object{*std::move(made)};
    return Status();
  });
}

int cxlpool_object_seal(cxlpool_object* object, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    return object == nullptr ? NotGiven("object") : object->object->Seal();
  });
}

// The size is filled also where the buffer is too small, so that the caller can make a larger one.
int cxlpool_directory_get(const cxlpool_directory* directory, const char* name, void* into,
                          size_t room, size_t* size, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (directory == nullptr) return NotGiven("directory");
    if (into == nullptr && room > 0) return NotGiven("into");
    uint64_t found = 0;
    Status status = directory->directory->Get(TextOf(name), into, room, found);
    if (size != nullptr && (status.ok() || status.code() == lib::Code::kOutOfRange)) *size = found;
    return status;
  });
}

int cxlpool_directory_borrow(cxlpool_directory* directory, const char* name,
                             cxlpool_object** object, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (directory == nullptr || object == nullptr) return NotGiven("directory or object");
    auto borrowed = directory->directory->Borrow(TextOf(name));
    if (!borrowed.ok()) return borrowed.status();
    *object = new cxlpool_object{*std::move(borrowed)};
    return Status();
  });
}

void* cxlpool_object_bytes(const cxlpool_object* object) {
  return object == nullptr ? nullptr : object->object->bytes();
}

size_t cxlpool_object_size(const cxlpool_object* object) {
  return cxlpool_object_bytes(object) == nullptr ? 0 : object->object->size();
}

void cxlpool_object_free(cxlpool_object* object) { delete object; }

int cxlpool_directory_remove(cxlpool_directory* directory, const char* name, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    return directory == nullptr ? NotGiven("directory")
                                : directory->directory->Remove(TextOf(name));
  });
}

int cxlpool_directory_find(const cxlpool_directory* directory, const char* name,
                           cxlpool_object_info* info, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (directory == nullptr || info == nullptr) return NotGiven("directory or info");
    cxlpool_object_info filled = CXLPOOL_OBJECT_INFO_INIT;
    Status status = directory->directory->Find(TextOf(name), filled);
    if (status.ok()) CopyOut(filled, info);
    return status;
  });
}

int cxlpool_directory_describe(const cxlpool_directory* directory, cxlpool_directory_info* info,
                               cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (directory == nullptr || info == nullptr) return NotGiven("directory or info");
    cxlpool_directory_info filled = CXLPOOL_DIRECTORY_INFO_INIT;
    Status status = directory->directory->Describe(filled);
    if (status.ok()) CopyOut(filled, info);
    return status;
  });
}

int cxlpool_directory_check(const cxlpool_directory* directory, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    return directory == nullptr ? NotGiven("directory") : directory->directory->Check();
  });
}
