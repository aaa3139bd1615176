// `stft train`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stft::app {

struct TrainOptions {
  std::string recipe_path;
  std::vector<std::string> overrides;
  std::optional<int64_t> nproc;
  bool overwrites = false;
  std::optional<std::string> resume;  // "auto" or the directory of a checkpoint
};

// Runs as one rank when the environment says so (our launcher, torchrun, mpirun), else starts the ranks and supervises
// them. `arguments` is argv[1..], for the ranks. Returns the exit code.
int run_train(const TrainOptions& options, const std::vector<std::string>& arguments);

}  // namespace stft::app
