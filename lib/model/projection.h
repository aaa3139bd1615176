// The seam for adapters: every projection of an encoder by its name, with what may be added to it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "model/parameter.h"

namespace stft::model {

// A low-rank addition to a projection W (Hu et al., "LoRA", 2021): scale * (up(down(dropout(x))) + up_bias). With a
// magnitude m (Liu et al., "DoRA", 2024) the sum of both is scaled, output by output, by m / n with n the norms of the
// rows of W + scale * up * down; n counts as a constant in the backward pass (section 4.3 there).
struct LowRankBranch {
  const Parameter* down = nullptr;       // [rank, in]
  const Parameter* up = nullptr;         // [out, rank]
  const Parameter* up_bias = nullptr;    // [out]; null: none
  const Parameter* magnitude = nullptr;  // [out]; null: not DoRA
  double scale = 1.0;
  double dropout = 0.0;  // of the branch's input; used when the context has a dropout plan
};

// A projection, or a table of embeddings, by its place in the model. The families' Linears and Embeddings read it in
// every forward pass. A table projects one-hot rows: its weight is [in, out], where that of others is [out, in]; a
// branch of it has neither bias, magnitude nor dropout.
struct Projection {
  std::string name;   // without ".weight"
  int64_t block = 0;  // index into the model's blocks
  int64_t in = 0, out = 0;
  bool is_table = false;
  bool stays_whole = false;  // transformers quantizes it never (T5's wo: _keep_in_fp32_modules)
  const Parameter* weight = nullptr;
  const Parameter* bias = nullptr;  // null: none
  uint32_t dropout_site = 0;        // of a branch, within the layer
  std::optional<LowRankBranch> branch = std::nullopt;
};

// Projections keep their addresses.
using ProjectionTable = std::deque<Projection>;

}  // namespace stft::model
