#include "fabric-manager/ports/record_crc.h"

#ifdef CXLPOOL_ISAL
#include <isa-l/crc.h>
#else
#include <zlib.h>
#endif

namespace cxlpool::fm {

uint32_t Crc32(uint32_t crc, absl::string_view bytes) {
  if (bytes.empty()) return crc;  // zlib takes a null pointer as "start anew".
#ifdef CXLPOOL_ISAL
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
#else
  return static_cast<uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
#endif
}

uint32_t RecordCrc(uint64_t key, absl::string_view value) {
  char word[8];
  for (int i = 0; i < 8; ++i) word[i] = static_cast<char>(key >> (8 * i));
  return Crc32(Crc32(0, {word, sizeof(word)}), value);
}

}  // namespace cxlpool::fm
