#include "fabric-manager/model/pool/tenant.h"

#include <algorithm>

#include "proto/support/check.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

uint64_t UnusedOf(const Tenant& tenant, const TenantUse& use) {
  return tenant.reserved_bytes - std::min(tenant.reserved_bytes, use.held_bytes);
}

}  // namespace

void TenantTable::Put(const Tenant& tenant) {
  const auto [it, fresh] = tenants_.try_emplace(tenant.id);
  if (!fresh) promised_bytes_ -= Unused(it->second);
  it->second = tenant;
  promised_bytes_ += Unused(tenant);
}

void TenantTable::Erase(absl::string_view id) {
  const auto it = tenants_.find(id);
  CXLPOOL_CHECK(it != tenants_.end(), "tenant \"", id, "\" has no record to erase");
  promised_bytes_ -= Unused(it->second);
  tenants_.erase(it);
}

// Bytes count until their Region is gone: also while they are scrubbed.
void TenantTable::Charge(const Region& region, int64_t sign) {
  if (CXLPOOL_MUTANT("quota-forgets-scrubbing") && region.state == RegionState::kScrubbing) return;
  const Tenant* known = tenants_.empty() ? nullptr : Find(region.tenant);
  TenantUse& use = use_[region.tenant];
  if (known != nullptr) promised_bytes_ -= UnusedOf(*known, use);
  use.held_bytes += static_cast<uint64_t>(sign * static_cast<int64_t>(region.held_bytes()));
  use.regions += static_cast<uint64_t>(sign);
  if (known != nullptr) promised_bytes_ += UnusedOf(*known, use);
}

const Tenant* TenantTable::Find(absl::string_view id) const {
  const auto it = tenants_.find(id);
  return it == tenants_.end() ? nullptr : &it->second;
}

TenantUse TenantTable::UseOf(Interned tenant) const {
  const auto it = use_.find(tenant);
  return it == use_.end() ? TenantUse{} : it->second;
}

uint64_t TenantTable::ReservedForOthers(Interned tenant) const {
  const Tenant* own = tenants_.empty() ? nullptr : Find(tenant);
  return promised_bytes_ - (own == nullptr ? 0 : Unused(*own));
}

uint64_t TenantTable::Unused(const Tenant& tenant) const {
  return UnusedOf(tenant, UseOf(Interned(tenant.id)));
}

absl::Status TenantTable::Compare(const TenantTable& other) const {
  if (promised_bytes_ != other.promised_bytes_) return Broken("the sum of reservations differs");
  for (const auto& [tenant, use] : use_) {
    if (other.UseOf(tenant) != use) return Broken("the use of tenant ", tenant.str(), " differs");
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
