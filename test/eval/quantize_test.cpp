// Quantized embeddings against sentence-transformers.
#include "eval/quantize.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "base/error.h"
#include "io/safetensors.h"

namespace stft::eval {
namespace {

at::Tensor golden(const std::string& name) {
  const auto file = io::SafetensorsFile::open(std::string(STFT_SOURCE_DIR) + "/test/golden/eval/quantize.safetensors");
  const io::TensorInfo* info = file.find(name);
  REQUIRE(info != nullptr);
  const auto dtype = info->dtype == io::Dtype::kF32  ? at::kFloat
                     : info->dtype == io::Dtype::kI8 ? at::kChar
                                                     : at::kByte;
  auto tensor = at::empty(info->shape, dtype);
  const auto bytes = file.bytes(*info);
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

bool is_same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.equal(b);
}

}  // namespace

TEST_CASE("quantized embeddings equal the peer's bit for bit", "[quantize]") {
  const auto embeddings = golden("embeddings");
  CHECK(is_same(quantize(embeddings, Precision::kInt8), golden("int8")));
  CHECK(is_same(quantize(embeddings, Precision::kUint8), golden("uint8")));
  CHECK(is_same(quantize(embeddings, Precision::kBinary), golden("binary")));
  CHECK(is_same(quantize(embeddings, Precision::kUbinary), golden("ubinary")));
  CHECK(is_same(quantize(embeddings, Precision::kFloat32), embeddings));
}

TEST_CASE("a view of a wider matrix quantizes as its copy", "[quantize]") {
  const auto view = golden("embeddings").narrow(1, 2, 9);
  for (const auto precision : {Precision::kInt8, Precision::kUbinary}) {
    CHECK(is_same(quantize(view, precision), quantize(view.clone(), precision)));
  }
}

TEST_CASE("no embedding has every precision, one has no range", "[quantize]") {
  const auto none = at::empty({0, 13});
  CHECK(is_same(quantize(none, Precision::kInt8), at::empty({0, 13}, at::kChar)));
  CHECK(is_same(quantize(none, Precision::kUint8), at::empty({0, 13}, at::kByte)));
  CHECK(is_same(quantize(none, Precision::kBinary), at::empty({0, 2}, at::kChar)));
  CHECK(is_same(quantize(none, Precision::kUbinary), at::empty({0, 2}, at::kByte)));
  const auto one = at::ones({1, 13});
  CHECK_THROWS_AS(quantize(one, Precision::kInt8), UserError);
  CHECK_THROWS_AS(quantize(one, Precision::kUint8), UserError);
  CHECK(is_same(quantize(one, Precision::kUbinary), at::tensor({255, 248}, at::kByte).view({1, 2})));
}

TEST_CASE("values at the end of float32 overflow into the range, not into undefined codes", "[quantize]") {
  const float huge = 3e38F;
  const auto codes = quantize(at::tensor({-huge, 0.0F, huge}).view({3, 1}), Precision::kUint8);
  CHECK(codes.scalar_type() == at::kByte);
}

}  // namespace stft::eval
