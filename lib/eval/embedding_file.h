// Embeddings as files.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace stft::eval {

// UserError when `path` does not end in .npy, .safetensors or .jsonl, its directory is missing or closed to writing, it
// is a directory, or it exists and `overwrites` is false.
void check_embedding_path(const std::string& path, bool overwrites);

// Writes embeddings [N, D] of float32, int8 or uint8, by the extension:
// - .npy: version 1.0;
// - .safetensors: the tensor "embeddings";
// - .jsonl: {"embedding": [...]} a line; float32 numbers have 9 significant digits, so they read back equal.
// The file appears under its name when it is complete. SystemError when it cannot be written.
void write_embeddings(const std::string& path, const at::Tensor& embeddings_ND);

}  // namespace stft::eval
