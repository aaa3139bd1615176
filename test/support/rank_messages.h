// What each rank ends with.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/thread_ranks.h"

namespace stft::test {

// The message of the `Error` that every rank's `body` throws, in rank order; "nothing" where it throws none.
template <typename Error>
std::vector<std::string> messages_of_ranks(int64_t ranks,
                                           const std::function<void(std::unique_ptr<dist::ProcessGroup>)>& body) {
  std::vector<std::string> messages(static_cast<size_t>(ranks), "nothing");
  run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const auto rank = static_cast<size_t>(world->rank());
    try {
      body(std::move(world));
    } catch (const Error& error) {
      messages[rank] = error.what();
    }
  });
  return messages;
}

}  // namespace stft::test
