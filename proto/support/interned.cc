#include "proto/support/interned.h"

#include <array>
#include <cstdint>
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

const std::string* FindInTable(absl::string_view text) {
  static Table& table = *new Table();
  MutexLock lock(table.mutex);
  return &*table.texts.lazy_emplace(text, [&](const auto& make) { make(std::string(text)); });
}

// A thread mostly asks for the few texts that it asked for last. It keeps them, so that it need not
// wait for other threads at the table's mutex.
const std::string* Find(absl::string_view text) {
  constexpr size_t kRecent = 64;
  thread_local std::array<const std::string*, kRecent> recent = {};
  const size_t at =
      text.empty() ? 0 : (text.size() * 7 + static_cast<uint8_t>(text.back())) % kRecent;
  if (recent[at] == nullptr || *recent[at] != text) recent[at] = FindInTable(text);
  return recent[at];
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
