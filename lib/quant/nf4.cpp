#include "quant/nf4.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "base/error.h"
#include "quant/nf4_kernels.h"

namespace stft::quant {

namespace {

constexpr float kSmallestAbsmax = 1e-38F;

template <class T>
constexpr kernels::Element kElement = std::is_same_v<T, float>  ? kernels::Element::kFloat32
                                      : std::is_same_v<T, Bf16> ? kernels::Element::kBFloat16
                                                                : kernels::Element::kFloat16;

kernels::Quantize quantize_kernel(CpuLevel level, kernels::Element element) {
#ifdef STFT_X86_KERNELS
  if (level == CpuLevel::kAvx512) {
    return kernels::avx512_quantize(element);
  }
  if (level == CpuLevel::kAvx2) {
    return kernels::avx2_quantize(element);
  }
#endif
  return kernels::scalar_quantize(element);
}

kernels::Dequantize dequantize_kernel(CpuLevel level, kernels::Element element) {
#ifdef STFT_X86_KERNELS
  if (level == CpuLevel::kAvx512) {
    return kernels::avx512_dequantize(element);
  }
  if (level == CpuLevel::kAvx2) {
    return kernels::avx2_dequantize(element);
  }
#endif
  return kernels::scalar_dequantize(element);
}

std::uint8_t code_of(const FourBitTable& table, float scaled) {
  const auto rank = std::lower_bound(table.thresholds.begin(), table.thresholds.end(), scaled);
  return table.code_of_rank[static_cast<std::size_t>(rank - table.thresholds.begin())];
}

// A block shorter than blocksize. False when it holds a NaN or an infinity.
template <class T>
bool quantize_short_block(const FourBitTable& table, std::span<const T> values, std::uint8_t* packed, float& absmax) {
  absmax = kSmallestAbsmax;
  for (const T value : values) {
    if (!std::isfinite(to_float(value))) {
      return false;
    }
    absmax = std::max(absmax, std::abs(to_float(value)));
  }
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const unsigned high = code_of(table, to_float(values[i]) / absmax);
    const unsigned low = i + 1 < values.size() ? code_of(table, to_float(values[i + 1]) / absmax) : table.zero_code();
    packed[i / 2] = static_cast<std::uint8_t>(high << 4U | low);
  }
  return true;
}

}  // namespace

bool is_blocksize(std::int64_t blocksize) {
  return blocksize >= 32 && blocksize <= 4096 && std::has_single_bit(static_cast<std::uint64_t>(blocksize));
}

std::int64_t block_count(std::int64_t elements, std::int64_t blocksize) {
  return elements / blocksize + (elements % blocksize != 0 ? 1 : 0);
}

std::int64_t packed_size(std::int64_t elements) {
  return elements / 2 + elements % 2;
}

template <class T>
std::optional<std::int64_t> quantize_4bit(const FourBitFormat& format, std::span<const T> values, QuantizedPart to,
                                          CpuLevel level) {
  const auto count = static_cast<std::int64_t>(values.size());
  STFT_CHECK(is_blocksize(format.blocksize), "a block size that is no power of two from 32 to 4096");
  STFT_CHECK(
      std::ssize(to.packed) == packed_size(count) && std::ssize(to.absmax) == block_count(count, format.blocksize),
      "room for other numbers of codes and blocks");
  const FourBitTable& table = four_bit_table(format.type);
  const kernels::Blocks whole = {count / format.blocksize, format.blocksize};
  const std::int64_t done = quantize_kernel(level, kElement<T>)(
      {table.thresholds.data(), table.code_of_rank.data()}, whole, values.data(), to.packed.data(), to.absmax.data());
  if (done < whole.count) {
    return done;
  }
  const auto rest = values.subspan(static_cast<std::size_t>(whole.count * format.blocksize));
  if (!rest.empty() &&
      !quantize_short_block(table, rest, to.packed.data() + whole.count * (format.blocksize / 2), to.absmax.back())) {
    return whole.count;
  }
  return std::nullopt;
}

template <class T>
void refuse_not_finite(std::string_view tensor, std::span<const std::int64_t> shape, std::int64_t first_element,
                       std::span<const T> part) {
  const auto bad = std::find_if(part.begin(), part.end(), [](T value) { return !std::isfinite(to_float(value)); });
  STFT_CHECK(bad != part.end(), "all values are finite");
  std::int64_t rest = first_element + (bad - part.begin());
  std::vector<std::int64_t> position(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    position[d] = rest % shape[d];
    rest /= shape[d];
  }
  throw UserError(fmt::format("tensor '{}' holds {} at [{}], which cannot be quantized to 4 bits", tensor,
                              std::isnan(to_float(*bad)) ? "a NaN" : "an infinity", fmt::join(position, ", ")));
}

template <class T>
void dequantize_4bit(const QuantizedView& from, std::span<T> to, CpuLevel level) {
  const auto count = static_cast<std::int64_t>(to.size());
  STFT_CHECK(is_blocksize(from.blocksize), "a block size that is no power of two from 32 to 4096");
  STFT_CHECK(
      std::ssize(from.packed) == packed_size(count) && std::ssize(from.absmax) == block_count(count, from.blocksize),
      "codes and blocks of another number of values");
  const kernels::Blocks whole = {count / from.blocksize, from.blocksize};
  dequantize_kernel(level, kElement<T>)(from.values.data(), whole, from.packed.data(), from.absmax.data(), to.data());
  for (auto i = static_cast<std::size_t>(whole.count * from.blocksize); i < to.size(); ++i) {
    const unsigned code = i % 2 == 0 ? from.packed[i / 2] >> 4U : from.packed[i / 2] & 15U;
    to[i] = from_float<T>(from.values[code] * from.absmax.back());
  }
}

PieceQuantizer::PieceQuantizer(const FourBitFormat& format, QuantizedPart to) : format_(format), to_(to) {
  STFT_CHECK(is_blocksize(format.blocksize), "a block size that is no power of two from 32 to 4096");
  begun_.reserve(static_cast<std::size_t>(format.blocksize));
}

template <class T>
std::optional<std::int64_t> PieceQuantizer::append(std::span<const T> values) {
  const auto blocksize = static_cast<std::size_t>(format_.blocksize);
  while (!values.empty()) {
    if (begun_.empty() && values.size() >= blocksize) {
      const auto blocks = static_cast<std::int64_t>(values.size() / blocksize);
      STFT_CHECK(blocks <= std::ssize(to_.absmax) - blocks_done_, "more values than the part has");
      const auto whole = values.first(static_cast<std::size_t>(blocks) * blocksize);
      const auto done = static_cast<std::size_t>(blocks_done_);
      if (const auto bad = quantize_4bit(format_, whole,
                                         {to_.packed.subspan(done * blocksize / 2, whole.size() / 2),
                                          to_.absmax.subspan(done, static_cast<std::size_t>(blocks))})) {
        return blocks_done_ + *bad;
      }
      blocks_done_ += blocks;
      values = values.subspan(whole.size());
      continue;
    }
    const std::size_t taken = std::min(values.size(), blocksize - begun_.size());
    for (const T value : values.first(taken)) {
      begun_.push_back(to_float(value));
    }
    values = values.subspan(taken);
    if (begun_.size() == blocksize) {
      if (const auto bad = flush()) {
        return bad;
      }
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> PieceQuantizer::flush() {
  STFT_CHECK(blocks_done_ < std::ssize(to_.absmax), "more values than the part has");
  const auto done = static_cast<std::size_t>(blocks_done_);
  const auto bytes = static_cast<std::size_t>(packed_size(std::ssize(begun_)));
  const auto bad = quantize_4bit<float>(
      format_, begun_,
      {to_.packed.subspan(done * static_cast<std::size_t>(format_.blocksize) / 2, bytes), to_.absmax.subspan(done, 1)});
  if (bad) {
    return blocks_done_;
  }
  ++blocks_done_;
  begun_.clear();
  return std::nullopt;
}

std::optional<std::int64_t> PieceQuantizer::finish() {
  if (!begun_.empty()) {
    if (const auto bad = flush()) {
      return bad;
    }
  }
  STFT_CHECK(blocks_done_ == std::ssize(to_.absmax), "fewer values than the part has");
  return std::nullopt;
}

#define STFT_FOR_ELEMENT(T)                                                                                      \
  template std::optional<std::int64_t> quantize_4bit<T>(const FourBitFormat&, std::span<const T>, QuantizedPart, \
                                                        CpuLevel);                                               \
  template void refuse_not_finite<T>(std::string_view, std::span<const std::int64_t>, std::int64_t,              \
                                     std::span<const T>);                                                        \
  template void dequantize_4bit<T>(const QuantizedView&, std::span<T>, CpuLevel);                                \
  template std::optional<std::int64_t> PieceQuantizer::append<T>(std::span<const T>);
STFT_FOR_ELEMENT(float)
STFT_FOR_ELEMENT(Bf16)
STFT_FOR_ELEMENT(Fp16)
#undef STFT_FOR_ELEMENT

}  // namespace stft::quant
