#include "eval/quantize.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"

// Shape suffixes: N texts, D dimensions, B bytes of D bits.

namespace stft::eval {
namespace {

// One column's values: `start` is code 0, `step` the width of a code.
struct Scale {
  float start = 0;
  float step = 1;
};

std::vector<Scale> column_scales(const at::Tensor& embeddings_ND) {
  const int64_t width = embeddings_ND.size(1);
  const auto lowest = embeddings_ND.amin(0);
  const auto highest = embeddings_ND.amax(0);
  std::vector<Scale> scales;
  for (int64_t d = 0; d < width; ++d) {
    const float start = lowest.const_data_ptr<float>()[d];
    const float step = (highest.const_data_ptr<float>()[d] - start) / 255.0F;
    scales.push_back({start, step == 0.0F ? 1.0F : step});
  }
  return scales;
}

uint8_t code_of(float value, Scale scale) {
  const float code = std::floor((value - scale.start) / scale.step);
  return code > 0.0F ? static_cast<uint8_t>(std::min(code, 255.0F)) : uint8_t{0};
}

// Codes 0 to 255; `offset` is added to the bytes (128 turns them into the bytes of int8 codes less 128).
at::Tensor quantize_steps(const at::Tensor& embeddings_ND, uint8_t offset) {
  const int64_t texts = embeddings_ND.size(0);
  const int64_t width = embeddings_ND.size(1);
  auto codes_ND = at::empty({texts, width}, at::kByte);
  if (texts == 0) {
    return codes_ND;
  }
  const auto scales = column_scales(embeddings_ND);
  const auto* values = embeddings_ND.const_data_ptr<float>();
  auto* codes = codes_ND.data_ptr<uint8_t>();
  for (int64_t i = 0; i < texts * width; ++i) {
    codes[i] = static_cast<uint8_t>(code_of(values[i], scales[static_cast<size_t>(i % width)]) + offset);
  }
  return codes_ND;
}

at::Tensor quantize_signs(const at::Tensor& embeddings_ND, uint8_t offset) {
  const int64_t texts = embeddings_ND.size(0);
  const int64_t width = embeddings_ND.size(1);
  const int64_t bytes = (width + 7) / 8;
  auto packed_NB = at::zeros({texts, bytes}, at::kByte);
  const auto* values = embeddings_ND.const_data_ptr<float>();
  auto* packed = packed_NB.data_ptr<uint8_t>();
  for (int64_t n = 0; n < texts; ++n) {
    for (int64_t d = 0; d < width; ++d) {
      if (values[n * width + d] > 0) {
        packed[n * bytes + d / 8] |= static_cast<uint8_t>(0x80U >> (d % 8));
      }
    }
    for (int64_t b = 0; b < bytes; ++b) {
      packed[n * bytes + b] = static_cast<uint8_t>(packed[n * bytes + b] + offset);
    }
  }
  return packed_NB;
}

}  // namespace

at::Tensor quantize(const at::Tensor& embeddings_ND, Precision precision) {
  const at::Tensor embeddings = embeddings_ND.contiguous();
  const bool has_ranges = precision == Precision::kInt8 || precision == Precision::kUint8;
  if (has_ranges && embeddings.size(0) == 1) {
    throw UserError("int8 and uint8 need at least two embeddings: their ranges come from the embeddings themselves");
  }
  constexpr uint8_t kSignedOffset = 128;
  switch (precision) {
    case Precision::kInt8:
      return quantize_steps(embeddings, kSignedOffset).view(at::kChar);
    case Precision::kUint8:
      return quantize_steps(embeddings, 0);
    case Precision::kBinary:
      return quantize_signs(embeddings, kSignedOffset).view(at::kChar);
    case Precision::kUbinary:
      return quantize_signs(embeddings, 0);
    case Precision::kFloat32:
      break;
  }
  return embeddings;
}

}  // namespace stft::eval
