#include "io/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace stft::io {
namespace {

constexpr std::size_t kAlignment = 64;
// Room for the first dimension to grow without moving the data: NumPy reserves the digits of a 64-bit number.
constexpr std::size_t kGrowthDigits = 21;

std::string descr(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBool:
      return "|b1";
    case Dtype::kI8:
      return "|i1";
    case Dtype::kU8:
      return "|u1";
    case Dtype::kI16:
      return "<i2";
    case Dtype::kU16:
      return "<u2";
    case Dtype::kF16:
      return "<f2";
    case Dtype::kI32:
      return "<i4";
    case Dtype::kU32:
      return "<u4";
    case Dtype::kF32:
      return "<f4";
    case Dtype::kI64:
      return "<i8";
    case Dtype::kU64:
      return "<u8";
    case Dtype::kF64:
      return "<f8";
    case Dtype::kC64:
      return "<c8";
    default:
      throw_internal("NumPy has the dtype", dtype_name(dtype));
  }
}

}  // namespace

std::string npy_header(Dtype dtype, std::span<const std::int64_t> shape) {
  STFT_CHECK(!shape.empty(), "a .npy file of a scalar");
  const std::string tuple = fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr(dtype), tuple);
  const std::size_t digits = std::to_string(shape[0]).size();
  header.append(kGrowthDigits - std::min(digits, kGrowthDigits), ' ');
  const std::string magic("\x93NUMPY\x01\x00", 8);
  const std::size_t unpadded = magic.size() + 2 + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  header += '\n';
  const auto length = static_cast<std::uint16_t>(header.size());
  return magic + static_cast<char>(length & 0xFF) + static_cast<char>(length >> 8) + header;
}

}  // namespace stft::io
