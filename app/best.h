// `stft best`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stft::app {

struct BestOptions {
  std::string run_directory;
  std::optional<std::string> out;
  bool evaluates = false;
  std::optional<int64_t> nproc;
  bool overwrites = false;
};

// Finds the best complete checkpoint of a run, proves its recorded metric (`evaluates`; on ranks) and materialises it
// (`out`). One JSON object on standard output. Returns the exit code: 1 when the metric does not hold.
int run_best(const BestOptions& options, const std::vector<std::string>& arguments);

}  // namespace stft::app
