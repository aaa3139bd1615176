// NumPy's .npy format, version 1.0: a header, then the elements in C order.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "io/safetensors.h"

namespace stft::io {

// What stands before the little-endian elements, byte for byte as numpy.save writes it; a multiple of 64 bytes.
// `shape` is not empty. InternalError for a dtype that NumPy has not.
std::string npy_header(Dtype dtype, std::span<const std::int64_t> shape);

}  // namespace stft::io
