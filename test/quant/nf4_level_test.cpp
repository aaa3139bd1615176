// The levels of the processor against each other, and what quantization loses.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "quant/nf4.h"
#include "quant/nf4_golden.h"

namespace {

using namespace stft;
using namespace stft::quant;
using test::Quantized;

float any_float(std::mt19937& random) {
  const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  return std::isfinite(value) ? value : 0.0F;
}

template <class T>
std::vector<T> random_values(std::mt19937& random, std::size_t count, int kind) {
  std::normal_distribution<float> normal(0, 0.05F);
  std::vector<T> values(count);
  for (T& value : values) {
    // Weights; any finite bits; whole tenths, which meet the thresholds of FP4.
    const float x = kind == 0 ? normal(random) : kind == 1 ? any_float(random) : static_cast<float>(random() % 25) / 24;
    value = from_float<T>(x);
    if (!std::isfinite(to_float(value))) {
      value = from_float<T>(0);
    }
  }
  return values;
}

template <class T>
void check_levels(std::mt19937& random, int kind) {
  const FourBitFormat format = {random() % 2 == 0 ? QuantType::kNf4 : QuantType::kFp4, 32 << random() % 8};
  const std::size_t count = random() % 2 == 0 ? random() % 20000 : random() % 200;
  const auto values = random_values<T>(random, count, kind);
  INFO("count " << count << ", blocksize " << format.blocksize << ", kind " << kind << ", size " << sizeof(T));
  Quantized expected(std::ssize(values), format.blocksize);
  REQUIRE_FALSE(quantize_4bit<T>(format, values, expected.part(), CpuLevel::kScalar));
  std::vector<T> read(count);
  dequantize_4bit<T>(expected.view(format.type, format.blocksize), read, CpuLevel::kScalar);
  for (const CpuLevel level : cpu_levels()) {
    Quantized ours(std::ssize(values), format.blocksize);
    REQUIRE_FALSE(quantize_4bit<T>(format, values, ours.part(), level));
    REQUIRE(ours.packed == expected.packed);
    REQUIRE(ours.absmax == expected.absmax);
    std::vector<T> ours_read(count);
    dequantize_4bit<T>(ours.view(format.type, format.blocksize), ours_read, level);
    REQUIRE(test::bytes_of(ours_read) == test::bytes_of(read));
  }
}

TEST_CASE("all levels give the same bits") {
  std::mt19937 random(20260303);
  for (int round = 0; round < 300; ++round) {
    check_levels<float>(random, round % 3);
    check_levels<Bf16>(random, round % 3);
    check_levels<Fp16>(random, round % 3);
  }
}

TEST_CASE("all levels read any scale and any map alike") {
  // A file may hold what no quantization writes: infinite results too are rounded alike.
  std::mt19937 random(20260304);
  std::array<float, 16> map{};
  for (int round = 0; round < 200; ++round) {
    for (float& value : map) {
      value = any_float(random);
    }
    std::vector<std::uint8_t> packed(64);
    std::generate(packed.begin(), packed.end(), [&] { return static_cast<std::uint8_t>(random()); });
    const std::vector<float> absmax = {any_float(random), any_float(random)};
    std::vector<Bf16> bf16(128);
    std::vector<Fp16> fp16(128);
    dequantize_4bit<Bf16>({map, 64, packed, absmax}, bf16, CpuLevel::kScalar);
    dequantize_4bit<Fp16>({map, 64, packed, absmax}, fp16, CpuLevel::kScalar);
    for (const CpuLevel level : cpu_levels()) {
      std::vector<Bf16> ours_bf16(128);
      std::vector<Fp16> ours_fp16(128);
      dequantize_4bit<Bf16>({map, 64, packed, absmax}, ours_bf16, level);
      dequantize_4bit<Fp16>({map, 64, packed, absmax}, ours_fp16, level);
      REQUIRE(test::bytes_of(ours_bf16) == test::bytes_of(bf16));
      REQUIRE(test::bytes_of(ours_fp16) == test::bytes_of(fp16));
    }
  }
}

TEST_CASE("16-bit numbers survive fp32") {
  for (unsigned bits = 0; bits < 0x10000U; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if ((half & 0x7c00U) != 0x7c00U || (half & 0x3ffU) == 0) {
      REQUIRE(from_float<Fp16>(to_float(Fp16{half})).bits == half);
    }
    if ((half & 0x7f80U) != 0x7f80U || (half & 0x7fU) == 0) {
      REQUIRE(from_float<Bf16>(to_float(Bf16{half})).bits == half);
    }
  }
}

TEST_CASE("numbers between two of 16 bits go to the nearer, ties to the even one") {
  for (unsigned bits = 0; bits < 0x7bffU; ++bits) {
    const float low = to_float(Fp16{static_cast<std::uint16_t>(bits)});
    const float high = to_float(Fp16{static_cast<std::uint16_t>(bits + 1)});
    const float middle = (low + high) / 2;
    REQUIRE(from_float<Fp16>(std::nextafter(middle, low)).bits == bits);
    REQUIRE(from_float<Fp16>(std::nextafter(middle, high)).bits == bits + 1);
    REQUIRE(from_float<Fp16>(middle).bits == (bits % 2 == 0 ? bits : bits + 1));
    REQUIRE(from_float<Fp16>(-middle).bits == (0x8000U | (bits % 2 == 0 ? bits : bits + 1)));
  }
  CHECK(from_float<Fp16>(65519.9F).bits == 0x7bffU);
  CHECK(from_float<Fp16>(65520.0F).bits == 0x7c00U);
  CHECK(from_float<Bf16>(std::bit_cast<float>(0x3f808000U)).bits == 0x3f80U);
  CHECK(from_float<Bf16>(std::bit_cast<float>(0x3f818000U)).bits == 0x3f82U);
  CHECK(from_float<Bf16>(std::bit_cast<float>(0x7f7fffffU)).bits == 0x7f80U);
}

TEST_CASE("a value comes back within half the widest gap of the table") {
  // Of NF4 between -1 and -0.696, of FP4 between 0.667 and 1: 0.152 and 0.167 of absmax.
  std::mt19937 random(20260305);
  for (const QuantType type : {QuantType::kNf4, QuantType::kFp4}) {
    const auto values = random_values<float>(random, 64 * 100 + 13, 0);
    Quantized ours(std::ssize(values), 64);
    REQUIRE_FALSE(quantize_4bit<float>({type, 64}, values, ours.part()));
    std::vector<float> read(values.size());
    dequantize_4bit<float>(ours.view(type, 64), read);
    const float bound = type == QuantType::kNf4 ? 0.15191F : 0.16667F;
    double squares = 0;
    double error_squares = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float error = std::abs(read[i] - values[i]);
      REQUIRE(error <= bound * ours.absmax[i / 64]);
      squares += values[i] * values[i];
      error_squares += error * error;
    }
    // A normal distribution in blocks of 64: 9.5 % of its size for NF4, 12 % for FP4.
    CHECK(std::sqrt(error_squares / squares) < (type == QuantType::kNf4 ? 0.10 : 0.13));
    CHECK(std::sqrt(error_squares / squares) > 0.08);
  }
}

}  // namespace
