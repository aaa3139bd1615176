#include "base/rng.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <set>

using stft::rng::Counter;
using stft::rng::Key;

TEST_CASE("Philox4x32-10 gives the published known answers") {
  using stft::rng::philox4x32;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("the vectorised dropout is the plain generator, element by element") {
  const Key key = stft::rng::micro_step_key(42, 7);
  const stft::rng::DropoutSite site{5, 2, 3, 1};
  std::vector<float> scale(203);
  stft::rng::fill_dropout_scale(scale, key, site, 0.25);
  for (size_t i = 0; i < scale.size(); ++i) {
    const Counter drawn = stft::rng::philox4x32({static_cast<uint32_t>(i / 4), 5, (2U << 16) | (3U << 4) | 1U, 0}, key);
    const float expected = drawn[i % 4] < 0x40000000U ? 0.0F : static_cast<float>(1.0 / 0.75);
    REQUIRE(scale[i] == expected);
  }
}

TEST_CASE("dropout drops the share it is asked to, and differs by every part of its key") {
  const auto draw = [](uint64_t seed, uint64_t step, stft::rng::DropoutSite site) {
    std::vector<float> scale(100000);
    stft::rng::fill_dropout_scale(scale, stft::rng::micro_step_key(seed, step), site, 0.1);
    return scale;
  };
  const auto base = draw(1, 1, {1, 1, 1, 1});
  const auto dropped = std::count(base.begin(), base.end(), 0.0F);
  CHECK(dropped > 9600);
  CHECK(dropped < 10400);
  CHECK(base == draw(1, 1, {1, 1, 1, 1}));
  CHECK(base != draw(2, 1, {1, 1, 1, 1}));
  CHECK(base != draw(1, 2, {1, 1, 1, 1}));
  CHECK(base != draw(uint64_t{1} | uint64_t{1} << 40, 1, {1, 1, 1, 1}));
  CHECK(base != draw(1, 1, {2, 1, 1, 1}));
  CHECK(base != draw(1, 1, {1, 2, 1, 1}));
  CHECK(base != draw(1, 1, {1, 1, 2, 1}));
  CHECK(base != draw(1, 1, {1, 1, 1, 2}));
}

TEST_CASE("a permutation has every row once and depends on seed and epoch") {
  const auto order = stft::rng::permutation(42, 0, 1000);
  std::set<int64_t> seen(order.begin(), order.end());
  CHECK(seen.size() == 1000);
  CHECK(*seen.begin() == 0);
  CHECK(*seen.rbegin() == 999);
  CHECK(order == stft::rng::permutation(42, 0, 1000));
  CHECK(order != stft::rng::permutation(42, 1, 1000));
  CHECK(order != stft::rng::permutation(43, 0, 1000));
  CHECK_FALSE(std::is_sorted(order.begin(), order.end()));
  CHECK(stft::rng::permutation(1, 1, 0).empty());
}
