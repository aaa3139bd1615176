// Boxes of a tensor: whether they tile it, and copying rows out of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/dcp_metadata.h"

namespace stft::checkpoint {

// Why the chunks are no tiling of the tensor (a chunk outside, an overlap, a gap); nothing when they are one. Empty
// chunks are ignored.
std::optional<std::string> tiling_fault(const DcpTensor& tensor);

// A run of rows of dimension 0; a scalar is one row.
struct DcpRows {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Copies the part of `rows` that lies in a chunk of the tensor to its place in `target`, which holds those rows whole.
// `data`: the chunk's elements, contiguous.
void copy_chunk_rows(const DcpTensor& tensor, const DcpChunk& chunk, std::span<const std::byte> data, DcpRows rows,
                     std::span<std::byte> target);

}  // namespace stft::checkpoint
