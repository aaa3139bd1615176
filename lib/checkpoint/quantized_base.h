// A base model whose linear weights are 4-bit: quantized while its files are read, or stored so by bitsandbytes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/four_bit_source.h"
#include "checkpoint/pretrained.h"
#include "dist/process_group.h"
#include "model/sentence_model.h"
#include "quant/packed_rows.h"
#include "quant/quant_config.h"
#include "shard/packed_form.h"
#include "shard/shard_engine.h"

namespace stft::checkpoint {

// Which weights: choose_four_bit. Tables of embeddings, norms and biases stay as they are.
class QuantizedBase {
 public:
  // Collective over `world`, with an adapter attached and before the engine is made: marks the weights as packed. With
  // double quantization every rank reads its share of the weights to find the mean of their absmax. UserError for a
  // weight that is not finite. Weights that are stored in 4 bits stay as they are. The model's tables keep their
  // addresses.
  QuantizedBase(model::SentenceModel& model, const PretrainedWeights& weights, const quant::QuantizationConfig& config,
                dist::ProcessGroup& world);

  // For the engine, in `compute` (fp32 or bf16).
  shard::PackedForms forms(at::ScalarType compute) const;

  // The rows of `base`, packed where they are to be: some groups of blocks at a time, each rank its own.
  shard::RowSource rows(shard::RowSource base) const;

  int64_t count() const { return static_cast<int64_t>(weights_.size()); }
  // Of the weights: as they are kept, all ranks together, and as fp32.
  int64_t packed_bytes() const;
  int64_t float_bytes() const;
  // Names of weights that have a block far larger than the others, so that double quantization would spoil the others:
  // their statistics stay fp32.
  const std::vector<std::string>& kept_single() const { return kept_single_; }
  // How many of the weights came quantized: their bytes are kept, whatever the recipe says of quantizing.
  int64_t stored_count() const;

 private:
  struct Weight {
    quant::PackedRows form;
    float offset = 0;
    const StoredFourBit* stored = nullptr;  // null: quantized by us
  };
  void survey(model::SentenceModel& model, const shard::RowSource& base, dist::ProcessGroup& world);

  std::map<const model::Parameter*, Weight> weights_;
  std::vector<std::string> kept_single_;
};

}  // namespace stft::checkpoint
