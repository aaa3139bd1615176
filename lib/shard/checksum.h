// A checksum of parameters that can be summed over rows and ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/parameter.h"
#include "shard/shard_layout.h"

namespace stft::shard {

// The sum (modulo 2^64) over the given rows' elements of a hash of (parameter name, module, position in the whole
// tensor, bits). `rows` is flat, [own_numel], of 4 or 2 bytes an element, or packed bytes. Sums over all ranks' rows do
// not depend on how they are cut.
uint64_t checksum_rows(const model::Parameter& parameter, const ShardLayout& layout, const at::Tensor& rows);

}  // namespace stft::shard
