#include "train/replicas.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace stft::train {

void check_replicas(shard::ShardEngine& engine, Mesh& mesh, const std::string& when) {
  if (mesh.replicate().size() == 1) {
    return;
  }
  // A copy's ranks have the same sum.
  auto own = at::empty({1}, at::kLong);
  own.fill_(static_cast<int64_t>(engine.parameters_checksum()));
  dist::ProcessGroup& world = mesh.world();
  auto sums = at::empty({world.size()}, at::kLong);
  world.all_gather(sums, own).wait();
  const auto* values = sums.data_ptr<int64_t>();
  std::vector<std::string> others;
  for (int64_t rank = 1; rank < world.size(); ++rank) {
    if (values[rank] != values[0]) {
      others.push_back(fmt::format("{:016x} on rank {}", static_cast<uint64_t>(values[rank]), rank));
    }
  }
  if (!others.empty()) {
    throw SystemError(
        fmt::format("{}: the copies of the model are not equal: the checksum of the parameters is {:016x} "
                    "on rank 0, {}",
                    when, static_cast<uint64_t>(values[0]), fmt::join(others, ", ")));
  }
}

}  // namespace stft::train
