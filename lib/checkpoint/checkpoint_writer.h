// Writing a checkpoint by all ranks: the model FULL (a sentence-transformers directory) or SHARDED (classic
// torch.distributed.checkpoint), the optimizer always sharded.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "checkpoint/manifest.h"
#include "checkpoint/optimizer_state.h"
#include "checkpoint/pretrained.h"
#include "dist/process_group.h"
#include "model/sentence_model.h"
#include "shard/shard_engine.h"

namespace stft::checkpoint {

struct CheckpointContent {
  const model::SentenceModel& model;
  const PretrainedWeights& weights;  // for the tensors that are carried
  shard::ShardEngine& engine;
  dist::ProcessGroup& world;
  std::optional<OptimizerSource> optimizer;  // none: the model only
  Manifest manifest;                         // type, step, recipe hash, metrics, score; the rest is filled in
  std::map<std::string, std::string> texts;  // file name -> content: run state, trainer state, recipe; from rank 0
  const peft::Adapter* adapter = nullptr;    // then the adapter and what else is trained
  AdapterScope scope = AdapterScope::kAdapterOnly;
};

// Collective: writes `directory` + ".tmp", makes it durable, lets all ranks agree that their part is written, and gives
// it its name; a directory of that name is replaced. Peak memory beside the shards: about the largest tensor. When a
// rank fails nothing of the name is touched: that rank throws what happened, the others CollectiveError.
void write_checkpoint(const CheckpointContent& content, const std::string& directory);

}  // namespace stft::checkpoint
