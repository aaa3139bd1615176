// Files whose linear weights bitsandbytes quantized to 4 bits, read as if they held the weights.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/tensor_source.h"
#include "quant/bnb_weight.h"
#include "quant/packed_rows.h"

namespace stft::checkpoint {

struct StoredFourBit {
  quant::FourBitWeight weight;
  quant::PackedRows form;                 // of `weight`
  const TensorSource* tensors = nullptr;  // of its parts; borrowed

  // Row `index` of `form`. UserError for an absmax that is not finite.
  void read_row(int64_t index, std::span<uint8_t> row) const;
};

// `tensors` itself when none is quantized. Otherwise each quantized weight has its shape and the type it had before,
// its rows are de-quantized when they are read, and what is stored beside it (absmax, maps, states) is no tensor of its
// own; TensorSource::four_bit gives the stored form. UserError for what read_four_bit refuses.
std::unique_ptr<TensorSource> with_whole_weights(std::unique_ptr<TensorSource> tensors);

}  // namespace stft::checkpoint
