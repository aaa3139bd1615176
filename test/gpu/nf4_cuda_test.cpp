// 4-bit quantization on a GPU: the bits of the CPU.
#include "quant/nf4_cuda.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

#include "../quant/nf4_golden.h"
#include "quant/nf4_double.h"

namespace {

using namespace stft;
using namespace stft::quant;
using test::Quantized;

bool has_gpu() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) {
    return true;
  }
  WARN("no GPU to test with");
  return false;
}

// A copy of values on the GPU.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : size_(values.size()) {
    if (cudaMalloc(&data_, std::max<std::size_t>(1, bytes())) != cudaSuccess ||
        cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice) != cudaSuccess) {
      throw std::runtime_error("no memory on the GPU");
    }
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  std::vector<T> values() const {
    std::vector<T> copy(size_);
    if (cudaMemcpy(copy.data(), data_, bytes(), cudaMemcpyDeviceToHost) != cudaSuccess) {
      throw std::runtime_error("the GPU failed");
    }
    return copy;
  }

 private:
  std::size_t bytes() const { return size_ * sizeof(T); }

  std::size_t size_;
  void* data_ = nullptr;
};

template <class T>
void check_format(std::mt19937& random, const FourBitFormat& format, std::size_t count) {
  std::normal_distribution<float> normal(0, 0.05F);
  std::vector<T> values(count);
  for (T& value : values) {
    const float any = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    value = from_float<T>(random() % 16 == 0 && std::abs(any) < 60000 ? any : normal(random));
  }
  if (count > 200) {
    std::fill(values.begin() + 64, values.begin() + 200, from_float<T>(0));
  }
  Quantized expected(std::ssize(values), format.blocksize);
  REQUIRE_FALSE(quantize_4bit<T>(format, values, expected.part()));
  const OnDevice<T> input(values);
  const OnDevice<std::uint8_t> packed(std::vector<std::uint8_t>(expected.packed.size()));
  const OnDevice<float> absmax(std::vector<float>(expected.absmax.size()));
  const OnDevice<std::int64_t> bad(std::vector<std::int64_t>(1));
  quantize_4bit_cuda<T>(format, input.data(), std::ssize(values), {packed.data(), absmax.data(), bad.data()}, nullptr);
  CHECK(bad.values()[0] == std::ssize(expected.absmax));
  CHECK(packed.values() == expected.packed);
  CHECK(absmax.values() == expected.absmax);

  std::vector<T> expected_read(count);
  dequantize_4bit<T>(expected.view(format.type, format.blocksize), expected_read);
  const auto& map = four_bit_table(format.type).values;
  const OnDevice<float> codes(std::vector<float>(map.begin(), map.end()));
  const OnDevice<T> read{std::vector<T>(count)};
  dequantize_4bit_cuda<T>({codes.data(), format.blocksize, packed.data(), absmax.data()}, read.data(),
                          std::ssize(values), nullptr);
  CHECK(test::bytes_of(read.values()) == test::bytes_of(expected_read));
}

TEST_CASE("a GPU quantizes and reads to the bits of the CPU") {
  if (!has_gpu()) {
    return;
  }
  std::mt19937 random(20260312);
  for (const std::size_t count : {0U, 1U, 63U, 64U, 189U, 20001U, 300000U}) {
    for (const QuantType type : {QuantType::kNf4, QuantType::kFp4}) {
      for (std::int64_t blocksize = 32; blocksize <= 4096; blocksize *= 2) {
        INFO("count " << count << ", blocksize " << blocksize);
        check_format<float>(random, {type, blocksize}, count);
        check_format<Bf16>(random, {type, blocksize}, count);
        check_format<Fp16>(random, {type, blocksize}, count);
      }
    }
  }
}

TEST_CASE("a GPU finds what is not finite and reads absmax") {
  if (!has_gpu()) {
    return;
  }
  std::vector<float> values(1000, 0.5F);
  values[300] = std::numeric_limits<float>::infinity();
  values[700] = std::numeric_limits<float>::quiet_NaN();
  const OnDevice<float> input(values);
  const OnDevice<std::uint8_t> packed(std::vector<std::uint8_t>(500));
  const OnDevice<float> absmax(std::vector<float>(16));
  const OnDevice<std::int64_t> bad(std::vector<std::int64_t>(1));
  quantize_4bit_cuda<float>({}, input.data(), 1000, {packed.data(), absmax.data(), bad.data()}, nullptr);
  CHECK(bad.values()[0] == 300 / 64);

  std::mt19937 random(20260313);
  std::vector<std::uint8_t> codes(700);
  std::generate(codes.begin(), codes.end(), [&] { return static_cast<std::uint8_t>(random()); });
  const std::vector<float> nested = {0.3F, 0.07F, 1.9F};
  std::vector<float> expected(codes.size());
  dequantize_absmax({nested_map(), {codes, nested}, 0.11F}, expected);
  const auto& map = dynamic_map(MapSign::kSigned);
  const OnDevice<float> map_there(std::vector<float>(map.begin(), map.end()));
  const OnDevice<std::uint8_t> codes_there(codes);
  const OnDevice<float> nested_there(nested);
  const OnDevice<float> read(std::vector<float>(codes.size()));
  dequantize_absmax_cuda({map_there.data(), codes_there.data(), nested_there.data(), 0.11F}, read.data(), 700, nullptr);
  CHECK(read.values() == expected);
}

}  // namespace
