// A sentence-embedding model: encoder, pooling, and the modules after it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "model/encoder.h"
#include "model/model_spec.h"

namespace stft::model {

// Knows its parameters by shape only until somebody fills their leaves.
class SentenceModel {
 public:
  explicit SentenceModel(ModelSpec spec);

  // The model points into its own table, so it stays where it is.
  SentenceModel(const SentenceModel&) = delete;
  SentenceModel& operator=(const SentenceModel&) = delete;

  const ModelSpec& spec() const { return spec_; }
  const Encoder& encoder() const { return *encoder_; }
  ParameterTable& parameters() { return parameters_; }
  const ParameterTable& parameters() const { return parameters_; }
  std::vector<Block>& blocks() { return blocks_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  ProjectionTable& projections() { return projections_; }
  const ProjectionTable& projections() const { return projections_; }

  // Longest text in tokens, special tokens included: max_seq_length, but no more than the encoder has positions.
  int64_t max_seq_length() const;

  // One vector a text, fp32 [N, embedding_dim], in the caller's order. Differentiable.
  at::Tensor embed(const TokenBatch& batch, const ForwardContext& context) const;

 private:
  struct DenseModule {
    const Parameter* weight = nullptr;
    const Parameter* bias = nullptr;      // null: none
    const Parameter* residual = nullptr;  // null: none
    bool use_residual = false;
    DenseActivation activation = DenseActivation::kTanh;
    int64_t block = 0;
  };
  void add_dense(const ModuleSpec& module, int64_t index);
  at::Tensor apply_dense(const DenseModule& dense, at::Tensor vectors_ND, const ForwardContext& context) const;

  ModelSpec spec_;
  ParameterTable parameters_;
  std::vector<Block> blocks_;
  ProjectionTable projections_;
  std::unique_ptr<Encoder> encoder_;
  std::vector<DenseModule> dense_;
};

}  // namespace stft::model
