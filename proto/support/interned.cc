#include "proto/support/interned.h"

#include <functional>
#include <memory>

#include "absl/container/node_hash_set.h"
#include "proto/support/mutex.h"

namespace cxlpool {
namespace {

struct Table {
  Mutex mutex;
  absl::node_hash_set<std::string> texts ABSL_GUARDED_BY(mutex);
};

const std::string* Find(absl::string_view text) {
  static Table& table = *new Table();
  MutexLock lock(table.mutex);
  return &*table.texts.lazy_emplace(text, [&](const auto& make) { make(std::string(text)); });
}

const std::string* Empty() {
  static const std::string* const kEmpty = Find("");
  return kEmpty;
}

}  // namespace

Interned::Interned() : text_(Empty()) {}
Interned::Interned(absl::string_view text) : text_(text.empty() ? Empty() : Find(text)) {}
Interned::Interned(const std::string& text) : Interned(absl::string_view(text)) {}
Interned::Interned(const char* text) : Interned(absl::string_view(text)) {}

}  // namespace cxlpool
