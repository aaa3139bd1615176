// Reading the committed goldens.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "checkpoint/dtype.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace stft::test {

inline std::string source_path(const std::string& relative) {
  return std::string(STFT_SOURCE_DIR) + "/" + relative;
}

inline std::string golden_path(const std::string& name) {
  return source_path("test/golden/" + name);
}

// The model that scripts/setup.sh fetches.
inline std::string minilm_path() {
  return source_path(".deps/models/all-MiniLM-L6-v2");
}

inline io::Json golden_json(const std::string& name) {
  return io::read_json_file(golden_path(name));
}

// A floating-point tensor of a safetensors file as fp32.
inline at::Tensor read_tensor(const std::string& path, const std::string& name) {
  const auto file = io::SafetensorsFile::open(path);
  const io::TensorInfo* info = file.find(name);
  if (info == nullptr) {
    throw std::runtime_error("no tensor " + name + " in " + path);
  }
  auto tensor = at::empty(info->shape, at::kFloat);
  checkpoint::read_as_float(file.bytes(*info), info->dtype, tensor.view({-1}));
  return tensor;
}

inline double max_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace stft::test
