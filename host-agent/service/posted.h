// A completion that comes from any thread, as a call on the executor's, and only while its owner
// lives.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_POSTED_H_
#define CXLPOOL_HOST_AGENT_SERVICE_POSTED_H_

#include <memory>
#include <tuple>
#include <utility>

#include "proto/support/executor.h"

namespace cxlpool::agent {

// What has `function` called so, with the arguments that it is called with itself. Once, from any
// thread: `function` moves along. `alive` ends with the owner, on the executor's thread.
template <typename F>
auto Posted(Executor* executor, const std::shared_ptr<bool>& alive, F function) {
  return [executor, alive = std::weak_ptr<bool>(alive),
          function = std::move(function)](auto... args) mutable {
    executor->Post([alive, function = std::move(function),
                    packed = std::make_tuple(std::move(args)...)]() mutable {
      if (alive.expired()) return;
      std::apply([&](auto&... a) { function(std::move(a)...); }, packed);
    });
  };
}

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_POSTED_H_
