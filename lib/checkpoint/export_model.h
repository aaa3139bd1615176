// The model as a sentence-transformers directory that Python's SentenceTransformer loads.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "checkpoint/model_writer.h"
#include "checkpoint/pretrained.h"
#include "dist/process_group.h"
#include "model/sentence_model.h"
#include "quant/quant_config.h"
#include "shard/shard_engine.h"

namespace stft::checkpoint {

struct ExportSource {
  const model::SentenceModel& model;
  const PretrainedWeights& weights;
  shard::ShardEngine& engine;
  dist::ProcessGroup& world;
  const peft::Adapter* adapter = nullptr;         // then the directory is that of the adapter alone
  std::map<std::string, std::string> texts = {};  // file name -> content, to write along
};

// Collective: writes `directory`: model.safetensors (each tensor in the input's type, one tensor in memory at a time;
// tensors of the input that the model does not use are carried), the modules' weights, and the configuration. Files
// that need no change are copied from the model's directory; weights in other formats are not. Rank 0 writes to a
// temporary directory beside it, makes it durable and renames; what had the name is replaced. A rank that fails throws
// what happened, the others CollectiveError.
void export_model(const ExportSource& source, const std::string& directory);

struct ExportOptions {
  WeightPrecision precision = WeightPrecision::kAsInput;
  std::string out;
  std::string base = {};     // the base model of an adapter; empty: where its configuration says
  bool merges_lora = false;  // the adapter into its base
  // Set: into the base as it is computed with when it is quantized so, not into the base itself. Without effect on a
  // base that holds weights in 4 bits already.
  std::optional<quant::QuantizationConfig> dequantized_base = std::nullopt;
};

// The same from files alone, on one process: a checkpoint of stft (FULL or SHARDED), a model directory, or an
// adapter's, which stays one unless it is merged. UserError when the checkpoint is unfinished or damaged, the directory
// is no model, there is no adapter to merge, or merging would change nothing.
void export_directory(const std::string& checkpoint, const ExportOptions& options);

// Parameters gathered from the engine (Collective), carried tensors from the input; these on the writing rank only.
WholeTensors engine_tensors(shard::ShardEngine& engine, const PretrainedWeights& weights, bool is_writer);

// What the config.json of a model tells as its type.
std::optional<std::string> input_dtype(const model::ModelSpec& spec);

}  // namespace stft::checkpoint
