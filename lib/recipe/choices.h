// The words that a recipe uses for each enumeration, for reading, for messages and for dumping.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "recipe/recipe.h"

namespace stft::recipe {

template <typename E>
struct Choice {
  std::string_view name;
  E value;
};

inline constexpr Choice<Reporter> kReporters[] = {{"jsonl", Reporter::kJsonl},
                                                  {"csv", Reporter::kCsv},
                                                  {"tensorboard", Reporter::kTensorboard},
                                                  {"html", Reporter::kHtml}};
inline constexpr Choice<model::PoolingMode> kPoolingModes[] = {
    {"cls", model::PoolingMode::kCls},
    {"mean", model::PoolingMode::kMean},
    {"max", model::PoolingMode::kMax},
    {"mean_sqrt_len_tokens", model::PoolingMode::kMeanSqrtLenTokens},
    {"weightedmean", model::PoolingMode::kWeightedMean},
    {"lasttoken", model::PoolingMode::kLastToken}};
inline constexpr Choice<model::DenseActivation> kActivations[] = {
    {"Tanh", model::DenseActivation::kTanh}, {"Identity", model::DenseActivation::kIdentity},
    {"GELU", model::DenseActivation::kGelu}, {"ReLU", model::DenseActivation::kRelu},
    {"SiLU", model::DenseActivation::kSilu}, {"Sigmoid", model::DenseActivation::kSigmoid}};
inline constexpr Choice<model::Similarity> kSimilarities[] = {{"cosine", model::Similarity::kCosine},
                                                              {"dot", model::Similarity::kDot},
                                                              {"euclidean", model::Similarity::kEuclidean},
                                                              {"manhattan", model::Similarity::kManhattan}};
inline constexpr Choice<eval::EvaluatorType> kEvaluatorTypes[] = {
    {"InformationRetrievalEvaluator", eval::EvaluatorType::kInformationRetrieval},
    {"EmbeddingSimilarityEvaluator", eval::EvaluatorType::kEmbeddingSimilarity}};
inline constexpr Choice<model::AttentionKind> kAttentionKinds[] = {{"auto", model::AttentionKind::kAuto},
                                                                   {"sdpa", model::AttentionKind::kSdpa},
                                                                   {"flash_varlen", model::AttentionKind::kFlashVarlen},
                                                                   {"eager", model::AttentionKind::kEager}};
inline constexpr Choice<peft::AdapterType> kAdapterTypes[] = {{"lora", peft::AdapterType::kLora},
                                                              {"qlora", peft::AdapterType::kQlora}};
inline constexpr Choice<peft::LoraBias> kLoraBiases[] = {
    {"none", peft::LoraBias::kNone}, {"all", peft::LoraBias::kAll}, {"lora_only", peft::LoraBias::kLoraOnly}};
inline constexpr Choice<peft::LoraInit> kLoraInits[] = {
    {"true", peft::LoraInit::kTrue}, {"gaussian", peft::LoraInit::kGaussian}, {"pissa", peft::LoraInit::kPissa}};
inline constexpr Choice<quant::WeightDtype> kWeightDtypes[] = {
    {"fp32", quant::WeightDtype::kFp32}, {"bf16", quant::WeightDtype::kBf16}, {"fp16", quant::WeightDtype::kFp16}};
inline constexpr Choice<quant::QuantType> kQuantTypes[] = {{"nf4", quant::QuantType::kNf4},
                                                           {"fp4", quant::QuantType::kFp4}};
inline constexpr Choice<shard::Strategy> kStrategies[] = {{"full_shard", shard::Strategy::kFullShard},
                                                          {"shard_grad_op", shard::Strategy::kShardGradOp},
                                                          {"hybrid_shard", shard::Strategy::kHybridShard},
                                                          {"no_shard", shard::Strategy::kNoShard},
                                                          {"auto", shard::Strategy::kAuto}};
inline constexpr Choice<shard::ParamDtype> kParamDtypes[] = {
    {"fp32", shard::ParamDtype::kFp32}, {"bf16", shard::ParamDtype::kBf16}, {"fp16", shard::ParamDtype::kFp16}};
inline constexpr Choice<loss::LossType> kLossTypes[] = {
    {"CoSENTLoss", loss::LossType::kCoSent},
    {"MultipleNegativesRankingLoss", loss::LossType::kMultipleNegativesRanking}};
inline constexpr Choice<loss::SimilarityFunction> kLossSimilarities[] = {
    {"cos_sim", loss::SimilarityFunction::kCosSim},
    {"dot_score", loss::SimilarityFunction::kDotScore},
    {"euclidean_sim", loss::SimilarityFunction::kEuclideanSim},
    {"manhattan_sim", loss::SimilarityFunction::kManhattanSim}};
inline constexpr Choice<loss::Direction> kDirections[] = {{"query_to_doc", loss::Direction::kQueryToDoc},
                                                          {"query_to_query", loss::Direction::kQueryToQuery},
                                                          {"doc_to_query", loss::Direction::kDocToQuery},
                                                          {"doc_to_doc", loss::Direction::kDocToDoc}};
inline constexpr Choice<loss::PartitionMode> kPartitionModes[] = {
    {"joint", loss::PartitionMode::kJoint}, {"per_direction", loss::PartitionMode::kPerDirection}};
inline constexpr Choice<loss::HardnessMode> kHardnessModes[] = {
    {"in_batch_negatives", loss::HardnessMode::kInBatchNegatives},
    {"hard_negatives", loss::HardnessMode::kHardNegatives},
    {"all_negatives", loss::HardnessMode::kAllNegatives}};
inline constexpr Choice<eval::Precision> kPrecisions[] = {{"float32", eval::Precision::kFloat32},
                                                          {"int8", eval::Precision::kInt8},
                                                          {"uint8", eval::Precision::kUint8},
                                                          {"binary", eval::Precision::kBinary},
                                                          {"ubinary", eval::Precision::kUbinary}};
inline constexpr Choice<optim::OptimizerType> kOptimizers[] = {{"adamw", optim::OptimizerType::kAdamW},
                                                               {"adamw_8bit", optim::OptimizerType::kAdamW8bit},
                                                               {"sgd", optim::OptimizerType::kSgd}};
inline constexpr Choice<optim::ScheduleType> kSchedules[] = {
    {"linear", optim::ScheduleType::kLinear},
    {"cosine", optim::ScheduleType::kCosine},
    {"cosine_with_restarts", optim::ScheduleType::kCosineWithRestarts},
    {"constant", optim::ScheduleType::kConstant},
    {"constant_with_warmup", optim::ScheduleType::kConstantWithWarmup},
    {"polynomial", optim::ScheduleType::kPolynomial},
    {"inverse_sqrt", optim::ScheduleType::kInverseSqrt}};
inline constexpr Choice<Packing> kPackings[] = {{"auto", Packing::kAuto}, {"on", Packing::kOn}, {"off", Packing::kOff}};
inline constexpr Choice<OnNonfinite> kOnNonfinites[] = {{"stop", OnNonfinite::kStop}, {"skip", OnNonfinite::kSkip}};
inline constexpr Choice<BatchSampler> kBatchSamplers[] = {{"batch_sampler", BatchSampler::kBatchSampler},
                                                          {"no_duplicates", BatchSampler::kNoDuplicates},
                                                          {"group_by_label", BatchSampler::kGroupByLabel}};
inline constexpr Choice<MultiDatasetBatchSampler> kMultiDatasetBatchSamplers[] = {
    {"proportional", MultiDatasetBatchSampler::kProportional}, {"round_robin", MultiDatasetBatchSampler::kRoundRobin}};
inline constexpr Choice<EvalStrategy> kEvalStrategies[] = {
    {"no", EvalStrategy::kNo}, {"steps", EvalStrategy::kSteps}, {"epoch", EvalStrategy::kEpoch}};
inline constexpr Choice<checkpoint::StateDictType> kStateDictTypes[] = {
    {"FULL_STATE_DICT", checkpoint::StateDictType::kFull}, {"SHARDED_STATE_DICT", checkpoint::StateDictType::kSharded}};
inline constexpr Choice<checkpoint::SaveStrategy> kSaveStrategies[] = {{"no", checkpoint::SaveStrategy::kNo},
                                                                       {"steps", checkpoint::SaveStrategy::kSteps},
                                                                       {"epoch", checkpoint::SaveStrategy::kEpoch},
                                                                       {"best", checkpoint::SaveStrategy::kBest}};
inline constexpr Choice<dist::BackendKind> kBackends[] = {
    {"auto", dist::BackendKind::kAuto}, {"nccl", dist::BackendKind::kNccl}, {"gloo", dist::BackendKind::kGloo}};

// The word for `value`.
template <typename E, std::size_t N>
std::string name_of(const Choice<E> (&choices)[N], E value) {
  for (const Choice<E>& choice : choices) {
    if (choice.value == value) {
      return std::string(choice.name);
    }
  }
  return {};
}

// The value of `word`, nothing when there is no such word.
template <typename E, std::size_t N>
std::optional<E> value_of(const Choice<E> (&choices)[N], std::string_view word) {
  for (const Choice<E>& choice : choices) {
    if (choice.name == word) {
      return choice.value;
    }
  }
  return std::nullopt;
}

}  // namespace stft::recipe
