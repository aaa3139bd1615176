// The recipe's `model:` block.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace stft::model {

// How token vectors become one vector (sentence-transformers Pooling). Several modes are concatenated in listed order.
enum class PoolingMode { kCls, kMean, kMax, kMeanSqrtLenTokens, kWeightedMean, kLastToken };

// Activation of a Dense module; the names of torch.nn.
enum class DenseActivation { kTanh, kIdentity, kGelu, kRelu, kSilu, kSigmoid };

// Vector similarity used by evaluators (sentence-transformers SimilarityFunction).
enum class Similarity { kCosine, kDot, kEuclidean, kManhattan };

enum class AttentionKind { kAuto, kSdpa, kFlashVarlen, kEager };

struct DenseConfig {
  int64_t out_features = 0;
  DenseActivation activation_function = DenseActivation::kTanh;
  bool bias = true;
};

struct ModelConfig {
  std::string name_or_path;               // required: a model directory, or the id of a model of a hub
  std::string revision = "main";          // of the hub's model: a branch, a tag or a commit
  std::string snapshot;                   // no key: where the hub's model lies on this machine, once that is known
  std::string base;                       // no key: of an adapter's directory, where its base model lies
  std::optional<int64_t> max_seq_length;  // unset: the model's own
  std::vector<PoolingMode> pooling;       // empty: the model's own
  std::optional<bool> include_prompt;     // unset: the model's own
  std::optional<bool> normalize;          // unset: the model's own
  std::optional<DenseConfig> dense;
  std::optional<double> dropout;  // replaces every dropout of the model's config
  std::map<std::string, std::string> prompts;
  std::optional<int64_t> truncate_dim;
  std::optional<Similarity> similarity_fn_name;  // unset: the model's own (cosine)
  AttentionKind attention = AttentionKind::kAuto;
  std::optional<bool> causal;

  // Of the model's files. Meaningful for a hub's model once `snapshot` is known.
  const std::string& directory() const { return snapshot.empty() ? name_or_path : snapshot; }
};

}  // namespace stft::model
