#include "checkpoint/dtype.h"

#include <ATen/ATen.h>

#include <cstring>

#include "base/error.h"

namespace stft::checkpoint {
namespace {

at::ScalarType scalar_type(io::Dtype dtype) {
  switch (dtype) {
    case io::Dtype::kF32:
      return at::kFloat;
    case io::Dtype::kF16:
      return at::kHalf;
    case io::Dtype::kBF16:
      return at::kBFloat16;
    case io::Dtype::kF64:
      return at::kDouble;
    default:
      throw_internal("a weight dtype", std::string(io::dtype_name(dtype)));
  }
}

}  // namespace

bool is_weight_dtype(io::Dtype dtype) {
  return dtype == io::Dtype::kF32 || dtype == io::Dtype::kF16 || dtype == io::Dtype::kBF16 || dtype == io::Dtype::kF64;
}

void read_as_float(std::span<const std::byte> bytes, io::Dtype dtype, at::Tensor destination) {
  const at::NoGradGuard no_grad;
  if (dtype == io::Dtype::kF32) {
    STFT_CHECK(bytes.size() == destination.nbytes(), "sizes fit");
    std::memcpy(destination.data_ptr(), bytes.data(), bytes.size());
    return;
  }
  auto typed = at::empty(destination.sizes(), scalar_type(dtype));
  STFT_CHECK(bytes.size() == typed.nbytes(), "sizes fit");
  std::memcpy(typed.data_ptr(), bytes.data(), bytes.size());
  destination.copy_(typed);
}

std::vector<std::byte> write_as(const at::Tensor& values, io::Dtype dtype) {
  const auto typed = values.detach().to(scalar_type(dtype)).contiguous();
  std::vector<std::byte> bytes(typed.nbytes());
  std::memcpy(bytes.data(), typed.const_data_ptr(), bytes.size());
  return bytes;
}

}  // namespace stft::checkpoint
