// Frozen parameters that are kept and gathered as rows of bytes, and become their elements when they are computed with.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>

#include "model/parameter.h"

namespace stft::shard {

// What the bytes mean is the business of whoever packs them. Rows are cut over the ranks as the rows of a tensor
// [rows, row_bytes] are, so no row is ever divided; each must stand for its elements on its own.
struct PackedForm {
  int64_t rows = 0;          // of the whole parameter
  int64_t row_bytes = 0;     // a multiple of 4
  int64_t row_elements = 0;  // of the flattened parameter; the last row may stand for fewer
  // From bytes [k, row_bytes] to the elements that they stand for, flat, in the engine's compute type. It runs on
  // tensors of the CPU and throws nothing.
  std::function<void(const at::Tensor& rows, const at::Tensor& to)> unpack;
};

// The packed ones among the parameters of a model; their stored_dtype is that of bytes.
using PackedForms = std::map<const model::Parameter*, PackedForm>;

}  // namespace stft::shard
