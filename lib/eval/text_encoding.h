// Many texts to one matrix, by all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "dist/process_group.h"
#include "eval/embedder.h"

namespace stft::eval {

struct EncodingOptions {
  std::string prompt;                   // put before every text
  std::optional<int64_t> truncate_dim;  // the first dimensions of the model's output, not normalized again
  int64_t block_size = 32;              // texts of a forward pass
  int64_t threads = 1;                  // forward passes at a time
};

// Collective over `world`, with the same arguments on every rank: the embeddings [texts, D] in the order of the texts
// on rank 0, an undefined tensor on the others. Blocks of similar length are dealt to ranks and threads; every block is
// computed by one thread, so the bytes depend on neither. Beside the matrix a rank holds the vectors of a few hundred
// blocks. UserError when a vector is not finite.
at::Tensor encode_texts(const Embedder& embedder, std::span<const std::string_view> texts,
                        const EncodingOptions& options, dist::ProcessGroup& world);

}  // namespace stft::eval
