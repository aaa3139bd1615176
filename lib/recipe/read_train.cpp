// The blocks `train:`, `checkpoint:` and `launch:`, and the recipe as a whole.
#include <cmath>

#include "recipe/availability.h"
#include "recipe/scalars.h"
#include "recipe/sections.h"

namespace stft::recipe {

namespace {

constexpr IntegerRange kSteps{1, int64_t{1} << 53};

// Steps as HF counts them: a whole number, or below 1 a ratio of all steps.
std::optional<double> read_steps(Reader& reader, std::string_view key, NumberRange range) {
  range.high = static_cast<double>(kSteps.high);
  const std::optional<double> steps = reader.number(key, range);
  if (steps.has_value() && *steps >= 1.0 && *steps != std::floor(*steps)) {
    reader.diagnostics().add(reader.key_path(key), "must be a whole number of steps, or a ratio below 1, found " +
                                                       describe_found(*reader.child(key)));
    return std::nullopt;
  }
  return steps;
}

int64_t read_max_steps(Reader& reader) {
  const std::optional<int64_t> steps = reader.integer("max_steps", {-1, kSteps.high});
  if (steps == 0) {
    reader.diagnostics().add("train.max_steps", "must be at least 1, or -1 to train by epochs, found 0");
  }
  return steps.value_or(-1);
}

optim::OptimConfig read_optim(Reader& reader) {
  constexpr NumberRange kBeta = kBelowOne;
  optim::OptimConfig optim;
  optim.optim = reader.choice("optim", kOptimizers).value_or(optim.optim);
  optim.learning_rate = reader.number("learning_rate", kFromZero).value_or(optim.learning_rate);
  optim.learning_rate_mapping =
      reader.number_map("learning_rate_mapping", kFromZero).value_or(optim.learning_rate_mapping);
  optim.weight_decay = reader.number("weight_decay", kFromZero).value_or(optim.weight_decay);
  optim.adam_beta1 = reader.number("adam_beta1", kBeta).value_or(optim.adam_beta1);
  optim.adam_beta2 = reader.number("adam_beta2", kBeta).value_or(optim.adam_beta2);
  optim.adam_epsilon = reader.number("adam_epsilon", kFromZero).value_or(optim.adam_epsilon);
  optim.max_grad_norm = reader.number("max_grad_norm", kFromZero).value_or(optim.max_grad_norm);
  optim.lr_scheduler_type = reader.choice("lr_scheduler_type", kSchedules).value_or(optim.lr_scheduler_type);
  optim.warmup_steps = read_steps(reader, "warmup_steps", kFromZero).value_or(optim.warmup_steps);
  if (optim.lr_scheduler_type == optim::ScheduleType::kPolynomial && optim.learning_rate <= optim::kPolynomialEnd) {
    reader.diagnostics().add(reader.key_path("learning_rate"),
                             "must be above 1e-7, where the polynomial schedule ends");
  }
  return optim;
}

TrainConfig read_amounts(Reader& reader) {
  TrainConfig train;
  train.num_train_epochs = reader.number("num_train_epochs", {0.0, 1e9, true, false}).value_or(train.num_train_epochs);
  train.max_steps = read_max_steps(reader);
  train.per_device_train_batch_size =
      reader.integer("per_device_train_batch_size", kCount).value_or(train.per_device_train_batch_size);
  train.global_batch_size = reader.integer("global_batch_size", kCount);
  train.per_device_eval_batch_size =
      reader.integer("per_device_eval_batch_size", kCount).value_or(train.per_device_eval_batch_size);
  train.gradient_accumulation_steps =
      reader.integer("gradient_accumulation_steps", kCount).value_or(train.gradient_accumulation_steps);
  return train;
}

// auto or a number.
std::optional<int64_t> read_auto_count(Reader& reader, std::string_view key, IntegerRange range) {
  const YamlNode* node = reader.child(key);
  if (node == nullptr || (node->kind == YamlKind::kScalar && node->text == "auto")) {
    return std::nullopt;
  }
  if (node->kind != YamlKind::kScalar || node->quoted || scalar_kind(node->text) != ScalarKind::kInteger) {
    reader.diagnostics().add(reader.key_path(key), "expected auto or an integer, found " + describe_found(*node));
    return std::nullopt;
  }
  return reader.integer(key, range);
}

}  // namespace

TrainBlock read_train(Reader& root) {
  Reader reader = root.map("train");
  TrainConfig train = read_amounts(reader);
  const optim::OptimConfig optim = read_optim(reader);
  train.bf16 = reader.boolean("bf16").value_or(train.bf16);
  train.gradient_checkpointing = reader.boolean("gradient_checkpointing").value_or(train.gradient_checkpointing);
  train.packing = reader.choice("packing", kPackings).value_or(train.packing);
  train.shuffle = reader.boolean("shuffle").value_or(train.shuffle);
  train.on_nonfinite = reader.choice("on_nonfinite", kOnNonfinites).value_or(train.on_nonfinite);
  train.batch_sampler = reader.choice("batch_sampler", kBatchSamplers).value_or(train.batch_sampler);
  train.multi_dataset_batch_sampler = reader.choice("multi_dataset_batch_sampler", kMultiDatasetBatchSamplers)
                                          .value_or(train.multi_dataset_batch_sampler);
  train.dataloader_drop_last = reader.boolean("dataloader_drop_last").value_or(train.dataloader_drop_last);
  train.logging_steps = read_steps(reader, "logging_steps", kAboveZero).value_or(train.logging_steps);
  train.eval_strategy = reader.choice("eval_strategy", kEvalStrategies).value_or(train.eval_strategy);
  train.eval_steps = read_steps(reader, "eval_steps", kAboveZero);
  train.eval_on_start = reader.boolean("eval_on_start").value_or(train.eval_on_start);
  train.early_stopping_patience = reader.integer("early_stopping_patience", kCount);
  train.early_stopping_threshold =
      reader.number("early_stopping_threshold", kFromZero).value_or(train.early_stopping_threshold);
  reader.finish();
  return {train, optim};
}

checkpoint::CheckpointConfig read_checkpoint(Reader& root) {
  Reader reader = root.map("checkpoint");
  checkpoint::CheckpointConfig config;
  config.state_dict_type = reader.choice("state_dict_type", kStateDictTypes).value_or(config.state_dict_type);
  config.save_strategy = reader.choice("save_strategy", kSaveStrategies).value_or(config.save_strategy);
  config.save_steps = read_steps(reader, "save_steps", kAboveZero).value_or(config.save_steps);
  config.save_total_limit = reader.integer("save_total_limit", kCount);
  config.save_only_model = reader.boolean("save_only_model").value_or(config.save_only_model);
  config.adapter_only = reader.boolean("adapter_only").value_or(config.adapter_only);
  config.load_best_model_at_end = reader.boolean("load_best_model_at_end").value_or(config.load_best_model_at_end);
  config.metric_for_best_model = reader.text("metric_for_best_model");
  config.greater_is_better = reader.boolean("greater_is_better");
  config.is_async = reader.boolean("async").value_or(config.is_async);
  reader.finish();
  return config;
}

dist::LaunchConfig read_launch(Reader& root) {
  constexpr IntegerRange kProcesses{1, 4096};
  Reader reader = root.map("launch");
  dist::LaunchConfig launch;
  launch.nproc = read_auto_count(reader, "nproc", kProcesses);
  launch.backend = reader.choice("backend", kBackends).value_or(launch.backend);
  launch.timeout_s = reader.number("timeout_s", {1.0, 1e7}).value_or(launch.timeout_s);
  launch.threads_per_rank = read_auto_count(reader, "threads_per_rank", kProcesses);
  reader.finish();
  return launch;
}

Recipe read_recipe(const YamlNode& root, Diagnostics& diagnostics) {
  Reader reader(root.kind == YamlKind::kNull ? nullptr : &root, "", diagnostics);
  Recipe recipe;
  recipe.run = read_run(reader);
  recipe.model = read_model(reader);
  recipe.adapter = read_adapter(reader);
  recipe.quantization = read_quantization(reader);
  recipe.sharding = read_sharding(reader);
  recipe.data = read_data(reader);
  recipe.loss = read_loss(reader);
  recipe.evaluators = read_evaluators(reader);
  const TrainBlock train = read_train(reader);
  recipe.train = train.train;
  recipe.optim = train.optim;
  recipe.checkpoint = read_checkpoint(reader);
  recipe.launch = read_launch(reader);
  reader.finish();
  return recipe;
}

}  // namespace stft::recipe
