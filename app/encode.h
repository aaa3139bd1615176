// `stft encode`: texts to embeddings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/eval_config.h"

namespace stft::app {

struct EncodeOptions {
  std::string model;              // a model directory, or the id of a hub's model
  std::string revision = "main";  // of a hub's model
  std::string input_path;
  std::optional<std::string> column;  // of a table; without: one text a line
  std::string output_path;            // .npy, .safetensors or .jsonl
  std::optional<std::string> prompt_name;
  std::optional<int64_t> truncate_dim;  // default: the model's own
  eval::Precision precision = eval::Precision::kFloat32;
  int64_t nproc = 1;
  bool overwrites = false;
};

// Runs as one rank when the environment says so, else starts the ranks and supervises them, as run_train does. Every
// rank has the whole model; rank 0 writes the output. `arguments` is argv[1..], for the ranks. Returns the exit code.
int run_encode(const EncodeOptions& options, const std::vector<std::string>& arguments);

}  // namespace stft::app
