// The recipe's `loss:` block. Class names and option names are those of sentence-transformers 6.2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stft::loss {

enum class LossType { kCoSent, kMultipleNegativesRanking };

enum class SimilarityFunction { kCosSim, kDotScore, kEuclideanSim, kManhattanSim };
// Of MultipleNegativesRankingLoss only.
enum class Direction { kQueryToDoc, kQueryToQuery, kDocToQuery, kDocToDoc };
enum class PartitionMode { kJoint, kPerDirection };
enum class HardnessMode { kInBatchNegatives, kHardNegatives, kAllNegatives };

struct MatryoshkaConfig {
  std::vector<int64_t> dims;
  std::vector<double> weights;
};

// The options of all losses; those of another loss than `type` keep their defaults.
struct LossConfig {
  LossType type = LossType::kCoSent;
  double scale = 20.0;
  SimilarityFunction similarity_fct = SimilarityFunction::kCosSim;
  std::optional<MatryoshkaConfig> matryoshka;

  // MultipleNegativesRankingLoss.
  std::vector<Direction> directions = {Direction::kQueryToDoc};
  PartitionMode partition_mode = PartitionMode::kJoint;
  std::optional<HardnessMode> hardness_mode;
  double hardness_strength = 0.0;
  bool gather_across_devices = true;
  bool mask_duplicates = false;
  std::optional<std::string> guide;
  std::optional<std::string> teacher;
};

}  // namespace stft::loss
