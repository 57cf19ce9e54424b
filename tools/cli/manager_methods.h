// The manager's unary calls, one line each: X(service, method, request, response). What has one
// member a call is made of this list: the stub, its gRPC side and the tests' manager.
#ifndef CXLPOOL_TOOLS_CLI_MANAGER_METHODS_H_
#define CXLPOOL_TOOLS_CLI_MANAGER_METHODS_H_

#define CXLPOOL_MANAGER_METHODS(X)                                                         \
  X(Pool, AllocateRegion, AllocateRegionRequest, AllocateRegionResponse)                   \
  X(Pool, BatchAllocateRegions, BatchAllocateRegionsRequest, BatchAllocateRegionsResponse) \
  X(Pool, GetRegion, GetRegionRequest, Region)                                             \
  X(Pool, ListRegions, ListRegionsRequest, ListRegionsResponse)                            \
  X(Pool, ListRegionHolders, ListRegionHoldersRequest, ListRegionHoldersResponse)          \
  X(Pool, AttachRegion, AttachRegionRequest, AttachRegionResponse)                         \
  X(Pool, DetachRegion, DetachRegionRequest, DetachRegionResponse)                         \
  X(Pool, ReleaseRegion, ReleaseRegionRequest, ReleaseRegionResponse)                      \
  X(Pool, BatchReleaseRegions, BatchReleaseRegionsRequest, BatchReleaseRegionsResponse)    \
  X(Pool, ResizeRegion, ResizeRegionRequest, ResizeRegionResponse)                         \
  X(Pool, RenameRegion, RenameRegionRequest, RenameRegionResponse)                         \
  X(Pool, RenewRegion, RenewRegionRequest, RenewRegionResponse)                            \
  X(Pool, GetCapacity, GetCapacityRequest, Capacity)                                       \
  X(Inventory, ListDevices, ListDevicesRequest, ListDevicesResponse)                       \
  X(Inventory, DiscoverDevices, DiscoverDevicesRequest, DiscoverDevicesResponse)           \
  X(Inventory, AddDevice, AddDeviceRequest, Device)                                        \
  X(Inventory, DrainDevice, DrainDeviceRequest, DrainDeviceResponse)                       \
  X(Inventory, RemoveDevice, RemoveDeviceRequest, Device)                                  \
  X(Inventory, FailDevice, FailDeviceRequest, Device)                                      \
  X(Inventory, ListHosts, ListHostsRequest, ListHostsResponse)                             \
  X(Inventory, AddHost, AddHostRequest, Host)                                              \
  X(Inventory, EnrolHost, EnrolHostRequest, Host)                                          \
  X(Inventory, RetireHost, RetireHostRequest, Host)                                        \
  X(Inventory, RemoveHost, RemoveHostRequest, RemoveHostResponse)                          \
  X(Inventory, FenceHost, FenceHostRequest, Host)                                          \
  X(Inventory, SetTenant, SetTenantRequest, Tenant)                                        \
  X(Inventory, GetTenant, GetTenantRequest, Tenant)                                        \
  X(Inventory, ListTenants, ListTenantsRequest, ListTenantsResponse)                       \
  X(Inventory, RemoveTenant, RemoveTenantRequest, RemoveTenantResponse)                    \
  X(Inventory, RevokeCertificate, RevokeCertificateRequest, Revocation)                    \
  X(Inventory, RestoreCertificate, RestoreCertificateRequest, RestoreCertificateResponse)  \
  X(Inventory, ListRevocations, ListRevocationsRequest, ListRevocationsResponse)           \
  X(Inventory, GetTopology, GetTopologyRequest, Topology)                                  \
  X(Inventory, ApplyTopology, ApplyTopologyRequest, ApplyTopologyResponse)                 \
  X(Inventory, Explain, ExplainRequest, ExplainResponse)                                   \
  X(Access, ListRoleBindings, ListRoleBindingsRequest, ListRoleBindingsResponse)           \
  X(Access, SetRoleBinding, SetRoleBindingRequest, RoleBinding)                            \
  X(Access, RemoveRoleBinding, RemoveRoleBindingRequest, RemoveRoleBindingResponse)        \
  X(Access, ListEvents, ListEventsRequest, ListEventsResponse)                             \
  X(Access, VerifyAudit, VerifyAuditRequest, VerifyAuditResponse)                          \
  X(Access, GetSelf, GetSelfRequest, Self)

#endif  // CXLPOOL_TOOLS_CLI_MANAGER_METHODS_H_
