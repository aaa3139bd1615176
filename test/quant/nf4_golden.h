// Reading the goldens of test/golden/nf4 without LibTorch.
#pragma once

#include <array>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "quant/nf4.h"

namespace stft::test {

inline std::string nf4_golden(const std::string& name) {
  return std::string(STFT_SOURCE_DIR) + "/test/golden/nf4/" + name;
}

template <class T>
std::vector<T> values_of(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) {
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  }
  return values;
}

// The bytes of a tensor as elements of T, whatever its dtype.
template <class T>
std::vector<T> read_values(const io::SafetensorsFile& file, const std::string& name) {
  const io::TensorInfo* info = file.find(name);
  if (info == nullptr) {
    throw std::runtime_error("no tensor " + name + " in " + file.path());
  }
  return values_of<T>(file.bytes(*info));
}

template <class T>
std::vector<std::uint8_t> bytes_of(const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(values.data());
  return {begin, begin + values.size() * sizeof(T)};
}

struct Quantized {
  std::vector<std::uint8_t> packed;
  std::vector<float> absmax;

  Quantized(std::int64_t elements, std::int64_t blocksize)
      : packed(static_cast<std::size_t>(quant::packed_size(elements))),
        absmax(static_cast<std::size_t>(quant::block_count(elements, blocksize))) {}
  quant::QuantizedPart part() { return {packed, absmax}; }
  quant::QuantizedView view(quant::QuantType type, std::int64_t blocksize) const {
    return {quant::four_bit_table(type).values, blocksize, packed, absmax};
  }
};

}  // namespace stft::test
