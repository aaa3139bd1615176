#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "quant/bnb_blockwise8.h"
#include "quant/nf4_cuda.h"

namespace stft::quant {

namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr std::int64_t kMostBlocks = 1 << 20;  // of a launch; each loops over what is left
constexpr float kSmallestAbsmax = 1e-38F;

__device__ float load(float value) {
  return value;
}
__device__ float load(Bf16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16U);
}
__device__ float load(Fp16 value) {
  return __half2float(__ushort_as_half(value.bits));
}

template <class T>
__device__ T rounded(float value);
template <>
__device__ float rounded<float>(float value) {
  return value;
}
template <>
__device__ Bf16 rounded<Bf16>(float value) {
  return Bf16{__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}
template <>
__device__ Fp16 rounded<Fp16>(float value) {
  return Fp16{__half_as_ushort(__float2half_rn(value))};
}

template <class T>
struct alignas(2 * sizeof(T)) Pair {
  T first;
  T second;
};

// FourBitTable without std::array, whose functions are the host's.
struct DeviceTable {
  float thresholds[15];
  std::uint8_t code_of_rank[16];
};

DeviceTable device_table(QuantType type) {
  const FourBitTable& table = four_bit_table(type);
  DeviceTable copy;
  std::copy(table.thresholds.begin(), table.thresholds.end(), copy.thresholds);
  std::copy(table.code_of_rank.begin(), table.code_of_rank.end(), copy.code_of_rank);
  return copy;
}

__device__ unsigned code_of(const DeviceTable& table, float scaled) {
  const float* t = table.thresholds;
  unsigned rank = scaled > t[7] ? 8 : 0;
  rank += scaled > t[rank + 3] ? 4 : 0;
  rank += scaled > t[rank + 1] ? 2 : 0;
  rank += scaled > t[rank] ? 1 : 0;
  return table.code_of_rank[rank];
}

__device__ std::int64_t thread_number() {
  return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

__device__ std::int64_t thread_count() {
  return static_cast<std::int64_t>(gridDim.x) * kThreads;
}

// A warp quantizes a block.
template <class T>
__global__ void quantize(DeviceTable argument, std::int64_t blocksize, const T* values, std::int64_t count,
                         std::int64_t blocks, DeviceQuantized to) {
  __shared__ DeviceTable table;
  if (threadIdx.x == 0) {
    table = argument;
  }
  __syncthreads();
  const int lane = threadIdx.x % kWarp;
  for (std::int64_t b = thread_number() / kWarp; b < blocks; b += thread_count() / kWarp) {
    const T* block = values + b * blocksize;
    const std::int64_t rest = count - b * blocksize;
    const bool is_short = rest < blocksize;
    const std::int64_t size = is_short ? rest : blocksize;
    unsigned largest = 0;  // bits of magnitudes are in the order of the magnitudes
    for (std::int64_t i = lane; i < size; i += kWarp) {
      largest = max(largest, __float_as_uint(load(block[i])) & 0x7fffffffU);
    }
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      largest = max(largest, __shfl_xor_sync(0xffffffffU, largest, distance));
    }
    if (largest >= 0x7f800000U) {
      if (lane == 0) {
        atomicMin(reinterpret_cast<unsigned long long*>(to.not_finite), static_cast<unsigned long long>(b));
      }
      continue;
    }
    const float absmax = __uint_as_float(largest);
    const float divisor = absmax > kSmallestAbsmax ? absmax : kSmallestAbsmax;
    if (lane == 0) {
      to.absmax[b] = is_short ? divisor : absmax;
    }
    const float scale = __fdiv_rn(1.0F, divisor);
    const auto scaled = [&](T value) {
      return is_short ? __fdiv_rn(load(value), divisor) : __fmul_rn(load(value), scale);
    };
    for (std::int64_t i = 2 * lane; i < size; i += 2 * kWarp) {
      const unsigned high = code_of(table, scaled(block[i]));
      const unsigned low = i + 1 < size ? code_of(table, scaled(block[i + 1])) : table.code_of_rank[7];
      to.packed[(b * blocksize + i) / 2] = static_cast<std::uint8_t>(high << 4U | low);
    }
  }
}

__global__ void set(std::int64_t* to, std::int64_t value) {
  *to = value;
}

// A thread reads a byte at a time.
template <class T>
__global__ void dequantize(DeviceQuantizedView from, T* to, std::int64_t count) {
  __shared__ float values[16];
  if (threadIdx.x < 16) {
    values[threadIdx.x] = from.values[threadIdx.x];
  }
  __syncthreads();
  const int shift = __ffsll(from.blocksize) - 2;  // a block has 2^shift bytes
  for (std::int64_t i = thread_number(); i < (count + 1) / 2; i += thread_count()) {
    const unsigned byte = from.packed[i];
    const float absmax = from.absmax[i >> shift];
    const T first = rounded<T>(__fmul_rn(values[byte >> 4U], absmax));
    if (2 * i + 1 < count) {
      reinterpret_cast<Pair<T>*>(to)[i] = Pair<T>{first, rounded<T>(__fmul_rn(values[byte & 15U], absmax))};
    } else {
      to[2 * i] = first;
    }
  }
}

__global__ void dequantize_nested(DeviceNested from, float* absmax, std::int64_t count) {
  for (std::int64_t i = thread_number(); i < count; i += thread_count()) {
    absmax[i] = __fadd_rn(__fmul_rn(from.map[from.codes[i]], from.absmax[i / kByteBlock]), from.offset);
  }
}

unsigned grid_of(std::int64_t threads) {
  return static_cast<unsigned>(std::min((threads + kThreads - 1) / kThreads, kMostBlocks));
}

void check_launch(const char* what) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    throw SystemError(std::string(what) + " on the GPU: " + cudaGetErrorString(error));
  }
}

}  // namespace

template <class T>
void quantize_4bit_cuda(const FourBitFormat& format, const T* values, std::int64_t count, const DeviceQuantized& to,
                        CUstream_st* stream) {
  STFT_CHECK(is_blocksize(format.blocksize), "a block size that is no power of two from 32 to 4096");
  const std::int64_t blocks = block_count(count, format.blocksize);
  set<<<1, 1, 0, stream>>>(to.not_finite, blocks);
  if (blocks > 0) {
    quantize<T><<<grid_of(blocks * kWarp), kThreads, 0, stream>>>(device_table(format.type), format.blocksize, values,
                                                                 count, blocks, to);
  }
  check_launch("quantizing to 4 bits");
}

template <class T>
void dequantize_4bit_cuda(const DeviceQuantizedView& from, T* to, std::int64_t count, CUstream_st* stream) {
  STFT_CHECK(is_blocksize(from.blocksize), "a block size that is no power of two from 32 to 4096");
  if (count > 0) {
    dequantize<T><<<grid_of((count + 1) / 2), kThreads, 0, stream>>>(from, to, count);
    check_launch("reading 4-bit codes");
  }
}

void dequantize_absmax_cuda(const DeviceNested& from, float* absmax, std::int64_t count, CUstream_st* stream) {
  if (count > 0) {
    dequantize_nested<<<grid_of(count), kThreads, 0, stream>>>(from, absmax, count);
    check_launch("reading absmax");
  }
}

#define STFT_FOR_ELEMENT(T)                                                                                     \
  template void quantize_4bit_cuda<T>(const FourBitFormat&, const T*, std::int64_t, const DeviceQuantized&,     \
                                      CUstream_st*);                                                            \
  template void dequantize_4bit_cuda<T>(const DeviceQuantizedView&, T*, std::int64_t, CUstream_st*);
STFT_FOR_ELEMENT(float)
STFT_FOR_ELEMENT(Bf16)
STFT_FOR_ELEMENT(Fp16)
#undef STFT_FOR_ELEMENT

}  // namespace stft::quant
