// Which weights of a base model are 4-bit.
#pragma once

#include <cstddef>
#include <vector>

#include "checkpoint/four_bit_source.h"
#include "checkpoint/pretrained.h"
#include "io/safetensors.h"
#include "model/sentence_model.h"

namespace stft::checkpoint {

// Of the transformer's projections those that bitsandbytes has as Linear4bit: no tables, and none that transformers
// leaves as it is.
bool can_be_four_bit(const model::Projection& projection);

struct FourBitChoice {
  size_t parameter = 0;                   // its place in the model's table
  const StoredFourBit* stored = nullptr;  // null: the run quantizes it
  io::Dtype dtype = io::Dtype::kF32;      // that it has without quantization: F32, F16 or BF16
};

// The frozen ones, in the order of the model's projections. When the files hold any weight in 4 bits: those that are
// stored so and no others, for whoever quantized the model left the rest alone.
std::vector<FourBitChoice> choose_four_bit(const model::SentenceModel& model, const PretrainedWeights& weights);

}  // namespace stft::checkpoint
