#include "train/replicas.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace stft::train {

uint64_t checked_checksum(shard::ShardEngine& engine, Mesh& mesh, const std::string& when) {
  const uint64_t own = engine.parameters_checksum();
  if (mesh.replicate().size() == 1) {
    return own;
  }
  // A copy's ranks have the same sum.
  const auto sums = dist::gather_integers(mesh.world(), {static_cast<int64_t>(own)});
  std::vector<std::string> others;
  for (size_t rank = 1; rank < sums.size(); ++rank) {
    if (sums[rank] != sums[0]) {
      others.push_back(fmt::format("{:016x} on rank {}", static_cast<uint64_t>(sums[rank].front()), rank));
    }
  }
  if (!others.empty()) {
    throw SystemError(
        fmt::format("{}: the copies of the model are not equal: the checksum of the parameters is {:016x} "
                    "on rank 0, {}",
                    when, static_cast<uint64_t>(sums[0].front()), fmt::join(others, ", ")));
  }
  return own;
}

void check_replicas(shard::ShardEngine& engine, Mesh& mesh, const std::string& when) {
  if (mesh.replicate().size() > 1) {
    checked_checksum(engine, mesh, when);
  }
}

}  // namespace stft::train
