// The parameters of a model as a table, and the blocks that its forward pass walks through.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace stft::model {

// One tensor of the model. The model computes with `leaf`; who fills it (a plain load, or the sharding engine before
// each use) is not the model's business. `leaf` keeps its identity for the life of the model; while it is not filled,
// its storage has zero bytes.
//
// Leaves are fp32 or bf16, all of a model alike. With bf16 the token vectors between blocks are bf16 too; norms,
// softmax, dropout, pooling and all after it are computed in fp32.
struct Parameter {
  std::string name;            // the tensor's name in its module's safetensors file, without a family prefix
  int64_t module = 0;          // which module of modules.json owns it (0: the transformer)
  std::string state_path;      // what precedes `name` in sentence-transformers' state dict ("0.model.", "2.")
  std::string wrapped_name;    // there instead of `name` in a model that PEFT wrapped; empty: `name`
  std::vector<int64_t> shape;  // at least one dimension
  bool is_trainable = true;
  bool is_table = false;         // looked up by ids (torch.nn.Embedding's weight)
  bool has_weight_decay = true;  // false for biases and normalization weights
  // Of its own, before the schedule; nothing: the run's.
  std::optional<double> learning_rate = std::nullopt;
  // What the value is kept in between uses: a trainable parameter in fp32, a frozen one as its file has it.
  at::ScalarType stored_dtype = at::kFloat;
  at::Tensor leaf;  // fp32 or bf16

  int64_t numel() const;
  // In sentence-transformers' state dict: "0.model.encoder.layer.0.attention.self.query.weight".
  std::string state_name() const { return state_path + (wrapped_name.empty() ? name : wrapped_name); }
};

// Parameters keep their addresses.
using ParameterTable = std::deque<Parameter>;

// A stretch of the forward pass between two calls of the observer. A block uses its own parameters only.
struct Block {
  std::string name;
  std::vector<int64_t> parameters;  // indices into the table
  bool is_read_by_backward = true;  // false: the backward pass does not read the parameters (table look-ups)
};

// The parameter's tensor for computing; InternalError when it is not filled.
const at::Tensor& value(const Parameter& parameter);

}  // namespace stft::model
