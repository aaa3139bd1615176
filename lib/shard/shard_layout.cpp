#include "shard/shard_layout.h"

#include <algorithm>

#include "base/error.h"

namespace stft::shard {

ShardLayout shard_layout(const std::vector<int64_t>& shape, int64_t rank, int64_t ranks) {
  STFT_CHECK(!shape.empty(), "a tensor without dimensions cannot be sharded; make it 1-D");
  ShardLayout layout;
  layout.rows = shape.front();
  for (size_t i = 1; i < shape.size(); ++i) {
    layout.row_numel *= shape[i];
  }
  layout.chunk_rows = (layout.rows + ranks - 1) / ranks;
  layout.first_row = std::min(rank * layout.chunk_rows, layout.rows);
  layout.own_rows = std::min(layout.chunk_rows, layout.rows - layout.first_row);
  return layout;
}

}  // namespace stft::shard
