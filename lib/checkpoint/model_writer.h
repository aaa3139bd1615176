// Writing a sentence-transformers directory, one tensor in memory at a time, wherever the tensors come from.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>

#include "checkpoint/attempt.h"
#include "checkpoint/weight_plan.h"
#include "io/safetensors.h"

namespace stft::checkpoint {

// A whole tensor's memory: contiguous, little-endian elements of `dtype`, whatever type `memory` itself has.
struct WholeTensor {
  io::Dtype dtype = io::Dtype::kF32;
  at::Tensor memory;
};

// Gives a tensor of the plan. It may be collective: then all ranks ask for the same tensors in the same order.
using WholeTensors = std::function<WholeTensor(const PlannedFile&, const PlannedTensor&)>;

// Writes the safetensors files of `plan` below `directory`, whose folders exist. Ranks without a directory only ask for
// the tensors. Failures of writing go to `attempt`, so that all ranks finish asking.
void write_weights(const WeightPlan& plan, WeightPrecision precision, const WholeTensors& tensors,
                   const std::optional<std::string>& directory, Attempt& attempt);

// A whole tensor of a module's source.
WholeTensor read_whole(const TensorSource& source, const std::string& key);

// The value of torch_dtype (or dtype) of a config.json's text; none when it has no such key.
std::optional<std::string> config_dtype(const std::string& config_text, const std::string& origin);

// The text with that value replaced and every other byte kept; the key is added in front when the text has none.
std::string with_config_dtype(const std::string& config_text, const std::string& dtype, const std::string& origin);

// "float32", "bfloat16" or "float16"; none for kAsInput.
std::optional<std::string> precision_name(WeightPrecision precision);

}  // namespace stft::checkpoint
