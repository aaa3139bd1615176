// The weights of a model directory, matched to a model's parameters.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/weights_index.h"
#include "model/sentence_model.h"
#include "shard/shard_engine.h"

namespace stft::checkpoint {

// Where a parameter comes from.
struct ParameterSource {
  std::string key;                         // in its file
  std::optional<io::StoredTensor> stored;  // none: initialised (a new Dense)
};

// Mapped, so a rank reads only the pages of its own rows. Files stay open as long as this lives.
class PretrainedWeights {
 public:
  // Opens the files of the model's directory and its modules and finds every parameter, with or without the family's
  // prefix ("bert."). UserError listing all parameters that are missing or have another shape or a type that is not
  // F32, F16, BF16 or F64.
  static PretrainedWeights open(const model::SentenceModel& model);

  // Fills local rows, converted to fp32; a new Dense as torch.nn.Linear (uniform in +-1/sqrt(in_features)), a function
  // of seed, name and position only. Borrows this.
  shard::RowSource source() const;

  // In the order of the model's table.
  const std::vector<ParameterSource>& sources() const { return sources_; }

  // The files of module `index`; null when it has none.
  const io::ModelWeights* weights_of(int64_t module) const;

  // Tensors of the transformer's files that the model does not use; they are carried into exports.
  std::vector<std::string> unused() const;

 private:
  const model::ModelSpec* spec_ = nullptr;
  const model::ParameterTable* table_ = nullptr;
  std::map<int64_t, io::ModelWeights> weights_;  // by module
  std::vector<ParameterSource> sources_;
};

}  // namespace stft::checkpoint
