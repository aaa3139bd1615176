// A transformer encoder: token ids to token vectors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "io/json.h"
#include "model/block_hooks.h"
#include "model/parameter.h"
#include "model/token_batch.h"

namespace stft::model {

// What one forward pass needs besides its batch. The observer is borrowed for the call.
struct ForwardContext {
  BlockObserver* observer = nullptr;
  std::optional<DropoutPlan> dropout;  // none: evaluation
  bool recomputes = false;             // layers keep their input for the backward pass and compute again there
};

class Encoder {
 public:
  virtual ~Encoder() = default;

  // Token vectors [T, hidden] in the batch's layout and the dtype of the leaves. Padding positions hold finite values
  // that mean nothing. Blocks 0 .. blocks - 1 are announced to the observer.
  virtual at::Tensor forward(const TokenBatch& batch, const ForwardContext& context) const = 0;

  virtual int64_t hidden_size() const = 0;
  virtual int64_t max_positions() const = 0;  // longest text in tokens
  virtual int64_t vocab_size() const = 0;
};

// Builds the encoder that config.json's model_type names: appends its parameters (leaves undefined) to `parameters` and
// its blocks to `blocks`, and keeps references to the parameters. `dropout` replaces the config's dropouts. UserError
// naming `origin` and the key for a family or option that is not available.
struct EncoderParts {
  ParameterTable& parameters;
  std::vector<Block>& blocks;
};
std::unique_ptr<Encoder> build_encoder(const io::Json& config, const std::string& origin, std::optional<double> dropout,
                                       EncoderParts parts);

}  // namespace stft::model
