// The weights of a model directory, matched to a model's parameters.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "model/sentence_model.h"
#include "shard/shard_engine.h"

namespace stft::checkpoint {

// Where a parameter comes from.
struct ParameterSource {
  std::string key;                          // in its source
  std::optional<TensorDescription> stored;  // none: initialised (a new Dense)
};

// Of safetensors files or a SHARDED checkpoint. Mapped, so a rank reads only the pages of its own rows. Files stay open
// as long as this lives.
class PretrainedWeights {
 public:
  // Opens the files of the model's directory and its modules, or the directory's pytorch_model_fsdp_0 when it is a
  // SHARDED checkpoint, and finds every parameter, with or without the family's prefix ("bert."). UserError listing all
  // parameters that are missing or have another shape or a type that is not F32, F16, BF16 or F64.
  static PretrainedWeights open(const model::SentenceModel& model);

  // Fills local rows, converted to fp32; a new Dense as torch.nn.Linear (uniform in +-1/sqrt(in_features)), a function
  // of seed, name and position only. Borrows this.
  shard::RowSource source() const;

  // In the order of the model's table.
  const std::vector<ParameterSource>& sources() const { return sources_; }

  // The tensors of module `index`; null when it has none.
  const TensorSource* source_of(int64_t module) const;

  // What the transformer's tensors are named with before the model's own names: "" or the family's ("bert.").
  const std::string& prefix() const { return prefix_; }

  // Tensors of the transformer that the model does not use; they are carried into checkpoints and exports. A tied head
  // that repeats the table of embeddings is none of them: it would be stale once the table is trained.
  const std::vector<std::string>& unused() const { return unused_; }

 private:
  // `tied` may hold a copy of the first parameter, which is left out; empty: none.
  std::vector<std::string> find_unused(const std::string& tied) const;

  const model::ModelSpec* spec_ = nullptr;
  const model::ParameterTable* table_ = nullptr;
  std::map<int64_t, std::unique_ptr<TensorSource>> tensors_;  // by module
  std::string prefix_;
  std::vector<ParameterSource> sources_;
  std::vector<std::string> unused_;
};

}  // namespace stft::checkpoint
