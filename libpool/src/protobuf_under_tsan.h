// Force-included by the tsan preset, before everything else, where protobuf is used.
//
// google/protobuf/map_field.h (3.21) gives messages with map fields another layout under
// ThreadSanitizer, which the packaged libprotobuf, built without, does not share. Read here without
// the sanitizer's macro, its include guard keeps the packaged layout for the rest of the file.
#ifndef CXLPOOL_LIBPOOL_SRC_PROTOBUF_UNDER_TSAN_H_
#define CXLPOOL_LIBPOOL_SRC_PROTOBUF_UNDER_TSAN_H_

// The standard library's own use of the macro stays: these come first.
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include <google/protobuf/map_field.h>
#pragma pop_macro("__SANITIZE_THREAD__")

#endif  // CXLPOOL_LIBPOOL_SRC_PROTOBUF_UNDER_TSAN_H_
