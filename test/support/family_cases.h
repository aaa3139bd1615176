// The committed goldens of the model families.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "model/encoder.h"
#include "support/golden.h"

namespace stft::test {

inline std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_path("families"))) {
    if (entry.path().extension() == ".json") {
      names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

struct FamilyGolden {
  explicit FamilyGolden(const std::string& family)
      : json(golden_json("families/" + family + ".json")), tensors(golden_path("families/" + family + ".safetensors")) {
    for (const auto& text : json.at("texts")) {
      texts.push_back(text.get<std::vector<int32_t>>());
    }
  }
  io::Json json;
  std::string tensors;
  std::vector<std::vector<int32_t>> texts;
};

inline model::TokenBatch batch_of(const std::vector<std::vector<int32_t>>& texts, model::Layout layout) {
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets{0};
  std::vector<model::TextKey> keys;
  for (size_t i = 0; i < texts.size(); ++i) {
    ids.insert(ids.end(), texts[i].begin(), texts[i].end());
    offsets.push_back(static_cast<int64_t>(ids.size()));
    keys.push_back({static_cast<uint32_t>(i), 0});
  }
  return model::make_token_batch(ids, offsets, keys, layout);
}

// An encoder by itself, filled from tensors named weights/<name>.
struct PlainEncoder {
  model::ParameterTable parameters;
  std::vector<model::Block> blocks;
  model::ProjectionTable projections;
  std::unique_ptr<model::Encoder> encoder;

  PlainEncoder(const io::Json& config, const std::string& tensors, std::optional<double> dropout = std::nullopt) {
    encoder = model::build_encoder({config, "config.json", dropout, {parameters, blocks, projections}});
    const auto file = io::SafetensorsFile::open(tensors);
    for (model::Parameter& parameter : parameters) {
      const io::TensorInfo* info = file.find("weights/" + parameter.name);
      if (info == nullptr || info->shape != parameter.shape) {
        throw std::runtime_error("no such weight: " + parameter.name);
      }
      parameter.leaf = at::empty(info->shape, at::kFloat);
      checkpoint::read_as_float(file.bytes(*info), info->dtype, parameter.leaf.view({-1}));
      parameter.leaf.set_requires_grad(true);
    }
  }

  // Of each text in the caller's order, one after the other and without padding.
  at::Tensor embed(const model::TokenBatch& batch, const model::ForwardContext& context) const {
    const auto hidden = encoder->forward(batch, context);
    std::vector<at::Tensor> in_memory;
    int64_t first = 0;
    for (const int64_t length : batch.lengths) {
      in_memory.push_back(hidden.narrow(0, first, length));
      first += batch.layout == model::Layout::kPadded ? batch.buckets.front().length : length;
    }
    std::vector<at::Tensor> in_order;
    for (int64_t i = 0; i < batch.texts(); ++i) {
      in_order.push_back(in_memory[static_cast<size_t>(batch.memory_to_caller_N[i].item<int64_t>())]);
    }
    return at::cat(in_order);
  }

  void clear_gradients() {
    for (model::Parameter& parameter : parameters) {
      parameter.leaf.mutable_grad() = at::Tensor();
    }
  }
};

}  // namespace stft::test
