// Element types of safetensors files to and from fp32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <vector>

#include "io/safetensors.h"

namespace stft::checkpoint {

// Whether parameters may be stored in this type.
bool is_weight_dtype(io::Dtype dtype);

// Little-endian elements of a weight dtype, of any alignment, to the flat fp32 `destination` of the same count.
void read_as_float(std::span<const std::byte> bytes, io::Dtype dtype, at::Tensor destination);

// fp32 values as the bytes of `dtype` (round to nearest, ties to even).
std::vector<std::byte> write_as(const at::Tensor& values, io::Dtype dtype);

}  // namespace stft::checkpoint
