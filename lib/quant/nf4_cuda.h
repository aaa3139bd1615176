// nf4.h and nf4_double.h on a GPU; built by the preset cuda only. All pointers are of the current device, work is
// queued on the stream and not waited for. The bits are those of the CPU for every part. SystemError when a launch
// fails.
#pragma once

#include <cstdint>

#include "quant/nf4.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace stft::quant {

struct DeviceQuantized {
  std::uint8_t* packed;      // packed_size(count) bytes
  float* absmax;             // block_count(count, blocksize)
  std::int64_t* not_finite;  // one: the first block that holds a NaN or an infinity, or the number of blocks
};

// T is float, Bf16 or Fp16.
template <class T>
void quantize_4bit_cuda(const FourBitFormat& format, const T* values, std::int64_t count, const DeviceQuantized& to,
                        CUstream_st* stream);

struct DeviceQuantizedView {
  const float* values;  // 16: what the codes stand for
  std::int64_t blocksize;
  const std::uint8_t* packed;
  const float* absmax;
};

// `to` is aligned to two elements.
template <class T>
void dequantize_4bit_cuda(const DeviceQuantizedView& from, T* to, std::int64_t count, CUstream_st* stream);

struct DeviceNested {
  const float* map;  // 256
  const std::uint8_t* codes;
  const float* absmax;  // of each kByteBlock codes
  float offset;
};

void dequantize_absmax_cuda(const DeviceNested& from, float* absmax, std::int64_t count, CUstream_st* stream);

}  // namespace stft::quant
