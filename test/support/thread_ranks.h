// N ranks as N threads of this process, over real Gloo groups that meet in an in-process store.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dist/process_group.h"
#include "dist/rendezvous.h"

namespace stft::test {

// Catch counts assertions without a lock; those within the body of a rank take this one.
inline std::mutex& assertion_mutex() {
  static std::mutex mutex;
  return mutex;
}

// Runs `body` on every rank with that rank's group and waits for all; the first exception of any rank is thrown again.
inline void run_ranks(int64_t ranks, const std::function<void(std::unique_ptr<dist::ProcessGroup>)>& body) {
  const auto rendezvous = dist::Rendezvous::in_process();
  std::vector<std::exception_ptr> failures(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        dist::ProcessGroup::Options options;
        options.name = "test";
        options.rank = rank;
        options.world_size = ranks;
        options.timeout_s = 30;
        body(dist::ProcessGroup::over_gloo(rendezvous, options));
      } catch (...) {
        failures[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  for (const auto& failure : failures) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
}

}  // namespace stft::test
