// Attention biases that depend on how far the key stands from the query (Raffel et al., "T5", 2020).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/attention.h"
#include "model/parameter.h"

namespace stft::model {

// Half of the buckets are for keys behind the query, half for keys ahead; near distances have their own, farther ones
// share them in logarithmic steps.
struct RelativeBuckets {
  int64_t buckets = 32;
  int64_t max_distance = 128;
};

// The table's rows for every distance of texts of up to `longest` tokens: [2 * longest - 1, heads], row
// key - query + longest - 1. Differentiable in `table`.
at::Tensor relative_bias_rows(const at::Tensor& table, const RelativeBuckets& buckets, int64_t longest);

// The bias of a bucket of texts from such rows.
ScoreBias relative_score_bias(at::Tensor rows);

}  // namespace stft::model
