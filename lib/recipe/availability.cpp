#include "recipe/availability.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "recipe/choices.h"
#include "recipe/files.h"
#include "recipe/nccl_refusal.h"
#include "recipe/nearest.h"

namespace stft::recipe {

namespace {

std::vector<std::string> available_losses() {
  std::vector<std::string> names;
  for (const Choice<loss::LossType>& choice : kLossTypes) {
    names.emplace_back(choice.name);
  }
  return names;
}

// The other loss classes of sentence-transformers 6.2.
const std::vector<std::string>& coming_losses() {
  static const std::vector<std::string> names = {"CachedMultipleNegativesRankingLoss",
                                                 "MultipleNegativesSymmetricRankingLoss",
                                                 "CachedMultipleNegativesSymmetricRankingLoss",
                                                 "GISTEmbedLoss",
                                                 "CachedGISTEmbedLoss",
                                                 "AnglELoss",
                                                 "CosineSimilarityLoss",
                                                 "TripletLoss",
                                                 "ContrastiveLoss",
                                                 "OnlineContrastiveLoss",
                                                 "MarginMSELoss",
                                                 "DistillKLDivLoss",
                                                 "EmbedDistillLoss",
                                                 "MSELoss",
                                                 "MatryoshkaLoss",
                                                 "Matryoshka2dLoss",
                                                 "AdaptiveLayerLoss",
                                                 "SoftmaxLoss",
                                                 "MegaBatchMarginLoss",
                                                 "BatchAllTripletLoss",
                                                 "BatchHardTripletLoss",
                                                 "BatchHardSoftMarginTripletLoss",
                                                 "BatchSemiHardTripletLoss",
                                                 "ContrastiveTensionLoss",
                                                 "ContrastiveTensionLossInBatchNegatives",
                                                 "DenoisingAutoEncoderLoss",
                                                 "GlobalOrthogonalRegularizationLoss"};
  return names;
}

const std::vector<std::string>& available_evaluators() {
  static const std::vector<std::string> names = {"InformationRetrievalEvaluator", "EmbeddingSimilarityEvaluator"};
  return names;
}

const std::vector<std::string>& coming_evaluators() {
  static const std::vector<std::string> names = {
      "NanoBEIREvaluator",         "RerankingEvaluator",   "TripletEvaluator", "BinaryClassificationEvaluator",
      "ParaphraseMiningEvaluator", "TranslationEvaluator", "MSEEvaluator",     "MSEEvaluatorFromDataFrame",
      "LabelAccuracyEvaluator",    "SequentialEvaluator"};
  return names;
}

std::string refuse_class(const std::string& type, const std::vector<std::string>& available,
                         const std::vector<std::string>& coming) {
  if (std::find(available.begin(), available.end(), type) != available.end()) {
    return {};
  }
  const std::string allowed = " (available: " + join_names(available) + ")";
  if (std::find(coming.begin(), coming.end(), type) != coming.end()) {
    return type + " is not available yet" + allowed;
  }
  std::vector<std::string> known = available;
  known.insert(known.end(), coming.begin(), coming.end());
  const std::string shown = type.size() > 80 ? type.substr(0, 80) + "..." : type;
  const std::string suggestion = nearest(type, known);
  return "\"" + shown + "\" is not known" + (suggestion.empty() ? "" : "; did you mean " + suggestion + "?") + allowed;
}

// One setting: refused when `refused`. `what` reads on as "... is not available yet".
struct Refusal {
  std::string key;
  bool refused;
  std::string what;
};

std::vector<Refusal> model_refusals(const model::ModelConfig& m) {
  using model::AttentionKind;
  return {
      {"model.truncate_dim", m.truncate_dim.has_value(), "truncate_dim"},
      {"model.attention", m.attention == AttentionKind::kFlashVarlen || m.attention == AttentionKind::kEager,
       name_of(kAttentionKinds, m.attention)},
  };
}

std::vector<Refusal> sharding_refusals(const shard::ShardConfig& s) {
  // fp16 needs its losses scaled.
  return {
      {"sharding.param_dtype", s.param_dtype == shard::ParamDtype::kFp16, "fp16"},
      {"sharding.reduce_dtype", s.reduce_dtype == shard::ParamDtype::kFp16, "fp16"},
  };
}

std::vector<Refusal> loss_refusals(const loss::LossConfig& l) {
  return {
      {"loss.similarity_fct", l.similarity_fct != loss::SimilarityFunction::kCosSim,
       name_of(kLossSimilarities, l.similarity_fct)},
      {"loss.directions", l.directions != loss::LossConfig{}.directions, "anything but [query_to_doc]"},
      {"loss.partition_mode", l.partition_mode != loss::PartitionMode::kJoint,
       name_of(kPartitionModes, l.partition_mode)},
      {"loss.hardness_mode", l.hardness_mode.has_value(), "hardness weighting"},
      {"loss.hardness_strength", l.hardness_strength != 0.0, "hardness weighting"},
      {"loss.gather_across_devices", !l.gather_across_devices, "false"},
      {"loss.mask_duplicates", l.mask_duplicates, "mask_duplicates"},
      {"loss.matryoshka", l.matryoshka.has_value(), "matryoshka"},
      {"loss.guide", l.guide.has_value(), "a guide model"},
      {"loss.teacher", l.teacher.has_value(), "a teacher model"},
  };
}

std::vector<Refusal> train_refusals(const TrainConfig& t) {
  return {
      {"train.batch_sampler", t.batch_sampler != BatchSampler::kBatchSampler, name_of(kBatchSamplers, t.batch_sampler)},
      {"train.multi_dataset_batch_sampler", t.multi_dataset_batch_sampler != MultiDatasetBatchSampler::kProportional,
       name_of(kMultiDatasetBatchSamplers, t.multi_dataset_batch_sampler)},
  };
}

std::vector<Refusal> run_refusals(const Recipe& r) {
  const checkpoint::CheckpointConfig& c = r.checkpoint;
  const bool is_quantized = r.adapter && r.adapter->type == peft::AdapterType::kQlora;
  std::vector<Refusal> refusals = {
      {"adapter.use_dora", is_quantized && r.adapter->use_dora, "DoRA on a quantized base"},
      {"adapter.init_lora_weights", r.adapter && r.adapter->init_lora_weights == peft::LoraInit::kPissa, "pissa"},
      {"quantization.bnb_4bit_compute_dtype",
       r.quantization && r.quantization->bnb_4bit_compute_dtype == quant::WeightDtype::kFp16, "fp16"},
      {"data.train", r.data.train.size() > 1, "more than one data set"},
      {"checkpoint.adapter_only", is_quantized && !c.adapter_only,
       "writing a quantized base (it is quantized alike again when a checkpoint is loaded)"},
      {"checkpoint.async", c.is_async, "async saving"},
  };
  for (const Reporter reporter : r.run.report_to) {
    refusals.push_back({"run.report_to", reporter != Reporter::kJsonl, name_of(kReporters, reporter)});
  }
  return refusals;
}

std::vector<Refusal> evaluator_refusals(const std::string& key, const eval::EvaluatorConfig& e) {
  return {
      {key + ".truncate_dim", e.truncate_dim.has_value(), "truncate_dim"},
      {key + ".precision", e.precision.has_value(), "precision"},
  };
}

// Formats go by the file name; one that names no format of ours is a mistake rather than a feature to come.
std::vector<Refusal> format_refusals(const std::string& key, const std::string& pattern) {
  std::vector<Refusal> refusals;
  std::vector<std::string> files = matching_files(pattern);
  if (files.empty()) {
    files.push_back(pattern);
  }
  const std::vector<std::string> available = {".jsonl", ".json-lines", ".csv", ".tsv"};
  for (const std::string& file : files) {
    const std::string extension = std::filesystem::path(file).extension().string();
    const bool refused = std::find(available.begin(), available.end(), extension) == available.end();
    const std::string format = extension.empty() ? "a file without extension" : "the format " + extension;
    refusals.push_back({key, refused, format + " ('" + file + "'; available: " + join_names(available) + ")"});
  }
  return refusals;
}

std::vector<Refusal> dataset_refusals(const std::string& key, const data::DatasetConfig& set) {
  return {
      {key + ".weight", set.weight != 1.0, "weight"},
      {key + ".streaming", set.streaming, "streaming"},
      {key + ".shuffle_buffer", set.shuffle_buffer != data::DatasetConfig{}.shuffle_buffer, "streaming"},
      {key + ".loss", set.has_own_loss, "a loss of its own"},
  };
}

void report(const std::vector<Refusal>& refusals, Diagnostics& diagnostics) {
  for (const Refusal& refusal : refusals) {
    if (refusal.refused) {
      diagnostics.add(refusal.key, refusal.what + " is not available yet");
    }
  }
}

}  // namespace

std::string refuse_loss(const std::string& type) {
  return refuse_class(type, available_losses(), coming_losses());
}

std::string refuse_evaluator(const std::string& type) {
  return refuse_class(type, available_evaluators(), coming_evaluators());
}

void refuse_evaluator_options(Reader& reader, eval::EvaluatorType type) {
  const std::vector<std::string_view> of_retrieval = {
      "corpus_chunk_size", "accuracy_at_k",       "precision_recall_at_k", "mrr_at_k",         "ndcg_at_k",
      "map_at_k",          "main_score_function", "show_progress_bar",     "write_predictions"};
  const std::vector<std::string_view> of_similarity = {"main_similarity", "show_progress_bar"};
  for (const std::string_view key : type == eval::EvaluatorType::kEmbeddingSimilarity ? of_similarity : of_retrieval) {
    if (reader.child(key) != nullptr) {
      reader.diagnostics().add(reader.key_path(key), std::string(key) + " is not available yet");
    }
  }
}

void check_availability(const Recipe& recipe, Diagnostics& diagnostics) {
  report(model_refusals(recipe.model), diagnostics);
  report(sharding_refusals(recipe.sharding), diagnostics);
  report(loss_refusals(recipe.loss), diagnostics);
  report(train_refusals(recipe.train), diagnostics);
  report(run_refusals(recipe), diagnostics);
  if (recipe.launch.backend == dist::BackendKind::kNccl) {
    diagnostics.add("launch.backend", nccl_refusal());
  }
  for (const auto& sets : {recipe.data.train, recipe.data.eval}) {
    for (const data::DatasetConfig& set : sets) {
      report(dataset_refusals(set.key_path, set), diagnostics);
      if (diagnostics.has_problem_under(set.key_path + ".path")) {
        continue;  // a file that is not there has no format
      }
      for (const std::string& path : set.paths) {
        report(format_refusals(set.key_path + ".path", path), diagnostics);
      }
    }
  }
  for (const eval::EvaluatorConfig& evaluator : recipe.evaluators) {
    report(evaluator_refusals(evaluator.key_path, evaluator), diagnostics);
  }
}

}  // namespace stft::recipe
