// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2,
// 3", SC 2011). A value depends on its key and counter only, so neither the order of evaluation nor the number of ranks
// changes it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace stft::rng {

using Counter = std::array<uint32_t, 4>;
using Key = std::array<uint32_t, 2>;

// Ten rounds of Philox4x32.
Counter philox4x32(Counter counter, Key key);

// The key of everything drawn in micro-step `micro_step` of a run with `seed`.
Key micro_step_key(uint64_t seed, uint64_t micro_step);

// Which tensor of which text a dropout belongs to. Together with the element index (in that text's own unpadded
// tensor) this is the counter, so packing, padding and sharding leave every draw as it is.
struct DropoutSite {
  uint32_t row = 0;     // in the global micro-batch
  uint32_t column = 0;  // 0 anchor, 1 positive, 2.. negatives; below 2^16
  uint32_t layer = 0;   // 0 embeddings, 1.. layers; below 2^12
  uint32_t site = 0;    // within the layer; below 16
};

// out[i] = 0 with probability p, else 1 / (1 - p); i counts the elements of the text's own tensor. 0 <= p < 1.
void fill_dropout_scale(std::span<float> out, Key key, DropoutSite site, double p);

// A uniformly random order of 0 .. n-1 (Fisher-Yates), a function of (seed, epoch, n) only.
std::vector<int64_t> permutation(uint64_t seed, uint64_t epoch, int64_t n);

}  // namespace stft::rng
