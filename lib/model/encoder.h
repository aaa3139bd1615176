// A transformer encoder: token ids to token vectors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/json.h"
#include "model/block_hooks.h"
#include "model/parameter.h"
#include "model/projection.h"
#include "model/token_batch.h"

namespace stft::model {

// What one forward pass needs besides its batch. The observer is borrowed for the call.
struct ForwardContext {
  BlockObserver* observer = nullptr;
  std::optional<DropoutPlan> dropout;  // none: evaluation
  bool recomputes = false;             // layers keep their input for the backward pass and compute again there
};

// A piece of the names of tensors in published files of a family and what it is here: with several the tensor holds
// those one after the other, in equal parts of its rows. An empty one: the piece is left out.
struct PublishedName {
  std::string piece;
  std::vector<std::string> ours;
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

  // What the names of its tensors may begin with in a file of a model with a head ("bert.").
  virtual std::string weight_prefix() const = 0;
  // A tensor of such a file that is the first parameter once more; empty: none.
  virtual std::string tied_weight() const { return {}; }
  // The name under which transformers' own module looks tokens up when that is not the first parameter's, though both
  // are one tensor (T5); empty: it is.
  virtual std::string input_copy() const { return {}; }
  // Where published files name tensors otherwise than this encoder: applied in this order, each once to a name.
  virtual std::vector<PublishedName> published_names() const { return {}; }
};

// What an encoder is built into: its parameters (leaves undefined), blocks and projections are appended, and it keeps
// references to the parameters and projections.
struct EncoderParts {
  ParameterTable& parameters;
  std::vector<Block>& blocks;
  ProjectionTable& projections;
};

struct EncoderInput {
  const io::Json& config;
  std::string origin;             // config.json, for messages
  std::optional<double> dropout;  // replaces the config's dropouts
  EncoderParts parts;
};

// The encoder that config.json's model_type names. UserError naming `origin` and the key for a family or option that is
// not available.
std::unique_ptr<Encoder> build_encoder(const EncoderInput& input);

// config.json as it goes with the tensors that are written: of a family that was published with code and names of its
// own in the form that transformers reads without that code.
io::Json config_for_export(const io::Json& config, const std::string& origin);

// The width of the token vectors that config.json announces, under whatever name its family has for it.
int64_t configured_hidden_size(const io::Json& config, const std::string& origin);

// Whether config.json's family is one whose tokens see only earlier ones unless is_causal is false.
bool is_decoder_family(const io::Json& config);

}  // namespace stft::model
