#include "train/merge_drift.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "eval/embedder.h"
#include "train/loaded_model.h"

namespace stft::train {
namespace {

// Short and long, of several kinds and scripts.
constexpr std::array<std::string_view, 12> kProbes = {
    "a small domesticated carnivorous mammal",
    "The bank raised its interest rate by a quarter of a point.",
    "How do I reset my password?",
    "def add(a, b): return a + b",
    "to move through water by using arms and legs",
    "Das Wetter wird morgen besser.",
    "1, 2, 3",
    "photosynthesis",
    "The committee, which had met every week since the spring, could not agree on the wording of its second report and "
    "put the vote off until the members from the coast had arrived.",
    "a feeling of great happiness",
    "Le train part a huit heures.",
    "x"};

at::Tensor vectors_of(const LoadedModel& loaded) {
  const eval::Embedder embedder(*loaded.model, *loaded.tokenizer, model::Layout::kPacked);
  return embedder.embed(kProbes, embedder.measured(""));
}

}  // namespace

MergeDrift merge_drift(const DriftedModels& models) {
  const at::Tensor merged = vectors_of(load_model(models.merged));
  const at::Tensor trained = vectors_of(load_model(models.adapter, models.base, &models.quantization));
  if (!merged.isfinite().all().item<bool>() || !trained.isfinite().all().item<bool>()) {
    throw UserError(fmt::format("'{}': its vectors are not finite",
                                merged.isfinite().all().item<bool>() ? models.adapter : models.merged));
  }
  const auto cosine = at::cosine_similarity(merged.to(at::kDouble), trained.to(at::kDouble), 1, 0);
  return {std::max(0.0, 1 - cosine.min().item<double>()), static_cast<int64_t>(kProbes.size())};
}

}  // namespace stft::train
