#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "recipe/choices.h"
#include "recipe/recipe.h"
#include "recipe/yaml_writer.h"

namespace stft::recipe {

namespace {

constexpr const char* kNull = "null";

std::string yaml(const std::string& value) {
  return yaml_string(value);
}
std::string yaml(bool value) {
  return value ? "true" : "false";
}
std::string yaml(int64_t value) {
  return std::to_string(value);
}
std::string yaml(double value) {
  return yaml_number(value);
}

template <typename T>
std::string yaml(const std::vector<T>& values) {
  std::vector<std::string> scalars;
  for (const T& value : values) {
    scalars.push_back(yaml(value));
  }
  return yaml_list(scalars);
}

template <typename T>
std::string yaml(const std::optional<T>& value) {
  return value.has_value() ? yaml(*value) : kNull;
}

template <typename Pairs>
std::string yaml_map(const Pairs& pairs) {
  std::string map = "{";
  for (const auto& [key, value] : pairs) {
    map.append(map.size() > 1 ? ", " : "").append(yaml_string(key)).append(": ").append(yaml(value));
  }
  return map + "}";
}

template <typename E, std::size_t N>
std::string yaml_words(const Choice<E> (&choices)[N], const std::vector<E>& values) {
  std::vector<std::string> names;
  for (const E value : values) {
    names.push_back(name_of(choices, value));
  }
  return yaml(names);
}

template <typename E, std::size_t N>
std::string yaml_word(const Choice<E> (&choices)[N], const std::optional<E>& value) {
  return value.has_value() ? yaml_string(name_of(choices, *value)) : kNull;
}

void dump_run(const RunConfig& run, YamlWriter& out) {
  out.begin("run");
  out.text("output_dir", run.output_dir);
  out.scalar("seed", std::to_string(run.seed));
  out.scalar("report_to", yaml_words(kReporters, run.report_to));
  out.boolean("debug_collectives", run.debug_collectives);
  out.end();
}

void dump_model(const model::ModelConfig& model, YamlWriter& out) {
  out.begin("model");
  out.text("name_or_path", model.name_or_path);
  out.text("revision", model.revision);
  out.scalar("max_seq_length", yaml(model.max_seq_length));
  out.scalar("pooling", model.pooling.empty() ? kNull : yaml_words(kPoolingModes, model.pooling));
  out.scalar("include_prompt", yaml(model.include_prompt));
  out.scalar("normalize", yaml(model.normalize));
  if (model.dense.has_value()) {
    out.begin("dense");
    out.integer("out_features", model.dense->out_features);
    out.text("activation_function", name_of(kActivations, model.dense->activation_function));
    out.boolean("bias", model.dense->bias);
    out.end();
  } else {
    out.scalar("dense", kNull);
  }
  out.scalar("dropout", yaml(model.dropout));
  out.scalar("prompts", yaml_map(model.prompts));
  out.scalar("truncate_dim", yaml(model.truncate_dim));
  out.scalar("similarity_fn_name", yaml_word(kSimilarities, model.similarity_fn_name));
  out.text("attention", name_of(kAttentionKinds, model.attention));
  out.scalar("causal", yaml(model.causal));
  out.end();
}

void dump_adapter(const peft::AdapterConfig& adapter, YamlWriter& out) {
  out.begin("adapter");
  out.text("type", name_of(kAdapterTypes, adapter.type));
  out.integer("r", adapter.r);
  out.number("lora_alpha", adapter.lora_alpha);
  out.number("lora_dropout", adapter.lora_dropout);
  if (adapter.target_modules.empty()) {
    out.scalar("target_modules", adapter.target_modules_is_list ? "[]" : kNull);
  } else {
    out.scalar("target_modules",
               adapter.target_modules_is_list ? yaml(adapter.target_modules) : yaml(adapter.target_modules.front()));
  }
  out.scalar("exclude_modules",
             adapter.exclude_modules_is_list ? yaml(adapter.exclude_modules) : yaml(adapter.exclude_modules.front()));
  out.scalar("modules_to_save", yaml(adapter.modules_to_save));
  out.scalar("rank_pattern", yaml_map(adapter.rank_pattern));
  out.scalar("alpha_pattern", yaml_map(adapter.alpha_pattern));
  out.scalar("layers_to_transform", yaml(adapter.layers_to_transform));
  out.boolean("use_rslora", adapter.use_rslora);
  out.boolean("use_dora", adapter.use_dora);
  out.boolean("lora_bias", adapter.lora_bias);
  out.text("bias", name_of(kLoraBiases, adapter.bias));
  out.scalar("init_lora_weights", adapter.init_lora_weights == peft::LoraInit::kTrue
                                      ? "true"
                                      : name_of(kLoraInits, adapter.init_lora_weights));
  out.text("dtype", name_of(kWeightDtypes, adapter.dtype));
  out.scalar("path", yaml(adapter.path));
  out.end();
}

void dump_quantization(const quant::QuantizationConfig& config, YamlWriter& out) {
  out.begin("quantization");
  out.text("bnb_4bit_quant_type", name_of(kQuantTypes, config.bnb_4bit_quant_type));
  out.boolean("bnb_4bit_use_double_quant", config.bnb_4bit_use_double_quant);
  out.text("bnb_4bit_compute_dtype", name_of(kWeightDtypes, config.bnb_4bit_compute_dtype));
  out.integer("blocksize", config.blocksize);
  out.end();
}

void dump_sharding(const shard::ShardConfig& sharding, YamlWriter& out) {
  out.begin("sharding");
  out.text("strategy", name_of(kStrategies, sharding.strategy));
  out.scalar("reshard_after_forward", sharding.reshard_after_forward_size.has_value()
                                          ? yaml(sharding.reshard_after_forward_size)
                                          : yaml(sharding.reshard_after_forward));
  out.scalar("hybrid_shard_size", yaml(sharding.hybrid_shard_size));
  out.boolean("cpu_offload", sharding.cpu_offload);
  out.integer("prefetch", sharding.prefetch);
  out.scalar("param_dtype", yaml_word(kParamDtypes, sharding.param_dtype));
  out.text("reduce_dtype", name_of(kParamDtypes, sharding.reduce_dtype));
  if (sharding.wrap == shard::WrapKind::kModules) {
    out.scalar("wrap", yaml(sharding.wrap_modules));
  } else {
    out.text("wrap", sharding.wrap == shard::WrapKind::kAuto ? "auto" : "block");
  }
  out.end();
}

std::string dump_columns(const data::ColumnMap& columns) {
  std::vector<std::pair<std::string, std::string>> roles;
  const std::pair<const char*, const std::string&> named[] = {
      {"anchor", columns.anchor}, {"positive", columns.positive}, {"negative", columns.negative},
      {"text_1", columns.text_1}, {"text_2", columns.text_2},     {"label", columns.label},
      {"score", columns.score}};
  for (const auto& [role, column] : named) {
    if (!column.empty()) {
      roles.emplace_back(role, column);
    }
  }
  for (std::size_t i = 0; i < columns.numbered_negatives.size(); ++i) {
    roles.emplace_back("negative_" + std::to_string(i + 1), columns.numbered_negatives[i]);
  }
  return yaml_map(roles);
}

void dump_datasets(const char* key, const std::vector<data::DatasetConfig>& sets, YamlWriter& out) {
  if (sets.empty()) {
    out.scalar(key, "[]");
    return;
  }
  out.begin(key);
  for (const data::DatasetConfig& set : sets) {
    out.begin_item();
    out.text("name", set.name);
    out.scalar("path", yaml(set.paths));
    out.scalar("columns", dump_columns(set.columns));
    out.scalar("prompts", yaml_map(set.prompts));
    out.number("weight", set.weight);
    out.scalar("limit", yaml(set.limit));
    out.boolean("streaming", set.streaming);
    out.integer("shuffle_buffer", set.shuffle_buffer);
    out.end();
  }
  out.end();
}

void dump_ranking_options(const loss::LossConfig& loss, YamlWriter& out) {
  out.scalar("directions", yaml_words(kDirections, loss.directions));
  out.text("partition_mode", name_of(kPartitionModes, loss.partition_mode));
  out.scalar("hardness_mode", yaml_word(kHardnessModes, loss.hardness_mode));
  out.number("hardness_strength", loss.hardness_strength);
  out.boolean("gather_across_devices", loss.gather_across_devices);
  out.boolean("mask_duplicates", loss.mask_duplicates);
  out.scalar("guide", yaml(loss.guide));
  out.scalar("teacher", yaml(loss.teacher));
}

void dump_loss(const loss::LossConfig& loss, YamlWriter& out) {
  out.begin("loss");
  out.text("type", name_of(kLossTypes, loss.type));
  out.number("scale", loss.scale);
  out.text("similarity_fct", name_of(kLossSimilarities, loss.similarity_fct));
  if (loss.matryoshka.has_value()) {
    out.begin("matryoshka");
    out.scalar("dims", yaml(loss.matryoshka->dims));
    out.scalar("weights", yaml(loss.matryoshka->weights));
    out.end();
  } else {
    out.scalar("matryoshka", kNull);
  }
  if (loss.type == loss::LossType::kMultipleNegativesRanking) {
    dump_ranking_options(loss, out);
  }
  out.end();
}

void dump_text_file(const char* key, const eval::TextFileConfig& file, YamlWriter& out) {
  out.begin(key);
  out.text("path", file.path);
  out.scalar("id", file.id_field.empty() ? kNull : yaml(file.id_field));
  out.scalar("text", file.text_field.empty() ? kNull : yaml(file.text_field));
  out.end();
}

void dump_retrieval(const eval::EvaluatorConfig& evaluator, YamlWriter& out) {
  dump_text_file("queries", evaluator.queries, out);
  dump_text_file("corpus", evaluator.corpus, out);
  out.begin("qrels");
  out.text("path", evaluator.qrels_path);
  out.end();
  out.scalar("query_prompt", yaml(evaluator.query_prompt.text));
  out.scalar("query_prompt_name", yaml(evaluator.query_prompt.name));
  out.scalar("corpus_prompt", yaml(evaluator.corpus_prompt.text));
  out.scalar("corpus_prompt_name", yaml(evaluator.corpus_prompt.name));
  out.boolean("graded", evaluator.graded);
  out.boolean("exclude_identical_ids", evaluator.exclude_identical_ids);
}

void dump_pair_file(const eval::PairFileConfig& pairs, YamlWriter& out) {
  out.text("path", pairs.path);
  out.begin("columns");
  out.text("sentence1", pairs.sentence1);
  out.text("sentence2", pairs.sentence2);
  out.text("score", pairs.score);
  out.end();
}

void dump_evaluators(const std::vector<eval::EvaluatorConfig>& evaluators, YamlWriter& out) {
  if (evaluators.empty()) {
    out.scalar("evaluators", "[]");
    return;
  }
  out.begin("evaluators");
  for (const eval::EvaluatorConfig& evaluator : evaluators) {
    out.begin_item();
    out.text("type", name_of(kEvaluatorTypes, evaluator.type));
    out.text("name", evaluator.name);
    out.scalar("batch_size", yaml(evaluator.batch_size));
    out.scalar("similarity_fn_names", yaml_words(kSimilarities, evaluator.similarity_fn_names));
    out.scalar("truncate_dim", yaml(evaluator.truncate_dim));
    out.scalar("precision", yaml_word(kPrecisions, evaluator.precision));
    out.boolean("write_csv", evaluator.write_csv);
    if (evaluator.type == eval::EvaluatorType::kEmbeddingSimilarity) {
      dump_pair_file(evaluator.pairs, out);
    } else {
      dump_retrieval(evaluator, out);
    }
    out.end();
  }
  out.end();
}

void dump_optim(const optim::OptimConfig& optim, YamlWriter& out) {
  out.number("learning_rate", optim.learning_rate);
  out.scalar("learning_rate_mapping", yaml_map(optim.learning_rate_mapping));
  out.number("weight_decay", optim.weight_decay);
  out.number("adam_beta1", optim.adam_beta1);
  out.number("adam_beta2", optim.adam_beta2);
  out.number("adam_epsilon", optim.adam_epsilon);
  out.number("max_grad_norm", optim.max_grad_norm);
  out.text("optim", name_of(kOptimizers, optim.optim));
  out.text("lr_scheduler_type", name_of(kSchedules, optim.lr_scheduler_type));
  out.number("warmup_steps", optim.warmup_steps);
}

void dump_train(const Recipe& recipe, YamlWriter& out) {
  const TrainConfig& train = recipe.train;
  out.begin("train");
  out.number("num_train_epochs", train.num_train_epochs);
  out.integer("max_steps", train.max_steps);
  out.integer("per_device_train_batch_size", train.per_device_train_batch_size);
  out.scalar("global_batch_size", yaml(train.global_batch_size));
  out.integer("per_device_eval_batch_size", train.per_device_eval_batch_size);
  out.integer("gradient_accumulation_steps", train.gradient_accumulation_steps);
  dump_optim(recipe.optim, out);
  out.boolean("bf16", train.bf16);
  out.boolean("gradient_checkpointing", train.gradient_checkpointing);
  out.text("packing", name_of(kPackings, train.packing));
  out.boolean("shuffle", train.shuffle);
  out.text("on_nonfinite", name_of(kOnNonfinites, train.on_nonfinite));
  out.text("batch_sampler", name_of(kBatchSamplers, train.batch_sampler));
  out.text("multi_dataset_batch_sampler", name_of(kMultiDatasetBatchSamplers, train.multi_dataset_batch_sampler));
  out.boolean("dataloader_drop_last", train.dataloader_drop_last);
  out.number("logging_steps", train.logging_steps);
  out.text("eval_strategy", name_of(kEvalStrategies, train.eval_strategy));
  out.scalar("eval_steps", yaml(train.eval_steps));
  out.boolean("eval_on_start", train.eval_on_start);
  out.scalar("early_stopping_patience", yaml(train.early_stopping_patience));
  out.number("early_stopping_threshold", train.early_stopping_threshold);
  out.end();
}

void dump_checkpoint(const checkpoint::CheckpointConfig& config, YamlWriter& out) {
  out.begin("checkpoint");
  out.text("state_dict_type", name_of(kStateDictTypes, config.state_dict_type));
  out.text("save_strategy", name_of(kSaveStrategies, config.save_strategy));
  out.number("save_steps", config.save_steps);
  out.scalar("save_total_limit", yaml(config.save_total_limit));
  out.boolean("save_only_model", config.save_only_model);
  out.boolean("adapter_only", config.adapter_only);
  out.boolean("load_best_model_at_end", config.load_best_model_at_end);
  out.scalar("metric_for_best_model", yaml(config.metric_for_best_model));
  out.scalar("greater_is_better", yaml(config.greater_is_better));
  out.boolean("async", config.is_async);
  out.end();
}

void dump_launch(const dist::LaunchConfig& launch, YamlWriter& out) {
  out.begin("launch");
  out.scalar("nproc", launch.nproc.has_value() ? yaml(launch.nproc) : "auto");
  out.text("backend", name_of(kBackends, launch.backend));
  out.number("timeout_s", launch.timeout_s);
  out.scalar("threads_per_rank", launch.threads_per_rank.has_value() ? yaml(launch.threads_per_rank) : "auto");
  out.end();
}

}  // namespace

std::string dump(const Recipe& recipe) {
  YamlWriter out;
  dump_run(recipe.run, out);
  dump_model(recipe.model, out);
  if (recipe.adapter.has_value()) {
    dump_adapter(*recipe.adapter, out);
  }
  if (recipe.quantization.has_value()) {
    dump_quantization(*recipe.quantization, out);
  }
  dump_sharding(recipe.sharding, out);
  out.begin("data");
  dump_datasets("train", recipe.data.train, out);
  dump_datasets("eval", recipe.data.eval, out);
  out.end();
  dump_loss(recipe.loss, out);
  dump_evaluators(recipe.evaluators, out);
  dump_train(recipe, out);
  dump_checkpoint(recipe.checkpoint, out);
  dump_launch(recipe.launch, out);
  return out.result();
}

}  // namespace stft::recipe
