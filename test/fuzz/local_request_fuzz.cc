// What a local user may send to a host's agent, and libpool's reading of what the agent answers.

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "host-agent/service/local_service.h"
#include "libpool/src/local_codec.h"
#include "proto/support/log.h"
#include "test/fuzz/fuzz_target.h"
#include "test/rigs/core_rig.h"

namespace cxlpool::fuzz {
namespace {

// Both sides' codecs are of one protocol: what protobuf writes libpool reads.
void RequireUnderstood(const v1::LocalResponse& answer) {
  const std::optional<libpool::LocalResponse> read =
      libpool::DecodeResponse(answer.SerializeAsString());
  Require(read.has_value() && read->code == answer.code() && read->message == answer.message());
  Require(read->open.has_value() == answer.has_open());
  Require(!answer.has_list() ||
          read->list->regions.size() == static_cast<size_t>(answer.list().regions_size()));
}

// One request to an agent that has a Region online, from the user whose Region it is. What the
// agent asks the manager stays without an answer until the connection is over.
CXLPOOL_FUZZ(local_request) {
  v1::LocalRequest request;
  if (!request.ParseFromString(bytes)) return;
  SetLogLevel(LogLevel::kError);
  agent::CoreRig rig;
  agent::LocalPolicy policy;
  policy.agent_uid = 990;
  agent::LocalService service(policy, rig.core.get(), &rig.executor, &rig.executor, &rig.memory,
                              &rig.link);
  service.Start();
  rig.memory.plugged = {{1, 0x51}, {2, 0x52}, {3, 0x53}};
  rig.Start();
  rig.Connect({agent::MakeOffer(1, agent::kOnline, {{1, 0x51}, {3, 0x53}})});

  const agent::LocalPeer peer = {.connection = 10, .uid = 1000, .pid = 4711, .start_ticks = 99};
  int answers = 0;
  const auto done = [&answers](agent::LocalReply reply) {
    RequireUnderstood(reply.response);
    ++answers;
  };
  service.Handle(peer, std::move(request), done);
  rig.executor.RunReady();
  rig.executor.Advance(agent::kMaxLocalWait + absl::Seconds(1));
  Require(answers <= 1);
  service.ConnectionEnded(peer.connection);
  rig.executor.RunReady();
}

}  // namespace
}  // namespace cxlpool::fuzz
