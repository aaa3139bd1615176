// AdamW with moments of 8 bits in blocks (bitsandbytes' AdamW8bit, quant/bnb_adam8bit.h): "state1" and "state2" are the
// codes of the first and the second moment, "absmax1" and "absmax2" the largest magnitudes of their blocks.
//
// The peer cuts the flattened tensor into blocks of 256. Here every row of dimension 0 is cut by itself, its last block
// may be short: rows are what ranks share a tensor by, so a step gives the same bits whoever has which rows, and
// checkpoints can be read by any number of ranks. Where rows are a multiple of 256 wide the blocks are the peer's.
#pragma once

#include <cstdint>
#include <memory>

#include "optim/optimizer.h"

namespace stft::optim {

// Whether the moments of a tensor are kept in 8 bits; else they are AdamW's. As transformers sets the peer up, tables
// of embeddings and tensors of less than 4096 elements are not: what an id looks up gets gradients so seldom, and of so
// different sizes, that the second moment of its smaller elements rounds to 0 before the first does. Nor are rows of
// one element (biases and norms), which would take more memory than fp32. transformers exempts nn.Embedding alone; here
// the table of a StaticEmbedding and PEFT's lora_embedding_A are tables, too.
bool has_8bit_moments(const TensorFacts& facts);

std::unique_ptr<Optimizer> make_adamw_8bit(const OptimConfig& config);

}  // namespace stft::optim
