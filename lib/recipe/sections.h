// One function for each block of the recipe: the mapping at the root to the block's typed configuration. Values that
// are wrong become problems of `root.diagnostics()` and read as unset. Nothing here looks at files or at other blocks.
#pragma once

#include <optional>
#include <vector>

#include "recipe/reader.h"
#include "recipe/recipe.h"

namespace stft::recipe {

// `train:` holds the keys of two configurations.
struct TrainBlock {
  TrainConfig train;
  optim::OptimConfig optim;
};

RunConfig read_run(Reader& root);
model::ModelConfig read_model(Reader& root);
std::optional<peft::AdapterConfig> read_adapter(Reader& root);
std::optional<quant::QuantizationConfig> read_quantization(Reader& root);
shard::ShardConfig read_sharding(Reader& root);
loss::LossConfig read_loss(Reader& root);
data::DataConfig read_data(Reader& root);
std::vector<eval::EvaluatorConfig> read_evaluators(Reader& root);
TrainBlock read_train(Reader& root);
checkpoint::CheckpointConfig read_checkpoint(Reader& root);
dist::LaunchConfig read_launch(Reader& root);

// All blocks; unknown blocks are problems. `root`: the document.
Recipe read_recipe(const YamlNode& root, Diagnostics& diagnostics);

}  // namespace stft::recipe
