// Refuses an API with an RPC that has no rule, as part of every build, and prints who may call what
// as the table of docs/access.md.

#include <google/protobuf/descriptor.h>

#include <cstdio>
#include <string>

#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/host_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "cxlpool/v1/rule.pb.h"

// Exits 1 if any RPC has no rule, and names each of them. Viewer, operator and admin are in that
// order, so the least of them that a rule names says it for the others; the other roles stand
// beside it.
int main() {
  bool complete = true;
  std::puts(
      "| RPC | viewer | tenant, scheduler | operator | admin | host | metrics |\n"
      "|---|---|---|---|---|---|---|");
  for (const auto* file :
       {cxlpool::v1::GetRegionRequest::descriptor()->file(),
        cxlpool::v1::ListHostsRequest::descriptor()->file(),
        cxlpool::v1::RoleBinding::descriptor()->file(), cxlpool::v1::Hello::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        const auto* method = file->service(s)->method(m);
        const auto& rule = method->options().GetExtension(cxlpool::v1::rule);
        if (rule.roles().empty()) {
          std::fprintf(stderr, "%s has no rule: say `option (rule) = {roles: ...};` beside it\n",
                       method->full_name().c_str());
          complete = false;
        }
        int least = cxlpool::v1::ADMIN + 1;
        bool host = false;
        bool tenant = false;
        bool metrics = false;
        for (const int role : rule.roles()) {
          if (role == cxlpool::v1::HOST) {
            host = true;
          } else if (role == cxlpool::v1::TENANT) {
            tenant = true;
          } else if (role == cxlpool::v1::METRICS) {
            metrics = true;
          } else if (role < least) {
            least = role;
          }
        }
        const auto mark = [](bool may) { return may ? "yes" : ""; };
        std::printf("| %s | %s | %s | %s | %s | %s | %s |\n", method->name().c_str(),
                    mark(least <= cxlpool::v1::VIEWER), mark(tenant),
                    mark(least <= cxlpool::v1::OPERATOR), mark(least <= cxlpool::v1::ADMIN),
                    mark(host), mark(metrics));
      }
    }
  }
  return complete ? 0 : 1;
}
