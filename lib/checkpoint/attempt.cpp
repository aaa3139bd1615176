#include "checkpoint/attempt.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

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

void Attempt::agree() {
  auto failed = at::zeros({world_.size()}, at::kLong);
  failed.data_ptr<int64_t>()[world_.rank()] = failure_ ? 1 : 0;
  world_.all_reduce_sum(failed).wait();
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
