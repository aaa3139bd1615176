// Whole weights as a run on a quantized base computes with them: quantized to 4 bits and read again.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "checkpoint/pretrained.h"
#include "io/safetensors.h"
#include "model/sentence_model.h"
#include "quant/quant_config.h"

namespace stft::checkpoint {

// fp32 `weight` of a file whose tensor has type `dtype`, which the result is rounded to; QuantizedBase gives the same
// values. `name` is for messages. UserError for a value that is not finite.
at::Tensor through_four_bit(const at::Tensor& weight, const quant::QuantizationConfig& config, io::Dtype dtype,
                            const std::string& name);

// The same for the leaves, whole and in fp32, of every weight that QuantizedBase would pack. Those that are stored in 4
// bits are what they stand for already.
void dequantize_leaves(model::SentenceModel& model, const PretrainedWeights& weights,
                       const quant::QuantizationConfig& config);

}  // namespace stft::checkpoint
