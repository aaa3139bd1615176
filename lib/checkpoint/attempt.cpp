#include "checkpoint/attempt.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace stft::checkpoint {

void Attempt::run(const std::function<void()>& work) {
  if (failure_) {
    return;
  }
  try {
    work();
  } catch (const CollectiveError&) {
    throw;  // nothing can be agreed any more
  } catch (...) {
    failure_ = std::current_exception();
  }
}

// A rank that left with its failure would have the launcher end rank 0 in the middle of removing.
void Attempt::clean_up() {
  if (world_.rank() == 0) {
    std::error_code ignored;  // the failure that is under way says more; a full disk gets its space back
    std::filesystem::remove_all(temporary_, ignored);
  }
  auto meeting = at::zeros({1}, at::kLong);
  world_.all_reduce_sum(meeting).wait();
}

void Attempt::agree() {
  auto failed = at::zeros({world_.size()}, at::kLong);
  failed.data_ptr<int64_t>()[world_.rank()] = failure_ ? 1 : 0;
  world_.all_reduce_sum(failed).wait();
  if (!temporary_.empty() && failed.sum().item<int64_t>() > 0) {
    clean_up();
  }
  if (failure_) {
    std::rethrow_exception(failure_);
  }
  std::string ranks;
  for (int64_t rank = 0; rank < world_.size(); ++rank) {
    if (failed.data_ptr<int64_t>()[rank] != 0) {
      ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
    }
  }
  if (!ranks.empty()) {
    throw CollectiveError(fmt::format("{} failed on rank {}", what_, ranks));
  }
}

}  // namespace stft::checkpoint
