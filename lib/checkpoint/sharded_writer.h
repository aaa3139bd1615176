// Writing a torch.distributed.checkpoint directory by all ranks, each its own rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/attempt.h"
#include "checkpoint/dcp_file.h"
#include "checkpoint/dcp_metadata.h"
#include "checkpoint/tensor_source.h"
#include "checkpoint/weight_plan.h"

namespace stft::checkpoint {

// A tensor of the directory, without the places of its parts.
struct ShardedTensor {
  DcpPath path;  // ("model", "0.model.encoder..."): joined with dots it is the key
  io::Dtype dtype = io::Dtype::kF32;
  std::vector<int64_t> shape;
};

// "model.0.model.encoder..." from ("model", "0.model.encoder...").
std::string dcp_key(const DcpPath& path);

// What a tensor of a model's plan is in a SHARDED checkpoint: parameters as fp32.
ShardedTensor sharded_entry(const PlannedTensor& tensor);

// The box that some rows of dimension 0 make, without its place; a scalar's box has no dimensions.
DcpChunk row_chunk(const std::vector<int64_t>& shape, RowRange rows);

// All ranks add the same entries in the same order; what a rank does not hold it adds with no rows. Failures of writing
// go to the attempt.
class ShardedWriter {
 public:
  // `directory` exists. Writes this rank's file of it.
  ShardedWriter(dist::ProcessGroup& world, std::string directory, Attempt& attempt);

  // Rows of dimension 0 that this rank writes, with their bytes; a scalar is one row. No rows: nothing.
  void add_rows(ShardedTensor tensor, RowRange rows, std::span<const std::byte> bytes);

  // Written by rank 0.
  void add_object(DcpPath path, const io::PythonValue& value);

  // Collective: completes this rank's file, tells rank 0 all places, and rank 0 writes the index.
  void finish();

 private:
  struct Part {
    RowRange rows;
    DcpPlace place;
  };

  dist::ProcessGroup& world_;
  std::string directory_;
  Attempt& attempt_;
  std::unique_ptr<DcpFileWriter> file_;
  std::vector<ShardedTensor> tensors_;
  std::vector<Part> parts_;         // of this rank, one a tensor
  std::vector<DcpObject> objects_;  // rank 0
};

}  // namespace stft::checkpoint
