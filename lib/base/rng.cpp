#include "base/rng.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace stft::rng {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

// Counters worked on side by side, so that the compiler vectorises the rounds.
constexpr int kLanes = 16;

struct Lanes {
  std::array<uint32_t, kLanes> c0, c1, c2, c3;
};

// One vector clone per instruction set; the loader picks the best one for the processor.
__attribute__((target_clones("default", "avx2", "avx512f"))) void philox_lanes(Lanes& lanes, Key key) {
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t product0 = uint64_t{kMultiplier0} * lanes.c0[i];
      const uint64_t product1 = uint64_t{kMultiplier1} * lanes.c2[i];
      const uint32_t next0 = static_cast<uint32_t>(product1 >> 32) ^ lanes.c1[i] ^ key[0];
      const uint32_t next2 = static_cast<uint32_t>(product0 >> 32) ^ lanes.c3[i] ^ key[1];
      lanes.c0[i] = next0;
      lanes.c1[i] = static_cast<uint32_t>(product1);
      lanes.c2[i] = next2;
      lanes.c3[i] = static_cast<uint32_t>(product0);
    }
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
}

}  // namespace

Counter philox4x32(Counter counter, Key key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

Key micro_step_key(uint64_t seed, uint64_t micro_step) {
  const auto seed_low = static_cast<uint32_t>(seed);
  const auto seed_high = static_cast<uint32_t>(seed >> 32);
  const auto step_low = static_cast<uint32_t>(micro_step);
  const auto step_high = static_cast<uint32_t>(micro_step >> 32);
  return {seed_low ^ (step_high * kWeyl1), step_low ^ (seed_high * kWeyl0)};
}

void fill_dropout_scale(std::span<float> out, Key key, DropoutSite site, double p) {
  const auto threshold = static_cast<uint32_t>(std::min(std::floor(p * 4294967296.0), 4294967295.0));
  const auto kept = static_cast<float>(1.0 / (1.0 - p));
  const uint32_t where = (site.column << 16) | (site.layer << 4) | site.site;
  constexpr size_t kPerBlock = size_t{4} * kLanes;
  Lanes lanes;
  for (size_t begin = 0; begin < out.size(); begin += kPerBlock) {
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t index = begin / 4 + static_cast<uint64_t>(i);
      lanes.c0[i] = static_cast<uint32_t>(index);
      lanes.c1[i] = site.row;
      lanes.c2[i] = where;
      lanes.c3[i] = static_cast<uint32_t>(index >> 32);
    }
    philox_lanes(lanes, key);
    const size_t count = std::min(kPerBlock, out.size() - begin);
    std::array<float, kPerBlock> scaled;
    for (int i = 0; i < kLanes; ++i) {
      scaled[4 * i] = lanes.c0[i] < threshold ? 0.0F : kept;
      scaled[4 * i + 1] = lanes.c1[i] < threshold ? 0.0F : kept;
      scaled[4 * i + 2] = lanes.c2[i] < threshold ? 0.0F : kept;
      scaled[4 * i + 3] = lanes.c3[i] < threshold ? 0.0F : kept;
    }
    std::copy_n(scaled.begin(), count, out.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

std::vector<int64_t> permutation(uint64_t seed, uint64_t epoch, int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  // A stream of its own: the key's second word marks it, so no dropout of any micro-step shares it.
  const Key key = {static_cast<uint32_t>(seed) ^ kWeyl1, static_cast<uint32_t>(seed >> 32) ^ 0x5F3C9A17U};
  for (int64_t i = n - 1; i > 0; --i) {
    const Counter drawn = philox4x32({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32),
                                      static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32)},
                                     key);
    const uint64_t wide = (uint64_t{drawn[0]} << 32) | drawn[1];
    const auto pick = static_cast<int64_t>(wide % static_cast<uint64_t>(i + 1));  // bias below 2^-30
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(pick)]);
  }
  return order;
}

}  // namespace stft::rng
