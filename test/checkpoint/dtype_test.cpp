#include "checkpoint/dtype.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cstring>

using namespace stft;

namespace {

uint16_t half_word(const std::vector<std::byte>& bytes, size_t index) {
  uint16_t word = 0;
  std::memcpy(&word, bytes.data() + 2 * index, 2);
  return word;
}

}  // namespace

TEST_CASE("every weight type goes to fp32 and back without a change") {
  const auto values = at::tensor(std::vector<double>{0.0, -1.5, 0.15625, 3.0, -0.0078125}).to(at::kFloat);
  for (const auto dtype : {io::Dtype::kF32, io::Dtype::kF16, io::Dtype::kBF16, io::Dtype::kF64}) {
    REQUIRE(checkpoint::is_weight_dtype(dtype));
    const auto bytes = checkpoint::write_as(values, dtype);
    CHECK(bytes.size() == 5 * static_cast<size_t>(io::dtype_bits(dtype)) / 8);
    // From an address that no type is aligned to.
    std::vector<std::byte> shifted(bytes.size() + 1);
    std::memcpy(shifted.data() + 1, bytes.data(), bytes.size());
    auto back = at::empty({5});
    checkpoint::read_as_float(std::span(shifted).subspan(1), dtype, back);
    CHECK(at::equal(back, values));
  }
  CHECK_FALSE(checkpoint::is_weight_dtype(io::Dtype::kI64));
  CHECK_FALSE(checkpoint::is_weight_dtype(io::Dtype::kU8));
}

TEST_CASE("narrowing rounds to nearest, ties to even") {
  // 1 + 2^-8 lies between the bf16 neighbours 1 and 1 + 2^-7; 1 + 3 * 2^-8 between 1 + 2^-7 and 1 + 2^-6.
  const auto ties = at::tensor(std::vector<double>{1.0 + 1.0 / 256, 1.0 + 3.0 / 256, 1.0 + 1.01 / 256}).to(at::kFloat);
  const auto bytes = checkpoint::write_as(ties, io::Dtype::kBF16);
  CHECK(half_word(bytes, 0) == 0x3F80);
  CHECK(half_word(bytes, 1) == 0x3F82);
  CHECK(half_word(bytes, 2) == 0x3F81);
}
