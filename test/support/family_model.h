// Model directories of any family with weights of their own, for trainings.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/dtype.h"
#include "io/safetensors.h"
#include "model/encoder.h"
#include "support/golden.h"

namespace stft::test {

// Of the first case of a committed golden, for tiny_bert's tokenizer.
inline io::Json trainable_config(const std::string& family) {
  io::Json config = golden_json("families/" + family + ".json").at("cases").at(0).at("config");
  config["vocab_size"] = 500;
  config["max_position_embeddings"] = 64;
  return config;
}

struct NamedTensor {
  std::string name;
  at::Tensor value;
};

// A pseudo-random value for every parameter of the encoder of `config`.
inline std::vector<NamedTensor> invented_weights(const io::Json& config) {
  model::ParameterTable parameters;
  std::vector<model::Block> blocks;
  model::ProjectionTable projections;
  const auto encoder = model::build_encoder({config, "config.json", std::nullopt, {parameters, blocks, projections}});
  std::vector<NamedTensor> weights;
  for (const model::Parameter& parameter : parameters) {
    const auto seed = static_cast<double>(std::hash<std::string>()(parameter.name) % 1000);
    const auto wild = (at::arange(parameter.numel(), at::kDouble) * 12.9898 + seed).sin() * 43758.5453;
    const auto unit = (wild - wild.floor() - 0.5).to(at::kFloat).view(parameter.shape);
    const bool is_scale = parameter.shape.size() == 1 && parameter.name.ends_with("weight");
    weights.push_back({parameter.name, is_scale ? unit * 0.4 + 1 : unit * 0.6});
  }
  return weights;
}

struct WeightFile {
  std::string name = "model.safetensors";
  std::string prefix = "";
  io::Dtype dtype = io::Dtype::kF32;
};

inline void write_weights(const std::string& directory, const std::vector<NamedTensor>& weights,
                          const WeightFile& file = {}) {
  std::vector<io::TensorSpec> specs;
  for (const NamedTensor& weight : weights) {
    specs.push_back({file.prefix + weight.name, file.dtype, weight.value.sizes().vec()});
  }
  io::SafetensorsWriter writer((std::filesystem::path(directory) / file.name).string(), specs, {{"format", "pt"}});
  for (const auto& target : writer.layout()) {
    const auto found = std::find_if(weights.begin(), weights.end(), [&](const NamedTensor& weight) {
      return file.prefix + weight.name == target.name;
    });
    writer.append(checkpoint::write_as(found->value.contiguous(), target.dtype));
  }
  writer.finish();
}

// config.json and tiny_bert's tokenizer; a plain Hugging Face directory.
inline void write_model_directory(const std::string& directory, const io::Json& config) {
  std::filesystem::create_directories(directory);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
    std::filesystem::copy(golden_path(std::string("tiny_bert/") + file), std::filesystem::path(directory) / file);
  }
  std::ofstream(std::filesystem::path(directory) / "config.json") << config.dump(2);
}

}  // namespace stft::test
