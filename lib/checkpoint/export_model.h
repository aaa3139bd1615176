// The model as a sentence-transformers directory that Python's SentenceTransformer loads.
#pragma once

#include <string>

#include "checkpoint/pretrained.h"
#include "dist/process_group.h"
#include "model/sentence_model.h"
#include "shard/shard_engine.h"

namespace stft::checkpoint {

struct ExportSource {
  const model::SentenceModel& model;
  const PretrainedWeights& weights;
  shard::ShardEngine& engine;
  dist::ProcessGroup& world;
};

// Collective: writes `directory`, which must not exist: model.safetensors (each tensor in the input's type, one tensor
// in memory at a time; tensors of the input that the model does not use are carried), the modules' weights, and the
// configuration. Files that need no change are copied from the model's directory; weights in other formats are not.
// Rank 0 writes to a temporary directory beside it, makes it durable and renames. SystemError when that fails.
void export_model(const ExportSource& source, const std::string& directory);

}  // namespace stft::checkpoint
