// How a tensor is cut over the ranks of a shard group.
#pragma once

#include <cstdint>
#include <vector>

namespace stft::shard {

// Rows are cut as torch.chunk does: chunk = ceil(rows / ranks), rank r owns [r * chunk, min((r + 1) * chunk, rows)), so
// the last ranks may own fewer rows or none. Every rank stores `chunk` rows; those beyond its own are zero and stay so.
// (PyTorch FSDP2, torch.distributed.fsdp.fully_shard.)
struct ShardLayout {
  int64_t rows = 0;        // dimension 0 of the whole tensor
  int64_t row_numel = 1;   // product of the other dimensions
  int64_t chunk_rows = 0;  // rows stored on every rank
  int64_t first_row = 0;   // of this rank
  int64_t own_rows = 0;    // of this rank

  int64_t chunk_numel() const { return chunk_rows * row_numel; }
  int64_t own_numel() const { return own_rows * row_numel; }
};

// InternalError for a tensor without dimensions: make scalars 1-D.
ShardLayout shard_layout(const std::vector<int64_t>& shape, int64_t rank, int64_t ranks);

}  // namespace stft::shard
