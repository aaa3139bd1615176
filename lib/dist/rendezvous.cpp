#include "dist/rendezvous.h"

#include <fmt/format.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "base/error.h"
#include "dist/rendezvous_impl.h"

namespace stft::dist {

Rendezvous::Rendezvous(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Rendezvous Rendezvous::tcp(const TcpOptions& options) {
  c10d::TCPStoreOptions store_options;
  store_options.port = options.port;
  store_options.isServer = options.is_server;
  store_options.numWorkers = static_cast<size_t>(options.world_size);
  store_options.waitWorkers = false;
  store_options.timeout = std::chrono::milliseconds(static_cast<int64_t>(options.timeout_s * 1000));
  store_options.multiTenant = false;
  store_options.masterListenFd = options.listen_fd;
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(options.host, store_options);
    return Rendezvous(std::make_shared<Impl>(Impl{std::move(store)}));
  } catch (const std::exception& cause) {
    const std::string text(cause.what());
    throw SystemError(
        fmt::format("rendezvous at {}:{} failed: {}", options.host, options.port, text.substr(0, text.find('\n'))));
  }
}

Rendezvous Rendezvous::in_process() {
  return Rendezvous(std::make_shared<Impl>(Impl{c10::make_intrusive<c10d::HashStore>()}));
}

void Rendezvous::agree_on_size(int64_t rank, int64_t world_size) const {
  const auto key = [](int64_t of_rank) { return fmt::format("stft/world_size/{}", of_rank); };
  std::string other;
  int64_t teller = 0;
  try {
    impl_->store->set(key(rank), std::to_string(world_size));
    // Rank 0 hears of all others, the others of rank 0.
    for (teller = rank == 0 ? 1 : 0; teller < (rank == 0 ? world_size : 1); ++teller) {
      other = impl_->store->get_to_str(key(teller));
      if (other != std::to_string(world_size)) {
        break;
      }
      other.clear();
    }
  } catch (const std::exception& cause) {
    const std::string text(cause.what());
    throw SystemError(
        fmt::format("waiting for rank {} of {}: {}", teller, world_size, text.substr(0, text.find('\n'))));
  }
  if (!other.empty()) {
    throw UserError(fmt::format("the ranks were started for different numbers of ranks: rank {} for {}, rank {} for {}",
                                rank, world_size, teller, other));
  }
}

}  // namespace stft::dist
