// The shortest whole use of the pool: allocate, map, use, give back. docs/libpool.md quotes it.
#include <cstring>
#include <iostream>

#include "cxlpool/client.h"

absl::Status Hello() {
  auto client = cxlpool::Client::Connect();
  if (!client.ok()) return client.status();

  auto region = client->Allocate({.name = "hello", .size_bytes = 256ull << 20});
  if (!region.ok()) return region.status();
  {
    auto mapping = region->Map();
    if (!mapping.ok()) return mapping.status();
    std::memcpy(mapping->mutable_bytes().data(), "hello", 6);
    std::cout << region->size_bytes() << " bytes at " << mapping->bytes().data() << "\n";
  }  // Unmapped. The bytes stay in the Region.

  const std::string name = region->name();
  { auto closed = *std::move(region); }  // Used no more: it can go.
  return client->Release(name);
}

int main() {
  const absl::Status status = Hello();
  if (status.ok()) return 0;
  std::cerr << "hello-pool: " << status.message() << "\n";
  return 1;
}
