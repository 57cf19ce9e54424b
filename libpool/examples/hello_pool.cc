// The shortest whole use of the pool: allocate, map, use, give back. docs/libpool.md quotes it.
#include <cstring>
#include <iostream>

#include "cxlpool/pool.h"

cxlpool::Result<void> Hello() {
  auto client = cxlpool::Pool::Connect();
  if (!client.ok()) return client.error();

  auto region = client->Allocate({.name = "hello", .size_bytes = 256ull << 20});
  if (!region.ok()) return region.error();
  {
    auto mapping = region->Map();
    if (!mapping.ok()) return mapping.error();
    std::memcpy(mapping->mutable_bytes().data(), "hello", 6);
    std::cout << region->size_bytes() << " bytes at " << mapping->bytes().data() << "\n";
  }  // Unmapped. The bytes stay in the Region.

  const std::string name = region->name();
  { auto closed = *std::move(region); }  // Used no more: it can go.
  return client->Release(name);
}

int main() {
  const cxlpool::Result<void> said = Hello();
  if (said.ok()) return 0;
  std::cerr << "hello-pool: " << said.error().text() << "\n";
  return 1;
}
