#include "checkpoint/optimizer_state.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <utility>

#include "base/error.h"
#include "checkpoint/dcp_reader.h"

namespace stft::checkpoint {
namespace {

using io::PythonValue;

PythonValue none() {
  return {io::PythonNone{}};
}

// "0.model.encoder...": the parameter's name in sentence-transformers' state dict.
std::string state_name(const model::Parameter& parameter) {
  return parameter.state_name();
}

DcpPath state_path(const model::Parameter& parameter, const std::string& field) {
  return {std::string("optimizer"), std::string("state"), state_name(parameter), field};
}

// Also under the name that earlier versions gave it, as if PEFT had wrapped nothing; null: not there.
const DcpTensor* find_state(const DcpDirectory& stored, const model::Parameter& parameter, const std::string& field) {
  const DcpTensor* found = stored.find(dcp_key(state_path(parameter, field)));
  return found != nullptr ? found
                          : stored.find("optimizer.state." + parameter.state_path + parameter.name + "." + field);
}

using Fields = std::vector<std::pair<std::string, PythonValue>>;

// The keys of torch 2.15's parameter groups; a reader of another version may know more or fewer.
Fields group_fields(const OptimizerSource& source, bool has_decay) {
  const optim::OptimConfig& config = source.config;
  Fields fields = {{"lr", {source.learning_rate}},
                   {"initial_lr", {config.learning_rate}},
                   {"weight_decay", {has_decay ? config.weight_decay : 0.0}},
                   {"maximize", {false}},
                   {"foreach", none()},
                   {"differentiable", {false}}};
  if (config.optim == optim::OptimizerType::kSgd) {
    const Fields more = {{"momentum", {0.0}}, {"dampening", {0.0}}, {"nesterov", {false}}, {"fused", none()}};
    fields.insert(fields.end(), more.begin(), more.end());
  } else {
    const Fields more = {{"betas", {io::PythonTuple{{{config.adam_beta1}, {config.adam_beta2}}}}},
                         {"eps", {config.adam_epsilon}},
                         {"amsgrad", {false}},
                         {"capturable", {false}},
                         {"fused", {true}},
                         {"decoupled_weight_decay", {true}}};
    fields.insert(fields.end(), more.begin(), more.end());
  }
  return fields;
}

void add_groups(ShardedWriter& writer, const OptimizerSource& source,
                const std::vector<shard::LocalParameter>& parameters) {
  int64_t index = 0;
  for (const bool has_decay : {true, false}) {
    io::PythonList names;
    for (const shard::LocalParameter& local : parameters) {
      if (local.parameter->is_trainable && local.parameter->has_weight_decay == has_decay) {
        names.items.push_back({state_name(*local.parameter)});
      }
    }
    if (names.items.empty()) {
      continue;
    }
    Fields fields = group_fields(source, has_decay);
    fields.push_back({"params", {std::move(names)}});
    for (const auto& [name, value] : fields) {
      writer.add_object({std::string("optimizer"), std::string("param_groups"), index, name}, value);
    }
    index += 1;
  }
}

std::span<const std::byte> bytes_of(const at::Tensor& flat, int64_t first, int64_t count) {
  const auto* data = static_cast<const std::byte*>(flat.const_data_ptr());
  const auto element = static_cast<int64_t>(flat.element_size());
  return {data + first * element, static_cast<size_t>(count * element)};
}

}  // namespace

std::vector<optim::Update> updates_of(const std::vector<shard::LocalParameter>& parameters, bool needs_gradients) {
  std::vector<optim::Update> updates;
  for (const shard::LocalParameter& local : parameters) {
    if (local.parameter->is_trainable) {
      const bool makes_zeros = needs_gradients && !local.gradient.defined();
      updates.push_back(
          {local.value, makes_zeros ? at::zeros_like(local.value) : local.gradient, local.parameter->has_weight_decay});
    }
  }
  return updates;
}

RowRange rows_to_write(const shard::LocalParameter& local) {
  const shard::ShardLayout& layout = local.layout;
  if (layout.own_rows == 0) {
    return {layout.first_row, 0};
  }
  const auto part = shard::shard_layout({layout.own_rows, layout.row_numel}, local.copy, local.copies);
  return {layout.first_row + part.first_row, part.own_rows};
}

void add_optimizer(ShardedWriter& writer, const OptimizerSource& source, shard::ShardEngine& engine) {
  const auto parameters = engine.local_parameters();
  const auto state = source.optimizer.state(updates_of(parameters, false));
  const auto steps = static_cast<float>(source.optimizer.steps());
  size_t update = 0;
  for (const shard::LocalParameter& local : parameters) {
    if (!local.parameter->is_trainable) {
      continue;
    }
    const RowRange rows = rows_to_write(local);
    const int64_t first = (rows.first - local.layout.first_row) * local.layout.row_numel;
    for (size_t i = 0; i < state.names.size(); ++i) {
      writer.add_rows({state_path(*local.parameter, state.names[i]), io::Dtype::kF32, local.parameter->shape}, rows,
                      bytes_of(state.tensors[update][i], first, rows.count * local.layout.row_numel));
    }
    if (!state.names.empty()) {
      // A scalar: one rank's, the one that holds the first row.
      const RowRange one = {0, rows.first == 0 && rows.count > 0 ? 1 : 0};
      writer.add_rows({state_path(*local.parameter, "step"), io::Dtype::kF32, {}}, one,
                      {reinterpret_cast<const std::byte*>(&steps), sizeof(steps)});
    }
    update += 1;
  }
  add_groups(writer, source, parameters);
}

void load_optimizer(const std::string& directory, optim::Optimizer& optimizer, shard::ShardEngine& engine) {
  const DcpDirectory stored = DcpDirectory::open(directory);
  const auto parameters = engine.local_parameters();
  auto state = optimizer.state(updates_of(parameters, false));
  int64_t steps = 0;
  size_t update = 0;
  for (const shard::LocalParameter& local : parameters) {
    if (!local.parameter->is_trainable) {
      continue;
    }
    for (size_t i = 0; i < state.names.size(); ++i) {
      const DcpTensor* tensor = find_state(stored, *local.parameter, state.names[i]);
      at::Tensor& target = state.tensors[update][i];
      if (tensor == nullptr) {
        target.zero_();
        continue;
      }
      if (tensor->shape != local.parameter->shape || tensor->dtype != io::Dtype::kF32) {
        throw UserError(fmt::format("{}: '{}' has shape [{}] and type {}, expected [{}] and F32", directory,
                                    tensor->key, fmt::join(tensor->shape, ", "), io::dtype_name(tensor->dtype),
                                    fmt::join(local.parameter->shape, ", ")));
      }
      stored.read_rows_into(*tensor, local.layout.first_row, local.layout.own_rows,
                            {static_cast<std::byte*>(target.data_ptr()), static_cast<size_t>(target.nbytes())});
    }
    const DcpTensor* step = find_state(stored, *local.parameter, "step");
    if (step != nullptr && step->shape.empty() && step->dtype == io::Dtype::kF32) {
      float value = 0;
      stored.read_rows_into(*step, 0, 1, {reinterpret_cast<std::byte*>(&value), sizeof(value)});
      steps = std::max(steps, static_cast<int64_t>(value));
    }
    update += 1;
  }
  optimizer.set_steps(steps);
}

}  // namespace stft::checkpoint
