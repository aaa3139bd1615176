// The typed recipe: what a YAML file and --set overrides resolve to. Links no LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_config.h"
#include "data/data_config.h"
#include "dist/launch_config.h"
#include "eval/eval_config.h"
#include "loss/loss_config.h"
#include "model/model_config.h"
#include "optim/optim_config.h"
#include "peft/peft_config.h"
#include "shard/shard_config.h"

namespace stft::recipe {

enum class Reporter { kJsonl, kCsv, kTensorboard, kHtml };

struct RunConfig {
  std::string output_dir;  // required
  uint64_t seed = 42;
  std::vector<Reporter> report_to = {Reporter::kJsonl};
  bool report_jsonl = true;  // whether report_to holds jsonl
  bool debug_collectives = false;
};

enum class Packing { kAuto, kOn, kOff };
enum class OnNonfinite { kStop, kSkip };
enum class BatchSampler { kBatchSampler, kNoDuplicates, kGroupByLabel };
enum class MultiDatasetBatchSampler { kProportional, kRoundRobin };
enum class EvalStrategy { kNo, kSteps, kEpoch };

// The keys of `train:` that are not the optimizer's.
struct TrainConfig {
  double num_train_epochs = 3.0;
  int64_t max_steps = -1;                    // above 0: overrides epochs and repeats them
  int64_t per_device_train_batch_size = 8;   // rows; resolved from global_batch_size when that is set
  std::optional<int64_t> global_batch_size;  // rows of one optimizer step at any rank count
  int64_t per_device_eval_batch_size = 8;
  int64_t gradient_accumulation_steps = 1;
  bool bf16 = false;
  bool gradient_checkpointing = false;
  Packing packing = Packing::kAuto;
  bool shuffle = true;
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  BatchSampler batch_sampler = BatchSampler::kBatchSampler;
  MultiDatasetBatchSampler multi_dataset_batch_sampler = MultiDatasetBatchSampler::kProportional;
  bool dataloader_drop_last = false;
  double logging_steps = 10;
  EvalStrategy eval_strategy = EvalStrategy::kNo;
  std::optional<double> eval_steps;  // unset: logging_steps; below 1: a ratio of all steps
  bool eval_on_start = false;
  std::optional<int64_t> early_stopping_patience;
  double early_stopping_threshold = 0.0;
};

struct Recipe {
  RunConfig run;
  model::ModelConfig model;
  std::optional<peft::AdapterConfig> adapter;
  std::optional<quant::QuantizationConfig> quantization;
  shard::ShardConfig sharding;
  data::DataConfig data;
  loss::LossConfig loss;
  std::vector<eval::EvaluatorConfig> evaluators;
  TrainConfig train;
  optim::OptimConfig optim;
  checkpoint::CheckpointConfig checkpoint;
  dist::LaunchConfig launch;
  // Key path -> "file:line" or "--set a.b=v" of every key that was given; for messages.
  std::map<std::string, std::string> origins;
};

enum class Purpose {
  kTraining,
  kEvaluation  // problems of the training data, of run, of checkpoint and of the schedule do not count
};

// Reads `path`, applies `overrides` ("a.b=value", YAML syntax in the value), expands ${VAR} and ${VAR:-default} in
// strings, and checks every key, type and range that needs nothing but the recipe (including files that must exist,
// features that are not available yet, and metric_for_best_model against the evaluators).
// Throws UserError whose message holds every problem, one a line, each with file:line and key path.
Recipe load(const std::string& path, const std::vector<std::string>& overrides, Purpose purpose = Purpose::kTraining);

// With model.snapshot set, for a hub's model whose files are now there, and the checks of load() that had to wait for
// them. Throws UserError like load.
Recipe with_snapshot(Recipe recipe, const std::string& snapshot, Purpose purpose = Purpose::kTraining);

// Checks and derivations that need the number of ranks: global_batch_size into per_device_train_batch_size, batch
// sizes that do not divide, hybrid_shard_size. Throws UserError like load.
Recipe resolve(Recipe recipe, int64_t world_size);

// "recipe.yaml:12: train.bf16" for messages about `key_path`; the key path alone when the recipe does not give it.
std::string where(const Recipe& recipe, const std::string& key_path);

// The recipe with every key and its resolved value, as YAML that load() reads back to the same Recipe.
std::string dump(const Recipe& recipe);

// The metric names that the recipe's evaluators will log (for messages and for best-model checks): without eval_,
// except the losses of data.eval, eval_loss and eval_<set>_loss. Evaluators that leave the similarity to the model
// count as `default_similarity`.
std::vector<std::string> metric_names(const Recipe& recipe, model::Similarity default_similarity);

// Which of metric_names() chooses the best checkpoint: checkpoint.metric_for_best_model, which may be given with or
// without eval_; where it is not, but a best checkpoint is asked for, eval_loss. Nothing when there is no such metric.
std::optional<std::string> best_metric(const Recipe& recipe, model::Similarity default_similarity);

}  // namespace stft::recipe
