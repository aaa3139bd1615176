// A synthetic model for the engine: a look-up, a chain of layers, and maybe a head that is tied to the look-up's table.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/block_hooks.h"
#include "model/parameter.h"
#include "shard/shard_engine.h"

namespace stft::test {

struct ChainShape {
  int64_t layers = 3;
  int64_t width = 6;
  int64_t rows = 11;  // of the table
  bool has_tied_head = false;
  std::vector<int64_t> frozen_blocks = {};
  std::vector<std::string> frozen_parameters = {};
};

class ChainModel {
 public:
  explicit ChainModel(const ChainShape& shape) : shape_(shape) {
    add_block("embeddings", false);
    add("table", {shape.rows, shape.width});
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      add_block("encoder.layer." + std::to_string(layer), true);
      add("weight." + std::to_string(layer), {shape.width, shape.width});
      add("bias." + std::to_string(layer), {shape.width});
      add("scale." + std::to_string(layer), {1});
    }
    if (shape.has_tied_head) {
      add_block("head", true);
      add("head.bias", {shape.rows});
      blocks.back().parameters.push_back(0);
    }
    for (const int64_t block : shape.frozen_blocks) {
      for (const int64_t index : blocks[static_cast<size_t>(block)].parameters) {
        parameters[static_cast<size_t>(index)].is_trainable = false;
      }
    }
    for (model::Parameter& parameter : parameters) {
      const auto& frozen = shape.frozen_parameters;
      if (std::find(frozen.begin(), frozen.end(), parameter.name) != frozen.end()) {
        parameter.is_trainable = false;
      }
    }
  }

  // The whole value of a parameter.
  static at::Tensor initial(const model::Parameter& parameter) {
    const auto seed = static_cast<double>(parameter.name.size() + parameter.name.back());
    auto value = (at::arange(parameter.numel(), at::kFloat) * 0.7 + seed).sin() * 0.4;
    return (parameter.name.starts_with("scale") ? value.abs() + 0.5 : value).view(parameter.shape);
  }

  static shard::RowSource source() {
    return [](const model::Parameter& parameter, const shard::ShardLayout& layout, at::Tensor destination) {
      destination.copy_(
          initial(parameter).view({-1}).narrow(0, layout.first_row * layout.row_numel, layout.own_numel()));
    };
  }

  // Leaves without an engine.
  void fill_plain() {
    for (model::Parameter& parameter : parameters) {
      parameter.leaf = initial(parameter).clone();
      parameter.leaf.set_requires_grad(parameter.is_trainable);
    }
  }

  at::Tensor forward(const at::Tensor& ids, model::BlockObserver* observer) const {
    auto x = forward_to(shape_.layers, ids, observer);
    if (shape_.has_tied_head) {
      const int64_t head = shape_.layers + 1;
      x = observer ? observer->before_block(head, x) : x;
      x = at::linear(x, leaf(0), leaf(static_cast<int64_t>(parameters.size()) - 1));
      x = observer ? observer->after_block(head, x) : x;
    }
    return x;
  }

  // Through the first `layers` layers.
  at::Tensor forward_to(int64_t layers, const at::Tensor& ids, model::BlockObserver* observer) const {
    const auto enter = [&](int64_t block, const at::Tensor& x) {
      return observer ? observer->before_block(block, x) : x;
    };
    const auto leave = [&](int64_t block, const at::Tensor& x) {
      return observer ? observer->after_block(block, x) : x;
    };
    enter(0, {});
    auto x = leave(0, at::embedding(leaf(0), ids));
    for (int64_t layer = 0; layer < layers; ++layer) {
      x = enter(layer + 1, x);
      const auto y = at::tanh(at::linear(x, leaf(1 + 3 * layer), leaf(2 + 3 * layer))) * leaf(3 + 3 * layer);
      x = leave(layer + 1, y + x);
    }
    return x;
  }

  model::ParameterTable parameters;
  std::vector<model::Block> blocks;

 private:
  void add_block(std::string name, bool is_read_by_backward) {
    blocks.push_back({std::move(name), {}, is_read_by_backward});
  }
  void add(std::string name, std::vector<int64_t> shape) {
    model::Parameter parameter;
    parameter.name = std::move(name);
    parameter.shape = std::move(shape);
    blocks.back().parameters.push_back(static_cast<int64_t>(parameters.size()));
    parameters.push_back(std::move(parameter));
  }
  const at::Tensor& leaf(int64_t index) const { return model::value(parameters[static_cast<size_t>(index)]); }

  ChainShape shape_;
};

// Rank `rank`'s ids of `rows` rows that are cut evenly.
inline at::Tensor chain_ids(int64_t rows, int64_t table_rows) {
  return (at::arange(rows, at::kLong) * 7 + 3) % table_rows;
}

inline at::Tensor chain_loss(const at::Tensor& output) {
  const auto wide = output.to(at::kFloat);
  return (wide * wide * 0.5 + wide.sin()).sum();
}

}  // namespace stft::test
