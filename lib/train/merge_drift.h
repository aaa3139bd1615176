// How far a merged model is from the adapter on the quantized base that it was trained on.
#pragma once

#include <cstdint>
#include <string>

#include "quant/quant_config.h"

namespace stft::train {

struct DriftedModels {
  std::string merged;   // a model directory
  std::string adapter;  // an adapter's directory
  std::string base;     // the base of the adapter, quantized as `quantization` says
  quant::QuantizationConfig quantization;
};

struct MergeDrift {
  double largest = 0;  // of 1 - cosine
  int64_t texts = 0;   // that were compared
};

// Embeds some fixed texts with both, in fp32 on this process. Both models are in memory one after the other. UserError
// when a vector is not finite.
MergeDrift merge_drift(const DriftedModels& models);

}  // namespace stft::train
