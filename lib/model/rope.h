// Rotary position embeddings (Su et al., "RoFormer", 2021) and their scalings for longer texts, as transformers 5.24
// computes them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "model/family_config.h"
#include "model/token_batch.h"

namespace stft::model {

// What a family's config.json may leave out.
struct RopeDefaults {
  int64_t head_dim = 0;       // rotated whole
  int64_t max_positions = 0;  // max_position_embeddings
  double theta = 10000.0;
};

// The rotary positions of one kind of layers, where a family has several.
struct LayerTypeRope {
  std::string layer_type;  // "full_attention" or "sliding_attention"
  std::string theta_key;   // of config.json, before there was rope_parameters
  double theta = 10000.0;
  bool takes_rope_scaling = true;
};

// cos and sin of the angles of a batch's tokens, fp32 [T, 1, head_dim / 2], with the scaling's factor in them.
struct RopeAngles {
  at::Tensor cos_T1E;
  at::Tensor sin_T1E;
};

class Rope {
 public:
  // From the config's rope_scaling or rope_parameters and rope_theta: rope_type default, linear, dynamic, yarn,
  // longrope or llama3. UserError naming the key otherwise.
  static Rope read(const FamilyConfig& config, const RopeDefaults& defaults);
  // Of the layers of one kind: its entry of rope_parameters, or rope_scaling, and the theta under the kind's own key.
  static Rope read_of_layer_type(const FamilyConfig& config, const LayerTypeRope& kind, const RopeDefaults& defaults);

  // Longrope takes its long factors for the texts that are longer than the original length, whatever their batch mates.
  RopeAngles angles(const TokenBatch& batch) const;

 private:
  // From `parameters`, an object such as the config's rope_parameters.
  static Rope from_parameters(const FamilyConfig& config, const io::Json& parameters, const RopeDefaults& defaults);

  at::Tensor inverse_frequencies_E_;       // fp32 [head_dim / 2]
  at::Tensor long_inverse_frequencies_E_;  // longrope: for texts of more than long_from_ tokens
  int64_t long_from_ = 0;
  double attention_factor_ = 1.0;
};

// x [T, heads * head_dim] rotated pairwise (element e with e + head_dim / 2). Differentiable in x.
at::Tensor rotate(const at::Tensor& x_TD, const RopeAngles& angles);

}  // namespace stft::model
