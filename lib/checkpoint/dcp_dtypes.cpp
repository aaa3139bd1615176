#include <algorithm>
#include <array>

#include "checkpoint/dcp_metadata.h"

namespace stft::checkpoint {
namespace {

using io::Dtype;

constexpr std::array kDtypes{
    DcpDtype{Dtype::kF32, "torch.float32", "torch.FloatStorage"},
    DcpDtype{Dtype::kBF16, "torch.bfloat16", "torch.BFloat16Storage"},
    DcpDtype{Dtype::kF16, "torch.float16", "torch.HalfStorage"},
    DcpDtype{Dtype::kF64, "torch.float64", "torch.DoubleStorage"},
    DcpDtype{Dtype::kI64, "torch.int64", "torch.LongStorage"},
    DcpDtype{Dtype::kI32, "torch.int32", "torch.IntStorage"},
    DcpDtype{Dtype::kI16, "torch.int16", "torch.ShortStorage"},
    DcpDtype{Dtype::kI8, "torch.int8", "torch.CharStorage"},
    DcpDtype{Dtype::kU8, "torch.uint8", "torch.ByteStorage"},
    DcpDtype{Dtype::kBool, "torch.bool", "torch.BoolStorage"},
    DcpDtype{Dtype::kC64, "torch.complex64", "torch.ComplexFloatStorage"},
};

}  // namespace

std::span<const DcpDtype> dcp_dtypes() {
  return kDtypes;
}

const DcpDtype* find_dcp_dtype(Dtype dtype) {
  const auto* found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DcpDtype& d) { return d.dtype == dtype; });
  return found == kDtypes.end() ? nullptr : found;
}

}  // namespace stft::checkpoint
