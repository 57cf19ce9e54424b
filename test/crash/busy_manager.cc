#include "test/crash/busy_manager.h"

#include "proto/support/names.h"
#include "test/crash/pool.h"

namespace cxlpool::crash {
namespace {

constexpr int kWatchers = 3;
constexpr int kDeaf = 3;
constexpr int kBatchers = 2;
constexpr int kBatch = 40;

}  // namespace

BusyManager::BusyManager(const std::string& socket) {
  const auto client = [&]() -> Client& {
    clients_.push_back(std::make_unique<Client>(socket));
    return *clients_.back();
  };
  const auto context = [&]() -> grpc::ClientContext& {
    contexts_.push_back(std::make_unique<grpc::ClientContext>());
    return *contexts_.back();
  };
  for (int i = 0; i < kDeaf; ++i) {
    grpc::ClientContext& call = context();
    deaf_.push_back(client().pool().WatchRegions(&call, v1::WatchRegionsRequest()));
  }
  grpc::ClientContext& call = context();
  backup_ = client().inventory().Backup(&call, v1::BackupRequest());
  for (int i = 0; i < kWatchers; ++i) {
    threads_.emplace_back([this, &to = client(), &in = context()] { Watch(to, in); });
  }
  for (int i = 0; i < kBatchers; ++i) {
    threads_.emplace_back([this, &to = client()] { Batches(to); });
  }
}

BusyManager::~BusyManager() {
  stop_ = true;
  for (const auto& context : contexts_) context->TryCancel();
  for (const auto& reader : deaf_) reader->Finish();
  backup_->Finish();
  for (std::thread& thread : threads_) thread.join();
}

void BusyManager::Watch(Client& client, grpc::ClientContext& context) {
  const auto reader = client.pool().WatchRegions(&context, v1::WatchRegionsRequest());
  v1::WatchRegionsResponse event;
  while (reader->Read(&event)) ++events_;
  reader->Finish();
}

void BusyManager::Batches(Client& client) {
  while (!stop_) {
    v1::BatchAllocateRegionsRequest make;
    for (int i = 0; i < kBatch; ++i) {
      v1::AllocateRegionRequest& request = *make.add_requests();
      request.set_request_id(FormatUuid(RandomUuid()));
      request.set_size_bytes(kGranule);
    }
    const auto made = client.Call(&PoolStub::BatchAllocateRegions, make);
    if (!made.ok()) return;
    v1::BatchReleaseRegionsRequest release;
    for (const v1::BatchResult& result : made->results()) {
      if (result.code() != 0) continue;
      v1::ReleaseRegionRequest& request = *release.add_requests();
      request.set_request_id(FormatUuid(RandomUuid()));
      request.set_name(result.region().name());
    }
    if (release.requests().empty()) continue;
    const auto released = client.Call(&PoolStub::BatchReleaseRegions, release);
    if (!released.ok()) return;
    batches_ += 2;
  }
}

}  // namespace cxlpool::crash
