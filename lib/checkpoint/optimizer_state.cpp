#include "checkpoint/optimizer_state.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
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

double learning_rate_of(const model::Parameter& parameter, double of_the_run) {
  return parameter.learning_rate.value_or(of_the_run);
}

struct Group {
  double learning_rate = 0;  // before the schedule
  bool has_decay = true;
  io::PythonList names;
};

// In the peer's order: the run's own rate, then those of the patterns; with weight decay, then without.
std::vector<Group> groups_of(const std::vector<shard::LocalParameter>& parameters, const optim::OptimConfig& config) {
  std::vector<double> rates = {config.learning_rate};
  for (const auto& [pattern, rate] : config.learning_rate_mapping) {
    if (std::find(rates.begin(), rates.end(), rate) == rates.end()) {
      rates.push_back(rate);
    }
  }
  std::vector<Group> groups;
  for (const double rate : rates) {
    for (const bool has_decay : {true, false}) {
      Group group{rate, has_decay, {}};
      for (const shard::LocalParameter& local : parameters) {
        const model::Parameter& parameter = *local.parameter;
        if (parameter.is_trainable && parameter.has_weight_decay == has_decay &&
            learning_rate_of(parameter, config.learning_rate) == rate) {
          group.names.items.push_back({state_name(parameter)});
        }
      }
      if (!group.names.items.empty()) {
        groups.push_back(std::move(group));
      }
    }
  }
  return groups;
}

using Fields = std::vector<std::pair<std::string, PythonValue>>;

// The keys of torch 2.15's and bitsandbytes' parameter groups; a reader of another version may know more or fewer.
Fields group_fields(const OptimizerSource& source, const Group& group) {
  const optim::OptimConfig& config = source.config;
  Fields fields = {{"lr", {group.learning_rate * source.rate_factor}},
                   {"initial_lr", {group.learning_rate}},
                   {"weight_decay", {group.has_decay ? config.weight_decay : 0.0}}};
  const auto add = [&](const Fields& more) { fields.insert(fields.end(), more.begin(), more.end()); };
  if (config.optim != optim::OptimizerType::kSgd) {
    add({{"betas", {io::PythonTuple{{{config.adam_beta1}, {config.adam_beta2}}}}}, {"eps", {config.adam_epsilon}}});
  }
  if (config.optim == optim::OptimizerType::kAdamW8bit) {
    add({{"alpha", {0.0}}, {"t_alpha", none()}, {"t_beta3", none()}});
    return fields;
  }
  add({{"maximize", {false}}, {"foreach", none()}, {"differentiable", {false}}});
  if (config.optim == optim::OptimizerType::kSgd) {
    add({{"momentum", {0.0}}, {"dampening", {0.0}}, {"nesterov", {false}}, {"fused", none()}});
  } else {
    add({{"amsgrad", {false}}, {"capturable", {false}}, {"fused", {true}}, {"decoupled_weight_decay", {true}}});
  }
  return fields;
}

void add_groups(ShardedWriter& writer, const OptimizerSource& source,
                const std::vector<shard::LocalParameter>& parameters) {
  int64_t index = 0;
  for (Group& group : groups_of(parameters, source.config)) {
    Fields fields = group_fields(source, group);
    fields.push_back({"params", {std::move(group.names)}});
    for (const auto& [name, value] : fields) {
      writer.add_object({std::string("optimizer"), std::string("param_groups"), index, name}, value);
    }
    index += 1;
  }
}

// Bytes of `rows` of the rows that a state tensor holds.
std::span<const std::byte> bytes_of(const optim::StateTensor& state, RowRange rows) {
  const auto* data = static_cast<const std::byte*>(state.tensor.const_data_ptr());
  const auto row_bytes = state.row_numel * static_cast<int64_t>(state.tensor.element_size());
  return {data + rows.first * row_bytes, static_cast<size_t>(rows.count * row_bytes)};
}

// How a state tensor is stored: as the parameter when its rows are as wide, else as rows and what a row has of it.
ShardedTensor stored_as(const optim::StateTensor& state, const model::Parameter& parameter) {
  const bool is_float = state.tensor.scalar_type() == at::kFloat;
  STFT_CHECK(is_float || state.tensor.scalar_type() == at::kByte, "states are fp32 or bytes");
  const bool is_as_wide = state.row_numel == facts_of(parameter).row_numel;
  return {state_path(parameter, state.name), is_float ? io::Dtype::kF32 : io::Dtype::kU8,
          is_as_wide ? parameter.shape : std::vector<int64_t>{parameter.shape.front(), state.row_numel}};
}

// A checkpoint's optimizer, read into an optimizer's own.
class OptimizerReader {
 public:
  explicit OptimizerReader(const std::string& directory)
      : directory_(directory), stored_(DcpDirectory::open(directory)) {}

  void read(const shard::LocalParameter& local, std::vector<optim::StateTensor>& state) const {
    std::vector<std::string> missing;
    for (optim::StateTensor& part : state) {
      if (!read_part(local, part)) {
        missing.push_back(part.name);
      }
    }
    if (!missing.empty() && missing.size() < state.size()) {
      throw UserError(
          fmt::format("{}: '{}' has no {}", directory_, state_name(*local.parameter), fmt::join(missing, ", ")));
    }
  }

  int64_t steps(const model::Parameter& parameter) const {
    const DcpTensor* step = find_state(stored_, parameter, "step");
    if (step == nullptr || !step->shape.empty() || step->dtype != io::Dtype::kF32) {
      return 0;
    }
    float value = 0;
    stored_.read_rows_into(*step, 0, 1, {reinterpret_cast<std::byte*>(&value), sizeof(value)});
    return static_cast<int64_t>(value);
  }

 private:
  // False, and zeros: there is none.
  bool read_part(const shard::LocalParameter& local, optim::StateTensor& part) const {
    const ShardedTensor expected = stored_as(part, *local.parameter);
    const DcpTensor* tensor = find_state(stored_, *local.parameter, part.name);
    if (tensor == nullptr) {
      part.tensor.zero_();
      return false;
    }
    if (tensor->shape != expected.shape || tensor->dtype != expected.dtype) {
      throw UserError(fmt::format("{}: '{}' has shape [{}] and type {}, expected [{}] and {}", directory_, tensor->key,
                                  fmt::join(tensor->shape, ", "), io::dtype_name(tensor->dtype),
                                  fmt::join(expected.shape, ", "), io::dtype_name(expected.dtype)));
    }
    stored_.read_rows_into(
        *tensor, local.layout.first_row, local.layout.own_rows,
        {static_cast<std::byte*>(part.tensor.data_ptr()), static_cast<size_t>(part.tensor.nbytes())});
    return true;
  }

  std::string directory_;
  DcpDirectory stored_;
};

}  // namespace

optim::TensorFacts facts_of(const model::Parameter& parameter) {
  return {parameter.numel() / std::max<int64_t>(1, parameter.shape.front()), parameter.numel(), parameter.is_table};
}

std::vector<optim::Update> updates_of(const std::vector<shard::LocalParameter>& parameters,
                                      const UpdateOptions& options) {
  std::vector<optim::Update> updates;
  for (const shard::LocalParameter& local : parameters) {
    const model::Parameter& parameter = *local.parameter;
    if (parameter.is_trainable) {
      const bool makes_zeros = options.needs_gradients && !local.gradient.defined();
      updates.push_back({local.value, makes_zeros ? at::zeros_like(local.value) : local.gradient,
                         parameter.has_weight_decay, learning_rate_of(parameter, options.learning_rate),
                         facts_of(parameter)});
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
  const auto state = source.optimizer.state(updates_of(parameters, {.needs_gradients = false}));
  const auto steps = static_cast<float>(source.optimizer.steps());
  size_t update = 0;
  for (const shard::LocalParameter& local : parameters) {
    if (!local.parameter->is_trainable) {
      continue;
    }
    const RowRange rows = rows_to_write(local);
    for (const optim::StateTensor& part : state[update]) {
      writer.add_rows(stored_as(part, *local.parameter), rows,
                      bytes_of(part, {rows.first - local.layout.first_row, rows.count}));
    }
    if (!state[update].empty()) {
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
  const OptimizerReader reader(directory);
  const auto parameters = engine.local_parameters();
  auto state = optimizer.state(updates_of(parameters, {.needs_gradients = false}));
  int64_t steps = 0;
  size_t update = 0;
  for (const shard::LocalParameter& local : parameters) {
    if (local.parameter->is_trainable) {
      reader.read(local, state[update]);
      steps = std::max(steps, reader.steps(*local.parameter));
      update += 1;
    }
  }
  optimizer.set_steps(steps);
}

}  // namespace stft::checkpoint
