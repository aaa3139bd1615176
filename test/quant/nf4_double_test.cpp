// Double quantization: the exact mean, the codes of absmax, what bitsandbytes reads.
#include "quant/nf4_double.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "quant/nf4_golden.h"
#include "quant/nf4_tables.h"

namespace {

using namespace stft;
using namespace stft::quant;

struct Nested {
  std::vector<std::uint8_t> codes;
  std::vector<float> absmax;

  explicit Nested(std::size_t blocks) : codes(blocks), absmax((blocks + 255) / 256) {}
  ByteBlocks to() { return {codes, absmax}; }
};

float mean_of(std::span<const float> values) {
  AbsmaxSum sum;
  sum.add(values);
  return sum.mean();
}

TEST_CASE("absmax is read as bitsandbytes reads it") {
  for (const char* name : {"groups_bf16", "outliers_fp32", "odd_7x27_fp32", "short_5x50_fp32", "fp16_blocks_of_128"}) {
    INFO(name);
    const auto file = io::SafetensorsFile::open(test::nf4_golden(name + std::string(".safetensors")));
    const auto codes = test::read_values<std::uint8_t>(file, "nested.absmax_u8");
    const auto nested = test::read_values<float>(file, "nested.absmax");
    const float offset = test::read_values<float>(file, "nested.offset")[0];
    std::vector<float> absmax(codes.size());
    dequantize_absmax({nested_map(), {codes, nested}, offset}, absmax);
    CHECK(absmax == test::read_values<float>(file, "nested.absmax_dequant"));
  }
}

TEST_CASE("absmax is written as bitsandbytes writes it, its second nearest picks aside") {
  for (const char* name : {"groups_bf16", "outliers_fp32", "odd_7x27_fp32", "short_5x50_fp32", "fp16_blocks_of_128"}) {
    INFO(name);
    const auto file = io::SafetensorsFile::open(test::nf4_golden(name + std::string(".safetensors")));
    const auto absmax = test::read_values<float>(file, "absmax");
    const float offset = test::read_values<float>(file, "nested.offset")[0];
    CHECK(mean_of(absmax) == Approx(offset).epsilon(3e-7));
    Nested ours(absmax.size());
    quantize_absmax(absmax, offset, ours.to());
    CHECK(ours.absmax == test::read_values<float>(file, "nested.absmax"));
    const auto expected = test::read_values<std::uint8_t>(file, "nested.absmax_u8");
    std::size_t different = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      different += ours.codes[i] != expected[i] ? 1 : 0;
      CHECK(std::abs(ours.codes[i] - expected[i]) <= 1);
    }
    CHECK(different <= std::max<std::size_t>(1, expected.size() / 100));
  }
}

TEST_CASE("groups quantized apart give the bytes of the whole, under any split over ranks") {
  std::mt19937 random(20260306);
  std::uniform_real_distribution<float> uniform(0.01F, 0.3F);
  std::vector<float> absmax(256 * 5 + 100);
  std::generate(absmax.begin(), absmax.end(), [&] { return uniform(random); });
  const float offset = mean_of(absmax);
  Nested whole(absmax.size());
  quantize_absmax(absmax, offset, whole.to());

  for (const std::size_t groups : {1U, 2U, 4U}) {
    AbsmaxSum::Digits digits{};
    for (std::size_t first = 0; first < absmax.size(); first += groups * 256) {
      AbsmaxSum sum;
      sum.add(std::span(absmax).subspan(first, std::min(groups * 256, absmax.size() - first)));
      std::transform(digits.begin(), digits.end(), sum.digits().begin(), digits.begin(), std::plus<>());
    }
    CHECK(AbsmaxSum(digits).mean() == offset);
    Nested parts(absmax.size());
    for (std::size_t first = 0; first < absmax.size(); first += groups * 256) {
      const std::size_t size = std::min(groups * 256, absmax.size() - first);
      quantize_absmax(std::span(absmax).subspan(first, size), offset,
                      {std::span(parts.codes).subspan(first, size),
                       std::span(parts.absmax).subspan(first / 256, (size + 255) / 256)});
    }
    CHECK(parts.codes == whole.codes);
    CHECK(parts.absmax == whole.absmax);
  }
}

TEST_CASE("the mean is exact whatever the sizes and the order") {
  CHECK(mean_of({}) == 0);
  CHECK(mean_of(std::vector<float>{0, 0}) == 0);
  CHECK(mean_of(std::vector<float>{3e38F, 1e-45F}) == 1.5e38F);
  const float max = std::numeric_limits<float>::max();
  CHECK(mean_of(std::vector<float>(1000, max)) == max);
  CHECK(mean_of(std::vector<float>(7, 0.1F)) == 0.1F);
  CHECK(mean_of(std::vector<float>{1e-45F, 1e-45F, 1e-45F}) == 1e-45F);
  // 1 + 2^-24 lies between two floats: a tie goes to the even one, the least excess breaks it.
  CHECK(mean_of(std::vector<float>{1, std::nextafter(1.0F, 2.0F)}) == 1);
  CHECK(mean_of(std::vector<float>{4, 0x1p-22F, 0, 0}) == 1);
  CHECK(mean_of(std::vector<float>{4, 0x1p-22F, 1e-45F, 0}) == std::nextafter(1.0F, 2.0F));

  std::mt19937 random(20260307);
  for (int round = 0; round < 200; ++round) {
    // Multiples of 2^-20 below 1: their sum is exact in a double.
    std::vector<float> values(1 + random() % 5000);
    std::generate(values.begin(), values.end(), [&] { return static_cast<float>(random() % 1048576) * 0x1p-20F; });
    double sum = 0;
    for (const float value : values) {
      sum += value;
    }
    const float mean = mean_of(values);
    // Division rounds twice here (double, float): the exact one may differ by that, which 53 bits make rare.
    CHECK(mean == static_cast<float>(sum / static_cast<double>(values.size())));
    std::shuffle(values.begin(), values.end(), random);
    CHECK(mean_of(values) == mean);
  }
}

TEST_CASE("equal absmax and a single block come back exactly") {
  for (const std::size_t count : {1U, 300U}) {
    const std::vector<float> absmax(count, 0.37F);
    const float offset = mean_of(absmax);
    Nested ours(count);
    quantize_absmax(absmax, offset, ours.to());
    std::vector<float> read(count);
    dequantize_absmax({nested_map(), {ours.codes, ours.absmax}, offset}, read);
    CHECK(read == absmax);
  }
}

TEST_CASE("the nearest number of a map is found") {
  std::mt19937 random(20260308);
  for (const MapSign sign : {MapSign::kSigned, MapSign::kUnsigned}) {
    const auto& values = dynamic_map(sign);
    const ByteMap map(values);
    for (unsigned code = 0; code < 256; ++code) {
      CHECK(map.nearest(values[code]) == code);
    }
    for (int round = 0; round < 20000; ++round) {
      const float x = std::ldexp(static_cast<float>(random()) * 0x1p-32F, -static_cast<int>(random() % 30)) *
                      (random() % 2 == 0 ? 1.0F : -1.0F);
      const auto distance = [&](float value) { return std::abs(static_cast<double>(value) - x); };
      const double nearest = distance(
          *std::min_element(values.begin(), values.end(), [&](float a, float b) { return distance(a) < distance(b); }));
      REQUIRE(distance(map.value(map.nearest(x))) <= nearest + 1e-7 * std::abs(x));
    }
    CHECK(map.nearest(2) == 255);
    CHECK(map.nearest(-2) == 0);
    CHECK(map.nearest(std::numeric_limits<float>::infinity()) == 255);
  }
}

TEST_CASE("one large block is noticed") {
  std::mt19937 random(20260309);
  std::normal_distribution<float> normal(0.15F, 0.02F);
  std::vector<float> absmax(1000);
  std::generate(absmax.begin(), absmax.end(), [&] { return std::abs(normal(random)); });
  CHECK(nested_range(absmax, mean_of(absmax)) < 10);
  std::fill(absmax.begin() + 300, absmax.begin() + 400, 0.0F);
  CHECK(nested_range(absmax, mean_of(absmax)) < 10);
  absmax[700] = 3e4F;
  const float offset = mean_of(absmax);
  CHECK(nested_range(absmax, offset) > kMaxNestedRange);
  CHECK(nested_range(std::span(absmax).first(256), offset) > kMaxNestedRange);  // the mean moved for all groups
  CHECK(nested_range(std::vector<float>(300), 0) == 0);
}

}  // namespace
