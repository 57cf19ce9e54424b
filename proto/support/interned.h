// A short text that very many values share: the id of a device, a tenant, a caller's identity. One
// copy is kept for the life of the process; the value is a pointer to it, and equality compares
// pointers.
//
// Only for texts of a bounded vocabulary: what is interned is never given back. Any thread.
#ifndef CXLPOOL_PROTO_SUPPORT_INTERNED_H_
#define CXLPOOL_PROTO_SUPPORT_INTERNED_H_

#include <ostream>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace cxlpool {

class Interned {
 public:
  Interned();                         // The empty text.
  Interned(absl::string_view text);   // NOLINT(google-explicit-constructor): it is that text.
  Interned(const std::string& text);  // NOLINT(google-explicit-constructor)
  Interned(const char* text);         // NOLINT(google-explicit-constructor)

  const std::string& str() const { return *text_; }
  operator const std::string&() const { return *text_; }  // NOLINT(google-explicit-constructor)
  operator absl::string_view() const { return *text_; }   // NOLINT(google-explicit-constructor)
  bool empty() const { return text_->empty(); }
  size_t size() const { return text_->size(); }

  friend bool operator==(Interned a, Interned b) { return a.text_ == b.text_; }
  friend bool operator<(Interned a, Interned b) { return *a.text_ < *b.text_; }
  template <typename H>
  friend H AbslHashValue(H h, Interned name) {
    return H::combine(std::move(h), name.text_);
  }
  friend std::ostream& operator<<(std::ostream& out, Interned name) { return out << *name.text_; }

 private:
  const std::string* text_;
};

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_INTERNED_H_
